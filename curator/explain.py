"""A plan in words: what runs in one worker, what goes where, what each stage needs and adds, how much there is to read."""

from __future__ import annotations

from collections.abc import Mapping

from curator.observe.format import plural, size
from curator.plan import Operator, Plan, Target, out_folder
from curator.stage import Contract, Sink, Source, Stage, Unit


def explain(plan: Plan, units: Mapping[int, list[Unit]]) -> str:
    """The plan as text, an operator a paragraph. `units`: what each source operator has to read."""
    lines = [f"{plan.pipeline.name}: {plural(len(plan.operators), 'operator')}, "
             f"each one a pool of workers that run its stages without a hop between them"]
    for operator in plan.operators:
        lines += ["", f"[{operator.index}] {operator.kind} · {_shape(operator)}"]
        if operator.index in units:
            listed = units[operator.index]
            lines.append(f"    reads {plural(len(listed), 'unit')}, {size(sum(u.size_bytes for u in listed))}")
        for at, step in enumerate(operator.steps):
            if step.keeper:
                continue
            lines.append(f"    {step.name}{_contract(step.stage)}")
            if isinstance(step.stage, Sink):
                lines.append(f"        to {step.stage.path}")
            for (of, port), targets in operator.routes.items():
                named = [_target(plan, t) for t in targets if not _keeps(plan, t)]
                if of == at and named:
                    lines.append(f"        {port} -> {', '.join(named)}")
    kept = sorted({port for o in plan.operators for (_, port), ts in o.routes.items() if any(_keeps(plan, t) for t in ts)})
    if kept:
        lines += ["", f"rows on {', '.join(kept)} are kept, with the reason, under "
                      f"{out_folder(plan.pipeline).rstrip('/')}/<port>/<stage>/"]
    return "\n".join(lines)


def list_units(plan: Plan) -> dict[int, list[Unit]]:
    """The units of every source operator."""
    found = {}
    for operator in plan.operators:
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


def _keeps(plan: Plan, target: Target) -> bool:
    return plan.operators[target.operator].steps[target.step].keeper


def _target(plan: Plan, target: Target) -> str:
    operator = plan.operators[target.operator]
    return f"[{target.operator}] {operator.steps[target.step].name}"
