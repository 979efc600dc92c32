from __future__ import annotations

import gzip
import json
import pickle
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import InputError
from curator.api.stage import SourceRange, Unit
from curator.io.files.compression import compressed
from curator.io.files.folder import Folder
from curator.io.files.local import LocalFiles
from curator.io.tables.columns import Seen
from curator.io.tables.json_rows import JsonParser
from curator.io.tables.jsonl import Jsonl


@pytest.fixture
def jsonl(tmp_path, read_all):
    """Write lines to a file and read it back."""
    def read(content: bytes, name: str = "a.jsonl", **parameters):
        (tmp_path / name).write_bytes(content)
        return read_all(Jsonl(path=str(tmp_path / name), **parameters))
    return read


def without_places(rows: list[dict]) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in ("id", "source")} for row in rows]


# -- types come out as they went in ---------------------------------------------------------------------------------

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2**63, 2**63 - 1), st.text(max_size=8),
                    st.floats(allow_nan=False, allow_infinity=False),
                    st.sampled_from(["007", "2020-01-01", "2020-01-01T10:00:00Z", "1e5", "", "12:30:00", "null"]))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3)
                      | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=6)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c d", "é"]), VALUES, max_size=4), max_size=6))
def test_each_record_is_read_as_json_means_it_or_fails(records):
    """No value is coerced: a record is as Python's json reads it, with nulls for missing keys, or on `failed`."""
    lines = [json.dumps(record).encode() for record in records]
    parsed = JsonParser("u", {}, 10**9).parse(b"\n".join(lines), 0)
    at, found = 0, {}
    for i, line in enumerate(lines):
        found[at] = i
        at += len(line) + 1
    rows = parsed.rows.to_pylist() if parsed.rows.num_columns else [{}] * len(parsed.positions)
    assert len(parsed.positions) + len(parsed.failures) == len(records)
    for position, row in zip(parsed.positions.tolist(), rows, strict=True):
        assert covers(row, records[found[position]])
    assert all(f.offset in found for f in parsed.failures)


def covers(row, record) -> bool:
    """Whether what was read has all of the record, equal in value, and nothing but nulls beside it."""
    if isinstance(record, dict):
        return isinstance(row, dict) and all(covers(row.get(k), v) for k, v in record.items()) \
            and all(is_empty(v) for k, v in row.items() if k not in record)
    if isinstance(record, list):
        return isinstance(row, list) and len(row) == len(record) and all(map(covers, row, record))
    if isinstance(record, bool) or isinstance(row, bool):
        return row is record
    return row == record


def is_empty(value) -> bool:
    return value is None or (isinstance(value, dict) and all(map(is_empty, value.values())))


TOKENS = ["{", "}", "[", "]", ":", ",",
          '"a"', '"b"', "1", "2.5", "-0", "null", "true", '"2020-01-01"', "NaN", "1e400", "{}", "[]",
          "12345678901234567890", '"\\ud83d"', "[null,null]", '"a":1', '"a":[null]', '"b":{"x":[null,null]}', " ", "\x00", "é"]
KNOWN = [pa.null(), pa.int64(), pa.float64(), pa.string(), pa.list_(pa.null()), pa.list_(pa.int64()), pa.struct([]),
         pa.struct([("x", pa.list_(pa.null()))]), pa.uint64(), pa.decimal128(38, 0)]


@given(st.lists(st.lists(st.sampled_from(TOKENS), max_size=7).map(lambda t: "{" + "".join(t) + "}")
                | st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2).map(json.dumps), max_size=6),
       st.dictionaries(st.sampled_from("ab"), st.sampled_from(KNOWN), max_size=2), st.sampled_from([None, ["a"]]))
def test_whatever_a_line_holds_it_is_a_record_or_a_failure(lines, known, select):
    """pyarrow's parser can crash the process (a lone null) or make broken tables (lists of nulls)."""
    columns = {name: Seen(kind, "before") for name, kind in known.items()}
    parsed = JsonParser("u", columns, 10**9, select).parse("\n".join(lines).encode(), 0)
    parsed.rows.validate(full=True)
    assert len(parsed.positions) + len(parsed.failures) == len(lines)
    assert not parsed.rows.num_columns or len(parsed.rows) == len(parsed.positions)
    assert all(isinstance(f.error, (ValueError, TypeError)) for f in parsed.failures)


def test_lists_of_nulls_are_whole(jsonl):
    found = jsonl(b'{"a":[null,null],"day":["2020-01-01"]}\n{"a":[],"b":{"x":[null,null,null]}}\n')
    assert found.column("a") == [[None, None], []]
    assert found.column("day") == [["2020-01-01"], None]
    assert found.column("b")[1] == {"x": [None, None, None]}


