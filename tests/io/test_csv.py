from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import InputError
from curator.api.stage import Outputs
from curator.io.tables import csv_rows
from curator.io.tables.csv import Csv


@pytest.fixture
def table(tmp_path, read_all):
    """Write a file and read it back."""
    def read(content: bytes, name: str = "a.csv", **parameters):
        (tmp_path / name).write_bytes(content)
        return read_all(Csv(path=str(tmp_path / name), **parameters))
    return read


def values(found) -> list[tuple]:
    return [tuple(v for k, v in row.items() if k not in ("id", "source")) for row in found.good]


def test_every_value_is_the_text_that_was_written(table):
    found = table(b'zip,n,when,empty\n007,1e5,2020-01-01,\n+5,NA,true," "\n')
    assert values(found) == [("007", "1e5", "2020-01-01", ""), ("+5", "NA", "true", " ")]
    assert found.types("n") == {pa.string()}


def test_types_that_are_named(table):
    found = table(b"n,x,ok,day,at,price\n5,1e5,true,2020-01-02,2020-01-02T03:04:05,1.50\n 7 ,,,,,\n",
                  types={"n": "int", "x": "float", "ok": "bool", "day": "date", "at": "timestamp",
                         "price": "decimal(10,2)"})
    assert values(found) == [
        (5, 1e5, True, dt.date(2020, 1, 2), dt.datetime(2020, 1, 2, 3, 4, 5), Decimal("1.50")),
        (7, None, None, None, None, None)]


def test_values_that_are_not_of_their_type_fail(table):
    found = table(b"n,t\n1,a\nx,b\n2.5,c\n3,d\n", types={"n": "int"})
    assert values(found) == [(1, "a"), (3, "d")]
    assert [(f["offset"], f["raw"]) for f in found.failed] == [(2, "x,b"), (3, "2.5,c")]
    assert "row=2: column 'n' is not a value of type int64: 'x'" in found.failed[0]["error"]


def test_rows_with_other_numbers_of_fields_fail_and_all_others_come(table):
    found = table(b"a,b\n1,2\n3\n4,5,6\n7,8\n\n9,\n")
    assert values(found) == [("1", "2"), ("7", "8"), ("9", "")]
    assert [(f["id"].rpartition(":")[2], f["raw"]) for f in found.failed] == [("row=2", "3"), ("row=3", "4,5,6")]
    assert "3 fields where 2 are expected" in found.failed[1]["error"]


def test_text_that_is_not_utf8_fails(table):
    found = table(b"a,b\n1,\xff\n2,\xc3\xa9\n")
    assert values(found) == [("2", "é")]
    assert "column 'b' is not UTF-8" in found.failed[0]["error"]


def test_a_quote_that_is_never_closed_swallows_nothing_silently(table):
    found = table(b'a,b\n1,2\n3,"x\n4,5\n6,7\n')
    assert values(found) == [("1", "2")]
    assert "row=2: a quote is opened and never closed" in found.failed[0]["error"]


def test_a_stray_quote_is_a_character(table):
    assert values(table(b'a,b\n1,5" disk\n2,x\n')) == [("1", '5" disk'), ("2", "x")]


FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


@given(st.lists(st.tuples(FIELD, FIELD), max_size=20), st.sampled_from(["\n", "\r\n"]), st.integers(200, 1000))
def test_what_pythons_csv_writes_is_read(tmp_path, read_all, rows, ending, block_bytes):
    written = io.StringIO()
    csv.writer(written, lineterminator=ending).writerows([("a", "b"), *rows])
    (tmp_path / "h.csv").write_bytes(written.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "BLOCK_BYTES", block_bytes)
        found = read_all(Csv(path=str(tmp_path / "h.csv")))
    assert values(found) == rows
    assert len(set(found.column("id"))) == len(rows)


TOKENS = ['"', '"', '""', ",", ",", "\n", "\n", "\r\n", "\n\n", "a", "b c", "é", " ", '"x"', '"y,z"', '"q\nr"']


