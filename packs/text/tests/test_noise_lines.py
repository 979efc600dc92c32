"""Lines that are no text go, and what went is told."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from curator_text import NoiseLines
from curator_text.clean import c4, noise_lines
from curator_text.clean.noise_lines import without_noise
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage

STAY = ["A line of prose, and it stays.", "", "He has 3 likes", "3 likes and 4 shares", "1,234,567 people came", "CAPS ARE half of this",
        "So they said to read more... and more", "It is a long line of more than ten words, so they read more...", "see the sign-in page",
        "Ab Cd", "日本語の文はここに残る。", "2021 2022"]
GO = ["12345", "MOSTLY CAPITALS ARe here", "3 likes", "1.2K Followers!", "  1,024 views  ", "Home", "Read more...", "Sign-in",
      "items in cart", "Read more…"]
SHORTER = {"You have 3 items in cart": "You have 3", "The story goes on Read more...": "The story goes on",
           "Sign-in to see it all": "to see it all", "so Read More…": "so",
           "Read more about items in carts": "Read more abouts"}  # as DCLM does it


def batch(*texts):
    return TextBatch(pa.table({"id": [f"r{n}" for n in range(len(texts))], "source": ["s"] * len(texts),
                               "text": pa.array(texts, pa.string())}))


@pytest.mark.parametrize("line", [*STAY, *GO, *SHORTER])
def test_a_line(line):
    text = f"It begins so.\n{line}\nIt ends so."
    (left,) = without_noise([text], 0.5, 2)
    expected = SHORTER.get(line, line if line in STAY else None)
    assert left.text == "\n".join(["It begins so.", *([] if expected is None else [expected]), "It ends so."])
    assert left.lines == (expected != line)


def test_the_share_of_words_that_went_and_what_has_no_words():
    stage = NoiseLines()
    given = batch("One two three four five six.\nHOME\n3 likes\n\nYou have items in cart", None, "", "Menu\nHome",
                  "Fine as it is.\r\n\r\nYes it is.")
    out = run_stage(stage, given)["out"]
    assert out.column("text") == ["One two three four five six.\n\nYou have", None, "", "", "Fine as it is.\r\n\r\nYes it is."]
    assert out.column("noise_lines_removed") == [3, None, 0, 2, 0]
    assert out.column("noise_removed_ratio") == [6 / 14, None, 0, 1, 0]
    check_stage(stage, given)
    for options in ({"upper_ratio_max": 2}, {"words_min": -1}):
        with pytest.raises(ValueError, match="must be"):
            NoiseLines(**options)


def test_a_huge_text_is_read_piece_by_piece(monkeypatch):
    text = "\n".join(["This line stays here.", "Gone", "and this one too, it stays.", "12345"] * 3)
    (expected,) = without_noise([text], 0.5, 2)
    for module in (c4, noise_lines):
        monkeypatch.setattr(module, "LINE_CHARS_MAX", 60)
    assert list(without_noise(["small one", text], 0.5, 2)) == [("small one", 0, 0, 2), expected]


PIECE = st.sampled_from(["ab", "CD", "E", "7", " ", ",", "likes", "3", "read more...", "Sign-in", "items in cart", "\u00e9"])
LINE = st.lists(PIECE, max_size=7).map("".join)


@given(st.lists(LINE, max_size=5).map("\n".join))
@settings(max_examples=80)
def test_lines_as_a_slow_reading_edits_them(text):
    (left,) = without_noise([text], 0.5, 2)
    kept = []
    for line in text.split("\n"):
        if line.strip():
            if sum(map(str.isupper, line)) > len(line) / 2 or line.isdigit() or len(line.split()) < 2 \
                    or re.fullmatch(r"\W*\d[\d,.]*[kmb]?\s+likes\W*", line.lower()):
                continue
            edited = line
            if len(line.split()) <= 10:
                for pattern in (r"\s?items in cart", r"\s?read more\.\.\.$", r"^sign-in\s?"):
                    edited = re.sub(pattern, "", edited, flags=re.I)
            if not edited.strip():
                continue
            line = edited
        kept.append(line)
    changed = "\n".join(kept) != text
    assert left.text == ("\n".join(kept).strip() if changed and left.lines else text)
