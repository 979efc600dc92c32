"""The command line as a user meets it: what it prints, how it ends, and what it says when something is wrong."""

import errno
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from curator.cli.main import main
from curator.io.files.local import LocalFiles

RECIPE = """
name: short ones
read: {jsonl: {path: in/*.jsonl}}
steps:
  - map: {length: length(text)}
  - drop: {too_short: length < 5}
  - dedup.exact: {column: text}
write: {jsonl: {path: out, compression: none}}
max_failed: 50%
"""
DOCUMENTS = [{"id": "a", "text": "a long text"}, {"id": "b", "text": "tiny"}, {"id": "c", "text": "a long text"},
             {"id": "d", "text": "another text"}]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS))
    return tmp_path


def curator(*words: str):
    return CliRunner().invoke(main, list(words))


def run(*words: str):
    return curator("run", "recipe.yaml", "--workers", "0", *words)


def written(folder):
    return [json.loads(line) for p in (folder / "out/data").glob("part-*") for line in p.read_text().splitlines()]


def test_run_ends_with_the_funnel(folder):
    done = run()
    assert done.exit_code == 0, done.output
    for told in ("records in", "too_short", "duplicate", "records written", "4 in = 2 written + 1 dropped + 1 duplicate"):
        assert told in done.output
    rows = written(folder)
    assert {r["id"] for r in rows} == {"a", "d"}
    assert rows[0].keys() == {"id", "source", "text", "length"}


def test_show_tells_it_again(folder):
    run()
    shown = curator("show", "out")
    assert "4 in = 2 written + 1 dropped + 1 duplicate" in shown.output
    assert json.loads(curator("show", "out", "--json").output)["records"]["written"] == 2


def test_out_and_set_change_the_recipe(folder):
    done = run("--out", "elsewhere", "--set", "steps.drop.too_short=length < 1")
    assert done.exit_code == 0, done.output
    assert "4 in = 3 written + 1 duplicate" in done.output
    assert not (folder / "out").exists()


@pytest.mark.parametrize("columns", [False, True], ids=["lines", "columns"])
def test_inputs_after_the_recipe_are_read_instead_of_its_own_by_the_reader_that_fits(folder, columns):
    for name in ("x", "y"):
        table = pa.Table.from_pylist([{"id": name, "text": f"the long text of {name}"}])
        if columns:
            pq.write_table(table, folder / f"{name}.parquet")
        else:
            (folder / f"{name}.jsonl").write_text(json.dumps(table.to_pylist()[0]) + "\n")
    suffix = "parquet" if columns else "jsonl"
    done = run(f"x.{suffix}", f"y.{suffix}")
    assert done.exit_code == 0, done.output
    assert sorted(row["id"] for row in written(folder)) == ["x", "y"]


def test_another_reader_of_tables_keeps_the_options_of_the_first_and_a_recipe_that_is_none_is_told(folder):
    (folder / "x.csv").write_text("name,text\nn1,the long text of it\n")
    (folder / "recipe.yaml").write_text(RECIPE.replace("{jsonl: {path: in/*.jsonl}}", "{jsonl: {path: in/*.jsonl, id_column: name}}"))
    done = run("x.csv")
    assert done.exit_code == 0, done.output
    assert [row["id"] for row in written(folder)] == ["n1"]
    (folder / "recipe.yaml").write_text("read: [")
    done = curator("plan", "recipe.yaml", "x.csv")
    assert (done.exit_code, "this is not YAML" in done.output) == (2, True)


def test_plan_reads_nothing_and_says_what_would_run(folder):
    told = curator("plan", "recipe.yaml").output
    assert "reads 1 unit" in told
    assert "needs text" in told
    assert not (folder / "out").exists()


def test_preview_shows_what_each_stage_does_and_writes_nothing(folder):
    told = curator("preview", "recipe.yaml", "3").output
    assert "too_short" in told
    assert "length=11" in told
    assert not (folder / "out").exists()


@pytest.mark.parametrize("words", [["plan"], ["plan", "--probe", "5"], ["profile", "--stage", "signals"]])
def test_a_packaged_recipe_without_an_input_says_where_to_name_it(folder, words):
    assert "curator: name what it is to read: text/web INPUT" in curator(*words, "text/web").output


def test_too_many_failures_are_an_error_that_still_tells_everything(folder):
    (folder / "in/bad.jsonl").write_text('{"id": "x", "text": "some text"}\n{"id": \n{"id": \n')
    done = run("--set", "max_failed=0")
    assert done.exit_code == 2
    assert "failed, more than max_failed = 0 allows" in done.output
    assert run("--set", "max_failed=5").exit_code == 0


@pytest.mark.parametrize(("words", "told"), [
    (["--set", "read.path=nowhere.jsonl"], ["nowhere.jsonl does not exist", "nearest folder"]),
    (["--set", "read.path=in/*.csv"], ["in/*.csv matches no file"]),
    (["--set", "reed.path=x"], ["unknown key 'reed'", "read"]),
    (["--set", "read.path"], ["PATH=VALUE"]),
    (["--set", "steps.drop.too_short=lenght < 5"], ["lenght", "length"]),
    (["--set", "steps.drop.too_short=length <"], ["drop", "length <"]),
    (["--set", "steps.dedup.exact.column=txt"], ["needs 'txt'", "'text'"]),
    (["--set", "max_failed=many"], ["max_failed", "many"]),
    (["--set", "read.path=s4://bucket/x"], ["s4://", "unknown protocol"]),
    (["--out", "/dev/null/out"], ["/dev/null/out"]),
])
def test_what_is_wrong_is_told_before_anything_runs(folder, words, told):
    done = run(*words)
    assert done.exit_code == 2, done.output
    for part in told:
        assert part in done.output
    assert "Traceback" not in done.output
    assert not (folder / "out").exists()


