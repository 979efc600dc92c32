"""How far a run is, while it runs: a live panel on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from curator.api.format import count, duration, rate, size

if TYPE_CHECKING:
    from rich.console import RenderableType

LIVE_EVERY_S = 0.2  # five times a second is as fast as one reads
LOG_EVERY_S = 10.0
BAR_WIDTH = 24


class Progress:
    """Shows the snapshots it is given. Nothing is drawn between them: no thread, no timer.

    A snapshot holds, where known, `units_done`, `units_total`, `bytes_done`, `bytes_total` (of the source;
    with several phases of the phase), `records_in`, `written`, `dropped`, `duplicate`, `failed`, `rate`
    (records read a second), `workers`, `limit` (a sentence: what the run waits for), `phase` and `phases`.
    `clock` gives seconds.
    """

    def __init__(self, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.clock = clock
        self._terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = self._phase_began = clock()
        self._share_at_begin: float | None = None  # a resumed run begins with units that are done
        self._shown_at = -LIVE_EVERY_S if self._terminal else self._began
        self._snapshot: Mapping[str, Any] = {}
        self._live: Any = None

    def update(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot; it is shown if the last one has been seen long enough. Cheap when it is not."""
        if snapshot.get("phase") != self._snapshot.get("phase"):
            self._share_at_begin, self._phase_began = None, self.clock()
        self._snapshot = snapshot
        if self._share_at_begin is None:
            self._share_at_begin = self.share()
        if self.clock() - self._shown_at >= (LIVE_EVERY_S if self._terminal else LOG_EVERY_S):
            self._show()

    def close(self) -> None:
        """Take the panel off the terminal, or write the last line of the log. May be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        elif self._snapshot and not self._terminal:
            self._show()
        self._snapshot = {}

    def share(self) -> float:
        """The part of the source that is done, 0 to 1: of its bytes if they are known, else of its units."""
        for kind in ("bytes", "units"):
            if total := self._snapshot.get(f"{kind}_total"):
                return min(1.0, self._snapshot[f"{kind}_done"] / total)
        return 0.0

    def seconds_left(self) -> float | None:
        """Of this phase, at the speed since its start in this attempt; None before anything is done."""
        gained = self.share() - (self._share_at_begin or 0.0)
        return (self.clock() - self._phase_began) * (1 - self.share()) / gained if gained > 0 else None

    def _words(self) -> list[list[str]]:
        """How far; what became of the records; how fast; what the run waits for. Each may be empty."""
        shot, left = self._snapshot, self.seconds_left()
        amount = [f"phase {shot['phase']} of {shot['phases']}"] if shot.get("phases", 1) > 1 else []
        amount += ([f"{count(shot['units_done'])} of {count(shot['units_total'])} units"]
                   if shot.get("units_total") else [])
        amount += ([f"{size(shot['bytes_done'])} of {size(shot['bytes_total'])}"] if shot.get("bytes_total")
                   else [])
        records = [f"{count(shot.get('records_in', 0))} read", f"{count(shot.get('written', 0))} written"]
        records += [f"{count(shot[name])} {name}" for name in ("dropped", "duplicate", "failed")
                    if shot.get(name)]
        speed = [f"{rate(shot['rate'])} records/s"] if shot.get("rate") else []
        speed += [f"{count(shot['workers'])} workers"] if shot.get("workers") else []
        speed += [f"{duration(self.clock() - self._began)} so far"]
        speed += [f"about {duration(left)} left"] if left and self.share() < 1 else []
        return [amount, records, speed, [shot["limit"]] if shot.get("limit") else []]

    def _line(self) -> str:
        amount, *others = self._words()
        parts = [f"{100 * self.share():.0f}%", ", ".join(amount),
                 *(word for words in others for word in words)]
        return "; ".join(part for part in parts if part)

    def _panel(self) -> RenderableType:
        """The same in up to four lines for a terminal."""
        from rich.console import Group
        from rich.text import Text

        share, (amount, *others, limit) = self.share(), self._words()
        filled = int(share * BAR_WIDTH)
        bar = Text.assemble(("#" * filled, "bold green"), ("-" * (BAR_WIDTH - filled), "dim"),
                            (f" {100 * share:3.0f}%", "bold"),
                            f"  {', '.join(amount)}", no_wrap=True)
        lines = [Text(", ".join(words), no_wrap=True, overflow="ellipsis") for words in others]
        return Group(bar, *lines,
                     *(Text(text, style="cyan", no_wrap=True, overflow="ellipsis") for text in limit))

    def _show(self) -> None:
        self._shown_at = self.clock()
        if not self._terminal:
            self.stream.write(self._line() + "\n")
            self.stream.flush()
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            # transient: the funnel takes the panel's place
            self._live = Live(console=Console(file=self.stream), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._panel(), refresh=True)
