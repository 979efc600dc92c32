"""What `--set` and `--rules` change in a recipe, when that is the rules of `drop` steps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from curator.api.errors import RecipeError
from curator.pipeline.graph import Graph, Node
from curator.results.output import RunOutput
from curator.stages.drop import Drop


@dataclass(frozen=True)
class RuleEdit:
    """A `drop` step with other conditions. `before`, `after`: reason to condition, in order."""

    stage: str
    before: dict[str, str]
    after: dict[str, str]

    @property
    def changes(self) -> list[tuple[str, str | None, str | None]]:
        """Each reason whose condition is another one, with both; None where there is none."""
        reasons = dict.fromkeys([*self.before, *self.after])
        return [(reason, self.before.get(reason), self.after.get(reason)) for reason in reasons
                if self.before.get(reason) != self.after.get(reason)]


def with_rules(out: RunOutput, rules: str) -> dict[str, str]:
    """`--rules FILE` or `STEP=FILE` as a value of `--set`: the rule set in place of all that a step has.

    Raises:
        RecipeError: it is not said which step.
    """
    step, equals, file = rules.partition("=")
    if not equals:
        graph = out.graph()
        drops = [name for node, name in graph.names().items() if isinstance(node.stage, Drop)]
        if len(drops) != 1:
            raise RecipeError(f"--rules {rules}: there are {len(drops)} drop steps ({', '.join(drops)}); "
                              f"say for which: --rules {drops[0] if drops else 'STEP'}={rules}")
        step, file = drops[0], rules
    return {f"steps.{step.strip()}": f"{{rules: {json.dumps(file.strip(), ensure_ascii=False)}}}"}


def edited(out: RunOutput, overrides: Mapping[str, str]) -> tuple[Graph, tuple[RuleEdit, ...]]:
    """The recipe of a run with `--set` values, and the steps that are other ones now, in order.

    Raises:
        RecipeError: a value leads nowhere, nothing changes, or something else than the conditions of `drop`
        steps does.
    """
    for key in overrides:
        if not re.match(r"(branches\..*)?steps\b", key):
            raise RecipeError(f"--set {key}: only conditions of drop steps can be told from the output, such "
                              "as steps.quality.too_short")
    old, new = out.graph(), out.graph(overrides)
    before, after = _by_name(old), _by_name(new)
    given = ", ".join(overrides)
    if list(before) != list(after):
        raise RecipeError(f"{given}: that makes another pipeline ({', '.join(after)}); only conditions of "
                          "drop steps are told from the output. `curator run` with the same values does it")
    found = []
    for name, node in before.items():
        now = after[name].stage
        if node.stage.fingerprint() == now.fingerprint():
            continue
        if not isinstance(node.stage, Drop) or not isinstance(now, Drop):
            raise RecipeError(f"{given}: the step {name!r} is no drop step, so what it would do now is not "
                              "told by the output. `curator run` with the same values does it")
        found.append(RuleEdit(name, node.stage.reasons(), now.reasons()))
    if not found:
        raise RecipeError(f"{given or 'no --set and no --rules'}: the rules are the same as in the run")
    return new, tuple(found)


def _by_name(graph: Graph) -> dict[str, Node]:
    return {name: node for node, name in graph.names().items()}
