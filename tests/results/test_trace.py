"""The life of a record, as far as the output tells it; and once more through the recipe."""

import json

import pytest
from click.testing import CliRunner

from curator import CuratorError
from curator.cli.main import main
from curator.front import load
from curator.results import RunOutput
from curator.results.look.trace import find, lives, rerun

TEXTS = {"a": "one thing that is said here", "b": "one thing that is said here", "c": "short", "d": "one thing that is said here",
         "e\n/../<script>": "another thing that is said 'here' \x1b[31m"}
RECIPE = """
read: {{jsonl: {{path: {here}/in.jsonl}}}}
steps:
- map: {{words: "length(text) // 4", text: "upper(text)"}}
- drop: {{short: words < 3}}
- dedup.exact
write: {write}
out: {here}/out
"""


@pytest.fixture(params=["parquet", "jsonl"])
def output(tmp_path, request):
    with open(tmp_path / "in.jsonl", "w") as file:
        for name, text in TEXTS.items():
            file.write(json.dumps({"id": name, "text": text, "url": f"https://x.org/{name[0]}"}) + "\n")
    load(RECIPE.format(here=tmp_path, write=request.param)).run(workers=0)
    return RunOutput.open(str(tmp_path / "out"))


def test_a_record_is_found_by_id_address_or_a_piece_of_its_text(output):
    assert [one.id for one in find(output, "a")] == ["a"]
    assert [one.id for one in find(output, "https://x.org/c")] == ["c"]
    assert [one.id for one in find(output, "x.org/c")] == ["c"]
    by_end = find(output, ".org/a")
    assert [(one.id, one.excerpt) for one in by_end] == [("a", "https://x.org/a")]  # what tells several apart
    several = find(output, "THING THAT IS SAID")
    assert [one.id for one in several] == sorted(set(TEXTS) - {"c"})
    assert all("THING" in one.excerpt for one in several)
    with pytest.raises(CuratorError, match="no record of the run"):
        find(output, "not' there")
    with pytest.raises(CuratorError, match=r"path '/in/\\\\xff.jsonl'"):  # as records have a path that is not UTF-8
        find(output, "/in/\udcff.jsonl")
    with pytest.raises(CuratorError, match="named by nothing"):
        find(output, " ")


def test_a_dropped_record_tells_its_rule_and_the_values_that_met_it(output):
    [life] = lives(output, "c")
    assert (life.place, life.stage, life.why) == ("dropped", "drop", "short")
    assert (life.condition, life.values, life.row) == ("words < 3", {"words": 1}, 0)
    assert [one.stage for one in life.passed] == ["jsonl", "map", "drop"]
    assert life.passed[1].columns == {"words": 1, "text": "SHORT"}


def test_duplicates_lead_to_the_one_that_stays_and_back(output):
    [life] = lives(output, "d")
    assert (life.place, [(one.id, one.place) for one in life.others]) == ("duplicate", [("a", "data")])
    [kept] = lives(output, "a")
    assert ([one.id for one in kept.copies], kept.copies_count) == (["b", "d"], 2)
    assert kept.file.startswith("data/")


def test_a_record_runs_once_more_alone(output):
    stages = {one.name: one for one in rerun(output, lives(output, "c")[0])}
    assert stages["jsonl"].outputs["out"].column("id").to_pylist() == ["c"]
    assert stages["map"].before.column("text").to_pylist() == ["short"]
    assert stages["drop"].outputs["dropped"].column("reason").to_pylist() == ["short"]


def test_the_command_shows_hostile_names_and_texts_as_text(output):
    folder = output.folder.uri
    told = CliRunner().invoke(main, ["trace", folder, "e\n/../<script>"])
    assert told.exit_code == 0
    assert "\x1b[31m" not in told.output
    assert "ANOTHER THING" in told.output
    assert "when words < 3" in CliRunner().invoke(main, ["trace", folder, "c", "--rerun"]).output
    assert json.loads(CliRunner().invoke(main, ["trace", folder, "c", "--json"]).output)[0]["why"] == "short"
    ends = {name: CliRunner().invoke(main, ["trace", folder, name]).output.splitlines()[1].strip() for name in "acd"}
    assert ends == {"a": "written", "c": "dropped by drop: short", "d": "duplicate in dedup.exact of a (data)"}
    assert "records are meant" in CliRunner().invoke(main, ["trace", folder, "THING"]).output
    assert CliRunner().invoke(main, ["trace", folder, "nowhere"]).exit_code == 2
