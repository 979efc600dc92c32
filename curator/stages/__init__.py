"""The core's own stages, which know no modality, and its readers and writers."""

from curator.io.hub.sink import ToHub
from curator.io.hub.source import Hub
from curator.io.lake.iceberg import Iceberg
from curator.io.lake.lance import Lance, ToLance
from curator.io.media.files import Files, ToFiles
from curator.io.media.to_webdataset import ToWebDataset
from curator.io.media.webdataset import WebDataset
from curator.io.tables.arrow import Arrow, ToArrow
from curator.io.tables.csv import Csv, ToCsv
from curator.io.tables.jsonl import Jsonl, ToJsonl
from curator.io.tables.one_file import ToFile
from curator.io.tables.parquet import Parquet, ToParquet
from curator.pipeline.checkpoint import Checkpoint
from curator.stages.columns import Map, Rename, Select
from curator.stages.drop import Drop
from curator.stages.each.each import Each
from curator.stages.fetch.fetch import Fetch
from curator.stages.limit import Limit
from curator.stages.mixing.bins import ScoreBins
from curator.stages.mixing.mix import Mix
from curator.stages.mixing.repeat import Repeat
from curator.stages.mixing.shuffle import Shuffle
from curator.stages.mixing.split import Split
from curator.stages.route import Merge, Route
from curator.stages.sample import Sample
from curator.stages.top import Top

STAGES: tuple[type, ...] = (
    Jsonl, Parquet, Csv, Arrow, WebDataset, Files, Hub, Lance, Iceberg,
    ToJsonl, ToParquet, ToCsv, ToArrow, ToWebDataset, ToFiles, ToHub, ToLance, ToFile,
    Drop, Route, Merge, Limit, Sample, Select, Rename, Map, Each, Top, Fetch, Checkpoint,
    ScoreBins, Repeat, Mix, Shuffle, Split,
)

__all__ = ["STAGES", *(stage.__name__ for stage in STAGES)]