@given(st.lists(st.sampled_from(TOKENS), max_size=25).map("".join), st.sampled_from([40, 60, 4 << 20]))
def test_rows_are_those_of_the_standard_librarys_reader(tmp_path, read_all, body, block_bytes):
    """Also with stray quotes; a row whose last quote is never closed fails, and each bad row has its number."""
    (tmp_path / "t.csv").write_bytes(f"a,b\n{body}".encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "BLOCK_BYTES", block_bytes)
        found = read_all(Csv(path=str(tmp_path / "t.csv")))
    rows, longer = ([row for row in csv.reader(io.StringIO(body + more, newline="")) if row] for more in ("", "\n"))
    is_open = len(rows) == len(longer) and rows != longer
    bad = [i + 1 for i, row in enumerate(rows) if len(row) != 2 or (is_open and i == len(rows) - 1)]
    assert [f["offset"] for f in found.failed] == bad
    assert values(found) == [tuple(row) for i, row in enumerate(rows) if i + 1 not in bad]


def test_positions_do_not_depend_on_blocks(table, monkeypatch):
    content = b"a,b\n" + b"".join(b"%d,x\n" % n if n % 7 else b"bad\n" for n in range(500))
    whole = table(content)
    for block_bytes in (40, 333):
        monkeypatch.setattr(csv_rows, "BLOCK_BYTES", block_bytes)
        found = table(content)
        assert found.good == whole.good
        assert found.failed == whole.failed
    assert [f["offset"] for f in whole.failed] == list(range(1, 501, 7))


def test_bad_rows_are_given_out_as_they_are_read(tmp_path, monkeypatch):
    """Also where no good row comes between them, so that a file of bad rows is not gathered in memory."""
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 1000)
    good, bad = ["1,2"] * 100, ["1,2,3"] * 5000
    mixed = [row for pair in zip(["3,4"] * 500, ["5"] * 500, strict=True) for row in pair]
    (tmp_path / "a.csv").write_text("\n".join(["a,b", *good, *bad, *mixed, *good]) + "\n")
    source = Csv(path=str(tmp_path / "a.csv"))
    unit, = source.units()
    failed, rows = [], 0
    for item in source.read(unit):
        if isinstance(item, Outputs):
            failed.append(item["failed"].rows.column("offset").to_pylist())
        else:
            rows += len(item)
    assert rows == 700
    assert [n for some in failed for n in some] == [*range(101, 5101), *range(5102, 6102, 2)]
    assert max(map(len, failed)) < 1000


def test_a_row_bigger_than_a_block_is_read_with_bigger_blocks(table, monkeypatch):
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 100)
    found = table(b"a,b\n" + b"1,2\n" * 50 + b"bad\n3," + b'"' + b"x\n" * 500 + b'"\n4,5\nbad\n')
    assert len(found.good) == 52
    assert [f["offset"] for f in found.failed] == [51, 54]


def test_a_row_bigger_than_the_limit_says_that_the_rest_is_not_read(table):
    found = table(b"a,b\n" + b"1,2\n" * 50 + b'3,"' + b"x\n" * 500 + b'"\n4,5\n', max_record_bytes=300)
    assert len(found.good) == 50
    assert "row=51: the row has more than max_record_bytes (300)" in found.failed[0]["error"]
    assert "The rest of the file cannot be read" in found.failed[0]["error"]