def test_text_that_looks_like_something_else_stays_text(jsonl):
    found = jsonl(b'{"zip":"007","day":"2020-01-01","at":["2020-01-01T00:00:00Z"],"in":{"day":"2021-02-03","n":1}}\n')
    assert without_places(found.good) == [{"zip": "007", "day": "2020-01-01", "at": ["2020-01-01T00:00:00Z"],
                                           "in": {"day": "2021-02-03", "n": 1}}]


@pytest.mark.parametrize(("numbers", "kind"), [
    ([1, 2], pa.int64()),
    ([1, 2.5, None], pa.float64()),
    ([2**63 - 1, -2**63], pa.int64()),
    ([2**64 - 1, 5], pa.uint64()),
    ([2**64 - 1, -5], pa.decimal128(38, 0)),
    ([10**30], pa.decimal128(38, 0)),
    ([1e300, 0.1], pa.float64()),
    ([2.0**60, 2**60], pa.float64()),
])
def test_numbers_are_exact(jsonl, numbers, kind):
    found = jsonl(b"\n".join(json.dumps({"n": n}).encode() for n in numbers))
    assert [int(n) if isinstance(n, Decimal) else n for n in found.column("n")] == numbers
    assert found.types("n") == {kind}
    assert not found.failed


def test_an_integer_that_a_float_cannot_hold_fails(jsonl):
    found = jsonl(b'{"n":1.5}\n' * 20 + b'{"n":9007199254740993}\n{"n":9007199254740992}\n')
    assert found.column("n")[-1] == 2**53
    assert [f["raw"] for f in found.failed] == ['{"n":9007199254740993}']
    assert "holds an integer that is not exact as a double" in found.failed[0]["error"]


def test_not_a_number_is_read(jsonl):
    found = jsonl(b'{"n":NaN}\n{"n":Infinity}\n{"n":1}\n')
    assert [str(n) for n in found.column("n")] == ["nan", "inf", "1.0"]


def test_types_are_those_of_the_whole_source_not_of_a_block(tmp_path, read_all):
    (tmp_path / "a.jsonl").write_text('{"n":1}\n' * 10)
    (tmp_path / "b.jsonl").write_text('{"n":1.5,"x":"t"}\n' * 10)
    found = read_all(Jsonl(path=str(tmp_path)))
    assert found.types("n") == {pa.float64()}
    assert found.types("x") == {pa.string()}
    assert found.column("x") == [None] * 10 + ["t"] * 10


# -- id and source ---------------------------------------------------------------------------------------------------


def test_the_own_id_is_kept_as_text_and_a_missing_one_made(jsonl):
    found = jsonl(b'{"id":7,"n":1}\n{"n":2}\n{"id":null,"n":3}\n')
    ids = found.column("id")
    assert ids[0] == "7"
    assert all(len(i) == 16 and int(i, 16) >= 0 for i in ids[1:])
    assert len(set(ids)) == 3
    assert len(set(found.column("source"))) == 1


def test_ids_do_not_depend_on_units_or_blocks(tmp_path, read_all):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"n":{n}}}\n' for n in range(5000)))
    whole = read_all(Jsonl(path=str(path)))
    split = read_all(Jsonl(path=str(path), unit_bytes=1000))
    assert whole.good == split.good
    assert len(set(whole.column("id"))) == 5000


def test_compressed_and_plain_files_have_their_own_ids(tmp_path, read_all):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"n":1}\n{"n":1}\n')
    assert len(set(read_all(Jsonl(path=str(tmp_path))).column("id"))) == 4


def test_an_own_source_is_kept(jsonl):
    found = jsonl(b'{"source":"https://a"}\n{"source":null}\n')
    assert found.column("source")[0] == "https://a"
    assert found.column("source")[1].endswith("a.jsonl")


def test_another_column_can_be_the_id(jsonl):
    found = jsonl(b'{"url":"u1","id":5}\n', id_column="url")
    assert without_places(found.good) == [{"url": "u1", "id_original": 5}]
    assert found.column("id") == ["u1"]
    assert jsonl(b'{"_id":"u1"}\n', id_column="_id").good[0]["id"] == "u1"


def test_names_that_are_the_engines_are_changed_not_lost(jsonl):
    found = jsonl(b'{"_id":"x","_row":1,"row_":2}\n')
    assert without_places(found.good) == [{"id_": "x", "row_": 1, "row__2": 2}]


