"""What failed is grouped as a person would."""

import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from curator import Stage
from curator.cli.main import main
from curator.results import RunOutput
from curator.results.look.failures import failures, folded, own_line
from tests.engine.small_stages import write_lines
from tests.results.fixable import Fixable
from tests.results.test_replay import go, pipeline


@pytest.mark.parametrize(("error", "pattern"), [
    ("ValueError: row 12 of 1,024 is -3.5e-7", "ValueError: row <n> of <n> is <n>"),
    ("OSError: [Errno 2] No such file: '/data/a b/c.txt'", "OSError: [Errno <n>] No such file: <text>"),
    ("cannot open /data/crawl/0001.warc.gz at 7", "cannot open <path> at <n>"),
    ("GET https://a.org/x?y=1: 503", "GET <url>: <n>"),
    ("key 0xff12, id 123e4567-e89b-12d3-a456-426614174000, sha 9f86d081884c7d659a2feaa0", "key <id>, id <id>, sha <id>"),
    ("it isn't there, and doesn't come", "it isn't there, and doesn't come"),
    ("UTF-8 and int64 of utf8", "UTF-<n> and int64 of utf8"),
    ("no luck with doc/7#2", "no luck with <record>"),
])
def test_what_differs_from_record_to_record_is_folded(error, pattern):
    assert folded(error, "doc/7#2", None) == pattern


def test_the_line_of_a_traceback_is_the_innermost_in_the_users_code():
    import json.decoder as library

    trace = ('Traceback (most recent call last):\n  File "/home/me/stages.py", line 12, in score\n    return loads(text)\n'
             f'           ^^^\n  File "{library.__file__}", line 337, in decode\n    obj, end = self.raw\nValueError: no\n')
    assert own_line(trace) == "/home/me/stages.py line 12 in score: return loads(text)"
    assert own_line("") == own_line("killed") == ""


def test_groups_have_counts_units_an_example_and_the_command_that_replays_them(tmp_path):
    (tmp_path / "broken").touch()
    texts = write_lines(tmp_path / "in", a=["bad x", "bad \x1b[31m' <script>", "fine"], b=["very bad"])
    out = tmp_path / "out"
    go(pipeline(texts, out, Fixable(marks=str(tmp_path))))
    [found] = failures(RunOutput.open(str(out)))
    assert (found.stage, found.pattern, found.count, found.units) == ("fixable", "ValueError: <text> is <n> long", 3, 2)
    assert found.first.endswith("in/a.txt")
    assert found.last.endswith("in/b.txt")
    assert "fixable.py" in found.line
    assert "raise ValueError" in found.line
    assert found.text in found.example["error"]

    told = CliRunner().invoke(main, ["failures", str(out)])
    assert told.exit_code == 0
    assert f"curator replay {out} --stage fixable" in told.output
    assert "\x1b[31m" not in told.output
    assert json.loads(CliRunner().invoke(main, ["failures", str(out), "--json"]).output)[0]["count"] == 3

    (tmp_path / "broken").unlink()
    go(pipeline(texts, tmp_path / "whole", Fixable(marks=str(tmp_path))))
    assert "Nothing failed" in CliRunner().invoke(main, ["failures", str(tmp_path / "whole")]).output
    assert CliRunner().invoke(main, ["failures", str(tmp_path / "in")]).exit_code == 2


class Unlucky(Stage):
    def process(self, batch):
        raise ValueError("no luck (none at all)")


def test_a_message_that_is_the_same_for_all_is_what_they_are_found_by_whole(tmp_path):
    go(pipeline(write_lines(tmp_path / "in", a=["x", "y"]), tmp_path / "out", Unlucky()))
    assert [found.text for found in failures(RunOutput.open(str(tmp_path / "out")))] == ["ValueError: no luck (none at all)"]


def test_what_failed_in_code_of_a_script_is_replayed_by_the_script(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": "a", "text": null}\n{"id": "b", "text": "b"}\n')
    (tmp_path / "script.py").write_text("""
from curator import read, stage, write

@stage(needs={"text"}, adds={"text": str})
def upper(batch):
    return batch.with_columns({"text": [t.upper() for t in batch.column("text")]})

(read("in.jsonl") >> upper >> write("out/")).run(workers=0)
""")
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=False, capture_output=True)
    told = CliRunner().invoke(main, ["failures", str(tmp_path / "out")]).output
    assert "in its script: pipeline.run(replay=Replay(stage='upper', error=" in told
    assert "curator replay" not in told
    assert re.search(r"for example a\n +from .*in\.jsonl\n", told)  # an id alone leads nobody to a file
    refused = CliRunner().invoke(main, ["replay", str(tmp_path / "out")])
    assert "is code of a script" in refused.output
    assert "pip install" not in refused.output
