"""What is said, by a speech recognition model behind a server."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from urllib3.filepost import encode_multipart_formdata

from curator.api.stage import Contract, Outputs
from curator.api.tasks import AudioBatch
from curator.models.chat import Rejected
from curator.models.server import RemoteStage
from curator_audio.sound.waves import mono_at

RATE = 16_000  # Hz


@dataclass(kw_only=True)
class TranscribeServer(RemoteStage):
    """Write down what is said, by a model behind a server that speaks OpenAI's audio transcriptions (vLLM, Speaches, whisper.cpp, …).

    Adds `transcript` (string), `asr_language` (string as the server says it), `avg_logprob` and `no_speech` (float32, of segments, by
    their seconds; null where the server does not tell them). Null without samples.

    A record is sent as FLAC, mono, 16 kHz, 16 bit. Rows whose request the server refuses, breaks off or does not answer in time leave on
    `failed` with its message. A server that cannot be reached, has no time, or does not let us in is no fault of any row: the run
    stops, no row is lost, and the same command goes on from there.

    `url`: the server's, up to and with `/v1`. `model`: as the server calls it. `language`: what is spoken (`en`), or the name of a
    column that says it; None lets the server find out. `prompt`: words that it may expect. `into`: the column of the text.
    `api_key_env`: the environment variable that holds the key, in the workers too; null for none. `concurrency`: requests at a time, in
    each worker. `answer_timeout_s`: for one answer. `retries`: further tries, with `backoff_s` seconds before the first, twice as
    long before each next one and a minute at most, or longer if the server says so. `requests_per_minute`: of all workers of a
    machine, to this URL and model; null for no limit.
    """

    language: str | None = None
    prompt: str | None = None
    into: str = "transcript"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.want_texts("into")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()},
                        adds={self.into: pa.string(), "asr_language": pa.string(), "avg_logprob": pa.float32(),
                              "no_speech": pa.float32()})

    def process(self, batch: AudioBatch) -> Outputs:
        spoken = batch.column(self.language) if self.language in batch.columns else [self.language] * len(batch)
        rows = zip(batch.samples or [None] * len(batch), batch.column("sample_rate"), spoken, strict=True)
        replies = self.each(self._hear, rows)
        good = np.array([not isinstance(one, str) for one in replies], bool)
        heard = [one or (None,) * 4 for one in replies if not isinstance(one, str)]
        values = list(zip(*heard, strict=True)) if heard else [()] * 4
        columns = {name: pa.array(column, kind)
                   for (name, kind), column in zip(self.contract().adds.items(), values, strict=True)}
        outputs = Outputs(out=batch.filter(good).with_columns(columns))
        if not good.all():
            outputs["failed"] = batch.filter(~good).with_error([one for one in replies if isinstance(one, str)])
        return outputs

    def _hear(self, samples: np.ndarray | None, rate: int | None, language: str | None) -> tuple[Any, ...] | str | None:
        """Text, language, log-probability and silence of a record, or why there is no answer; None without samples. In a thread."""
        if samples is None or not samples.shape[1] or not rate:
            return None
        fields: dict[str, Any] = {"model": self.model, "response_format": "verbose_json", "temperature": "0"}
        fields |= {name: value for name, value in (("language", language), ("prompt", self.prompt)) if value}
        fields["file"] = ("audio.flac", flac(mono_at(samples, rate, RATE)), "audio/flac")
        body, content_type = encode_multipart_formdata(fields, boundary="curator-0f5f3b9f6d0e4b5c")
        try:
            return transcription_of(self._chat.post("/audio/transcriptions", body, content_type))
        except Rejected as error:
            return str(error)


def flac(wave: np.ndarray) -> bytes:
    """A FLAC file of samples at `RATE`, 16 bit."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.clip(wave, -1, 1), RATE, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def transcription_of(data: bytes) -> tuple[str, str | None, float | None, float | None]:
    """Text, language, mean log-probability and probability of silence in a server's answer.

    Raises:
        Rejected: it is no transcription.
    """
    try:
        whole = json.loads(data)
        text, language, segments = whole["text"], whole.get("language"), whole.get("segments") or []
        numbers = [(float(s["end"]) - float(s["start"]), s.get("avg_logprob"), s.get("no_speech_prob")) for s in segments]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Rejected(f"the server's answer is no transcription: {data[:500].decode('utf-8', 'replace')}") from error
    if not isinstance(text, str):
        raise Rejected(f"the server's answer has no text: {data[:500].decode('utf-8', 'replace')}")
    logprob = _by_seconds([(seconds, value) for seconds, value, _ in numbers])
    silent = min((value for _, _, value in numbers if value is not None), default=None)
    return text.strip(), language if isinstance(language, str) else None, logprob, silent


def _by_seconds(values: list[tuple[float, float | None]]) -> float | None:
    """The mean, by seconds."""
    known = [(max(seconds, 0.001), value) for seconds, value in values if value is not None]
    return sum(s * v for s, v in known) / sum(s for s, _ in known) if known else None
