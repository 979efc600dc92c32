"""fastText's classifiers: from texts to probabilities of labels, for many texts at once.

The vector of a text is the mean of the rows of its words, their pieces and their n-grams. What a word brings
is the same in each text, so it is added up once and kept. So texts in which words come back, as they do, cost
less than in fastText itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from curator_text.models.fasttext_file import LOSSES, FasttextFile

END = b"</s>"  # the end of a line, a word like others
_ZERO_IS_SPACE = bytes.maketrans(b"\0\n", b"  ")
_FNV_START, _FNV_PRIME = np.uint32(2166136261), np.uint32(16777619)
_NGRAM_FACTOR = np.uint64(116049371)
_WORDS_MAX = 500_000  # that are kept before all are forgotten: 16 dimensions take 0.1 GB
# that fastText adds to each probability before its logarithm, and never takes away again
_TINY = np.float32(1e-5)
_ROWS_AT_ONCE = 1 << 16  # of words and features whose rows are in memory at a time


class FasttextModel:
    """Asked about many texts at once. `labels`: their names without `__label__`."""

    def __init__(self, file: FasttextFile) -> None:
        self.labels = [name.decode("utf-8", "replace").removeprefix("__label__") for name in file.labels]
        self._file, self._args = file, file.args
        self._ids = {word: number for number, word in enumerate(file.words)}
        self._label_names = frozenset(file.labels)
        self._output = file.output.whole().astype(np.float32)
        self._loss = LOSSES[self._args["loss"]]
        self._tree = _Tree(file.label_counts) if self._loss == "hs" else None
        self._pruned = None if file.pruned is None else np.full(self._args["bucket"], -1, np.int64)
        if self._pruned is not None and file.pruned is not None and len(file.pruned):
            self._pruned[file.pruned[:, 0]] = file.pruned[:, 1]
        self._clear()

    def _clear(self) -> None:
        self._known: dict[bytes, int] = {}  # place of a word in the arrays below, -1 for a label
        self._used = 0
        self._sums = np.empty((1024, self._args["dim"]), np.float32)
        self._counts = np.empty(1024, np.int64)
        self._hashes = np.empty(1024, np.uint64)

    def probabilities(self, texts: Sequence[str | None]) -> np.ndarray:
        """float32 [texts, labels]. A null is an empty text; line ends are spaces."""
        places, ends = self._places([self._line(text or "") for text in texts])
        of = np.repeat(np.arange(len(texts)), np.diff(ends, prepend=0))
        counts = np.bincount(of, self._counts[places], minlength=len(texts))
        sums = np.zeros((len(texts), self._args["dim"]), np.float32)
        _add_rows(sums, of, places, self._sums.__getitem__)
        if self._args["word_ngrams"] > 1:
            self._add_ngrams(self._hashes[places], of, sums, counts)
        return self._answer((sums / np.maximum(counts, 1)[:, None]).astype(np.float32))

    def _line(self, text: str) -> list[bytes]:
        words = text.encode("utf-8", "surrogatepass").translate(_ZERO_IS_SPACE).split()
        if END in words:
            del words[words.index(END):]
        words.append(END)
        return words

    def _places(self, lines: list[list[bytes]]) -> tuple[np.ndarray, np.ndarray]:
        """The places of all words, one line after the other, and where each line ends. A label in a text is
        no word."""
        if len(self._known) > _WORDS_MAX:
            self._clear()
        words = [word for line in lines for word in line]
        if new := set(words) - self._known.keys():
            self._learn(list(new))
        found = np.fromiter(map(self._known.__getitem__, words), np.int64, len(words))
        ends = np.cumsum([len(line) for line in lines])
        if (found < 0).any():
            ends = np.concatenate([[0], np.cumsum(found >= 0)])[ends]
            found = found[found >= 0]
        return found, ends

    def _learn(self, words: list[bytes]) -> None:
        """Add up what each word brings by itself."""
        labels = [word for word in words if word not in self._ids and word.startswith(b"__label__")] + [
            word for word in words if word in self._label_names]
        self._known |= dict.fromkeys(labels, -1)
        words = [word for word in words if word not in self._known]
        first, self._used = self._used, self._used + len(words)
        while self._used > len(self._counts):
            self._sums, self._counts, self._hashes = (np.concatenate([a, np.empty_like(a)])
                                                      for a in (self._sums, self._counts, self._hashes))
        here = slice(first, self._used)
        ids = np.array([self._ids.get(word, -1) for word in words], np.int64)
        self._hashes[here] = _signed(_hashes_of(words))
        self._counts[here] = ids >= 0
        self._sums[here] = 0.0
        self._sums[here][ids >= 0] = self._file.input.rows(ids[ids >= 0])
        if self._args["maxn"] > 0:
            of, rows = self._kept(*_pieces(words, self._args["minn"], self._args["maxn"]))
            self._counts[here] += np.bincount(of, minlength=len(words))
            _add_rows(self._sums[here], of, rows, self._file.input.rows)
        self._known |= {word: first + number for number, word in enumerate(words)}

    def _kept(self, of: np.ndarray, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of hashed features, without those whose rows are gone."""
        if not self._args["bucket"]:
            return of[:0], of[:0]
        rows = (hashes % np.uint64(self._args["bucket"])).astype(np.int64)
        if self._pruned is not None:
            rows = self._pruned[rows]
            of, rows = of[rows >= 0], rows[rows >= 0]
        return of, rows + len(self._file.words)

    def _add_ngrams(self, hashes: np.ndarray, lines: np.ndarray, sums: np.ndarray,
                    counts: np.ndarray) -> None:
        """Add what words in a row bring, 2 to `word_ngrams` of them. `lines`: the text of each word."""
        running = hashes.copy()
        for n in range(1, self._args["word_ngrams"]):
            if n >= len(hashes):
                return
            running = running[:-1] * _NGRAM_FACTOR + hashes[n:]
            inside = lines[:-n] == lines[n:]
            of, rows = self._kept(lines[n:][inside], running[inside])
            counts += np.bincount(of, minlength=len(counts))
            _add_rows(sums, of, rows, self._file.input.rows)

    def _answer(self, hidden: np.ndarray) -> np.ndarray:
        if self._tree is not None:
            return self._tree.probabilities(_sigmoid(hidden @ self._output[:len(self.labels) - 1].T))
        scores = hidden @ self._output.T
        if self._loss != "softmax":
            found = _sigmoid(scores)
        else:
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            found = scores / scores.sum(axis=1, keepdims=True)
        return np.minimum(found + _TINY, 1)


