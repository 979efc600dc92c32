"""The tasks: batches of records, one dataclass a modality. They need numpy and pyarrow only."""

from curator.tasks.audio import AudioBatch
from curator.tasks.batch import Batch, payload
from curator.tasks.image import ImageBatch
from curator.tasks.text import TextBatch
from curator.tasks.video import VideoBatch

__all__ = ["AudioBatch", "Batch", "ImageBatch", "TextBatch", "VideoBatch", "payload"]
