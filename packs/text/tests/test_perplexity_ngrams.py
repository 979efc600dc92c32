"""Language models of n-grams: the scores of KenLM, from files that may be damaged."""

import io
import math
import sys
from itertools import pairwise

import pyarrow as pa
import pytest
from curator_text import Perplexity
from curator_text.models.ngram.arpa import read_arpa
from curator_text.models.ngram.ccnet import normalised
from curator_text.models.ngram.kenlm_file import read_kenlm
from curator_text.models.ngram.model import NgramModel
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import CuratorError
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage
from packs.text.tests import ngram_models

READERS = {"arpa": read_arpa, "bin": read_kenlm}
# of the library itself, with these files
KNOWN = {"the fox jumps": -1.0, "fox the": -3.30103, "zzz": -2.40103, "": -1.20103}
MODELS = {"three words": (ngram_models.random_model(1, orders=3), ("arpa", "bin")),
          "five words": (ngram_models.random_model(2, 8, orders=5), ("arpa", "bin")),
          "pruned": (ngram_models.random_model(3, 5, gaps=True), ("arpa",)),
          "words alone": ({("<s>",): (0, 0), ("</s>",): (-1, 0), ("w1é",): (-2, 0), ("<unk>",): (-3, 0)}, ("arpa",))}


def save(folder, model, kind):
    path = folder / f"{len(list(folder.iterdir()))}.{kind}"
    path.write_bytes({"arpa": ngram_models.arpa, "bin": ngram_models.probing}[kind](model))
    return path