def test_a_truncated_archive_gives_the_rows_before_the_damage(table):
    packed = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(20_000)))
    found = table(packed[:len(packed) // 2], "a.csv.gz")
    assert values(found) == [(str(n), str(n * n)) for n in range(len(found.good))]
    assert len(found.good) > 5000
    assert len(found.failed) == 1
    assert f"row={len(found.good) + 1}: " in found.failed[0]["error"]
    assert "is damaged after" in found.failed[0]["error"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"a,b\n", b"\xef\xbb\xbfa,b\r\n"])
@pytest.mark.parametrize("quote", ['"', None])
def test_files_without_rows(table, content, quote):
    found = table(content, quote=quote)
    assert found.good == found.failed == []


def test_a_byte_order_mark_is_no_part_of_the_first_name(table):
    assert "a" in table(b"\xef\xbb\xbfa,b\n1,2\n").good[0]


def test_tabs_and_other_delimiters(table):
    assert values(table(b"a\tb\n1\t2\n", "a.tsv")) == [("1", "2")]
    assert values(table(b"a;b\n1;2\n", delimiter=";")) == [("1", "2")]
    with pytest.raises(InputError, match=r"has only one column, 'a;b'. Set delimiter: ';'"):
        table(b"a;b\n1;2\n")
    assert values(table(b"a;b\n1;2\n", delimiter=",")) == [("1;2",)]


def test_names_without_a_header_and_names_that_come_twice(table):
    assert set(table(b"1,2\n", names=["x", "y"]).good[0]) == {"id", "source", "x", "y"}
    assert set(table(b"a,a,_a,\n1,2,3,4\n").good[0]) == {"id", "source", "a", "a_2", "a_", ""}
    assert set(table(b"a,a_3,a\n1,2,3\n").good[0]) == {"id", "source", "a", "a_3", "a_4"}


def test_without_quotes_a_big_file_is_split_and_each_row_comes_once(tmp_path, read_all):
    path = tmp_path / "a.csv"
    path.write_bytes(b"n,t\r\n" + b"".join(b'%d,"t\r\n' % n if n % 9 else b"bad\r\n" for n in range(2000)))
    whole = read_all(Csv(path=str(path), quote=None))
    split = Csv(path=str(path), quote=None, unit_bytes=700)
    assert len(split.units()) > 10
    found = read_all(split)
    assert found.good == whole.good
    assert found.failed == whole.failed
    assert [int(n) for n in found.column("n")] == [n for n in range(2000) if n % 9]
    assert found.column("t")[0] == '"t'
    assert len(found.failed) == 223


def test_a_carriage_return_inside_a_line_does_not_shift_rows(table):
    found = table(b"a,b\n1,2\n3,\r4\n5,6\n7\n8,9\n", quote=None)
    assert values(found) == [("1", "2"), ("5", "6"), ("8", "9")]
    assert [f["raw"] for f in found.failed] == ["3,\r4", "7"]


def test_select_and_columns(tmp_path, read_all):
    (tmp_path / "a.csv").write_bytes(b"id,t,n\nx,1,2\n")
    (tmp_path / "b.csv").write_bytes(b"id,t,more\ny,1,2\n")
    source = Csv(path=str(tmp_path), types={"n": "int"})
    assert source.columns() == {"id": pa.string(), "t": pa.string(), "n": pa.int64(), "more": pa.string(),
                                "source": pa.string()}
    assert [(r["n"], r["more"]) for r in read_all(source).good] == [(2, None), (None, "2")]
    assert set(read_all(Csv(path=str(tmp_path), select=["t"])).good[0]) == {"id", "source", "t"}
    with pytest.raises(InputError, match=r"no column 'tt' \(did you mean 't'\?\)"):
        Csv(path=str(tmp_path), select=["tt"]).units()
    with pytest.raises(InputError, match=r"types: there is no column 'm' in .*a.csv. There are: id, t, n"):
        Csv(path=str(tmp_path / "a.csv"), types={"m": "int"}).units()


@pytest.mark.parametrize("content", [b"\xff\xfea\x00,\x00b\x00\n", b"\x00\x01\x02,\x00\n"])
def test_binary_files_are_told_before_anything_runs(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match="its first line is not UTF-8 text"):
        Csv(path=str(tmp_path)).units()


@pytest.mark.parametrize(("parameters", "message"), [
    ({"delimiter": "::"}, "delimiter must be one"), ({"quote": ""}, "quote must be one"),
    ({"types": {"a": "wat"}}, "column 'a' has the unknown type 'wat'"), ({"max_record_bytes": 0}, "max_record_bytes"),
])
def test_nonsense_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        Csv(path="x", **parameters)
