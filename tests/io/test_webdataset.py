"""WebDataset shards: what is read from anybody's, and that what we write comes back."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.batch import Batch
from curator.api.errors import InputError, RecipeError
from curator.io.files.folder import Folder
from curator.io.media.tar import TarReader, header
from curator.io.media.to_webdataset import ToWebDataset
from curator.io.media.webdataset import WebDataset
from curator.testing import check_sink, check_source


def test_a_large_member_is_read_in_pieces():
    data = tar(("a", b"0123456789"), ("b", b"x"))
    reader = TarReader(io.BytesIO(data))
    found = [list(reader.pieces(4)) for _ in reader.members()]
    assert found == [[b"0123", b"4567", b"89"], [b"x"]]
    assert not reader.is_cut
    reader = TarReader(io.BytesIO(data[:512 + 6]))
    assert [list(reader.pieces(4)) for member in reader.members() if getattr(member, "name", "")] == [[b"0123", b"45"]]
    assert reader.is_cut


def tar(*members, form=tarfile.PAX_FORMAT, **changes) -> bytes:
    """An archive as Python's tarfile writes it; a member is a name and its content, or a `TarInfo`."""
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=form) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return into.getvalue()


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "other"
    return info


@pytest.fixture
def shard(tmp_path, read_all):
    """`shard(data, name=..., **parameters)`: what is read of an archive with these bytes."""
    def read(data: bytes, name: str = "a.tar", **parameters):
        (tmp_path / name).write_bytes(data)
        return read_all(WebDataset(path=str(tmp_path / name), **parameters))
    return read


SAMPLES = [("a/b/000.jpg", b"\xff\xd8one"), ("a/b/000.json", b'{"width": 3, "tags": ["x"]}'), ("a/b/000.txt", b"a cat\n"),
           ("a/b/000.cls", b"7"), ("a/b/000.seg.png", b"mask"),
           ("a/b/001.JPG", b"\xff\xd8two"), ("a/b/001.json", b'{"width": 2.5,\n "height": 1}')]


# -- archives of others ----------------------------------------------------------------------------------------


def test_neighbours_with_one_key_are_a_sample(shard):
    found = shard(tar(*SAMPLES))
    assert not found.failed
    one, two = found.good
    assert one | {"id": "", "source": ""} == {
        "id": "", "source": "", "key": "a/b/000", "bytes": b"\xff\xd8one", "extension": "jpg", "txt": "a cat\n", "cls": 7,
        "seg_png": b"mask", "width": 3.0, "height": None, "tags": ["x"]}
    assert (two["key"], two["bytes"], two["extension"], two["width"], two["height"]) == ("a/b/001", b"\xff\xd8two", "jpg", 2.5, 1)
    assert two["txt"] is two["cls"] is two["seg_png"] is two["tags"] is None
    assert one["source"] == two["source"]
    assert one["source"].endswith("a.tar")
    assert one["id"] != two["id"]


def test_the_json_may_name_the_record(shard):
    own = b'{"id": "r1", "source": "https://x/y", "key": "seven", "extension": ".jpeg", "uid": 5}'
    found = shard(tar(("k.jpg", b"1"), ("k.json", own)))
    assert found.good == [{"id": "r1", "source": "https://x/y", "key": "seven", "bytes": b"1", "extension": ".jpeg", "uid": 5}]
    assert shard(tar(("k.jpg", b"1"), ("k.json", own)), id_column="uid").column("id") == ["5"]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("key", ["x", "d" * 60 + "/" + "e" * 60, "long/" + "n" * 80])
def test_every_format_of_tar(shard, form, key):
    found = shard(tar((f"{key}.png", b"1"), (f"{key}.json", b'{"a": 1}'), (f"{key}2.png", b""), form=form))
    assert found.column("key") == [key, key + "2"]
    assert found.column("bytes") == [b"1", b""]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_names_that_only_newer_formats_hold(shard, form):
    long, other = "l" * 300, "ключ/画像"
    found = shard(tar((f"{long}.png", b"1"), (f"{other}.png", b"2"), form=form))
    assert found.column("key") == [long, other]


@pytest.mark.parametrize("size", ["²", "9" * 5000, "-1", ""])
def test_an_extended_size_that_is_none_is_passed_over(shard, size):
    info = tarfile.TarInfo("a.jpg")
    info.pax_headers = {"size": size}
    assert shard(tar(info, ("b.jpg", b"2"))).column("bytes") == [b"", b"2"]


