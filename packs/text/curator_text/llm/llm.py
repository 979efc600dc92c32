"""Language models that are asked about each record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.stage import Contract, Outputs
from curator.api.tasks import TextBatch
from curator.models.chat import Reply
from curator.models.prompts import columns_of, filled
from curator_text.llm.asking import Asking, Question, Talk
from curator_text.llm.forms import Unfit
from curator_text.llm.pieces import cut
from curator_text.llm.prompts import Prompt, read_prompt
from curator_text.llm.structure import check_fields, columns, parsed, response_format


@dataclass(kw_only=True)
class Llm(Asking):
    """Ask a language model about each record, behind an OpenAI-compatible server or in this process: rewrite,
    question, judge, extract, label.

    Adds `into` (string): the answer; `<into>_tokens_in`, `<into>_tokens` (int32, null if the server does not
    say); `<into>_finish_reason` (`stop`, or `length` where it was cut off at `max_tokens`); with a task that
    scores `<into>_score` (float32); with `fields` a column for each of them; with a task that cuts long texts
    `<into>_pieces` and `<into>_pieces_lost` (int32): how many were asked about, and how many of them have no
    answer that is what was asked for. Null where the text is, or is too short for the task, or where the
    answer says that there is nothing. The funnel tells tokens and, with prices, their cost.

    A record whose question the server refuses, or whose answer is not what was asked for (no JSON, no list,
    no score, too short), leaves on `failed` with the reason; one in pieces does if no piece has an answer. A
    server that is out, or does not let us in, is no fault of any record: the run stops, and the same command
    goes on from there.

    `task`: a packaged prompt (`rephrase`, `distil`, `diverse_qa`, `qa`, `knowledge_list`, `extract_knowledge`,
    `edu_score`, `translate`), or the path of a YAML file of one's own; it also says `max_tokens` and `temperature`, which
    `options` changes. Or `prompt`: the question, with columns as `{text}`, and `system` before it.
    `max_chars`: so many characters of each text are told; null: all. `fields`: a name and type for each
    column that the answer makes (`{topic: string, quality: integer, label: [good, bad]}`); the server is
    asked to keep to their JSON schema, a model in this process is told it. `samples`: so many answers a
    record, each a child of the record, with `sample` (0, 1, …) and a seed of its own; wants a temperature
    above 0. `attempts`: so many times a question is asked until the answer is what was asked for, each time
    with another seed and a temperature of at least 0.5.

    `url`: the server's, up to and with `/v1`; null: the model computes in the workers, by transformers, on a
    GPU in bfloat16. `model`: as the server calls it; without a server a hub id, `id@revision` or a folder,
    with a chat template. `temperature`: 0 takes the likeliest token. `seed`: null for none; whether the same
    question is answered the same again is up to the server; in this process it is, but for rounding, which in
    16 bits may depend on the texts of the same batch. `options`: further fields of the request; null takes
    one out: `{max_tokens: null, max_completion_tokens: 256}`. `cache`: a folder of this machine where answers
    are kept; the same question is then not asked again, by no worker and no later run. `api_key_env`: the
    environment variable that holds the key, in the workers too; null for none. `concurrency`: questions at a
    time, in each worker. `answer_timeout_s`: for one answer. `retries`: further tries, with `backoff_s`
    seconds before the first, twice as long before each next one and a minute at most, or longer if the server
    says so.

    `requests_per_minute`, `tokens_per_minute`: of all workers of a machine, to this URL and model.
    `price_in`, `price_out`: of a million tokens, in any currency. `max_cost`, `budget_tokens`: when the
    answers in `cache` took so much of this URL and model, the run stops; what is under way then is still
    paid for. With a larger budget the same command goes on.
    """

    task: str | None = None
    prompt: str | None = None
    system: str | None = None
    into: str = "answer"
    fields: dict[str, Any] = field(default_factory=dict)
    samples: int = 1
    max_chars: int | None = None
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        if (self.task is None) == (self.prompt is None):
            raise ValueError("llm wants either `task`, a packaged prompt, or `prompt`, one of your own")
        self._asked = Prompt(prompt=self.prompt or "",
                             system=self.system) if self.task is None else read_prompt(self.task)
        super().__post_init__()
        self.want_texts("into")
        if self.into in ("id", "source", *columns_of(self._asked.prompt)):
            raise ValueError(f"into names the new column of the answers, and {self.into!r} is another one; "
                             "choose another name")
        check_fields(self.fields)
        if self.fields and self._asked.pieces:
            raise ValueError("fields are of a whole text, and this task asks about pieces of it")
        if self.samples < 1 or (self.samples > 1
                                and not (self.asked_options().get("temperature") or self.temperature)):
            raise ValueError("samples must be 1 or more, and several want a temperature above 0, or all "
                             "answers are the same")
        self.at_least(1, "max_chars")

    def parameters(self) -> dict[str, Any]:
        """With the text of the prompt, so that an edit of it is one of the step."""
        asked = {name: value for name, value in asdict(self._asked).items()
                 if name not in ("description", "source")}
        return super().parameters() | {"task": None, "asked": asked}

    def contract(self) -> Contract:
        adds: dict[str, pa.DataType] = {self.into: pa.string(), f"{self.into}_tokens_in": pa.int32(),
                                        f"{self.into}_tokens": pa.int32(),
                                        f"{self.into}_finish_reason": pa.string()}
        if self._asked.form == "score":
            adds[f"{self.into}_score"] = pa.float32()
        if self._asked.pieces:
            adds |= {f"{self.into}_pieces": pa.int32(), f"{self.into}_pieces_lost": pa.int32()}
        if self.samples > 1:
            adds |= {"sample": pa.int32(), "parent": pa.string()}
        return Contract(needs=dict.fromkeys(columns_of(self._asked.prompt)), adds=adds | columns(self.fields))

    def process(self, batch: TextBatch) -> Outputs:
        if self.samples > 1:
            batch = batch.explode([self.samples] * len(batch))
            batch = batch.with_columns({"sample": pa.array(np.arange(len(batch)) % self.samples, pa.int32())})
        values = {name: batch.column(name) for name in columns_of(self._asked.prompt)}
        tally: Counter[str] = Counter()
        answers = self.talk_all([
            self._talk({name: self._short(column[row]) for name, column in values.items()},
                       row % self.samples, key, tally) for row, key in enumerate(batch.column("id"))])
        good = [number for number, one in enumerate(answers) if isinstance(one, dict)]
        bad = [number for number, one in enumerate(answers) if isinstance(one, str)]
        added = {name: pa.array([answers[number].get(name) for number in good], kind)
                 for name, kind in self.contract().adds.items() if name not in ("sample", "parent")}
        ports = {"out": batch.take(good).with_columns(added)} if good or not bad else {}
        if bad:
            ports["failed"] = batch.take(bad).with_error([answers[number] for number in bad])
        return Outputs(ports, counts=tally)

    def _short(self, value: Any) -> Any:
        return value[:self.max_chars] if isinstance(value, str) else value

    def asked_options(self) -> Mapping[str, Any]:
        return {**self._asked.options, **self.options}

    def _talk(self, row: Mapping[str, Any], sample: int, key: str, tally: Counter[str]) -> Talk:
        """The columns of a record, or why there are none; no columns where everything in the prompt is null,
        or the text too short."""
        if row and all(value is None for value in row.values()):
            return {}
        rows = [row]
        main = next(iter(row), "")
        if self._asked.pieces:
            rows = [{**row, main: piece} for piece in cut(str(row[main] or ""), self._asked.pieces)]
            if not rows:
                return {}
        made = yield from self.fitting(
            [self._question(one, sample) for one in rows],
            lambda number, reply: self._taken(reply, str(rows[number].get(main) or ""),
                                              f"{self.seed} {key} {number}"), tally)
        good = [one for one in made if not isinstance(one, Unfit)]
        if not good:
            more = f" (the first of {len(made)} pieces, none of which has an answer)" if made[1:] else ""
            return f"{made[0]}{more}"
        if self._asked.pieces is None:
            return good[0]
        tally["pieces_lost"] += len(made) - len(good)
        return self._joined(good, len(made))

    def _question(self, row: Mapping[str, Any], sample: int) -> Question:
        more = dict(self._asked.options)
        if self.fields:
            more["response_format"] = response_format(self.fields)
        if sample and self.seed is not None:
            more["seed"] = self.seed + sample
        return self.question(filled(self._asked.prompt, row), self._asked.system, **more)

    def _taken(self, reply: Reply, about: str, chance: str) -> dict[str, Any]:
        if self.fields:
            made = parsed(reply.text, self.fields) | {self.into: reply.text.strip()}
        else:
            text, score = self._asked.taken(reply.text, about=about, chance=chance,
                                            cut_off=reply.finish_reason == "length")
            made = {self.into: text, f"{self.into}_score": score}
        return made | {f"{self.into}_tokens_in": reply.tokens_in, f"{self.into}_tokens": reply.tokens,
                       f"{self.into}_finish_reason": reply.finish_reason}

    def _joined(self, good: list[dict[str, Any]], pieces: int) -> dict[str, Any]:
        """One answer of those to the pieces of a text, with an empty line between them."""
        texts = [one[self.into] for one in good if one[self.into] is not None]
        sums = {}
        for name in (f"{self.into}_tokens_in", f"{self.into}_tokens"):
            known = [one[name] for one in good if one[name] is not None]
            sums[name] = sum(known) if known else None
        cut_off = any(one[f"{self.into}_finish_reason"] == "length" for one in good)
        return {self.into: "\n\n".join(texts) if texts else None, **sums,
                f"{self.into}_finish_reason": "length" if cut_off else good[0][f"{self.into}_finish_reason"],
                f"{self.into}_pieces": pieces, f"{self.into}_pieces_lost": pieces - len(good)}
