"""MinHash signatures: what they estimate and how well, and that they are a function of the text alone."""

import numpy as np
import pyarrow as pa
import pytest
from curator_text.copies.minhash import GROUP_CHARS, Minhash
from curator_text.copies.sketch import ROUNDS, sketches
from hypothesis import given
from hypothesis import strategies as st

from curator import RecipeError
from curator.api.tasks import TextBatch
from curator.ngrams.hashing import Grams
from curator.testing import run_stage

PARAGRAPH = ("The quick brown fox jumps over the lazy dog while seven wizards, who had come from far away, "
             "watched from the hill and wondered whether the dog would ever wake up again. ")


def batch(*texts):
    return TextBatch(pa.table({"id": [f"r{i}" for i in range(len(texts))], "source": ["s"] * len(texts),
                               "text": pa.array(texts, pa.string())}))


def signatures(*texts, **how):
    return run_stage(Minhash(**how), batch(*texts))["out"].column("minhash")


def pairs(count, union, common, seed=0):
    """Sets of random hashes: `count` pairs with a union and a common part of these sizes, each as one set of sets."""
    elements = np.random.default_rng(seed).integers(0, 2**64 - 1, (count, union), np.uint64)
    first = common + (union - common) // 2
    halves = elements[:, :first], np.concatenate([elements[:, :common], elements[:, first:]], axis=1)
    return [Grams(half.reshape(-1).copy(), np.arange(count + 1) * half.shape[1]) for half in halves]


@pytest.mark.parametrize("count", [112, 260])
@pytest.mark.parametrize(("union", "common"), [(18, 14), (60, 30), (120, 96), (500, 250), (3000, 2700)])
def test_the_estimate_is_unbiased_and_its_error_no_greater_than_that_of_separate_hashes(union, common, count):
    trials, truth = 1500, common / union
    one, other = (sketches(half, count, 7) for half in pairs(trials, union, common))
    estimates = (one == other).mean(axis=1)
    expected = np.sqrt(truth * (1 - truth) / count)
    assert abs(estimates.mean() - truth) < 4 * expected / np.sqrt(trials)
    assert estimates.std() < 1.07 * expected


@pytest.mark.parametrize("union", [18, 60, 500])
def test_values_agree_independently_enough_for_bands(union):
    """A band of 8 values agrees about as often as J^8, so that the S-curve of the bands holds."""
    one, other = (sketches(half, 112, 3) for half in pairs(3000, union, round(union * 0.8)))
    truth = round(union * 0.8) / union
    agree = (one == other).reshape(-1, 14, 8).all(axis=2).mean()
    assert agree == pytest.approx(truth**8, rel=0.15)


def test_the_low_bits_of_different_sets_agree_by_chance_only():
    one, other = (sketches(half, 128, 1) & 255 for half in pairs(1500, 400, 0))
    assert (one == other).mean() == pytest.approx(1 / 256, rel=0.1)


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 150), st.integers(0, 2**64 - 1), st.randoms())
def test_a_set_has_one_signature_whatever_its_order_its_repetitions_and_its_company(sizes, count, seed, random):
    sets = [[random.getrandbits(64) for _ in range(size)] for size in sizes]

    def sketched(sets):
        hashes = np.array([value for values in sets for value in values], np.uint64)
        return sketches(Grams(hashes, np.cumsum([0, *map(len, sets)])), count, seed)

    together = sketched(sets)
    assert together.shape == (len(sets), count)
    for values, signature in zip(sets, together, strict=True):
        shuffled = random.sample(values + values, 2 * len(values))
        assert sketched([shuffled])[0].tolist() == signature.tolist()


def test_a_single_element_has_a_value_of_its_own_in_each_place():
    """More places than rounds: most of them are filled separately, each by a hash function of its own."""
    signature, = sketches(Grams(np.array([5], np.uint64), np.array([0, 1])), 400, 1)
    assert len(set(signature.tolist())) == 400 > 2 * ROUNDS[-1][1]


