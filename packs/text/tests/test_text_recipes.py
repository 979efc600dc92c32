"""The packaged recipes, run as a user runs them, on inputs made here."""

from __future__ import annotations

import gzip
import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from curator.cli.main import main
from packs.image.tests.chat_server import Model, completion

SENTENCES = [
    "The museum in the old harbour opened its doors to visitors from the whole region last spring.",
    "It shows how sailors lived with the sea, and that their work was harder than most people think.",
    "A guide explains the tools of the shipwrights, which have changed little over the past centuries.",
    "Children may build a small boat in the workshop and try it in the basin behind the house.",
    "The café next to the entrance serves fish soup, bread from the village and strong black coffee.",
    "In winter the collection is open at weekends only, because heating the large halls is expensive.",
    "Tickets can be bought at the door or from the office of tourism in the main street of the town.",
    "The director hopes to restore two more vessels, of which one has been lying in the mud since 1954.",
]
ARTICLE = "".join(f"<p>{sentence}</p>" for sentence in SENTENCES)
SPAM = "<p>" + "Buy cheap watches here now. " * 40 + "</p>"


def page(body):
    return f"<html><head><title>T</title></head><body><main>{body}</main></body></html>".encode()


def archive(*bodies):
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True)
    for number, body in enumerate(bodies):
        head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
        writer.write_record(writer.create_warc_record(f"http://x/{number}", "response", payload=io.BytesIO(page(body)),
                                                      http_headers=head))
    return out.getvalue()


def run(tmp_path, *words):
    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["run", *words, "--out", str(out), "--workers", "0"])
    stats = json.loads((out / "_run/stats.json").read_text()) if (out / "_run/stats.json").exists() else {}
    return done, stats, out


def test_web_keeps_articles_and_accounts_for_the_rest(tmp_path):
    (tmp_path / "a.warc.gz").write_bytes(archive(ARTICLE, SPAM, ARTICLE, "<p>ok</p>"))
    done, stats, out = run(tmp_path, "text/web", "--set", f"read.path={tmp_path}/*.warc.gz")
    assert done.exit_code == 0, done.output
    counts = {name: stats["records"][name] for name in ("in", "written", "dropped", "duplicate", "failed")}
    assert counts == {"in": 4, "written": 1, "dropped": 2, "duplicate": 1, "failed": 0}
    [row] = pq.read_table(next((out / "data").glob("*.parquet"))).to_pylist()
    assert row["text"] == "\n\n".join(SENTENCES)
    assert (row["url"], row["language"], row["title"]) == ("http://x/0", "en", "T")
    assert row["word_count"] > 100


