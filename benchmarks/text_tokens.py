"""Tokens: `text.tokenize` against the library bare, side by side, and that the answers are equal.

    python benchmarks/text_tokens.py --texts docs.jsonl.gz [--tokenizer tokenizer.json]

Without a tokenizer one is trained on some of the texts: bytes and 16,000 pieces.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pyarrow as pa
from curator_text import Tokenize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from curator.api.stage import Context
from curator.api.tasks import TextBatch

ROWS = 256


def trained(texts: list[str], path: str) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.train_from_iterator(texts[::6], trainers.BpeTrainer(
        vocab_size=16_000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--tokenizer")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with (gzip.open if args.texts.endswith(".gz") else open)(args.texts, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        path = args.tokenizer or os.path.join(folder, "tokenizer.json")
        if not args.tokenizer:
            trained(texts, path)
        bare = Tokenizer.from_file(path)
        stage = Tokenize(tokenizer=path, ids=True)
        stage.setup(Context())
        batch = TextBatch(pa.table({"id": [str(n) for n in range(len(texts))], "source": [""] * len(texts), "text": texts}))
        characters, ratios = sum(map(len, texts)), []
        for _ in range(args.rounds):
            start = time.process_time()
            theirs = [found.ids for at in range(0, len(texts), ROWS)
                      for found in bare.encode_batch_fast(texts[at:at + ROWS], add_special_tokens=False)]
            alone = time.process_time() - start
            start = time.process_time()
            ours = [stage.process(batch.slice(at, at + ROWS)) for at in range(0, len(texts), ROWS)]
            own = time.process_time() - start
            ratios.append(alone / own)
            print(f"ours {characters / own / 1e6:.2f}   tokenizers {characters / alone / 1e6:.2f} million characters a CPU-second   "
                  f"ratio {ratios[-1]:.2f}")
        assert [ids for answer in ours for ids in answer.column("token_ids")] == theirs
        print(f"median ratio {statistics.median(ratios):.2f}; {sum(map(len, theirs)):,} equal tokens of {len(texts):,} texts")


if __name__ == "__main__":
    main()
