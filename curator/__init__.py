"""Curator: curate text, images, video and audio into training data.

    from curator import read, write
    from curator.stages import Drop

    (read("docs/*.jsonl") >> Drop(conditions={"short": "length(text) < 200"}) >> write("out/")).run()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curator import packs
    from curator.api.errors import CuratorError, InputError, RecipeError
    from curator.api.resources import Resources
    from curator.api.stage import Context, Contract, Outputs, Reduce, Sink, Source, Stage, setting, stage
    from curator.api.tasks import AudioBatch, Batch, ImageBatch, TextBatch, VideoBatch
    from curator.front import Pipeline, load, read
    from curator.outside.elsewhere import StageMap as as_map
    from curator.pipeline.formats import write
    from curator.run.run import Result

__all__ = [
    "AudioBatch", "Batch", "Context", "Contract", "CuratorError", "ImageBatch", "InputError", "Outputs",
    "Pipeline", "RecipeError", "Reduce", "Resources", "Result", "Sink", "Source", "Stage", "TextBatch",
    "VideoBatch", "as_map", "load", "packs", "read", "setting", "stage", "write",
]

# Imported when they are wanted: the command line answers `--help` and Tab without Arrow, and workers never
# need most of them.
_PLACES = {
    "curator.api.errors": ("CuratorError", "InputError", "RecipeError"),
    "curator.api.resources": ("Resources",),
    "curator.api.stage": ("Context", "Contract", "Outputs", "Reduce", "Sink", "Source", "Stage", "setting",
                          "stage"),
    "curator.api.tasks": ("AudioBatch", "Batch", "ImageBatch", "TextBatch", "VideoBatch"),
    "curator.front": ("Pipeline", "load", "read"),
    "curator.pipeline.formats": ("write",),
    "curator.run.run": ("Result",),
}


def __getattr__(name: str) -> Any:
    if name == "packs":
        return importlib.import_module("curator.packs")
    if name == "as_map":
        return importlib.import_module("curator.outside.elsewhere").StageMap
    for place, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(place), name)
    raise AttributeError(f"module 'curator' has no attribute {name!r}")
