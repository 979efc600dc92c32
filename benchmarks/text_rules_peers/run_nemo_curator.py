"""NeMo Curator's heuristics, those of its own configuration files, on each document: verdicts of each filter, and CPU seconds."""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import nemo_curator
import yaml


def filters(config: str) -> list:
    """The filters of a configuration file, in its order."""
    path = Path(nemo_curator.__file__).parent / "config" / "text" / config
    given = [stage["filter_obj"] for stage in yaml.safe_load(path.read_text())["stages"] if "filter_obj" in stage]
    made = []
    for one in given:
        module, name = one.pop("_target_").rsplit(".", 1)
        made.append(getattr(import_module(module), name)(**one))
    return made


def judge(text: str, judges: list, *, to_the_end: bool) -> list:
    """Of each filter whether the text stays and its score; None where it raises, as it does on texts without words or lines."""
    verdicts = []
    for each in judges:
        try:
            score = each.score_document(text)
            verdicts.append([bool(each.keep_document(score)), score])
        except (ZeroDivisionError, ValueError):
            verdicts.append(None)
        if not to_the_end and not (verdicts[-1] and verdicts[-1][0]):
            break
    return verdicts


def main() -> None:
    job = json.loads(sys.argv[2])
    texts = json.loads(Path(job["documents"]).read_text(encoding="utf-8"))
    judges = filters(job["config"])
    judge(texts[0], judges, to_the_end=True)
    began = time.process_time()
    verdicts = [judge(text, judges, to_the_end=True) for text in texts]
    all_filters = time.process_time() - began
    began = time.process_time()
    for text in texts:
        judge(text, judges, to_the_end=False)
    first_drop = time.process_time() - began
    names = [getattr(each, "_name", "") or type(each).__name__ for each in judges]
    Path(job["place"], "judge.json").write_text(json.dumps({
        "version": version("nemo-curator"), "filters": names, "verdicts": verdicts,
        "all_filters": all_filters, "to_first_drop": first_drop}), encoding="utf-8")


if __name__ == "__main__":
    main()
