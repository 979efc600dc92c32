"""Captions of clips by a vision-language model in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from curator.api.resources import Resources
from curator.api.stage import Context
from curator.api.tasks import VideoBatch
from curator.models.loading import MODELS, need_models
from curator_video.models.captions import Window, Windowed

PIXELS_AT_ONCE = 128 * 384 * 384  # of all frames that a model is given at a time


@dataclass(kw_only=True)
class Caption(Windowed):
    """Describe clips by a vision-language model (Qwen-VL, InternVL, LLaVA-Next-Video, Idefics and others).

    Reads `frames`, `timestamps`, `start_s`, `end_s`. A clip is asked about in windows of time. Adds `captions` (a list, a struct
    a window: `start` and `end` in seconds of the source, `text`, null where it is empty, `finish_reason`), `caption` (the texts
    of all windows one behind another), `caption_tokens` (int32, how many tokens the model made, end marks included) and
    `caption_finish_reason`: `stop`; else the first of `length` (cut off at `max_new_tokens`), `empty`, and `loop` (it ends in the
    same words three times and more). What to drop of these is the recipe's business. All are null for a clip without frames.
    The likeliest token is taken each time, so that a clip gets the same caption again; in 16 bits, on a GPU, some
    words may still depend on the clips that it shares a batch with.

    `model`: a hub id, `id@revision` or a folder that transformers' `AutoModelForImageTextToText` takes, with a chat template.
    `prompt`: one of the pack's (`describe`, `short`, `camera`, `driving`), a file that ends in `.txt`, or the text. In it
    `{times}`, `{seconds}` and `{count}` stand for the frames' times, the window's length and how many frames there are, `{name}` for
    any column, `{{` for a brace. `system`: a system message before it, None for none. `window`: seconds; what remains of a
    clip is a window of its own from `remainder` seconds on, else part of the last one. `frames`: the most frames of a window,
    evenly spread over those that are there. `frames_as`: `images` gives them as so many images, which every model that takes
    several understands; `video` as a film, for models trained on films: fewer tokens, but it wants torchvision.
    `into`: the name of the column, and how the names of the others begin. `repetition_penalty`: against loops, 1.05 to 1.2; None
    for the model's own. `image_options`: settings of the model's image processor, to say how large it sees a frame, and so how long
    it takes: `size: {shortest_edge: 3136, longest_edge: 200704}` (Qwen-VL: the fewest and the most pixels). `trust_remote_code`:
    run the code that comes with the model.

    Known difference: NVIDIA's windows are counted in frames of the file (256, and 128 for what remains): 10 s and 5 s at 25 a
    second.

    Source: windows as in https://github.com/nvidia-cosmos/cosmos-curate.
    """

    model: str
    frames_as: Literal["images", "video"] = "images"
    max_new_tokens: int = 512
    repetition_penalty: float | None = None
    image_options: dict[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False

    resources = Resources(cpus=1, gpus=1)
    requires = MODELS
    batch_size = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model.strip():
            raise ValueError("model is empty; video.caption wants a text there")
        if self.frames_as not in ("images", "video"):
            raise ValueError(f"frames_as is images or video, got {self.frames_as!r}")
        self.at_least(1, "max_new_tokens")
        if self.repetition_penalty is not None and self.repetition_penalty <= 0:
            raise ValueError(f"repetition_penalty is above 0, 1 for none, got {self.repetition_penalty}")

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator.models.captioner import Captioner, Question, load_captioner

        model, processor = load_captioner(self.model, ctx, films=self.frames_as == "video", trust_remote_code=self.trust_remote_code)
        self._captioner = Captioner(model, processor, system=self.system, max_new_tokens=self.max_new_tokens,
                                    repetition_penalty=self.repetition_penalty, image_options=self.image_options)
        self._question = Question

    def process(self, batch: VideoBatch) -> VideoBatch:
        asked = self.windows(batch)
        said = [answer for part in parts_of(asked) for answer in self._captioner.answers([self._of(window) for window in part])]
        return self.told(batch, asked, said)

    def _of(self, window: Window) -> Any:
        return self._question(window.text, window.frames, window.times if self.frames_as == "video" else None)


def parts_of(asked: list[Window]) -> list[list[Window]]:
    """Windows in parts of so many pixels, in order; a part has one at least."""
    parts: list[list[Window]] = []
    room = 0
    for window in asked:
        pixels = sum(frame.shape[0] * frame.shape[1] for frame in window.frames)
        if not parts or pixels > room:
            parts.append([])
            room = PIXELS_AT_ONCE
        parts[-1].append(window)
        room -= pixels
    return parts
