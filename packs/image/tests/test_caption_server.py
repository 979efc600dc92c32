"""`image.caption_server` against a server in this process that speaks chat completions."""

from __future__ import annotations

import base64
import json
import socket
import threading

import pyarrow as pa
import pytest
from curator_image.caption_server import CaptionServer, media_type
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import CuratorError, RunStopped, StageError
from curator.api.tasks import ImageBatch
from curator.front import from_source
from curator.models.prompts import columns_of
from curator.stages import Jsonl, Map, ToJsonl
from curator.testing import check_stage, run_stage
from packs.image.tests.chat_server import Model, caption_for, completion

JPEG, PNG = b"\xff\xd8\xff\xe0 a jpeg", b"\x89PNG\r\n\x1a\n a png"
WEBP, GIF, TIFF = b"RIFF\x10\x00\x00\x00WEBPVP8 ", b"GIF89a a gif", b"II*\x00 a tiff"


@pytest.fixture
def model():
    model = Model()
    yield model
    model.close()


def images(*values, **columns) -> ImageBatch:
    return ImageBatch(rows=pa.table({"id": [f"r{i}" for i in range(len(values))], "source": ["s"] * len(values),
                                     "bytes": pa.array(values, pa.binary()), **columns}))


def stage(model, **parameters) -> CaptionServer:
    return CaptionServer(**{"url": model.url, "model": "tiny", "prompt": "What is it?", "backoff_s": 0.0, **parameters})


def error_of(working, *values) -> str:
    return run_stage(working, images(*(values or [JPEG])))["failed"].rows["error"][0].as_py()


# -- what is asked and answered -----------------------------------------------------------------------------------


def test_it_keeps_the_rules_of_stages(model):
    check_stage(stage(model, prompt="{alt}?"), images(JPEG, PNG, None, TIFF, GIF, alt=["a", "b", "c", "d", None]))


def test_an_image_gets_a_caption(model):
    out = run_stage(stage(model), images(JPEG, None, PNG))["out"].rows
    assert out["caption"].to_pylist() == ["What is it? -> a jpeg", None, "What is it? ->  a png"]
    assert out["caption_tokens"].to_pylist() == [7, None, 7]
    assert out["caption_finish_reason"].to_pylist() == ["stop", None, "stop"]
    assert model.paths == ["/v1/chat/completions"] * 2


def test_the_question_says_all_that_was_set(model):
    run_stage(stage(model, system="Be brief.", max_tokens=9, temperature=0.5, seed=3, options={"top_p": 0.9}), images(WEBP))
    assert model.questions == [{
        "model": "tiny", "max_tokens": 9, "temperature": 0.5, "seed": 3, "top_p": 0.9,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/webp;base64," + base64.b64encode(WEBP).decode()}},
            {"type": "text", "text": "What is it?"}]}]}]
    run_stage(stage(model, options={"max_tokens": None, "max_completion_tokens": 5}, seed=None), images(WEBP))
    assert model.questions[1].keys() == {"model", "messages", "temperature", "max_completion_tokens"}


def test_the_prompt_may_hold_columns(model):
    working = stage(model, prompt='{alt} of {n}, as {{"JSON"}}', into="answer")
    assert working.contract().needs == {"bytes": pa.binary(), "alt": None, "n": None}
    out = run_stage(working, images(JPEG, JPEG, alt=["a {dog}", None], n=[1, 2]))["out"].rows
    assert out["answer"].to_pylist() == ['a {dog} of 1, as {"JSON"} -> a jpeg', 'of 2, as {"JSON"} -> a jpeg']


def test_a_null_is_nothing_however_it_is_to_be_written(model):
    out = run_stage(stage(model, prompt="{score:.1f}?"), images(JPEG, JPEG, score=[0.25, None]))["out"].rows
    assert out["caption"].to_pylist() == ["0.2? -> a jpeg", "? -> a jpeg"]


@pytest.mark.parametrize("prompt", ["{", "}", "{}", "{0}", "{a.b}", "{a[0]}", '{"a": 1}', "{a:{b}}", "{a!r}"])
def test_other_braces_are_refused(prompt):
    with pytest.raises(ValueError, match="braces"):
        CaptionServer(url="http://localhost/v1", model="m", prompt=prompt)


