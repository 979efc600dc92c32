"""Batches outside a process."""

import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator import Batch, CuratorError, TextBatch, VideoBatch
from curator.api.errors import first_error
from curator.worker.store import INLINE_BYTES, Store


@pytest.fixture
def store(tmp_path):
    return Store([str(tmp_path)], "w1")


@given(st.lists(st.tuples(st.text(), st.one_of(st.none(), st.integers(-2**63, 2**63 - 1)), st.binary(max_size=50))))
def test_any_rows_come_back_as_they_went(tmp_path_factory, rows):
    store = Store([str(tmp_path_factory.mktemp("store"))], "w")
    table = pa.table({"id": [r[0] for r in rows], "n": pa.array([r[1] for r in rows], pa.int64()), "b": [r[2] for r in rows]},
                     schema=pa.schema([("id", pa.string()), ("n", pa.int64()), ("b", pa.binary())]))
    back = store.get(store.put(TextBatch(table)))
    assert type(back) is TextBatch
    assert back.rows.equals(table)


def test_a_small_batch_travels_in_the_message_and_a_large_one_in_a_file(store, tmp_path):
    assert isinstance(store.put(Batch(pa.table({"id": ["a"]}))), bytes)
    assert not list(tmp_path.iterdir())
    large = Batch(pa.table({"id": ["x" * INLINE_BYTES * 2]}))
    data = store.put(large)
    assert Path(data).exists()
    back = store.get(data)
    store.release(data)
    assert not Path(data).exists()
    assert back.rows.equals(large.rows)  # mapped before it went, so still whole


def test_payloads_keep_kind_shape_and_missing_entries(store):
    frames = [np.arange(2 * 64 * 64 * 3, dtype=np.uint8).reshape(2, 64, 64, 3), None]
    batch = VideoBatch(pa.table({"id": ["a", "b"]}), frames=frames, encoded=[b"mp4" * 9000, None])
    back = store.get(store.put(batch))
    assert type(back) is VideoBatch
    np.testing.assert_array_equal(back.frames[0], frames[0])
    assert back.frames[1] is None
    assert back.encoded == batch.encoded
    assert back.timestamps is None


def test_a_slice_is_written_without_the_rest_of_its_table(store):
    table = pa.table({"id": [str(i) * 100 for i in range(10_000)]})
    data = store.put(Batch(table).slice(5, 7))
    assert isinstance(data, bytes)
    assert store.get(data).column("id") == table.column("id").to_pylist()[5:7]


def full(folder, owner="w1"):
    """A folder in which the first file cannot be written, as on a full disk."""
    folder.mkdir()
    Path(folder, f"{owner}-0").symlink_to("/dev/full")
    return str(folder)


def test_where_shared_memory_is_full_the_next_folder_takes_the_batch(tmp_path):
    (tmp_path / "disk").mkdir()
    store = Store([full(tmp_path / "shm"), str(tmp_path / "disk")], "w1")
    large = Batch(pa.table({"id": ["x" * INLINE_BYTES * 2]}))
    data = store.put(large)
    assert Path(data).parent == tmp_path / "disk"
    assert store.get(data).rows.equals(large.rows)
    assert not list((tmp_path / "shm").iterdir())  # nothing half written is left there


def test_where_everything_is_full_the_message_says_what_to_do(tmp_path):
    store = Store([full(tmp_path / "shm")], "w1")
    with pytest.raises(CuratorError, match=rf"no room for a batch .*{tmp_path} are full. Free space"):
        store.put(Batch(pa.table({"id": ["x" * INLINE_BYTES * 2]})))


def test_where_files_may_not_be_so_large_the_message_says_what_to_do_and_nothing_is_left(tmp_path):
    store, before = Store([str(tmp_path)], "w1"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (INLINE_BYTES, before[1]))
    try:
        with pytest.raises(CuratorError, match=rf"cannot write {tmp_path}/w1-0: .*ulimit -f unlimited") as raised:
            store.put(Batch(pa.table({"id": ["x" * INLINE_BYTES * 2]})))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
    assert not first_error("s", raised.value).file.endswith(".pxi")  # the line of a compiled library helps nobody
