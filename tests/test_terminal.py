"""What the command line shows in 80 columns, and what it completes."""

import re
import subprocess
import sys

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner
from rich.cells import cell_len

from curator import Pipeline, load
from curator.cli.ends import wrapped
from curator.cli.main import main

RECIPE = """
name: corpus
read: {jsonl: {path: %s}}
steps:
  - text.signals: {only: [word_count, mean_word_length, upper_ratio, digit_ratio]}
  - drop: {a_reason_with_a_rather_long_name_of_its_own: word_count < 3 AND mean_word_length < 20 AND upper_ratio < 2}
  - dedup.exact: {column: text}
out: %s
write: jsonl
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of a recipe with long names, the second with another rule."""
    folder = tmp_path_factory.mktemp("a-folder-with-a-rather-long-name")
    texts = ["word " * 40, "word " * 40, "few", "many of the words of this text " * 9, "two more"]
    (folder / "in.jsonl").write_text("".join(f'{{"id": "record-{n}", "text": "{text}"}}\n' for n, text in enumerate(texts)))
    made = []
    for name, few in (("one", "3"), ("two", "50")):
        recipe = RECIPE.replace("< 3", f"< {few}") % (folder / "in.jsonl", folder / name)
        (folder / f"{name}.yaml").write_text(recipe)
        pipeline = load(folder / f"{name}.yaml")
        assert isinstance(pipeline, Pipeline)
        pipeline.run(workers=0)
        made.append(str(folder / name))
    return made


@pytest.mark.parametrize("command", [
    "stages", "stages text.signals", "stages dedup.near", "recipes", "rules", "rules gopher_repetition", "--help", "run --help",
    "plan ONE.yaml", "preview ONE.yaml 2", "show ONE", "what-if ONE --set steps.drop.short='word_count < 30'", "trace ONE record-2",
    "trace ONE word", "failures ONE", "compare ONE TWO"])
def test_tables_fit_80_columns(runs, command):
    words = [word.replace("ONE", runs[0]).replace("TWO", runs[1]).strip("'") for word in re.findall(r"\S*'[^']*'|\S+", command)]
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(main, [word.replace("'", "") for word in words])
    assert shown.exit_code == 0, shown.output
    assert shown.output.strip()
    for line in shown.output.splitlines():
        path_alone = runs[0].rpartition("/")[0] in line and len(line.split()) <= 3  # a path is not broken
        assert cell_len(line) <= 80 or path_alone, line


def test_lines_are_folded_within_their_indent_and_words_stay_whole():
    assert list(wrapped(["  " + "w" * 90, "  a " + "w " * 50, "  short"])) == [
        "  " + "w" * 90, "  a " + "w " * 37 + "w\n      " + "w " * 11 + "w", "  short"]


def test_the_first_sentence_of_a_stage_is_listed_whole():
    listed = " ".join(CliRunner().invoke(main, ["stages", "core"]).output.split())
    assert "sample stage Keep a share of the records, chosen by a hash of `seed` and id. select stage" in listed


def completed(*words):
    *before, last = words
    found = BashComplete(main, {}, "curator", "_CURATOR_COMPLETE").get_completions(list(before), last)
    return [item.value if item.type == "plain" else (item.type,) for item in found]


@pytest.mark.parametrize(("words", "expected"), [
    (("run", "text/we"), ["text/web"]), (("plan", "web"), ["web"]), (("run", "text/web", ""), [("file",)]),
    (("recipes", "audio/s"), ["audio/speech"]), (("rules", "gopher_r"), ["gopher_repetition"]), (("stages", "aud"), ["audio."]),
    (("stages", "dedup.n"), ["dedup.near"]), (("stages", "samp"), ["sample"]), (("run", "--mode", ""), ["stream", "batch"]),
    (("run", "--du"), []), (("run", "--metr"), ["--metrics-port"]), (("complet",), ["completion"])])
def test_a_shell_completes(words, expected):
    assert completed(*words) == expected


def test_a_shell_completes_recipes_that_lie_there_beside_packaged_ones(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web-mine.yaml").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/mine.yml").touch()
    (tmp_path / "web-more").mkdir()
    # and nothing for which bash would forget these
    assert completed("run", "web") == ["web", "web-mine.yaml", "web-more/"]
    assert completed("run", "sub/m") == ["sub/mine.yml"]
    assert completed("run", "nothing-begins-so") == [("file",)]


def test_a_shell_completes_folders_of_runs(runs, monkeypatch, tmp_path):
    parent = runs[0].rpartition("/")[0]
    assert completed("show", f"{parent}/") == [f"{parent}/one/", f"{parent}/two/"]
    assert completed("trace", f"{parent}/t") == [f"{parent}/two/"]
    monkeypatch.chdir(tmp_path)
    assert completed("show", "") == [("dir",)]


def test_a_completion_imports_nothing_heavy():
    heavy = ["pyarrow", "numpy", "duckdb", "rich", "fsspec", "torch", "ray", "yaml", "curator_text", "curator_image",
              "curator_audio", "curator_video"]
    code = ("import sys; from click.shell_completion import BashComplete; from curator.cli.main import main; "
            "found = BashComplete(main, {}, 'curator', 'X').get_completions(['run'], 'text/we'); "
            f"print([item.value for item in found], [name for name in {heavy!r} if name in sys.modules])")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "['text/web'] []"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_curator(shell):
    said = CliRunner().invoke(main, ["completion", shell])
    assert said.exit_code == 0, said.output
    assert f"_CURATOR_COMPLETE={shell}_complete" in said.output