@given(st.lists(st.sampled_from(["{a}", "{b_1}", "{{", "}}", "x "])))
def test_columns_of_a_prompt(pieces):
    assert set(columns_of("".join(pieces))) == {piece[1:-1] for piece in pieces if piece.startswith(("{a", "{b"))}


def test_a_caption_that_was_cut_off_says_so_and_a_server_may_count_nothing(model):
    model.answer = lambda question: completion("A long", reason="length", tokens=None)
    row = run_stage(stage(model), images(JPEG))["out"].rows.to_pylist()[0]
    assert (row["caption"], row["caption_finish_reason"], row["caption_tokens"]) == ("A long", "length", None)


def test_so_many_questions_at_a_time(model):
    together = threading.Barrier(4, timeout=60)  # four must meet, or none is answered
    answer = model.answer
    model.answer = lambda question: (together.wait(), answer(question))[1]
    assert len(run_stage(stage(model, concurrency=4), images(*[JPEG] * 12))["out"]) == 12


def test_types_of_images():
    assert [media_type(image) for image in (JPEG, PNG, WEBP, GIF, TIFF, b"")] == [
        "image/jpeg", "image/png", "image/webp", "image/gif", None, None]


# -- rows that fail -----------------------------------------------------------------------------------------------


def test_what_a_server_would_not_take_is_not_sent(model):
    assert "image.encode" in error_of(stage(model), TIFF)
    assert "100 bytes are more than max_bytes" in error_of(stage(model, max_bytes=99), JPEG.ljust(100))
    assert model.questions == []


@pytest.mark.parametrize(("answer", "said"), [
    ((400, {"error": {"message": "image is broken"}}), "image is broken"),
    ((400, {"object": "error", "message": "too many tokens"}), "too many tokens"),
    ((422, {"detail": [{"loc": ["body"]}]}), "HTTP 422"), ((413, b"<html>Too Large</html>"), "Too Large"),
    ((200, b"<html>"), "no chat completion"), ((200, {"choices": []}), "no chat completion"),
    ((200, b"null"), "no chat completion"),
    (completion(None, refusal="I cannot."), "the model declined: I cannot."),
    (completion(None, reason="content_filter"), "content_filter")])
def test_a_question_that_is_refused_fails_alone_and_is_asked_once(model, answer, said):
    ordinary = model.answer
    model.answer = lambda question: answer if caption_for(question).endswith("a jpeg") else ordinary(question)
    found = run_stage(stage(model, concurrency=1), images(JPEG, PNG))
    assert said in found["failed"].rows["error"][0].as_py()
    assert found["out"].rows["id"].to_pylist() == ["r1"]
    assert len(model.questions) == 2


@pytest.mark.parametrize(("trouble", "said"), [((500, b"CUDA error"), "HTTP 500"), (None, "the server broke off")])
def test_trouble_with_one_question_is_tried_again_and_then_fails(model, trouble, said):
    model.answer = lambda question: trouble
    assert said in error_of(stage(model, retries=2))
    assert len(model.questions) == 3


def test_a_question_that_takes_too_long_fails_and_is_not_asked_again(model):
    model.answer = lambda question: model.released.wait() and None
    assert error_of(stage(model, answer_timeout_s=0.1)) == "the server is silent for too long"
    assert len(model.questions) == 1


# -- a server that is out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_gets_time(model, status):
    answer = model.answer
    model.answer = lambda question: answer(question) if len(model.questions) > 3 else (status, b"busy")
    model.extra = {"Retry-After": "0"}
    assert len(run_stage(stage(model), images(JPEG))["out"]) == 1
    assert len(model.questions) == 4


def test_a_server_that_is_out_is_no_fault_of_the_rows(model):
    model.answer = lambda question: (503, b"loading")
    with pytest.raises(StageError, match=r"HTTP 503 .* loading.*the same command goes on"):
        run_stage(stage(model, retries=1), images(JPEG, PNG, JPEG))


