"""Documents whose look-alikes are known: real text with planted copies, and the exact similarity of all that are alike.

    python benchmarks/dedup_truth.py FOLDER [--text FOLDER] [--docs 6000] [--seed 1] [--as-written]

Writes `corpus/*.jsonl` (id, text), `records.parquet` (id, kind, family, level, words) and `pairs.parquet` (id, other, jaccard).

Similarity is the Jaccard index of the sets of 5-word shingles. It is measured, never assumed: edits are made until a copy has the
wanted similarity, and then all pairs of the corpus are counted, since real text has look-alikes of its own. By default all
words are runs of the letters a to z between single blanks and line ends, so that every tool makes the same shingles of them,
however it normalises; what then differs is the method and not the notion of a word. With `--as-written` they stay as they are.

Kinds of families:

- `near`: a page and an edited copy at a level of LEVELS: words replaced, deleted and inserted at random places;
- `exact`: 2 to 40 equal pages;
- `chain`: 13 pages, each an edited copy (0.9) of the one before, so that the ends are unlike (about 0.35);
- `template`: one head and one foot around ten different bodies: nearly half is shared, none is another's copy;
- `translated`: a page and a copy of which half is in another language, in turns of 20 words;
- `boilerplate`: eight pages with the same closing paragraph;
- `base`: a page by itself.

The other language is made up: vowels and consonants are rotated, so each word has its one translation, as in a dictionary. Where
the text does not suffice, it is read again in one more such language.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
SHINGLE = 5
LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
LINKS = 13  # pages of a chain
COPIES = (2, 2, 2, 3, 5, 10, 40)  # sizes of the families of equal pages, in turn
SHARES = {"near": 0.36, "exact": 0.06, "chain": 0.05, "template": 0.08, "translated": 0.04, "boilerplate": 0.05}
LEAST_COUNTED = 0.3  # similarities below it are not written
LINE_WORDS = 12
LANGUAGES = 104
VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
SUFFIXES = (".txt", ".md", ".rst", ".jsonl", ".jsonl.gz")


@dataclass
class Page:
    """A document: its words, the kind and number of its family, and for an edited copy the similarity that was aimed at."""

    words: list[str]
    kind: str
    family: int
    level: float | None = None
    id: str = ""

    @property
    def text(self) -> str:
        return "\n".join(" ".join(self.words[i:i + LINE_WORDS]) for i in range(0, len(self.words), LINE_WORDS))


# -- text -----------------------------------------------------------------------------------------------------------


def read_texts(folder: Path | None) -> list[str]:
    """The texts of a folder's files (the column `text` of JSON Lines), else those that each Python installation holds."""
    if folder is None:
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "corpus.jsonl")
            subprocess.run([sys.executable, HERE.parent / "examples" / "corpus.py", path], check=True, stdout=subprocess.DEVNULL)
            return list(texts_of(path))
    files = sorted(p for p in folder.rglob("*") if p.name.endswith(SUFFIXES))
    texts = [text for path in files for text in texts_of(path)]
    if not texts:
        sys.exit(f"{folder} has no text: files named {', '.join(SUFFIXES)} are read, of JSON Lines the column text")
    return texts


def texts_of(path: Path) -> Iterator[str]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if ".jsonl" not in path.name:
        yield content.decode(errors="replace")
        return
    for line in content.splitlines():
        record = json.loads(line)
        if isinstance(record.get("text"), str):
            yield record["text"]