# -- bad lines ---------------------------------------------------------------------------------------------------------

BAD = {
    b'{"a":1}{"a":2}': "not JSON: Extra data",
    b'{"a":': "not JSON",
    b"4}": "not JSON",
    b"null": "not an object but a null",
    b"[1]": "not an object but a list",
    b"3": "not an object but a number",
    b'"text"': "not an object but a string",
    b'{"a":"\xff"}': "not UTF-8: byte 0xff",
    b'{"a":"x\x00"}': "not JSON: Invalid control character",
    b'{"a":1,"a":2}': "the key 'a' comes twice",
    b'{"a":1e999}': "the number 1e999 is too big",
    b'{"b":"\\ud800"}': "half a surrogate pair",
    b"\x00\x00\x00": "not JSON",
    b"\x89PNG\r\x1a": "not UTF-8",
    b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}": "nested deeper than 100 levels",
    b'{"a":' + b'{"a":' * 200_000 + b"1" + b"}" * 200_000 + b"}": "nested deeper than 100 levels",
    b'{"a":' + b"9" * 40 + b"}": "no type holds both",
}


def test_each_bad_line_fails_with_its_place_and_all_others_come(jsonl):
    lines, bad = [], {}
    for i, line in enumerate(BAD):
        lines += [b'{"a":%d}' % n for n in range(i * 10, i * 10 + 10)]
        bad[len(b"\n".join(lines)) + 1] = (len(lines) + 1, line)
        lines.append(line)
    found = jsonl(b"\n".join(lines))
    assert found.column("a") == list(range(len(BAD) * 10))
    assert [f["offset"] for f in found.failed] == list(bad)
    for failed in found.failed:
        number, line = bad[failed["offset"]]
        assert failed["id"].endswith(f"a.jsonl:byte={failed['offset']}")
        assert f"a.jsonl:{number}: {BAD[line]}" in failed["error"] or BAD[line] in failed["error"]
        assert "Traceback" in failed["traceback"] or "Error" in failed["traceback"]
        assert failed["raw"] == line.decode("utf-8", "backslashreplace")[:1000].strip()


def test_lines_end_with_newline_alone_or_after_a_return_and_blank_ones_do_not_count(jsonl):
    found = jsonl(b'\n  {"a":1}  \r\n\r\n \t \n{"a":2}')
    assert found.column("a") == [1, 2]
    assert not found.failed


@pytest.mark.parametrize("content", [b"", b"\n", b"\n \n\r\n", b"\xef\xbb\xbf"])
def test_a_file_without_lines_has_no_records(jsonl, content):
    found = jsonl(content)
    assert found.good == found.failed == []


def test_a_byte_order_mark_is_skipped(jsonl):
    assert jsonl(b'\xef\xbb\xbf{"a":1}\n').column("a") == [1]


def test_empty_objects_are_records(jsonl):
    found = jsonl(b"{}\n{}\n")
    assert len(set(found.column("id"))) == 2


@pytest.mark.parametrize("unit_bytes", [50, 10**9])
def test_a_line_that_is_too_long_fails_and_the_others_come(jsonl, unit_bytes):
    found = jsonl(b'{"a":"1"}\n{"a":"' + b"x" * 5000 + b'"}\n{"a":"2"}\n', max_record_bytes=1000, unit_bytes=unit_bytes)
    assert found.column("a") == ["1", "2"]
    assert "more than max_record_bytes (1,000)" in found.failed[0]["error"]
    assert len(found.failed[0]["raw"]) == 1000


def test_a_truncated_archive_gives_what_stands_before_the_damage(jsonl):
    numbers = random.Random(0).choices(range(10**9), k=20_000)
    packed = gzip.compress(b"".join(b'{"n":%d}\n' % n for n in numbers))
    found = jsonl(packed[:len(packed) // 2], "a.jsonl.gz")
    assert found.column("n") == numbers[:len(found.good)]
    assert len(found.good) > 8000
    assert len(found.failed) == 1
    assert "is damaged after" in found.failed[0]["error"]
    assert found.failed[0]["id"].endswith(f"a.jsonl.gz:byte={found.failed[0]['offset']}")


def test_a_file_that_went_away_is_one_failed_row_and_the_others_are_read(tmp_path, read_all):
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"n":"{name}"}}\n')
    source = Jsonl(path=str(tmp_path))
    units = source.units()
    (tmp_path / "b.jsonl").unlink()
    found = read_all(source, units)
    assert found.column("n") == ["a", "c"]
    assert [f["id"] for f in found.failed] == [str(tmp_path / "b.jsonl")]
    assert "it does not exist" in found.failed[0]["error"]