def test_a_pause_that_is_too_long_is_not_waited_for(model):
    model.answer, model.extra = lambda question: (429, b"quota"), {"Retry-After": "86400"}
    with pytest.raises(StageError, match="quota"):
        run_stage(stage(model), images(JPEG))


def test_nobody_there():
    with socket.socket() as bound:  # bound, and not listening: nobody else can take the port
        bound.bind(("127.0.0.1", 0))
        working = CaptionServer(url=f"http://127.0.0.1:{bound.getsockname()[1]}/v1", model="m", backoff_s=0.0)
        with pytest.raises(StageError, match=r"no connection .* refused"):
            run_stage(working, images(JPEG))


@pytest.mark.parametrize("status", [307, 401, 402, 403, 404])
def test_a_wrong_address_model_or_key_stops_at_once(model, status):
    model.answer, model.extra = lambda question: (status, {"error": {"message": "no such model"}}), {"Location": "http://x.invalid/"}
    with pytest.raises(StageError, match=f"HTTP {status} .*no such model"):
        run_stage(stage(model, concurrency=1), images(JPEG))
    assert len(model.questions) == 1


def test_who_was_let_in_is_refused_for_the_question(model):
    ordinary = model.answer
    model.answer = lambda question: ordinary(question) if caption_for(question).endswith("a png") else (403, b"flagged")
    found = run_stage(stage(model, concurrency=1), images(PNG, JPEG, PNG))
    assert found["failed"].rows["id"].to_pylist() == ["r1"]
    assert found["out"].rows["id"].to_pylist() == ["r0", "r2"]


def test_an_outage_stops_the_run_and_the_same_run_goes_on(model, tmp_path):
    lines = [json.dumps({"id": str(i), "n": i}) for i in range(5)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    working = stage(model, prompt="Number {n}", retries=0, concurrency=1)
    pipeline = (from_source(Jsonl(path=str(tmp_path / "in.jsonl")))
                >> Map(columns={"bytes": "'\\xFF\\xD8\\xFF'::BLOB"}) >> working >> ToJsonl(path=str(tmp_path / "out")))
    answer = model.answer
    model.answer = lambda question: answer(question) if len(model.questions) < 3 else (503, b"gone")
    with pytest.raises(RunStopped, match="gone"):
        pipeline.run(workers=0)
    model.answer = answer
    records = pipeline.run(workers=0).stats["records"]
    assert (records["in"], records["written"], records["failed"]) == (5, 5, 0)


# -- keys ---------------------------------------------------------------------------------------------------------


def test_the_key_comes_from_the_environment_and_stays_there(model, monkeypatch):
    monkeypatch.setenv("CAPTION_KEY", "secret-123")
    working = stage(model, api_key_env="CAPTION_KEY")
    run_stage(working, images(JPEG))
    assert model.headers[0]["Authorization"] == "Bearer secret-123"
    model.answer = lambda question: (400, {"error": {"message": "the key secret-123 may not do this"}})
    assert "the key *** may not do this" in error_of(working)
    assert working.fingerprint() == stage(model).fingerprint()


def test_a_missing_key_is_told_before_any_work(model, monkeypatch):
    monkeypatch.delenv("CAPTION_KEY", raising=False)
    with pytest.raises(CuratorError, match="CAPTION_KEY"):
        run_stage(stage(model, api_key_env="CAPTION_KEY"), images(JPEG))


@pytest.mark.parametrize(("parameters", "said"), [
    ({"url": "localhost:8000"}, "url"), ({"url": "http://me:pw@host/v1"}, "api_key_env"), ({"model": " "}, "model"),
    ({"max_tokens": 0}, "max_tokens"), ({"concurrency": 0}, "concurrency"), ({"answer_timeout_s": 0}, "answer_timeout_s"),
    ({"retries": -1}, "retries"), ({"into": "bytes"}, "into")])
def test_nonsense_is_refused(parameters, said):
    with pytest.raises(ValueError, match=said):
        CaptionServer(**{"url": "http://localhost:8000/v1", "model": "m", **parameters})
