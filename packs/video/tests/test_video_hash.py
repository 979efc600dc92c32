"""Hashes of clips: near for copies of all kinds, far for others, none where there is nothing to see."""

from __future__ import annotations

import itertools
from functools import cache

import cv2
import numpy as np
import pytest
from curator_dedup import DedupNear
from curator_video.copies.frame_hashes import clip_hashes, picture_hashes
from curator_video.copies.hash import Hash
from curator_video.read.film import Film

from curator.testing import check_stage, run_stage
from packs.video.tests.clips import barred, clip, clips, thumbs
from packs.video.tests.films import film, pan, texture

FPS = 25
NEAR = {"column": "phash", "distance": 4, "hashes": 128, "share": 0.75, "within": 10}  # as video.hash says
PICTURES = [one for seed in (11, 12, 13) for one in pan(seed, 75, 2)]  # three shots of 3 s


def coded(pictures, crf=23, fps=FPS):
    """The thumbnails and times that come of a film of these pictures."""
    with Film(film(pictures, fps, options={"crf": str(crf), "preset": "veryfast"})) as opened:
        made = [(time, opened.thumb(frame)) for time, frame in opened.frames()]
    return {"thumbs": np.stack([one for _, one in made]), "thumb_times": np.array([time for time, _ in made])}


def shown(pictures, every_s=0.5):
    """Clips of so many pictures, each shown for so long."""
    return {"thumbs": thumbs(pictures), "thumb_times": np.arange(len(pictures)) * every_s}


def half(picture):
    return cv2.resize(picture, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)


def letterboxed(picture, rows=40):
    return cv2.copyMakeBorder(picture, rows, rows, 0, 0, cv2.BORDER_CONSTANT)


