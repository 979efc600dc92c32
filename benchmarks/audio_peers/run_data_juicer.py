"""A job on data-juicer: its three operators that look at sound. The thresholds let everything through.

Its signal to noise ratio is that of two parts of the spectrogram by NMF, whichever of the two it calls the signal.
Recordings are named in a JSON Lines file, as it wants them.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import common

STEPS = [{"audio_size_filter": {"min_size": "1"}}, {"audio_duration_filter": {"min_duration": 0}},
         {"audio_nmf_snr_filter": {"min_snr": -1000}}]


def snr(job: common.Job) -> dict:
    import yaml
    from data_juicer.config import init_configs
    from data_juicer.core import DefaultExecutor

    place = Path(job.place)
    names = "".join(json.dumps({"text": "<__dj__audio>", "audios": [path]}) + "\n" for path in job.paths)
    place.joinpath("audios.jsonl").write_text(names, encoding="utf-8")
    recipe = {"project_name": "benchmark", "dataset_path": str(place / "audios.jsonl"), "export_path": str(place / "out.jsonl"),
              "np": job.workers, "use_cache": False, "open_tracer": False, "op_fusion": True, "process": STEPS,
              "work_dir": str(place), "skip_op_error": False, "keep_stats_in_res_ds": True}
    path = place / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    DefaultExecutor(init_configs(["--config", str(path)])).run()
    stats = [json.loads(line)["__dj__stats__"] for line in (place / "out.jsonl").open(encoding="utf-8")]
    return {"version": version("py-data-juicer"), "audio_s": sum(sum(one["audio_duration"]) for one in stats)}


if __name__ == "__main__":
    common.main({"snr": snr})
