"""A run's folder in which somebody has put links, copies and lines of his own: nothing is removed that the run did not make."""

import json
import os
import re

import pytest

from curator import CuratorError
from tests.engine.small_stages import DropWord, JsonFiles, lines, write_lines


@pytest.fixture
def made(tmp_path):
    """A finished run, behind it one that was killed as it began, and the name of a file that this one might have left."""
    texts = write_lines(tmp_path / "in", a=["one", "two bad"], b=["three"])
    pipeline = lines(texts) >> DropWord() >> JsonFiles(path=str(tmp_path / "out"))
    pipeline.run(workers=0, check=False)
    add_to_ledger(tmp_path / "out", {"elapsed": {"2": 0.0}})
    whole = next(p for p in sorted((tmp_path / "out").rglob("part-*.json")) if "_run" not in p.parts)
    return pipeline, whole, re.sub("part-[0-9a-f]{16}", f"part-{'0' * 16}", whole.name)


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    return path


def add_to_ledger(out, line):
    newest = max((out / "_run/ledger").glob("*.jsonl"))
    newest.with_name(f"{int(newest.stem) + 1:08}.jsonl").write_text(json.dumps(line) + "\n")


def doom(out, *paths):
    """Write a line into the ledger that wants these files removed."""
    add_to_ledger(out, {"elapsed": {"2": 0.0}, "remove": [str(path) for path in paths]})


def test_what_an_attempt_left_is_removed_and_not_what_lies_behind_a_link(tmp_path, made):
    pipeline, whole, name = made
    away = [put(tmp_path / "away" / name), put(tmp_path / "away/deep" / name)]
    left = put(whole.with_name(name))
    (whole.parent / "link").symlink_to(tmp_path / "away")
    (whole.parent / name.replace("-0", "-1", 1)).symlink_to(tmp_path / "away" / name)
    (tmp_path / "out/dropped/link").symlink_to(tmp_path / "away")
    pipeline.run(workers=0, check=False)
    assert not left.exists()
    assert whole.exists()
    assert all(path.read_text() == "mine" for path in away)


def test_names_that_only_look_like_ours_stay(tmp_path, made):
    pipeline, whole, name = made
    of_another = re.sub(r"part-(0{16})-[^-]+", r"part-\1-ffffff", name)
    mine = [put(whole.parent / n) for n in (f"copy-of-{name}", f"x{name}", name.upper(), name.replace("part-", "part-x"),
                                            of_another, "part-000.json", "notes.txt")]
    mine += [put(whole.parent / "my folder" / f"old-{name}" / "part-0.json")]
    pipeline.run(workers=0, check=False)
    assert all(path.read_text() == "mine" for path in mine)


def test_a_line_of_the_ledger_removes_no_file_that_is_not_named_as_ours(tmp_path, made):
    pipeline, whole, _ = made
    out = tmp_path / "out"
    mine = [put(tmp_path / "x"), put(tmp_path / "elsewhere/file"), put(out / "notes.txt"), put(whole.parent / "data.json")]
    here = whole.parent.relative_to(out)
    doom(out, "../x", f"{here}/../../x", tmp_path / "elsewhere/file", "notes.txt", "s3://another-bucket/key", f"file://{tmp_path}/x",
         here / "data.json", "_run/ledger", "", "/", ".", "_run/state/../../../x")
    pipeline.run(workers=0, check=False)
    assert all(path.read_text() == "mine" for path in mine)


def test_a_line_of_the_ledger_removes_nothing_outside_by_way_of_dots_or_links(tmp_path, made):
    pipeline, whole, name = made
    out = tmp_path / "out"
    away = put(tmp_path / "away" / name)
    (whole.parent / "link").symlink_to(tmp_path / "away")
    (out / "aside").symlink_to(tmp_path / "away")
    inside = put(whole.parent / "sub" / name)
    here = whole.parent.relative_to(out)
    doom(out, f"../away/{name}", f"{here}/link/{name}", f"aside/{name}", f"{out}/../away/{name}", f"{here}/sub/{name}",
         f"{whole.parent}/link/{name}")
    pipeline.run(workers=0, check=False)
    assert away.read_text() == "mine"
    assert not inside.exists()


def test_the_output_may_itself_be_a_link(tmp_path, made):
    pipeline, whole, name = made
    os.rename(tmp_path / "out", tmp_path / "big disk")
    (tmp_path / "out").symlink_to(tmp_path / "big disk")
    left = put(whole.with_name(name))
    pipeline.run(workers=0, check=False)
    assert not left.exists()
    assert whole.exists()


@pytest.mark.parametrize("name", ["events.jsonl", "lock", "stats.json"])
def test_what_a_link_in_the_run_folder_leads_to_is_not_written(tmp_path, made, name):
    pipeline, _, _ = made
    precious = put(tmp_path / "precious")
    (tmp_path / "out/_run" / name).unlink()
    (tmp_path / "out/_run" / name).symlink_to(precious)
    if name == "stats.json":
        pipeline.run(workers=0, check=False)
    else:
        with pytest.raises(CuratorError, match=rf"cannot write .*{name}: it is a symbolic link.* remove the link"):
            pipeline.run(workers=0, check=False)
    assert precious.read_text() == "mine"


def test_what_a_killed_run_had_half_written_of_its_own_files_is_removed_and_nothing_beside_it(tmp_path, made):
    pipeline, whole, _ = made
    own = tmp_path / "out/_run"
    halves = [put(own / n) for n in (".tmp-stats.json.0123abcd", ".tmp-report.html.01234567", "ledger/.tmp-00000009.jsonl.0123abcd",
                                     "ledger-2/.tmp-00000001.jsonl.0123abcd")]
    mine = [put(own / n) for n in (".tmp-notes.json.0123abcd", ".tmp-stats.json.old", "mine/.tmp-00000009.jsonl.0123abcd",
                                   "ledger/.tmp-9.jsonl.0123abcd")]
    mine += [put(tmp_path / "away/.tmp-00000009.jsonl.0123abcd"), put(whole.with_name(".tmp-stats.json.0123abcd"))]
    (own / "ledger-3").symlink_to(tmp_path / "away")
    pipeline.run(workers=0, check=False)
    assert all(path.exists() for path in halves)  # the run before ended itself: nobody looks
    lock = json.loads((own / "lock").read_text())
    (own / "lock").write_text(json.dumps({**lock, "ended": False}))
    pipeline.run(workers=0, check=False)
    assert not any(path.exists() for path in halves)
    assert all(path.read_text() == "mine" for path in mine)
