"""text.signals and four rule sets beside datatrove's filters: documents per CPU-second, and how often the verdicts agree.

    python benchmarks/text_signals.py [--documents FILE.jsonl.gz] [--languages en|all] [--limit N]

Both judge the same documents by Gopher's repetition rules, Gopher's quality rules, C4's and FineWeb's, each on each
document. The documents are those of `examples/corpus.py`, cut and joined to about 6 kB, or those of a file with the
columns `id` and `text` (and `language`, else it is identified). datatrove runs in a virtual environment of its own,
benchmarks/.venv-datatrove, made at the first call; it is given each document's language, and in languages other than
English our list of stop words.

Where the verdicts differ, datatrove judges again with our words: what it then agrees on differs because of the words.
Results are printed and written to benchmarks/results/text_signals.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curator.api.stage import Stage
    from curator.api.tasks import TextBatch

HERE = Path(__file__).resolve().parent
PEER = HERE / ".venv-datatrove"
PACKAGES = ["datatrove[processing]==0.10.1", "spacy>=3.8,<3.9", "setuptools<81"]
MORE_LANGUAGES = ["spacy[ja]>=3.8,<3.9", "jieba", "kiwipiepy<0.22", "pythainlp"]
SETS = ("gopher_repetition", "gopher_quality", "c4", "fineweb")
SIZE = 6000
BATCH_ROWS = 500
PASSES = 3  # of ours, before and again after datatrove's one, which takes 50 times as long


# -- documents ------------------------------------------------------------------------------------------------------


def own_documents() -> list[dict]:
    """The corpus of `examples/corpus.py` in documents of about 6 kB, of one kind of text each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corpus.jsonl")
        subprocess.run([sys.executable, HERE.parent / "examples" / "corpus.py", path], check=True, stdout=subprocess.DEVNULL)
        records = [json.loads(line) for line in path.open(encoding="utf-8")]
    documents: list[dict] = []
    parts: list[str] = []
    for record, following in zip(records, [*records[1:], None], strict=True):
        for paragraph in record["text"].split("\n\n"):
            parts.append(paragraph)
            if sum(map(len, parts)) >= SIZE:
                documents.append({"id": f"{record['id']}@{len(documents)}", "text": "\n\n".join(parts), "language": "en"})
                parts = []
        if parts and (following is None or following["kind"] != record["kind"]):
            documents.append({"id": f"{record['id']}@{len(documents)}", "text": "\n\n".join(parts), "language": "en"})
            parts = []
    return documents


def read_documents(path: Path) -> list[dict]:
    """Records of a JSON Lines file, with their languages."""
    from curator_text.language.language import sample
    from curator_text.language.language_model import LanguageModel

    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    records = [json.loads(line) for line in content.splitlines()]
    documents = [{"id": r["id"], "text": r["text"], "language": r.get("language")} for r in records if r.get("text")]
    unknown = [d for d in documents if d["language"] is None]
    languages, _ = LanguageModel().identify([sample(d["text"], 4000) for d in unknown])
    for document, language in zip(unknown, languages, strict=True):
        document["language"] = language
    return documents


# -- ours -----------------------------------------------------------------------------------------------------------


def ours(documents: list[dict]) -> tuple[list[dict], float]:
    """The reason of each rule set for each document, None if it stays; and CPU seconds."""
    from curator_text.measures.signals import Signals

    from curator.api.stage import Context
    from curator.stages.drop import Drop

    signals, together, rules = Signals(), Drop(rules=list(SETS)), {name: Drop(rules=name) for name in SETS}
    for stage in (signals, together, *rules.values()):
        stage.setup(Context())
    measured, seconds = measured_in(documents, signals, together)
    found: list[dict] = [dict.fromkeys(SETS) for _ in documents]
    for batch in measured:  # each set by itself: with all four in one drop, the first reason counts
        for name, drop in rules.items():
            dropped = drop.process(batch)["dropped"]
            for row, reason in zip(dropped.column("id"), dropped.column("reason"), strict=True):
                found[int(row)][name] = reason
    return found, seconds


