"""A job on data-juicer: its recipe data_juicer.yaml, as `dj-process` runs it."""

from pathlib import Path

import common
import yaml
from data_juicer.config import init_configs
from data_juicer.core import DefaultExecutor


def job(documents: str, out: str) -> None:
    recipe = yaml.safe_load(Path(__file__).with_name("data_juicer.yaml").read_text(encoding="utf-8"))
    recipe |= {"dataset_path": documents, "export_path": f"{out}/data/kept.jsonl", "work_dir": out, "np": 2, "use_cache": False}
    path = Path(out, "recipe.yaml")
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    DefaultExecutor(init_configs(["--config", str(path)])).run()


if __name__ == "__main__":
    common.main("py-data-juicer", job)
