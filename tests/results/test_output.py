"""A run's folder as one table: what is found, what is widened, and what is refused."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator import CuratorError, load, read, write
from curator.results import RunOutput
from curator.run.folder.ledger_files import LedgerFiles, to_line, to_record
from curator.stages import Drop

ROWS = [{"id": "a/1\n", "text": "<script>alert(1)</script>", "n": 1, "select": 5}, {"id": "b", "text": "b b", "n": 60, "select": 7},
        {"id": "c", "text": "c", "n": 70, "select": 9}, {"id": "d", "text": "b b", "n": 80, "select": 9}]


def given(folder, rows=ROWS):
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "in.jsonl"


def ran(folder, written="parquet", steps="[drop: {few: n < 50}, dedup.exact]", **options):
    load(f"read: {{jsonl: {{path: {given(folder)}}}}}\nsteps: {steps}\nwrite: {written}\nout: {folder}/out\n"
         "name: looked").run(workers=0, **options)
    return RunOutput.open(str(folder / "out"))


def count(output, where="true"):
    with output.connect() as db:
        return db.execute(f"SELECT count(*) FROM records WHERE {where}").fetchone()[0]


@pytest.mark.parametrize("written", ["parquet", "jsonl", "{jsonl: {compression: gz}}", "{jsonl: {compression: zst}}", "csv",
                                     "{csv: {delimiter: '\t'}}", "{csv: {delimiter: ;}}"])
def test_all_records_of_a_run_are_one_table_whatever_was_written(tmp_path, written):
    output = ran(tmp_path, written.replace("\t", "\\t").replace("'", '"'))
    with output.connect() as db:
        rows = db.execute("SELECT id, _place, _stage, reason, duplicate_of, n, \"select\" + 1, _file FROM records ORDER BY id").fetchall()
        assert [r[:7] for r in rows] == [
            ("a/1\n", "dropped", "drop", "few", None, 1, 6),
            ("b", "data", output.places[0].stage, None, None, 60, 8), ("c", "data", output.places[0].stage, None, None, 70, 10),
            ("d", "duplicate", "dedup.exact", None, "b", 80, 10)]
        assert {r[7] for r in rows} == {file for place in output.places for file in place.files}
        assert db.execute("SELECT count(*) FROM records WHERE n < 65").fetchone() == (2,)  # numbers, also in CSV
    assert output.order()[:3] == ("jsonl", "drop", "dedup.exact")
    assert output.behind("drop") == {"dedup.exact", output.order()[-1]}
    assert [step.stage.name for step in output.graph().nodes()][1] == "drop"


def test_a_connection_reads_the_files_of_the_run_and_no_others(tmp_path):
    output = ran(tmp_path)
    (tmp_path / "other.csv").write_text("a\n1\n")
    pq.write_table(pa.table({"id": ["stray"]}), tmp_path / "out" / "data" / "stray.parquet")
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    with output.connect() as db:
        for sql in (f"SELECT * FROM read_csv('{tmp_path}/other.csv')", f"SELECT * FROM read_text('{tmp_path}/out/_run/stats.json')",
                    f"COPY records TO '{tmp_path}/copied.parquet'", f"ATTACH '{tmp_path}/new.db'", "INSTALL httpfs",
                    "SET enable_external_access = true"):
            with pytest.raises(Exception, match=r"(?i)permission|disabled|locked|cannot change"):
                db.execute(sql)
    assert count(output) == 4  # what no ledger names is no record
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before


def test_columns_of_several_types_are_widened_or_made_text(tmp_path):
    output = ran(tmp_path, steps="[{drop: {few: n < 65}}]")
    files = [place.files[0] for place in output.places]
    data, dropped = (tmp_path / "out" / file for file in files)
    pq.write_table(pa.table({"id": ["b", "c"], "n": [1.5, 2.0], "l": [{"a": 1}, None], "Text": ["x", "y"], "text": ["u", "v"],
                             "raw": [b"\xff", b"\0"]}), data)
    pq.write_table(pa.table({"id": ["a", "d"], "n": [7, 8], "l": [[1], [2]], "reason": ["few", "few"], "raw": ["a", "b"],
                             "none": pa.nulls(2)}), dropped)
    with output.connect() as db:
        assert db.execute("SELECT n, l FROM records ORDER BY id").fetchall() == [(7.0, "[1]"), (1.5, '{"a":1}'), (2.0, None), (8.0, "[2]")]
        assert db.execute("SELECT none, text, reason FROM records WHERE id = 'b'").fetchall() == [(None, "x", None)]
        assert isinstance(db.execute("SELECT raw FROM records WHERE id = 'b'").fetchone()[0], str)


def test_files_of_one_place_may_differ_too(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "a", "x": {"y": 1}}\n')
    (tmp_path / "b.jsonl").write_text('{"id": "b", "x": [1]}\n')
    made = [read(str(tmp_path / f"{name}.jsonl")) >> Drop(conditions={"never": "id = ''"}).with_(name=name) for name in "ab"]
    ((made[0] >> write(None, "parquet").with_(name="one")) + (made[1] >> write(None, "parquet").with_(name="two"))).run(
        out=str(tmp_path / "out"), workers=0)
    output = RunOutput.open(str(tmp_path / "out"))
    assert [(p.kind, p.stage, p.rows) for p in output.places] == [("data", "one", 1), ("data", "two", 1)]
    with output.connect() as db:
        assert db.execute("SELECT id, x, _stage FROM records ORDER BY id").fetchall() == [
            ("a", '{"y":1}', "one"), ("b", "[1]", "two")]


def test_units_that_did_not_end_do_not_count(tmp_path):
    output = ran(tmp_path)
    ledger = LedgerFiles(output.folder.sub("_run/ledger"))
    ((_, _, line),) = list(ledger.units())
    record = to_record(line)
    record.redo = True
    ledger.add([to_line(record)], lambda: ledger.states[0])
    again = RunOutput.open(str(tmp_path / "out"))
    assert again.places == ()
    assert count(again) == 0


def test_a_run_that_was_killed_says_so_and_shows_what_it_had(tmp_path):
    output = ran(tmp_path)
    stats = output.stats | {"status": "running", "alive": {"time": 0.0, "pid": 999_999, "host": "elsewhere"}}
    (tmp_path / "out" / "_run" / "stats.json").write_text(json.dumps(stats))
    killed = RunOutput.open(str(tmp_path / "out"))
    assert killed.stats["status"] == "killed"
    assert count(killed) == 4


def test_what_failed_in_a_run_that_stopped_is_there(tmp_path):
    rows = [{"id": str(i), "n": "x" if i else "1"} for i in range(8)]
    load(f"read: {{jsonl: {{path: {given(tmp_path, rows)}}}}}\nsteps: [{{drop: {{few: CAST(n AS INTEGER) < 1}}}}]\nwrite: parquet\n"
         f"out: {tmp_path}/out\nmax_failed: 2").run(workers=0, check=False)
    output = RunOutput.open(str(tmp_path / "out"))
    assert output.stats["status"] == "stopped"
    assert [(p.kind, p.stage, p.evidence) for p in output.places] == [("failed", "drop", True)]
    assert count(output, "error LIKE '%Could not convert%'") == count(output) > 0


def test_an_empty_run_and_one_in_memory_can_be_asked(tmp_path):
    (tmp_path / "in.jsonl").write_text("")
    for out in (str(tmp_path / "out"), "memory://looked/out"):
        load(f"read: {{jsonl: {{path: {tmp_path}/in.jsonl}}}}\nwrite: parquet").run(workers=0, out=out)
        assert count(RunOutput.open(out)) == 0
    (read(str(given(tmp_path))) >> write("memory://looked/full")).run(workers=0)
    output = RunOutput.open("memory://looked/full")
    assert count(output, "starts_with(_file, 'data/part-')") == 4


@pytest.mark.parametrize("metadata", [True, False])
def test_samples_of_archives_have_their_columns_and_their_bytes(tmp_path, metadata):
    pq.write_table(pa.table({"id": ["a", "ü", "c"], "bytes": [b"AAAA", b"", b"C" * 3000], "extension": ["jpg", "png", "jpg"],
                             "n": [1, 60, 70], "txt": ["one", None, "three"]}), tmp_path / "in.parquet")
    load(f"read: {{parquet: {{path: {tmp_path}/in.parquet}}}}\nsteps: [{{drop: {{few: n < 50}}}}]\n"
         f"write: {{webdataset: {{metadata: {json.dumps(metadata)}}}}}\nout: {tmp_path}/out").run(workers=0)
    output = RunOutput.open(str(tmp_path / "out"))
    assert output.places[0].format == "webdataset"
    assert not output.unread
    with output.connect() as db:
        rows = db.execute("SELECT id, n, txt, key, _file FROM records WHERE _place = 'data' ORDER BY n").fetchall()
    assert [row[:3] for row in rows] == [("ü", 60, None), ("c", 70, "three")]
    first, second = (output.media(row[4], row[3])[0] for row in rows)
    assert (first.ending, first.size, second.ending) == ("png", 0, "jpg")
    with open(second.path, "rb") as file:
        file.seek(second.offset)
        assert file.read(second.size) == b"C" * 3000
    assert output.media(rows[0][4], "nobody") == ()


def test_a_folder_without_a_run_says_what_it_is(tmp_path):
    with pytest.raises(CuratorError, match="does not exist"):
        RunOutput.open(str(tmp_path / "nothing"))
    with pytest.raises(CuratorError, match=r"holds no run.*_run/stats\.json"):
        RunOutput.open(str(tmp_path))
    output = ran(tmp_path)
    with pytest.raises(CuratorError, match=rf"did you mean {tmp_path}/out\?"):
        RunOutput.open(str(tmp_path / "out" / "data"))
    with pytest.raises(CuratorError, match="no stage 'dorp'; it has jsonl, drop"):
        output.stage("dorp")
    os.remove(tmp_path / "out" / output.places[0].files[0])
    with pytest.raises(CuratorError, match="cannot be read"):
        output.connect()
    for ledger in (tmp_path / "out" / "_run" / "ledger").iterdir():
        ledger.write_bytes(ledger.read_bytes()[:-40])
    with pytest.raises(CuratorError, match=r"ledger/.* is damaged.*ends in the middle of a line"):
        RunOutput.open(str(tmp_path / "out")).places  # noqa: B018
    (tmp_path / "out" / "_run" / "stats.json").write_text("{")
    with pytest.raises(CuratorError, match="damaged"):
        RunOutput.open(str(tmp_path / "out"))
