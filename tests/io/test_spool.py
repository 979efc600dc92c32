"""What is spooled comes back exactly: columns, kinds of batches, payloads, shards."""

import json
import resource
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from curator import AudioBatch, Batch, CuratorError, ImageBatch, InputError, TextBatch, VideoBatch
from curator.api.batch import payload
from curator.api.keys import shard_of, shard_values
from curator.io.files.folder import FileInfo
from curator.io.payloads import pack, unpack
from curator.io.spool import PIECE_BYTES, SEGMENTS_BYTES, FromSpool, ToSpool, shard_units, spool_units
from curator.testing.run import same

DTYPES = st.one_of(hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(),
                   hnp.complex_number_dtypes(), hnp.datetime64_dtypes(), hnp.unicode_string_dtypes(max_len=3))
ARRAYS = DTYPES.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)))
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), ARRAYS,
                  st.binary().map(bytearray), st.sampled_from([np.float32(1.5), np.int8(-3), np.bool_(True)]))
VALUES = st.recursive(PLAIN, lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
                                                     st.dictionaries(st.text(), inner, max_size=3)), max_leaves=6)


@dataclass
class OddBatch(Batch):
    """Any value as a payload."""

    things: list | None = payload()


def rows(count, **columns):
    return pa.table({"id": [f"r{i}" for i in range(count)], "source": ["s"] * count, **columns})


def spooled(folder, *batches, key=None, shards=1, name="part"):
    """Writes the batches as one unit; gives the file as the ledger tells of it."""
    writer = ToSpool(path=str(folder / "x"), key=key, shards=shards).open(name)
    for batch in batches:
        writer.write(batch)
    file, = writer.close()
    assert file.rows == sum(map(len, batches))
    return FileInfo(f"x/{name}.spool", file.size_bytes, "key")


def read_back(folder, *files, columns=None):
    unit, = spool_units(files)
    return list(FromSpool(path=str(folder)).rows(unit, columns))


@given(VALUES)
def test_a_payload_comes_back_as_it_was(value):
    again = unpack(pack(value))
    assert type(again) is type(value)
    assert same(again, value)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(VALUES, min_size=1, max_size=8), st.integers(1, 4))
def test_a_batch_of_anything_comes_back_as_it_was(tmp_path, values, shards):
    batch = OddBatch(rows(len(values), n=list(range(len(values)))), things=values)
    file = spooled(tmp_path, batch, key="n", shards=shards)
    back = Batch.concat(read_back(tmp_path, FileInfo("x/part.spool", file.size_bytes, "key")))
    assert type(back) is OddBatch
    back = back.take(np.argsort(back.column("n")))
    assert back.rows.equals(batch.rows)
    assert same(back.things, values)


def test_kinds_schemas_and_missing_payloads_stay_apart(tmp_path):
    picture = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    given = [TextBatch(rows(2, text=["a", None])), TextBatch(rows(1, text=[3])), TextBatch(rows(1)),
             ImageBatch(rows(2), encoded=[b"jpeg", None], pixels=[None, picture]), ImageBatch(rows(1), pixels=[picture[::-1]]),
             VideoBatch(rows(1), frames=[np.asfortranarray(picture[None])], timestamps=[np.array([0.5])]),
             AudioBatch(rows(1), samples=[np.array([[0.1]], np.float32)])]
    back = read_back(tmp_path, spooled(tmp_path, *given))
    described = [(type(b).__name__, b.rows.schema, b.rows.to_pylist()) for b in back]
    assert sorted(described, key=repr) == sorted([(type(b).__name__, b.rows.schema, b.rows.to_pylist()) for b in given], key=repr)
    for kind in (ImageBatch, VideoBatch, AudioBatch):
        assert same([b.payloads() for b in back if type(b) is kind], [b.payloads() for b in given if type(b) is kind])


def test_columns_of_every_type_come_back_with_their_types(tmp_path):
    table = rows(3, whole=pa.array([1, None, 3], pa.int8()), tags=[["a"], [], None], deep=[{"x": [{"y": 1}]}, None, {"x": []}],
                 empty=pa.array([{}, None, {}], pa.struct([])), nothing=pa.nulls(3),
                 coded=pa.array(["u", "v", "u"]).dictionary_encode(), when=pa.array([0, 1, None], pa.timestamp("us", "UTC")),
                 long=pa.array(["x", None, "y"], pa.large_string()), raw=[b"\xff", b"", None])
    batch = TextBatch(table.append_column("_kept", pa.array([1, 2, 3])).append_column("_unit", pa.array([7, 7, 7], pa.int32())))
    other = batch.with_columns({"coded": pa.array(["w", "u", "w"]).dictionary_encode()})
    back = Batch.concat(read_back(tmp_path, spooled(tmp_path, batch, other)))
    expected = Batch.concat([batch, other]).without(["_unit"])
    assert back.rows.schema.equals(expected.rows.schema)
    assert back.rows.to_pylist() == expected.rows.to_pylist()


