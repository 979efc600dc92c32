"""Long texts in pieces that a model is asked about one by one, and how long a text is in tokens."""

from __future__ import annotations

from dataclasses import dataclass

BYTES_A_TOKEN = 4  # of UTF-8: English takes 4 to 5, other scripts 3 to 6, with the vocabularies of today


def tokens_of(text: str) -> int:
    """About how many tokens a text has, without a tokenizer."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """`most`: tokens of a piece. `least`: of a piece too; a shorter one is not asked about. `least_whole`: of
    the whole text."""

    most: int
    least: int = 1
    least_whole: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most or self.least_whole < 1:
            raise ValueError(f"pieces: wants 1 <= least <= most, and least_whole of 1 or more, got {self}")


def cut(text: str, sizes: Pieces) -> list[str]:
    """Whole lines of a text, as many together as fit; a line longer than a piece is cut between words.

    Source: Nemotron-CC (arXiv 2412.02595) cuts at line ends and joins neighbours. Known difference: it drops
    a line that is too long, and so loses a page that has no line ends.
    """
    if tokens_of(text) < sizes.least_whole:
        return []
    made: list[str] = []
    size = 0
    for line in (short for whole in text.split("\n") for short in _short(whole, sizes.most)):
        tokens = tokens_of(line + "\n")
        if made and size + tokens <= sizes.most:
            made[-1] += "\n" + line
            size += tokens
        else:
            made.append(line)
            size = tokens
    return [piece.strip("\n") for piece in made if tokens_of(piece.strip()) >= sizes.least and piece.strip()]


def _short(line: str, most: int) -> list[str]:
    """A line in parts of so many tokens at most, cut at spaces, or between characters where there are
    none."""
    if tokens_of(line) < most:
        return [line]
    made, room = [], (most - 1) * BYTES_A_TOKEN
    while line:
        head = line.encode("utf-8", "replace")[:room].decode("utf-8", "ignore") or line[0]
        if len(head) < len(line):
            space = head.rfind(" ")
            head = head[:space + 1] if space > len(head) // 2 else head
        made.append(head)
        line = line[len(head):]
    return made
