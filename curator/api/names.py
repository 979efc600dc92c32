"""Names that somebody has chosen, and what a mistyped one may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """The names most like this one, best first; one that differs only in its pack comes before all others."""
    names = sorted(set(known))
    tail = _tail(name)
    same = [k for k in names if name == _tail(k) or tail in (k, _tail(k))]
    lower = {k.lower(): k for k in names}
    close = difflib.get_close_matches(name.lower(), lower, n=n, cutoff=0.6)
    tails = difflib.get_close_matches(tail.lower(), {_tail(k).lower() for k in names}, n=1, cutoff=0.65)
    alike = [k for k in names if _tail(k).lower() in tails or (tail and _tail(k).startswith(tail))]
    return list(dict.fromkeys([*same, *(lower[c] for c in close), *alike]))[:n]


def suggestion(name: str, known: Iterable[str], otherwise: str, *, quoted: bool = False) -> str:
    """`did you mean a or b?`, or `otherwise` if nothing is like it. `quoted`: the best one, in quotes."""
    near = nearest(name, known, n=1 if quoted else 3)
    return f"did you mean {' or '.join(map(repr, near) if quoted else near)}?" if near else otherwise


def unknown(word: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist: the nearest, or what there is."""
    names = sorted(set(known))
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"unknown {word} {name!r}; " + suggestion(name, names,
                                                     f"there are {shown}" if shown else "there is none")


def chosen(only: Sequence[str] | None, columns: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns that the parameter `only` of a stage names, in their own order; all where it is None.

    Raises:
        ValueError: it names none, or one that is not there.
    """
    if only is None:
        return dict(columns)
    if not only:
        raise ValueError("only names no column, so that nothing would be measured; leave it out to measure "
                         "all")
    for name in only:
        if name not in columns:
            hint = suggestion(name, columns, f"there are {', '.join(columns)}", quoted=True)
            raise ValueError(f"only: no column is called {name!r}; {hint}")
    return {name: kind for name, kind in columns.items() if name in only}


def _tail(name: str) -> str:
    """The name without its pack."""
    return name[max(name.find("."), name.find("/")) + 1:]
