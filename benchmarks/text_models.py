"""Models of texts, against the libraries bare: documents a CPU-second, side by side, and that the answers are equal.

    python benchmarks/text_models.py fasttext --model lid.176.ftz --texts docs.jsonl.gz
    python benchmarks/text_models.py llm
    python benchmarks/text_models.py encoder --texts docs.jsonl.gz --count 1024 --chars 800
    python benchmarks/text_models.py ngrams --model en.arpa.bin --texts docs.jsonl.gz
    python benchmarks/text_models.py generate

fasttext: `text.fasttext` against the package fasttext-wheel, if that is installed (it needs numpy 1, or its `f.predict` as here).
generate: `text.llm` without a server against a bare loop over questions sorted by their length: tokens made a second, and that the
words are equal. The model is made of random numbers; on a GPU, if torch finds one, of 0.3 billion, else of half a million.
encoder: `text.classify` and `text.embed` against a bare loop over the same model (random, as wide as MiniLM, with 2 of its layers):
all texts sorted by length, batches of as many tokens, padded to their longest. Lengths are log-normal, with a median of a third of --chars.
ngrams: `text.perplexity` by our own reading against the library kenlm (pip install camel-kenlm), both with the cutting into words.
llm: CPU a request of `text.llm`, with 256 under way at a server in another process that takes 0.2 s for each; with and without a cache.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter

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


def save_encoder(folder: str, texts: list[str]) -> None:
    """A random model of MiniLM's width, and a tokenizer that knows the commonest words of the texts."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower()))
    letters = sorted({letter for word in words for letter in word})
    vocabulary = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters),
                                *(word for word, _ in words.most_common(20_000))])
    with open(f"{folder}/vocab.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(vocabulary))
    BertTokenizerFast(vocab=f"{folder}/vocab.txt", vocab_file=f"{folder}/vocab.txt", model_max_length=512).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(vocabulary), hidden_size=384, num_hidden_layers=2, num_attention_heads=12, intermediate_size=1536,
                        id2label=dict(enumerate(("low", "middle", "high"))), label2id={"low": 0, "middle": 1, "high": 2})
    BertForSequenceClassification(config).eval().save_pretrained(folder)


