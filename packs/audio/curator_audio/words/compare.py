"""Two transcripts of one recording compared: word and character errors, where they stand, how long a run of them is."""

from __future__ import annotations

from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from curator_audio.words.normalize import is_spaced, words_of


@dataclass(frozen=True, slots=True)
class Errors:
    """What differs. Rates are errors by the length of the reference, above 1 where much was inserted; None where that is empty.

    `substitutions`, `deletions`, `insertions`: words, or characters where the script has no spaces. `match_rate`: the share of the
    reference's words that are there. `longest_run`: words wrong one after the other.
    """

    wer: float | None
    cer: float | None
    substitutions: int
    deletions: int
    insertions: int
    match_rate: float | None
    longest_run: int
    edge_start: float | None
    edge_end: float | None

    @property
    def words_wrong(self) -> int:
        return self.substitutions + self.deletions + self.insertions


def compare(reference: str, hypothesis: str, edge: int = 12) -> Errors:
    """The errors of a hypothesis. `edge`: how many characters at either end make the edge rates.

    An empty reference has rates of 0 where the hypothesis is empty too, else none: nothing can be divided by it.
    """
    # Of both: a reference without spaces and a hypothesis with some are compared by characters.
    spaced = is_spaced(reference)
    said, heard = words_of(reference), hypothesis.split() if spaced else [c for c in hypothesis if not c.isspace()]
    substitutions = deletions = insertions = equal = run = longest = 0
    for step in Levenshtein.opcodes(said, heard):
        gone, new = step.src_end - step.src_start, step.dest_end - step.dest_start
        if step.tag == "equal":
            equal, run = equal + gone, 0
            continue
        substitutions += gone if step.tag == "replace" else 0
        deletions += gone if step.tag == "delete" else 0
        insertions += new if step.tag == "insert" else 0
        run += max(gone, new)
        longest = max(longest, run)
    a, b = (reference, hypothesis) if spaced else ("".join(said), "".join(heard))
    wrong = substitutions + deletions + insertions
    return Errors(wer=_rate(wrong, len(said)), cer=_rate(Levenshtein.distance(a, b), len(a)),
                  substitutions=substitutions, deletions=deletions, insertions=insertions,
                  match_rate=equal / len(said) if said else None, longest_run=longest,
                  edge_start=_cer(a[:edge], b[:edge]), edge_end=_cer(a[-edge:], b[-edge:]))


def _cer(reference: str, hypothesis: str) -> float | None:
    return _rate(Levenshtein.distance(reference, hypothesis), len(reference))


def _rate(errors: int, length: int) -> float | None:
    if length:
        return errors / length
    return None if errors else 0.0
