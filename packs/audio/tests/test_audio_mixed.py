"""Sound out of films, shards, Parquet and URLs, transcripts with the stages of texts, and what audio/speech wrote, read again."""

from __future__ import annotations

import io
import json
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from curator.cli.main import main
from packs.audio.tests.recordings import sine, voice
from packs.audio.tests.sound_files import by_av, by_soundfile
from packs.audio.tests.speech_like import speech_like

RATE = 16_000
TALK = np.concatenate([sine(0, 1), voice(3, seed=1), sine(0, 3), voice(2.5, seed=2), sine(0, .5)])


def ran(place, read, steps, *words):
    """What a recipe writes: the rows, in order of their beginnings."""
    recipe = {"name": "mixed", "read": read, "steps": steps, "write": "parquet", "out": "out"}
    (place / "recipe.yaml").write_text(json.dumps(recipe))
    done = CliRunner().invoke(main, ["run", str(place / "recipe.yaml"), "--out", str(place / "out"), "--workers", "0", *words])
    assert done.exit_code == 0, done.output
    return sorted(rows(place / "out/data"), key=lambda row: row.get("start_s") or 0)


def rows(folder):
    return [row for path in sorted(folder.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize(("name", "container", "codec"), [("film.mp4", "mp4", "aac"), ("film.mkv", "matroska", "flac")])
def test_the_sound_of_a_film_is_cut_into_utterances(tmp_path, name, container, codec):
    (tmp_path / name).write_bytes(by_av(TALK, RATE, container, codec, video=True))
    found = ran(tmp_path, {"audio.files": {"path": str(tmp_path / name)}},
                ["audio.decode", {"map": {"of_film": "codec"}}, "audio.vad", {"audio.segment": {"min": 1.0}},
                 {"audio.encode": {"format": "flac"}}])
    assert [(row["of_film"], row["codec"]) for row in found] == 2 * [(codec, "flac")]
    spans = np.array([(row["start_s"], row["end_s"]) for row in found])
    assert np.abs(spans - [(.9, 4.1), (6.9, 9.6)]).max() < .25


def test_transcripts_go_through_the_stages_of_texts_beside_their_sound(tmp_path):
    said = {"en": "The weather is nice today, and we all want to go for a walk along the river. \u200b ",
            "de": "Das Wetter ist heute schön, und wir wollen alle am Fluss spazieren gehen.", "none": None}
    for name in said:
        (tmp_path / f"{name}.wav").write_bytes(by_soundfile(voice(3, seed=len(name)), RATE))
    manifest = tmp_path / "list.jsonl"
    manifest.write_text("".join(json.dumps({"audio_filepath": f"{name}.wav", "text": text}) + "\n" for name, text in said.items()))
    found = ran(tmp_path, {"audio.manifest": {"path": str(manifest)}},
                [{"text.clean": {"column": "text"}}, {"text.language": {"column": "text"}}, {"text.signals": {"column": "text"}},
                 "audio.decode", "audio.signals", "audio.rates"])
    by_name = {row["path"].rpartition("/")[2][:-4]: row for row in found}
    assert {name: row["text"] for name, row in by_name.items()} == {**said, "en": said["en"][:-3]}
    assert [by_name[name]["language"] for name in ("en", "de")] == ["en", "de"]
    assert by_name["en"]["word_count"] == 17
    assert by_name["en"]["char_rate"] == pytest.approx(len(by_name["en"]["text"]) / 3, rel=.25)
    assert all(row["duration"] == 3 and row["loudness"] < 0 for row in found)


def test_recordings_are_fetched_and_decoded(tmp_path):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    (tmp_path / "talk.flac").write_bytes(by_soundfile(TALK, RATE, "FLAC"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    Thread(target=server.serve_forever, kwargs={"poll_interval": .01}, daemon=True).start()
    try:
        base = f"http://127.0.0.1:{server.server_port}/"
        listed = pa.table({"url": [base + "talk.flac", base + "gone.flac"], "caption": ["a talk", "nothing"]})
        pq.write_table(listed, tmp_path / "in.parquet")
        found = ran(tmp_path, {"parquet": {"path": str(tmp_path / "in.parquet")}}, [{"fetch": {"private": True}}, "audio.decode"])
    finally:
        server.shutdown()
        server.server_close()
    assert [(row["caption"], row["format"], row["duration"]) for row in found] == [("a talk", "flac", 10.0)]
    assert [row["reason"] for row in rows(tmp_path / "out/dropped")] == ["http_404"]


def test_shards_and_parquet_of_the_hub_are_inputs(tmp_path):
    whole = by_soundfile(TALK, RATE, "FLAC")
    with tarfile.open(tmp_path / "in.tar", "w") as archive:
        for name, data in (("one.flac", whole), ("one.json", b'{"speaker": "s1"}')):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    heard = [{"bytes": whole, "path": "one.flac"}, {"bytes": None, "path": str(tmp_path / "two.flac")}]
    (tmp_path / "two.flac").write_bytes(whole)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({"audio": pa.array(heard, kind)}), tmp_path / "in.parquet")
    steps = ["audio.decode", "audio.hash"]
    (shard,) = ran(tmp_path, {"webdataset": {"path": str(tmp_path / "in.tar")}}, steps)
    mapped = [{"map": {"bytes": "audio.bytes", "path": "audio.path"}}, {"select": {"drop": ["audio"]}}, *steps]
    (tmp_path / "hub").mkdir()
    hub = ran(tmp_path / "hub", {"parquet": {"path": str(tmp_path / "in.parquet")}}, mapped)
    assert shard["speaker"] == "s1"
    assert {row["audio_hash"] for row in hub} == {shard["audio_hash"]}
    assert [row["duration"] for row in (shard, *hub)] == [10.0, 10.0, 10.0]


def test_what_speech_wrote_is_what_is_read_again(tmp_path):
    made = tmp_path / "in"
    made.mkdir()
    for number in range(2):
        pieces = [sine(0, 1), speech_like(4, seed=10 * number + 1), sine(0, 3), speech_like(5, seed=10 * number + 2), sine(0, 1)]
        (made / f"{number}.wav").write_bytes(by_soundfile(np.concatenate(pieces), RATE))
    words = ["run", "audio/speech", "--set", f"read.path={made}", "--out", str(tmp_path / "speech"), "--workers", "0"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    written = {row["key"]: row for row in rows(tmp_path / "speech/data")}
    again = ran(tmp_path, {"webdataset": {"path": str(tmp_path / "speech/data")}},
                [{"map": {"then_start": "start_s", "then_s": "duration", "then_lufs": "loudness"}}, "audio.decode", "audio.signals",
                 {"audio.encode": {"format": "flac"}}])
    assert len(written) == len(again) >= 3
    shards = {}
    for path in (tmp_path / "speech/data").rglob("*.tar"):
        with tarfile.open(path) as archive:
            shards |= {member.name: archive.extractfile(member).read() for member in archive}
    for row in again:
        before = written[row["key"]]
        assert (row["then_start"], row["then_s"], row["then_lufs"]) == (before["start_s"], before["duration"], before["loudness"])
        assert row["duration"] == pytest.approx(before["duration"], abs=1e-9)
        assert row["bytes"] == shards[f"{row['key']}.flac"]  # decoded and encoded: the same samples, the same file
        assert row["loudness"] == pytest.approx(-23, abs=.2)