def bare_loop(model: str, loader: str, texts: list[str], most: int):
    """What a careful user writes: one list of all texts, sorted by length."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    loaded = getattr(transformers, loader).from_pretrained(model).eval()

    @torch.inference_mode()
    def loop() -> np.ndarray:
        ids = tokenizer(texts, truncation=True, max_length=512)["input_ids"]
        order, found, at = sorted(range(len(ids)), key=lambda row: -len(ids[row])), [None] * len(ids), 0
        while at < len(order):
            rows = order[at:at + max(1, most // len(ids[order[at]]))]
            at += len(rows)
            given = tokenizer.pad({"input_ids": [ids[row] for row in rows]}, return_tensors="pt")
            told = loaded(**given)
            if loader == "AutoModel":
                mask = given["attention_mask"][..., None]
                told = torch.nn.functional.normalize((told.last_hidden_state * mask).sum(1) / mask.sum(1))
            else:
                told = told.logits.softmax(-1)
            for row, one in zip(rows, told.numpy(), strict=True):
                found[row] = one
        return np.array(found)

    return loop


def encoder(texts: list[str], rounds: int) -> None:
    import pyarrow as pa
    from curator_text import Classify, Embed
    from curator_text.models.encoders import TOKENS_AT_ONCE

    from curator.api.stage import Context
    from curator.api.tasks import TextBatch

    batch = TextBatch(pa.table({"id": [str(n) for n in range(len(texts))], "source": ["s"] * len(texts), "text": texts}))
    with tempfile.TemporaryDirectory() as folder:
        save_encoder(folder, texts)
        columns = {"low": "a", "middle": "b", "high": "c"}
        asked = {"AutoModelForSequenceClassification": Classify(model=folder, labels=columns), "AutoModel": Embed(model=folder)}
        for loader, stage in asked.items():
            stage.setup(Context())
            loop, ratios = bare_loop(folder, loader, texts, TOKENS_AT_ONCE["cpu"]), []
            stage.process(batch.slice(0, 8))  # what is made once
            for _ in range(rounds):
                start = time.process_time()
                parts = [stage.process(batch.slice(at, at + stage.batch_size)) for at in range(0, len(texts), stage.batch_size)]
                own = time.process_time() - start
                start = time.process_time()
                known = loop()
                bare = time.process_time() - start
                ratios.append(bare / own)
                speeds = f"{len(texts) / own:7.1f}   bare loop {len(texts) / bare:7.1f} texts a CPU-second"
                print(f"{type(stage).__name__}: {speeds}   ratio {bare / own:.3f}")
            names = ["embedding"] if loader == "AutoModel" else list(columns.values())
            made = [np.stack([np.array(part.column(name)) for name in names], axis=-1) for part in parts]
            far = np.abs(np.concatenate(made).reshape(known.shape) - known).max()
            print(f"median ratio {np.median(ratios):.3f}; numbers differ by {far:.1e} at most")


def ngrams(texts: list[str], model: str, rounds: int) -> None:
    import kenlm
    from curator_text.models.ngram.arpa import read_arpa
    from curator_text.models.ngram.kenlm_file import MAGIC, read_kenlm
    from curator_text.models.ngram.model import NgramModel

    with open(model, "rb") as file:
        reader = read_kenlm if file.read(len(MAGIC)) == MAGIC else read_arpa
    theirs, lines = kenlm.Model(model), [text.encode() for text in texts]
    words = sum(len(line.split()) + 1 for line in lines)
    for _ in range(rounds):
        ours = NgramModel(reader(model))
        start = time.process_time()
        found = np.concatenate([ours.scores([line.split() for line in lines[at:at + 256]]) for at in range(0, len(lines), 256)])
        own = time.process_time() - start
        start = time.process_time()
        known = np.array([theirs.score(b" ".join(line.split())) for line in lines])
        bare = time.process_time() - start
        print(f"ours {words / own / 1e6:.2f}, kenlm {words / bare / 1e6:.2f} million words a CPU-second   ratio {bare / own:.2f}")
    print(f"scores differ by {np.max(np.abs(found - known) / np.maximum(1, np.abs(known))):.1e} of themselves at most")


SERVER = '''
import asyncio, json
BODY = json.dumps({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}).encode()
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(BODY)
async def serve(reader, writer):
    while line := await reader.readline():
        length = 0
        while (header := await reader.readline()).strip():
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        await reader.readexactly(length)
        await asyncio.sleep(0.2)
        writer.write(HEAD + BODY)
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
'''


def llm(requests: int) -> None:
    import pyarrow as pa
    from curator_text import Llm

    from curator.api.stage import Context
    from curator.api.tasks import TextBatch

    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        rows = TextBatch(pa.table({"id": [str(n) for n in range(requests)], "source": [""] * requests,
                                   "text": [f"{n} " + "words " * 300 for n in range(requests)]}))
        with tempfile.TemporaryDirectory() as folder:
            for how, cache in (("without a cache", None), ("with a cache", folder), ("from the cache", folder)):
                stage = Llm(url=url, model="any", prompt="Say: {text}", concurrency=256, cache=cache)
                stage.setup(Context())
                begun, start = time.monotonic(), time.process_time()
                answers = [stage.process(rows.slice(at, at + 1024)) for at in range(0, requests, 1024)]
                cpu, wall = time.process_time() - start, time.monotonic() - begun
                assert sum(len(answer["out"]) for answer in answers) == requests
                print(f"{how}: {1000 * cpu / requests:.2f} ms of CPU a request, {requests / wall:,.0f} requests/s")
                stage.close()
    finally:
        server.terminate()


def chat_model(folder: str, large: bool) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {word: k for k, word in enumerate(["<pad>", "</s>", "<unk>", " ", *(chr(k) for k in range(33, 1000))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    width, layers = (1024, 24) if large else (128, 2)
    LlamaForCausalLM(LlamaConfig(hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers, num_attention_heads=8,
                                 vocab_size=len(words), max_position_embeddings=4096, eos_token_id=1)).save_pretrained(folder)


def generate(requests: int, rounds: int) -> None:
    import pyarrow as pa
    import torch
    from curator_text import Llm
    from curator_text.llm.speaker import TOKENS_AT_ONCE
    from curator_text.models.encoders import batches_of
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from curator.api.stage import Context
    from curator.api.tasks import TextBatch

    gpu = torch.cuda.is_available()
    requests, most, longest = (min(requests, 256), 64, 1500) if gpu else (min(requests, 96), 24, 400)
    rng = np.random.default_rng(0)
    texts = ["".join(chr(k) for k in rng.integers(97, 900, int(size))) for size in np.clip(rng.lognormal(5, 0.8, requests), 10, longest)]
    rows = TextBatch(pa.table({"id": [str(n) for n in range(requests)], "source": [""] * requests, "text": texts}))
    with tempfile.TemporaryDirectory() as folder:
        chat_model(folder, gpu)
        stage = Llm(model=folder, prompt="{text}", max_tokens=most)
        stage.setup(Context(cpus=1, gpus=(0,) if gpu else ()))
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16 if gpu else torch.float32).eval()
        model = model.to("cuda" if gpu else "cpu")

        def bare() -> list[str]:
            said = [""] * requests
            ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
            for batch in batches_of(np.array([len(one) + most for one in ids]), TOKENS_AT_ONCE, TOKENS_AT_ONCE):
                given = tokenizer.pad({"input_ids": [ids[row] for row in batch]}, return_tensors="pt").to(model.device)
                with torch.inference_mode():
                    made = model.generate(**given, max_new_tokens=most, do_sample=False)[:, given["input_ids"].shape[1]:]
                for row, one in zip(batch, tokenizer.batch_decode(made, skip_special_tokens=True), strict=True):
                    said[row] = one.strip()
            return said

        bare(), stage.process(rows)
        ratios = []
        for _ in range(rounds):
            start = time.perf_counter()
            outputs = stage.process(rows)
            own = time.perf_counter() - start
            start = time.perf_counter()
            said = bare()
            ratios.append((time.perf_counter() - start) / own)
            made = outputs.counts["tokens_out"]
            print(f"text.llm {made / own:,.0f} tokens/s, ratio to the bare loop {ratios[-1]:.2f}")
        same = sum(a == b for a, b in zip(said, outputs["out"].column("answer"), strict=True))
        print(f"median ratio {np.median(ratios):.2f}; equal answers {same} of {requests}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fasttext", "encoder", "ngrams", "llm", "generate"])
    parser.add_argument("--model")
    parser.add_argument("--texts")
    parser.add_argument("--requests", type=int, default=4096)
    parser.add_argument("--count", type=int, help="of the texts")
    parser.add_argument("--chars", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.what == "llm":
        return llm(args.requests)
    if args.what == "generate":
        return generate(args.requests, args.rounds)
    if not args.texts or (args.what != "encoder" and not args.model):
        parser.error(f"{args.what} wants --texts" + (", and a --model" if args.what != "encoder" else ""))
    texts = texts_of(args.texts, args.chars)[:args.count]
    print(f"{len(texts):,} texts of up to {args.chars:,} characters")
    if args.what == "encoder":
        lengths = np.random.default_rng(0).lognormal(np.log(args.chars / 3), 0.8, len(texts)).astype(int) + 1
        return encoder([text[:length] for text, length in zip(texts, lengths, strict=True)], args.rounds)
    {"fasttext": fasttext, "ngrams": ngrams}[args.what](texts, args.model, args.rounds)


if __name__ == "__main__":
    main()
