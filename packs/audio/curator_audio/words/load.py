"""Loading of recognisers. Imported in workers only."""

from __future__ import annotations

import transformers

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.loading import load, load_model, place_of
from curator_audio.words.recogniser import Ctc, Whisper
from curator_audio.words.timed import Timed


def load_recogniser(name: str, ctx: Context, *, task: str = "transcribe", max_new_tokens: int = 440,
                    timestamps: str | None = None) -> Whisper | Ctc:
    """A model of the hub or a folder with what makes its inputs. `timestamps`: `segments` or `words`, of Whisper.

    Raises:
        CuratorError: it cannot be loaded, or is neither Whisper nor a CTC model.
    """
    config = load("AutoConfig", name)
    place = place_of(ctx)
    if type(config) in transformers.MODEL_FOR_CTC_MAPPING:
        model, _ = load_model("AutoModelForCTC", name, place)
        return Ctc(model.to(place.device), load("AutoFeatureExtractor", name), load("AutoTokenizer", name))
    if type(config) is transformers.WhisperConfig:
        model, _ = load_model("AutoModelForSpeechSeq2Seq", name, place)
        made = (model.to(place.device), load("AutoProcessor", name), task, max_new_tokens)
        if timestamps is None:
            return Whisper(*made)
        return Timed(*made, by_word=timestamps == "words")
    raise CuratorError(f"{name!r} is {type(config).__name__.removesuffix('Config')}, which is no recogniser that is known here: name "
                       "a Whisper model, or one with a CTC head (wav2vec2, HuBERT, WavLM, Parakeet-CTC)")
