"""Language models behind a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.counts import Counts
from curator.api.findings import Finding, Line
from curator.api.format import count
from curator.api.stage import Contract, Outputs
from curator.api.tasks import TextBatch
from curator.models.chat import Reply
from curator.models.prompts import columns_of, filled
from curator.models.server import ServerStage
from curator_text.llm.forms import FORMS, Unfit
from curator_text.llm.prompts import Prompt, read_prompt
from curator_text.llm.structure import check_fields, columns, parsed, response_format


@dataclass(kw_only=True)
class Llm(ServerStage):
    """Ask a language model about each record by an OpenAI-compatible server: rewrite, question, judge,
    extract, label.

    Adds `into` (string): the answer; `<into>_tokens_in`, `<into>_tokens` (int32, null if the server does not
    say); `<into>_finish_reason` (`stop`, or `length` where it was cut off at `max_tokens`); with a task that
    scores `<into>_score` (float32); with `fields` a column for each of them. The funnel tells tokens and,
    with prices, their cost.

    A record whose question the server refuses, or whose answer is not what was asked for (no JSON, no list,
    no score), leaves on `failed` with the reason. A server that is out, or does not let us in, is no fault of
    any record: the run stops, and the same command goes on from there.

    `task`: a packaged prompt (`rephrase`, `distil`, `qa`, `knowledge_list`, `extract_knowledge`, `edu_score`,
    `translate`), or the path of a YAML file of one's own; it also says `max_tokens` and `temperature`, which
    `options` changes. Or `prompt`: the question, with columns as `{text}`, and `system` before it.
    `max_chars`: so many characters of each text are told; null: all. `fields`: a name and type for each
    column that the answer makes (`{topic: string, quality: integer, label: [good, bad]}`); the server is
    asked to keep to their JSON schema. `samples`: so many answers a record, each a child of the record, with
    `sample` (0, 1, …) and a seed of its own; wants a temperature above 0.

    `url`: the server's, up to and with `/v1`. `model`: as the server calls it. `temperature`: 0 takes the
    likeliest token. `seed`: null for none; whether the same question is answered the same again is up to the
    server. `options`: further fields of the request; null takes one out: `{max_tokens: null,
    max_completion_tokens: 256}`. `cache`: a folder of this machine where answers are kept; the same question
    is then not asked again, by no worker and no later run. `api_key_env`: the environment variable that holds
    the key, in the workers too; null for none. `concurrency`: questions at a time, in each worker.
    `answer_timeout_s`: for one answer. `retries`: further tries, with `backoff_s` seconds before the first,
    twice as long before each next one and a minute at most, or longer if the server says so.

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
        super().__post_init__()
        self.want_texts("into")
        if (self.task is None) == (self.prompt is None):
            raise ValueError("llm wants either `task`, a packaged prompt, or `prompt`, one of your own")
        self._asked = Prompt(prompt=self.prompt,
                             system=self.system) if self.task is None else read_prompt(self.task)
        if self.into in ("id", "source", *columns_of(self._asked.prompt)):
            raise ValueError(f"into names the new column of the answers, and {self.into!r} is another one; "
                             "choose another name")
        check_fields(self.fields)
        if self.samples < 1 or (self.samples > 1
                                and not (self._options().get("temperature") or self.temperature)):
            raise ValueError("samples must be 1 or more, and several want a temperature above 0, or all "
                             "answers are the same")
        if self.max_chars is not None and self.max_chars < 1:
            raise ValueError(f"max_chars must be 1 or more, got {self.max_chars}")

    def parameters(self) -> dict[str, Any]:
        """With the text of the prompt, so that an edit of it is one of the step."""
        asked = self._asked
        words = [asked.prompt, asked.system, asked.form, asked.announced, dict(asked.options)]
        return super().parameters() | {"task": None, "asked": words}

    def contract(self) -> Contract:
        adds: dict[str, pa.DataType] = {self.into: pa.string(), f"{self.into}_tokens_in": pa.int32(),
                                        f"{self.into}_tokens": pa.int32(),
                                        f"{self.into}_finish_reason": pa.string()}
        if self._asked.form == "score":
            adds[f"{self.into}_score"] = pa.float32()
        if self.samples > 1:
            adds |= {"sample": pa.int32(), "parent": pa.string()}
        return Contract(needs=dict.fromkeys(columns_of(self._asked.prompt)), adds=adds | columns(self.fields))

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        read, made = counts.extra.get("tokens_in", 0), counts.extra.get("tokens_out", 0)
        cost = self.cost(read, made)
        if read or made:
            yield Line(f"{count(read)} tokens asked, {count(made)} answered"
                       + (f", costs {cost:,.2f}" if cost else ""))

    def process(self, batch: TextBatch) -> Outputs:
        if self.samples > 1:
            batch = batch.explode([self.samples] * len(batch))
            batch = batch.with_columns({"sample": pa.array(np.arange(len(batch)) % self.samples, pa.int32())})
        values = {name: batch.column(name) for name in columns_of(self._asked.prompt)}
        rows = [{name: self._short(column[row]) for name, column in values.items()}
                for row in range(len(batch))]
        answers = self.each(self._answer, ((row, number % self.samples) for number, row in enumerate(rows)))
        good = [number for number, one in enumerate(answers) if isinstance(one, dict)]
        bad = [number for number, one in enumerate(answers) if isinstance(one, str)]
        added = {name: pa.array([answers[number].get(name) for number in good], kind)
                 for name, kind in self.contract().adds.items() if name not in ("sample", "parent")}
        ports = {"out": batch.take(good).with_columns(added)} if good or not bad else {}
        if bad:
            ports["failed"] = batch.take(bad).with_error([answers[number] for number in bad])
        tokens = {name: sum(answers[number].get(f"{self.into}_{key}") or 0 for number in good)
                  for name, key in (("tokens_in", "tokens_in"), ("tokens_out", "tokens"))}
        return Outputs(ports, counts=tokens)

    def _short(self, value: Any) -> Any:
        return value[:self.max_chars] if isinstance(value, str) else value

    def _options(self) -> dict[str, Any]:
        return {**self._asked.options, **self.options}

    def _answer(self, row: Mapping[str, Any], sample: int) -> dict[str, Any] | str:
        """The columns of a record, or why there are none; no columns where everything in the prompt is null.
        Called in a thread."""
        if row and all(value is None for value in row.values()):
            return {}
        more = dict(self._asked.options)
        if self.fields:
            more["response_format"] = response_format(self.fields)
        if sample and self.seed is not None:
            more["seed"] = self.seed + sample
        reply = self.ask(filled(self._asked.prompt, row), self._asked.system, **more)
        return self._taken(reply) if isinstance(reply, Reply) else reply

    def _taken(self, reply: Reply) -> dict[str, Any] | str:
        try:
            if self.fields:
                made = parsed(reply.text, self.fields) | {self.into: reply.text.strip()}
            else:
                text, score = FORMS[self._asked.form](reply.text, self._asked.announced)
                made = {self.into: text, f"{self.into}_score": score}
        except Unfit as error:
            return str(error) + (" (cut off at max_tokens)" if reply.finish_reason == "length" else "")
        return made | {f"{self.into}_tokens_in": reply.tokens_in, f"{self.into}_tokens": reply.tokens,
                       f"{self.into}_finish_reason": reply.finish_reason}
