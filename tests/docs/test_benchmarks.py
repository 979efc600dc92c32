"""Every benchmark that a page names is there, and each is on docs/benchmarks.md and run by benchmarks/all.py."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "benchmarks"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"),
         *ROOT.glob("packs/*/README.md")]
SCRIPTS = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}


@pytest.fixture(scope="module")
def every():
    spec = importlib.util.spec_from_file_location("benchmarks_all", FOLDER / "all.py")
    sys.modules[spec.name] = loaded = importlib.util.module_from_spec(spec)  # dataclasses ask there for their module
    spec.loader.exec_module(loaded)
    return loaded


def test_benchmarks_that_pages_name_are_there():
    named = {(str(page.relative_to(ROOT)), name) for page in PAGES
             for name in re.findall(r"benchmarks/(\w+)\.py", page.read_text(encoding="utf-8"))}
    assert len(named) > 25
    assert {one for one in named if one[1] not in SCRIPTS} == set()


def test_each_benchmark_is_run_by_the_one_command_and_on_the_page(every):
    runs = {name for name, text in SCRIPTS.items() if "__main__" in text} - {"all"}
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert {run.script for run in every.RUNS} | set(every.MAKERS) == runs
    assert set(re.findall(r"(?<![\w/])(\w+)\.py\b", page)) - {"all"} == runs
    assert len({run.name for run in every.RUNS}) == len(every.RUNS)


def test_options_that_are_told_are_those_of_the_script(every):
    for run in every.RUNS:
        told = " ".join((run.full, run.quick or "", run.photos, run.recordings))
        for option in re.findall(r"--[\w-]+", told):
            assert f'"{option}"' in SCRIPTS[run.script], (run.name, option)


def test_what_is_left_out_is_said_with_its_reason(every):
    runs = {run.name: run for run in every.RUNS}
    given = {"recordings": Path("said")}
    assert every.reason_against(runs["audio_truth"], False, {}) == "wants --recordings"
    assert every.reason_against(runs["audio"], False, {}) == every.reason_against(runs["audio"], False, given) == ""
    assert every.reason_against(every.Run("audio", wants="json no_such_module"), False, {}).endswith(": no_such_module")
    assert every.reason_against(runs["coming_from"], True, {}) != "" == every.reason_against(runs["coming_from"], False, {})
    words = every.command(runs["audio"], False, given, Path("place"))
    assert words[1:] == [str(FOLDER / "audio.py"), "--recordings", "said"]
    assert every.command(runs["audio"], False, {}, Path("place"))[2:] == []


def test_a_quarter_of_the_files_has_all_kinds_and_a_corpus_costs_its_items(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import cost

    (tmp_path / "all").mkdir()
    for number in range(16):
        (tmp_path / "all" / f"{number:02}.{number % 4}").touch()
    assert {path.suffix for path in cost.part_of(tmp_path / "all", tmp_path / "quarter").iterdir()} == {".0", ".1", ".2", ".3"}
    assert len(list((tmp_path / "quarter").iterdir())) == 4
    row = {"core_s": 0.0036, "scale": 1e9, "bytes_in": 2000, "bytes_out": 500, "bytes_beside": 500}
    assert cost.at_scale(row, 0.04) == pytest.approx({"core_hours": 1000, "nodes_for_a_day": 1000 / 24 / 64, "price": 40,
                                                      "tb_in": 2, "tb_out": 1})