def translation(language: int) -> dict[int, int]:
    """Of letters, for `str.translate`. One-to-one; language 0 is the original, and all up to LANGUAGES differ."""
    table = {}
    for letters, turn in ((VOWELS, language // len(CONSONANTS)), (CONSONANTS, language % len(CONSONANTS))):
        turned = letters[turn:] + letters[:turn]
        table |= str.maketrans(letters + letters.upper(), turned + turned.upper())
    return table


class Supply:
    """Pages cut from texts, one after the other, each once."""

    def __init__(self, texts: list[str], rng: np.random.Generator, plain: bool) -> None:
        self.texts, self.rng, self.plain = texts, rng, plain
        self.pieces = self.cut()

    def take(self, least: int = 60) -> list[str]:
        """The next page, of `least` words or more."""
        page: list[str] = []
        while len(page) < least:
            page += next(self.pieces)
        return page

    def cut(self) -> Iterator[list[str]]:
        for language in range(LANGUAGES + 1):
            table, found = translation(language), False
            for i in self.rng.permutation(len(self.texts)):
                text = self.texts[i].translate(table)
                words = re.findall("[a-z]+", text.lower()) if self.plain else text.split()
                while words:
                    size = int(np.clip(self.rng.lognormal(5.5, 0.6), 60, 1500))
                    page, words, found = words[:size], words[size:], True
                    yield page
            if not found:
                sys.exit("the texts have no words")
        sys.exit("so many documents need more text: name a folder with --text")


# -- edits ----------------------------------------------------------------------------------------------------------


def shingles(words: list[str]) -> set[tuple[str, ...]]:
    return set(zip(*(words[i:] for i in range(SHINGLE)), strict=False))


def jaccard(a: list[str], b: list[str]) -> float:
    first, second = shingles(a), shingles(b)
    return len(first & second) / max(1, len(first | second))


def edited(words: list[str], level: float, rng: np.random.Generator, vocabulary: list[str]) -> list[str]:
    """A copy whose similarity is as near to `level` as single words allow: a third each replaced, deleted and inserted."""
    places, kinds = rng.permutation(len(words)), rng.integers(0, 3, len(words))
    fresh = [vocabulary[i] for i in rng.integers(0, len(vocabulary), len(words))]

    def copy(edits: int) -> list[str]:
        parts = [[word] for word in words]
        for place, kind, word in zip(places[:edits].tolist(), kinds.tolist(), fresh, strict=False):
            parts[place] = [[word], [], [parts[place][0], word]][kind]
        return list(itertools.chain.from_iterable(parts))

    low, high = 0, len(words)  # the similarity falls with the number of edits
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if jaccard(words, copy(middle)) > level else (low, middle)
    return min((copy(low), copy(high)), key=lambda found: abs(jaccard(words, found) - level))


def families(kind: str, supply: Supply, rng: np.random.Generator, vocabulary: list[str]) -> Iterator[tuple[list, float | None]]:
    """Without end: the pages of one family after the other, with the level of those that have one."""
    for number in itertools.count():
        if kind == "near":
            level, words = LEVELS[number % len(LEVELS)], supply.take(250)
            yield [words, edited(words, level, rng, vocabulary)], level
        elif kind == "exact":
            yield [supply.take()] * COPIES[number % len(COPIES)], None
        elif kind == "chain":
            pages = [supply.take(250)]
            while len(pages) < LINKS:
                pages.append(edited(pages[-1], 0.9, rng, vocabulary))
            yield pages, None
        elif kind == "template":
            head, foot = supply.take(80)[:80], supply.take(80)[:80]
            yield [head + supply.take(110)[:int(rng.integers(90, 110))] + foot for _ in range(10)], None
        elif kind == "translated":
            words, table = supply.take(200), translation(len(CONSONANTS) + 1)
            yield [words, [w.translate(table) if i // 20 % 2 else w for i, w in enumerate(words)]], None
        elif kind == "boilerplate":
            foot = supply.take(60)[:60]
            yield [supply.take(150) + foot for _ in range(8)], None
        else:
            yield [supply.take()], None


def plant(texts: list[str], docs: int, seed: int = 1, plain: bool = True) -> list[Page]:
    """`docs` pages in random order: families by SHARES, the rest `base`. The same seed and texts give the same pages."""
    rng = np.random.default_rng(seed)
    supply = Supply(texts, rng, plain)
    vocabulary = sorted({word for _ in range(20) for word in supply.take(200)})
    pages: list[Page] = []
    number = itertools.count()
    for kind, share in [*SHARES.items(), ("base", 1.0)]:
        made, wanted = 0, docs - len(pages) if kind == "base" else int(docs * share)
        for members, level in families(kind, supply, rng, vocabulary):
            if made + len(members) > wanted:
                break
            family, made = next(number), made + len(members)
            pages += [Page(words, kind, family, level) for words in members]
    pages = [pages[i] for i in rng.permutation(len(pages))]
    for i, page in enumerate(pages):
        page.id = f"r{i:07d}"
    return pages


# -- the truth ------------------------------------------------------------------------------------------------------


def numbered_shingles(documents: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct shingles of each document, numbered without hashing: (document, shingle), ascending."""
    numbers: dict[str, int] = {}
    padding = [0] * SHINGLE  # so that a run begins at each word, though it may leave its document
    words = np.array([numbers.setdefault(w, len(numbers)) for d in documents for w in d] + padding, dtype=np.int64)
    lengths = np.array([len(d) for d in documents], dtype=np.int64)
    grown, size = words, 1  # the number of the run of `size` words that begins at each place
    while size < SHINGLE:
        following = words[size:] if 2 * size > SHINGLE else grown[size:]
        pairs = grown[:len(following)] * (int(max(grown.max(), words.max())) + 1) + following
        grown, size = np.unique(pairs, return_inverse=True)[1], size + 1 if 2 * size > SHINGLE else 2 * size
    document = np.repeat(np.arange(len(documents)), lengths)
    inside = np.arange(len(document)) + SHINGLE <= np.repeat(np.cumsum(lengths), lengths)
    many = int(grown.max()) + 1
    return np.divmod(np.unique(document[inside] * many + grown[:len(document)][inside]), many)


def exact_pairs(documents: list[list[str]], least: float = LEAST_COUNTED) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs (i < j) whose Jaccard index is `least` or more, and the index: counted, nothing is sampled or hashed."""
    document, shingle = numbered_shingles(documents)
    sizes = np.bincount(document, minlength=len(documents))
    common = np.bincount(shingle)[shingle] > 1
    document, shingle = document[common], shingle[common]
    order = np.argsort(shingle, kind="stable")  # documents ascend within a shingle
    holders, sorted_shingle = document[order], shingle[order]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    begin = np.searchsorted(sorted_shingle, shingle)  # of the list of the shingle's holders
    edges = np.searchsorted(document, np.arange(len(documents) + 1))
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for j in range(len(documents)):
        own = slice(edges[j], edges[j + 1])
        counts = place[own] - begin[own]  # holders before j
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        shared = np.bincount(holders[np.repeat(begin[own], counts) + steps], minlength=j)
        others = shared.nonzero()[0]
        index = shared[others] / (sizes[others] + sizes[j] - shared[others])
        near = index >= least
        found.append((others[near], np.full(near.sum(), j), index[near]))
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


# -- files ----------------------------------------------------------------------------------------------------------


def write(pages: list[Page], folder: Path, truth: bool = True, files: int = 4) -> None:
    """The corpus as JSON Lines, and with `truth` the tables beside it."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for number in range(files):
        part = pages[len(pages) * number // files:len(pages) * (number + 1) // files]
        lines = (json.dumps({"id": page.id, "text": page.text}, ensure_ascii=False) + "\n" for page in part)
        (corpus / f"{number:02d}.jsonl").write_text("".join(lines), encoding="utf-8")
    if truth:
        ids = np.array([page.id for page in pages])
        first, second, index = exact_pairs([page.words for page in pages])
        pq.write_table(pa.table({"id": ids[first], "other": ids[second], "jaccard": index}), folder / "pairs.parquet")
        fields = {name: [getattr(page, name) for page in pages] for name in ("id", "kind", "family", "level")}
        fields["words"] = [len(page.words) for page in pages]
        pq.write_table(pa.table(fields), folder / "records.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new one")
    parser.add_argument("--text", type=Path, help="a folder of texts")
    parser.add_argument("--docs", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--as-written", action="store_true", help="words as they stand, with capitals and punctuation")
    told = parser.parse_args()
    write(plant(read_texts(told.text), told.docs, told.seed, not told.as_written), told.folder)


if __name__ == "__main__":
    main()