# -- types that differ --------------------------------------------------------------------------------------------------


def test_a_stray_record_of_another_type_fails_and_names_both_places(jsonl):
    found = jsonl(b'{"a":1}\n' * 30 + b'{"a":"x"}\n{"b":2}\n')
    assert len(found.good) == 31
    path = found.good[0]["source"]
    assert [f["error"] for f in found.failed] == [
        f"TypeError: {path}:31: column 'a' is string here but int64 in {path}:1, and no type holds both"]


def test_a_stray_first_record_does_not_decide_the_type(jsonl):
    found = jsonl(b'{"a":"x"}\n' + b'{"a":1}\n' * 30)
    assert found.column("a") == [1] * 30
    assert [f["offset"] for f in found.failed] == [0]


def test_many_records_of_two_types_are_told_before_anything_runs(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a":1}\n{"a":"x"}\n' * 10)
    with pytest.raises(InputError, match=r"a.jsonl:2: column 'a' is string here but number in .*a.jsonl:1, and no type "
                                         r"holds both. Convert one of them, or leave the column out with `select`"):
        Jsonl(path=str(tmp_path)).units()


def test_types_that_differ_between_files_are_told_before_anything_runs(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"n":1}\n{"a":1}\n')
    (tmp_path / "b.jsonl").write_text('{"a":"x"}\n')
    for ask in ("units", "columns"):
        with pytest.raises(InputError, match=r"column 'a' is int64 in .*a.jsonl:2 and string in .*b.jsonl:1, and no "
                                             r"type holds both. Convert one of them"):
            getattr(Jsonl(path=str(tmp_path)), ask)()
    assert Jsonl(path=str(tmp_path), select=["n"]).units()


def test_a_type_that_differs_deep_inside_a_file_fails_there(tmp_path, read_all):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":"text","pad":"%s"}\n' % ("x" * 1000) * 1000 + '{"a":5}\n' * 3)
    for unit_bytes in (1 << 30, 1 << 18):  # also where a unit sees only the odd ones
        found = read_all(Jsonl(path=str(path), unit_bytes=unit_bytes))
        assert (len(found.good), len(found.failed)) == (1000, 3)
        assert "column 'a' is int64 here but string in" in found.failed[0]["error"]


def test_a_source_keeps_what_it_saw_when_it_travels_to_a_worker(tmp_path, read_all):
    (tmp_path / "a.jsonl").write_text('{"a":1}\n')
    (tmp_path / "b.jsonl").write_text('{"a":1.5}\n')
    source = Jsonl(path=str(tmp_path))
    units = source.units()
    assert read_all(pickle.loads(pickle.dumps(source)), units).types("a") == {pa.float64()}


def test_keys_that_are_data_are_told_before_anything_runs(tmp_path, read_all):
    (tmp_path / "a.jsonl").write_text("".join(
        json.dumps({"t": "x", "n": 1, "meta": [{"counts": {f"word{i}-{k}": 1 for k in range(20)}}]}) + "\n" for i in range(100)))
    with pytest.raises(InputError, match=r"a.jsonl: the objects of column 'meta.counts' have 2,000 different keys, .*"
                                         r"leave the column out with `select`"):
        Jsonl(path=str(tmp_path)).units()
    found = read_all(Jsonl(path=str(tmp_path), select=["t"]))
    assert [set(row) for row in found.good] == [{"id", "source", "t"}] * 100


# -- parameters and the wrong kind of file ---------------------------------------------------------------------------------


def test_columns_are_known_before_a_run(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text":"x","n":1,"_x":null}\n')
    columns = Jsonl(path=str(tmp_path)).columns()
    assert columns == {"text": pa.string(), "n": pa.int64(), "x_": None, "id": pa.string(), "source": pa.string()}


def test_select_reads_only_these_columns(jsonl):
    found = jsonl(b'{"id":"i","text":"t","n":1,"o":{"x":1}}\n', select=["text"])
    assert [set(row) for row in found.good] == [{"id", "source", "text"}]
    assert jsonl(b'{"text":"t","o":{"x":1}}\n', select=["o"]).column("o") == [{"x": 1}]


def test_an_unknown_column_names_the_nearest(jsonl):
    with pytest.raises(InputError, match=r"no column 'texd' \(did you mean 'text'\?\) in .*a.jsonl. There are: text, n"):
        jsonl(b'{"text":"t","n":1}\n', select=["texd"])


@pytest.mark.parametrize(("content", "message"), [
    (b'[\n{"a":1}\n]', "is a JSON array, not JSON Lines"),
    (b"\x1f\x8b\x08\x00abc", "is not JSON Lines but gzip"),
    (b"PAR1....", "is not JSON Lines but Parquet"),
    (b"\xff\xfe{\x00", "is not JSON Lines but UTF-16"),
    (b"name,age\nx,5\n", "none of its first 2 lines is a record. .*a.jsonl:1: not JSON"),
    (b'{\n  "a": 1\n}\n', "none of its first 3 lines is a record"),
])
def test_another_kind_of_file_is_told_before_anything_runs(tmp_path, content, message):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=message):
        Jsonl(path=str(tmp_path)).units()


def test_one_odd_file_among_good_ones_does_not_stop_the_run(tmp_path, read_all):
    (tmp_path / "a.jsonl").write_text("not json\n")
    (tmp_path / "b.jsonl").write_text('{"a":1}\n')
    found = read_all(Jsonl(path=str(tmp_path)))
    assert (len(found.good), len(found.failed)) == (1, 1)


@pytest.mark.parametrize(("parameters", "message"), [
    ({"path": ""}, "path must name"), ({"path": 5}, "path must name"), ({"path": "x", "unit_bytes": 0}, "unit_bytes"),
    ({"path": "x", "select": "text"}, "select must be a list"), ({"path": "x", "max_record_bytes": 0}, "max_record_bytes"),
])
def test_nonsense_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        Jsonl(**parameters)


def test_the_fingerprint_does_not_depend_on_path_or_options():
    assert Jsonl(path="a").fingerprint() == Jsonl(path="b", storage_options={"k": 1}, unit_bytes=5).fingerprint()
    assert Jsonl(path="a").fingerprint() != Jsonl(path="a", select=["x"]).fingerprint()


def test_a_changed_file_has_a_new_unit_key(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"n":1}\n' * 10)
    source = Jsonl(path=str(tmp_path), unit_bytes=60)
    before = {u.key for u in source.units()}
    (tmp_path / "b.jsonl").write_text('{"n":2}\n' * 10)
    after = {u.key for u in source.units()}
    assert len(before & after) == len(before) // 2


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".bz2", ".xz"])
def test_every_compression(tmp_path, read_all, suffix):
    import bz2
    import lzma
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
            ".zst": lambda d: pa.compress(d, "zstd", asbytes=True)}[suffix]
    (tmp_path / f"a.jsonl{suffix}").write_bytes(pack(b'{"a":1}\n{"a":2}\n'))
    assert read_all(Jsonl(path=str(tmp_path))).column("a") == [1, 2]


