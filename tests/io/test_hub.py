"""Datasets of the hub, against a stand-in of its API."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator import read
from curator.api.errors import InputError
from curator.io.hub.contents import config_of, matching, splits_by_card, splits_by_name
from curator.io.hub.source import Hub
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
    ("**/*.parquet", ["data/a.parquet", "data/x/b.parquet", "top.parquet"]), ("data/[!b].parquet", ["data/a.parquet"]),
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
