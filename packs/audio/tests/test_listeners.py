"""CLAP and taggers with tiny random models, held against transformers' own answers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from curator_audio import Embed, Tag
from curator_audio.sound.waves import pieces_of

from curator import Context, CuratorError
from curator.testing import check_stage
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.tiny_listeners import CLASSES, clap, tagger

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listeners")
    return {"clap": clap(folder / "clap"), "tagger": tagger(folder / "tagger")}


def answers(stage, given):
    stage.setup(Context())
    return stage.process(given).rows.to_pylist()


def test_sound_and_captions_are_embedded_as_transformers_does(models):
    import torch
    import transformers

    given = recordings(sine(400, 1, 48_000), None, noise(2, 48_000), noise(1, 48_000), rate=48_000,
                       caption=pa.array(["a tone", "nothing", None, "hiss"], pa.string()))
    found = answers(Embed(model=models["clap"], caption="caption"), given)
    model = transformers.ClapModel.from_pretrained(models["clap"]).eval()
    extractor = transformers.ClapFeatureExtractor.from_pretrained(models["clap"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(models["clap"])
    for row, samples in zip(found, given.samples, strict=True):
        if samples is None:
            assert (row["embedding"], row["alignment"]) == (None, None)
            continue
        with torch.inference_mode():
            sound = extractor(samples[0], sampling_rate=48_000, return_tensors="pt")
            made = model(**sound, **tokenizer(row["caption"] or "x", return_tensors="pt"))
        assert row["embedding"] == pytest.approx(made.audio_embeds[0].tolist(), abs=1e-4)
        if row["caption"] is None:
            assert row["alignment"] is None
        else:
            assert row["alignment"] == pytest.approx(float(made.audio_embeds[0] @ made.text_embeds[0]), abs=1e-4)


def test_what_is_heard_of_a_long_record_is_always_the_same(models):
    long = np.concatenate([sine(300, 10, 48_000), noise(10, 48_000), sine(900, 10, 48_000)])
    heard = {crop: answers(Embed(model=models["clap"], crop=crop), recordings(long, rate=48_000))[0]["embedding"]
             for crop in ("first", "middle", "all")}
    for crop, part in (("first", slice(0, 480_000)), ("middle", slice(480_000, 960_000))):
        alone, = answers(Embed(model=models["clap"]), recordings(long[part], rate=48_000))
        assert heard[crop] == pytest.approx(alone["embedding"], abs=1e-5)
    assert np.linalg.norm(heard["all"]) == pytest.approx(1, abs=1e-5)


def test_pieces_cover_a_wave():
    wave = np.arange(25)
    assert [piece.tolist() for piece in pieces_of(wave, 10, "all")] == [list(range(10)), list(range(7, 17)), list(range(15, 25))]
    assert pieces_of(wave, 10, "middle")[0].tolist() == list(range(7, 17))
    assert len(pieces_of(wave, 25, "first")) == 1


def test_tags_are_those_of_transformers(models):
    import torch
    import transformers

    given = recordings(sine(400, .5), noise(1), None)
    found = answers(Tag(model=models["tagger"], labels={"Music": "music", "Rain": "rain"}), given)
    best = answers(Tag(model=models["tagger"]), given)
    model = transformers.ASTForAudioClassification.from_pretrained(models["tagger"]).eval()
    extractor = transformers.ASTFeatureExtractor.from_pretrained(models["tagger"])
    for row, one, samples in zip(found, best, given.samples, strict=True):
        if samples is None:
            assert (row["music"], one["tag"], one["tag_score"]) == (None, None, None)
            continue
        with torch.inference_mode():
            chances = model(**extractor(samples[0], sampling_rate=16_000, return_tensors="pt")).logits[0].sigmoid().tolist()
        assert (row["music"], row["rain"]) == (pytest.approx(chances[1], abs=1e-5), pytest.approx(chances[2], abs=1e-5))
        assert one["tag"] == CLASSES[int(np.argmax(chances))]


def test_windows_are_averaged_or_the_loudest_counts(models):
    both = np.concatenate([sine(400, 1), noise(1)])
    stage = Tag(model=models["tagger"], labels={"Music": "m"})
    apart = [answers(stage, recordings(part))[0]["m"] for part in (both[:16_000], both[16_000:])]
    for pool, wanted in (("mean", np.mean(apart)), ("max", max(apart))):
        found, = answers(Tag(model=models["tagger"], labels={"Music": "m"}, window_s=1, pool=pool), recordings(both))
        assert found["m"] == pytest.approx(wanted, abs=1e-5)


def test_what_cannot_be_is_refused(models):
    for make, message in ((lambda: Embed(model="m", crop="last"), "crop"), (lambda: Tag(model="m", pool="sum"), "pool"),
                          (lambda: Tag(model="m", labels={}), "no class"),
                          (lambda: Tag(model="m", labels={"a": "x", "b": "x"}), "one column"),
                          (lambda: Tag(model="m", window_s=0), "window_s")):
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(CuratorError, match=r"no class 'Wind'; it has Speech, Music, Rain"):
        Tag(model=models["tagger"], labels={"Wind": "wind"}).setup(Context())


@pytest.mark.slow  # torch answers as often as the kit asks
def test_the_stages_keep_the_rules_of_a_pack(models):
    given = recordings(noise(.5), None, sine(300, .4), caption=pa.array(["a", "b", None], pa.string()))
    check_stage(Embed(model=models["clap"], caption="caption"), given, tolerance=1e-2)
    check_stage(Tag(model=models["tagger"]), given, tolerance=1e-2)
