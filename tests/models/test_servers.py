"""How fast a server is asked, and for how much: limits a minute, pauses that it asks for, budgets."""

import sqlite3
import threading
import time
from dataclasses import dataclass

import pyarrow as pa
import pytest

from curator.api.batch import Batch
from curator.api.errors import StageError
from curator.api.stage import Contract
from curator.models.answers import Answers
from curator.models.chat import Chat, Reply
from curator.models.pace import Pace
from curator.models.server import ServerStage
from curator.testing import run_stage
from packs.image.tests.chat_server import Model, completion


@dataclass(kw_only=True)
class Ask(ServerStage):
    def contract(self):
        return Contract(needs={"text"}, adds={"said": pa.string()})

    def process(self, batch):
        said = self.each(self.ask, ((text,) for text in batch.column("text")))
        return batch.with_columns({"said": pa.array([reply.text for reply in said], pa.string())})


@pytest.fixture
def model():
    made = Model()
    made.answer = lambda question: (200, completion("ok")[1] | {"usage": {"completion_tokens": 40, "prompt_tokens": 60}})
    yield made
    made.close()


@pytest.fixture
def own_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


class Clock:
    now = 1e9

    def __call__(self):
        return self.now


def sent_in_a_minute(paces, clock, tokens):
    sent, end = 0, clock.now + 60
    while clock.now < end:
        pauses = [pace.try_take(tokens) for pace in paces]
        sent += pauses.count(0)
        if 0 not in pauses:
            clock.now += min(pauses)
    return sent


@pytest.mark.parametrize(("limits", "tokens", "sent"), [((120, None), 0, 120), ((None, 6000), 100, 60), ((600, 6000), 1000, 6)],
                         ids=["requests", "tokens", "the narrower one"])
def test_all_workers_of_a_machine_keep_to_one_pace(own_files, limits, tokens, sent):
    clock = Clock()
    paces = [Pace("a server", limits, clock) for _ in range(3)]
    assert sent <= sent_in_a_minute(paces, clock, tokens) <= sent + 3  # and what may go ahead
    assert Pace("another server", limits, clock).try_take(tokens) == 0


def test_a_pace_is_corrected_by_what_an_answer_took(own_files):
    clock = Clock()
    pace = Pace("a server", (None, 6000), clock)
    assert pace.try_take(1000) == 0
    assert pace.try_take(1) == pytest.approx(9)
    pace.correct(-900)
    assert pace.try_take(1) == 0
    clock.now -= 1e6  # a clock that is set back makes nobody wait for days
    assert pace.try_take(1) <= 600


def test_a_pace_that_is_closed_writes_to_no_file(own_files):
    pace = Pace("a server", (60, 60))
    pace.close()
    with (own_files / "another").open("w+b") as another:  # has the number that is free now
        assert pace.try_take(5) == 0
        pace.correct(5)
        assert another.read() == b""


def test_nobody_waits_for_its_turn_after_the_end(own_files):
    pace, stopped = Pace("a server", (1, None)), threading.Event()
    assert pace.take(0, stopped)
    waiting = threading.Thread(target=lambda: told.append(pace.take(0, stopped)))
    told = []
    waiting.start()
    stopped.set()
    waiting.join(5)
    assert told == [False]


def rows(n):
    return Batch(pa.table({"id": [f"r{k}" for k in range(n)], "source": ["s"] * n, "text": [f"t{k}" for k in range(n)]}))


def stage(model, **parameters):
    return Ask(**({"url": model.url, "model": "m", "backoff_s": 0} | parameters))


def test_requests_a_minute(model, own_files):
    start = time.monotonic()
    ports = run_stage(stage(model, requests_per_minute=600), rows(14))
    assert len(ports["out"]) == 14
    assert time.monotonic() - start > 0.2  # ten go at once, and one in each tenth of a second after that


def test_a_pause_that_a_server_asks_of_one_question_holds_for_all(model):
    chat = Chat(model.url, key=None, connections=4, answer_timeout_s=10, retries=3, backoff_s=0)
    model.answer = lambda question: (429, {"error": "slower"}) if len(model.questions) == 1 else completion("ok")
    model.extra = {"Retry-After": "1"}
    first = threading.Thread(target=chat.ask, args=({"n": 1},))
    first.start()
    while not chat._held_until:
        time.sleep(0.01)
    start = time.monotonic()
    assert chat.ask({"n": 2}).text == "ok"
    assert time.monotonic() - start > 0.5
    first.join()
    chat.close()


@pytest.mark.parametrize(("budget", "said"), [
    ({"budget_tokens": 1000}, "budget_tokens of 1,000 is used up: 1[0-4] answers took"),
    ({"max_cost": 2.0, "price_in": 1000.0, "price_out": 3500.0}, r"max_cost of 2\.0 is used up: 1[0-4] .* 2\.\d\d in all")],
    ids=["tokens", "cost"])
def test_a_budget_ends_the_run_and_a_larger_one_goes_on_where_it_was(model, tmp_path, budget, said):
    given = {"cache": str(tmp_path / "answers"), "concurrency": 4} | budget
    with pytest.raises(StageError, match=said) as told:
        run_stage(stage(model, **given), rows(50))
    assert "With a larger one, the same command goes on from here" in str(told.value)
    asked = len(model.questions)
    assert 10 <= asked <= 14
    with pytest.raises(StageError, match="is used up"):  # the next run as well
        run_stage(stage(model, **given), rows(50))
    assert len(model.questions) == asked
    more = {name: 100 * value if name in ("budget_tokens", "max_cost") else value for name, value in given.items()}
    assert len(run_stage(stage(model, **more), rows(50))["out"]) == 50
    assert len(model.questions) == 50  # what was under way when it ended was kept


def test_an_answer_that_cannot_be_written_down_is_not_half_there(tmp_path):
    kept = Answers(str(tmp_path), "http://host/v1")
    with pytest.raises(sqlite3.Error):
        kept.put({"model": "m", "n": 1}, Reply("text", "stop", tokens=[40]))
    kept.put({"model": "m", "n": 2}, Reply("text", "stop", tokens=40))
    assert (kept.get({"model": "m", "n": 1}), kept.get({"model": "m", "n": 2}).text) == (None, "text")
    assert kept.paid("m") == (1, 0, 40)
    kept.close()


def test_a_budget_wants_a_server_that_counts(model, tmp_path):
    model.answer = lambda question: completion("ok", tokens=None)
    with pytest.raises(StageError, match="does not say how many tokens"):
        run_stage(stage(model, budget_tokens=10, cache=str(tmp_path)), rows(1))


@pytest.mark.parametrize(("options", "told"), [
    ({"requests_per_minute": 0}, "requests_per_minute must be more than 0"), ({"tokens_per_minute": -1}, "tokens_per_minute must"),
    ({"budget_tokens": 5}, "a budget wants cache"), ({"max_cost": 5, "cache": "x"}, "max_cost wants price_in")],
    ids=["requests", "tokens", "no cache", "no price"])
def test_nonsense_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        Ask(url="http://localhost/v1", model="m", **options)


def test_a_call_has_rows_for_as_many_questions_as_go_at_a_time():
    assert [Ask(url="http://localhost/v1", model="m", concurrency=n).batch_size for n in (1, 16, 256)] == [64, 64, 1024]
