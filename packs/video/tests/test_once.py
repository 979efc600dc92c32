"""Clips in one pass are those of shots, spans and decode one after the other: columns, frames and thumbnails, to the byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from curator_video.once import held
from curator_video.once.clips import Clips
from curator_video.once.line import Line
from curator_video.read.decode import Decode
from curator_video.read.probe import Probe
from curator_video.shots.boundaries import Boundary, shots_of
from curator_video.shots.parts import Parts
from curator_video.shots.shots import Shots
from curator_video.shots.spans import Spans

from curator import Batch
from curator.testing import check_stage, run_stage
from packs.video.tests.films import film, films, moving, pan
from packs.video.tests.scenes import mixed, through

SPANS = {"min": 1.0, "max": 8.0, "crop": 0.1}
OF_FILM = {"shot_count", "flash_count", "blank_ratio", "comb_ratio"}  # of the film, or of the clip


def drawn():
    """A cut, a shot too short, a dissolve, a fade over black, and a shot that is divided."""
    shots = [np.stack([picture[::5, ::5] for picture in pan(seed, round(25 * seconds), 2)]).astype(np.float32)
             for seed, seconds in enumerate((3, 0.6, 4, 4, 17, 3))]
    soft = mixed(shots[2], shots[3], 20)
    return np.concatenate([shots[0], shots[1], through(soft, shots[4], 12, 10, 0.0), shots[5]]).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    place = tmp_path_factory.mktemp("once") / "film.mp4"
    place.write_bytes(film(drawn(), 25, options={"crf": "20", "preset": "ultrafast", "g": "50"}))
    return str(place)


@pytest.fixture
def again(monkeypatch):
    """Spans that are decoded by themselves."""
    decoded, found = Decode.decoded, []

    def counted(self, opened, part):
        found.append((part.begin, part.end))
        return decoded(self, opened, part)

    monkeypatch.setattr(Decode, "decoded", counted)
    return found


def values(batch):
    """Of each record columns and payloads."""
    payloads = zip(*(getattr(batch, name) for name in ("frames", "timestamps", "thumbs", "thumb_times")), strict=True)
    return [({name: value for name, value in row.items() if name not in OF_FILM and name[0] != "_"},
             [(one.shape, one.tobytes()) for one in arrays]) for row, arrays in zip(batch.rows.to_pylist(), payloads, strict=True)]


def three(batch):
    spans = run_stage(Spans(**SPANS), run_stage(Shots(), batch)["out"])
    return values(run_stage(Decode(size=32), spans["out"])["out"]), spans["dropped"].column("id")


def one(batch):
    answer = run_stage(Clips(spans=SPANS, decode={"size": 32}), batch)
    return values(answer["out"]), answer["dropped"].column("id")


@pytest.mark.parametrize("room", [held.HOLD_BYTES, 1])
def test_one_pass_gives_what_three_stages_give(path, monkeypatch, again, room):
    """Also where there is no room for pictures whose clip is not known yet; then more is decoded again."""
    batch = Batch(rows=pa.table({"id": ["film"], "source": ["s"], "path": [path]}))
    wanted, short = three(batch)
    assert [row["shot_before"] for row, _ in wanted] == ["start", "cut", "dissolve", "fade", "part", "part", "cut"]
    assert short == ["film#1"]
    again.clear()
    for name in ("HOLD_BYTES", "KEEP_BYTES"):
        monkeypatch.setattr(held, name, min(room, getattr(held, name)))
    assert one(batch) == (wanted, short)
    divided = [(row["start_s"], row["end_s"]) for row, _ in wanted if "part" in (row["shot_before"], row["shot_after"])]
    gradual = [(row["start_s"], row["end_s"]) for row, _ in wanted if row["shot_before"] == "dissolve"]
    assert again == (divided if room > 1 else gradual + divided)


def test_parts_of_a_film_have_its_clips(path, again):
    batch = run_stage(Probe(), Batch(rows=pa.table({"id": ["film"], "source": ["s"], "path": [path]})))["out"]
    parts = run_stage(Parts(minutes=0.1), batch)["out"]
    assert len(parts) == 6
    whole, answer = one(batch)[0], run_stage(Clips(spans=SPANS, decode={"size": 32}), parts)
    differ = {"id", "parent", "clip_index", "part_index"}
    assert [({name: row[name] for name in row.keys() - differ}, arrays) for row, arrays in values(answer["out"])] == [
        ({name: row[name] for name in row.keys() - differ}, arrays) for row, arrays in whole]
    empty = [row["id"] for row in answer["dropped"].rows.to_pylist() if row["reason"] == "no_clips"]
    assert set(empty) | {row["parent"] for row, _ in values(answer["out"])} == set(parts.column("id"))


def test_what_takes_too_much_memory_leaves_as_from_the_three_stages(path):
    batch, decode = Batch(rows=pa.table({"id": ["film"], "source": ["s"], "path": [path]})), {"size": None, "fps": 25.0, "max_mb": 1}
    spans = SPANS | {"max": 20.0}
    wanted = run_stage(Decode(**decode), run_stage(Spans(**spans), run_stage(Shots(), batch)["out"])["out"])
    answer = run_stage(Clips(spans=spans, decode=decode), batch)
    assert values(answer["out"]) == values(wanted["out"])
    large = [row["id"] for row in answer["dropped"].rows.to_pylist() if row["reason"] == "too_large"]
    assert large == wanted["dropped"].column("id") != []


@pytest.mark.parametrize("seed", range(5))
def test_shots_are_told_in_pieces_as_they_are_at_the_end(seed):
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.integers(0, 400, 60)) / 10
    boundaries = [Boundary(start, start + rng.choice([0, 0, 0.5, 3]), str(rng.choice(["cut", "fade"])), float(rng.uniform(0.2, 1)))
                  for start in starts.tolist()]
    line = Line(0.4)
    line.begin(0.0)
    told = []
    for settled in np.cumsum(rng.uniform(0, 2, 30)).tolist():
        told += line.until([one for one in boundaries if one.start < settled], settled)
    assert told + line.finish(boundaries, 44.0) == shots_of(boundaries, 0.0, 44.0, 0.4)
    assert line.shots == len(shots_of(boundaries, 0.0, 44.0, 0.4)) > 5


def test_the_stage_keeps_the_rules():
    given = films(film([*moving(1, 1.6, 48, 64), *moving(2, 1.6, 48, 64)]), b"no film", film(moving(1, 0.5, 48, 64)), None)
    stage = Clips(spans=SPANS, decode={"size": 32})
    answer = run_stage(stage, given)
    assert [one.partition(":")[0] for one in answer["failed"].column("error")] == ["not_media", "no_file"]
    assert (answer["out"].column("id"), answer["dropped"].column("reason")) == (["0#0", "0#1"], ["too_short"])
    check_stage(stage, given, skip={"needs"})  # it reads bytes or a path, whichever is there


@pytest.mark.parametrize("options", [{"spans": {"by": "spans"}}, {"decode": {"pick": "uniform"}}, {"shots": {"flash": -1}},
                                     {"decode": {"rate": 2}}, {"spans": {"min": "2s"}}, {"shots": {"treshold": 0.5}}])
def test_nonsense_is_refused(options):
    with pytest.raises(ValueError, match=rf"^{next(iter(options))}: .*{next(iter(next(iter(options.values()))))}") as said:
        Clips(**options)
    assert not {"Shots.__init__()", "Decode.__init__()", "instances"} & set(str(said.value).split())  # words for users