def test_compressed(shard):
    assert shard(gzip.compress(tar(*SAMPLES)), "a.tar.gz").column("key") == ["a/b/000", "a/b/001"]
    zst = pa.compress(tar(*SAMPLES), "zstd", asbytes=True)
    assert shard(zst, "a.tar.zst").column("key") == ["a/b/000", "a/b/001"]


def test_several_archives_in_one_file_and_padding(shard):
    data = tar(("a.jpg", b"1")) + tar(("b.jpg", b"2")) + bytes(5 * 512)
    found = shard(data)
    assert found.column("key") == ["a", "b"]
    assert not found.failed
    assert shard(tar()).good == []


def test_what_is_no_sample_is_passed_over(shard):
    found = shard(tar(link("dir", tarfile.DIRTYPE), ("__index__", b"x"), ("__meta__/a.json", b"{}"), ("._k.jpg", b"mac"),
                      (".hidden", b""), ("./k.jpg", b"1"), ("./k.json", b'{"a": 1}')))
    assert found.column("key") == ["k"]
    assert found.column("a") == [1]
    assert not found.failed


def test_names_that_only_look_like_notes_are_samples(shard):
    assert shard(tar(("__a.jpg", b"1"), ("README", b"2"))).column("key") == ["__a", "README"]


def test_media_names_what_may_become_bytes(shard):
    members = [("k.depth.png", b"d"), ("k.jpg", b"j"), ("k.mask", b"m")]
    plain = shard(tar(*members)).good[0]
    assert (plain["bytes"], plain["extension"], plain["jpg"], plain["mask"]) == (b"d", "depth.png", b"j", b"m")
    named = shard(tar(*members), media=[".JPG"]).good[0]
    assert (named["bytes"], named["extension"], named["depth_png"], named["mask"]) == (b"j", "jpg", b"d", b"m")


def test_parts_and_json_keys_of_one_name(shard):
    found = shard(tar(("a.jpg", b"1"), ("a.txt", b"part"), ("a.json", b'{"txt": "json"}'),
                      ("b.jpg", b"1"), ("b.json", b'{"txt": "only"}')))
    assert found.column("txt") == ["part", "only"]
    assert found.column("txt_2") == ["json", None]
    reserved = shard(tar(("a.jpg", b"1"), ("a.key", b"k"), ("a.json", b'{"bytes": 5, "_x": 1}'))).good[0]
    assert (reserved["key"], reserved["key_2"], reserved["bytes"], reserved["bytes_2"]) == ("a", b"k", b"1", 5)
    assert reserved["x_"] == 1


def test_parts_of_two_kinds_and_one_name(shard):
    found = shard(tar(("a.txt", b"text"), ("b.txt.bin", b"\xff"), ("c.cls", b"4"), ("d.cls.bin", b"")))
    assert (found.column("txt"), found.column("txt_2")) == (["text", None, None, None], [None, b"\xff", None, None])
    assert (found.column("cls"), found.column("cls_2")) == ([None, None, 4, None], [None, None, None, b""])


def test_only_selected_parts_are_read(shard):
    found = shard(tar(*SAMPLES), select=["txt", "width"])
    assert [set(row) for row in found.good] == [{"id", "source", "txt", "width"}] * 2
    assert found.column("txt") == ["a cat\n", None]
    with pytest.raises(InputError, match=r"no column 'txd' \(did you mean 'txt'"):
        shard(tar(*SAMPLES), select=["txd"])


def test_what_is_not_selected_takes_no_memory(tmp_path):
    members = [(f"{i:02d}.{end}", data) for i in range(60) for end, data in (("jpg", bytes(1 << 20)), ("thumb.bin", b"t" * 99))]
    (tmp_path / "a.tar").write_bytes(tar(*members))
    source = WebDataset(path=str(tmp_path), select=["thumb"], max_record_bytes=1000)
    tracemalloc.start()
    try:
        found = [row for unit in source.units() for batch in source.read(unit) for row in batch.rows.to_pylist()]
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()
    assert [row["thumb"] for row in found] == [b"t" * 99] * 60