def _add_rows(sums: np.ndarray, of: np.ndarray, places: np.ndarray,
              rows: Callable[[np.ndarray], np.ndarray]) -> None:
    """Add the rows at some places to the sums that they are `of`, which ascends."""
    for start in range(0, len(places), _ROWS_AT_ONCE):
        owner = of[start:start + _ROWS_AT_ONCE]
        first = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
        sums[owner[first]] += np.add.reduceat(rows(places[start:start + _ROWS_AT_ONCE]), first, axis=0)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-values.astype(np.float64)))).astype(np.float32)


def _signed(hashes: np.ndarray) -> np.ndarray:
    """32-bit hashes as fastText widens them: with their sign."""
    return hashes.astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)


def _laid(words: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bytes of all words end to end as fastText hashes them, sign-extended; where each begins, and its
    length."""
    joined = np.frombuffer(b"".join(words), np.int8).astype(np.int32).view(np.uint32)
    lengths = np.array([len(word) for word in words], np.int64)
    return joined, np.cumsum(lengths) - lengths, lengths


def _hashes_of(words: list[bytes]) -> np.ndarray:
    """FNV-1a of each word, uint32."""
    joined, starts, lengths = _laid(words)
    found = np.full(len(words), _FNV_START)
    for at in range(int(lengths.max(initial=0))):
        there = np.flatnonzero(lengths > at)
        found[there] = (found[there] ^ joined[starts[there] + at]) * _FNV_PRIME
    return found


def _pieces(words: list[bytes], minn: int, maxn: int) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of pieces of `minn` to `maxn` characters of each word between its marks: which word's, and
    the hash as uint64."""
    marked = [b"<" + word + b">" if word != END else b"" for word in words]
    joined, starts, lengths = _laid(marked)
    word_of_byte = np.repeat(np.arange(len(words)), lengths)
    # characters, but for continued ones
    begins = np.flatnonzero((joined & np.uint32(0xC0)) != np.uint32(0x80))
    char_ends = np.append(begins[1:], len(joined))
    word = word_of_byte[begins]
    first, last = begins == starts[word], char_ends == (starts + lengths)[word]
    found_of, found = [], []
    alive, running = np.arange(len(begins)), np.full(len(begins), _FNV_START)
    for n in range(1, maxn + 1):
        char = alive + n - 1
        for byte in range(4):  # of a character
            there = begins[char] + byte < char_ends[char]
            running[there] = (running[there] ^ joined[begins[char[there]] + byte]) * _FNV_PRIME
        if n >= minn:
            chosen = ~(first[alive] | last[alive]) if n == 1 else np.ones(len(alive), bool)
            found_of.append(word[alive[chosen]])
            found.append(running[chosen].astype(np.uint64))
        follows = ~last[char]
        alive, running = alive[follows], running[follows]
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    of, hashes = np.concatenate(found_of), np.concatenate(found)
    order = np.argsort(of, kind="stable")
    return of[order], hashes[order]


class _Tree:
    """The Huffman tree of hierarchical softmax: what each label's way down it says of the inner nodes."""

    def __init__(self, counts: Sequence[int]) -> None:
        n = len(counts)
        parent, right = [-1] * (2 * n - 1), [False] * (2 * n - 1)
        weight = [*counts, *([10**15] * (n - 1))]
        leaf, node = n - 1, n
        for made in range(n, 2 * n - 1):
            both = []
            for _ in range(2):
                if leaf >= 0 and weight[leaf] < weight[node]:
                    both.append(leaf)
                    leaf -= 1
                else:
                    both.append(node)
                    node += 1
            weight[made] = weight[both[0]] + weight[both[1]]
            parent[both[0]] = parent[both[1]] = made
            right[both[1]] = True
        self._ways = np.zeros((2, max(1, n - 1), n), np.float32)  # [left or right, inner node, label]
        for label in range(n):
            at = label
            while parent[at] >= 0:
                self._ways[int(right[at]), parent[at] - n, label] = 1.0
                at = parent[at]
        self._single = n == 1

    def probabilities(self, right: np.ndarray) -> np.ndarray:
        """`right`: how likely each inner node leads to the right, float32 [texts, nodes]."""
        if self._single:
            return np.ones((len(right), 1), np.float32)
        return np.minimum(np.exp(np.log(right + _TINY) @ self._ways[1] + np.log(1 - right + _TINY)
                                 @ self._ways[0]), 1)
