"""The output as others read it: pyarrow, DuckDB, pandas and `datasets`, by way of the card."""

import json
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from curator_dedup import DedupExact

from curator import CuratorError, read, write
from curator.cli.main import main
from curator.stages import Checkpoint, Drop


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A working folder with ten records, one of them there twice."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    texts = ["x" * n for n in range(10)] + ["x" * 9]
    Path("in/a.jsonl").write_text("".join(json.dumps({"id": str(i), "text": t}) + "\n" for i, t in enumerate(texts)))


@pytest.fixture
def load(tmp_path, monkeypatch):
    """`datasets.load_dataset` without a network, as {column: values} of the one split that it gives."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    datasets = pytest.importorskip("datasets")

    def rows(*words, **options):
        return datasets.load_dataset(*words, split="train", cache_dir=str(tmp_path / "hf"), **options).to_dict()

    return rows


def kept():
    return read("in/a.jsonl") >> Drop(conditions={"short": "length(text) < 3"}) >> DedupExact(column="text")


LEFT = [str(i) for i in range(3, 10)]


def test_a_parquet_sink(load):
    pandas = pytest.importorskip("pandas")
    assert (kept() >> write("out", format="parquet")).run(workers=0).ok
    assert pq.read_table("out/data").column("id").to_pylist() == LEFT
    assert duckdb.sql("SELECT id FROM 'out/data/**/*.parquet' ORDER BY id").fetchall() == [(i,) for i in LEFT]
    assert pandas.read_parquet("out/data")["id"].tolist() == LEFT
    assert load("out")["id"] == LEFT
    assert load("out", "data")["id"] == LEFT
    assert load("out", "dropped")["reason"] == ["short"] * 3
    assert load("out", "duplicate")["duplicate_of"] == ["9"]
    with pytest.raises(ValueError, match="failed"):
        load("out", "failed")


@pytest.mark.parametrize("compression", ["zst", "gz", "none"])
def test_a_jsonl_sink_has_configs_of_its_own_format_only(load, compression):
    pandas = pytest.importorskip("pandas")
    assert (kept() >> write("out", compression=compression)).run(workers=0).ok
    (file,) = Path("out/data").iterdir()
    assert pandas.read_json(file, lines=True, dtype={"id": str})["id"].tolist() == LEFT
    assert duckdb.sql("SELECT id FROM read_json_auto('out/data/**/*.jsonl*') ORDER BY id::INT").fetchall() == [(i,) for i in LEFT]
    assert load("out")["id"] == LEFT
    assert "config_name: dropped" not in Path("out/README.md").read_text()
    how = 'load_dataset("parquet", data_files="dropped/**/*.parquet")'
    assert how in Path("out/README.md").read_text()
    os.chdir("out")
    assert load("parquet", data_files="dropped/**/*.parquet")["id"] == ["0", "1", "2"]


def test_two_sinks_have_a_config_each_and_the_first_is_the_default(load):
    recipe = ("name: two\nread: {jsonl: {path: in/a.jsonl}}\nsteps: [{drop: {short: length(text) < 3}}, "
              "{dedup.exact: {column: text}}, {route: {long: length(text) > 6, rest: 'true'}}]\nwrite: {parquet: {}}\n"
              "branches: {rest: {write: parquet}}\nout: out\n")
    Path("recipe.yaml").write_text(recipe.replace("{parquet: {}}", "{parquet: {}, with: {name: long}}"))
    assert CliRunner().invoke(main, ["run", "recipe.yaml", "--workers", "0", "-q"]).exit_code == 0
    assert pq.read_table("out/data/long").num_rows == 3
    assert pq.read_table("out/data").num_rows == 7
    assert load("out")["id"] == load("out", "long")["id"] == ["7", "8", "9"]
    assert load("out", "rest")["id"] == ["3", "4", "5", "6"]
    assert load("out", "dropped")["id"] == ["0", "1", "2"]


def test_stages_that_drop_rows_with_other_columns_are_loaded_together(load):
    recipe = ("name: r\nread: {jsonl: {path: in/a.jsonl}}\nsteps: [{drop: {short: length(text) < 3}}, "
              "{map: {chars: length(text), tags: \"[text, 'b']\"}}, {drop: {even: chars % 2 = 0}}]\nwrite: parquet\nout: out\n")
    Path("recipe.yaml").write_text(recipe)
    assert CliRunner().invoke(main, ["run", "recipe.yaml", "--workers", "0", "-q"]).exit_code == 0
    found = load("out", "dropped")
    assert dict(zip(found["id"], found["chars"], strict=True)) == {"0": None, "1": None, "2": None, "4": 4, "6": 6, "8": 8}
    assert load("out")["chars"] == [3, 5, 7, 9, 9]


def test_nothing_written_is_never_taken_for_what_was_dropped(load):
    assert (read("in/a.jsonl") >> Drop(conditions={"all": "true"}) >> write("out", format="parquet")).run(workers=0).ok
    with pytest.raises((ValueError, FileNotFoundError)):
        load("out")


def test_what_a_card_says():
    recipe = ("name: my-corpus\ndescription: Ten of them.\nlicense: cc0-1.0\nread: {jsonl: {path: in/*.jsonl}}\n"
              "steps: [{drop: {'a|b': length(text) < 3}}]\nwrite: parquet\nout: out\n")
    Path("recipe.yaml").write_text(recipe)
    assert CliRunner().invoke(main, ["run", "recipe.yaml", "--workers", "0", "-q"]).exit_code == 0
    card = Path("out/README.md").read_text()
    for part in ("license: cc0-1.0\n", "# my-corpus\n", "Ten of them.", "| drop | 11 | 8 | a\\|b 3 |",
                 "jsonl: in/*.jsonl (1 part, ", "| `text` | string |", "11 in = 8 written + 3 dropped."):
        assert part in card
    assert "not complete" not in card
    assert "license: cc0-1.0" in Path("out/_run/recipe.yaml").read_text()


def test_a_licence_is_not_made_up():
    Path("in/b.jsonl").write_text('{"id": "b", "text": "b", "license": "mit"}\n')
    assert (kept() >> write("out", format="parquet")).run(workers=0).ok
    assert "icen" not in Path("out/README.md").read_text()
    assert (read("in/b.jsonl") >> write("b", format="parquet")).run(workers=0).ok
    assert "Each record's own, in its column `license`." in Path("b/README.md").read_text()


def test_a_run_that_stops_early_says_so():
    done = (read("in/a.jsonl") >> Drop(conditions={"x": "CAST(text AS INTEGER) > 0"}) >> write("out", format="parquet")).run(
        workers=0, check=False)
    assert not done.ok
    assert "**This run is not complete: " in Path("out/README.md").read_text()


def test_a_card_that_somebody_edited_stays_and_one_as_we_wrote_it_is_written_anew():
    pipeline = kept() >> write("out", format="parquet")
    pipeline.run(workers=0)
    Path("in/b.jsonl").write_text('{"id": "b", "text": "something new"}\n')
    more = read("in/*.jsonl") >> Drop(conditions={"short": "length(text) < 3"}) >> DedupExact(column="text")
    more = more >> write("out", format="parquet")
    more.run(workers=0)
    card = Path("out/README.md").read_text()
    assert "12 in = 8 written" in card
    Path("out/README.md").write_text(card.replace("# pipeline", "# Mine"))
    Path("in/c.jsonl").write_text('{"id": "c", "text": "and more"}\n')
    told = more.run(workers=0).stats["alarms"]
    assert Path("out/README.md").read_text() == card.replace("# pipeline", "# Mine")
    assert any("README.md was edited" in alarm["text"] for alarm in told)


def test_a_link_in_the_place_of_the_card_is_not_followed():
    pipeline = kept() >> write("out", format="parquet")
    pipeline.run(workers=0)
    Path("out/README.md").rename("mine.md")
    Path("out/README.md").symlink_to(Path("mine.md").absolute())
    before = Path("mine.md").read_text()
    Path("in/a.jsonl").write_text('{"id": "b", "text": "something new"}\n')
    pipeline.run(workers=0)
    assert Path("mine.md").read_text() == before


def test_shards_are_loaded_from_the_archives_and_described_from_the_tables_beside_them(load):
    table = pa.table({"id": ["a", "b"], "key": ["a", "b"], "text": ["one", "two"], "bytes": [b"1", b"2"],
                      "extension": ["jpg"] * 2})
    pq.write_table(table, "in/m.parquet")
    assert (read("in/m.parquet") >> write("out", format="webdataset")).run(workers=0).ok
    card = Path("out/README.md").read_text()
    assert "data_files: data/**/*.tar" in card
    assert load("out")["__key__"] == ["a", "b"]
    assert "| `text` | string |" in card


def test_a_users_own_readme_is_refused():
    Path("out").mkdir()
    Path("out/README.md").write_text("mine")
    with pytest.raises(CuratorError, match=r"out has README.md"):
        (kept() >> write("out", format="parquet")).run(workers=0)
    assert Path("out/README.md").read_text() == "mine"


def test_a_checkpoint_is_no_source_also_where_an_edit_begins_at_it():
    for least in (3, 4):
        steps = read("in/a.jsonl") >> Drop(conditions={"empty": "text IS NULL"}) >> Checkpoint()
        assert (steps >> Drop(conditions={"short": f"length(text) < {least}"}) >> write("out")).run(workers=0, replace=True).ok
        card = Path("out/README.md").read_text()
        assert card.partition("## Sources")[2].partition("##")[0].strip() == "- jsonl: in/a.jsonl (1 part, 319 B)"