def test_types_hold_for_all_shards(tmp_path, read_all):
    for i, value in enumerate(["1", "2.5", "null"]):
        (tmp_path / f"{i}.tar").write_bytes(tar(("k.jpg", b"1"), ("k.json", b'{"n": %s}' % value.encode())))
    (tmp_path / "3.tar").write_bytes(tar(("k.jpg", b"1"), ("k.mask.bin", b"m")))
    source = WebDataset(path=str(tmp_path))
    assert source.columns()["n"] == pa.float64()
    found = read_all(source)
    assert found.types("n") == {pa.float64()}
    assert found.types("mask") == {pa.binary()}
    (tmp_path / "4.tar").write_bytes(tar(("k.jpg", b"1"), ("k.json", b'{"n": "text"}')))
    with pytest.raises(InputError, match=r"column 'n' is .*no type holds both"):
        WebDataset(path=str(tmp_path)).units()


def test_samples_without_json_among_others(shard):
    found = shard(tar(("a.jpg", b"1"), ("b.jpg", b"2"), ("b.json", b'{"n": 5}'), ("c.jpg", b"3"), ("d.json", b'{"n": 6}')))
    assert found.column("n") == [None, 5, None, 6]
    assert found.column("bytes") == [b"1", b"2", b"3", None]
    assert found.column("extension") == ["jpg", "jpg", "jpg", None]


# -- bad archives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bad", "said"), [
    (("k.json", b'{"a": '), "k.json: not JSON"), (("k.json", b"[1]"), "k.json: not an object but a list"),
    (("k.json", b" \n"), "k.json: not JSON: it is empty"), (("k.json", b'{"a": "x"}'), "column 'a' is string here"),
    (("k.txt", b"\xff\xfe"), "k.txt: not UTF-8: byte 0xff at 0"), (("k.cls", b"cat"), "k.cls: invalid literal"),
    (("k.cls", b"9" * 20), "beyond 64 bits"), (("k.JPG", b"again"), "k.JPG: the part 'JPG' comes twice"),
    (link("k.png", tarfile.SYMTYPE), "k.png is a symbolic link"), (link("k.png", tarfile.LNKTYPE), "k.png is a hard link"),
])
def test_a_sample_with_a_bad_part_fails_alone(shard, bad, said):
    good = [(f"{i}.{end}", data) for i in range(20) for end, data in (("jpg", b"1"), ("json", b'{"a": 1}'))]
    found = shard(tar(*good[:4], ("k.jpg", b"pixels"), bad, *good[4:]))
    assert found.column("key") == [str(i) for i in range(20)]
    assert len(found.failed) == 1
    assert said in found.failed[0]["error"]
    assert "a.tar" in found.failed[0]["error"]
    assert found.failed[0]["offset"] == 4 * 1024
    assert found.failed[0]["id"].endswith("a.tar:byte=4096")


def test_too_large_a_sample(shard):
    found = shard(tar(("a.jpg", b"1"), ("b.jpg", bytes(600)), ("b.seg.png", bytes(600)), ("c.jpg", b"3")), max_record_bytes=1000)
    assert found.column("key") == ["a", "c"]
    assert "b has more than max_record_bytes (1,000)" in found.failed[0]["error"]


def test_behind_a_damaged_header_reading_goes_on(shard):
    data = bytearray(tar(*[(f"{k}.jpg", b"x" * 5000) for k in range(8)]))
    data[3 * 5632 + 5:3 * 5632 + 9] = b"\0\1\2\3"
    found = shard(bytes(data))
    assert found.column("key") == ["0", "1", "5", "6", "7"]
    assert [f["offset"] for f in found.failed] == [2 * 5632, 3 * 5632, 4 * 5632]
    assert "there is no header" in found.failed[1]["error"]
    assert "may lack a part" in found.failed[0]["error"]


@pytest.mark.parametrize("cut", [1, 300, 512 + 10, 1024 + 512 + 700])
def test_an_archive_that_was_cut_off(shard, cut):
    whole = tar(("a.jpg", b"1"), ("b.jpg", b"2"), ("c.jpg", b"3" * 2000))
    found = shard(whole[:2048 + cut])
    assert found.column("key") == (["a", "b"] if cut > 512 else ["a"])  # what follows in a cut header may have been b's
    assert "cut off" in found.failed[-1]["error"]
    assert len(found.failed) == 2


