from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.io.files.folder import FileInfo
from curator.io.units import plan_units

MB = 1 << 20


def files(*sizes: int, version: str = "1") -> list[FileInfo]:
    return [FileInfo(f"/data/{i:05d}", size, version) for i, size in enumerate(sizes)]


def keys(listing: list[FileInfo], **settings) -> set[str]:
    return {unit.key for unit in plan_units(listing, **settings)}


@given(st.lists(st.integers(0, 300 * MB), max_size=60), st.booleans())
def test_each_byte_is_in_one_unit_and_in_order(sizes, split):
    listing = files(*sizes)
    units = plan_units(listing, splittable=lambda f: split)
    assert [u.parts[0].uri for u in units] == sorted(u.parts[0].uri for u in units)
    covered: dict[str, int] = {}
    for part in (part for unit in units for part in unit.parts):
        assert part.start == covered.get(part.uri, 0)
        covered[part.uri] = part.size_bytes if part.stop is None else part.stop
    assert covered == {f.uri: f.size_bytes for f in listing}


@given(st.integers(64 * MB, 10_000 * MB))
def test_a_big_file_is_split_evenly(size):
    units = plan_units(files(size), splittable=lambda f: True)
    assert all(32 * MB <= u.size_bytes <= 96 * MB for u in units)


def test_a_big_file_that_cannot_be_split_is_one_unit():
    assert [len(u.parts) for u in plan_units(files(500 * MB, 70 * MB))] == [1, 1]


def test_small_files_are_grouped_to_about_the_target():
    units = plan_units(files(*[MB] * 10_000))
    assert 10_000 / 64 * 0.8 < len(units) < 10_000 / 64 * 1.8
    assert max(u.size_bytes for u in units) <= 128 * MB


def test_empty_files_are_grouped_too():
    assert len(plan_units(files(*[0] * 10_000))) < 40


def test_a_new_file_keeps_nearly_all_units():
    listing = files(*[MB] * 3000)
    for position in (0, 1500, 2999):
        new = FileInfo(f"/data/{position:05d}a", MB, "1")
        after = sorted([*listing, new], key=lambda f: f.uri)
        assert len(keys(listing) - keys(after)) <= 3


def test_a_changed_file_redoes_one_unit():
    listing = files(*[MB] * 3000)
    changed = [FileInfo(f.uri, f.size_bytes, "2") if i == 1700 else f for i, f in enumerate(listing)]
    assert len(keys(changed) - keys(listing)) == 1


def test_a_changed_size_redoes_few_units():
    listing = files(*[MB] * 3000)
    grown = [FileInfo(f.uri, 20 * MB, "2") if i == 1700 else f for i, f in enumerate(listing)]
    assert len(keys(listing) - keys(grown)) <= 5


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="target_bytes must be 1 or more"):
        plan_units([], target_bytes=0)
