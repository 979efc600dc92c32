"""Batches of documents."""

from __future__ import annotations

from dataclasses import dataclass

from curator.api.batch import Batch


@dataclass
class TextBatch(Batch):
    """Documents. The text is a string column, `text` unless a stage's parameter says otherwise."""
