"""Embeddings by a table of tokens, and importance weights by hashed n-grams."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from curator_text import Dsir, StaticEmbed
from curator_text.models.dsir import hashed

from curator.api.errors import CuratorError
from curator.api.tasks import TextBatch
from curator.testing import run_stage
from packs.text.tests import tiny_text_models as tiny


def batch(texts, **columns):
    return TextBatch(pa.table({"id": [f"r{n}" for n in range(len(texts))], "source": ["s"] * len(texts),
                               "text": pa.array(texts, pa.string()), **columns}))


@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_a_text_is_the_mean_of_its_tokens_at_length_one(tmp_path, kind):
    pytest.importorskip("tokenizers")
    given = batch(["the fox", "the the strange jumps", None, "strange", "", "fox"])
    out = run_stage(StaticEmbed(model=tiny.save_static(tmp_path / "m", kind)), given)["out"].column("embedding")
    means = [tiny.TABLE[[0, 1]].mean(axis=0), tiny.TABLE[[0, 0, 2]].mean(axis=0), tiny.TABLE[1]]
    for found, mean in zip([out[0], out[1], out[5]], means, strict=True):
        np.testing.assert_allclose(found, mean / np.linalg.norm(mean), rtol=1e-6)
    assert out[2:5] == [None, None, None]
    # tokens have a median of 3 characters, so 9 are looked at
    cut = run_stage(StaticEmbed(model=str(tmp_path / "m"), max_tokens=3, normalize=False), batch(["the fox jumps"]))["out"]
    np.testing.assert_allclose(cut.column("embedding")[0], tiny.TABLE[[0, 1]].mean(axis=0))


def test_weights_and_a_mapping_of_tokens_count_and_what_does_not_fit_is_told(tmp_path):
    pytest.importorskip("tokenizers")
    model = tiny.save_static(tmp_path / "m", weights=np.array([2, 1, 1, 1], "<f4"), mapping=np.array([0, 2, 1, 3], "<i8"))
    found = run_stage(StaticEmbed(model=model, normalize=False), batch(["the fox"]))["out"].column("embedding")[0]
    np.testing.assert_allclose(found, (2 * tiny.TABLE[0] + tiny.TABLE[2]) / 2)
    wrong = tiny.save_static(tmp_path / "w", mapping=np.array([0, 2, 1, 4], "<i8"))
    with pytest.raises(CuratorError, match="no table of embeddings for its tokenizer of 4 tokens"):
        run_stage(StaticEmbed(model=wrong), batch(["the"]))


WANTED = ["the fox jumps over the fence", "a quick fox jumps", "foxes and hounds"]
OTHERS = ["cheap watches for sale", "buy cheap watches now now", "sale of watches", "click here to buy"]


def test_importance_is_the_logarithm_of_the_shares_of_n_grams():
    texts = [*WANTED, *OTHERS, "the fox jumps", "cheap sale", None, ""]
    rows = batch(texts, kind=["good"] * 3 + ["bad"] * 8)
    out = run_stage(Dsir(target="kind = 'good'", buckets=500), rows)["out"]
    counts = [Counter(hashed([text], 2, 500)[0].tolist()) if text is not None else Counter() for text in texts]
    wanted, rest = sum(counts[:3], Counter()), sum(counts[3:], Counter())

    def known(own):
        return sum(n * (math.log(wanted[k] / wanted.total() + 1e-8) - math.log(rest[k] / rest.total() + 1e-8)) for k, n in own.items())

    scores = out.column("dsir")
    assert scores == [pytest.approx(known(own), abs=1e-9) if text is not None else None for text, own in zip(texts, counts, strict=True)]
    assert scores[7] > 0 > scores[8]
    assert scores[10] == 0
    moved = run_stage(Dsir(target="kind = 'good'", buckets=500), TextBatch(rows.rows.take(list(reversed(range(11))))))["out"]
    assert moved.column("dsir_draw")[::-1] == out.column("dsir_draw")


def test_draws_are_by_importance():
    """Of two texts that are n and 1 times as likely the first has the higher draw in n of n + 1 cases."""
    rows = batch(["a"] * 1000 + ["b"] * 1000 + ["a", "a", "a", "b", "a", "b", "b", "b"], kind=["none"] * 2000 + ["good"] * 4 + ["bad"] * 4)
    out = run_stage(Dsir(target="kind = 'good'", ngrams=1), rows)["out"]
    ratio = math.exp(out.column("dsir")[0] - out.column("dsir")[1000])
    first, second = (np.array(out.column("dsir_draw")[at:at + 1000]) for at in (0, 1000))
    assert ratio == pytest.approx(3, abs=0.1)
    assert (first > second).mean() == pytest.approx(ratio / (ratio + 1), abs=0.05)


def test_without_wanted_data_nothing_is_scored():
    out = run_stage(Dsir(target="source = 'none'"), batch(["a", "b"]))["out"]
    assert out.column("dsir") == out.column("dsir_draw") == [None, None]
    with pytest.raises(ValueError, match="ngrams must be"):
        Dsir(target="source = 'none'", ngrams=0)
