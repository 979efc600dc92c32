"""The recipe with models, run as a user runs it, on a film made here and small random models of the real architectures."""

from __future__ import annotations

import io
import tarfile
from itertools import chain

import av
import numpy as np
import pytest

from packs.video.tests.films import film, moving, sine
from packs.video.tests.test_video_recipes import FPS, run, table
from packs.video.tests.tiny_encoders import save_xclip

CLIPS = 3
RULES = {"nsfw_rule.nsfw": "nsfw_score > 1", "aesthetic_rule.plain": "aesthetic_mean IS NULL",  # chance models know no good clips
         "caption_rule.cut_off": "caption_tokens < 9", "caption_rule.short": "length(caption) < 2", "caption_rule.loop": "FALSE"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """What to set in the recipe so that it takes models of a few thousand random weights."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    from packs.image.tests.tiny_captioners import qwen
    from packs.image.tests.tiny_models import save_clip, save_vit

    place = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    save_file(torch.nn.Linear(24, 1).state_dict(), place / "head.safetensors")
    values = {"looks.steps.image.embed.model": save_clip(place / "clip"), "looks.steps.image.aesthetic.weights": place / "head.safetensors",
              "looks.steps.image.nsfw.model": save_vit(place / "vit", ("normal", "nsfw")), "video.caption.model": qwen(place / "qwen"),
              "video.caption.max_new_tokens": 9, "video.text_match.model": save_xclip(place / "xclip"), **RULES}
    return [word for name, value in values.items() for word in ("--set", f"steps.{name}={value}")]


@pytest.mark.slow
def test_films_become_clips_with_scores_captions_and_tiers(models, tmp_path):
    films, out = tmp_path / "films", tmp_path / "out"
    films.mkdir()
    shots = chain(moving(1, 3), moving(2, 3), moving(4, 13))
    (films / "shots.mp4").write_bytes(film(shots, FPS, sound=sine(300, 19), options={"crf": "4"}))
    stats = run(out, "video/curate", "--set", f"read.path={films}", *models)
    rows = sorted(table(out / "data"), key=lambda row: row["start_s"])
    assert [(row["start_s"], row["end_s"]) for row in rows] == [pytest.approx(span, abs=.05) for span in ((0, 3), (3, 6), (6, 19))]
    assert {name: stats["records"][name] for name in ("written", "dropped", "duplicate", "failed")} == {
        "written": CLIPS, "dropped": 0, "duplicate": 0, "failed": 0}
    clips = {}
    for path in (out / "data").glob("*.tar"):
        with tarfile.open(path) as archive:
            clips |= {member.name: archive.extractfile(member).read() for member in archive}
    for row in rows:
        assert all(np.isfinite(row[name]) for name in ("nsfw_score", "aesthetic_mean", "aesthetic_min"))
        assert row["aesthetic_min"] <= row["aesthetic_mean"]
        assert np.linalg.norm(row["embedding"]) == pytest.approx(1, rel=1e-4)
        assert -1 <= row["text_match"] <= 1
        assert (row["tier"], row["caption_finish_reason"]) == ("low", "length")
        assert clips[f"{row['key']}.txt"].decode() == row["caption"]
        with av.open(io.BytesIO(clips[f"{row['key']}.mp4"])) as clip:
            assert len(list(clip.decode(video=0))) == pytest.approx(FPS * row["duration"], abs=1)
    assert [[(round(w["start"]), round(w["end"])) for w in row["captions"]] for row in rows] == [[(0, 3)], [(3, 6)], [(6, 19)]]
    assert len({row["caption"] for row in rows}) == CLIPS, "what is said depends on the clip"
