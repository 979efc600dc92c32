"""Drop records by rules over their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from curator import sql
from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import Context, Contract, Outputs, Stage
from curator.stages.rules import load_rules


@dataclass(kw_only=True)
class Drop(Stage):
    """Send records for which a condition is true to `dropped`; the first one that is true, in order, is the
    reason.

    `conditions`: reason to SQL condition over columns, true = drop (`too_short: word_count < 50`). NULL is
    not true, so a record without a score stays. `rules`: one or several packaged rule sets
    (`gopher_quality`), or paths to YAML files of the same form. They come before `conditions`; a reason that
    two of them have stands for both rules. A condition whose reason a rule set has stands in the place of
    that rule; `false` is a condition that drops nothing.
    """

    batch_size = 256  # a call of DuckDB costs as much as some hundred rows,
    batch_bytes = 8 << 20  # and nothing beside the copy of rows with files in them, which would be held

    conditions: dict[str, str] = field(default_factory=dict, kw_only=False)
    rules: str | list[str] | None = None

    def __post_init__(self) -> None:
        resolved: dict[str, str] = {}
        names = [self.rules] if isinstance(self.rules, str) else self.rules or []
        for name in names:
            for rule in load_rules(name).rules:
                _join(resolved, rule.reason, rule.when)
        resolved |= self.conditions
        if not resolved:
            raise RecipeError("drop has no condition: give it some (too_short: word_count < 50) or a rule "
                              "set (rules: …)")
        self._conditions = resolved
        self._parts = sql.parts_of(resolved)

    def contract(self) -> Contract:
        return Contract(needs=frozenset().union(*self._parts.values()))

    def reasons(self) -> dict[str, str]:
        """Every reason and its condition, those of the rule sets included, in order."""
        return dict(self._conditions)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        sql.check_all(self._conditions, columns)

    def parameters(self) -> dict[str, Any]:
        """The conditions in order, wherever they come from: an edited rule set is another fingerprint."""
        return {"conditions": list(self._conditions.items())}

    def setup(self, ctx: Context) -> None:
        sql.begin(self._parts)

    def process(self, batch: Batch) -> Outputs:
        reasons = sql.evaluate(self._conditions, batch.rows)
        gone = batch.filter(reasons.is_valid()).with_reason(reasons.drop_null().to_pylist())
        return Outputs(out=batch.filter(reasons.is_null()) if len(gone) else batch, dropped=gone)


def _join(conditions: dict[str, str], reason: str, condition: str) -> None:
    before = conditions.get(reason, condition)
    conditions[reason] = condition if before == condition else f"({before}\n) OR ({condition}\n)"
