"""The recipes that distil judgements into a classifier, run as a user runs them."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from curator.cli.main import main
from packs.image.tests.chat_server import Model, completion

TEACHES = ["theorem", "proof", "lesson", "explains", "theory", "energy", "planet", "history", "science", "experiment", "equation", "cell"]
SELLS = ["buy", "cheap", "offer", "shop", "price", "sale", "discount", "click", "deal", "order", "shipping", "bonus"]


def documents(n=160):
    """English texts, the later words of which teach or sell; and how much they teach, 0 to 5."""
    random_, rows = random.Random(4), []
    for number in range(n):
        share = random_.random()
        words = [random_.choice(TEACHES if random_.random() < share else SELLS) for _ in range(40)]
        text = "This is the story that they have told us of the old town and of what was in it. " + " ".join(words) + "."
        rows.append({"id": f"d{number:03}", "source": "s", "text": text, "worth": round(5 * share, 1)})
    return rows


def run(recipe, tmp_path, **settings):
    words = ["run", recipe, "--workers", "0", "--out", str(tmp_path / "out")]
    for name, value in settings.items():
        words += ["--set", f"{name.replace('__', '.')}={value}"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    parts = {}
    for name in ("data", "dropped", "failed"):
        tables = [pq.read_table(file) for file in sorted((tmp_path / "out" / name).rglob("*.parquet"))]
        parts[name] = pa.concat_tables(tables, promote_options="permissive").to_pylist() if tables else []
    return parts, told.output


def test_a_language_model_judges_a_sample_and_a_classifier_learns_to_judge_all(tmp_path):
    rows, server, asked = documents(), Model(), []
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({name: row[name] for name in ("id", "text")}) + "\n" for row in rows))

    def answer(question):
        text = question["messages"][-1]["content"]
        asked.append(text)
        worth = round(5 * sum(word in text for word in TEACHES) / (1 + sum(word in text for word in [*TEACHES, *SELLS])))
        return completion("I would rather not." if len(asked) == 3 else f"It teaches.\nScore: {worth}")

    server.answer = answer
    try:
        found, output = run("text/distil", tmp_path, read__path=tmp_path / "docs.jsonl", branches__sampled__steps__judge__url=server.url,
                            branches__sampled__steps__judge__cache=tmp_path / "answers", steps__train__save=tmp_path / "model",
                            steps__split__shares="{sampled: 0.4, others: 0.6}")
    finally:
        server.close()
    assert sorted(row["id"] for row in found["data"] + found["dropped"]) == [row["id"] for row in rows]
    assert not found["failed"]
    judged = [row for row in found["data"] + found["dropped"] if row["edu_score"] is not None]
    assert len(judged) == len(asked) - 1 < len(rows) / 2
    says = json.loads((tmp_path / "model/classifier.json").read_text())
    assert says["data"]["annotated"] == len(judged)
    assert f"trained on {says['data']['trained']} records; on {says['data']['held_out']} others rmse" in " ".join(output.split())
    worth = {row["id"]: row["worth"] for row in rows}
    mean = {part: sum(worth[row["id"]] for row in found[part]) / len(found[part]) for part in ("data", "dropped")}
    assert mean["data"] > mean["dropped"] + 1
    assert all(row["predicted_score"] is not None for row in found["data"])


def test_judgements_of_a_column_are_distilled_without_a_server(tmp_path):
    rows = documents()
    table = pa.Table.from_pylist([row | {"worth": row["worth"] if number % 2 else None} for number, row in enumerate(rows)])
    pq.write_table(table, tmp_path / "docs.parquet")
    found, _ = run("text/distil-annotated", tmp_path, read__path=tmp_path / "docs.parquet", steps__train__label="worth",
                   steps__train__save=tmp_path / "model")
    assert sorted(row["id"] for row in found["data"] + found["dropped"]) == [row["id"] for row in rows]
    assert 20 <= len(found["dropped"]) <= 40
    worth = {row["id"]: row["worth"] for row in rows}
    assert max(worth[row["id"]] for row in found["dropped"]) < sorted(worth.values())[110]
    assert json.loads((tmp_path / "model/classifier.json").read_text())["metrics"]["spearman"] > 0.7
