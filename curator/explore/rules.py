"""The rules of a run: what its `drop` steps drop, by which thresholds, and how to write down other ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from curator import sql
from curator.api.errors import CuratorError
from curator.pipeline.graph import Node
from curator.results.output import RunOutput
from curator.sql.thresholds import Threshold, moved, thresholds
from curator.stages.drop import Drop
from curator.stages.rules import load_rules

NEVER = "false"  # the condition of a rule that is switched off, where one has to stand
_WRITTEN = re.compile(r"(?:.*: )?(?P<at>\S+\])\.(?P<kind>\S+)")  # `recipe:4: steps[1].drop`
FAR = 1e308  # beyond every score


@dataclass(frozen=True)
class RunRule:
    """A reason of a step. `path`: what `--set` calls its condition; `origin`: the rule set that has it,
    `source` who says so."""

    stage: str
    reason: str
    when: str
    path: str
    origin: str = ""
    source: str = ""
    columns: tuple[str, ...] = ()
    thresholds: tuple[Threshold, ...] = field(default=())

    def with_values(self, values: Any) -> str:
        """The condition with these values of its thresholds."""
        if not isinstance(values, list) or len(values) != len(self.thresholds):
            raise CuratorError(f"{self.reason} has {len(self.thresholds)} thresholds")
        when = self.when
        # from the last to the first, so that those before stay where they are
        for threshold, value in reversed(list(zip(self.thresholds, values, strict=True))):
            if value is not None:
                if not isinstance(value, (int, float)) or isinstance(value, bool) or abs(value) > FAR:
                    raise CuratorError(f"a threshold is a number, not {str(value)[:40]!r}")
                when = moved(when, threshold, value)
        return when

    def told(self) -> dict[str, Any]:
        return asdict(self)


class Rules:
    """The rules of all `drop` steps, in the order in which records meet them. `trouble`: why there are none,
    where the recipe cannot be loaded here."""

    def __init__(self, output: RunOutput) -> None:
        self.trouble = ""
        self.all: tuple[RunRule, ...] = ()
        self.marks: dict[str, str] = {}  # what columns say of a text, as the stages of the run tell
        try:
            graph = output.graph()
            for node in graph.nodes():
                for stage in (node.stage, *node.stage.inner().values()):
                    self.marks |= stage.text_marks()
            steps = {name: node for node, name in graph.names().items()}
            self.all = tuple(rule for stage in output.order()
                             if stage in steps and isinstance(drop := steps[stage].stage, Drop)
                             for rule in _rules_of(stage, drop, _path(stage, steps)))
        except CuratorError as error:
            self.trouble = str(error)

    def get(self, stage: Any, reason: Any) -> RunRule:
        found = next((r for r in self.all if (r.stage, r.reason) == (stage, reason)), None)
        if found is None:
            raise CuratorError(f"the run has no rule {reason!r} in a step {stage!r}")
        return found

    def chosen(self, given: Any) -> tuple[RunRule, int]:
        """A rule and the number of one of its thresholds, of `{stage, reason, at}`."""
        rule = self.get(given.get("stage"), given.get("reason"))
        return rule, min(max(0, int(given.get("at") or 0)), len(rule.thresholds) - 1)

    def after(self, rule: RunRule) -> list[RunRule]:
        """The rules that a record meets which this one lets go."""
        return list(self.all[self.all.index(rule) + 1:])

    def changed(self, given: Any) -> dict[tuple[str, str], str | None]:
        """Conditions by step and reason, of `[{stage, reason, values}]`: a value for each threshold, None for
        one that stays; no values at all for a rule that is switched off, whose condition is None.

        Raises:
            CuratorError: there is no such rule, or a value is none.
        """
        if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
            raise CuratorError("changes are a list of stage, reason, values")
        found = {}
        for one in given:
            rule, values = self.get(one.get("stage"), one.get("reason")), one.get("values")
            found[rule.stage, rule.reason] = None if values is None else rule.with_values(values)
        return found

    def written(self, changes: Mapping[tuple[str, str], str | None]) -> dict[str, Any]:
        """Changes as what one would keep: a YAML rule set for each step that has any (`files`: name, text),
        or the arguments of `curator run` (`arguments`) that make the same of the recipe."""
        files = []
        for stage in dict.fromkeys(stage for stage, _ in changes):
            name = "".join(c if c.isalnum() or c in "-_" else "-" for c in stage)
            text = _yaml(name, [rule for rule in self.all if rule.stage == stage], changes)
            files.append({"name": f"{name}.yaml", "text": text})
        return {"files": files, "arguments": [
            f"--set {shlex.quote(f'{path}={when}')}" for path, when in self.overrides(changes).items()]}

    def overrides(self, changes: Mapping[tuple[str, str], str | None]) -> dict[str, str]:
        """Changes as values of `--set`."""
        return {self.get(*of).path: when or NEVER for of, when in changes.items()}


def _path(stage: str, steps: Mapping[str, Node]) -> str:
    """What `--set` calls a step: by its name if no other one is called that, else by its number."""
    called: list[str] = []
    for name, node in steps.items():
        written = _WRITTEN.fullmatch(node.place)
        kind = written["kind"] if written else ""
        called += {name, kind, kind.rpartition(".")[2]}
    place = _WRITTEN.fullmatch(steps[stage].place)
    if place is None or (called.count(stage) == 1 and re.fullmatch(r"steps\[[^[]*", place["at"])):
        return f"steps.{stage}"
    return place["at"]


def _rules_of(stage: str, drop: Drop, path: str) -> list[RunRule]:
    names = [drop.rules] if isinstance(drop.rules, str) else drop.rules or []
    origins = {rule.reason: (name, rule.source) for name in names for rule in load_rules(name).rules
               if rule.reason not in drop.conditions}
    return [RunRule(stage, reason, when, f"{path}.{reason}", *origins.get(reason, ("", "")),
                    columns=tuple(sorted(sql.columns_of(when))), thresholds=thresholds(when))
            for reason, when in drop.reasons().items()]


def _yaml(name: str, rules: list[RunRule], changes: Mapping[tuple[str, str], str | None]) -> str:
    """All rules of a step as a rule set, without those that are switched off."""
    import yaml

    listed = []
    for rule in rules:
        when = changes.get((rule.stage, rule.reason), rule.when)
        if when is not None:
            was = {"source": f"was: {rule.when}"} if when != rule.when else \
                {"source": rule.source} if rule.source else {}
            listed.append({"reason": rule.reason, "when": when, **was})
    if not listed:
        listed = [{"reason": "nothing", "when": NEVER, "source": "every rule was switched off"}]
    origins = ", ".join(dict.fromkeys(rule.origin for rule in rules if rule.origin))
    head = {"name": name, "description": "Thresholds chosen in curator explore.",
            **({"source": f"changed from {origins}"} if origins else {})}
    return yaml.safe_dump({**head, "rules": listed}, sort_keys=False, allow_unicode=True, width=110)