def test_an_archive_without_an_end_mark_keeps_its_samples_and_is_told(shard):
    found = shard(tar(("a.jpg", b"1"))[:1024])
    assert found.column("key") == ["a"]
    assert "no end mark" in found.failed[0]["error"]


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_a_damaged_compressed_archive(tmp_path, read_all, codec):
    noise = uuid.uuid4().bytes * 4000
    data = tar(*[(f"{k}.jpg", bytes((i * (k + 7)) % 251 for i in range(3000)) + noise[k:k + 2000]) for k in range(300)])
    packed = gzip.compress(data) if codec == "gz" else pa.compress(data, "zstd", asbytes=True)
    (tmp_path / f"a.tar.{codec}").write_bytes(packed[:len(packed) * 2 // 3])
    found = read_all(WebDataset(path=str(tmp_path)))
    assert found.column("key") == [str(k) for k in range(len(found.good))]
    assert "damaged after" in found.failed[-1]["error"]


def test_no_archive_at_all(tmp_path, read_all):
    (tmp_path / "a.tar").write_bytes(b"<html>not found</html>" * 100)
    with pytest.raises(InputError, match="not a tar archive, or a damaged one"):
        WebDataset(path=str(tmp_path)).units()
    (tmp_path / "b.tar").write_bytes(tar(("k.jpg", b"1")))
    found = read_all(WebDataset(path=str(tmp_path)))
    assert len(found.good) == 1
    assert "a.tar" in found.failed[0]["error"]


def test_a_million_keys_are_refused_before_anything_runs(tmp_path):
    members = [(f"{k}.json", json.dumps({"o": {f"{k}-{i}": 1 for i in range(60)}}).encode()) for k in range(40)]
    (tmp_path / "a.tar").write_bytes(tar(*members))
    with pytest.raises(InputError, match="the objects of column 'o' have 2,400 different keys"):
        WebDataset(path=str(tmp_path)).units()


@given(st.binary(max_size=4000), st.integers(0, 6000), st.integers(0, 6000))
def test_any_bytes_can_be_read(noise, at, cut):
    data = tar(*SAMPLES)
    for broken in (noise, data[:at] + noise + data[at + len(noise):], data[:cut]):
        reader = TarReader(io.BytesIO(broken))
        for _ in reader.members():
            pass  # it ends, and raises nothing


# -- what we write comes back ------------------------------------------------------------------------------------


def table(**columns) -> pa.Table:
    count = len(next(iter(columns.values())))
    given = {"id": [f"r{i}" for i in range(count)], "source": ["s"] * count, "bytes": [b"%d" % i for i in range(count)],
             "extension": ["jpg"] * count}
    return pa.table(given | columns)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = {pa.int64(): st.integers(-2**63, 2**63 - 1), pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
           pa.string(): TEXTS, pa.bool_(): st.booleans(), pa.binary(): st.binary(max_size=9)}


@st.composite
def tables(draw):
    count = draw(st.integers(1, 6))
    columns = {"id": (pa.string(), TEXTS), "source": (pa.string(), TEXTS), "bytes": (pa.binary(), st.binary(max_size=600)),
               "extension": (pa.string(), st.sampled_from(["jpg", "PNG", "", "tar.gz", "json", "x.bin", "a b", ".webp"]))}
    for name in draw(st.lists(st.one_of(TEXTS.filter(lambda n: n and not n.startswith("_")), st.just("key"), st.just("a.B")),
                              unique=True, max_size=4)):
        kind = draw(st.sampled_from([*SCALARS, "list", "object"]))
        if name == "key":
            columns[name] = (pa.string(), TEXTS)
        elif kind == "list":
            columns[name] = (pa.list_(pa.string()), st.none() | st.lists(st.none() | TEXTS, max_size=3))
        elif kind == "object":
            columns[name] = (pa.struct([("a", pa.int64()), ("b", pa.string())]),
                             st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": TEXTS}))
        elif name not in columns:
            columns[name] = (kind, st.none() | SCALARS[kind])
    columns |= {"txt": (pa.string(), st.none() | TEXTS), "cls": (pa.int64(), st.none() | SCALARS[pa.int64()])}
    return pa.table({name: pa.array([draw(value) for _ in range(count)], kind) for name, (kind, value) in columns.items()})


@given(tables())
def test_everything_comes_back(read_all, write_all, rows):
    place = f"memory://{uuid.uuid4().hex}"
    write_all(ToWebDataset(path=place), rows)
    found = read_all(WebDataset(path=place))
    assert not found.failed
    names = [name for name in rows.column_names if name != "key"]
    assert [{n: row.get(n) for n in names} for row in found.good] == rows.select(names).to_pylist()
    if "key" in rows.column_names:
        assert found.column("key") == rows.column("key").to_pylist()
    again = f"memory://{uuid.uuid4().hex}"
    write_all(ToWebDataset(path=again), *found.tables)
    assert read_all(WebDataset(path=again)).good == found.good
    first, second = (Folder.open(p) for p in (place, again))
    assert first.names() == second.names() == ["part-x-a0-000.parquet", "part-x-a0-000.tar"]


ODD_KEYS = ["a", "A", "a/b", "../a", "/a", "a.b", "__x__/a", "__x__", ".", "a-2", "a//b"]
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)


@given(st.lists(st.none() | KEYS | st.sampled_from(ODD_KEYS), min_size=1, max_size=8))
def test_keys_of_any_kind_make_good_names(read_all, write_all, keys):
    place = f"memory://{uuid.uuid4().hex}"
    write_all(ToWebDataset(path=place), table(key=pa.array(keys, pa.string())))
    found = read_all(WebDataset(path=place))
    assert not found.failed
    assert found.column("bytes") == [b"%d" % i for i in range(len(keys))]
    assert all(new == old for new, old in zip(found.column("key"), keys, strict=True) if old is not None)
    folder = Folder.open(place)
    with tarfile.open(fileobj=io.BytesIO(folder.read("part-x-a0-000.tar"))) as archive:
        names = archive.getnames()
    assert not [n for n in names if n.startswith("/") or ".." in n.split("/")]
    queried = pq.read_table(pa.BufferReader(folder.read("part-x-a0-000.parquet")))
    assert [f"{key}.jpg" in names for key in queried["key"].to_pylist()] == [True] * len(keys)


def test_the_layout_of_a_sample(place, write_all):
    files = write_all(ToWebDataset(path=place, text="caption"), table(
        caption=["a cat", None], cls=[3, None], phash=pa.array([b"12345678", None], pa.binary(8)), w=[1.5, None],
        key=["x/1", None]))
    folder = Folder.open(place)
    assert [f.rows for f in files] == [2, 0]
    assert [f.size_bytes for f in files] == [len(folder.read(n)) for n in ("part-x-a0-000.tar", "part-x-a0-000.parquet")]
    with tarfile.open(fileobj=io.BytesIO(folder.read("part-x-a0-000.tar"))) as archive:
        assert archive.getnames() == ["x/1.jpg", "x/1.json", "x/1.txt", "x/1.cls", "x/1.phash.bin", "r1.jpg", "r1.json"]
        assert json.load(archive.extractfile("x/1.json")) == {"id": "r0", "source": "s", "caption": "a cat", "w": 1.5}
        assert archive.extractfile("x/1.txt").read() == b"a cat"
        assert {(m.mtime, m.uid, m.mode) for m in archive} == {(0, 0, 0o644)}
    about = pq.read_table(pa.BufferReader(folder.read("part-x-a0-000.parquet")))
    assert about.column_names == ["key", "id", "source", "extension", "caption", "cls", "phash", "w"]
    assert about["key"].to_pylist() == ["x/1", "r1"]
    assert about["phash"].to_pylist() == [b"12345678", None]


def test_headers_are_those_of_tarfile():
    for name, size in [("a.jpg", 0), ("a/b.json", 12345), ("n" * 100, 1), ("n" * 101, 1), ("ü.txt", 8), ("a", (8 << 30) - 1),
                       ("a", 8 << 30)]:
        info = tarfile.TarInfo.frombuf(header(name, size)[-512:], "utf-8", "strict")
        assert (info.size, info.mode, info.mtime, info.uid, info.isreg()) == (info.size, 0o644, 0, 0, True)
        if size < 8 << 30:
            assert info.size == size
        if len(name) <= 100 and name.isascii():
            assert info.name == name


def test_shards_do_not_depend_on_the_batches(place, write_all):
    rows = table(caption=["c" * (i % 7) for i in range(100)])
    made = {}
    for step in (1, 7, 100):
        for parameters in ({"records": 30}, {"target_bytes": 60_000}):
            where = f"{place}-{step}-{len(parameters)}-{next(iter(parameters))}"
            files = write_all(ToWebDataset(path=where, **parameters), *[rows.slice(i, step) for i in range(0, 100, step)])
            tars = [f for f in files if f.path.endswith(".tar")]
            assert sum(f.rows for f in tars) == 100
            if "records" in parameters:
                assert [f.rows for f in tars] == [30, 30, 30, 10]
            folder = Folder.open(where)
            made.setdefault(next(iter(parameters)), []).append({n: folder.read(n) for n in folder.names() if n.endswith(".tar")})
    for tries in made.values():
        assert len(tries[0]) > 1
        assert tries[0] == tries[1] == tries[2]


def test_without_metadata_and_with_columns_selected(place, write_all, read_all):
    files = write_all(ToWebDataset(path=place, metadata=False, select=["w"], text="note"),
                      table(w=[1, 2], note=["a", "b"], other=[1, 2]))
    assert [f.path.rpartition(".")[2] for f in files] == ["tar"]
    assert [set(r) for r in read_all(WebDataset(path=place)).good] == [
        {"id", "source", "key", "bytes", "extension", "txt", "note", "w"}] * 2


@pytest.mark.parametrize("select", [None, ["w"]])
def test_columns_that_are_only_metadata(place, write_all, read_all, select):
    files = write_all(ToWebDataset(path=place, select=select, metadata_only=["small"]), table(w=[1, 2], small=[b"x", b"y"]))
    assert [set(r) for r in read_all(WebDataset(path=place)).good] == [{"id", "source", "key", "bytes", "extension", "w"}] * 2
    beside, = [f.path.rpartition("/")[2] for f in files if f.path.endswith(".parquet")]
    assert pq.read_table(io.BytesIO(Folder.open(place).read(beside))).column("small").to_pylist() == [b"x", b"y"]
    for parameters, problem in [({"metadata": False, "metadata_only": ["small"]}, "metadata: false"),
                                ({"metadata_only": ["source"]}, "names source, which a sample is made of")]:
        with pytest.raises(ValueError, match=problem):
            ToWebDataset(path=place, **parameters)


def test_the_table_beside_a_shard_is_read_on_request_and_one_that_cannot_be_read_is_an_error(place, write_all, read_all):
    files = write_all(ToWebDataset(path=place, metadata_only=["small"]), table(w=[1, 2], small=[b"x", b"y"]))
    assert [r["small"] for r in read_all(WebDataset(path=place, metadata=True)).good] == [b"x", b"y"]
    beside, = [f.path.rpartition("/")[2] for f in files if f.path.endswith(".parquet")]
    Folder.open(place).write(beside, b"PAR1 half a file")
    with pytest.raises(InputError, match=r"\.parquet, beside its shard, cannot be read.*without `metadata`"):
        read_all(WebDataset(path=place, metadata=True))
    Folder.open(place).delete([beside])
    assert all("small" not in r for r in read_all(WebDataset(path=place, metadata=True)).good)


def test_parameters_are_checked(tmp_path):
    for name, value in [("records", 0), ("extension", "JPG"), ("extension", "json"), ("target_bytes", 0)]:
        with pytest.raises(ValueError, match=f"{name} must be"):
            ToWebDataset(path=str(tmp_path), **{name: value})
    for name, value in [("max_record_bytes", 1 << 31), ("media", "jpg"), ("unit_bytes", 0)]:
        with pytest.raises(ValueError, match=f"{name} must be"):
            WebDataset(path=str(tmp_path), **{name: value})
    sink = ToWebDataset(path=str(tmp_path), text="caption")
    with pytest.raises(RecipeError, match="'bytes', which `media` names, is string, not binary"):
        sink.check({"bytes": pa.string()})
    with pytest.raises(RecipeError, match="no column 'caption'"):
        sink.check({"bytes": pa.binary()})


def test_the_kit(place, write_all):
    rows = table(txt=["a", None, "é"], thumb=[b"1", None, b""])
    check_sink(ToWebDataset(path=place), Batch(rows=rows))
    other = f"{place}-2"
    for k in range(3):
        write_all(ToWebDataset(path=other), rows.set_column(0, "id", pa.array([f"{k}-{i}" for i in range(3)])), name=f"part-{k}")
    check_source(WebDataset(path=other))
    check_source(WebDataset(path=other, unit_bytes=100))
