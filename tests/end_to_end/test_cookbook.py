"""The cookbook: each of its recipes plans, and those that need no model and no network run on a few records."""

from __future__ import annotations

import json
import random
import re
import runpy
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from curator.front import load
from curator.pipeline.plan import make_plan
from curator.run.run import run
from packs.text.tests.test_pdf import BOOK

PAGE = (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (.+)\n(?:(?!## ).*\n)*?```yaml\n((?:.*\n)*?)```$", PAGE, re.MULTILINE))
GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund und läuft dann durch den dunklen Wald nach Hause. "
FRENCH = "Le petit chat noir dort sur le grand lit de la chambre pendant que la pluie tombe dans le jardin. "
# What is written of 40 English documents, one of them twice, one German and one French, and where it is more than one sink, by sink.
WRITTEN = {
    "Keep only German and French": 2, "A folder for each language": 43, "Take out what last month's set has": 41,
    "A crawl each month, without reading the old ones again": 42, "Take an evaluation set out": 41, "A rule of one's own": 41,
    "Find thresholds before anything goes": None, "One percent, always the same one": None, "Mix sources by weight": None,
    "The best of each site": 20, "Train and validation without leaks": 42, "New shards of another size": 43,
    "A folder of PDFs to JSON Lines": 1, "Mask personal data": 43, "A folder of photos without near copies": 2,
    "From a bucket to a bucket": 41,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """What the recipes read."""
    place, rng = tmp_path_factory.mktemp("cookbook"), random.Random(0)
    words = Path(random.__file__).read_text().split()
    texts = [" ".join(rng.choices([word for word in words if word.isalpha()], k=60)) for _ in range(40)]
    texts += [texts[0], GERMAN * 3, FRENCH * 3]
    rows = [{"id": f"d{n:02}", "text": text, "url": f"https://site{n % 10}.org/{n}", "quality": rng.random(),
             "kind": ("web", "books", "code")[n % 3]} for n, text in enumerate(texts)]
    rows[5]["text"] += " Write to joe@example.org now."
    asked = [{"question": " ".join(texts[7].split()[:20]), "answer": " ".join(texts[8].split()[9:30])}]
    for folder, chosen in {"docs": rows, "last_month": [rows[3] | {"id": "old"}], "benchmarks": asked}.items():
        (place / folder).mkdir()
        (place / folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    (place / "clean").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), place / "clean" / "a.parquet")
    (place / "pdfs").mkdir()
    (place / "pdfs" / "book.pdf").write_bytes(BOOK)
    (place / "photos").mkdir()
    for name, seed in (("a", 1), ("b", 2)):
        picture = Image.frombytes("RGB", (12, 12), random.Random(seed).randbytes(432)).resize((300, 300))
        picture.save(place / "photos" / f"{name}.png")
        if name == "a":
            picture.resize((200, 200)).save(place / "photos" / "copy.jpg")
    (place / "pairs.jsonl").write_text('{"url": "https://example.org/a.jpg", "caption": "a cat"}\n')
    (place / "speech.jsonl").write_text('{"audio_filepath": "a.wav", "duration": 1.0, "text": "so it is"}\n')
    (place / "films").mkdir()
    (place / "films" / "a.mp4").write_bytes(b"")
    return place


def test_there_are_twenty_and_what_is_run_is_among_them():
    assert len(RECIPES) > 20
    assert set(WRITTEN) <= set(RECIPES)


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_plans_and_runs(title, files, monkeypatch, tmp_path):
    monkeypatch.chdir(files)
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPES[title].replace("s3://my-bucket/", ""))
    pipeline = load(path, {"out": str(tmp_path / "out")})
    if title not in WRITTEN:
        assert len(make_plan(pipeline).steps) > 2
        return
    records = run(pipeline, workers=0).stats["records"]
    assert records["in"] > 0
    assert records["failed"] == 0
    assert WRITTEN[title] in (None, records["written"])


def test_the_stage_in_python_runs(files, monkeypatch):
    monkeypatch.chdir(files)
    (code,) = re.findall(r"^`my_stages.py`\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (files / "my_stages.py").write_text(code)
    found = runpy.run_path(str(files / "my_stages.py"), run_name="my_stages")
    assert found["pipeline"].run(workers=0).stats["records"]["written"] == 43
