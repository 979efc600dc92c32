"""text.signals and the rule sets nemo_en and nemo_other beside NeMo Curator's own heuristics, those of its configuration files.

    python benchmarks/text_rules.py [--documents FILE.jsonl.gz] [--limit N]

Documents per CPU-second, how often both drop the same documents, and where a rule says something else, with its cause. The documents are
those of `text_signals.py`; English ones are judged by nemo_en, others by nemo_other, Chinese and Japanese by none: NeMo Curator
takes other words there. It runs in a virtual environment of its own, made at the first call (minutes). Its time is that of its
filters alone, without reading, tables or Ray; once each filter on each document, as ours, and once until the first drops.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from peers import call, keep
from text_signals import BATCH_ROWS, measured_in, own_documents, read_documents

SETS = {"nemo_en": "heuristic_filter_english_pipeline.yaml", "nemo_other": "heuristic_filter_non_english_pipeline.yaml"}
PACKAGES = ["nemo-curator==1.4.0"]
# Its filters and our rules by the names of both; where two rules are one filter of it, both.
RULES = {
    "alpha_numeric": "non_alphanumeric", "symbol_to_word": "symbol_words", "numbers_ratio": "digits", "urls_ratio": "urls",
    "white_space": "white_space", "parentheses_ratio": "brackets", "boilerplate_string_ratio": "boilerplate",
    "repeated_lines": "repeated_lines", "repeated_paragraphs": "repeated_paragraphs",
    "repeated_lines_char": "repeated_line_characters", "repeated_paragraphs_char": "repeated_paragraph_characters",
    "word_count": "too_few_words too_many_words", "punctuation": "unpunctuated_lines",
    "words_without_alphabets": "words_without_letters", "common_english_words": "stop_words_missing",
    "mean_word_length": "short_words long_words", "max_word_length": "longest_word", "ellipsis": "cut_lines",
    **{f"repeating_top_{n}grams": f"top_{n}_gram" for n in (2, 3, 4)},
    **{f"repeating_dup_{n}gram": f"duplicate_{n}_grams" for n in range(5, 11)}, "bullet_ratio": "bullet_lines",
}


def ours(documents: list[dict], name: str) -> tuple[list[set[str]], float]:
    """The rules that drop each document, and CPU seconds of measuring and dropping."""
    from curator_text.measures.signals import Signals

    from curator import sql
    from curator.api.stage import Context
    from curator.stages.drop import Drop

    signals, drop = Signals(only=name), Drop(rules=name)
    for stage in (signals, drop):
        stage.setup(Context())
    measured, seconds = measured_in(documents, signals, drop)
    dropped: list[set[str]] = [set() for _ in documents]
    for reason, condition in drop.reasons().items():  # each rule by itself: in one drop, the first one counts
        for start, batch in enumerate(measured):
            for row, found in enumerate(sql.evaluate({reason: condition}, batch.rows)):
                if found.is_valid:
                    dropped[start * BATCH_ROWS + row].add(reason)
    return dropped, seconds


def theirs(documents: list[dict], name: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "documents.json")
        path.write_text(json.dumps([d["text"] for d in documents]), encoding="utf-8")
        told = call("text_rules", "nemo-curator", PACKAGES, "judge", {"documents": str(path), "config": SETS[name]}, 3600)
    if "error" in told:
        sys.exit(told["error"])
    return told


def compare(documents: list[dict], name: str) -> dict:
    _, before = ours(documents, name)
    told = theirs(documents, name)
    dropped, after = ours(documents, name)  # before and after, for the load of the machine changes
    seconds, count = (before + after) / 2, len(documents)
    verdicts = [dict(zip(told["filters"], found, strict=True)) for found in told["verdicts"]]
    gone = [any(v is None or not v[0] for v in found.values()) for found in verdicts]
    apart = Counter()
    for document, found, own in zip(documents, verdicts, dropped, strict=True):
        for rule, verdict in found.items():
            mine = bool(own & set(RULES[rule].split()))
            if verdict is None or (not verdict[0]) != mine:
                said = "raises" if verdict is None else "keeps" if verdict[0] else "drops"
                apart[rule, said, "drops" if mine else "keeps", cause(rule, document["text"])] += 1
    return {
        "documents": count, "mean_chars": round(sum(len(d["text"]) for d in documents) / count), "version": told["version"],
        "documents_per_cpu_second": {"curator": round(count / seconds), "nemo_curator": round(count / told["all_filters"], 1),
                                     "nemo_curator_to_first_drop": round(count / told["to_first_drop"], 1)},
        "ratio": round(told["all_filters"] / seconds, 1), "ratio_to_first_drop": round(told["to_first_drop"] / seconds, 1),
        "dropped": {"curator": sum(map(bool, dropped)), "nemo_curator": sum(gone)},
        "same_verdict": round(sum(a == bool(b) for a, b in zip(gone, dropped, strict=True)) / count, 4),
        "differences": [{"filter": key[0], "nemo_curator": key[1], "curator": key[2], "cause": key[3], "documents": times}
                        for key, times in apart.most_common()],
    }


def cause(rule: str, text: str) -> str:
    """Why the verdicts of a rule differ."""
    words, n = text.split(), int("".join(filter(str.isdigit, rule)) or 0)
    if not words:
        return "no words"
    if n and len(words) < n:
        return "fewer words than the n-gram has, which it drops"
    if rule.startswith("repeating_top"):
        counts = Counter(zip(*(words[i:] for i in range(n)), strict=False)).most_common(2)
        return "several n-grams are as frequent, and it takes any" if counts[0][1] == counts[-1][1] else "other"
    if rule == "repeated_paragraphs_char":
        return "its share is of the characters in paragraphs, ours of all"
    return "line ends other than a newline" if any(end in text for end in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029") else "other"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=Path, help="a .jsonl or .jsonl.gz file with id and text")
    parser.add_argument("--limit", type=int, help="so many documents of each set at most")
    given = parser.parse_args()
    documents = read_documents(given.documents) if given.documents else own_documents()
    for name in SETS:
        chosen = [d for d in documents if (d["language"] == "en") == (name == "nemo_en") and d["language"] not in ("zh", "ja")]
        if chosen := chosen[: given.limit]:
            result = compare(chosen, name)
            print(name, json.dumps(result, indent=1))
            keep("text_rules", [((name,), result)])


if __name__ == "__main__":
    main()