def test_a_shard_has_all_rows_of_its_keys_and_no_others(tmp_path):
    values = [f"k{i % 37}" if i % 11 else None for i in range(500)]
    files = [spooled(tmp_path, TextBatch(rows(len(part), key=part)), key="key", shards=5, name=f"part-{n}")
             for n, part in enumerate((values[:200], values[200:], []))]
    seen, place = [], {}
    together, = shard_units(files, 5)
    for unit in together.alone():
        for batch in FromSpool(path=str(tmp_path)).rows(unit):
            seen += batch.rows.column("key").to_pylist()
            for key in set(batch.rows.column("key").to_pylist()):
                assert place.setdefault(key, unit.first) == unit.first
    assert sorted(map(str, seen)) == sorted(map(str, values))
    assert sum(map(len, FromSpool(path=str(tmp_path)).rows(together))) == 500
    assert set(place.values()) == set(range(5))
    assert len({unit.key for some in (files, files[:2]) for unit in shard_units(some, 5)[0].alone()}) == 10


@given(st.lists(st.integers(0, 30 << 20), max_size=5), st.integers(1, 40))
def test_small_shards_share_a_unit_and_each_is_in_one(sizes, shards):
    units = shard_units([FileInfo(f"f{n}", size) for n, size in enumerate(sizes)], shards)
    assert [unit.first for one in units for unit in one.alone()] == list(range(shards))
    assert len({unit.key for unit in units}) == len(units)
    assert len(units) == shards or all(unit.size_bytes <= 8 << 20 for unit in units)
    assert len(units) == 1 or sum(sizes) >= 4 << 20


@pytest.mark.parametrize("kinds", [(pa.int8(), pa.int64(), pa.float64(), pa.uint16()),
                                   (pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string()))])
def test_equal_keys_meet_whatever_type_their_column_has(kinds):
    values = [1, 2, None, 100, 7] if kinds[0] == pa.int8() else ["1", "b", None, "é", "", "a#207"]
    shards = [shard_of(pa.chunked_array([pa.array(values).cast(kind)]), 7).tolist() for kind in kinds]
    assert all(s == shards[0] for s in shards)
    assert shards[0][2] == 0


def test_keys_may_be_lists_and_structs():
    shards = shard_of(pa.chunked_array([pa.array([["a"], ["b"], ["a"], None])]), 1000)
    assert shards[0] == shards[2] != shards[1]
    assert shard_of(pa.chunked_array([], pa.string()), 4).tolist() == []


@pytest.mark.parametrize("shards", [1, 2, 7, 16, 1000])
def test_each_shard_has_a_value_that_leads_there(shards):
    values = shard_values(shards)
    assert shard_of(pa.chunked_array([pa.array(values)]), shards).tolist() == list(range(shards))


def test_only_the_wanted_columns_are_read(tmp_path, monkeypatch):
    """A column that is not wanted costs no reading: neither its values nor a payload's."""
    heavy = [np.random.default_rng(i).bytes(200_000) for i in range(20)]
    batch = ImageBatch(rows(20, n=list(range(20)), heavy=heavy), encoded=heavy)
    file = spooled(tmp_path, batch)
    read = []
    window = FromSpool.rows.__globals__["_Window"]
    before = window.read
    monkeypatch.setattr(window, "read", lambda self, size=-1: read.append(len(data := before(self, size))) or data)
    back = Batch.concat(read_back(tmp_path, file, columns=("n",)))
    assert (back.columns, back.payloads(), back.column("n")) == (["id", "source", "n"], {}, list(range(20)))
    assert sum(read) < 200_000 < file.size_bytes
    assert same(Batch.concat(read_back(tmp_path, file, columns=("encoded",))).payloads(), {"encoded": heavy})


def test_much_is_written_in_parts_and_read_in_small_batches(tmp_path):
    given = [TextBatch(rows(1000, text=[f"{i} {j} " + "x" * 5000 for j in range(1000)])) for i in range(10)]
    back = read_back(tmp_path, spooled(tmp_path, *given, key="text", shards=2))
    assert sum(map(len, back)) == 10_000
    assert max(b.nbytes for b in back) < 8 << 20
    texts = {t for b in back for t in b.rows.column("text").to_pylist()}
    assert texts == {t for b in given for t in b.rows.column("text").to_pylist()}


