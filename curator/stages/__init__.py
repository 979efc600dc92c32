"""The core's own stages, which know no modality, and its readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curator.stages.late import attributes

# Each by its name, as `module:Class`: who asks for one imports that module alone.
STAGES = {
    "jsonl": "curator.io.tables.jsonl:Jsonl",
    "parquet": "curator.io.tables.parquet:Parquet",
    "csv": "curator.io.tables.csv:Csv",
    "arrow": "curator.io.tables.arrow:Arrow",
    "webdataset": "curator.io.media.webdataset:WebDataset",
    "files": "curator.io.media.files:Files",
    "hub": "curator.io.hub.source:Hub",
    "lance": "curator.io.lake.lance:Lance",
    "iceberg": "curator.io.lake.iceberg:Iceberg",
    "to_jsonl": "curator.io.tables.jsonl:ToJsonl",
    "to_parquet": "curator.io.tables.parquet:ToParquet",
    "to_csv": "curator.io.tables.csv:ToCsv",
    "to_arrow": "curator.io.tables.arrow:ToArrow",
    "to_webdataset": "curator.io.media.to_webdataset:ToWebDataset",
    "to_files": "curator.io.media.files:ToFiles",
    "to_hub": "curator.io.hub.sink:ToHub",
    "to_lance": "curator.io.lake.lance:ToLance",
    "to_file": "curator.io.tables.one_file:ToFile",
    "drop": "curator.stages.drop:Drop",
    "route": "curator.stages.route:Route",
    "merge": "curator.stages.route:Merge",
    "limit": "curator.stages.limit:Limit",
    "sample": "curator.stages.sample:Sample",
    "select": "curator.stages.columns:Select",
    "rename": "curator.stages.columns:Rename",
    "map": "curator.stages.columns:Map",
    "each": "curator.stages.each.each:Each",
    "top": "curator.stages.top:Top",
    "fetch": "curator.stages.fetch.fetch:Fetch",
    "checkpoint": "curator.pipeline.checkpoint:Checkpoint",
    "score_bins": "curator.stages.mixing.bins:ScoreBins",
    "repeat": "curator.stages.mixing.repeat:Repeat",
    "mix": "curator.stages.mixing.mix:Mix",
    "shuffle": "curator.stages.mixing.shuffle:Shuffle",
    "split": "curator.stages.mixing.split:Split",
}

if TYPE_CHECKING:
    from curator.io.hub.sink import ToHub as ToHub
    from curator.io.hub.source import Hub as Hub
    from curator.io.lake.iceberg import Iceberg as Iceberg
    from curator.io.lake.lance import Lance as Lance
    from curator.io.lake.lance import ToLance as ToLance
    from curator.io.media.files import Files as Files
    from curator.io.media.files import ToFiles as ToFiles
    from curator.io.media.to_webdataset import ToWebDataset as ToWebDataset
    from curator.io.media.webdataset import WebDataset as WebDataset
    from curator.io.tables.arrow import Arrow as Arrow
    from curator.io.tables.arrow import ToArrow as ToArrow
    from curator.io.tables.csv import Csv as Csv
    from curator.io.tables.csv import ToCsv as ToCsv
    from curator.io.tables.jsonl import Jsonl as Jsonl
    from curator.io.tables.jsonl import ToJsonl as ToJsonl
    from curator.io.tables.one_file import ToFile as ToFile
    from curator.io.tables.parquet import Parquet as Parquet
    from curator.io.tables.parquet import ToParquet as ToParquet
    from curator.pipeline.checkpoint import Checkpoint as Checkpoint
    from curator.stages.columns import Map as Map
    from curator.stages.columns import Rename as Rename
    from curator.stages.columns import Select as Select
    from curator.stages.drop import Drop as Drop
    from curator.stages.each.each import Each as Each
    from curator.stages.fetch.fetch import Fetch as Fetch
    from curator.stages.limit import Limit as Limit
    from curator.stages.mixing.bins import ScoreBins as ScoreBins
    from curator.stages.mixing.mix import Mix as Mix
    from curator.stages.mixing.repeat import Repeat as Repeat
    from curator.stages.mixing.shuffle import Shuffle as Shuffle
    from curator.stages.mixing.split import Split as Split
    from curator.stages.route import Merge as Merge
    from curator.stages.route import Route as Route
    from curator.stages.sample import Sample as Sample
    from curator.stages.top import Top as Top
else:
    __getattr__, __dir__ = attributes(__name__, STAGES)
