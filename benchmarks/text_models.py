"""Models of texts, against the libraries bare: documents a CPU-second, side by side, and that the answers are equal.

    python benchmarks/text_models.py fasttext --model lid.176.ftz --texts docs.jsonl.gz

fasttext: `text.fasttext` against the package fasttext-wheel, if that is installed (it needs numpy 1, or its `f.predict` as here).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a worker has one core

import numpy as np


def texts_of(path: str, chars: int) -> list[str]:
    """Texts of JSON Lines in pieces of `chars`, so that documents are of one size."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    return [text[at:at + chars].replace("\n", " ") for text in texts for at in range(0, len(text), chars)]


def fasttext(texts: list[str], model: str, rounds: int) -> None:
    import fasttext as library
    from curator_text.models.fasttext_file import read_fasttext
    from curator_text.models.fasttext_model import FasttextModel

    theirs = library.load_model(model)
    label_of = []
    ratios = []
    for _ in range(rounds):
        ours = FasttextModel(read_fasttext(model))  # anew: what it has learned of words counts
        start = time.process_time()
        found = np.concatenate([ours.probabilities(texts[at:at + 64]) for at in range(0, len(texts), 64)])
        own = time.process_time() - start
        start = time.process_time()
        label_of = [theirs.f.predict(text + "\n", 1, 0.0, "strict") for text in texts]
        bare = time.process_time() - start
        ratios.append(bare / own)
        print(f"ours {len(texts) / own:8,.0f}   fastText {len(texts) / bare:8,.0f} documents a CPU-second   ratio {bare / own:.2f}")
    best = found.argmax(axis=1)
    same = sum(ours.labels[b] == told[0][1].removeprefix("__label__") for b, told in zip(best, label_of, strict=True))
    far = max(abs(min(told[0][0], 1) - found[row, ours.labels.index(told[0][1].removeprefix("__label__"))])
              for row, told in enumerate(label_of))
    print(f"median ratio {np.median(ratios):.2f}; equal labels {same} of {len(texts)}; probabilities differ by {far:.1e} at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fasttext"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--chars", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    texts = texts_of(args.texts, args.chars)
    print(f"{len(texts):,} texts of up to {args.chars:,} characters")
    fasttext(texts, args.model, args.rounds)


if __name__ == "__main__":
    main()
