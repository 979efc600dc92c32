"""How far a run is, while it runs: a live panel on a terminal, a display in a notebook, a plain line now and
then in a log."""

from __future__ import annotations

import html
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from curator.observe.live.words import Snapshot, line, percent, table, words

if TYPE_CHECKING:
    from rich.console import RenderableType

LIVE_EVERY_S = 0.2  # five times a second is as fast as one reads
NOTEBOOK_EVERY_S = 1.0  # each time goes to the browser, and may be kept in the file
LOG_EVERY_S = 10.0
BAR_WIDTH = 24


class Progress:
    """Shows the snapshots it is given (see `words`). Nothing is drawn between them: no thread, no timer.

    `stages`: a line for each stage too. `clock` gives seconds.
    """

    def __init__(self, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic,
                 stages: bool = False) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.clock, self.stages = clock, stages
        terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._display = (_Terminal(self.stream, stages) if terminal
                         else _Notebook(stages) if stream is None and in_notebook()
                         else _Log(self.stream, stages))
        self._shown_at = clock() - (0.0 if isinstance(self._display, _Log) else self._display.every_s)
        self._snapshot: Snapshot = {}

    def update(self, snapshot: Snapshot) -> None:
        """Take a snapshot; it is shown if the last one has been seen long enough. Cheap when it is not."""
        self._snapshot = snapshot
        if self.clock() - self._shown_at >= self._display.every_s:
            self._shown_at = self.clock()
            self._display.show(snapshot)

    def close(self) -> None:
        """Take the panel off the terminal, or write the last line of the log. May be called twice."""
        if self._snapshot:
            self._display.close(self._snapshot)
        self._snapshot = {}


class _Log:
    """Lines, without any control character."""

    every_s = LOG_EVERY_S

    def __init__(self, stream: IO[str], stages: bool) -> None:
        self.stream, self.stages = stream, stages

    def show(self, shot: Snapshot) -> None:
        lines = [line(shot), *(f"  {row}" for row in (table(shot) if self.stages else ()))]
        self.stream.write("\n".join(lines) + "\n")
        self.stream.flush()

    close = show


class _Terminal:
    """Up to four lines that are drawn over, and with `stages` a table; the funnel takes their place."""

    every_s = LIVE_EVERY_S

    def __init__(self, stream: IO[str], stages: bool) -> None:
        self.stream, self.stages = stream, stages
        self._live: Any = None

    def show(self, shot: Snapshot) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self.stream), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._panel(shot), refresh=True)

    def close(self, shot: Snapshot) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _panel(self, shot: Snapshot) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        amount, *others, limit = words(shot)
        filled = int(shot.get("share", 0.0) * BAR_WIDTH)
        bar = Text.assemble(("#" * filled, "bold green"), ("-" * (BAR_WIDTH - filled), "dim"),
                            (f" {percent(shot):>4}", "bold"), f"  {', '.join(amount)}", no_wrap=True)
        lines = [Text(", ".join(some), no_wrap=True, overflow="ellipsis") for some in others]
        lines += [Text(text, style="cyan", no_wrap=True, overflow="ellipsis") for text in limit]
        if self.stages:
            head, *rows = table(shot)
            lines += [Text(head, style="dim", no_wrap=True), *(Text(row, no_wrap=True) for row in rows)]
        return Group(bar, *lines)


class _Notebook:
    """A display of IPython that is written over: text for who keeps the notebook, HTML for who looks."""

    every_s = NOTEBOOK_EVERY_S

    def __init__(self, stages: bool) -> None:
        self.stages = stages
        self._handle: Any = None

    def show(self, shot: Snapshot) -> None:
        from IPython.display import display

        shown = {"text/plain": line(shot), "text/html": as_html(shot, self.stages)}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    close = show


def in_notebook() -> bool:
    """Whether this is a kernel that shows displays; IPython on a terminal is a terminal."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and type(shell).__name__ != "TerminalInteractiveShell"


def as_html(shot: Mapping[str, Any], stages: bool = False) -> str:
    """A bar and the lines of the panel; colours are those of the notebook."""
    amount, *others = words(shot)
    lines = "".join(f"<div>{html.escape(', '.join(some))}</div>" for some in others if some)
    more = f"<pre>{html.escape(chr(10).join(table(shot)))}</pre>" if stages else ""
    return (f'<div><progress max="1" value="{shot.get("share", 0.0):.4f}" style="width:20em"></progress> '
            f"<b>{percent(shot)}</b> {html.escape(', '.join(amount))}</div>{lines}{more}")
