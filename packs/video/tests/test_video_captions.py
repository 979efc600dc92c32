"""Captions of clips by small random models of the real architectures, and by a server in this process."""

from __future__ import annotations

import base64
import re
from functools import cache
from importlib.util import find_spec

import cv2
import numpy as np
import pyarrow as pa
import pytest
from curator_video.models.caption import Caption, parts_of
from curator_video.models.caption_server import CaptionServer
from curator_video.models.captions import loops, prompt_of
from curator_video.models.enhance import Enhance
from curator_video.models.windows import inside, windows

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.errors import CuratorError, StageError
from curator.api.findings import Line
from curator.api.stage import Context
from curator.testing import check_stage, run_stage
from packs.image.tests.chat_server import Model, completion
from packs.video.tests.clips import clips


def pictures(seed: int, count: int, height: int = 40, width: int = 56) -> dict[str, np.ndarray]:
    blocks = np.random.default_rng(seed).integers(0, 256, (count, height // 8, width // 8, 3), np.uint8)
    return {"frames": blocks.repeat(8, axis=1).repeat(8, axis=2), "timestamps": 100 + np.arange(count) / 2}


GIVEN = [pictures(1, 5), None, pictures(2, 32, 32, 32), pictures(3, 1), {"frames": np.empty((0, 8, 8, 3), np.uint8), "timestamps": []}]
ENDS = [102.5, 102.5, 116.0, None, 101.0]


def batch(**columns):
    return clips(*GIVEN, start_s=pa.array([100.0, 100.0, 100.0, None, 100.0]), end_s=pa.array(ENDS),
                 title=pa.array(["dogs", "x", None, "{a}", "y"]), **columns)


# -- windows and prompts ------------------------------------------------------------------------------------------


def test_windows_are_those_of_the_source_in_seconds():
    """NVIDIA's golden values, as numbers without a unit."""
    assert windows(0, 200, 256, 128) == [(0, 200)]
    assert windows(0, 300, 256, 128) == [(0, 300)]
    assert windows(0, 384, 256, 128) == [(0, 256), (256, 384)]
    assert windows(0, 600, 256, 128) == [(0, 256), (256, 600)]
    assert windows(0, 640, 256, 128) == [(0, 256), (256, 512), (512, 640)]
    assert windows(5, 17, 5, 1) == [(5, 10), (10, 15), (15, 17)]
    assert windows(5, 15, 5, 0) == [(5, 10), (10, 15)]


def test_frames_of_a_window_are_spread():
    times = np.arange(20) / 2
    assert inside(times, 0, 5, 16).tolist() == list(range(10))
    assert inside(times, 5, 10, 5).tolist() == [11, 13, 15, 17, 19]
    assert inside(times, 20, 30, 5).tolist() == []


def test_a_prompt_is_a_name_a_file_or_the_text(tmp_path):
    (tmp_path / "mine.txt").write_text("What is it?\n")
    assert prompt_of(str(tmp_path / "mine.txt")) == "What is it?"
    assert prompt_of("What is it?") == "What is it?"
    assert all("{times}" in prompt_of(name) for name in ("describe", "short", "camera", "driving"))
    with pytest.raises(ValueError, match="there is no 'dance'; there are camera, describe, driving, enhance, short"):
        Caption(model="any", prompt="dance")
    with pytest.raises(ValueError, match=r"gone\.txt' cannot be read"):
        Caption(model="any", prompt="gone.txt")
    assert Caption(model="any", prompt="{title}: {times}").contract().needs.keys() == {
        "title", "frames", "timestamps", "start_s", "end_s"}


def test_loops_are_found():
    assert loops("It is red. " + "The car drives on. " * 4)
    assert loops("no " * 12)
    assert loops("猫が走る。" * 4)
    assert not loops("It is very, very, very good, and the dog runs over the road to the house of the man.")
    assert not loops("")
    assert not loops("yes " * 3)


# -- a model in this process --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    pytest.importorskip("torch")
    from packs.image.tests.tiny_captioners import FAMILIES

    return cache(lambda family: FAMILIES[family](tmp_path_factory.mktemp(family)))


def test_keeps_the_rules_of_a_stage(folder_of):
    check_stage(Caption(model=folder_of("llava"), max_new_tokens=5, frames=3, system="Be brief.", prompt="{title} {times}"),
                batch().take([0, 1, 3]))


def test_a_clip_is_asked_about_in_windows(folder_of):
    stage = Caption(model=folder_of("qwen"), max_new_tokens=6, frames=4, into="alt")
    rows = run_stage(stage, batch())["out"].rows.to_pylist()
    assert [[(w["start"], w["end"]) for w in row["alts"] or ()] for row in rows] == [
        [(100, 102.5)], [], [(100, 110), (110, 116)], [(100, pytest.approx(100.001))], []]
    assert [row["alt_tokens"] for row in rows] == [6, None, 12, 6, None]
    assert [row["alt_finish_reason"] for row in rows] == ["length", None, "length", "length", None]
    assert rows[2]["alt"] == " ".join(window["text"] for window in rows[2]["alts"])
    assert rows[2]["alts"][0]["text"] != rows[2]["alts"][1]["text"]
    alone, = run_stage(stage, batch().take([0]))["out"].rows.to_pylist()
    assert alone == rows[0], "padding to longer questions of a batch changes no caption"


def test_each_frame_of_a_window_is_in_the_question(folder_of):
    from transformers import AutoTokenizer

    stage = Caption(model=folder_of("llava"), frames=3, prompt="At {times} of {seconds}, {count} of {title}")
    stage.setup(Context())
    asked = stage.windows(batch())
    made = stage._captioner.inputs([stage._of(window) for window in asked])
    texts = AutoTokenizer.from_pretrained(stage.model).batch_decode(made["input_ids"])
    assert [re.sub("(<pad>)|(<image>)", "", text) for text in texts] == [
        "<user>At 0.0, 1.0, 2.0 of 2.5, 3 of dogs</s><assistant>", "<user>At 1.5, 5.0, 8.0 of 10.0, 3 of</s><assistant>",
        "<user>At 1.0, 3.0, 5.0 of 6.0, 3 of</s><assistant>", "<user>At 0.0 of 0.0, 1 of {a}</s><assistant>"]
    assert [text.count("<image>") for text in texts] == [12, 12, 12, 4]
    assert len(made["pixel_values"]) == 10


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed, so that nothing is missing")
def test_films_want_torchvision(folder_of):
    with pytest.raises(CuratorError, match="pip install torchvision"):
        Caption(model=folder_of("qwen"), frames_as="video").setup(Context())


@pytest.mark.skipif(find_spec("torchvision") is None, reason="the part for films of transformers' processors wants torchvision")
def test_a_film_takes_half_of_the_tokens_of_its_frames(folder_of, tmp_path):
    import transformers

    from packs.image.tests.tiny_captioners import TEMPLATE, qwen

    folder = qwen(tmp_path)
    transformers.Qwen2VLVideoProcessor(min_pixels=28 * 28, max_pixels=64 * 28 * 28).save_pretrained(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    image, film = (f"<|vision_start|><|{kind}_pad|><|vision_end|>" for kind in ("image", "video"))
    words.chat_template = TEMPLATE.replace("IMAGE", image).replace("{% else %}", "{% elif part.type == 'video' %}" + film + "{% else %}")
    words.save_pretrained(folder)
    lengths = []
    for kind in ("images", "video"):
        stage = Caption(model=folder, frames_as=kind, max_new_tokens=4, frames=4)
        assert run_stage(stage, batch())["out"].rows["caption_tokens"].to_pylist() == [4, None, 8, 4, None]
        stage.setup(Context())
        made = stage._captioner.inputs([stage._of(window) for window in stage.windows(batch())[:1]])
        lengths.append(sum((made["input_ids"] == token).sum().item() for token in (3, 4)))
    assert lengths[1] * 2 == lengths[0]


def test_a_call_of_the_model_has_so_many_pixels():
    stage = Caption(model="any", window=5, remainder=2)
    wide = clips(*[{"frames": np.zeros((20, 512, 1024, 3), np.uint8), "timestamps": np.arange(20) / 2}] * 3,
                 start_s=[0.0] * 3, end_s=[10.0] * 3)
    asked = stage.windows(wide)
    assert [len(part) for part in parts_of(asked)] == [3, 3]
    assert [window.row for part in parts_of(asked) for window in part] == [0, 0, 1, 1, 2, 2]
    assert parts_of([]) == []


# -- a server -----------------------------------------------------------------------------------------------------


@pytest.fixture
def model():
    model = Model()
    model.answer = lambda question: completion(f" {texts_of(question)[-1]} ")
    yield model
    model.close()


def texts_of(question) -> list[str]:
    content = question["messages"][-1]["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content if part["type"] == "text"]


def pictures_of(question) -> list[np.ndarray]:
    urls = [part["image_url"]["url"] for part in question["messages"][-1]["content"] if part["type"] == "image_url"]
    assert all(url.startswith("data:image/jpeg;base64,") for url in urls)
    return [cv2.imdecode(np.frombuffer(base64.b64decode(url.partition(",")[2]), np.uint8), cv2.IMREAD_COLOR)[..., ::-1] for url in urls]


def served(model, **parameters) -> CaptionServer:
    return CaptionServer(**{"url": model.url, "model": "tiny", "prompt": "{title} {times}", "backoff_s": 0.0, **parameters})


def test_a_server_is_sent_the_frames_of_each_window(model):
    check_stage(served(model, frames=3), batch())
    model.questions.clear()
    rows = run_stage(served(model, frames=3, system="Be brief.", quality=95), batch())["out"].rows.to_pylist()
    assert [row["caption"] for row in rows] == ["dogs 0.0, 1.0, 2.0", None, "1.5, 5.0, 8.0 1.0, 3.0, 5.0", "{a} 0.0", None]
    assert [row["caption_tokens"] for row in rows] == [7, None, 14, 7, None]
    assert [row["caption_finish_reason"] for row in rows] == ["stop", None, "stop", "stop", None]
    first, = (question for question in model.questions if texts_of(question) == ["dogs 0.0, 1.0, 2.0"])
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}
    assert np.abs(np.stack(pictures_of(first)).astype(int) - GIVEN[0]["frames"][[0, 2, 4]]).mean() < 12


def test_empty_answers_and_loops_are_told(model):
    model.answer = lambda question: completion("" if "dogs" in texts_of(question)[0] else "So it is. " * 9)
    rows = run_stage(served(model), batch())["out"].rows.to_pylist()
    assert [row["caption_finish_reason"] for row in rows] == ["empty", None, "loop", "loop", None]
    assert rows[0]["caption"] is None
    assert rows[0]["captions"] == [{"start": 100.0, "end": 102.5, "text": None, "finish_reason": "empty"}]


def test_the_funnel_counts_them_and_many_are_an_alarm():
    stage = Caption(model="any", into="alt")
    few = {"stop": {"out": 95}, "length": {"out": 3}, "loop": {"out": 2}, "null": {"out": 9}}
    assert list(stage.findings("alt", Counts(by_value={"alt_finish_reason": few}))) == [Line("captions: 3 cut off, 2 in a loop")]
    _, alarm = stage.findings("alt", Counts(by_value={"alt_finish_reason": few | {"empty": {"out": 11}}}))
    assert alarm.text.startswith("Of 111 captions of stage alt 13 are empty or end in a loop")
    assert stage.count_by == ("alt_finish_reason",)


def test_a_clip_with_a_question_that_is_refused_fails_alone(model):
    ordinary = model.answer
    refused = 400, {"error": {"message": "too hot"}}
    model.answer = lambda question: refused if texts_of(question) == ["1.0, 3.0, 5.0"] else ordinary(question)
    found = run_stage(served(model, frames=3), batch())
    assert found["failed"].rows["id"].to_pylist() == ["2"]
    assert "too hot" in found["failed"].rows["error"][0].as_py()
    assert found["out"].rows["id"].to_pylist() == ["0", "1", "3", "4"]


def test_a_server_that_is_out_is_no_fault_of_the_clips(model):
    model.answer = lambda question: (503, b"loading")
    with pytest.raises(StageError, match=r"caption_server.*loading.*the same command goes on"):
        run_stage(served(model, retries=0), batch())


def test_captions_are_made_better_by_a_language_model(model):
    given = Batch(rows=pa.table({"id": ["a", "b", "c"], "source": ["s"] * 3, "caption": ["One. One.", None, "Bad"],
                                 "title": ["T", "U", None]}))
    model.answer = lambda question: (400, b"no") if "Bad" in texts_of(question)[0] else completion(texts_of(question)[0].upper())
    stage = Enhance(url=model.url, model="tiny", prompt="{caption} {title}!", backoff_s=0.0)
    check_stage(stage, given)
    found = run_stage(stage, given)
    assert found["out"].rows["caption_enhanced"].to_pylist() == ["ONE. ONE. T!", None]
    assert found["out"].rows["caption_enhanced_finish_reason"].to_pylist() == ["stop", None]
    assert found["failed"].rows["id"].to_pylist() == ["c"]
    assert "{caption}" in Enhance(url=model.url, model="tiny").prompt
    with pytest.raises(ValueError, match="names no column"):
        Enhance(url=model.url, model="tiny", prompt="Write.")


@pytest.mark.parametrize(("fields", "message"), [
    ({"model": ""}, "model is empty"), ({"into": "frames"}, "into names the new column"), ({"window": 0}, "window is seconds"),
    ({"remainder": 11}, "remainder 0 to window"), ({"frames": 0}, "frames must be 1"), ({"max_new_tokens": 0}, "max_new_tokens"),
    ({"prompt": "{0}"}, "no column"), ({"frames_as": "film"}, "images or video"), ({"repetition_penalty": 0}, "repetition_penalty")])
def test_a_wrong_parameter_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Caption(**{"model": "any", **fields})


def test_a_url_with_a_password_is_refused():
    with pytest.raises(ValueError, match="api_key_env"):
        CaptionServer(url="http://me:secret@host/v1", model="m")
