"""What other rules would have done, as text of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from curator.api.format import count, plural, printable, short_path, shorten
from curator.observe.report.terminal import indented, plain_table, show
from curator.results.what_if import WhatIf

if TYPE_CHECKING:
    from rich.table import Table

MOVES_MAX = 12
EXCERPT = 160


def show_what_if(answer: WhatIf, file: IO[str] | None = None) -> None:
    """Print it: both funnels, what changes hands, examples, and what is not told."""
    show(lambda _: (*_rules(answer), "", _funnel(answer), *_moves(answer), *_shares(answer),
                    *_examples(answer), *_notes(answer)), file)


def _rules(answer: WhatIf) -> Iterator[str]:
    for edit in answer.edits:
        for reason, before, after in edit.changes:
            where = f"{edit.stage}: {reason}: "
            yield (f"{where}{before} -> {after}" if before is not None and after is not None
                   else f"{where}{after} (new)" if before is None else f"{where}{before} -> gone")


def _funnel(answer: WhatIf) -> Table:
    """The stages from the first edited one on; of reasons those whose number changes."""
    first = min(at for at, row in enumerate(answer.funnel) if row.stage in {e.stage for e in answer.edits})
    table = plain_table(expand=True)
    table.add_column("go on from", no_wrap=True, overflow="ellipsis", ratio=1)
    for title in ("before", "after", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for row in answer.funnel[first:]:
        most = f" to {count(row.after + row.open)}" if row.open else ""
        table.add_row(row.stage, count(row.before), f"{count(row.after)}{most}",
                      _signed(row.after - row.before, row.open))
        for reason, (before, after) in row.reasons.items():
            if before != after:
                table.add_row(f"    dropped: {reason}", count(before), count(after), _signed(after - before),
                              style="yellow")
    return table


def _signed(change: int, more: int = 0) -> str:
    text = f"{change:+,}" if change else "" if more else "="
    return f"{text}{f' +{more:,}?' if more else ''}".strip()


def _moves(answer: WhatIf) -> Iterator[Any]:
    if not answer.moves:
        yield "\nno record would end elsewhere"
        return
    table = plain_table()
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("before", overflow="fold")
    table.add_column("after", overflow="fold")
    for move in answer.moves[:MOVES_MAX]:
        table.add_row(count(move.records), str(move.before), str(move.after))
    if rest := answer.moves[MOVES_MAX:]:
        table.add_row(count(sum(move.records for move in rest)), f"in {plural(len(rest), 'other way')}", "")
    yield from ("", table)


def _shares(answer: WhatIf) -> Iterator[Any]:
    for column, shares in answer.by.items():
        alone = len(shares) > 1 and all(share.back + share.lost == 1 for share in shares)  # a source each
        if not alone and (len(shares) > 1 or (shares and column == "source")):
            table = plain_table()
            for title in (column, "back", "lost"):
                table.add_column(title, justify="left" if title == column else "right", no_wrap=True)
            for share in shares:
                table.add_row(short_path(share.value, 50) or "none", count(share.back), count(share.lost))
            yield from ("", table)


def _examples(answer: WhatIf) -> Iterator[Any]:
    for title, examples in (("brought back", answer.back), ("lost", answer.lost)):
        if examples:
            yield f"\n{title}, for example"
        for example in examples:
            rest = dict(example)
            record, before, after = rest.pop("id"), rest.pop("before"), rest.pop("after")
            source = rest.pop("source", None)
            values = [f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                      for name, value in rest.items() if value is not None and not isinstance(value, str)]
            texts = [value for value in rest.values() if isinstance(value, str)]
            named = "" if texts or not source else f"  {short_path(printable(str(source)), 50)}"
            yield indented(2, shorten(printable(str(record)), 200) + named)
            yield indented(4, f"{before} -> {after}" + f" ({', '.join(values)})" * bool(values))
            if texts:
                yield indented(4, shorten(printable(max(texts, key=len)), EXCERPT), "dim")


def _notes(answer: WhatIf) -> Iterator[str]:
    if answer.notes:
        yield ""
    for note in answer.notes:
        yield f"note: {note}"