def batch(texts):
    ids = [f"r{n}" for n in range(len(texts))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(texts), "text": pa.array(texts, pa.string())}))


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Models, each with what was read from each kind of file."""
    folder, found = tmp_path_factory.mktemp("models"), []
    for model, kinds in MODELS.values():
        found += [(model, NgramModel(READERS[kind](save(folder, model, kind)))) for kind in kinds]
    (folder / "trie").write_bytes(ngram_models.trie("pruned, arrays"))
    return [*found, (MODELS["pruned"][0], NgramModel(read_kenlm(folder / "trie")))]


@pytest.mark.parametrize("kind", READERS)
def test_the_toy_has_the_scores_of_kenlm(kind, tmp_path):
    path = save(tmp_path, ngram_models.TOY, kind)
    assert kind == "arpa" or path.stat().st_size == 529
    found = NgramModel(READERS[kind](path)).scores([text.encode().split() for text in KNOWN])
    assert found == pytest.approx(list(KNOWN.values()), abs=1e-6)


@pytest.mark.parametrize("name", [name for name in ngram_models.TRIES if "toy" in name])
def test_tries_have_the_scores_of_kenlm(name, tmp_path):
    (tmp_path / "m.bin").write_bytes(ngram_models.trie(name))
    found = NgramModel(read_kenlm(tmp_path / "m.bin")).scores([text.encode().split() for text in KNOWN])
    assert found == pytest.approx(list(KNOWN.values()), abs=1e-6)


@given(st.lists(st.lists(st.sampled_from(["w1é", "w2é", "狐狐狐x", "w4é", "</s>", "longer-than-eight"]), max_size=9), max_size=4))
@settings(max_examples=20)
def test_any_sentence_has_the_probability_that_back_off_gives(opened, sentences):
    for model, ours in opened:
        known = [ngram_models.log10(model, sentence) for sentence in sentences]
        found = ours.scores([[word.encode() for word in sentence] for sentence in sentences])
        assert found.tolist() == pytest.approx(known, abs=1e-5)


@given(st.data())
@settings(max_examples=60)
def test_a_damaged_file_is_an_error_or_a_model_and_never_a_crash(tmp_path_factory, data):
    kind = data.draw(st.sampled_from(["arpa", "bin", *ngram_models.TRIES]))
    if kind in ngram_models.TRIES:
        kind, whole = "bin", ngram_models.trie(kind)
    else:
        whole = {"arpa": ngram_models.arpa, "bin": ngram_models.probing}[kind](ngram_models.TOY)
    broken = bytearray(whole[:data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))])
    for _ in range(data.draw(st.integers(0, 3))):
        if broken:
            first = 88 if kind == "bin" and len(broken) > 88 else 0  # behind KenLM's mark
            broken[data.draw(st.integers(first, len(broken) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("broken") / "model"
    path.write_bytes(broken)
    try:
        model = NgramModel(READERS[kind](path))
    except CuratorError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    try:
        assert len(model.scores([[b"the", b"fox"], [b"zzz"]])) == 2
    except ValueError as error:
        assert "damaged" in str(error)  # noqa: PT017


@pytest.mark.parametrize(("change", "told"), [
    ((b"ngram 2=6", b"ngram 2=999999999999"), "stands no 2-gram, and 999,999,999,9"), ((b"ngram 3=3\n", b""), r"\\end\\ should stand"),
    ((b"-0.6\tfox", b"nan\tfox"), "no number"), ((b"fox jumps", b"fox hops"), "'hops'.* is none of its 1-grams"),
    ((b"</s>", b"</t>"), "no word </s>"),
    ((b"\\data\\", b"\\date\\"), "names 0 lengths")], ids=["count", "order", "nan", "word", "mark", "head"])
def test_what_is_wrong_with_an_arpa_file_is_told_with_its_line(change, told, tmp_path):
    (tmp_path / "m.arpa").write_bytes(ngram_models.arpa(ngram_models.TOY).replace(*change))
    with pytest.raises(CuratorError, match=rf"m.arpa', line \d+, is no language model.*{told}"):
        read_arpa(tmp_path / "m.arpa")


def test_what_is_wrong_with_a_binary_file_is_told(tmp_path):
    whole, path = ngram_models.probing(ngram_models.TOY), tmp_path / "m.bin"
    for at, value, told in [(96, b"\1", "its type is probing with rest costs, and"), (96, b"\6", "its type is number 6"),
                            (40, b"7", "KenLM's mark"),
                            (108, b"\xff" * 8, "18,446,744,073,709,551,615 n-grams"),
                            (116, b"\xff\0", "ends at byte 529, before a table of 382 rows")]:
        path.write_bytes(whole[:at] + value + whole[at + len(value):])
        with pytest.raises(CuratorError, match=told):
            read_kenlm(path)


# -- the stage ------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _without_the_library(monkeypatch, request):
    if "library" not in request.node.name:
        monkeypatch.setitem(sys.modules, "kenlm", None)


def test_perplexity_is_that_of_all_lines_with_their_ends_and_null_without_a_word(tmp_path):
    model = str(save(tmp_path, ngram_models.TOY, "bin"))
    texts = ["the fox jumps", None, " \n", "the fox jumps\n\nfox the", "zzz"]
    found = run_stage(Perplexity(model=model), batch(texts))["out"].column("perplexity")
    assert found == pytest.approx([10 ** (1 / 4), None, None, 10 ** (4.30103 / 7), 10 ** (2.40103 / 2)], abs=1e-5)
    one = run_stage(Perplexity(model=model, lines=False, into="ppl"), batch(texts))["out"].column("ppl")
    assert one[3] == pytest.approx(10 ** (-ngram_models.log10(ngram_models.TOY, texts[3].split()) / 6), abs=1e-5)


@pytest.mark.parametrize("kind", READERS)
def test_the_library_gives_the_same_where_it_is_installed(kind, tmp_path, monkeypatch):
    pytest.importorskip("kenlm")
    model = ngram_models.random_model(5, orders=3)
    stage = Perplexity(model=str(save(tmp_path, model, kind)))
    texts = batch([" ".join(f"w{n * k % 11}é" for n in range(k)) for k in range(20)])
    found = run_stage(stage, texts)["out"].column("perplexity")
    monkeypatch.setitem(sys.modules, "kenlm", None)
    assert found == pytest.approx(run_stage(stage, texts)["out"].column("perplexity"), rel=1e-6)


def test_texts_are_normalised_and_cut_into_pieces_as_ccnet_does(tmp_path):
    import sentencepiece

    assert normalised("  Ｅl Niño, 27.º «Día»… 北京，２０２４年。\t—\n") == "ｅl nino, 00.º \"dia\"... 北京,0000年. - "
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["the fox jumps over 00 cafe", "fox the jumps"] * 20), model_writer=out,
                                             vocab_size=30, hard_vocab_limit=False, minloglevel=2)
    (tmp_path / "sp.model").write_bytes(out.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    words = pieces.encode("the fox jumps over 00 cafe", out_type=str)
    model = {(word,): (-1 - len(word) / 10, -0.1) for word in ["<unk>", "<s>", "</s>", *words]}
    model |= dict.fromkeys(pairwise(words), (-0.3, 0))
    stage = Perplexity(model=str(save(tmp_path, model, "arpa")), pieces=str(tmp_path / "sp.model"), normalize="ccnet")
    found = run_stage(stage, batch(["The Fox jumps OVER 12 café", "\n fox"]))["out"].column("perplexity")
    assert found[0] == pytest.approx(10 ** (-ngram_models.log10(model, words) / (len(words) + 1)), abs=1e-5)
    assert math.isfinite(found[1])


def test_it_keeps_the_rules_of_stages_and_says_what_does_not_fit(tmp_path):
    model = str(save(tmp_path, ngram_models.TOY, "arpa"))
    check_stage(Perplexity(model=model), batch(["the fox", "fox\nthe the", None, "", "zzz fox " * 50]), tolerance=1e-12)
    assert Perplexity(model=model).resources.gpus == 0
    with pytest.raises(ValueError, match="pieces, normalize and lines are for files of n-grams"):
        Perplexity(model="openai-community/gpt2", normalize="ccnet")
    with pytest.raises(CuratorError, match=r"there is no file .none\.bin"):
        run_stage(Perplexity(model="none.bin"), batch(["a"]))
