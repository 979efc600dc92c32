"""`curator new`: what it writes runs and passes the kit as it is, and nothing is overwritten."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from curator import InputError, load
from curator.cli.main import main

METADATA = """
import os, sys
from setuptools.build_meta import prepare_metadata_for_build_wheel
_, project, to = sys.argv
os.chdir(project)
os.mkdir(to)
prepare_metadata_for_build_wheel(to)
"""


@pytest.fixture
def curator(tmp_path, monkeypatch):
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*args, code=0):
        result = CliRunner().invoke(main, args)
        assert result.exit_code == code, result.output
        return result.output

    return run


def test_a_new_pack_passes_its_own_tests(curator, tmp_path):
    said = curator("new", "pack", "sea_ice")
    folder = tmp_path / "curator-sea-ice"
    assert set(said.split("\n\n")[0].splitlines()) == {str(p.relative_to(tmp_path)) for p in folder.rglob("*") if p.is_file()}
    installed = tmp_path / "installed"  # the metadata that pip would write, without waiting for pip
    subprocess.run([sys.executable, "-c", METADATA, str(folder), str(installed)], check=True, capture_output=True)
    places = [str(folder), str(installed), *filter(None, sys.path)]
    alone = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=folder, env=alone,
                           capture_output=True, text=True, check=False)
    assert "3 passed" in tests.stdout, tests.stdout + tests.stderr


@pytest.mark.parametrize(("name", "why"), [
    ("Sea-ice", "small letters"), ("1st", "small letters"), ("class", "small letters"), ("core", "is installed already"),
    ("drop", "is the name of a stage"), ("text_length", "is the name of a stage")])
def test_a_pack_has_a_name_that_is_free(curator, tmp_path, name, why):
    assert why in curator("new", "pack", name, "there", code=2)
    assert not any(tmp_path.iterdir())


def test_nothing_is_overwritten(curator, tmp_path):
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert "mine is not empty" in curator("new", "pack", "geo", "mine", code=2)
    Path("first.jsonl").write_text("mine")
    assert "first.jsonl is there already" in curator("new", "recipe", "first", code=2)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["first.jsonl", "mine", "notes.txt"]


@pytest.mark.parametrize("name", ["first", "2024 no. 1", "null"])
def test_a_new_recipe_runs(curator, name):
    assert f"curator run {shlex.quote(name + '.yaml')}" in curator("new", "recipe", name)
    assert "# What is read: text (string)" in Path(f"{name}.yaml").read_text()
    pipeline = load(f"{name}.yaml")
    assert pipeline.name == name
    records = pipeline.run(workers=0).records
    assert records["written"] + records["duplicate"] == 3
    assert records["dropped"] == 1


@pytest.mark.parametrize("columns", [{"order": ['say "x"', None]}, {"it's": [1, None], "x": [[1], [2]]}], ids=["text", "numbers"])
def test_a_new_recipe_is_about_the_columns_that_are_there(curator, columns):
    Path("in").mkdir()
    pq.write_table(pa.table(columns), "in/part.parquet")
    curator("new", "recipe", "mine", "--read", "in/")
    records = load("mine.yaml").run(workers=0).records
    assert (records["written"], records["dropped"]) == (1, 1)


def test_a_new_recipe_like_a_packaged_one_keeps_its_comments(curator, tmp_path):
    Path("pages").mkdir()
    Path("pages/a.txt").write_text("word " * 60)
    assert "text/documents" in curator("new", "recipe", "mine", "--read", "pages", code=2)
    curator("new", "recipe", "mine", "--read", "pages", "--like", "text/documents")
    text = Path("mine.yaml").read_text()
    assert "name: mine" in text
    assert 'path: pages ' in text
    assert "# broken characters" in text
    Path("a.jsonl").write_text('{"text": "one"}\n')
    curator("new", "recipe", "table", "--read", "a.jsonl", "--like", "text/documents")
    assert 'jsonl: {path: "a.jsonl"}' in Path("table.yaml").read_text().replace('{"jsonl": {"path":', 'jsonl: {path:')
    load("table.yaml")
    assert "text/wikipedia has no read.path" in curator("new", "recipe", "x", "--read", "a.txt", "--like", "text/wikipedia", code=2)
    said = curator("new", "recipe", "x", "--read", "a.txt", "--like", "text/common-crawl", code=2)
    assert "takes no path, so it cannot read a.txt" in said


@pytest.mark.parametrize(("recipe", "file", "said"), [
    ("image/quality", "a.jsonl", "read by these packaged recipes: "), ("text/web", "b.mp4", "audio/speech, video/"),
    ("text/web", "c.xyz", "no packaged recipe reads files that end in .xyz"), ("text/documents", "d.md", "")], ids=lambda value: value[:14])
def test_who_reads_what_this_recipe_does_not_is_told(tmp_path, recipe, file, said):
    from curator.recipe.inputs import other_recipes

    (tmp_path / file).write_text("x")
    assert said in (other_recipes(recipe, str(tmp_path)) or "")


def test_a_run_over_files_of_another_kind_says_which_recipes_read_them(curator):
    Path("papers").mkdir()
    Path("papers/a.md").write_text("x")
    said = curator("run", "image/quality", "papers", "--out", "out", code=2)
    assert "has no .jpg or" in said
    assert "more endings" in said
    assert "files that end in .md are read by these packaged recipes: text/" in said


@pytest.mark.parametrize("given", ["docs", "docs/a.jsonl"])
def test_data_in_the_place_of_a_recipe_is_told_from_one(curator, given):
    Path("docs").mkdir()
    Path("docs/a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    said = curator("run", given, code=2)
    assert f"the recipe stands before it: RECIPE {given}" in said
    assert "files that end in .jsonl are read by these packaged recipes: " in said


@pytest.mark.parametrize("read", ["jsonl: {path: nothing.jsonl}", "jsonl: nothing.jsonl", "parquet: nothing/", "text.files: docs/"])
def test_an_input_stands_in_the_place_of_what_a_recipe_reads_however_that_is_written(curator, read):
    Path("a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    Path("r.yaml").write_text(f"read: {{{read}}}\nwrite: jsonl\n")
    assert "2 in = 2 written" in curator("run", "r.yaml", "a.jsonl", "--out", "out", "--workers", "0")


@pytest.mark.parametrize("read", ["text.files", "{text.files: docs/}", "{text.files: {path: docs/}}"])
def test_the_same_files_of_a_folder_are_read_however_a_recipe_names_its_reader(curator, read):
    Path("in").mkdir()
    for name, text in (("a.jsonl", '{"text": "one"}'), ("b.jsonl", '{"text": "two"}'), ("c.txt", "three")):
        Path("in", name).write_text(text)
    for name in ("d.csv", "e.csv", "f.parquet", "g.parquet"):  # many kinds that come before its own
        Path("in", name).touch()
    Path("r.yaml").write_text(f"read: {read}\nwrite: jsonl\n")
    assert "1 in = 1 written" in curator("run", "r.yaml", "in", "--out", "out", "--workers", "0")


@pytest.mark.parametrize("named", ["in", "in/*"])
def test_a_folder_of_tables_is_read_by_its_files_where_a_recipe_reads_other_tables(curator, named):
    Path("in").mkdir()
    Path("in/a.csv").write_text("text\none\ntwo\n")
    Path("r.yaml").write_text("read: {jsonl: {path: nothing.jsonl}}\nwrite: jsonl\n")
    assert "2 in = 2 written" in curator("run", "r.yaml", named, "--out", "out", "--workers", "0")
    Path("in/b.jsonl").write_text('{"text": "one"}\n')  # its own come first, and the others are told
    assert "not read: 1 .csv" in " ".join(curator("run", "r.yaml", "in", "--out", "more", "--workers", "0").split())


@pytest.mark.parametrize(("recipe", "told"), [("text/web", ["name what it is to read: text/web INPUT…"]), ("text/common-crawl", [])])
def test_a_packaged_recipe_is_told_to_want_an_input_only_where_it_takes_one(recipe, told):
    from curator.cli.loading import told_what_reads

    with pytest.raises(InputError) as raised, told_what_reads(recipe, ()):
        raise InputError("nothing is there")
    assert getattr(raised.value, "__notes__", []) == told
    with pytest.raises(InputError) as raised, told_what_reads(recipe, (), ("read={jsonl: {path: a.jsonl}}",)):
        raise InputError("what is named there cannot be read")
    assert not getattr(raised.value, "__notes__", [])


def test_an_input_for_a_recipe_whose_reader_takes_none_is_told_without_a_set_that_nobody_wrote(curator):
    said = curator("run", "text/common-crawl", "docs", "--out", "out", code=2)
    assert "text/common-crawl reads by text.common_crawl, which takes no path, so it cannot read docs" in said
    assert "--set read.path" not in said
    Path("r.yaml").write_text("read: 5\nwrite: jsonl\n")
    assert "r.yaml:1: read: expected a name" in curator("run", "r.yaml", "a.jsonl", "--out", "out", code=2)


def test_a_recipe_that_reads_some_of_the_files_is_not_told_as_the_wrong_one(curator, tmp_path):
    from curator.recipe.inputs import other_recipes

    for name in ("a.wav", "b.wav", "c.pdf", "d.pdf", "e.md", "f.md", "g.warc.gz"):
        (tmp_path / name).write_text("x")
    assert other_recipes("text/web", str(tmp_path)) is None
    (tmp_path / "g.warc.gz").unlink()
    assert "are read by these packaged recipes" in str(other_recipes("text/web", str(tmp_path)))
