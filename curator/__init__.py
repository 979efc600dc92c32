"""Curator: curate text, images, video and audio into training data.

    from curator import read, write
    from curator.stages import Drop

    (read("docs/*.jsonl") >> Drop(conditions={"short": "length(text) < 200"}) >> write("out/")).run()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from curator.errors import ContractError, CuratorError, InputError, RecipeError, StageError
from curator.pipeline import Pipeline
from curator.resources import Resources
from curator.stage import Composite, Context, Contract, Memory, Outputs, Reduce, Sink, Source, Stage, Stateful, setting, stage
from curator.tasks import AudioBatch, Batch, ImageBatch, TextBatch, VideoBatch

if TYPE_CHECKING:
    from curator.formats import read, write

__all__ = [
    "AudioBatch", "Batch", "Composite", "Context", "Contract", "ContractError", "CuratorError", "ImageBatch", "InputError",
    "Memory", "Outputs", "Pipeline", "RecipeError", "Reduce", "Resources", "Sink", "Source", "Stage", "StageError", "Stateful",
    "TextBatch", "VideoBatch", "read", "setting", "stage", "write",
]


def __getattr__(name: str) -> Any:
    # The readers and writers are imported when they are wanted: workers and most packs never do.
    if name in ("read", "write"):
        from curator import formats

        return getattr(formats, name)
    raise AttributeError(f"module 'curator' has no attribute {name!r}")
