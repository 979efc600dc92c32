"""How much of a run is done, and how long the rest takes.

What is left of a step is the rows that will still come to it, each at the price of those that it has done.
How many come is known from the source: the records so far, for the bytes so far, for all bytes; and through
the pipeline by what each step has let through. What is left of the run is the seconds of work that all steps
have left, by as many seconds of work as were lately done in a second; but no step is faster than
its workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

SAMPLES = 64  # of the work done so far, of which the later half tells the speed
SAMPLE_S = 0.2
FIRST_S = 1.0  # so long all cores are taken to work, before much is measured
# seconds a row of a step behind a barrier of which nothing is known: reading it from the disk and on
LATER_ROW_S = 5e-5
LATE = 0.2  # share of its rows from which on a step is judged by the last of them
FOUND = 0.1  # share of copies, pairs and the like
FEW = 0.02  # steps that this share of the records comes to, or less, do not matter


@dataclass(slots=True)
class Work:
    """A step, and what it has done. `rows`: that came in; `out`: that it sent to each port; `busy_s`: seconds
    of work; `before_s`: what a row took in an earlier run, None if there was none. `operator`: in which it
    runs, of which at most `most` workers work at a time. `reduces`: it reads all rows twice. `part`: of
    another stage: its rows are no records."""

    name: str
    phase: int
    operator: int
    after: Sequence[tuple[str, str]]
    rows: int = 0
    out: Mapping[str, int] = field(default_factory=dict)
    busy_s: float = 0.0
    before_s: float | None = None
    most: float = inf
    reduces: bool = False
    part: bool = False


class _Sample(NamedTuple):
    """When, the seconds of work done by then, those of starting workers with them, and rows and seconds of
    each step."""

    at: float
    done: float
    steps: Mapping[str, tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Outlook:
    """`share` of the work that is done, 0 to 1. `seconds_left`: None while nobody can tell. `read_s`: seconds
    of work that reading takes, from the first byte to the last."""

    share: float = 0.0
    seconds_left: float | None = None
    read_s: float = 0.0


class Estimate:
    """Is told now and then how far a run is, and tells how far that is."""

    def __init__(self) -> None:
        self.samples: list[_Sample] = []
        self.starting_s = self.asked_at = self.share = 0.0

    def __call__(self, now: float, works: Sequence[Work], phase: int, read: float, cores: float,
                 running_s: float = 0.0, starting: float = 0.0) -> Outlook:
        """`works`: of all phases, in the order of the pipeline. `read`: the share of the source of this
        phase that was read. `running_s`: seconds that calls have worked that have not answered. `starting`:
        workers that get ready, which will work as soon as they are."""
        self.starting_s += starting * (now - self.asked_at)
        self.asked_at = now
        done = sum(w.busy_s for w in works)
        worked = done + running_s + self.starting_s
        since = self._since(now, worked, works)
        left, known = work_left(works, phase, read, since.steps)
        if not known:  # workers start, and the first calls are made: that says nothing of the speed
            self.samples.clear()
        speed = (worked - since.done + FIRST_S * cores) / (now - since.at + FIRST_S)
        total = done + sum(left.values())
        running_s = min(running_s, sum(left[w.name] for w in works if w.phase == phase))
        if not known or not total:
            return Outlook(self.share)
        seconds = 0.0
        for number in range(phase, 1 + max(w.phase for w in works)):
            work, by_operator = 0.0, dict.fromkeys((w.operator for w in works), 0.0)
            for w in works:
                if w.phase == number:
                    work += left[w.name]
                    by_operator[w.operator] += left[w.name] / w.most
            begun = running_s if number == phase else 0.0
            spread = max(0.0, work - begun) / (speed if number == phase else min(max(speed, 1.0), cores))
            seconds += max(spread, *by_operator.values(), work / cores)
        unread = max(1e-9, 1 - read)
        read_s = sum(left[w.name] for w in works if not w.after) / unread
        self.share = (done + running_s) / total
        return Outlook(self.share, seconds, read_s)

    def _since(self, now: float, done: float, works: Sequence[Work]) -> _Sample:
        """What was done by the middle of the time since the first work."""
        samples = self.samples
        steps = {w.name: (w.rows, w.busy_s) for w in works}
        if samples and any(steps[name][0] < rows for name, (rows, _) in samples[-1].steps.items()):
            samples.clear()  # a unit begins again, and what was done for it is void
        if not samples or now - samples[-1].at >= SAMPLE_S:
            samples.append(_Sample(now, done, steps))
        if len(samples) > SAMPLES:
            samples[:] = samples[::2]
        middle = (samples[0].at + now) / 2
        return next((s for s in samples if middle <= s.at < now), samples[0])


def work_left(works: Sequence[Work], phase: int, read: float,
              since: Mapping[str, tuple[int, float]]) -> tuple[dict[str, float], bool]:
    """Seconds of work that each step has left, and whether that can be said of all that matter. `since`: rows
    and seconds some time ago."""
    step = {w.name: w for w in works}
    rows: dict[str, float] = {}  # that will have come to each step
    left: dict[str, float] = {}
    known = True
    sources = [w for w in works if not w.after]
    # to write a record takes about as long as to read it
    whole_s = sum(w.busy_s for w in sources) / max(1, sum(w.rows for w in sources))
    for w in works:
        if w.after:
            rows[w.name] = sum(_sent(step[of], rows[of], port) for of, port in w.after if of in rows)
        else:
            rows[w.name] = w.rows / read if read and w.phase == phase else w.rows
        rows[w.name] = expected = max(rows[w.name], w.rows)
        most = max(rows.values())
        if w.phase < phase:
            left[w.name] = 0.0
        elif w.reduces and w.busy_s and read and w.phase == phase:
            left[w.name] = w.busy_s * (1 - read) / read
        else:
            row_s = _price(w, *since.get(w.name, (0, 0.0)))
            if row_s is None:
                known = known and (w.phase > phase or expected <= FEW * most)
                row_s = max(LATER_ROW_S, 0.0 if w.part else whole_s) if w.phase > phase else 0.0
            left[w.name] = (expected - w.rows) * row_s
    return left, known


def _price(work: Work, rows: int, busy_s: float) -> float | None:
    """Seconds a row: of late if that was a good part of all, since inputs and machines change; else of all
    rows."""
    if work.rows - rows >= LATE * work.rows > 0:
        return max(0.0, work.busy_s - busy_s) / (work.rows - rows)
    return work.busy_s / work.rows if work.rows else work.before_s


def _sent(step: Work, rows: float, port: str) -> float:
    """How many of so many rows go out on a port; before any has, all on the main one, but few of a part that
    looks for what belongs together."""
    if step.rows:
        return rows * step.out.get(port, 0) / step.rows
    return (rows * FOUND if step.reduces and step.part else rows) if port == "out" else 0.0
