"""A vision-language model that is asked many questions at a time, each about one or several pictures.
Imported in workers only."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.loading import Place, load, load_model, place_of


@dataclass(frozen=True)
class Question:
    """A text about pictures, H x W x 3 uint8 RGB, which come before it.

    `times`: the pictures, of one size, are a film, and this is when each is shown, in seconds.
    """

    text: str
    pictures: Sequence[np.ndarray]
    times: Sequence[float] | None = None


@dataclass(frozen=True)
class Answer:
    """What a model said: `tokens` that it made, the end mark included; `finish_reason`: stop, or length where
    it was cut off."""

    text: str
    tokens: int
    finish_reason: str


class Captioner:
    """A loaded model that is asked.

    `system`: a message before each question. `repetition_penalty`: instead of the model's own.
    `image_options`: what its image processor takes beside images.
    """

    def __init__(self, model: Any, processor: Any, *, max_new_tokens: int, system: str | None = None,
                 repetition_penalty: float | None = None,
                 image_options: Mapping[str, Any] | None = None) -> None:
        self._model, self._processor, self._system = model, processor, system
        self._options = {"padding": True, "images_kwargs": dict(image_options or {})}
        tokenizer = processor.tokenizer
        tokenizer.padding_side = "left"  # what is generated begins right after the question
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        settings = greedy(model.generation_config, max_new_tokens, tokenizer.pad_token_id)
        if repetition_penalty is not None:
            settings.repetition_penalty = repetition_penalty
        ends = settings.eos_token_id
        self._ends = set(ends) if isinstance(ends, Sequence) else {ends}
        self._penalty = None
        if not model.config.is_encoder_decoder:
            self._penalty, settings.repetition_penalty = settings.repetition_penalty, None
        # given to `generate` instead, what is None here would be taken from the old ones
        model.generation_config = settings

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """An answer for each question, all of them in one batch."""
        model = self._model
        inputs = self.inputs(questions).to(model.device, dtype=model.dtype)
        # tokens before those that it makes
        asked = 1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
        with torch.inference_mode():
            sequences = model.generate(**inputs, logits_processor=self._processors(asked))
        return [self._answer(made) for made in sequences[:, asked:].tolist()]

    def inputs(self, questions: Sequence[Question]) -> Any:
        """What the model is given: the questions, padded on the left to the longest one."""
        if self._processor.chat_template is None:
            pictures = [Image.fromarray(picture) for question in questions for picture in question.pictures]
            return self._processor(images=pictures, text=[question.text for question in questions],
                                   return_tensors="pt", **self._options)
        system = []
        if self._system:
            system = [{"role": "system", "content": [{"type": "text", "text": self._system}]}]
        talks = [[*system, {"role": "user", "content": [*shown(one), {"type": "text", "text": one.text}]}]
                 for one in questions]
        options = dict(self._options)
        if films := [[film_of(question.times)] for question in questions if question.times is not None]:
            options["videos_kwargs"] = {"do_sample_frames": False, "video_metadata": films}
        return self._processor.apply_chat_template(
            talks, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
            processor_kwargs=options)

    def _processors(self, asked: int) -> Any:
        """The model's penalty on repetition, for what it made only: the padding before a question depends on
        the other ones."""
        if self._penalty in (None, 1.0):
            return transformers.LogitsProcessorList()
        penalty = transformers.RepetitionPenaltyLogitsProcessor(float(self._penalty),
                                                                prompt_ignore_length=asked)
        return transformers.LogitsProcessorList([penalty])

    def _answer(self, made: list[int]) -> Answer:
        end = next((i for i, token in enumerate(made) if token in self._ends), None)
        tokens = made if end is None else made[:end + 1]
        text = self._processor.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        return Answer(text, len(tokens), "length" if end is None else "stop")


def shown(question: Question) -> list[dict[str, Any]]:
    """The pictures of a question, as a chat template takes them."""
    if question.times is not None:
        return [{"type": "video", "video": np.stack(question.pictures)}]
    return [{"type": "image", "image": Image.fromarray(picture)} for picture in question.pictures]


def film_of(shown_at: Sequence[float]) -> dict[str, Any]:
    """When the pictures of a film are shown, as transformers counts: in pictures, at so many a second."""
    times = np.asarray(shown_at) - shown_at[0]
    rate = (len(times) - 1) / times[-1] if len(times) > 1 and times[-1] > 0 else 1.0
    return {"total_num_frames": len(times), "fps": rate, "frames_indices": list(range(len(times))),
            "duration": len(times) / rate}


def greedy(settings: Any, max_new_tokens: int, pad_token_id: int) -> Any:
    """A model's own settings for generation, without what draws at random or hides that an answer was cut
    off."""
    settings = copy.deepcopy(settings)
    settings.update(do_sample=False, temperature=None, top_k=None, top_p=None, min_p=None, max_length=None,
                    forced_eos_token_id=None, max_new_tokens=max_new_tokens, pad_token_id=pad_token_id)
    return settings


def load_captioner(name: str, ctx: Context, *, films: bool = False,
                   trust_remote_code: bool = False) -> tuple[Any, Any]:
    """A model, where it computes, and its processor. `films`: it is to take films, and not only pictures.

    On a GPU in bfloat16: several of these models leave the range of float16.

    Raises:
        CuratorError: one of them cannot be loaded, or the model cannot be asked.
    """
    config = load("AutoConfig", name, trust_remote_code=trust_remote_code)
    processor = load_processor(name, config, trust_remote_code)
    if films and not hasattr(processor, "video_processor"):
        raise CuratorError(f"{name!r} cannot be given films here: its processor has no part for them, or "
                           "torchvision, which that part "
                           "wants, is missing (pip install torchvision); give it several images")
    if processor.chat_template is None and not config.is_encoder_decoder:
        raise CuratorError(f"{name!r} has no chat template, so that nobody knows how to ask it: name a model "
                           "that has one")
    place = place_of(ctx)
    if ctx.gpus:
        place = Place(place.device, torch.bfloat16)
    model, _ = load_model("AutoModelForImageTextToText", name, place, trust_remote_code=trust_remote_code)
    return model.to(place.device), processor


def load_processor(name: str, config: Any, trust_remote_code: bool) -> Any:
    """A model's processor; where its part for videos cannot be loaded for lack of torchvision, without that
    part."""
    try:
        return load("AutoProcessor", name, trust_remote_code=trust_remote_code)
    except CuratorError as error:
        whole = transformers.PROCESSOR_MAPPING.get(type(config), None)
        if whole is None or "torchvision" not in str(error).lower():
            raise
        try:
            return load(without_videos(whole), name)
        except (CuratorError, TypeError):
            raise CuratorError(f"{name!r} cannot be loaded without torchvision: pip install torchvision "
                               "num2words") from error


def without_videos(processor: Any) -> Any:
    """A processor class that neither loads nor wants the part for videos."""

    class ForImages(processor):
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in processor.get_attributes() if name != "video_processor"]

    return ForImages
