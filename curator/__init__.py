"""Curator: curate text, images, video and audio into training data.

    from curator import read, write
    from curator.stages import Drop

    (read("docs/*.jsonl") >> Drop(conditions={"short": "length(text) < 200"}) >> write("out/")).run()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from curator.api.errors import CuratorError, InputError, RecipeError
from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Outputs, Reduce, Sink, Source, Stage, setting, stage
from curator.api.tasks import AudioBatch, Batch, ImageBatch, TextBatch, VideoBatch
from curator.front import Pipeline, load, read

if TYPE_CHECKING:
    from curator import packs
    from curator.outside.elsewhere import StageMap as as_map
    from curator.pipeline.formats import write
    from curator.run.run import Result

__all__ = [
    "AudioBatch", "Batch", "Context", "Contract", "CuratorError", "ImageBatch", "InputError", "Outputs",
    "Pipeline", "RecipeError", "Reduce", "Resources", "Result", "Sink", "Source", "Stage", "TextBatch",
    "VideoBatch", "as_map", "load", "packs", "read", "setting", "stage", "write",
]


def __getattr__(name: str) -> Any:
    if name == "write":  # the writers are imported when they are wanted: workers and most packs never do
        from curator.pipeline.formats import write

        return write
    if name == "Result":
        from curator.run.run import Result

        return Result
    if name == "packs":
        return importlib.import_module("curator.packs")
    if name == "as_map":
        from curator.outside.elsewhere import StageMap

        return StageMap
    raise AttributeError(f"module 'curator' has no attribute {name!r}")
