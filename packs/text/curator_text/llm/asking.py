"""What the stages share that talk with a language model, behind a server or in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from curator.api.counts import Counts
from curator.api.findings import Finding, Line
from curator.api.format import count
from curator.api.resources import Resources
from curator.api.stage import Context, setting
from curator.models.answers import Answers
from curator.models.chat import Reply
from curator.models.loading import MODELS, need_models
from curator.models.server import ServerStage
from curator_text.llm.forms import Unfit

Question = dict[str, Any]  # the body of a chat completion
# What becomes of a record: it gives questions, is sent a reply to each (a text: why there is none), and so on
# until it returns.
Talk = Generator[list[Question], list[Reply | str], Any]
IN_PROCESS = frozenset({"model", "messages", "max_tokens", "temperature", "top_p", "top_k", "min_p",
                        "repetition_penalty", "seed", "chat_template_kwargs", "response_format"})
AGAIN = 0.5  # the least temperature of a further attempt


@dataclass(kw_only=True)
class Asking(ServerStage):
    """A language model behind a server, or without `url` in this process. A subclass says what `attempts` is:
    so many times a question is asked until its answer is what was asked for, each time with another seed and
    a temperature of at least 0.5."""

    url: str | None = setting(default=None)  # type: ignore[assignment]  # None: in this process, where no server is asked
    attempts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "attempts")
        if self.attempts > 1 and self.cache and {**self.options}.get("seed", self.seed) is None:
            raise ValueError("attempts want a seed where answers are kept: without one the question is the "
                             "same again, and so is the answer that was kept")

    def check_url(self) -> None:
        if self.url is not None:
            super().check_url()
            return
        self.resources, self.batch_size, self.requires = Resources(cpus=1, gpus=1), 256, MODELS
        wrong = [name for name in ("api_key_env", "requests_per_minute", "tokens_per_minute", "max_cost",
                                   "budget_tokens") if getattr(self, name) is not None]
        if wrong:
            raise ValueError(f"{wrong[0]} is for a server: name its url, or leave {wrong[0]} out for a model "
                             "in this process")
        if self.asked_options().get("max_tokens", self.max_tokens) is None:
            raise ValueError("options: a model in this process wants max_tokens")
        if strange := set(self.asked_options()) - IN_PROCESS:
            raise ValueError(f"options: a model in this process does not know {', '.join(sorted(strange))}; "
                             f"it knows {', '.join(sorted(IN_PROCESS - {'model', 'messages'}))}")

    def asked_options(self) -> Mapping[str, Any]:
        """The fields of the requests beyond those of every question."""
        return self.options

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"in_process": self.url is None}

    def setup(self, ctx: Context) -> None:
        if self.url is not None:
            super().setup(ctx)
            return
        need_models()
        from curator_text.llm.speaker import Speaker

        self._speaker = Speaker(self.model, ctx)
        self._answers = Answers(self.cache, "in process") if self.cache else None

    def close(self) -> None:
        if self.url is not None:
            super().close()
        elif self._answers is not None:
            self._answers.close()

    def talk_all(self, talks: Sequence[Talk]) -> list[Any]:
        """What each talk returns, in their order.

        Raises:
            StageError: the server is out.
        """
        return self._talk_here(talks) if self.url is None else self._talk_by_server(talks)

    def _talk_by_server(self, talks: Sequence[Talk]) -> list[Any]:
        """Each talk goes on as soon as its own answers are there."""
        ended: list[Any] = [None] * len(talks)
        heard: SimpleQueue[Future[Reply | str]] = SimpleQueue()
        asked: list[Future[Reply | str]] = []
        place: dict[Future[Reply | str], tuple[int, int]] = {}
        replies: dict[int, list[Any]] = {}
        missing: Counter[int] = Counter()

        def go_on(number: int, answers: list[Any] | None) -> None:
            try:
                while not (questions := next(talks[number]) if answers is None else talks[number].send(answers)):
                    answers = []
            except StopIteration as end:
                ended[number] = end.value
                return
            replies[number], missing[number] = [None] * len(questions), len(questions)
            for at, question in enumerate(questions):
                future = self._pool.submit(self.ask_question, question)
                place[future] = number, at
                asked.append(future)
                future.add_done_callback(heard.put)

        with self.out_is_nobodys_fault(asked):
            for number in range(len(talks)):
                go_on(number, None)
            while place:
                future = heard.get()
                number, at = place.pop(future)
                replies[number][at] = future.result()
                missing[number] -= 1
                if not missing[number]:
                    go_on(number, replies.pop(number))
        return ended

    def _talk_here(self, talks: Sequence[Talk]) -> list[Any]:
        """All talks go on together, so that the model has many questions at a time."""
        ended: list[Any] = [None] * len(talks)
        answers: dict[int, list[Any] | None] = dict.fromkeys(range(len(talks)))
        while answers:
            asked: dict[int, list[Question]] = {}
            for number, given in answers.items():
                try:
                    asked[number] = next(talks[number]) if given is None else talks[number].send(given)
                except StopIteration as end:
                    ended[number] = end.value
            told = iter(self._spoken([question for questions in asked.values() for question in questions]))
            answers = {number: [next(told) for _ in questions] for number, questions in asked.items()}
        return ended

    def _spoken(self, questions: Sequence[Question]) -> list[Reply | str]:
        kept = [None if self._answers is None else self._answers.get(question) for question in questions]
        known: dict[int, Reply | str] = {number: reply for number, reply in enumerate(kept) if reply is not None}
        rest = [number for number, reply in enumerate(kept) if reply is None]
        for at, reply in self._speaker.answers([questions[number] for number in rest]) if rest else ():
            known[rest[at]] = reply
            if self._answers is not None and isinstance(reply, Reply):
                self._answers.put(questions[rest[at]], reply)
        return [known[number] for number in range(len(questions))]

    def again(self, question: Question, attempt: int) -> Question:
        """A question once more: with another seed, and where the likeliest answer was no good, not that
        one."""
        changed = {"seed": question.get("seed", 0) + 1000 * attempt,
                   "temperature": max(question.get("temperature", 0.0), AGAIN)} if attempt else {}
        # some services refuse a field that was left out on purpose
        return question | {name: value for name, value in changed.items() if name in question}

    def fitting(self, questions: Sequence[Question], take: Callable[[int, Reply], Any],
                tally: Counter[str]) -> Talk:
        """A part of a talk: what `take` makes of each question's answer, or `Unfit` with why it has none,
        after all attempts. `tally` counts tokens."""
        found: list[Any] = [None] * len(questions)
        rest = list(range(len(questions)))
        for attempt in range(self.attempts):
            replies = yield [self.again(questions[number], attempt) for number in rest]
            unfit = []
            for number, reply in zip(rest, replies, strict=True):
                if isinstance(reply, str):
                    found[number] = Unfit(reply)
                    continue
                count_tokens(reply, tally)
                try:
                    found[number] = take(number, reply)
                except Unfit as error:
                    cut = " (cut off at max_tokens)" if reply.finish_reason == "length" else ""
                    found[number] = error if not cut or "cut off" in str(error) else Unfit(f"{error}{cut}")
                    unfit.append(number)
            rest = unfit
            if not rest:
                break
            tally["unfit"] += len(rest)
        return found

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        told = counts.extra
        read, made = told.get("tokens_in", 0), told.get("tokens_out", 0)
        if read or made:
            cost = self.cost(read, made)
            yield Line(f"{count(read)} tokens asked, {count(made)} answered"
                       + (f", costs {cost:,.2f}" if cost else ""))
        kept_in, kept = told.get("kept_tokens_in", 0), told.get("kept_tokens_out", 0)
        if kept_in or kept:
            yield Line(f"{count(kept_in)} tokens asked and {count(kept)} answered before, from the cache")
        for key, words in (("unfit", "answers that were not what was asked for"),
                           ("pieces_lost", "pieces of texts left out, without an answer that fits"),
                           ("lines_left", "lines left as they were, without a translation that can be right")):
            if told.get(key):
                yield Line(f"{count(told[key])} {words}")


def count_tokens(reply: Reply, tally: Counter[str]) -> None:
    """Add the tokens of an answer, those of one that was kept apart."""
    kept = "kept_" if reply.kept else ""
    tally[f"{kept}tokens_in"] += reply.tokens_in or 0
    tally[f"{kept}tokens_out"] += reply.tokens or 0