def test_web_stops_when_too_much_cannot_be_read(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.warc.gz").write_bytes(archive(ARTICLE) + b"garbage" * 20)
    done, _, _ = run(tmp_path, "text/web", "--set", f"read.path={tmp_path}/*.warc.gz")
    assert done.exit_code != 0
    done, stats, _ = run(tmp_path, "text/web", "--set", f"read.path={tmp_path}/*.warc.gz", "--set", "max_failed=0.9")
    assert done.exit_code == 0, done.output
    assert stats["records"]["failed"] == 2


def test_thresholds_can_be_changed_from_outside(tmp_path):
    (tmp_path / "a.warc.gz").write_bytes(archive(ARTICLE))
    path = f"read.path={tmp_path}/a.warc.gz"
    _, stats, _ = run(tmp_path, "text/web", "--set", path, "--set", "steps.language.keep=[de]")
    assert stats["records"]["dropped"] == 1


@pytest.fixture
def folder(tmp_path):
    files = tmp_path / "docs"
    files.mkdir()
    (files / "a.txt").write_text("\n\n".join(SENTENCES) + "  \n")
    (files / "b.html").write_bytes(page(ARTICLE))
    (files / "c.md").write_text("")
    return files


def test_documents_from_files(tmp_path, folder):
    done, stats, _ = run(tmp_path, "text/documents", "--set", f"read.path={folder}")
    assert done.exit_code == 0, done.output
    assert (stats["records"]["written"], stats["records"]["duplicate"], stats["records"]["dropped"]) == (1, 1, 1)


def test_documents_from_json_lines(tmp_path):
    path = tmp_path / "docs.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"id": "x", "text": "\n".join(SENTENCES), "own": 7}).encode()))
    done, stats, _ = run(tmp_path, "text/documents", "--set", f"read={{jsonl: {{path: {path}}}}}")
    assert done.exit_code == 0, done.output
    assert stats["records"]["written"] == 1


@pytest.mark.parametrize("named", ["", "/*.gz", "/**"])
def test_a_folder_or_a_glob_of_json_lines_is_read_as_such_where_a_recipe_names_documents(tmp_path, named):
    (tmp_path / "in").mkdir()
    lines = (json.dumps({"id": f"x{n}", "text": "\n".join(SENTENCES[n:])}) + "\n" for n in range(2))
    (tmp_path / "in/docs.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    done, stats, _ = run(tmp_path, "text/documents", f"{tmp_path}/in{named}")
    assert done.exit_code == 0, done.output
    assert stats["records"]["written"] == 2


def test_documents_stay_documents_where_tables_lie_beside_them(tmp_path, folder):
    (folder / "d.jsonl").write_text("")
    (folder / "e.jsonl").write_text("")
    (folder / "f.jsonl").write_text("")
    assert run(tmp_path, "text/documents", str(folder))[1]["records"]["in"] == 3


def test_dedup_keeps_the_longest_of_look_alikes(tmp_path):
    text = " ".join(SENTENCES)
    texts = [text, text.upper(), f"{text} One more sentence stands here.", " ".join(SENTENCES[:4]), SPAM]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": f"d{n}", "text": t}) + "\n" for n, t in enumerate(texts)))
    done, stats, out = run(tmp_path, "text/dedup", "--set", f"read.path={tmp_path}/a.jsonl")
    assert done.exit_code == 0, done.output
    assert (stats["records"]["written"], stats["records"]["duplicate"]) == (3, 2)
    near = pq.read_table(out / "duplicate" / "dedup.near").to_pylist()
    assert [(r["id"], r["duplicate_of"]) for r in near] == [("d0", "d2")]
    assert 0.8 <= near[0]["similarity"] < 1


def test_documents_become_token_files_and_a_share_to_validate_with(tmp_path):
    words = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "<|endoftext|>": 2}, "unk_token": "a"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "model": words,
        "pre_tokenizer": {"type": "Whitespace"}, "normalizer": None, "post_processor": None, "decoder": None}))
    pq.write_table(pa.table({"id": [f"r{n}" for n in range(300)], "text": ["a b b"] * 299 + [""]}), tmp_path / "in.parquet")
    out, words = tmp_path / "out", ["run", "text/tokens", "--workers", "0", "--out", str(tmp_path / "out")]
    for name, value in {"read.path": tmp_path / "in.parquet", "steps.tokenize.tokenizer": tmp_path,
                        "steps.split.shares": "{train: 0.9, validation: 0.1}"}.items():
        words += ["--set", f"{name}={value}"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    sizes = {part: sum(f.stat().st_size for f in (out / "data" / part).glob("*.bin")) for part in ("megatron", "validation")}
    assert sum(sizes.values()) == 299 * 4 * 2
    assert 0.8 < sizes["megatron"] / sum(sizes.values()) < 0.97
    stats = json.loads((out / "_run/stats.json").read_text())
    assert {s["name"]: s["dropped"] for s in stats["stages"]}["drop"] == {"empty": 1}
    assert "data/megatron" in (out / "README.md").read_text()


def documents(folder, n=60):
    """Documents from plain prose to lists of words, each different."""
    rows = []
    for i in range(n):
        good = " ".join(f"{sentence} It is number {i} of the story and they have it." for sentence in SENTENCES[: 4 + i % 5])
        listed = "\n".join(f"the offer {i} that of to and with item {k} in shop" for k in range(12))
        rows.append({"id": f"d{i:03}", "text": good if i % 3 else good[:300] + "\n" + listed})
    path = folder / "docs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, rows


def records(out):
    endings = ("data", "dropped", "failed", "duplicate")
    files = {name: [pq.read_table(f) for f in sorted((out / name).rglob("*.parquet"))] for name in endings}
    return {name: pa.concat_tables(tables, promote_options="permissive").to_pylist() for name, tables in files.items() if tables}


def test_fineweb_edu_keeps_the_pages_that_its_classifier_finds_to_teach(tmp_path):
    pytest.importorskip("transformers")
    from packs.text.tests.tiny_text_models import WORDS, save_bert

    dice = random.Random(4)
    rows = [{"id": f"p{n:02}", "text": " ".join(dice.choices(WORDS[4:], k=12)), "url": f"http://x/{n}"} for n in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "pages.parquet")
    model = save_bert(tmp_path / "model", ("edu",))
    words = ["text/fineweb-edu", str(tmp_path / "pages.parquet"), "--set", f"steps.classify.model={model}",
             "--set", "steps.classify.max_tokens=24", "--yes", "--set"]
    done, _, out = run(tmp_path, *words, "steps.drop.not_educational=edu_score < -1000")
    assert done.exit_code == 0, done.output
    scores = sorted(row["edu_score"] for row in records(out)["data"])
    done, stats, out = run(tmp_path, *words, f"steps.drop.not_educational=edu_score <= {scores[19]}")
    assert done.exit_code == 0, done.output
    found = records(out)
    assert sorted(row["id"] for row in found["data"] + found["dropped"]) == [row["id"] for row in rows]
    assert min(row["edu_score"] for row in found["data"]) > scores[19] == max(row["edu_score"] for row in found["dropped"])
    assert stats["records"]["written"] == len(found["data"])


def test_the_best_documents_are_repeated_and_the_lowest_dropped(tmp_path):
    path, rows = documents(tmp_path)
    words = ["run", "text/quality-buckets", "--workers", "0", "--set", f"read.path={path}", "--out", str(tmp_path / "out")]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    found = records(tmp_path / "out")
    times = {19: 4, 18: 3, 17: 2, 16: 2}
    ids = [row["id"] for row in found["data"]]
    assert len(set(ids)) == len(ids)
    for row in found["data"]:
        copies = [other for other in found["data"] if other["copy_of"] == row["id"]]
        assert row["copy_of"] or len(copies) == times.get(row["quality_bin"], 1) - 1
    low = {row["id"] for row in found["dropped"] if row["reason"] == "low_quality"}
    kept = {row["id"] for row in found["data"] if not row["copy_of"]}
    assert len(low) > 5
    assert len(kept | {row["id"] for row in found["dropped"]}) == len(rows)
    worst = max(row["quality"] for row in found["dropped"] if row["reason"] == "low_quality")
    assert worst <= min(row["quality"] for row in found["data"])


def test_a_language_model_rewrites_the_lowest_and_every_document_is_accounted_for(tmp_path):
    path, rows = documents(tmp_path)
    server, seen = Model(), []

    def answer(question):
        seen.append(question)
        text = {0: "Rewritten text:\n" + " ".join(SENTENCES) + f" {len(seen)}", 1: "I cannot do that.", 2: "Rewritten text: short"}
        return completion(text[len(seen) % 3 if len(seen) < 7 else 0])

    server.answer = answer
    words = ["run", "text/quality-rewrite", "--workers", "0", "--out", str(tmp_path / "out")]
    for setting in (f"read.path={path}", f"branches.low.steps.rewrite.url={server.url}", "max_failed=0.9",
                    f"branches.low.steps.rewrite.cache={tmp_path / 'answers'}"):
        words += ["--set", setting]
    try:
        told = CliRunner().invoke(main, words)
        assert told.exit_code == 0, told.output
    finally:
        server.close()
    found = records(tmp_path / "out")
    rewritten = [row for row in found["data"] if row.get("rewritten")]
    assert rewritten
    assert all(row["text"] == row["rewritten"] != row["original"] for row in rewritten)
    errors = {row["error"].split(":")[0] for row in found["failed"]}
    assert errors == {"the answer does not begin with 'Rewritten text", "the answer has some 2 tokens, fewer than 50"}
    everything = [row["id"] for part in found.values() for row in part if not row.get("copy_of")]
    assert sorted(everything) == [row["id"] for row in rows]


FOUR = ("diverse_qa", "distil", "extract_knowledge", "knowledge_list")


def rewriter(prompts):
    """A server that answers each task of Nemotron-CC as it should, but the first question of each with an apology."""
    prose = " ".join(SENTENCES)
    good = {"Rewritten text:": f"Rewritten text:\n{prose}", "Condensed text:": f"**Condensed text:** {prose}",
            "List the facts": "\n".join(f"- {sentence}" for sentence in SENTENCES), "passage of a textbook": prose,
            "Question: ...": "\n\n".join(f"Question: Why is {n}?\nAnswer: {s}" for n, s in enumerate(SENTENCES))}
    server = Model()

    def answer(question):
        asked = question["messages"][-1]["content"]
        task = next(words for words in good if words in asked)
        prompts.append((task, asked))
        first = next(one for known, one in prompts if known == task)
        return completion(good[task] if asked != first else "I cannot help with that.")

    server.answer = answer
    return server


def nemotron(name, tmp_path, **settings):
    prompts = []
    server = rewriter(prompts)
    words = ["run", f"text/{name}", "--workers", "0", "--out", str(tmp_path / "out"), "--set", "max_failed=0.9"]
    for step in ("low.steps.rephrase", *(f"{task}.steps.ask_{task}" for task in FOUR)):
        for key, value in {"url": server.url, "cache": tmp_path / "answers", "concurrency": 1}.items():
            words += ["--set", f"branches.{step}.{key}={value}"]
    for key, value in settings.items():
        words += ["--set", f"{key.replace('__', '.')}={value}"]
    try:
        told = CliRunner().invoke(main, words)
    finally:
        server.close()
    assert told.exit_code == 0, told.output
    return records(tmp_path / "out"), prompts


def different(folder, n=40):
    """Documents that share no passage: prose, and every third a list of words."""
    words, rng, rows = " ".join(SENTENCES).replace(".", "").split(), random.Random(3), []
    for i in range(n):
        lines = [" ".join(rng.choices(words, k=12)) for _ in range(12)]
        prose = ". ".join(line.capitalize() for line in lines[:6 + i % 5]) + "."
        rows.append({"id": f"d{i:03}", "text": prose if i % 3 else "\n".join(lines)})
    rows.append({"id": "copy", "text": rows[1]["text"]})
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "docs.jsonl", [row["id"] for row in rows]


def check_nemotron(found, ids):
    kinds = {kind: [row for row in found["data"] if row["kind"] == kind] for kind in {row["kind"] for row in found["data"]}}
    assert set(kinds) == {"high", "middle", "rephrase", *FOUR}
    assert {row["id"] for row in kinds["high"]} >= {row["copy_of"] for kind in kinds.values() for row in kind if row["copy_of"]}
    assert all(row["quality_bin"] >= 18 for row in kinds["high"])
    assert all(row["quality_bin"] <= 6 and row["copy_of"] is None for row in kinds["rephrase"])
    assert all(row["text"].endswith(SENTENCES[-1]) for kind in ("rephrase", *FOUR[1:]) for row in kinds[kind])
    assert all("Question: Why" in row["text"] for row in kinds["diverse_qa"])
    assert all(len(kinds[task]) == len(kinds["high"]) - 1 for task in FOUR)
    assert sorted(row["kind"] for row in found["failed"]) == ["high"] * 4 + ["low"]
    assert sorted(row["id"] for part in found.values() for row in part if not row.get("copy_of")) == sorted(ids)


def test_nemotron_cc_without_a_download(tmp_path):
    path, ids = different(tmp_path)
    found, prompts = nemotron("nemotron-cc-light", tmp_path, read__path=path)
    check_nemotron(found, ids)
    assert [row["duplicate_of"] for row in found["duplicate"]] in (["d001"], ["copy"])
    assert len({asked for _, asked in prompts}) == len(prompts) - 5  # one question of each task was asked again, no other one


@pytest.mark.slow
def test_nemotron_cc_with_its_three_classifiers(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("justext")
    from packs.text.tests import tiny_text_models as tiny
    from packs.text.tests.fasttext_models import TinyModel

    _, ids = different(tmp_path)
    texts = [json.loads(line)["text"] for line in (tmp_path / "docs.jsonl").read_text().splitlines()]
    (tmp_path / "a.warc.gz").write_bytes(archive(*(f"<p>{text}</p>" for text in texts)))
    (tmp_path / "hq.bin").write_bytes(TinyModel(["the", "sea"], ["hq", "cc"]).save())
    found, _ = nemotron("nemotron-cc", tmp_path, read__path=tmp_path / "a.warc.gz", steps__fasttext__model=tmp_path / "hq.bin",
                        steps__nemotron__model=tiny.save_bert(tmp_path / "one", ("score",), seed=1),
                        steps__mixtral__model=tiny.save_bert(tmp_path / "two", ("score",), seed=2))
    check_nemotron(found, sorted(row["id"] for part in found.values() for row in part if not row.get("copy_of")))
    assert sum(not row.get("copy_of") for part in found.values() for row in part) == len(ids)
    assert all(row["quality_bin"] == max(row[f"{name}_score_bin"] for name in ("nemotron", "mixtral", "dclm")) for row in found["data"])
