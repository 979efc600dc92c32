"""What the stages share that caption clips: parameters, windows, questions, columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.counts import Counts
from curator.api.findings import Alarm, Finding, Line
from curator.api.stage import Contract, Stage
from curator.api.tasks import VideoBatch
from curator.models.prompts import columns_of, filled
from curator_video.models.windows import inside, windows

OWN = ("times", "seconds", "count")  # what a prompt may name beside columns
CAPTION = pa.struct({"start": pa.float64(), "end": pa.float64(), "text": pa.string(), "finish_reason": pa.string()})
# Words that come again and again at the end of a text, this often and at least so many words of them.
LOOP_TIMES, LOOP_WORDS = 3, 12
REASONS = ("stop", "length", "empty", "loop")
LOST_MAX = 0.1  # of captions that are empty or loop: more is worth a word
_WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|[^\s\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]+")


@dataclass(frozen=True)
class Window:
    """A part of a clip that one question is about: its frames, and when they are shown, in seconds from the window's start."""

    row: int
    start: float
    end: float
    frames: Sequence[np.ndarray]
    times: Sequence[float]
    text: str


@dataclass(frozen=True)
class Said:
    """An answer, as both kinds of models give it."""

    text: str
    finish_reason: str | None
    tokens: int | None


@dataclass(kw_only=True)
class Windowed(Stage):
    """Asks about windows of clips."""

    prompt: str = "describe"
    system: str | None = None
    into: str = "caption"
    window: float = 10.0
    remainder: float = 5.0
    frames: int = 16

    def __post_init__(self) -> None:
        for name in ("prompt", "into"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty; {self.name} wants a text there")
        if self.into in ("id", "source", "frames", "timestamps", "start_s", "end_s"):
            raise ValueError(f"into names the new column of the captions, and {self.into!r} is another one; choose another name")
        if not 0 <= self.remainder <= self.window or self.window <= 0:
            raise ValueError(f"window is seconds above 0, and remainder 0 to window, got {self.window} and {self.remainder}")
        self.at_least(1, "frames")
        self.prompt = prompt_of(self.prompt)
        columns_of(self.prompt)
        self.count_by = (f"{self.into}_finish_reason",)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the prompt names."""
        return tuple(name for name in columns_of(self.prompt) if name not in OWN)

    def contract(self) -> Contract:
        return Contract(needs={**dict.fromkeys(self.columns), "frames": None, "timestamps": None, "start_s": pa.float64(),
                               "end_s": pa.float64()},
                        adds={self.into: pa.string(), f"{self.into}s": pa.list_(CAPTION), f"{self.into}_tokens": pa.int32(),
                              f"{self.into}_finish_reason": pa.string()})

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        by = {reason: sum(ports.values()) for reason, ports in counts.by_value.get(self.count_by[0], {}).items()}
        told = [f"{by[reason]:,} {words}" for reason, words in (("length", "cut off"), ("empty", "empty"), ("loop", "in a loop"))
                if by.get(reason)]
        if told:
            yield Line(f"captions: {', '.join(told)}")
        bad, captions = by.get("empty", 0) + by.get("loop", 0), sum(by.get(reason, 0) for reason in REASONS)
        if bad > LOST_MAX * captions:
            yield Alarm("warning", f"Of {captions:,} captions of stage {step} {bad:,} are empty or end in a loop: look at some, and try "
                        "another prompt, a larger model, or a penalty on repetition of 1.1.")

    def windows(self, batch: VideoBatch) -> list[Window]:
        """The windows of all clips that have a frame in them, in order."""
        found = []
        values = {name: batch.column(name) for name in self.columns}
        bounds = zip(batch.column("start_s"), batch.column("end_s"), strict=True)
        for row, (start_s, end_s) in enumerate(bounds):
            frames, times = ((payload or [None] * len(batch))[row] for payload in (batch.frames, batch.timestamps))
            if frames is None or times is None or not len(frames):
                continue
            begin = float(times[0]) if start_s is None else start_s
            stop = max(float(times[-1]) + 1e-3, begin + 1e-3) if end_s is None else end_s
            for start, end in windows(begin, stop, self.window, self.remainder):
                at = inside(times, start, end, self.frames)
                if len(at):
                    shown = [float(times[k]) - start for k in at]
                    own = {"times": ", ".join(f"{t:.1f}" for t in shown), "seconds": f"{end - start:.1f}", "count": len(at)}
                    text = filled(self.prompt, {**{name: column[row] for name, column in values.items()}, **own}).strip()
                    found.append(Window(row, start, end, [frames[k] for k in at], shown, text))
        return found

    def told(self, batch: VideoBatch, asked: Sequence[Window], said: Sequence[Said | Any]) -> VideoBatch:
        """The batch with the answers to its windows."""
        rows: list[list[tuple[Window, Said]]] = [[] for _ in range(len(batch))]
        for window, answer in zip(asked, said, strict=True):
            rows[window.row].append((window, judged(answer)))
        lists = [[{"start": w.start, "end": w.end, "text": s.text or None, "finish_reason": s.finish_reason} for w, s in row] or None
                 for row in rows]
        texts = [" ".join(s.text for _, s in row if s.text) or None for row in rows]
        counts = [[s.tokens for _, s in row if s.tokens is not None] for row in rows]
        tokens = [sum(known) if row and len(known) == len(row) else None for row, known in zip(rows, counts, strict=True)]
        reasons = [next((s.finish_reason for _, s in row if s.finish_reason != "stop"), "stop") if row else None for row in rows]
        return batch.with_columns({
            self.into: pa.array(texts, pa.string()), f"{self.into}s": pa.array(lists, pa.list_(CAPTION)),
            f"{self.into}_tokens": pa.array(tokens, pa.int32()), f"{self.into}_finish_reason": pa.array(reasons, pa.string())})


def prompt_of(prompt: str) -> str:
    """The text of a prompt that is named: one of the pack's, or a file that ends in .txt. Any other is the text itself.

    Raises:
        ValueError: there is no such prompt.
    """
    if prompt.endswith(".txt"):
        try:
            return Path(prompt).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"prompt: {prompt!r} cannot be read as a text file: {error}") from error
    if not re.fullmatch(r"[a-z_]+", prompt):
        return prompt
    folder = resources.files("curator_video.models") / "prompts"
    named = folder / f"{prompt}.txt"
    if not named.is_file():
        there = ", ".join(sorted(one.name.removesuffix(".txt") for one in folder.iterdir()))
        raise ValueError(f"prompt: there is no {prompt!r}; there are {there}, any file that ends in .txt, or the text itself")
    return named.read_text(encoding="utf-8").strip()


def judged(said: Said | Any) -> Said:
    """With `empty` or `loop` as the reason where the text is one."""
    text = said.text.strip()
    reason = "empty" if not text else "loop" if loops(text) else said.finish_reason
    return Said(text, reason, said.tokens)


def loops(text: str) -> bool:
    """Whether a text ends in the same words again and again, as models do that have lost the thread."""
    words = _WORD.findall(text.casefold())
    for period in range(1, len(words) // LOOP_TIMES + 1):
        run = max(LOOP_WORDS, LOOP_TIMES * period) - period
        if run + period <= len(words) and words[-run:] == words[-run - period:-period]:
            return True
    return False
