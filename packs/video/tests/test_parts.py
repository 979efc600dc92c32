"""Films in parts: the shots, boundaries and clips of all parts are those of the film that was not divided."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from curator_video.once.clips import Clips
from curator_video.read import interlace
from curator_video.read.probe import Probe
from curator_video.shots import shots as module
from curator_video.shots.boundaries import shots_of
from curator_video.shots.parts import Parts
from curator_video.shots.shots import Shots
from curator_video.shots.spans import Spans

from curator import Batch
from curator.api.errors import ContractError
from curator.cli.main import main
from curator.testing import check_stage, run_stage
from packs.video.tests.films import film, moving, sine
from packs.video.tests.test_video_recipes import members, table

FPS = 10


def scene(rng, count):
    """A camera over noise of its own, [count, 36, 64], float."""
    wide = np.kron(rng.uniform(40, 210, (12, 16 + count // 16)), np.ones((4, 8)))[:36]
    speed = rng.integers(0, 3) / 4
    return np.stack([wide[:, (x := int(speed * k) % (wide.shape[1] - 64)):x + 64] for k in range(count)])


def drawn(seed, seconds):
    """Luma of a film with cuts, dissolves, fades, long blanks, flashes and bars that come and go, uint8 [T, 36, 64]."""
    rng = np.random.default_rng(seed)
    made = [scene(rng, 60)]
    while sum(map(len, made)) < seconds * FPS:
        new = scene(rng, int(FPS * rng.choice([0.4, 1.5, 4, 9, 40], p=[.1, .3, .3, .2, .1])))
        kind, count = rng.choice(["cut", "dissolve", "fade", "blank", "flash"]), int(rng.integers(4, 12))
        share = np.linspace(0, 1, count)[:, None, None]
        if kind == "dissolve":
            made.append((1 - share) * made[-1][-1] + share * new[0])
        elif kind == "fade":
            made += [16 + (1 - share) * (made[-1][-1] - 16), np.full((int(FPS * rng.choice([0, 1, 15])), 36, 64), 16.0),
                     16 + share * (new[0] - 16)]
        elif kind == "blank":
            made.append(np.full((int(FPS * rng.choice([.1, 2, 30])), 36, 64), rng.choice([16.0, 235.0])))
        elif kind == "flash":
            made += [np.full((1, 36, 64), 235.0), made[-1][-1:].repeat(12, 0)]
        made.append(new)
    luma = np.concatenate(made)[:seconds * FPS] + rng.normal(0, 1, (1, 36, 64))
    for _ in range(3):
        begin = rng.integers(0, len(luma))
        luma[begin:begin + 400, :rng.integers(4, 8)] = luma[begin:begin + 400, -6:] = 16
    return np.clip(np.rint(luma), 16, 235).astype(np.uint8)


class Drawn:
    """A film of these thumbnails; `looked` counts how many were asked for."""

    rate = Fraction(FPS)

    def __init__(self, luma):
        self.luma, self.looked = luma, 0

    def frames(self, start, end):
        for at in range(len(self.luma)):
            if start - 1e-6 <= at / FPS < end - 1e-6:
                self.looked += 1
                yield at / FPS, SimpleNamespace(at=at, duration=1, time_base=Fraction(1, FPS))

    def small(self, frame):
        return self.luma[frame.at], None


def divided(monkeypatch, luma, parts):
    """Rows of the film whole, and of its parts; and how often a picture was looked at."""
    opened = Drawn(luma)
    monkeypatch.setattr(module, "Films", lambda options, longest: nullcontext(SimpleNamespace(open=lambda part: opened)))
    monkeypatch.setattr(interlace, "combed", lambda frame: None)
    seconds = len(luma) / FPS
    whole = Batch(rows=pa.table({"id": ["film"], "source": ["s"], "path": ["film.mp4"], "start_s": [0.0], "end_s": [seconds],
                                 "duration": [seconds]}))
    stage = Shots()
    batches = [run_stage(stage, whole)["out"],
               run_stage(stage, run_stage(Parts(minutes=seconds / 60 / parts), whole)["out"])["out"]]
    return batches, opened.looked / len(luma) - 1


def same(whole, parts):
    for column in ("shots", "boundaries"):
        assert [one for row in parts.column(column) for one in row] == whole.column(column)[0]
    for column in ("shot_count", "flash_count"):
        assert sum(parts.column(column)) == whole.column(column)[0]
    pieces = [place for place in zip(parts.column("start_s"), parts.column("end_s"), strict=True) if place[0] < place[1]]
    assert pieces[0][0] == whole.column("start_s")[0]
    assert pieces[-1][1] == whole.column("end_s")[0]
    assert all(one[1] == two[0] for one, two in pairwise(pieces))  # each second is one part's


@pytest.mark.parametrize("seed", range(4))
def test_all_parts_together_have_the_shots_of_the_film(monkeypatch, seed):
    luma = drawn(seed, 260)
    (whole, parts), looked = divided(monkeypatch, luma, parts=3 + seed)
    assert len(parts) == 3 + seed
    assert whole.column("shot_count")[0] > 5
    same(whole, parts)
    assert looked < 3
    clips = [run_stage(Spans(), one)["out"].rows for one in (whole, parts)]
    columns = ["start_s", "end_s", "shot_before", "shot_after"]
    assert clips[0].select(columns).to_pylist() == clips[1].select(columns).to_pylist()
    assert set(clips[1].column("parent").to_pylist()) <= {f"film#{k}" for k in range(3 + seed)}


def test_one_shot_of_hours_belongs_to_the_first_part(monkeypatch):
    (whole, parts), looked = divided(monkeypatch, scene(np.random.default_rng(0), 2000).astype(np.uint8), parts=4)
    same(whole, parts)
    assert parts.column("shot_count") == [1, 0, 0, 0]
    assert parts.column("duration") == [200.0, 0.0, 0.0, 0.0]
    assert looked < 2.5


def test_parts_of_a_film_that_is_decoded(tmp_path):
    """Jumps into the file give the same pictures as going through it; spans say nothing of a film that came as bytes."""
    pictures = [picture for seed, seconds in enumerate((7, 24, 3, 3, 21)) for picture in moving(seed, seconds, 48, 64)[::2]]
    data = film(pictures, Fraction(25, 2), options={"crf": "20", "preset": "ultrafast", "g": "60"})
    (tmp_path / "film.mp4").write_bytes(data)
    rows = pa.table({"id": ["a", "b", "c"], "source": ["s"] * 3, "path": [str(tmp_path / "film.mp4"), None, None],
                     "bytes": pa.array([None, data, film(pictures[:20])], pa.binary())})
    probed = run_stage(Probe(), Batch(rows=rows))["out"]
    parts = run_stage(Parts(minutes=0.25), probed)["out"]
    assert parts.column("id") == ["a#0", "a#1", "a#2", "a#3", "b", "c"]
    assert parts.column("part_index") == [0, 1, 2, 3, None, None]
    assert sum(parts.column("duration")[:5]) == pytest.approx(2 * probed.column("duration")[0])
    found = run_stage(Shots(), parts)["out"]
    assert "film_end_s" not in found.columns
    same(found.take([4]), found.take([0, 1, 2, 3]))
    assert found.column("shot_count")[4] == 5
    check_stage(Parts(minutes=0.25), probed, skip={"needs"})
    check_stage(Shots(), parts.take([1, 3, 5]), skip={"needs"})


@pytest.mark.slow
def test_video_split_makes_the_same_clips_of_parts(tmp_path):
    """By two workers: what stands behind `video.parts` runs in workers of its own, a part a call."""
    pictures = [picture for seed, seconds in enumerate((3, 5, 4, 2.5, 6)) for picture in moving(seed, seconds, 256, 256)]
    options = {"crf": "14", "preset": "ultrafast", "g": "40"}
    (tmp_path / "film.mp4").write_bytes(film(pictures, 25, sound=sine(300, 20.5), options=options))
    recipe = CliRunner().invoke(main, ["recipes", "video/split"]).output
    (tmp_path / "split.yaml").write_text(recipe)
    (tmp_path / "parts.yaml").write_text(recipe.replace("  - video.clips:", "  - video.parts: {minutes: 0.08}\n  - video.clips:"))
    made = {}
    for name, workers in (("split", "0"), ("parts", "2")):
        words = ["run", str(tmp_path / f"{name}.yaml"), "--set", f"read.path={tmp_path}/film.mp4", "--out", str(tmp_path / name)]
        done = CliRunner().invoke(main, [*words, "--workers", workers])
        assert done.exit_code == 0, done.output
        rows = {row["key"]: row for row in table(tmp_path / name / "data")}
        made[name] = sorted((rows[key]["start_s"], rows[key]["end_s"], rows[key]["motion_mean"], clip)
                            for key, clip in members(tmp_path / name / "data", ".mp4").items())
    assert len(made["split"]) == 5
    assert made["parts"] == made["split"]
    assert Parts.resources != Clips.resources  # else the plan puts them into one worker


def test_what_parts_cannot_know_is_refused():
    with pytest.raises(ContractError, match=r"set it there"):
        Spans(threshold=0.5).check({"part_index": pa.int32(), "boundaries": None})
    with pytest.raises(ContractError, match=r"video\.probe"):
        Parts().check({"path": pa.string()})
    with pytest.raises(ValueError, match="minutes"):
        Parts(minutes=0)


def test_a_threshold_of_its_own_ends_a_stretch_there():
    told = module.stretch([], (10.0, 20.0), None, 20.5, None, 0.4)
    assert (told.start, told.end) == (10.0, 10.0)
    assert module.stretch([], (10.0, 20.0), None, 19.0, None, 0.4) is None
    assert shots_of([], 1.0, 2.0, 0.4, "cut")[0]["after"] == "cut"
