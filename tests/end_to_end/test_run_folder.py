"""The folder of a run: who may write into it, and what an edit does to what is there."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from curator import CuratorError, read, write
from curator.cli.main import main
from curator.front import from_source
from curator.io.tables.jsonl import Jsonl
from curator.stages import Drop


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a.jsonl").write_text("".join(json.dumps({"id": str(i), "text": "x" * i}) + "\n" for i in range(10)))
    return read("in/a.jsonl")


def made(texts, least=3, **named):
    pipeline = texts >> Drop(conditions={"short": f"length(text) < {least}"}) >> write(format="parquet")
    return pipeline.named(named.get("name", "mine"), out="out")


def content(folder):
    return {str(p): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def data(folder="out"):
    return {name: text for name, text in content(folder).items() if "/_run/" not in name and not name.endswith("README.md")}


# -- whose it is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data/mine.txt", "dropped/x", "duplicate/x", "failed/x", "clusters/x", "README.md", "_run/old",
                                  "_run/ledger/00000001.jsonl"])
def test_what_lies_where_a_run_would_write_is_left_alone_and_named(texts, name):
    Path("out", name).parent.mkdir(parents=True)
    Path("out", name).write_text("mine")
    before = content("out")
    with pytest.raises(CuratorError, match=f"out has {name.split('/')[0]}, and no run of this version made it"):
        made(texts).run(workers=0)
    assert content("out") == before


def test_other_things_beside_are_no_trouble(texts):
    Path("out/notes").mkdir(parents=True)
    Path("out/notes/a.txt").write_text("mine")
    assert made(texts).run(workers=0).ok
    assert Path("out/notes/a.txt").read_text() == "mine"


def test_a_start_that_died_before_the_folder_was_its_own_is_no_trouble(texts):
    Path("out/_run").mkdir(parents=True)
    Path("out/_run/lock").touch()
    assert made(texts).run(workers=0).ok


def test_a_sink_elsewhere_finds_nothing_that_others_made(texts):
    Path("aside").mkdir()
    Path("aside/mine.parquet").write_text("mine")
    pipeline = (texts.to(write("aside", format="parquet")) >> write(format="parquet")).named("x", out="out")
    with pytest.raises(CuratorError, match=r"writes to .*aside, and there lies mine.parquet"):
        pipeline.run(workers=0)
    Path("aside/mine.parquet").rename("aside/_mine.parquet")
    assert pipeline.run(workers=0).ok
    assert pipeline.run(workers=0).ok
    with pytest.raises(CuratorError, match=r"writes to .*aside, and there lies part-"):
        pipeline.run(workers=0, out="other")


def test_an_output_does_not_read_itself(texts):
    made(texts).run(workers=0)
    for place in ("out", "out/dropped/drop", "out/data"):
        with pytest.raises(CuratorError, match="a run does not read its own output"):
            (read(place, format="parquet") >> write("out", format="parquet")).run(workers=0)
    again = (read("out", format="parquet") >> write("again")).run(workers=0)
    assert again.records["in"] == 7


def test_one_file_beside_the_files_that_are_read_is_no_input(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"text": "x"}\n')
    source = Jsonl(path=str(tmp_path))
    pipeline = from_source(source) >> write(str(tmp_path / "all.jsonl"))
    for skipped in (0, 1):
        result = pipeline.run(workers=0)
        assert (result.records["in"], result.stats["units"]["skipped"]) == (2, skipped)
        assert source.remarks() == []  # the parts are no files of another kind
    with pytest.raises(CuratorError, match=r"all\.jsonl is read, .* a run does not read its own output"):
        (read([str(tmp_path / "a.jsonl"), str(tmp_path / "all.jsonl")]) >> write(str(tmp_path / "all.jsonl"))).run(workers=0)


# -- ids ------------------------------------------------------------------------------------------------------------


def test_the_names_of_files_have_the_id_of_the_output(texts):
    made(texts).run(workers=0)
    owner = json.loads(Path("out/_run/owner.json").read_text())
    assert len(owner["id"]) == 16
    assert all(name.split("-")[2] == owner["id"] for name in data())


def test_a_moved_folder_goes_on_and_an_edit_there_removes_the_old_files(texts):
    made(texts).run(workers=0)
    Path("out").rename("there")
    assert made(texts).run(workers=0, out="there").stats["units"]["skipped"] == 1
    assert made(texts, least=5).run(workers=0, out="there", replace=True).records["written"] == 5
    assert len(list(Path("there/data").iterdir())) == 1


def test_a_copy_removes_nothing_of_the_original_at_a_place_that_both_know(texts):
    def both(least):
        kept = texts >> Drop(conditions={"short": f"length(text) < {least}"})
        return (kept.to(write("aside", format="parquet")) >> write(format="parquet")).named("x", out="out")

    both(3).run(workers=0)
    shutil.copytree("out", "copy")
    before = data("out") | data("aside")
    assert both(3).run(workers=0, out="copy").ok  # nothing to do
    with pytest.raises(CuratorError, match=r"was made when .*copy lay elsewhere"):
        both(5).run(workers=0, out="copy", replace=True)
    assert data("out") | data("aside") == before
    assert both(5).run(workers=0, replace=True).ok
    assert len(list(Path("aside").iterdir())) == 1


# -- edits ----------------------------------------------------------------------------------------------------------


def test_an_edit_that_removes_results_says_what_goes_and_stops(texts):
    made(texts).run(workers=0)
    before = content("out")
    said = (r"before an edit: drop \(short: length\(text\) < 5, was length\(text\) < 3\)\. Done again, "
            r"as no checkpoint lies before the edit: jsonl, drop, to_parquet "
            r"\(1 unit, 10 records, .* B\)\. Removed first: 2 files with 10 rows \(data 7, dropped/drop 3\), .* kB\. "
            r"Go on with --yes \(in Python replace=True\)")
    with pytest.raises(CuratorError, match=said):
        made(texts, least=5).run(workers=0)
    after = content("out")
    assert all(after[name] == text for name, text in before.items() if "/_run/l" not in name)
    assert made(texts, least=5).run(workers=0, replace=True).records["written"] == 5
    assert made(texts, least=5).run(workers=0).stats["units"]["skipped"] == 1


def test_new_and_changed_inputs_never_ask(texts):
    made(texts).run(workers=0)
    Path("in/a.jsonl").write_text('{"id": "n", "text": "something new"}\n')
    assert made(texts).run(workers=0).records["written"] == 1


def test_another_recipe_is_refused_also_with_yes(texts):
    made(texts).run(workers=0)
    before = data()
    other = made(texts, least=5, name="theirs")
    with pytest.raises(CuratorError, match=r"the results of another recipe, 'mine': 2 files .*say --replace"):
        other.run(workers=0, replace=lambda told: True)
    assert data() == before
    assert other.run(workers=0, replace=True).records["written"] == 5


def test_on_the_command_line(texts):
    recipe = "name: r\nread: {jsonl: {path: in/a.jsonl}}\nsteps: [{drop: {short: length(text) < 3}}]\nwrite: jsonl\nout: out\n"
    Path("recipe.yaml").write_text(recipe)

    def run(*words):
        return CliRunner().invoke(main, ["run", "recipe.yaml", "--workers", "0", *words])

    assert run().exit_code == 0
    assert run().exit_code == 0
    edit = ("--set", "steps.drop.short=length(text) < 5")
    done = run(*edit)
    assert done.exit_code == 2
    assert "before an edit: drop (short: length(text) < 5, was length(text) < 3)" in done.output
    assert run(*edit, "--yes").exit_code == 0
    done = run("--set", "name=another", "--yes")
    assert done.exit_code == 2
    assert "another recipe, 'r'" in done.output
    assert run("--set", "name=another", "--replace").exit_code == 0


def test_what_is_pruned_is_told_before_it_goes(texts):
    Path("in/b.jsonl").write_text('{"id": "b", "text": "something"}\n{"id": "c", "text": "x"}\n')
    Path("recipe.yaml").write_text("name: r\nread: {jsonl: {path: in/}}\nsteps: [{drop: {short: length(text) < 3}}]\n"
                                   "write: jsonl\nout: out\n")

    def run(*words):
        return CliRunner().invoke(main, ["run", "recipe.yaml", "--workers", "0", *words])

    assert run().exit_code == 0
    Path("in/b.jsonl").unlink()
    said = (r"in/b\.jsonl\): 2 files with 12 rows \(data 8, dropped/drop 4\), [\d.]+ kB "
            r"\(other inputs of their units among them, which are read again\)")
    before, stopped = data(), run()
    assert stopped.exit_code == 2
    assert re.search(rf"{said}\. `curator run` with --prune", stopped.output)
    assert data() == before
    done = run("--prune")
    assert done.exit_code == 0
    assert re.search(f"{said} are removed", done.output)
    assert len(list(Path("out/data").iterdir())) == 1
    assert "removed" not in run("--prune").output