def test_known_signatures_stay_as_they_are():
    """Signatures of one run are compared with those of another: a change of the algorithm must be seen, and raise `version`."""
    first, = signatures("one two three four five six", hashes=4)
    assert first == [660645298, 2001788188, 1845308667, 3916619266]
    second, = signatures("Äpfel, один; 中文字符", hashes=4, shingle="3 chars", seed=2)
    assert second == [1121557608, 2320050576, 463317433, 667492839]


def test_what_is_equal_to_a_reader_has_one_signature():
    one, two, three, other = signatures(
        PARAGRAPH, PARAGRAPH.upper().replace(" ", "\n  "), PARAGRAPH.replace(",", " —"), PARAGRAPH[20:])
    assert one == two == three
    assert 0.5 < np.mean(np.array(one) == np.array(other)) < 1


def test_without_normalisation_case_and_marks_count():
    one, two, spaced = signatures(PARAGRAPH, PARAGRAPH.upper(), PARAGRAPH.replace(" ", "  "), normalize=False)
    assert one == spaced != two


def test_the_signature_estimates_how_much_two_texts_share():
    rng = np.random.default_rng(1)
    words = [f"w{n}" for n in rng.integers(0, 10_000, 400)]
    changed = [word if i % 40 else "new" for i, word in enumerate(words)]
    for shingle, tolerance in (("5 words", 0.12), ("24 chars", 0.12), ("1 word", 0.12)):
        stage = Minhash(hashes=260, shingle=shingle, shingles="set")
        got = run_stage(stage, batch(" ".join(words), " ".join(changed)))["out"]
        (one, other), sets = map(np.array, got.column("minhash")), [set(s) for s in got.column("set")]
        assert np.mean(one == other) == pytest.approx(len(sets[0] & sets[1]) / len(sets[0] | sets[1]), abs=tolerance)


def test_nothing_to_compare_is_null_and_a_short_text_is_one_shingle():
    got = run_stage(Minhash(shingles="set"), batch(None, "", " .\n", "one", "One!", "one two three four five"))["out"]
    assert [value is None for value in got.column("minhash")] == [True, True, True, False, False, False]
    assert [value and len(value) for value in got.column("set")] == [None, None, None, 1, 1, 1]
    assert got.column("minhash")[3] == got.column("minhash")[4]


def test_shingles_are_sorted_and_each_once():
    found, = run_stage(Minhash(shingles="set", shingle="2 words"), batch("a b a b a c"))["out"].column("set")
    assert found == sorted(set(found))
    assert len(found) == 3


def test_a_text_has_the_same_signature_in_any_batch(monkeypatch):
    texts = [PARAGRAPH[k:] + " é" * (k % 3 == 0) for k in range(100)] + [None, "", "x"]
    together = signatures(*texts)
    monkeypatch.setattr("curator_text.copies.minhash.GROUP_CHARS", 500)
    assert signatures(*texts) == together
    assert [signatures(text)[0] for text in texts[::9]] == together[::9]


def test_a_text_of_10_megabytes_is_one_text():
    rng = np.random.default_rng(2)
    words = rng.integers(0, 1000, 1_500_000)
    text = " ".join(map(str, words.tolist()))[:10_000_000]
    assert len(text) > 5_000_000 > GROUP_CHARS
    one, other, short = signatures(text, text + " more", "short")
    assert np.mean(np.array(one) == np.array(other)) > 0.99
    assert np.mean(np.array(one) == np.array(short)) < 0.1


@pytest.mark.parametrize("wrong", [{"shingle": "5"}, {"shingle": "0 words"}, {"shingle": "5 lines"}, {"hashes": 0},
                                   {"output": "x", "shingles": "x"}])
def test_nonsense_is_told_before_anything_runs(wrong):
    with pytest.raises(RecipeError, match=r"text\.minhash"):
        Minhash(**wrong)
