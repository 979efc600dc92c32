"""The tasks: batches of records, one dataclass a modality. They need numpy and pyarrow only."""

from curator.api.batch import Batch, payload
from curator.api.tasks.audio import AudioBatch
from curator.api.tasks.image import ImageBatch
from curator.api.tasks.text import TextBatch
from curator.api.tasks.video import VideoBatch

__all__ = ["AudioBatch", "Batch", "ImageBatch", "TextBatch", "VideoBatch", "payload"]
