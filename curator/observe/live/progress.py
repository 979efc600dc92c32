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

    A snapshot holds, where known, `units_done`, `units_total`, `bytes_done`, `bytes_total` (of the source),
    `records_in`, `written`, `dropped`, `duplicate`, `failed`, `rate` (records read a second), `workers` and `limit` (a
    sentence: what the run waits for); with several phases also `phase` and `phases`, and then units and bytes are those of the
    phase. `total_units` and `total_bytes` stand in for totals that a snapshot lacks, 0
    when unknown. `clock` gives seconds.
    """

    def __init__(self, total_units: int = 0, total_bytes: int = 0, stream: IO[str] | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.clock = clock
        self._totals = {"units_total": total_units, "bytes_total": total_bytes}
        self._began = self._phase_began = clock()
        self._share_at_begin: float | None = None  # a resumed run begins with units that are done
        self._shown_at = -LIVE_EVERY_S if self._is_terminal() else self._began
        self._snapshot: dict[str, Any] = {}
        self._live: Any = None

    def update(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot; it is shown if the last one has been seen long enough. Cheap when it is not."""
        if snapshot.get("phase") != self._snapshot.get("phase"):
            self._share_at_begin, self._phase_began = None, self.clock()
        self._snapshot = {**self._totals, **{k: v for k, v in snapshot.items() if v is not None}}
        if self._share_at_begin is None:
            self._share_at_begin = self.share()
        if self.clock() - self._shown_at >= (LIVE_EVERY_S if self._is_terminal() else LOG_EVERY_S):
            self._show()

    def close(self) -> None:
        """Take the panel off the terminal, or write the last line of the log. May be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        elif self._snapshot and not self._is_terminal():
            self._show()
        self._snapshot = {}

    def share(self) -> float:
        """The part of the source that is done, 0 to 1: of its bytes if they are known, else of its units."""
        for done, total in (("bytes_done", "bytes_total"), ("units_done", "units_total")):
            if self._snapshot.get(total):
                return min(1.0, self._snapshot.get(done, 0) / self._snapshot[total])
        return 0.0

    def seconds_left(self) -> float | None:
        """Of this phase, at the speed since its start in this attempt; None before anything is done."""
        gained = self.share() - (self._share_at_begin or 0.0)
        if gained <= 0:
            return None
        return (self.clock() - self._phase_began) * (1 - self.share()) / gained

    def line(self) -> str:
        """The snapshot in one plain line."""
        parts = [f"{100 * self.share():.0f}%", self._amount(), *self._endings(), *self._speed()]
        return "; ".join(part for part in parts if part)

    def panel(self) -> RenderableType:
        """The snapshot in three lines for a terminal: how far, what became of the records, what the run waits for."""
        from rich.console import Group
        from rich.text import Text

        share = self.share()
        filled = int(share * BAR_WIDTH)
        first = Text.assemble(("#" * filled, "bold green"), ("-" * (BAR_WIDTH - filled), "dim"),
                              (f" {100 * share:3.0f}%", "bold"), f"  {self._amount()}", no_wrap=True)
        lines = [first, Text(", ".join(self._endings()), no_wrap=True, overflow="ellipsis")]
        speed = self._speed(waits=False)
        lines.append(Text(", ".join(speed), no_wrap=True, overflow="ellipsis"))
        if self._snapshot.get("limit"):
            lines.append(Text(self._snapshot["limit"], style="cyan", no_wrap=True, overflow="ellipsis"))
        return Group(*(line for line in lines if line.plain))

    def _amount(self) -> str:
        shot = self._snapshot
        told = [f"phase {shot['phase']} of {shot['phases']}"] if shot.get("phases", 1) > 1 else []
        for shown, noun, done, total in ((count, " units", "units_done", "units_total"),
                                         (size, "", "bytes_done", "bytes_total")):
            if self._snapshot[total]:
                told.append(f"{shown(self._snapshot.get(done, 0))} of {shown(self._snapshot[total])}{noun}")
        return ", ".join(told)

    def _endings(self) -> list[str]:
        shot = self._snapshot
        told = [f"{count(shot.get('records_in', 0))} read", f"{count(shot.get('written', 0))} written"]
        return told + [f"{count(shot[name])} {name}" for name in ("dropped", "duplicate", "failed") if shot.get(name)]

    def _speed(self, waits: bool = True) -> list[str]:
        shot, left = self._snapshot, self.seconds_left()
        told = [f"{rate(shot['rate'])} records/s"] if shot.get("rate") else []
        told += [f"{count(shot['workers'])} workers"] if shot.get("workers") else []
        told += [f"{duration(self.clock() - self._began)} so far"]
        told += [f"about {duration(left)} left"] if left and self.share() < 1 else []
        return told + ([shot["limit"]] if waits and shot.get("limit") else [])

    def _is_terminal(self) -> bool:
        return self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def _show(self) -> None:
        self._shown_at = self.clock()
        if not self._is_terminal():
            self.stream.write(self.line() + "\n")
            self.stream.flush()
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            # transient: the funnel takes the panel's place
            self._live = Live(console=Console(file=self.stream), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self.panel(), refresh=True)
