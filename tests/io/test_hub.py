"""Datasets of the hub, against a stand-in of its API."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator import read, write
from curator.api.errors import InputError, RecipeError
from curator.io.hub.contents import CONVERTED, config_of, head_of, matching, splits_by_card, splits_by_name
from curator.io.hub.push import Push
from curator.io.hub.source import Hub
from curator.io.tables.jsonl import Jsonl
from tests.io.hub_server import HubServer


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("huggingface_hub")
    made = HubServer()
    with pytest.MonkeyPatch.context() as patch:
        made.stand_in(patch)
        yield made
    made.close()


def parquet(*texts: str, group: int = 10) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), sink, row_group_size=group)
    return sink.getvalue()


def texts(prefix: str, count: int = 3) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


# -- which file is which split ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pattern", "found"), [
    ("data/*.parquet", ["data/a.parquet"]), ("data/**", ["data/a.parquet", "data/x/b.parquet", "data/x/y/c.json"]),
    ("**/*.parquet", ["data/a.parquet", "data/x/b.parquet", "top.parquet"]),
    ("data/**.parquet", ["data/a.parquet", "data/x/b.parquet"]), ("**.json", ["data/x/y/c.json"]),
    ("./**a.parquet", ["data/a.parquet"]), ("data/**/x/**.parquet", ["data/x/b.parquet"]), ("data/[!b].parquet", ["data/a.parquet"]),
    ("./top.parquet", ["top.parquet"]), ("data", [])])
def test_patterns(pattern, found):
    assert matching(pattern, ["data/a.parquet", "data/x/b.parquet", "data/x/y/c.json", "top.parquet"]) == found


@pytest.mark.parametrize(("files", "splits"), [
    (["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/odd.name-00000-of-00001-abc.parquet"],
     {"train": 2, "odd.name": 1}),
    (["a/train/1.csv", "a/dev/2.csv", "b/testing_x/3.csv"], {"train": 1, "validation": 1, "test": 1}),
    (["my-train-file.csv", "eval_1.csv"], {"train": 1, "test": 1}), (["latest.csv", "contest.csv"], {"train": 2})])
def test_splits_by_the_names_of_files(files, splits):
    assert {split: len(found) for split, found in splits_by_name(files).items()} == splits


def test_splits_as_the_card_says():
    files = ["en/a.jsonl", "en/b.jsonl", "de/a.jsonl", "de/t/c.jsonl"]
    head = {"configs": [{"config_name": "en", "data_files": "en/*.jsonl", "default": True},
                        {"config_name": "de", "data_dir": "de", "data_files": [{"split": "train", "path": ["a.jsonl"]},
                                                                                {"split": "test", "path": "t/*"}]}]}
    assert splits_by_card(config_of(head, None), files) == {"train": files[:2]}
    assert splits_by_card(config_of(head, "de"), files) == {"train": files[2:3], "test": files[3:]}
    assert config_of(head, "fr") is None
    del head["configs"][0]["default"]
    with pytest.raises(InputError, match=r"2 configurations: say config= with one of en, de"):
        config_of(head, None)


# -- reading ----------------------------------------------------------------------------------------------------------------


def test_a_dataset_is_read_by_splits_in_units(server, read_all):
    server.put("o/news", {"README.md": b"# news", "data/train-00000-of-00001.parquet": parquet(*texts("a", 90)),
                          "data/test-00000-of-00001.parquet": parquet(*texts("b")), "data/notes.txt": b"x", "x/y/z/w": b"deep"})
    source = Hub(path="o/news", unit_bytes=500)
    units = source.units()
    assert len(units) > 3
    found = read_all(source, units)
    assert sorted(found.column("text")) == sorted(texts("a", 90) + texts("b"))
    assert {row["split"] for row in found.good if row["text"][0] == "b"} == {"test"}
    assert source.columns()["split"] == pa.string()
    table = read("hf://datasets/o/news", split="test", select=["text"]).collect(workers=0)
    assert table["text"].to_pylist() == texts("b")
    assert table["source"][0].as_py() == "hf://datasets/o/news/data/test-00000-of-00001.parquet"
    with pytest.raises(InputError, match=r"o/news has no split 'dev'; there are test, train"):
        Hub(path="o/news", split="dev").units()


def test_revisions_and_changed_files(server, read_all):
    repo = server.put("o/moving", {"data.jsonl": b'{"text": "old"}\n'})
    old = repo.branches["main"][-1][0]
    before = Hub(path="o/moving").units()
    server.put("o/moving", {"data.jsonl": b'{"text": "new"}\n'})
    server.put("o/moving", {"data.jsonl": b'{"text": "side"}\n'}, branch="v/2")
    assert [u.key for u in Hub(path="o/moving").units()] != [u.key for u in before]  # so a run does it again
    for path, revision, text in (("o/moving", None, "new"), (f"hf://datasets/o/moving@{old}", None, "old"), ("o/moving", "v/2", "side")):
        assert read_all(Hub(path=path, revision=revision)).column("text") == [text]


def test_a_run_its_shards_and_who_gathers_read_one_commit(server, tmp_path, caplog):
    def put(text: str) -> None:
        server.put("o/growing", {f"{n}.jsonl": json.dumps({text: text, "n": n}).encode() + b"\n" for n in range(6)})

    def run(**how):
        made = read("hf://datasets/o/growing", unit_bytes=1) >> write(str(tmp_path / "out"), format="jsonl", compression=None)
        return made.run(workers=0, **how)

    def seen() -> list[dict]:
        return [json.loads(line) for file in (tmp_path / "out" / "data").iterdir() for line in file.read_text().splitlines()]

    put("old")
    one = run(shard="1/2")
    put("new")
    two = run(shard="2/2")
    assert one.records["written"] + two.records["written"] == 6
    assert all("old" in record for folder in (tmp_path / "out" / "_run" / "shards").glob("*-of-2/data/*")
               for record in map(json.loads, folder.read_text().splitlines()))
    old, new = (sha[:10] for sha, _, _ in server.repos["o/growing"].branches["main"][-2:])
    assert (f"hf://datasets/o/growing has changed since this run began: it goes on with version {old}, and the next run reads {new}"
            in caplog.text)
    gathered = run()
    assert (gathered.records["written"], len(seen())) == (6, 6)
    assert all("old" in record and "new" not in record for record in seen())
    assert any("has changed since this run began" in alarm["text"] for alarm in gathered.stats["alarms"])
    assert run(replace=True).records["written"] == 6  # it had ended, so this is another run
    assert all("new" in record for record in seen())


def test_shards_where_a_run_of_something_else_was_stopped_do_not_each_take_their_own_version(server, tmp_path):
    server.put("o/other", {"a.jsonl": b'{"text": "one"}\n'})
    kept = tmp_path / "out" / "_run" / "versions.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"hf://datasets/o/stopped": "0123456789"}')
    made = read("hf://datasets/o/other") >> write(str(tmp_path / "out"), format="jsonl")
    with pytest.raises(InputError, match=r"versions\.json is of a run that did not read hf://datasets/o/other: write to another"):
        made.run(workers=0, shard="1/2")
    kept.unlink()
    assert made.run(workers=0, shard="1/2").ok


def test_a_commit_is_forgotten_when_a_run_ends_well_that_asks_for_it_no_more(tmp_path):
    kept = tmp_path / "out" / "_run" / "versions.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"hf://datasets/o/stopped": "0123456789"}')
    (tmp_path / "a.jsonl").write_text('{"text": "one"}')
    (read(str(tmp_path / "a.jsonl")) >> write(str(tmp_path / "out"), format="jsonl")).run(workers=0)
    assert not kept.exists()


@pytest.mark.parametrize("named", [False, True])
def test_a_run_that_was_stopped_goes_on_with_its_commit_unless_another_is_named(server, tmp_path, named):
    repo = server.put("o/stopped", {f"{n}.jsonl": b'{"text": "old"}\n' for n in range(4)})

    def run(watch=None, revision: str | None = None) -> list[str]:
        made = read("hf://datasets/o/stopped", revision=revision) >> write(str(tmp_path / "out"), format="jsonl", compression=None)
        assert made.run(workers=0, watch=watch, replace=True).records["written"] == 4
        return [file.read_text() for file in (tmp_path / "out" / "data").iterdir()]

    def stop(_) -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(stop)
    server.put("o/stopped", {f"{n}.jsonl": b'{"text": "new"}\n' for n in range(4)})
    if named:
        assert all("new" in text for text in run(revision=repo.branches["main"][-1][0]))
    else:
        assert all("old" in text for text in run())
        assert all("new" in text for text in run())


def test_where_the_commit_of_converted_files_is_gone_the_newest_is_read(server):
    repo = server.put("o/converted", {"converted.py": b"x"})
    server.put("o/converted", {"default/train/0000.parquet": parquet("a")}, branch=CONVERTED)
    source = Hub(path="o/converted")
    source.pin()
    began = source.pinned
    repo.branches[CONVERTED] = [("f" * 40, "squashed", repo.branches[CONVERTED][-1][2])]
    source.pin()
    with pytest.raises(InputError, match="o/converted has no such commit any more"):
        source.pin(began)
    assert str(source.pinned).endswith("f" * 40)
    assert len(source.units()) == 1


def test_files_of_another_format_are_told_of_before_the_run(server, tmp_path, caplog):
    server.put("o/both", {"train/a.csv": b"text\na\n", "train/b.csv": b"text\nb\n", "train/c.jsonl.gz": b"x"})
    (tmp_path / "in").mkdir()
    for name in ("a.jsonl", "b.csv", "c.csv", "_hidden.csv"):
        (tmp_path / "in" / name).write_text('{"text": "a"}\n')
    for source, said in ((Hub(path="o/both"), "hf://datasets/o/both: files of other kinds are not read: 1 .jsonl.gz."),
                         (Jsonl(path=str(tmp_path / "in")), f"{tmp_path}/in: files of other kinds are not read: 2 .csv.")):
        made = read(source) >> write(str(tmp_path / source.name), format="parquet")
        assert said in made.plan()
        caplog.clear()
        found = made.run(workers=0)
        assert said in caplog.text
        assert said in " ".join(alarm["text"] for alarm in found.stats["alarms"])
    assert not Jsonl(path=str(tmp_path / "in" / "*.jsonl")).remarks()


def test_configurations_of_the_card_and_converted_files(server, read_all):
    card = "---\nconfigs:\n- config_name: de\n  data_files: de/*.csv\n- config_name: en\n  default: true\n  data_files:\n" \
           "  - {split: train, path: en/*.csv}\n---\n# x"
    server.put("o/langs", {"README.md": card.encode(), "de/1.csv": b"text\nja\n", "en/1.csv": b"text\nyes\n", "en/pic.png": b"x"})
    assert read_all(Hub(path="o/langs")).column("text") == ["yes"]
    assert read_all(Hub(path="o/langs", config="de")).column("text") == ["ja"]
    with pytest.raises(InputError, match=r"cannot read hf://datasets/o/langs: .* no configuration 'fr'"):
        Hub(path="o/langs", config="fr").units()
    server.put("o/pictures", {"cat/1.png": b"x"})
    with pytest.raises(InputError, match=r"no file that ends in .parquet, .jsonl, .csv, .arrow, .tar, and there is no branch"):
        Hub(path="o/pictures").units()
    server.put("o/pictures", {"default/train/0000.parquet": parquet("cat")}, branch="refs/convert/parquet")
    found = read_all(Hub(path="o/pictures"))
    assert [(row["text"], row["split"]) for row in found.good] == [("cat", "train")]


def test_splits_in_several_formats_are_not_passed_over(server, read_all):
    server.put("o/mixed", {"train/a.csv": b"text\na\n", "train/b.csv": b"text\nb\n", "test/c.jsonl": b'{"text": "c"}\n'})
    with pytest.raises(InputError, match=r"several formats: train in csv, and test not\. Read them one after another, by split="):
        Hub(path="o/mixed").units()
    assert read_all(Hub(path="o/mixed", split="test")).column("text") == ["c"]


def test_private_datasets_and_troubles(server, read_all, monkeypatch):
    server.put("o/secret", {"data.parquet": parquet("hidden")}, private=True)
    assert read_all(Hub(path="o/secret")).column("text") == ["hidden"]
    server.trouble = [("GET /datasets/o/secret/resolve", 503), ("GET /api/datasets/o/secret/tree", 500)]
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert read_all(Hub(path="o/secret")).column("text") == ["hidden"]
    assert server.trouble == []
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(InputError, match=r"o/secret does not exist.* If it is private or gated, set HF_TOKEN") as error:
        Hub(path="o/secret").units()
    assert "hf_wrong" not in str(error.value)
    with pytest.raises(ValueError, match=r"path must be owner/name or hf://datasets/owner/name"):
        Hub(path="hf://datasets/o/secret/data.parquet")


def test_the_commit_that_has_changed_is_the_one_that_is_told(server, tmp_path, caplog):
    repo = server.put("o/scripted", {"scripted.py": b"x"})
    server.put("o/scripted", {"default/train/0000.parquet": parquet("a")}, branch=CONVERTED)
    run = (read("hf://datasets/o/scripted") >> write(str(tmp_path / "out"), format="jsonl")).run

    def stop(_) -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(workers=0, watch=stop)
    server.put("o/scripted", {"default/train/0000.parquet": parquet("b")}, branch=CONVERTED)
    run(workers=0)
    old, new = (sha[:10] for sha, _, _ in repo.branches[CONVERTED])
    assert f"goes on with version {old}, and the next run reads {new}" in caplog.text


# -- pushing ----------------------------------------------------------------------------------------------------------------


def push(folder, out, repo="me/made", **options):
    """Run a pipeline whose split is pushed."""
    path = [str(folder / name) for name in sorted(p.name for p in folder.iterdir())]
    made = read(path, unit_bytes=1) >> {"drop": {"short": "length(text) < 2"}} >> write(str(out), format="hub", repo=repo, **options)
    settings = {"license": "cc0-1.0", "description": "Texts for a test."}
    return made.named("for-a-test", **settings).run(workers=0)


def write_texts(folder, **files: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, found in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text, "n": len(text)}) + "\n" for text in found))


def notes(result) -> str:
    return " ".join(alarm["text"] for alarm in result.stats["alarms"] if alarm["level"] == "note")


def test_a_push_is_one_commit_that_load_dataset_reads(server, tmp_path):
    datasets = pytest.importorskip("datasets")
    write_texts(tmp_path / "in", a=["one", "x", "three"], b=["four"])
    first = push(tmp_path / "in", tmp_path / "out")
    assert "Pushed 3 files (" in notes(first)
    assert "to hf://datasets/me/made as default/train, in 1 commit." in notes(first)
    assert server.repos["me/made"].private
    write_texts(tmp_path / "test", c=["five"])
    push(tmp_path / "test", tmp_path / "out-test", split="test")
    assert len(server.repos["me/made"].branches["main"]) == 3  # the empty one, and one a push
    card = server.files("me/made")["README.md"].decode()
    for said in ("license: cc0-1.0", "Texts for a test.", "num_examples: 3", "num_examples: 1", "| drop |", "short: length(text) < 2",
                 'load_dataset("me/made", "default")'):
        assert said in card
    loaded = datasets.load_dataset("me/made", cache_dir=str(tmp_path / "cache"))
    assert {split: sorted(rows["text"]) for split, rows in loaded.items()} == {"train": ["four", "one", "three"], "test": ["five"]}
    assert read("hf://datasets/me/made", split="test").collect(workers=0)["text"].to_pylist() == ["five"]
    for file in tmp_path.glob("out*/**/*"):
        assert not file.is_file() or server.token.encode() not in file.read_bytes(), file


def test_a_push_again_sends_what_is_new_and_removes_what_is_old(server, tmp_path):
    write_texts(tmp_path / "in", a=["one"], b=["two"])
    options = {"repo": "me/again", "private": False}
    push(tmp_path / "in", tmp_path / "out", **options)
    before, sent = set(server.files("me/again")), len(server.asked("PUT /lfs"))
    assert "has all 2 files of default/train already" in notes(push(tmp_path / "in", tmp_path / "out", **options))
    assert len(server.repos["me/again"].branches["main"]) == 2
    assert not server.repos["me/again"].private
    write_texts(tmp_path / "in", b=["changed"])
    again = push(tmp_path / "in", tmp_path / "out", **options)
    assert "Pushed 1 file" in notes(again)
    assert "removed 1 of an earlier push" in notes(again)
    after = set(server.files("me/again"))
    assert (len(before - after), len(after - before)) == (1, 1)
    assert len(server.asked("PUT /lfs")) == sent + 1
    assert json.loads(server.files("me/again")[".curator/default/train.json"])["files"] == sorted(p for p in after if ".parquet" in p)


def test_a_push_that_broke_off_is_continued(server, tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    write_texts(tmp_path / "in", a=["one"])
    server.trouble = [("POST .*me/broken/commit", 403)]
    with pytest.raises(InputError, match=r"cannot write hf://datasets/me/broken: the server refuses it.*Check the credentials"):
        push(tmp_path / "in", tmp_path / "out", "me/broken")
    stats = json.loads((tmp_path / "out" / "_run" / "stats.json").read_text())
    assert stats["status"] == "finished"
    assert list(server.files("me/broken")) == []
    sent = len(server.asked("PUT /lfs"))
    server.trouble = [("POST .*me/broken/commit", 503), ("POST .*me/broken/preupload", 500)]
    assert "Pushed 1 file" in notes(push(tmp_path / "in", tmp_path / "out", "me/broken"))
    assert len(server.asked("PUT /lfs")) == sent  # what was uploaded before is not sent again
    assert server.trouble == []


def test_what_others_put_there_stays(server, tmp_path):
    card = "---\nlicense: mit\nconfigs:\n- config_name: other\n  data_files: other/*.csv\n---\n# My words\n"
    server.put("me/mine", {"README.md": card.encode(), "other/a.csv": b"x\n1\n", "default/test/own.parquet": parquet("t")})
    write_texts(tmp_path / "in", a=["one"])
    push(tmp_path / "in", tmp_path / "out", "me/mine")
    files = server.files("me/mine")
    assert {"other/a.csv", "default/test/own.parquet"} <= set(files)
    head = head_of(files["README.md"].decode())
    assert (head["license"], [one["config_name"] for one in head["configs"]]) == ("mit", ["other", "default"])
    assert files["README.md"].decode().endswith("---\n# My words\n")
    with pytest.raises(InputError, match=r"default/test/ has 1 file that no push put there, such as default/test/own.parquet. Name"):
        push(tmp_path / "in", tmp_path / "out2", "me/mine", split="test")


def test_what_others_commit_while_a_push_uploads_stays(server, tmp_path, monkeypatch):
    write_texts(tmp_path / "in", a=["one"])
    uploaded, meanwhile = Push._uploaded, [{"README.md": b"---\npretty_name: Mine\n---\nmy words"}]

    def while_others_commit(self, api, wanted):
        if meanwhile:
            server.put("me/both", meanwhile.pop())
        return uploaded(self, api, wanted)

    monkeypatch.setattr(Push, "_uploaded", while_others_commit)
    monkeypatch.setattr("time.sleep", lambda _: None)
    push(tmp_path / "in", tmp_path / "out", "me/both")
    card = server.files("me/both")["README.md"].decode()
    assert "my words" in card
    assert head_of(card)["pretty_name"] == "Mine"
    assert head_of(card)["configs"]


def test_a_push_that_is_refused_is_an_error_and_stands_in_the_run(server, tmp_path):
    write_texts(tmp_path / "in", a=["one"])
    server.put("me/theirs", {"default/train/x.parquet": parquet("theirs")})
    with pytest.raises(InputError, match=r"that no push put there, such as default/train/x\.parquet"):
        push(tmp_path / "in", tmp_path / "out", "me/theirs")
    said = json.loads((tmp_path / "out/_run/stats.json").read_text())["alarms"]
    assert "to_hub has published nothing, or not all: cannot push to hf://datasets/me/theirs" in said[-1]["text"]


def test_a_push_without_a_token_or_a_name_is_told_before_the_run(server, tmp_path, monkeypatch):
    write_texts(tmp_path / "in", a=["one"])
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(RecipeError, match="needs a token that may write: set HF_TOKEN"):
        push(tmp_path / "in", tmp_path / "out")
    with pytest.raises(ValueError, match="repo must be owner/name, got 'name'"):
        push(tmp_path / "in", tmp_path / "out", "name")


@pytest.mark.slow
def test_killed_while_it_reads_and_while_it_pushes_the_dataset_is_whole_in_the_end(server, tmp_path):
    server.put("o/big", {f"data/train-{k:05}-of-00006.parquet": parquet(*texts(f"{k} ", 3000), group=500) for k in range(6)})
    (tmp_path / "r.yaml").write_text("name: killed\nread: {hub: {path: o/big, unit_bytes: 4000}}\nsteps:\n"
                                     "  - map: {lot: 'md5(text)'}\nwrite: {hub: {repo: me/killed}}\nout: out/\n")

    def start() -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-m", "curator", "run", "r.yaml", "--workers", "2"], cwd=tmp_path,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    for seen in (lambda: len(list(tmp_path.glob("out/data/*.parquet"))) > 3, lambda: server.asked("PUT /lfs")):
        process, end = start(), time.monotonic() + 120
        while not seen() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        assert process.poll() is None, process.communicate()[0]
        process.kill()
        process.communicate()
    process = start()
    told = process.communicate(timeout=200)[0]
    assert process.returncode == 0, told
    assert "to hf://datasets/me/killed as default/train, in 1 commit" in " ".join(told.split())
    found = read("hf://datasets/me/killed").collect(workers=0)
    assert sorted(found["text"].to_pylist()) == sorted(text for k in range(6) for text in texts(f"{k} ", 3000))
    puts = server.asked("PUT /lfs")
    assert len(puts) == len(set(puts))
    for file in tmp_path.glob("out/**/*"):
        assert not file.is_file() or server.token.encode() not in file.read_bytes(), file
