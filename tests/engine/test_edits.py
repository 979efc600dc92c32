"""What `curator plan` and a run say of an edit before it: what is done again, why, and what goes."""

from dataclasses import dataclass, replace

import pytest

from curator import CuratorError, Stage, stage
from curator.pipeline.graph import Graph
from curator.pipeline.plan import make_plan
from curator.stages import Checkpoint
from curator.trial.explain import explain
from tests.engine.reductions import CountText
from tests.engine.small_stages import DropWord, JsonFiles, Shout, lines, write_lines


@dataclass(kw_only=True)
class Versioned(Stage):
    word: str = "x"
    secret_key: str = ""

    def process(self, batch):
        return batch


def own(said: str):
    @stage
    def own(batch):
        return batch.with_columns({"said": [said] * len(batch)})

    return own


@pytest.fixture
def texts(tmp_path):
    return write_lines(tmp_path / "in", a=["one", "two bad"], b=["three"])


def pipeline(texts, out, *between, word="bad", suffix="") -> Graph:
    made = lines(texts) >> DropWord(word=word)
    for step in between:
        made = made >> step
    return (made >> Shout(suffix=suffix) >> JsonFiles()).named("x", out=str(out))


def said(made) -> list[str]:
    """What the plan says of the results that are there."""
    text = explain(make_plan(made)).splitlines()
    start = next(i for i, line in enumerate(text) if " has results of this recipe" in line)
    return text[start:]


def untouched(out):
    return {str(p): p.stat().st_mtime_ns for p in out.rglob("*")}


def test_it_says_what_changed_what_is_done_again_what_not_and_what_goes(tmp_path, texts):
    out = tmp_path / "out"
    made = pipeline(texts, out, Checkpoint())
    assert "results" not in explain(make_plan(made))
    assert not out.exists()
    made.run(workers=0)
    before = untouched(out)
    assert said(made)[:2] == [f"{out} has results of this recipe: 2 of 2 units done as it says now",
                              said(made)[-1]]
    assert said(made)[-1].startswith(f"{out}/_run/checkpoint holds ")
    edited = pipeline(texts, out, Checkpoint(), suffix="!")
    told = said(edited)
    kept = sum(p.stat().st_size for p in (out / "_run/checkpoint").rglob("part-*"))
    assert told[0].endswith("0 of 2 units done as it says now")
    assert told[1:4] == ["edited: shout (suffix: !, was )",
                         "done again from the checkpoint behind drop_word on: shout, json_files (2 units, 2 records, "
                         f"{kept / 1000:.1f} kB)", "not again: lines, drop_word"]
    assert told[4].startswith("removed first: 2 files with 2 rows (data 2), ")
    with pytest.raises(CuratorError) as asked:
        edited.run(workers=0)
    assert all(line.partition(": ")[2].split(", ")[0] in str(asked.value) for line in told[1:3])
    assert told[4].partition(": ")[2] in str(asked.value)
    assert untouched(out).items() >= {k: v for k, v in before.items() if "/_run" not in k}.items()
    gone = said(pipeline(texts, out))
    assert gone[-1].endswith("which a run removes: the recipe has no checkpoint")


@pytest.mark.parametrize(("was", "now", "why"), [
    ((Versioned(),), (Versioned(word="y"),), "versioned (word: y, was x)"),
    ((Versioned(),), (Versioned(),), "versioned (version 2 of its code, was 1)"),
    ((own("a"),), (own("b"),), "own (its code)"),
    ((), (Versioned(),), "versioned (new)"),
    ((Versioned(),), (), "without versioned"),
    ((CountText(),), (CountText(add=1),), "count_text (add: 1, was 0)"),
], ids=["a parameter", "a version", "code", "a new step", "a step less", "behind a barrier"])
def test_it_says_why(tmp_path, texts, monkeypatch, was, now, why):
    out = tmp_path / "out"
    pipeline(texts, out, *was).run(workers=0)
    if "version 2" in why:
        monkeypatch.setattr(Versioned, "version", 2)
    told = said(pipeline(texts, out, *now))
    assert told[1] == f"edited: {why}"


def test_new_changed_and_vanished_inputs_are_no_edit(tmp_path, texts):
    out = tmp_path / "out"
    pipeline(texts, out, CountText()).run(workers=0)
    write_lines(texts, c=["four"], b=["other", "words"])
    told = said(pipeline(texts, out, CountText()))
    assert told[0].endswith("1 of 3 units done as it says now")
    assert told[1].startswith("new or changed inputs: 2 units, ")
    assert not any(line.startswith("edited") for line in told)
    (texts / "a.txt").unlink()
    assert any("no longer reads" in line and line.endswith("--prune removes them") for line in said(pipeline(texts, out, CountText())))


def test_an_edit_before_a_barrier_names_all_behind_it_and_one_behind_it_nothing_before(tmp_path, texts):
    out = tmp_path / "out"
    pipeline(texts, out, CountText()).run(workers=0)
    told = said(pipeline(texts, out, CountText(), word="x"))
    assert told[1] == "edited: drop_word (word: x, was bad)"
    assert told[2].startswith("done again, as no checkpoint lies before the edit: lines, drop_word, count_text, shout, "
                              "json_files (2 units, 3 records")
    told = said(pipeline(texts, out, CountText(add=5)))
    assert told[3] == "not again: lines, drop_word"


def test_secrets_do_not_stand_in_the_manifest(tmp_path, texts):
    out = tmp_path / "out"
    made = pipeline(texts, out)
    sink = made.sinks[0]
    hidden = replace(made, sinks=(replace(sink, stage=JsonFiles(storage_options={"secret": "abc123"})),))
    hidden.run(workers=0)
    assert "abc123" not in (out / "_run/manifest.json").read_text()
