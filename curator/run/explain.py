"""A plan in words: what runs in one worker, what goes where, what each stage needs and adds, how much there is to read."""

from __future__ import annotations

from collections.abc import Mapping

from curator.api.format import plural, size
from curator.api.stage import Contract, Reduce, Sink, Source, Stage, Unit
from curator.machine.detect import this_machine
from curator.pipeline.plan import SPOOLS, Operator, Phase, Plan, Target
from curator.run.profiles import foresee, load_profiles


def explain(plan: Plan, units: Mapping[int, list[Unit]]) -> str:
    """The plan as text, phase by phase, an operator a paragraph. `units`: what each source operator has to read."""
    operators, phases = sum(len(p.operators) for p in plan.phases), len(plan.phases)
    lines = [f"{plan.pipeline.name}: {plural(operators, 'operator')}, "
             f"each one a pool of workers that run its stages without a hop between them"]
    if phases > 1:
        lines.append(f"{phases} phases, each of which begins when the one before it is done; what is between them is kept in "
                     f"{plan.out.path_of(SPOOLS)}")
    for phase in plan.phases:
        if phases > 1:
            lines += ["", f"phase {phase.number + 1} of {phases}"]
        for operator in phase.operators:
            lines += ["", f"[{operator.index}] {'reduce' if operator.reader else operator.kind} · {_shape(operator)}"]
            lines += _operator(phase, operator, units.get(operator.index) if not phase.number else None)
    kept = sorted({port for p in plan.phases for o in p.operators for (_, port), ts in o.routes.items()
                   if any(_keeps(p, t) for t in ts)})
    if kept:
        lines += ["", f"rows on {', '.join(kept)} are kept, with the reason, under "
                      f"{plan.out.path_of('<port>/<stage>/')}"]
    foreseen = _foreseen(plan)
    return "\n".join([*lines, "", *foreseen] if foreseen else lines)


def _foreseen(plan: Plan) -> list[str]:
    """What will limit the run on this machine, if there was one before in the same folder."""
    folder = plan.out.sub("_run")
    told = []
    for phase in plan.phases:
        limit = foresee(phase.operators, load_profiles(folder, phase.operators), {0: this_machine()})
        if limit:
            told.append(f"limit{f' of phase {phase.number + 1}' if len(plan.phases) > 1 else ''}, as measured before: {limit}")
    return told


def _operator(phase: Phase, operator: Operator, units: list[Unit] | None) -> list[str]:
    lines = []
    if units is not None:
        lines.append(f"    reads {plural(len(units), 'unit')}, {size(sum(u.size_bytes for u in units))}")
    if operator.reader:
        lines.append(f"    reads {', '.join(operator.spools)}, all of it, before it answers")
    for at, step in enumerate(operator.steps):
        if step.implicit:
            continue
        lines.append(f"    {step.name}{'' if step.spool else _contract(step.stage)}")
        if isinstance(step.stage, Sink) and not step.spool:
            lines.append(f"        to {step.stage.path}")
        for (of, port), targets in operator.routes.items():
            named = [_target(phase, t) for t in targets if not _keeps(phase, t)]
            if of == at and named:
                lines.append(f"        {port} -> {', '.join(named)}")
    return lines


def list_units(plan: Plan) -> dict[int, list[Unit]]:
    """The units of every source operator."""
    found = {}
    for operator in plan.phases[0].operators:
        stage = operator.steps[0].stage
        if isinstance(stage, Source):
            found[operator.index] = stage.units()
    return found


def _shape(operator: Operator) -> str:
    need = operator.resources
    told = [f"{need.cpus:g} CPU"]
    told += [f"{need.gpus:g} GPU"] if need.gpus else []
    told += [f"{need.memory_gb:g} GB"] if need.memory_gb else []
    told += [f"batches of {operator.batch_size}"] if operator.batch_size else []
    told += [f"{operator.timeout_s:g} s a call"] if operator.timeout_s else []
    told += ["one worker, which holds the state"] if operator.kind == "stateful" else []
    stage = operator.steps[0].stage
    if isinstance(stage, Reduce):
        told.append("one shard" if stage.key is None else f"{plural(stage.shards, 'shard')} by {stage.key}")
    return ", ".join(told)


def _contract(stage: Stage) -> str:
    contract: Contract = stage.contract()
    told = []
    if contract.needs:
        told.append("needs " + ", ".join(contract.needs))
    if contract.adds:
        told.append("adds " + _listed([name if kind is None else f"{name} ({kind})" for name, kind in contract.adds.items()]))
    if contract.removes:
        told.append("removes " + ", ".join(contract.removes))
    return f"  ({'; '.join(told)})" if told else ""


def _listed(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _keeps(phase: Phase, target: Target) -> bool:
    return phase.operators[target.operator].steps[target.step].implicit


def _target(phase: Phase, target: Target) -> str:
    operator = phase.operators[target.operator]
    return f"[{target.operator}] {operator.steps[target.step].name}"
