"""Audio models of transformers that take one wave and give a vector or scores: CLAP, AST, WavLM. Imported in workers only."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import torch
import transformers

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.loading import Place, load, load_model, place_of

BATCH = 16  # waves that a model hears at once


class Ear:
    """A loaded model with what makes its inputs of waves at `rate` Hz.

    A model without an attention mask hears padding, so waves of different lengths go through it one by one.
    """

    def __init__(self, model: Any, extractor: Any, place: Place) -> None:
        self.model, self.extractor, self._place = model.to(place.device), extractor, place
        self.rate = int(extractor.sampling_rate)
        self._same_shape = hasattr(extractor, "max_length") or hasattr(extractor, "nb_max_samples")
        self._masks = bool(getattr(extractor, "return_attention_mask", False))

    def inputs(self, waves: Sequence[np.ndarray], **options: Any) -> dict[str, Any]:
        made = self.extractor(list(waves), sampling_rate=self.rate, return_tensors="pt", **options)
        return {name: values.to(self._place.device, self._place.dtype if values.is_floating_point() else None)
                for name, values in made.items()}

    def groups(self, waves: Sequence[np.ndarray]) -> list[list[int]]:
        """Positions of waves that may be heard together."""
        if self._same_shape:
            return [list(range(at, min(at + BATCH, len(waves)))) for at in range(0, len(waves), BATCH)]
        lengths: dict[int, list[int]] = {}
        for at, wave in enumerate(waves):
            lengths.setdefault(0 if self._masks else len(wave), []).append(at)
        return [group[at:at + BATCH] for group in lengths.values() for at in range(0, len(group), BATCH)]


class Clap(Ear):
    """CLAP: sound and text in one space."""

    def __init__(self, name: str, ctx: Context) -> None:
        super().__init__(*_loaded("ClapModel", name, ctx, "ClapFeatureExtractor"))
        self._tokenizer = load("AutoTokenizer", name)

    @property
    def size(self) -> int:
        return int(self.model.config.projection_dim)

    def sound(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        """Vectors of length 1, float32 [waves, size]."""
        found = np.empty((len(waves), self.size), np.float32)
        for group in self.groups(waves):
            inputs = self.inputs([waves[at] for at in group])
            with torch.inference_mode():
                found[group] = _unit(_pooled(self.model.get_audio_features(**inputs)))
        return found

    def text(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of length 1, float32 [texts, size]."""
        found = np.empty((len(texts), self.size), np.float32)
        longest = min(self._tokenizer.model_max_length, self.model.config.text_config.max_position_embeddings - 2)
        for at in range(0, len(texts), BATCH):
            inputs = self._tokenizer(list(texts[at:at + BATCH]), padding=True, truncation=True, max_length=longest, return_tensors="pt")
            with torch.inference_mode():
                found[at:at + BATCH] = _unit(_pooled(self.model.get_text_features(**inputs.to(self.model.device))))
        return found


class Tagger(Ear):
    """A classifier of sounds, such as AST."""

    def __init__(self, name: str, ctx: Context) -> None:
        super().__init__(*_loaded("AutoModelForAudioClassification", name, ctx))
        config = self.model.config
        self.labels = [config.id2label[at] for at in range(config.num_labels)]
        self.several = config.problem_type == "multi_label_classification" or isinstance(config, transformers.ASTConfig)

    def scores(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        """The probability of each label, float32 [waves, labels]: each for itself where several may be true, else they add up to 1."""
        found = np.empty((len(waves), len(self.labels)), np.float32)
        for group in self.groups(waves):
            with torch.inference_mode():
                logits = self.model(**self.inputs([waves[at] for at in group])).logits.float()
            found[group] = (logits.sigmoid() if self.several else logits.softmax(-1)).cpu().numpy()
        return found


class Voice(Ear):
    """A model of who speaks: an x-vector head (WavLM, UniSpeech, wav2vec2)."""

    def __init__(self, name: str, ctx: Context) -> None:
        _check_kind(name, transformers.MODEL_FOR_AUDIO_XVECTOR_MAPPING, "gives no voices here: name a model with an x-vector head, "
                                                                        "such as microsoft/wavlm-base-plus-sv")
        super().__init__(*_loaded("AutoModelForAudioXVector", name, ctx))

    @property
    def size(self) -> int:
        return int(self.model.config.xvector_output_dim)

    def embed(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        """Vectors of length 1, float32 [waves, size]. Waves of different lengths are heard one by one: such heads pool over padding."""
        found = np.empty((len(waves), self.size), np.float32)
        lengths: dict[int, list[int]] = {}
        for at, wave in enumerate(waves):
            lengths.setdefault(len(wave), []).append(at)
        for group in (same[at:at + BATCH] for same in lengths.values() for at in range(0, len(same), BATCH)):
            with torch.inference_mode():
                found[group] = _unit(self.model(**self.inputs([waves[at] for at in group])).embeddings)
        return found


class Diariser(Ear):
    """A model that says at each frame which of its speakers talk."""

    def __init__(self, name: str, ctx: Context) -> None:
        _check_kind(name, transformers.MODEL_FOR_AUDIO_FRAME_CLASSIFICATION_MAPPING,
                    "tells no speakers here: name a model that answers frame by frame, such as microsoft/wavlm-base-plus-sd")
        super().__init__(*_loaded("AutoModelForAudioFrameClassification", name, ctx))

    def chances(self, waves: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Probabilities, frames x speakers, of each wave; one by one, since such models hear padding."""
        found = []
        for wave in waves:
            with torch.inference_mode():
                found.append(self.model(**self.inputs([wave])).logits[0].float().sigmoid().cpu().numpy())
        return found


def _loaded(loader: str, name: str, ctx: Context, extractor: str = "AutoFeatureExtractor") -> tuple[Any, Any, Place]:
    """A model, what makes its inputs, and where it computes."""
    place = place_of(ctx)
    model, _ = load_model(loader, name, place)
    return model, load(extractor, name), place


def _check_kind(name: str, kinds: Container[type], otherwise: str) -> None:
    """Raise CuratorError for a model whose configuration is of no kind that will do."""
    config = load("AutoConfig", name)
    if type(config) not in kinds:
        raise CuratorError(f"{name!r} is {type(config).__name__.removesuffix('Config')}, which {otherwise}")


def _pooled(answer: Any) -> Any:
    """The vectors of an answer, which transformers gives bare or in an object."""
    return answer if isinstance(answer, torch.Tensor) else answer.pooler_output


def _unit(vectors: Any) -> np.ndarray:
    return torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()
