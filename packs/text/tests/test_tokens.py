"""Texts to tokens, and the files of tokens byte by byte."""

import hashlib
import json
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from curator_text import PackTokens, Tokenize, ToMds, ToMegatron, ToNanotron
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import CuratorError
from curator.api.tasks import TextBatch
from curator.testing import check_sink, check_stage, run_stage

TEXTS = ["the fox jumps over the fox", "", None, "größe 狐狸 <|end|>", "a b c " * 40]
DOCUMENTS = [[15496, 995, 50256], [40, 716, 257, 2746, 50256]]


def batch(**columns):
    ids = [f"r{n:03}" for n in range(len(next(iter(columns.values()))))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(ids), **columns}))


def texts():
    return batch(text=pa.array(TEXTS, pa.string()))


def documents(ids=DOCUMENTS):
    return batch(token_ids=pa.array(ids, pa.list_(pa.int32())))


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    """A tokenizer of bytes and a few pairs."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.train_from_iterator([t for t in TEXTS if t], trainers.BpeTrainer(
        vocab_size=200, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|end|>", "<|begin|>"], show_progress=False))
    folder = tmp_path_factory.mktemp("bpe")
    made.save(str(folder / "tokenizer.json"))
    return folder, made


def test_tokens_are_those_of_the_library_and_special_ones_in_a_text_are_what_it_says(bpe):
    folder, made = bpe
    out = run_stage(Tokenize(tokenizer=str(folder), ids=True, begin="<|begin|>", end="<|end|>"), texts())["out"]
    for text, ids, count in zip(TEXTS, out.column("token_ids"), out.column("tokens"), strict=True):
        if text is None:
            assert (ids, count) == (None, None)
            continue
        assert (ids[0], ids[-1], count) == (1, 0, len(ids))
        assert not {0, 1} & set(ids[1:-1])
        assert made.decode(ids[1:-1]) == text
    taken = run_stage(Tokenize(tokenizer=str(folder), ids=True, special_in_text=True), texts())["out"].column("token_ids")
    assert taken == [None if text is None else made.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert taken[3][-1] == 0
    counted = run_stage(Tokenize(tokenizer=str(folder / "tokenizer.json")), texts())["out"]
    assert counted.column("tokens") == [None if n is None else n - 2 for n in out.column("tokens")]
    assert "token_ids" not in counted.columns


def test_sentencepiece_models_and_encodings_of_tiktoken_will_do(tmp_path, monkeypatch):
    import sentencepiece
    import tiktoken

    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["the fox jumps over the dog", "a fox"] * 20), vocab_size=20,
                                             model_prefix=str(tmp_path / "tiny"), minloglevel=2)
    model = str(tmp_path / "tiny.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    out = run_stage(Tokenize(tokenizer=model, ids=True, end="</s>"), texts())["out"]
    assert out.column("token_ids")[0] == [*processor.encode(TEXTS[0]), processor.eos_id()]

    ranks = {bytes([n]): n for n in range(256)} | {b"th": 256, b"the": 257}
    tiny = tiktoken.Encoding("tiny", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 258})
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: tiny)
    out = run_stage(Tokenize(tokenizer="tiktoken:tiny", ids=True, end="<|endoftext|>"), texts())["out"]
    assert out.column("token_ids")[0] == [*tiny.encode(TEXTS[0]), 258]
    for special, wanted in ((False, tiny.encode_ordinary("a<|endoftext|>")), (True, [97, 258])):
        stage = Tokenize(tokenizer="tiktoken:tiny", ids=True, special_in_text=special)
        assert run_stage(stage, batch(text=["a<|endoftext|>"]))["out"].column("token_ids") == [wanted]


def test_what_cannot_be_opened_is_told(bpe, tmp_path):
    with pytest.raises(CuratorError, match="there is no tokenizer"):
        run_stage(Tokenize(tokenizer="./none"), texts())
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CuratorError, match="no tokenizer that can be read"):
        run_stage(Tokenize(tokenizer=str(tmp_path)), texts())
    with pytest.raises(CuratorError, match=r"has no token '<\|eos\|>'"):
        run_stage(Tokenize(tokenizer=str(bpe[0]), end="<|eos|>"), texts())


def test_the_stages_and_sinks_keep_the_rules(bpe, tmp_path):
    check_stage(Tokenize(tokenizer=str(bpe[0]), ids=True), texts())
    check_stage(PackTokens(length=4), documents([*DOCUMENTS, None, []]))
    check_sink(ToMegatron(path=str(tmp_path / "m")), documents([*DOCUMENTS, None]))
    check_sink(ToNanotron(path=str(tmp_path / "n")), documents([*DOCUMENTS, None]))


# -- files ----------------------------------------------------------------------------------------------------------


def written(sink, rows):
    writer = sink.open("x")
    writer.write(rows.slice(0, 1))
    writer.write(rows.slice(1, len(rows)))
    return {file.path.rsplit(".", 1)[1] if not file.path.endswith(".ds.index") else "index": (open(file.path, "rb").read(), file.rows)
            for file in writer.close()}


def test_megatron_files_have_the_bytes_that_megatron_writes(tmp_path):
    files = written(ToMegatron(path=str(tmp_path), dtype="uint16"), documents())
    assert files["bin"] == (bytes.fromhex("883ce30350c42800cc020101ba0a50c4"), 2)
    index = files["idx"][0]
    assert len(index) == 82
    assert hashlib.sha256(index).hexdigest().startswith("f95cc08cdcd3d6f5")


def test_nanotron_files_have_the_bytes_that_datatrove_writes(tmp_path):
    files = written(ToNanotron(path=str(tmp_path), dtype="uint16", tokenizer="gpt2"), documents())
    assert files["ds"] == (bytes.fromhex("883ce30350c42800cc020101ba0a50c4"), 2)
    assert files["index"][0] == struct.pack("<QQ", 3, 8)
    assert files["metadata"][0] == b"gpt2|2\n8\n8"


IDS = st.lists(st.one_of(st.none(), st.lists(st.integers(0, 2**31 - 1), max_size=9)), min_size=1, max_size=12)


@given(IDS)
@settings(max_examples=30)
def test_what_megatron_would_read_is_what_was_written(tmp_path_factory, ids):
    files = written(ToMegatron(path=str(tmp_path_factory.mktemp("m"))), documents(ids))
    data, index = files["bin"][0], files["idx"][0]
    kept = [one for one in ids if one]
    version, kind, sequences, ends = struct.unpack_from("<QBQQ", index, 9)
    assert (index[:9], version, kind, sequences, ends) == (b"MMIDIDX\0\0", 1, 4, len(kept), len(kept) + 1)
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    places = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    assert np.frombuffer(index, "<i8", ends, 34 + 12 * sequences).tolist() == list(range(ends))
    assert [np.frombuffer(data, "<i4", n, at).tolist() for n, at in zip(lengths, places, strict=True)] == kept


def test_numbers_that_a_format_has_not_are_refused():
    for sink, dtype in ((ToMegatron, "uint32"), (ToNanotron, "int32"), (ToMds, "int8")):
        with pytest.raises(ValueError, match="dtype must be one of uint16"):
            sink(path="x", dtype=dtype)


@pytest.mark.parametrize("sink", [ToMegatron, ToNanotron])
def test_a_token_that_does_not_fit_is_an_error_and_never_wraps_around(tmp_path, sink):
    with pytest.raises(ValueError, match="token 70000 does not fit uint16"):
        sink(path=str(tmp_path), dtype="uint16").open("x").write(documents([[1, 70000]]))


# -- packing --------------------------------------------------------------------------------------------------------


@given(IDS, st.integers(1, 12))
@settings(max_examples=60)
def test_packing_loses_no_token_and_says_where_documents_end(ids, length):
    answer = run_stage(PackTokens(length=length), documents(ids))
    kept = [one for one in ids if one]
    if not kept:
        assert "out" not in answer
        return
    rows = answer["out"]
    sequences, ends = rows.column("token_ids"), rows.column("document_ends")
    assert all(len(one) == length for one in sequences[:-1])
    assert 0 < len(sequences[-1]) <= length
    assert len(set(rows.column("id"))) == len(sequences)
    borders = [at * length + end for at, some in enumerate(ends) for end in some]
    assert all(0 < end <= length for some in ends for end in some)
    flat = [token for one in sequences for token in one]
    found = [flat[a:b] for a, b in zip([0, *borders], borders, strict=False)]
    assert sorted(found) == sorted(kept)
    assert borders[-1] == len(flat)


def mds(data):
    """The samples of a shard, read by the layout."""
    count = int.from_bytes(data[:4], "little")
    places = np.frombuffer(data[4:8 + 4 * count], "<u4")
    config = json.loads(data[8 + 4 * count:places[0]])
    samples = []
    for begin, end in pairwise(places.tolist()):
        size, shape = int.from_bytes(data[begin:begin + 4], "little"), data[begin + 4]
        assert size == end - begin - 4
        wide = 1 << (shape & 3)
        assert shape >> 2 == 1
        length = int.from_bytes(data[begin + 5:begin + 5 + wide], "little")
        samples.append(np.frombuffer(data[begin + 5 + wide:end], config["column_encodings"][0].removeprefix("ndarray:")).tolist())
        assert len(samples[-1]) == length
    return config, samples


def test_mds_shards_have_the_bytes_that_streaming_writes(tmp_path):
    rows = documents([DOCUMENTS[0], None, [], DOCUMENTS[1]])
    writer = ToMds(path=str(tmp_path), dtype="uint16").open("x")
    writer.write(rows)
    shard, index = writer.close()
    assert (shard.path, index.path) == (str(tmp_path / "x-000/shard.00000.mds"), str(tmp_path / "x-000/index.json"))
    data = (tmp_path / "x-000/shard.00000.mds").read_bytes()
    assert len(data) == 226
    assert data[:16].hex() == "02000000c6000000d2000000e2000000"
    assert data[198:].hex() == "080000000403883ce30350c40c00000004052800cc020101ba0a50c4"
    assert mds(data)[1] == DOCUMENTS
    assert (tmp_path / "x-000/index.json").read_text() == (
        '{"shards": [{"column_encodings": ["ndarray:uint16"], "column_names": ["tokens"], "column_sizes": [null], "compression": null, '
        '"format": "mds", "hashes": [], "raw_data": {"basename": "shard.00000.mds", "bytes": 226, "hashes": {}}, "samples": 2, '
        '"size_limit": 67108864, "version": 2, "zip_data": null}], "version": 2}')


def test_mds_shards_keep_to_their_size(tmp_path):
    given = [[n] * (n * 40 % 700 + 1) for n in range(60)] + [list(range(70_000)), [1]]
    writer = ToMds(path=str(tmp_path), dtype="uint32", target_bytes=6000, key="input_ids").open("x")
    writer.write(documents(given))
    files = writer.close()
    found = []
    for at, file in enumerate(files[::2]):
        data = Path(file.path).read_bytes()
        config, samples = mds(data)
        assert config["column_names"] == ["input_ids"]
        assert len(data) <= 6000 or len(samples) == 1
        assert json.loads(Path(files[2 * at + 1].path).read_text())["shards"][0]["raw_data"]["bytes"] == len(data)
        found += samples
    assert found == given
    check_sink(ToMds(path=str(tmp_path / "m")), documents([*DOCUMENTS, None]))
