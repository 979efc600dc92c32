"""A run as seen from outside: what its folder tells of it while it works, without its lock.

It is alive as long as its process is there, where that is on this machine; elsewhere, as long as it writes
its numbers anew. No two clocks are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from curator.api.errors import CuratorError, InputError
from curator.api.format import duration
from curator.io.files.folder import Folder
from curator.io.files.listing import RUN
from curator.results.output import no_run
from curator.run.folder.lock import Holder, last_holder, read_stats

SILENT_S = 20.0  # beside three times as long as it usually takes: from then on something is wrong

State = Literal["starting", "running", "silent", "dead", "ended"]


class Watching:
    """Looks at a run's folder whenever it is asked. Nothing is written and nothing is held.

    `stats`: as they were read last; {} before there are any. `message`: a sentence about a run that does not
    give a sign of life.

    Raises:
        CuratorError: there is no run.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.clock = Folder.open(path), clock
        self.own = self.folder.sub(RUN)
        self.stats: dict[str, Any] = {}
        self.message = ""
        self.changed_at = clock()
        if not (self.own.exists("stats.json") or self.own.exists("manifest.json")):
            raise CuratorError(no_run(self.folder, path))

    def look(self) -> State:
        """Read the numbers anew, and tell how the run is.

        Raises:
            CuratorError: they are damaged.
        """
        self.message = ""
        try:
            stats, by = read_stats(self.folder), last_holder(self.folder)
        except InputError as error:  # the store does not answer now: it may the next time
            self.message = f"its numbers cannot be read: {error}"
            return "silent" if self._quiet_s() > SILENT_S else "running"
        if stats != self.stats:
            self.stats, self.changed_at = stats, self.clock()
        if stats.get("status", "running") != "running":
            return "ended"
        return self._alive(by)

    def snapshot(self) -> dict[str, Any]:
        """The run as its own watchers see it, as far as it has said so; with what is wrong with it."""
        live = dict(self.stats.get("live", {}))
        return {**live, "limit": self.message} if self.message else live

    def _alive(self, by: Holder | None) -> State:
        alive = self.stats.get("alive", {})
        who = str(by) if by else f"process {alive['pid']} on {alive['host']}" if alive else "its process"
        quiet_s = self._quiet_s()
        if by is not None and by.is_gone:
            self.message = f"{who} is gone: it was killed; the same command continues it"
            return "dead"
        if quiet_s > SILENT_S + 3 * alive.get("every_s", 0.0) and (by is None or not by.is_here):
            self.message = f"{who} has given no sign of life for {duration(quiet_s)}"
            return "silent"
        return "running" if self.stats else "starting"

    def _quiet_s(self) -> float:
        return self.clock() - self.changed_at
