"""Tables and lines on a terminal, or as plain text of 80 columns elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

WIDTH_MAX = 100  # wider, and the eye loses the line between a name and its number
PLAIN_WIDTH = 80


def show(parts: Callable[[Console], Iterable[RenderableType]], file: IO[str] | None = None) -> None:
    """Print what there is to say on this console. `file` None is stdout."""
    from rich.console import Console

    console = Console(force_jupyter=False, file=file, highlight=False)
    console.width = min(console.width, WIDTH_MAX) if console.is_terminal else PLAIN_WIDTH
    with console.capture() as captured:
        for part in parts(console):
            console.print(part, markup=False)
    text = captured.get()
    if not console.is_terminal:  # tables are padded with spaces, which are noise in a log
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    console.file.write(text)
    console.file.flush()


def plain_table(**options: Any) -> Table:
    """A table without lines."""
    from rich.table import Table

    return Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="dim", **options)


def indented(by: int, text: str, style: str = "") -> RenderableType:
    """A text that is folded where it is too long, all of its lines indented."""
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(text, style, no_wrap=False, overflow="fold"), (0, 0, 0, by))