def test_two_sinks_want_one_folder_and_out_moves_what_lies_in_it(folder):
    sinks = "[jsonl, {parquet: {path: old/deep}}, {csv: {path: aside}}]"
    (folder / "recipe.yaml").write_text(f"read: {{jsonl: {{path: in}}}}\nwrite: {sinks}\n")
    done = run()
    assert done.exit_code == 2
    assert "no folder for the run: give `out: FOLDER`" in done.output
    for set_out in (["--out", "new"], ["--set", "out=newer"]):
        (folder / "recipe.yaml").write_text(f"read: {{jsonl: {{path: in}}}}\nwrite: {sinks}\nout: old/\n")
        done = run(*set_out)
        assert done.exit_code == 0, done.output
        new = set_out[1].removeprefix("out=")
        assert [p.suffix for p in (folder / new / "data").iterdir()] == [".zst"]
        assert [p.suffix for p in (folder / new / "deep").iterdir()] == [".parquet"]
        assert "writes to aside, not below" in done.output
        assert not (folder / "old").exists()
        for path in (folder / "aside").iterdir():  # the next run is another output
            path.unlink()


def test_several_sinks_without_paths_have_folders_by_name(folder):
    (folder / "recipe.yaml").write_text(
        "read: {jsonl: {path: in}}\nsteps: [{route: {long: length(text) > 8, short: 'true'}}]\nwrite: parquet\n"
        "branches:\n  short: {write: [jsonl, csv]}\nout: out\n")
    done = run()
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in (folder / "out/data").iterdir()) == ["parquet", "short", "short-2"]


def test_it_must_be_said_where_to_write(folder):
    (folder / "recipe.yaml").write_text("read: {jsonl: {path: in}}\nwrite: jsonl\n")
    done = run()
    assert done.exit_code == 2
    assert "it is not said where to write: give `out: out/`" in done.output
    assert run("--out", "out").exit_code == 0


@pytest.mark.parametrize(("recipe", "told"), [
    ("read: {jsonl: {path: in}}\nsteps:\n  - dorp: {a: 'true'}\nwrite: {jsonl: {path: out}}\n",
     ["recipe.yaml:3", "'dorp'", "drop"]),
    ("read: {jsonl: {path: in}}\nsteps:\n  - sample: {fractoin: 0.5}\nwrite: {jsonl: {path: out}}\n", ["'fractoin'", "fraction"]),
    ("read: {jsonl: {path: in}}\nsteps:\n  - sample: {fraction: half}\nwrite: {jsonl: {path: out}}\n", ["fraction", "half"]),
    ("read: {jsonl: {path: in}}\nsteps: []\n", ["write"]),
    ("read: {jsonl: {path: in}}\nsteps:\n  - route: {a: 'true'}\nbranches:\n  b: {write: {jsonl: {path: o}}}\n"
     "write: {jsonl: {path: out}}\n", ["b"]),
    ("read: {jsonl: {path: in}}\nsteps:\n  - route: {a: 'id > 1', b: 'true'}\nwrite: {jsonl: {path: out}}\nbranches:\n"
     "  a: {steps: [{merge: [b]}], write: {jsonl: {path: o}}}\n  b: {steps: [{merge: [a]}], write: {jsonl: {path: p}}}\n",
     ["merge"]),
])
def test_a_wrong_recipe_says_where_and_what_is_near(folder, recipe, told):
    (folder / "recipe.yaml").write_text(recipe)
    done = run()
    assert done.exit_code == 2, done.output
    for part in told:
        assert part in done.output
    assert "Traceback" not in done.output


def test_nulls_in_the_text_are_dealt_with(folder):
    (folder / "in/null.jsonl").write_text('{"id": "n", "text": null}\n{"id": "m"}\n')
    done = run()
    assert done.exit_code == 0, done.output
    assert "6 in" in done.output


def test_a_file_that_may_not_be_read_is_told(folder, monkeypatch):
    def refuse(self, path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(LocalFiles, "read", refuse)
    done = run()
    assert done.exit_code == 2
    assert "a.jsonl" in done.output
    assert "permission" in done.output.lower()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_cannot_be_written_stops_the_run_which_can_continue(folder, monkeypatch, code):
    replace = os.replace

    def refuse(old, new, **options):
        if "part-" in str(new):
            raise OSError(code, os.strerror(code), str(new))
        return replace(old, new, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        done = run()
    assert done.exit_code == 2
    assert "out" in done.output
    assert {errno.ENOSPC: "space", errno.EACCES: "permission", errno.EROFS: "read-only"}[code] in done.output.lower()
    assert json.loads((folder / "out/_run/stats.json").read_text())["status"] == "stopped"
    assert run().exit_code == 0
    assert "2 written" in curator("show", "out").output


def test_show_of_a_folder_that_holds_no_run(folder):
    done = curator("show", "in")
    assert done.exit_code == 2
    assert "holds no run" in done.output


def test_help_names_every_command():
    told = curator("--help").output
    for command in ("run", "plan", "preview", "stages", "recipes", "show", "doctor"):
        assert command in told
    assert "..." not in told.partition("Commands:")[2]  # a description that is cut tells nothing