def measured_in(documents: list[dict], signals: Stage, drop: Stage) -> tuple[list[TextBatch], float]:
    """Batches of the documents with their columns, and the CPU seconds of both stages, which are set up."""
    import pyarrow as pa

    from curator.api.tasks import TextBatch

    table = pa.Table.from_pylist([{"id": str(i), "source": "", "text": d["text"], "language": d["language"]}
                                  for i, d in enumerate(documents)])
    batches = [TextBatch(rows=table.slice(start, BATCH_ROWS)) for start in range(0, len(documents), BATCH_ROWS)]
    drop.process(signals.process(batches[0]))  # loads and allocates what all share
    began = time.process_time()
    for _ in range(PASSES):
        measured = [signals.process(batch) for batch in batches]
        for batch in measured:
            drop.process(batch)
    return measured, (time.process_time() - began) / PASSES


def our_words(texts: list[str]) -> list[list[str]]:
    from curator_text.measures.joined import join
    from curator_text.measures.words import split

    found = []
    for text in texts:
        joined = join([text])
        words = split(joined)
        found.append([joined.text[a:b] for a, b in zip(words.starts.tolist(), words.stops.tolist(), strict=True)])
    return found


# -- datatrove --------------------------------------------------------------------------------------------------------


def theirs(documents: list[dict], languages: str, words: list[list[str]] | None = None) -> dict:
    """What datatrove's filters say, run in their own environment."""
    from curator_text.measures.stopwords import STOP_WORDS

    python = PEER / "bin" / "python"
    done = PEER / f"{languages}.done"
    if not done.exists():
        print(f"installing datatrove in {PEER} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", PEER], check=True)
        packages = PACKAGES + (MORE_LANGUAGES if languages == "all" else [])
        installed = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True)
        if installed.returncode:
            sys.exit(installed.stderr)
        done.touch()
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder, "given.json"), Path(folder, "answer.json")
        listed = {d["language"]: STOP_WORDS.get(d["language"]) for d in documents}
        given.write_text(json.dumps({"documents": documents, "stop_words": listed, "words": words}), encoding="utf-8")
        subprocess.run([python, __file__, "--peer", given, answer], check=True)
        return json.loads(answer.read_text(encoding="utf-8"))


def peer(given: Path, answer: Path) -> None:
    """In datatrove's environment: judge the documents, and write reasons and CPU seconds by filter."""
    from datatrove.data import Document
    from datatrove.pipeline import filters
    from datatrove.pipeline.filters import fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter

    content = json.loads(given.read_text(encoding="utf-8"))
    if content["words"]:
        known = {d["text"]: words for d, words in zip(content["documents"], content["words"], strict=True)}
        for module in (gopher_repetition_filter, gopher_quality_filter, fineweb_quality_filter):
            module.split_into_words = lambda text, language: known.get(text) or text.split()
    made: dict[str, dict | None] = {}
    for language, stop_words in content["stop_words"].items():
        own = {} if language == "en" else {"stop_words": stop_words or [], "min_stop_words": 2 if stop_words else None}
        made[language] = {"gopher_repetition": filters.GopherRepetitionFilter(language=language),
                          "gopher_quality": filters.GopherQualityFilter(language=language, **own),
                          "c4": filters.C4QualityFilter(language=language),
                          "fineweb": filters.FineWebQualityFilter(language=language)}
        try:
            for judge in made[language].values():
                judge.filter(Document(text=PROBE, id=""))
        except (ValueError, ImportError, OSError, KeyError) as error:
            print(f"datatrove has no words for {language}: {str(error)[:80]}")
            made[language] = None
    seconds = dict.fromkeys(SETS, 0.0)
    verdicts = []
    for document in content["documents"]:
        judges = made[document["language"]]
        verdicts.append(None if judges is None else {})
        for name, judge in (judges or {}).items():
            began = time.process_time()
            try:
                kept = judge.filter(Document(text=document["text"], id=document["id"]))
            except (ZeroDivisionError, AssertionError) as error:  # it divides by words or lines where there are none
                kept = (False, f"error: {type(error).__name__}")
            seconds[name] += time.process_time() - began
            verdicts[-1][name] = None if kept is True else kept[1]
    answer.write_text(json.dumps({"verdicts": verdicts, "seconds": seconds}), encoding="utf-8")


PROBE = "One sentence of this text. Another one, with more words than that."


# -- comparison -------------------------------------------------------------------------------------------------------