def test_batches_are_small(tmp_path, read_all):
    with compressed(Folder.open(str(tmp_path)).open_file("a.jsonl.zst", "wb"), "zst") as file:
        for _ in range(40):
            file.write(b'{"a":"%s"}\n' % (b"x" * 300_000))
        file.write(b'{"a":"x"}\n' * 5000)
    found = read_all(Jsonl(path=str(tmp_path)))
    assert max(t.nbytes for t in found.tables) < 8 << 20
    assert max(t.num_rows for t in found.tables) <= 1000
    assert len(found.good) == 5040


def test_in_memory(read_all):
    folder = Folder.open("memory://jsonl-test/in")
    folder.write("a.jsonl", b'{"a":1}\n' * 100)
    found = read_all(Jsonl(path=folder.path_of("*.jsonl"), unit_bytes=100))
    assert len(set(found.column("id"))) == 100


def test_a_range_is_read_without_the_rest(tmp_path, read_all):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n' * 3)
    unit = Unit((SourceRange(uri=str(path), size_bytes=24, start=8, stop=16),))
    assert len(read_all(Jsonl(path=str(path)), [unit]).good) == 1


def test_files_without_permission(tmp_path, read_all, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"n":"{name}"}}\n')
    read = LocalFiles.read

    def refuse(self, path):
        if refused in path:
            raise PermissionError(13, "Permission denied", path)
        return read(self, path)

    monkeypatch.setattr(LocalFiles, "read", refuse)
    refused = "b.jsonl"
    found = read_all(Jsonl(path=str(tmp_path)))
    assert found.column("n") == ["a"]
    assert "b.jsonl: no permission. To go on, change its permissions" in found.failed[0]["error"]
    refused = ".jsonl"  # all of them: told before anything runs
    with pytest.raises(InputError, match=r"cannot read .*a.jsonl: no permission"):
        Jsonl(path=str(tmp_path)).units()
