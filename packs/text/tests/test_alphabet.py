"""The share of a text that is written with the characters of its language."""

from __future__ import annotations

import pyarrow as pa
import pytest
from curator_text import Alphabet

from curator.api.errors import InputError
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage


@pytest.fixture
def histograms(tmp_path):
    folder = tmp_path / "hists"
    folder.mkdir()
    (folder / "en").write_text("e\t120\nt 90\n a\n\nh\n.\n]\nx 1\n", encoding="utf-8")
    (folder / "ru.txt").write_text("о\nн\n", encoding="utf-8")
    return folder


def texts(*rows):
    ids = [f"r{n}" for n in range(len(rows))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(rows), "text": pa.array([text for text, _ in rows], pa.string()),
                               "language": pa.array([language for _, language in rows], pa.string())}))


def test_characters_of_the_language_are_counted(histograms):
    batch = texts(("the the.", "en"), (" xxe\n", "eng_Latn"), ("он", "ru"), ("the", "ru"), ("", "en"), (None, "en"),
                  ("le", "fr"), ("ee", None))
    stage = Alphabet(histograms=str(histograms))
    out = run_stage(stage, batch)["out"]
    assert out.column("alphabet_ratio") == [1.0, 1 / 5, 1.0, 0.0, None, None, None, None]
    check_stage(stage, batch, skip={"needs"})
    one = Alphabet(histograms=str(histograms / "en"), language="en")
    assert run_stage(one, batch)["out"].column("alphabet_ratio")[-1] == 1.0


def test_another_histogram_is_another_stage(histograms):
    before = Alphabet(histograms=str(histograms)).fingerprint()
    (histograms / "en").write_text("e\nt\n", encoding="utf-8")
    assert Alphabet(histograms=str(histograms)).fingerprint() != before


@pytest.mark.parametrize(("name", "content", "told"), [
    ("nonsense", "a\n", "called by its language"), ("de", "]\n", "has no character"), ("de", b"\xff\xfe\x00", "not valid UTF-8")])
def test_what_is_no_histogram_is_told(histograms, name, content, told):
    (histograms / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=told):
        Alphabet(histograms=str(histograms)).check({})
