"""Recognition by a server: what is sent, what comes of its answers, and what a server that fails does to a run."""

from __future__ import annotations

import io
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pytest
import soundfile
from curator_audio import TranscribeServer

from curator import Context, CuratorError
from curator.api.errors import StageError
from curator.testing import check_stage
from packs.audio.tests.recordings import recordings, sine

SEGMENTS = [{"start": 0, "end": 1, "avg_logprob": -.2, "no_speech_prob": .1},
            {"start": 1, "end": 4, "avg_logprob": -.6, "no_speech_prob": .3}]


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            fields = dict(re.findall(rb'name="(\w+)"\r\n\r\n(.*?)\r\n--', body, re.S))
            fields["file"] = re.search(rb"audio/flac\r\n\r\n(.*?)\r\n--curator", body, re.S)[1]
            own.requests.append((self.path, dict(self.headers), fields))
            status, answer = own.answer(fields)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args) -> None:
            """Nothing: what went wrong shows in the answers."""

    own = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    own.requests, own.url = [], f"http://127.0.0.1:{own.server_port}/v1"
    own.answer = lambda fields: (200, {"text": " hello ", "language": "english", "segments": SEGMENTS})
    threading.Thread(target=own.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield own
    own.shutdown()
    own.server_close()


def stage(server, **options):
    made = TranscribeServer(url=server.url, model="tiny", backoff_s=0.0, retries=1, **options)
    made.setup(Context())
    return made


def test_records_are_sent_as_flac_and_come_back_with_their_text(server):
    given = recordings(np.stack([sine(300, .5, 44_100), sine(300, .5, 44_100)]), None, rate=44_100)
    out = stage(server, language="en", prompt="numbers").process(given)["out"].rows.to_pylist()
    assert (out[0]["transcript"], out[0]["asr_language"]) == ("hello", "english")
    assert out[0]["avg_logprob"] == pytest.approx((-.2 - 3 * .6) / 4)
    assert out[0]["no_speech"] == pytest.approx(.1)
    assert [out[1][name] for name in ("transcript", "asr_language", "avg_logprob", "no_speech")] == [None] * 4
    (path, _, fields), = server.requests
    assert path == "/v1/audio/transcriptions"
    assert {name: fields[name.encode()] for name in ("model", "language", "prompt", "response_format")} == {
        "model": b"tiny", "language": b"en", "prompt": b"numbers", "response_format": b"verbose_json"}
    sent, rate = soundfile.read(io.BytesIO(fields["file"]))
    assert (rate, len(sent)) == (16_000, 8_000)
    assert np.abs(sent[100:-100]).max() == pytest.approx(.5, abs=.01)


def test_a_plain_answer_will_do(server):
    server.answer = lambda fields: (200, {"text": "plain"})
    out = stage(server).process(recordings(sine(300)))["out"].rows.to_pylist()
    assert (out[0]["transcript"], out[0]["asr_language"], out[0]["avg_logprob"]) == ("plain", None, None)


@pytest.mark.parametrize(("answer", "message"), [
    ((400, {"error": {"message": "too long"}}), "too long"), ((200, b"<html>"), "no transcription"), ((200, {"text": None}), "no text"),
    ((500, {"error": "broken"}), "HTTP 500")])
def test_a_record_that_is_refused_fails_alone(server, answer, message):
    server.answer = lambda fields: answer if fields[b"language"] == b"xx" else (200, {"text": "fine"})
    given = recordings(sine(300), sine(400), lang=pa.array(["xx", "en"], pa.string()))
    outputs = stage(server, language="lang").process(given)
    assert outputs["out"].column("transcript") == ["fine"]
    assert message in outputs["failed"].column("error")[0]


def test_a_server_that_lets_nobody_in_stops_the_run(server, monkeypatch):
    monkeypatch.setenv("SPEECH_KEY", "secret")
    server.answer = lambda fields: (401, {"error": "who is secret?"})
    with pytest.raises(StageError, match="HTTP 401") as caught:
        stage(server, api_key_env="SPEECH_KEY").process(recordings(sine(300)))
    assert "secret" not in str(caught.value)
    assert server.requests[0][1]["Authorization"] == "Bearer secret"


def test_what_is_missing_is_said_before_anything_is_sent(server):
    with pytest.raises(CuratorError, match="NO_SUCH_KEY"):
        stage(server, api_key_env="NO_SUCH_KEY")
    with pytest.raises(ValueError, match="http"):
        TranscribeServer(url="localhost", model="m")
    with pytest.raises(ValueError, match="password"):
        TranscribeServer(url="http://me:secret@localhost/v1", model="m")
    with pytest.raises(ValueError, match="model is empty"):
        TranscribeServer(url="http://localhost/v1", model=" ")


def test_the_stage_keeps_the_rules_of_a_pack(server):
    given = recordings(sine(300, .1), None, sine(200, .2))
    check_stage(TranscribeServer(url=server.url, model="tiny", backoff_s=0.0), given)