def test_what_is_gathered_is_written_in_pieces(tmp_path):
    """32 values of 256 kB that no codec makes smaller: they are not joined, nor compressed, as a whole beside what was gathered."""
    random, before = np.random.default_rng(0), pa.default_memory_pool()
    given = [Batch(pa.table({"id": [f"{k}"], "source": pa.array(["s"]).dictionary_encode(), "blob": [random.bytes(256 << 10)]}))
             for k in range(32)]
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        writer = ToSpool(path=str(tmp_path / "x")).open("part")
        for batch in given:
            writer.write(batch)
        most = pool.max_memory()
    finally:
        pa.set_memory_pool(before)
    file, = writer.close()
    assert most < SEGMENTS_BYTES + 2.5 * PIECE_BYTES
    back = Batch.concat(read_back(tmp_path, FileInfo("x/part.spool", file.size_bytes, "key")))
    assert same(back.rows.to_pylist(), Batch.concat(given).rows.to_pylist())


@pytest.mark.parametrize(("words", "least", "most"), [(5, 1, 2), (100, 0, 0.3)])
def test_text_is_compressed_also_beside_many_small_columns_which_alone_are_not(tmp_path, words, least, most):
    columns = {"id": [f"{i}" for i in range(200)], "source": ["s"] * 200, "text": ["word " * words] * 200}
    rows = pa.table(columns | {f"score_{i}": np.ones(200) for i in range(25)})
    writer = ToSpool(path=str(tmp_path)).open("part")
    writer.write(Batch(rows=rows))
    assert least <= writer.close()[0].size_bytes / rows.nbytes <= most


@pytest.mark.parametrize("limit", [10, 3 << 20])
def test_a_spool_that_cannot_grow_says_path_and_remedy_and_leaves_nothing(tmp_path, limit):
    """Arrow writes on where it closes: what that raises is not the error to report."""
    writer, before = ToSpool(path=str(tmp_path)).open("part"), resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = pa.table({"id": [f"{i}" for i in range(1 << 20)], "source": ["s"] * (1 << 20)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(InputError, match=rf"cannot write {tmp_path}/part.spool: .*ulimit -f unlimited"):
            writer.write(Batch(rows=rows))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_children_of_a_record_share_shards_a_hundred_at_a_time():
    ids = [f"films/{film}.mp4#{k}" for film in range(50) for k in range(1000)]
    shards = shard_of(pa.chunked_array([pa.array(ids)]), 16).reshape(50, 10, 100)
    assert (shards == shards[:, :, :1]).all()
    assert len(np.unique(shards[0])) > 3  # of one that has many children they are in several
    assert np.bincount(shards.ravel(), minlength=16).min() > 50_000 / 16 / 2


def test_rows_are_copied_once_into_many_shards(tmp_path):
    blobs = [pa.table({"id": [f"{part}:{i}" for i in range(8)], "source": ["s"] * 8, "blob": ["x" * (64 << 10)] * 8})
             for part in range(4)]
    given, before = Batch(pa.concat_tables(blobs)), pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        writer = ToSpool(path=str(tmp_path), key="id", shards=16).open("part")
        writer.write(given)
        copied = pool.total_bytes_allocated()
    finally:
        pa.set_memory_pool(before)
    writer.abort()
    assert given.nbytes <= copied < 2 * given.nbytes


def test_what_has_no_plain_form_is_refused_by_name(tmp_path):
    for thing in (object(), np.array([object()]), {1: "x"}, {1, 2}, 1j):
        with pytest.raises(CuratorError, match="payload 'things' of a OddBatch cannot be spooled"):
            spooled(tmp_path, OddBatch(rows(1), things=[thing]))


def test_a_file_that_is_gone_or_damaged_is_told(tmp_path):
    file = spooled(tmp_path, TextBatch(rows(100, text=[str(i) * 50 for i in range(100)])))
    path = tmp_path / "x/part.spool"
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], b"x" * len(whole), whole[:8] + b"\xff" * 600 + whole[608:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"part\.spool"):
            read_back(tmp_path, file)
    path.unlink()
    with pytest.raises(InputError, match=r"part\.spool"):
        read_back(tmp_path, file)


def test_a_writer_that_is_aborted_leaves_nothing(tmp_path):
    writer = ToSpool(path=str(tmp_path / "x")).open("part")
    writer.write(TextBatch(rows(1, text=["y" * (40 << 20)])))
    writer.abort()
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_a_class_of_another_program_is_named(tmp_path):
    file = spooled(tmp_path, TextBatch(rows(1)))
    path = tmp_path / "x/part.spool"
    data = path.read_bytes()
    gone = b"curator.api.tasks:TestBatch"
    path.write_bytes(data.replace(b"curator.api.tasks:TextBatch", gone))
    with pytest.raises(CuratorError, match="TestBatch"):
        read_back(tmp_path, file)
    path.write_bytes(data.replace(b"curator.api.tasks:TextBatch", json.dumps("os:system" + " " * 18)[1:-1].encode()))
    with pytest.raises(CuratorError, match="cannot be imported"):
        read_back(tmp_path, file)
