"""A plan in words: what runs in one worker, what goes where, what each stage needs and adds, how much there
is to read."""

from __future__ import annotations

from curator.api.format import plural, size
from curator.api.stage import Reduce, Sink, Stage, Unit
from curator.io.files.listing import RUN
from curator.machine.detect import this_machine
from curator.pipeline.checkpoint import CHECKPOINTS
from curator.pipeline.plan import CHECKPOINT_PREFIX, SPOOLS, Operator, Phase, Plan, Step, Target
from curator.run.folder import guard
from curator.run.folder.edits import find_edit
from curator.run.folder.ledger import ledgers_of
from curator.run.folder.lock import holder
from curator.run.folder.owner import OWNER
from curator.run.profiles import load_profiles
from curator.trial.limits import foresee

NAMES_MAX = 8  # columns of a stage that are named


def explain(plan: Plan) -> str:
    """The plan as text, phase by phase, an operator a paragraph. Lists the inputs.

    Raises:
        InputError: they are not there, or the run would read what it writes.
    """
    units = guard.list_units(plan)
    operators, phases = sum(len(p.operators) for p in plan.phases), len(plan.phases)
    lines = [f"{plan.pipeline.name}: {plural(operators, 'operator')}, "
             f"each one a pool of workers that run its stages without a hop between them"]
    if phases > 1:
        lines.append(f"{phases} phases, each of which begins when the one before it is done; what is between "
                     f"them is kept in {plan.out.path_of(SPOOLS)}")
    for phase in plan.phases:
        if phases > 1:
            lines += ["", f"phase {phase.number + 1} of {phases}"]
        for operator in phase.operators:
            lines += ["", f"[{operator.index}] {'reduce' if operator.reader else operator.kind} · "
                          f"{_shape(operator)}"]
            if operator.kind == "source" and not operator.internal:
                own = [unit for index, unit in units if index == operator.index]
                lines.append(f"    reads {plural(len(own), 'unit')}, {size(sum(u.size_bytes for u in own))}")
            lines += _operator(phase, operator)
    aside = sorted({port for p in plan.phases for o in p.operators for (_, port), targets in o.routes.items()
                    if any(_step(p, t).implicit for t in targets)})
    if aside:
        lines += ["", f"rows on {', '.join(aside)} are kept, with the reason, under "
                      f"{plan.out.path_of('<port>/<stage>/')}"]
    for more in (guard.remarks(plan), guard.lacking(plan.phases), _limits(plan), _before(plan, units)):
        lines += ["", *more] if more else []
    return "\n".join(lines)


def _before(plan: Plan, units: list[tuple[int, Unit]]) -> list[str]:
    """What of the results in the folder stays, and what is done again, if there are any."""
    if not plan.out.sub(RUN).exists(OWNER):
        return []
    if holder(plan.out) is not None:
        return [f"a run works in {plan.out.uri} now"]
    ledgers = ledgers_of(plan, None)
    if not any(ledger.records for ledger in ledgers):
        return []
    lines = list(find_edit(plan, ledgers, units).lines(plan.out.uri))
    if lost := guard.describe_lost(plan, ledgers[0], units):
        lines.append(f"{lost}; --prune removes them")
    if missing := guard.describe_missing(plan, guard.find_missing(plan, ledgers, units)):
        lines.append(f"{missing}; --prune makes them again")
    kept = [file for ledger in ledgers for name, file in ledger.written()
            if name.startswith(CHECKPOINT_PREFIX)]
    if kept:
        stays = any(step.checkpoint for phase in plan.phases for step in phase.steps)
        lines.append(f"{plan.out.path_of(CHECKPOINTS)} holds {size(sum(file.size_bytes for file in kept))}"
                     + ("" if stays else ", which a run removes: the recipe has no checkpoint"))
    return lines


def _limits(plan: Plan) -> list[str]:
    """What will limit the run on this machine, if there was one before in the same folder."""
    folder, found = plan.out.sub("_run"), []
    for phase in plan.phases:
        limit = foresee(phase.operators, load_profiles(folder, phase.operators), {0: this_machine()})
        if limit:
            of = f" of phase {phase.number + 1}" if len(plan.phases) > 1 else ""
            found.append(f"limit{of}, as measured before: {limit}")
    return found


def _operator(phase: Phase, operator: Operator) -> list[str]:
    lines = ([f"    reads {', '.join(operator.spools)}, all of it, before it answers"] if operator.reader
             else [])
    for at, step in enumerate(operator.steps):
        if step.implicit:
            continue
        if operator.replays:
            lines.append("    after an edit, for what is behind a checkpoint only")
        lines.append(f"    {step.name}{'' if step.spool else _contract(step.stage)}")
        lines += [f"        > {name}{_contract(stage)}" for name, stage in step.stage.inner().items()]
        if isinstance(step.stage, Sink) and not step.spool:
            lines.append(f"        to {step.stage.path}")
        for (of, port), targets in operator.routes.items():
            named = [f"[{t.operator}] {_step(phase, t).name}" for t in targets
                     if not _step(phase, t).implicit]
            if of == at and named:
                lines.append(f"        {port} -> {', '.join(named)}")
    return lines


def _shape(operator: Operator) -> str:
    need, stage = operator.resources, operator.steps[0].stage
    words = [f"{need.cpus:g} CPU"]
    words += [f"{need.gpus:g} GPU"] if need.gpus else []
    words += [f"{need.memory_gb:g} GB"] if need.memory_gb else []
    words += [f"batches of {operator.batch_size}"] if operator.batch_size else []
    words += [f"{operator.timeout_s:g} s a call"] if operator.timeout_s else []
    words += ["one worker, which holds the state"] if operator.kind == "stateful" else []
    if isinstance(stage, Reduce):
        words.append("one shard" if stage.key is None else f"{plural(stage.shards, 'shard')} by {stage.key}")
    return ", ".join(words)


def _contract(stage: Stage) -> str:
    contract, words = stage.contract(), []
    if contract.needs:
        words.append("needs " + ", ".join(sorted(contract.needs)))
    if contract.adds:
        names = [name if kind is None else f"{name} ({kind})" for name, kind in contract.adds.items()]
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        words.append(f"adds {', '.join(names[:NAMES_MAX])}{more}")
    if contract.removes:
        words.append("removes " + ", ".join(contract.removes))
    return f"  ({'; '.join(words)})" if words else ""


def _step(phase: Phase, target: Target) -> Step:
    return phase.operators[target.operator].steps[target.step]
