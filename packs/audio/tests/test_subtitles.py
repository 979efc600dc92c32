"""Subtitles, TextGrid, CTM and RTTM: as their standards have them, a file a record or a file a recording."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_audio.voices.turns import read_rttm
from curator_audio.write.subtitles import Layout, Said, Word, cues, estimated
from curator_audio.write.to_subtitles import ToSubtitles
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.testing import check_sink

LAYOUT = Layout(max_chars=84, max_seconds=7.0, gap_s=1.0)


def words(*given: tuple) -> list[dict]:
    return [{"word": word, "start": start, "end": end, "score": score} for word, start, end, score in given]


SAID = Batch(rows=pa.table({
    "id": ["x#0", "x#1", "y", "silent"], "source": ["/in/x.wav", "/in/x.wav", "/in/y.b.wav", "/in/z.wav"],
    "bytes": [b"1", b"2", b"3", b"4"], "start_s": [10.0, 0.5, 0.0, 0.0], "duration": [2.0, 1.5, 3.0, 1.0],
    "text": ['Say "a" & b.', "hello <you>", "all of it", None],
    "words": [words(("Say", 0.0, 0.5, -0.1), ('"a"', 0.5, 1.0, None), ("&", None, None, None), ("b.", 1.5, 2.0, 0.0)),
              words(("hello", 0.25, 0.5, -1.0), ("<you>", 0.5, 1.0, -2.0)), [], None],
    "turns": [[{"start": 0.0, "end": 1.0, "speaker": "s 0"}, {"start": 0.5, "end": 2.0, "speaker": "s1"}],
              [{"start": 0.0, "end": 1.5, "speaker": "s1"}], None, None]}))


def written(folder, **parameters) -> dict[str, str]:
    """What the files hold, by their names; the Parquet file is not among them."""
    writer = ToSubtitles(path=str(folder), **parameters).open("part-a")
    for row in range(len(SAID)):
        writer.write(SAID.slice(row, row + 1))
    files = [Path(file.path) for file in writer.close()]
    return {str(path.relative_to(folder)): path.read_text() for path in files if path.suffix != ".parquet"}


def names(folder) -> list:
    return pq.read_table(folder / "part-a-000.parquet").column("file_name").to_pylist()


def test_subrip(tmp_path):
    found = written(tmp_path)
    assert found == {
        "part-a-000/x#0.srt": '1\n00:00:00,000 --> 00:00:02,000\nSay "a" & b.\n\n',
        "part-a-000/x#1.srt": "1\n00:00:00,250 --> 00:00:01,000\nhello <you>\n\n",
        "part-a-000/y.srt": "1\n00:00:00,000 --> 00:00:03,000\nall of it\n\n"}
    assert names(tmp_path) == [*sorted(found), None]
    about = pq.read_table(tmp_path / "part-a-000.parquet")
    assert "bytes" not in about.column_names
    assert about.column("id").to_pylist() == ["x#0", "x#1", "y", "silent"]


def test_webvtt_of_a_whole_recording(tmp_path):
    found = written(tmp_path, format="vtt", by="source")
    assert set(found) == {"part-a-000/x.vtt", "part-a-000/y_b.vtt"}
    assert found["part-a-000/x.vtt"] == (
        "WEBVTT\n\n00:00:00.750 --> 00:00:01.500\nhello &lt;you&gt;\n\n00:00:10.000 --> 00:00:12.000\nSay \"a\" &amp; b.\n\n")
    assert names(tmp_path) == ["part-a-000/x.vtt"] * 2 + ["part-a-000/y_b.vtt", None]


def test_ctm(tmp_path):
    lines = written(tmp_path, format="ctm")["part-a-000.ctm"].splitlines()
    assert lines == ["x#0 1 0.000 0.500 Say 0.9048", 'x#0 1 0.500 0.500 "a"', "x#0 1 1.500 0.500 b. 1.0000",
                     "x#1 1 0.250 0.250 hello 0.3679", "x#1 1 0.500 0.500 <you> 0.1353"]
    assert names(tmp_path) == ["part-a-000.ctm"] * 2 + [None] * 2
    lines = written(tmp_path / "by", format="ctm", by="source")["part-a-000.ctm"].splitlines()
    assert [line.split()[:3] for line in lines] == [["x", "1", start] for start in ("0.750", "1.000", "10.000", "10.500", "11.500")]


def test_rttm_is_what_our_reader_reads(tmp_path):
    text = written(tmp_path, format="rttm", by="source")["part-a-000.rttm"]
    assert text.splitlines()[0] == "SPEAKER x 1 0.500 1.500 <NA> <NA> s1 <NA> <NA>"
    assert [(one.start, one.end, one.speaker) for one in read_rttm(text, "here")["x"]] == [
        (0.5, 2.0, "s1"), (10.0, 11.0, "s_0"), (10.5, 12.0, "s1")]
    assert set(read_rttm(written(tmp_path / "each", format="rttm")["part-a-000.rttm"], "here")) == {"x#0", "x#1"}


def test_textgrid(tmp_path):
    text = written(tmp_path, format="textgrid")["part-a-000/x#0.TextGrid"]
    assert text.startswith('File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = 2\ntiers? <exists>\nsize = 4\n')
    assert re.findall(r'name = "(.*)"', text) == ["words", "text", "s 0", "s1"]
    tier = text.split("item [")[2]
    spans = re.findall(r'xmin = (\S+)\n +xmax = (\S+)\n +text = "(.*)"', tier)
    assert spans == [("0", "0.5", "Say"), ("0.5", "1", '""a""'), ("1", "1.5", ""), ("1.5", "2", "b.")]


TIMES = st.floats(0, 30, allow_nan=False).map(lambda value: round(value, 3))
WORDS = st.lists(st.tuples(TIMES, st.floats(0.01, 2), st.text("ab. ", min_size=1, max_size=6).filter(str.strip)),
                 min_size=1, max_size=30)


@given(WORDS)
@settings(max_examples=50, deadline=None)
def test_subtitles_keep_words_and_limits(given):
    starts = sorted(start for start, _, _ in given)
    made = [Word(start, start + seconds, text.strip()) for start, (_, seconds, text) in zip(starts, given, strict=True)]
    found = list(cues(Said("x", 0.0, [(Word(0, 30, "a b"), made)]), LAYOUT))
    assert " ".join(cue.text for cue in found) == " ".join(word.text for word in made)
    for cue in found:
        assert len(cue.text) <= 84
        assert cue.end - cue.start <= 7 or cue.text in [word.text for word in made]
    assert [cue.start for cue in found] == sorted(cue.start for cue in found)


def test_where_a_subtitle_ends():
    made = [Word(0, 1, "one"), Word(1, 2, "two."), Word(2, 3, "three"), Word(4.5, 5, "four"), Word(5, 12.1, "five")]
    found = cues(Said("x", 0.0, [(Word(0, 13, "a b"), made)]), LAYOUT)
    assert [cue.text for cue in found] == ["one two.", "three", "four", "five"]
    spread = estimated(Word(2.0, 4.0, "ab cdef"))
    assert [(word.text, word.start, round(word.end, 6)) for word in spread] == [("ab", 2.0, 2.75), ("cdef", 2.75, 4.0)]
    chinese = estimated(Word(0.0, 2.0, "你好"))
    assert [word.text for word in chinese] == ["你", "好"]
    joined, = cues(Said("x", 0.0, [(Word(0.0, 2.0, "你好"), [])]), LAYOUT)
    assert joined == Word(0.0, 2.0, "你好")


def test_long_lines_are_broken(tmp_path):
    text = "a word or two more than would fit into a single line"
    batch = Batch(rows=pa.table({"id": ["a"], "source": ["s"], "duration": [5.0], "transcript": [text]}))
    writer = ToSubtitles(path=str(tmp_path)).open("part-a")
    writer.write(batch)
    writer.close()
    lines = (tmp_path / "part-a-000" / "a.srt").read_text().splitlines()[2:4]
    assert " ".join(lines) == text
    assert max(map(len, lines)) <= 42


@pytest.mark.parametrize("parameters", [{}, {"by": "source"}, {"format": "ctm"}, {"format": "rttm", "by": "source"},
                                        {"format": "textgrid", "target_bytes": 1}, {"select": ["id"]}])
def test_the_sink_keeps_its_rules(tmp_path, parameters):
    check_sink(ToSubtitles(path=str(tmp_path / "out"), **parameters), SAID)


def test_wrong_parameters_are_refused():
    for wrong in ({"format": "ass"}, {"max_chars": 1}, {"max_seconds": 0}, {"gap_s": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ToSubtitles(path="x", **wrong)
    refused = (("rttm", {"text": pa.string()}), ("ctm", {"words": pa.string()}), ("srt", {"id": None}))
    for wrong, columns in refused:
        with pytest.raises(RecipeError, match="there is no such column"):
            ToSubtitles(path="x", format=wrong).check(columns)
    ToSubtitles(path="x").check({"text": None})
    ToSubtitles(path="x", format="ctm").check({"words": None})