def marked(picture):
    """With a white box of a seventh of its sides in a corner, and a line of words below."""
    height, width = picture.shape[:2]
    made = cv2.rectangle(picture.copy(), (8, 8), (8 + width // 7, 8 + height // 7), (255, 255, 255), -1)
    return cv2.putText(made, "so much is said", (width // 6, height - 12), cv2.FONT_HERSHEY_SIMPLEX, 0.7, (255, 255, 255), 2)


COPIES = {
    "resolution": lambda: coded([half(one) for one in PICTURES]),
    "bit rate": lambda: coded(PICTURES, crf=40),
    "letterbox": lambda: coded([letterboxed(one) for one in PICTURES]),
    "pillarbox": lambda: coded([cv2.copyMakeBorder(one, 0, 0, 50, 50, cv2.BORDER_CONSTANT) for one in PICTURES]),
    "start": lambda: coded(PICTURES[30:]),
    "inside": lambda: coded(PICTURES[90:135]),
    "within": lambda: coded(pan(14, 60, 3) + PICTURES + pan(15, 60, 3)),
    "rate": lambda: coded(PICTURES[::2], fps=12),
    "brighter": lambda: coded([np.clip(one * 1.1 + 5, 0, 255).astype(np.uint8) for one in PICTURES]),
    "marks": lambda: coded([marked(one) for one in PICTURES]),
}


@cache
def original():
    return coded(PICTURES)


@cache
def others():
    return [coded(pan(seed, 50, 2)) for seed in range(20, 28)]


def hashed(*given, **parameters):
    return run_stage(Hash(**parameters), clips(*given))["out"]


def apart(a, b):
    """In how many bits two hashes differ."""
    return (int.from_bytes(a) ^ int.from_bytes(b)).bit_count()


@pytest.mark.parametrize("copy", COPIES)
def test_copies_of_a_clip_are_found(copy):
    near = run_stage(DedupNear(**NEAR), hashed(original(), COPIES[copy](), *others()[:2]))
    assert (near["duplicate"].column("id"), near["duplicate"].column("duplicate_of")) == (["1"], ["0"])


@pytest.mark.parametrize("first", range(50, 60))
def test_a_part_of_what_moves_fast_is_found_wherever_it_begins(first):
    pictures = pan(16, 150, 6)
    near = run_stage(DedupNear(**NEAR), hashed(*(shown(one, 1 / FPS) for one in (pictures, pictures[first:first + 50]))))
    assert near["duplicate"].column("duplicate_of") == ["0"]


def test_different_clips_are_not_merged():
    lists = hashed(original(), *others())
    assert len(run_stage(DedupNear(**NEAR), lists)["out"]) == 9
    assert min(apart(x, y) for a, b in itertools.combinations(lists.column("phash"), 2) for x in a for y in b) >= 12


def test_what_follows_in_the_same_shot_is_no_copy():
    pictures = pan(17, 150, 3)
    parts = hashed(*(shown(pictures[at:at + 50], 1 / FPS) for at in (0, 50, 100)))
    assert len(run_stage(DedupNear(**NEAR), parts)["out"]) == 3


def test_a_common_title_makes_no_copies():
    """Three clips begin with the same two seconds: a still title, and an intro that moves."""
    title, intro = [texture(40)] * 50, pan(41, 50, 2)
    for begin in (title, intro):
        begun = [coded([*begin, *pan(seed, 100, 2)]) for seed in (30, 31, 32)]
        assert len(run_stage(DedupNear(**NEAR), hashed(*begun))["out"]) == 3
        assert len(run_stage(DedupNear(column="phash", distance=6, hashes=19), hashed(*begun, most=19))["out"]) == 1


def test_bits_are_those_of_the_definition():
    """Cosines at the middles of 32 x 32 equal parts of the middle of the picture, each of ten by ten places."""
    pictures = thumbs([texture(seed, 96, 96) for seed in (3, 4)])
    found, clear = picture_hashes(pictures, (0, 36, 0, 64))
    assert clear.all()
    for picture, one in zip(pictures, found.tolist(), strict=True):
        at = (0.15 + 0.7 * (np.arange(320) + 0.5) / 320)
        small = picture[np.ix_((36 * at).astype(int), (64 * at).astype(int))].astype(float).reshape(32, 10, 32, 10).mean((1, 3))
        place = 2 * np.arange(32) + 1
        values = [(small * np.cos(np.pi * v * place / 64)[:, None] * np.cos(np.pi * u * place / 64)).sum()
                  * (2 ** -0.5 if u == 0 else 1) * (2 ** -0.5 if v == 0 else 1) for v in range(8) for u in range(8)]
        assert apart(one.to_bytes(8), np.packbits(np.array(values) > np.median(values)).tobytes()) <= 2


def test_hashes_go_to_pandas():
    """Lists of binary of a fixed size do not."""
    pytest.importorskip("pandas")
    assert len(hashed(original(), None).rows.to_pandas()["phash"][0][0]) == 8


def test_what_has_no_hash():
    black, white = (np.full((5, 36, 64), level, np.uint8) for level in (16, 235))
    grain = np.random.default_rng(0).integers(126, 131, (5, 36, 64), np.uint8)
    times = np.arange(5) * 0.5
    out = hashed(*[{"thumbs": one, "thumb_times": times} for one in (black, white, grain)], None)
    assert out.column("phash") == [None] * 4
    assert out.column("phash_times") == [None] * 4


def test_black_pictures_between_are_left_out():
    out = hashed({"thumbs": thumbs([texture(1), np.zeros_like(texture(1)), texture(2)]), "thumb_times": np.array([10.0, 10.5, 11.0])})
    assert out.column("phash_times") == [[10.0, 11.0]]
    assert len(out.column("phash")[0]) == 2


def test_a_still_has_one_hash_and_no_clip_more_than_asked():
    still = shown([texture(1)] * 9)
    assert len(hashed(still).column("phash")[0]) == 1
    assert len(hashed(still, collapse=-1).column("phash")[0]) == 9
    many = shown([texture(seed, 60, 80) for seed in range(30)])
    assert hashed(many).column("phash_times")[0] == sorted(hashed(many).column("phash_times")[0])
    assert hashed(many, most=19).column("phash_times") == [[float(second) for second in range(15)]]
    assert hashed(many, most=3).column("phash_times") == [[0.0, 8.0]]
    assert len(hashed(many, most=1).column("phash")[0]) == 1


@pytest.mark.parametrize("copy", [lambda made: [half(one) for one in made], lambda made: made[25:],
                                  lambda made: pan(19, 50, 2, 120, 160) + made])
def test_copies_of_a_long_clip_that_moves_fast_are_found(copy):
    """Of the picture every .25 s of both, as every one that changes is too many."""
    pictures = pan(18, 800, 4, 120, 160)
    lists = hashed(*(shown(one, 1 / FPS) for one in (pictures, copy(pictures))))
    assert len(clip_hashes(*shown(pictures, 1 / FPS).values(), 8, 9999)) > 3 * 128 > 128 >= max(map(len, lists.column("phash")))
    assert len(run_stage(DedupNear(**NEAR), lists)["duplicate"]) == 1


def test_pictures_are_hashed_alike_however_many_there_are():
    pictures = thumbs(PICTURES[:20])
    many, _ = picture_hashes(np.concatenate([pictures] * 30), (0, 36, 0, 64))
    assert np.array_equal(many, np.tile(picture_hashes(pictures, (0, 36, 0, 64))[0], 30))


def test_bars_do_not_count():
    bare = PICTURES[:50]
    for rows in (30, 60):
        lists = hashed(shown(bare), shown([letterboxed(one, rows) for one in bare]), collapse=-1).column("phash")
        assert max(apart(one, other) for one, other in zip(*lists, strict=True)) <= 8
    covered = shown([barred(one, rows=20) for one in bare])
    assert clip_hashes(covered["thumbs"], covered["thumb_times"], -1, 19)


def test_the_stage_keeps_its_contract():
    batch = clips(clip(PICTURES[:60]), None, clip([texture(4)] * 3))
    check_stage(Hash(), batch)
    check_stage(Hash(collapse=-1, most=2), batch)


@pytest.mark.parametrize(("wrong", "message"), [({"collapse": 40}, "collapse is from"), ({"most": 0}, "most is 1")])
def test_wrong_parameters(wrong, message):
    with pytest.raises(ValueError, match=message):
        Hash(**wrong)
