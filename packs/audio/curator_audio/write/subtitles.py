"""What is said when, as text that players and tools read: SubRip, WebVTT, TextGrid, CTM, RTTM."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from curator_audio.voices.turns import Turn, rttm_line
from curator_audio.words.normalize import is_spaced, words_of

_ENDS = (".", "!", "?", "…", "。", "！", "？")  # of sentences
_VTT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True)
class Word:
    """A word, or several, with its time in seconds. `score`: mean log-probability."""

    start: float
    end: float
    text: str
    score: float | None = None


@dataclass
class Said:
    """All that is said in a file. `texts`: what is said in a span, with times of words or without."""

    name: str
    end: float = 0.0
    texts: list[tuple[Word, list[Word]]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    @property
    def words(self) -> list[Word]:
        return [word for _, words in self.texts for word in words]


@dataclass(frozen=True)
class Layout:
    """What fits into a subtitle."""

    max_chars: int
    max_seconds: float
    gap_s: float


def srt(said: Said, layout: Layout) -> str:
    """SubRip: numbered, with a comma before the milliseconds."""
    return "".join(f"{number}\n{_times(cue, ',')}\n{_two_lines(cue.text, layout.max_chars)}\n\n"
                   for number, cue in enumerate(cues(said, layout), 1))


def vtt(said: Said, layout: Layout) -> str:
    """Source: W3C, WebVTT: The Web Video Text Tracks Format."""
    return "WEBVTT\n\n" + "".join(
        f"{_times(cue, '.')}\n{_two_lines(cue.text, layout.max_chars).translate(_VTT)}\n\n"
        for cue in cues(said, layout))


def ctm(said: Said) -> str:
    """Source: NIST, SCTK: file, channel, start, duration, word, confidence."""
    name, words = _plain(said.name), sorted(said.words, key=lambda one: (one.start, one.end))
    return "".join(f"{name} 1 {word.start:.3f} {word.end - word.start:.3f} {_plain(word.text)}{_confidence(word)}\n"
                   for word in words if word.end > word.start)


def rttm(said: Said) -> str:
    turns = sorted(said.turns, key=lambda one: (one.start, one.end))
    return "".join(rttm_line(said.name, turn) for turn in turns)


def textgrid(said: Said) -> str:
    """Praat's, in its long form: tiers `words`, `text` and one a speaker, without gaps.

    Source: Praat manual, "TextGrid file formats".
    """
    speakers = dict.fromkeys(turn.speaker for turn in said.turns)
    tiers = [("words", said.words), ("text", [span for span, _ in said.texts])]
    tiers += [(name, [Word(turn.start, turn.end, name) for turn in said.turns if turn.speaker == name])
              for name in speakers]
    tiers = [(name, spans) for name, spans in tiers if spans]
    end = max([said.end, *(span.end for _, spans in tiers for span in spans)])
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", *_span(0, end, ""), "tiers? <exists>",
             f"size = {len(tiers)}", "item []:"]
    for number, (name, spans) in enumerate(tiers, 1):
        filled = list(_filled(spans, end))
        lines += [f"    item [{number}]:", '        class = "IntervalTier"', f"        name = {_quoted(name)}",
                  *_span(0, end, "        "), f"        intervals: size = {len(filled)}"]
        for at, span in enumerate(filled, 1):
            lines += [f"        intervals [{at}]:", *_span(span.start, span.end, "            "),
                      f"            text = {_quoted(span.text)}"]
    return "\n".join(lines) + "\n"


def cues(said: Said, layout: Layout) -> Iterator[Word]:
    """Subtitles in order of time: of words, a new one at a pause, behind a sentence, and where no more
    fits."""
    for span, words in sorted(said.texts, key=lambda one: one[0].start):
        group: list[Word] = []
        joint = " " if is_spaced(span.text) else ""
        for word in words or estimated(span):
            if group and not _goes_on(group, word, joint, layout):
                yield _joined(group, joint)
                group = []
            group.append(word)
        if group:
            yield _joined(group, joint)


def estimated(span: Word) -> list[Word]:
    """The words of a text, each with as much of the time as it has letters."""
    pieces = words_of(span.text)
    places = [0]
    for piece in pieces:
        places.append(places[-1] + len(piece) + 1)
    scale = (span.end - span.start) / max(1, places[-1])
    return [Word(span.start + scale * low, span.start + scale * high, piece)
            for piece, (low, high) in zip(pieces, pairwise(places), strict=True)]


def _goes_on(group: Sequence[Word], word: Word, joint: str, layout: Layout) -> bool:
    """Whether a word belongs to the subtitle before it."""
    chars = sum(len(one.text) + len(joint) for one in group) + len(word.text)
    return (word.start - group[-1].end < layout.gap_s and word.end - group[0].start <= layout.max_seconds
            and chars <= layout.max_chars and not group[-1].text.endswith(_ENDS))


def _joined(group: Sequence[Word], joint: str) -> Word:
    return Word(group[0].start, max(word.end for word in group), joint.join(word.text for word in group))


def _two_lines(text: str, max_chars: int) -> str:
    """The text, broken at the space nearest to its middle if it is more than half of what fits."""
    spaces = [at for at, letter in enumerate(text) if letter == " "]
    if len(text) <= max_chars / 2 or not spaces:
        return text
    middle = min(spaces, key=lambda at: abs(at - len(text) / 2))
    return f"{text[:middle]}\n{text[middle + 1:]}"


def _filled(spans: Sequence[Word], end: float) -> Iterator[Word]:
    """The spans one behind the other, empty ones between; one that begins inside another begins at its
    end."""
    at = 0.0
    for span in sorted(spans, key=lambda one: (one.start, one.end)):
        start = max(at, span.start)
        if span.end <= start:
            continue
        if start > at:
            yield Word(at, start, "")
        yield Word(start, span.end, span.text)
        at = span.end
    if end > at:
        yield Word(at, end, "")


def _times(cue: Word, point: str) -> str:
    return f"{_clock(cue.start, point)} --> {_clock(cue.end, point)}"


def _clock(seconds: float, point: str) -> str:
    minutes, rest = divmod(max(0, round(1000 * seconds)), 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}{point}{rest % 1000:03d}"


def _confidence(word: Word) -> str:
    if word.score is None or not math.isfinite(word.score):
        return ""
    return f" {math.exp(min(0.0, word.score)):.4f}"


def _plain(text: str) -> str:
    return "_".join(text.split()) or "-"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _span(start: float, end: float, margin: str) -> list[str]:
    return [f"{margin}xmin = {_seconds(start)}", f"{margin}xmax = {_seconds(end)}"]


def _seconds(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