def compare(documents: list[dict], languages: str) -> dict:
    """Speed and agreement on these documents."""
    first, seconds_before = ours(documents)
    answer = theirs(documents, languages)
    _, seconds_after = ours(documents)  # before and after, for the load of the machine changes
    judged = [i for i, verdict in enumerate(answer["verdicts"]) if verdict is not None]
    chars = sum(len(d["text"]) for d in documents)
    per_ours = len(documents) * 2 / (seconds_before + seconds_after)
    per_theirs = len(judged) / sum(answer["seconds"].values())
    pairs = [(documents[i], answer["verdicts"][i], first[i]) for i in judged]
    return {
        "documents": len(documents), "judged_by_both": len(judged), "mean_chars": round(chars / len(documents)),
        "documents_per_cpu_second": {"curator": round(per_ours), "datatrove": round(per_theirs, 1)},
        "ratio": round(per_ours / per_theirs, 1),
        "datatrove_seconds": {name: round(seconds, 2) for name, seconds in answer["seconds"].items()},
        "agreement": {name: share([same(theirs, ours, (name,)) for _, theirs, ours in pairs]) for name in SETS},
        "agreement_all_four": share([same(theirs, ours, SETS) for _, theirs, ours in pairs]),
        "agreement_kept_or_dropped": share([any(theirs.values()) == any(ours.values()) for _, theirs, ours in pairs]),
        "differences": differences(pairs, languages),
    }


def share(answers: list[bool]) -> float:
    return round(sum(answers) / len(answers), 4)


def same(theirs: dict, ours: dict, names: tuple[str, ...]) -> bool:
    return all((theirs[name] is None) == (ours[name] is None) for name in names)


def differences(pairs: list[tuple[dict, dict, dict]], languages: str) -> list[dict]:
    """Classes of different verdicts, most frequent first, with their cause and an example."""
    apart = [pair for pair in pairs if not same(pair[1], pair[2], SETS)]
    if not apart:
        return []
    again = theirs([d for d, _, _ in apart], languages, our_words([d["text"] for d, _, _ in apart]))["verdicts"]
    counts: Counter = Counter()
    example: dict[tuple, str] = {}
    for (document, before, own), after in zip(apart, again, strict=True):
        for name in SETS:
            if not same(before, own, (name,)):
                key = (name, before[name] or "kept", own[name] or "kept", cause(name, document, after, own))
                counts[key] += 1
                example.setdefault(key, document["id"])
    return [{"rules": key[0], "datatrove": key[1], "curator": key[2], "cause": key[3], "count": count, "example": example[key]}
            for key, count in counts.most_common()]


def cause(name: str, document: dict, with_our_words: dict, own: dict) -> str:
    """Why the verdicts differ."""
    if name != "c4" and same(with_our_words, own, (name,)):
        return "words are divided differently"
    if any(end in document["text"] for end in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"):
        return "line ends other than a newline"
    if not document["text"].isascii() and (name == "c4" or name == "gopher_quality"):
        return "punctuation, sentences and words of other scripts"
    if name == "gopher_repetition":
        return "datatrove compares n-grams as joined letters (1 23 equals 12 3), or keeps a set of those read"
    return "sentences are divided differently" if name == "c4" else "other"


def show(title: str, result: dict) -> None:
    speed = result["documents_per_cpu_second"]
    print(f"\n{title}: {result['documents']:,} documents of {result['mean_chars']:,} characters")
    print(f"  documents per CPU-second: curator {speed['curator']:,}, datatrove {speed['datatrove']:,}; ratio {result['ratio']}")
    print("  same verdict: " + ", ".join(f"{name} {value:.2%}" for name, value in result["agreement"].items()))
    print(f"  all four verdicts the same {result['agreement_all_four']:.2%}, "
          f"kept or dropped the same {result['agreement_kept_or_dropped']:.2%}")
    for d in result["differences"]:
        print(f"  {d['count']:4} {d['rules']}: datatrove {d['datatrove']}, curator {d['curator']}: {d['cause']} ({d['example']})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=Path, help="a .jsonl or .jsonl.gz file with id and text")
    parser.add_argument("--languages", choices=("en", "all"), default="en", help="all: the others are compared, too")
    parser.add_argument("--limit", type=int, help="so many documents at most")
    given = parser.parse_args()
    documents = read_documents(given.documents) if given.documents else own_documents()
    english = [d for d in documents if d["language"] == "en"][: given.limit]
    others = [d for d in documents if d["language"] != "en"][: given.limit] if given.languages == "all" else []
    results = {}
    for title, chosen in (("English", english), ("other languages", others)):
        if chosen:
            results[title] = compare(chosen, given.languages)
            show(title, results[title])
    path = HERE / "results" / "text_signals.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
