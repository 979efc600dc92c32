"""Translations that keep a text's structure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from curator.api.stage import Context, Contract, Outputs
from curator.api.tasks import TextBatch
from curator.models.chat import Reply
from curator.models.prompts import columns_of, filled
from curator_text.language.language import weight
from curator_text.language.language_codes import ALIASES, VARIETIES, check_codes
from curator_text.llm.asking import Asking, Question, Talk, count_tokens
from curator_text.llm.forms import Unfit
from curator_text.llm.pieces import tokens_of
from curator_text.llm.prompts import read_prompt
from curator_text.llm.segments import (
    Segment,
    joined,
    numbered,
    problem_of,
    read_numbered,
    segments_of,
)

TELLING = 60  # letters from which on the language of a line can be told
SURE = 0.9  # and the probability of another one that is believed


@dataclass(kw_only=True)
class Translate(Asking):
    """Translate a text line by line, so that its structure stays: paragraphs, lists, headings, quotations,
    tables, blocks of code.

    Adds `into` (string): the translation; `<into>_segments` (int32): lines that had words to translate;
    `<into>_left` (list of int32): the numbers, from 0, of lines that stayed as they were, as no attempt gave
    a translation that can be right; `<into>_problem` (string): what was wrong with the first of them, else
    null; `<into>_tokens_in`, `<into>_tokens` (int32). Null where the text is. A record of whose lines none
    was translated leaves on `failed`.

    Blocks of code and of formulas stay as they are, and so do, inside a line, code, formulas, addresses,
    markup, the walls of tables, and what a program fills in (`{name}`, `%s`): the model sees marks in their
    place. Lines are asked about together, numbered, up to `segment_tokens` at a time. A line is looked at:
    it is there, it has the same marks, it is not the line itself (if that has more than three words), it has
    0.4 to 2.5 times as many letters, of which those of Chinese count three and of Japanese and Korean two
    (20 more or fewer are always fine), and where it has 60 letters `text.language` does not take it for
    another language. What fails is asked about by itself, with another seed and a temperature of at least
    0.5, until `attempts` are used up.

    `to`: the code of the language (`de`). `column`: the text. `prompt`: a YAML file of one's own instead of
    the packaged `translate_lines`, with `{target_language}` and `{text}` in it. The rest: as of `text.llm`.

    Known difference: a paragraph that is broken into lines is translated line by line, in one question.
    Source: the checks are ours.
    """

    to: str
    column: str = "text"
    into: str = "translation"
    prompt: str = "translate_lines"
    segment_tokens: int = 600
    max_tokens: int = 4096
    attempts: int = 3

    def __post_init__(self) -> None:
        self._asked = read_prompt(self.prompt)
        super().__post_init__()
        self.want_texts("into", "column")
        check_codes([self.to], "to", varieties=False)
        if self.to in ("und", "zxx"):
            raise ValueError(f"to is the code of a language, and {self.to} is none")
        if set(columns_of(self._asked.prompt)) != {"target_language", "text"}:
            raise ValueError("prompt: a translation wants {target_language} and {text} in its prompt, and "
                             "nothing else")
        if self.into in ("id", "source", self.column):
            raise ValueError(f"into names the new column, and {self.into!r} is another one")
        self.at_least(1, "segment_tokens")

    def parameters(self) -> dict[str, Any]:
        asked = {name: value for name, value in asdict(self._asked).items()
                 if name in ("prompt", "system", "options")}
        return super().parameters() | {"prompt": None, "asked": asked}

    def asked_options(self) -> dict[str, Any]:
        return {**self._asked.options, **self.options}

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds={
            self.into: pa.string(), f"{self.into}_segments": pa.int32(),
            f"{self.into}_left": pa.list_(pa.int32()), f"{self.into}_problem": pa.string(),
            f"{self.into}_tokens_in": pa.int32(), f"{self.into}_tokens": pa.int32()})

    def setup(self, ctx: Context) -> None:
        from curator_text.language.language_model import LanguageModel

        super().setup(ctx)
        self._languages = LanguageModel(merge=VARIETIES)

    def process(self, batch: TextBatch) -> Outputs:
        tally: Counter[str] = Counter()
        made = self.talk_all([self._talk(text, tally) for text in batch.column(self.column)])
        good = [row for row, one in enumerate(made) if isinstance(one, dict)]
        bad = [row for row, one in enumerate(made) if isinstance(one, str)]
        added = {name: pa.array([made[row].get(name) for row in good], kind)
                 for name, kind in self.contract().adds.items()}
        ports = {"out": batch.take(good).with_columns(added)} if good or not bad else {}
        if bad:
            ports["failed"] = batch.take(bad).with_error([made[row] for row in bad])
        return Outputs(ports, counts=tally)

    def _talk(self, text: str | None, tally: Counter[str]) -> Talk:
        """The columns of a record, or why there are none."""
        if text is None:
            return {}
        segments, done = segments_of(text), dict[int, str]()
        rest, problems = list(range(len(segments))), dict[int, str]()
        spent: Counter[str] = Counter()
        for attempt in range(self.attempts):
            groups = self._groups(segments, rest) if not attempt else [[number] for number in rest]
            replies = yield [self._question(segments, group, attempt) for group in groups]
            for group, reply in zip(groups, replies, strict=True):
                found = self._found(segments, group, reply, spent)
                done |= {number: told for number, told in found.items() if not isinstance(told, Unfit)}
                problems |= {number: str(told) for number, told in found.items() if isinstance(told, Unfit)}
            rest = [number for number in rest if number not in done]
            if not rest:
                break
            tally["unfit"] += len(rest)
        tally.update(spent)
        if rest and not done:
            return problems[rest[0]]
        tally["lines_left"] += len(rest)
        sums = {f"{self.into}_{name}": spent[key] + spent[f"kept_{key}"]
                for name, key in (("tokens_in", "tokens_in"), ("tokens", "tokens_out"))}
        return sums | {self.into: joined(text, segments, done), f"{self.into}_segments": len(segments),
                       f"{self.into}_left": [segments[number].line for number in rest],
                       f"{self.into}_problem": problems[rest[0]] if rest else None}

    def _groups(self, segments: Sequence[Segment], numbers: Sequence[int]) -> list[list[int]]:
        """Neighbours together, up to `segment_tokens`."""
        made: list[list[int]] = []
        size = 0
        for number in numbers:
            tokens = tokens_of(segments[number].text) + 2
            if made and size + tokens <= self.segment_tokens:
                made[-1].append(number)
                size += tokens
            else:
                made.append([number])
                size = tokens
        return made

    def _question(self, segments: Sequence[Segment], group: Sequence[int], attempt: int) -> Question:
        names = [name for name, code in ALIASES.items() if code == self.to]
        name = next((name for name in names if len(name) > 3), names[-1])
        told = {"target_language": name.replace("_", " ").title(),
                "text": numbered([segments[number].text for number in group])}
        return self.again(self.question(filled(self._asked.prompt, told), self._asked.system,
                                        **self._asked.options), attempt)

    def _found(self, segments: Sequence[Segment], group: Sequence[int], reply: Reply | str,
               spent: Counter[str]) -> dict[int, str | Unfit]:
        """The translation of each segment that was asked about, or what is wrong with it."""
        if isinstance(reply, str):
            return {number: Unfit(reply) for number in group}
        count_tokens(reply, spent)
        told = read_numbered(reply.text, len(group))
        if told == [None] and reply.text.strip() and "\n" not in reply.text.strip():
            told = [reply.text.strip()]  # asked about one line, many leave its number out
        if reply.finish_reason == "length":
            last = max((at for at, line in enumerate(told) if line), default=0)
            told[last:] = [None] * (len(told) - last)
        found: dict[int, str | Unfit] = {}
        for number, line in zip(group, told, strict=True):
            problem = problem_of(segments[number].text, line) or self._language_problem(line or "")
            found[number] = line if line and not problem else Unfit(problem)
        return found

    def _language_problem(self, line: str) -> str | None:
        if weight(line) < TELLING:
            return None
        [code], [score] = self._languages.identify([line])
        return f"the line is in {code}, not in {self.to}" if code != self.to and score >= SURE else None
