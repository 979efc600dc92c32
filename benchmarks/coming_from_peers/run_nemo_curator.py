"""A job on NeMo Curator: the filters of its own configuration file for English, from JSON Lines to JSON Lines."""

from importlib import import_module
from pathlib import Path

import common
import nemo_curator
import yaml
from nemo_curator.backends.ray_data import RayDataExecutor
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.filters import ScoreFilter
from nemo_curator.stages.text.io.reader import JsonlReader
from nemo_curator.stages.text.io.writer import JsonlWriter

CONFIG = Path(nemo_curator.__file__).parent / "config/text/heuristic_filter_english_pipeline.yaml"


def filters() -> list:
    """The filters of the file, with their thresholds, in its order."""
    made = []
    for given in yaml.safe_load(CONFIG.read_text())["stages"]:
        if "filter_obj" in given:
            module, name = given["filter_obj"].pop("_target_").rsplit(".", 1)
            made.append(getattr(import_module(module), name)(**given["filter_obj"]))
    return made


def job(documents: str, out: str) -> None:
    pipeline = Pipeline(name="english")
    pipeline.add_stage(JsonlReader(file_paths=documents, files_per_partition=1))
    pipeline.add_stage(ScoreFilter(filters(), text_field="text"))
    pipeline.add_stage(JsonlWriter(path=f"{out}/data"))
    pipeline.run(RayDataExecutor())


if __name__ == "__main__":
    common.main("nemo-curator", job)
