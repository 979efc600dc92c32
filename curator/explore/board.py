"""What the live page of a run asks: its numbers at this moment, as its folder and the run itself tell
them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from curator.api.errors import CuratorError
from curator.explore.blobs import Blob
from curator.results.watching import Watching

READ_S = 1.0  # the folder is read this often, however many look
SAMPLES = 400  # of the run's rates, of which every second one goes when there are more
STAGE = ("name", "kind", "after", "in", "made", "out", "dropped", "duplicate", "failed", "absorbed", "busy_s")
STATS = ("name", "status", "message", "seconds", "out", "limit", "records", "units", "alarms", "first_errors")


class Board:
    """Answers the page. `path`: the run's folder. A run in this process is not asked for by its folder alone:
    it hands on its snapshots (`feed`) and its end (`end`)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.turn = threading.Lock()
        self.watching: Watching | None = None
        self.state, self.read_at = "starting", -READ_S
        self.fed: Mapping[str, Any] = {}
        self.ended: Mapping[str, Any] = {}
        self.history: list[list[float]] = []  # seconds, records/s, bytes/s, busy cores, share
        self.asked_at = -1e9
        self.told_end = threading.Event()

    def feed(self, snapshot: Mapping[str, Any]) -> None:
        """The run at this moment, from its own loop: as cheap as can be."""
        self.fed = snapshot
        self._keep(snapshot)

    def end(self, stats: Mapping[str, Any], wait_s: float) -> None:
        """The run has ended. Waits so long until the page has been told, if it is open."""
        self.ended, self.fed = stats, {}
        if time.monotonic() - self.asked_at < 2 * wait_s:
            self.told_end.wait(wait_s)

    def answer(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Raises CuratorError for what is not known here."""
        if name != "now":
            raise CuratorError(f"there is no question {name!r}")
        with self.turn:
            self.asked_at = time.monotonic()
            answer = self._now()
        if self.ended:
            self.told_end.set()
        return answer

    def blob(self, asked: Mapping[str, str]) -> AbstractContextManager[Blob]:
        raise CuratorError("the live page shows no records")

    def _now(self) -> dict[str, Any]:
        stats, message = (self.ended, "") if self.ended else self._read()
        live = {**stats.get("live", {}), **self.fed}
        state = "ended" if self.ended else "running" if self.fed else self.state
        if not self.fed and live:
            self._keep(live)
        return {**{name: stats[name] for name in STATS if name in stats}, "state": state,
                "message": message or stats.get("message", ""), "live": live, "history": self.history,
                "flow": [{name: stage[name] for name in STAGE if name in stage}
                         for stage in stats.get("stages", ())]}

    def _read(self) -> tuple[Mapping[str, Any], str]:
        """The numbers in the folder, and what is wrong with the run."""
        if time.monotonic() - self.read_at >= READ_S:
            self.read_at = time.monotonic()
            try:
                self.watching = self.watching or Watching(self.path)
                self.state = self.watching.look()
            except CuratorError as error:
                return {}, str(error)
        found = self.watching
        return (found.stats, found.message) if found is not None else ({}, "")

    def _keep(self, shot: Mapping[str, Any]) -> None:
        at = shot.get("seconds", 0.0)
        if self.history and at - self.history[-1][0] < 1.0:
            return
        busy = sum(stage["busy"] for stage in shot.get("stages", ()))
        self.history.append([round(at, 1), round(shot.get("rate", 0.0), 2),
                             round(shot.get("bytes_rate", 0.0)), round(busy, 2),
                             round(shot.get("share", 0.0), 4)])
        if len(self.history) > SAMPLES:
            self.history = self.history[::2]
