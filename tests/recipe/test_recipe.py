"""Recipes: what they mean and what is wrong with them."""

import os
from pathlib import Path

import pytest

from curator.api.errors import RecipeError
from curator.api.resources import Resources
from curator.front import from_source, load
from curator.pipeline.graph import End
from curator.recipe import recipe_text
from curator.registry import packs
from tests.recipe.recipe_stages import DESIGN, Drop, Exact, Jsonl, Limit, Signals, ToParquet, flat, graph, problems, step, wrong

# -- what recipes mean -------------------------------------------------------------------------------------------


def test_the_recipe_of_the_design():
    pipeline = load(DESIGN)
    main, low = pipeline.sinks
    assert flat(pipeline) == ["warc", "language", "signals", "drop", "drop-2", "dedup.exact", "route", "to_parquet",
                              "shout", "low"]
    assert [(e.node.stage.name, e.port) for e in main.inputs] == [("route", "high")]
    assert [(e.node.stage.name, e.port) for e in low.inputs[0].node.inputs] == [("route", "low")]
    stages = {n.stage.name: n.stage for n in pipeline.nodes()}
    assert stages["language"].keep == ["en", "no"]  # Norwegian, not false
    assert stages["drop"] == Drop(rules="gopher")
    assert stages["drop-2"] == Drop(conditions={"too_short": "word_count < 50", "shouting": "upper_ratio > 0.3"})
    assert stages["shout"].arguments == {"column": "text"}
    assert (pipeline.name, pipeline.settings.max_failed) == ("web-text", 0.05)
    assert pipeline.settings.discard == ("duplicate", "dropped/drop-2")
    assert pipeline.ends == ()
    assert [n.place for n in pipeline.nodes()][1] == "recipe:5: steps[0].text.language"


def test_python_says_the_same():
    recipe = load("read: {jsonl: {path: x}}\nsteps: [text.signals, drop: {short: n < 3}]\nwrite: {parquet: {path: o}}\n")
    python = from_source(Jsonl(path="x")) >> Signals() >> Drop(conditions={"short": "n < 3"}) >> ToParquet(path="o")
    assert graph(recipe) == graph(python)


def test_sources_are_united_and_several_sinks_take_one_port():
    pipeline = load("""
read:
  - jsonl: {path: a}
  - text.warc: {path: b}
write: [parquet: {path: p}, jsonl: {path: j}, report: {path: r}]
""")
    assert flat(pipeline) == ["jsonl", "warc", "to_parquet", "to_jsonl", "report"]
    assert all(len(sink.inputs) == 2 for sink in pipeline.sinks)
    assert len({id(n) for n in pipeline.nodes()}) == 5


def test_labels_without_a_branch_stay_on_the_main_line():
    pipeline = load("""
read: {jsonl: {path: a}}
steps: [route: {a: x = 1, b: x = 2, c: x = 3}, text.signals]
write: {parquet: {path: p}}
branches: {b: {write: {parquet: {path: b}}}}
""")
    signals = pipeline.sinks[0].inputs[0].node
    assert [e.port for e in signals.inputs] == ["a", "c"]
    assert pipeline.sinks[1].inputs == (End(signals.inputs[0].node, "b"),)


def test_discarded_labels_leave_the_main_line():
    text = "read: {jsonl: {path: a}}\nsteps: [route: {a: x = 1, b: x = 2}]\nwrite: {parquet: {path: p}}\ndiscard: DIS\n"
    for discard in ("b", "[b]", "[b/route]"):
        assert [e.port for e in load(text.replace("DIS", discard)).sinks[0].inputs] == ["a"]


def test_what_was_dropped_is_rewritten_and_comes_back():
    pipeline = load("""
read: {jsonl: {path: a}}
steps:
  - drop: {short: n < 5}
    with: {name: length}
  - merge: [again]
  - dedup.exact
write: {parquet: {path: p}}
branches:
  again: {from: length.dropped, steps: [text.shout: {column: text}]}
  copies: {from: [dedup.exact.duplicate], write: {jsonl: {path: j}}}
""")
    exact = pipeline.sinks[0].inputs[0].node
    assert {(e.node.stage.name, e.port) for e in exact.inputs} == {("length", "out"), ("shout", "out")}
    assert [(e.node.stage.name, e.port) for e in exact.inputs[1].node.inputs] == [("length", "dropped")]
    assert [(e.node.stage.name, e.port) for e in pipeline.sinks[1].inputs] == [("dedup.exact", "duplicate")]


def test_branches_branch_merge_and_write():
    pipeline = load("""
read: {jsonl: {path: a}}
steps: [route: {a: x = 1, b: x = 2}, merge: [a, c]]
write: {parquet: {path: p}}
branches:
  a: {steps: [route: {c: y = 1, d: y = 2}, merge: d], write: {jsonl: {path: a}}}
  c: {steps: [text.signals]}
  d: {steps: [limit: 5]}
""")
    assert [(e.node.stage.name, e.port) for e in pipeline.sinks[0].inputs] == [
        ("route", "b"), ("limit", "out"), ("signals", "out")]
    assert [(e.node.stage.name, e.port) for e in pipeline.sinks[1].inputs] == [("limit", "out")]


def test_a_branch_may_have_its_own_source():
    pipeline = load("""
read: {jsonl: {path: a}}
steps: [merge: web]
write: {parquet: {path: p}}
branches:
  web: {read: {text.warc: {path: w}}, steps: [text.signals]}
""")
    assert [e.node.stage.name for e in pipeline.sinks[0].inputs] == ["jsonl", "signals"]


def test_ports_beside_out_go_to_the_branch_of_their_name():
    text = "read: {jsonl: {path: a}}\nsteps: [quality]\nwrite: {parquet: {path: p}}\n"
    pipeline = load(text + "branches: {poor: {write: {jsonl: {path: j}}}}\n")
    assert [s.inputs[0].port for s in pipeline.sinks] == ["out", "poor"]
    [problem] = problems(text)
    assert "the port 'poor' leads nowhere: add a branch 'poor', or discard poor/quality" in problem
    assert load(text + "discard: poor/quality\n").settings.discard == ("poor/quality",)


def test_drop_and_other_short_forms():
    assert step("drop: {rules: [a, b], short: n < 3}") == Drop(conditions={"short": "n < 3"}, rules=["a", "b"])
    assert step("drop: {conditions: {a: x}, b: y}") == Drop(conditions={"a": "x", "b": "y"})
    assert step("limit: 100") == Limit(rows=100)
    assert step("dedup.exact:") == Exact()
    assert step("drop: {never: false, 1: true}").conditions == {"never": "false", "1": "true"}
    assert "unknown parameter 'rule'; did you mean 'rules'?" in wrong("drop: {rule: gopher}")


def test_with_adjusts_a_step():
    made = step("text.language: {keep: [en]}\nwith: {name: lang, batch_size: 64, timeout_s: 3, resources: {gpus: 0.5}}")
    assert (made.name, made.batch_size, made.timeout_s) == ("lang", 64, 3.0)
    assert made.resources == Resources(cpus=2, memory_gb=1, gpus=0.5)
    assert step("text.language:\nwith: {batch_size: 8}").batch_size == 8


@pytest.mark.parametrize(("text", "said"), [
    ("{text.signals: , with: {batch_sise: 3}}", "steps[0].with.batch_sise: unknown key 'batch_sise'; did you mean batch_size?"),
    ("{text.signals: , with: {batch_size: 0}}", "with.batch_size: must be more than 0, got 0"),
    ("{text.signals: , with: {name: a/b}}", "with.name: names a folder"),
    ("{text.signals: , with: {resources: {gpus: -1}}}", "with.resources: Resources.gpus must be a number of 0 or more"),
    ("{text.signals: , with: 5}", "with: expected a mapping with name, batch_size"),
    ("{text.signals: {}, drop: {}}", "expected a name, or one name with its parameters; here are text.signals, drop"),
    ("{text.language: , keep: [en]}", "if keep are parameters of text.language, indent them below it"),
    ("5", "expected a name"),
    ("[a]", "expected a name"),
    ("jsonl: {path: x}", "'jsonl' is a source, not a stage; it belongs under read"),
    ("to_parquet: {path: x}", "'to_parquet' is a sink, not a stage; it belongs under write"),
    ("signals", "unknown stage 'signals'; did you mean text.signals?"),
    ("text.langauge", "did you mean text.language?"),
    ("nothing.alike", "unknown stage 'nothing.alike'; there are dedup.exact, drop"),
    ("text.language: {kep: [en]}", "steps[0].text.language.kep: unknown parameter 'kep'; did you mean 'keep'?"),
    ("text.language: {zzz: 1}", "unknown parameter 'zzz'; language has keep, threshold"),
    ("text.language: {threshold: 5}", "steps[0].text.language: threshold must be between 0 and 1, got 5.0"),
    ("text.language: {keep: en}", "keep: expected a list of texts or nothing, got the text 'en'"),
    ("limit", "steps[0].limit: the parameter 'rows' is missing; it is a whole number"),
    ("limit: '8'", "expected a whole number, got the text '8'; write it without quotes"),
    ("limit: 8.5", "expected a whole number, got 8.5"),
    ("limit: [8]", "expected a whole number, got a list"),
    ("limit: true", "expected a whole number, got true"),
    ("dedup.exact: 5", "there are no parameters here, got 5"),
    ("text.shout: {}", "the parameter 'column' is missing"),
    ("text.shout: {column: a, times: b}", "times: expected a whole number, got the text 'b'"),
    ("merge: {a: b}", "steps[0].merge: expected a text or a list of texts, got a mapping"),
])
def test_what_is_wrong_with_a_step_is_said_with_its_place(text, said):
    problem = wrong(text)
    assert said in problem
    assert problem.startswith("recipe:3: steps[0]")


@pytest.mark.parametrize(("text", "said"), [
    ("read: {jsonl: {path: x}}", "recipe:1: nothing is written; add, for example, write:"),
    ("write: {parquet: {path: x}}", "recipe:1: nothing is read; add, for example, read:"),
    ("reads: {jsonl: {path: x}}\nread: {jsonl: {path: x}}\nwrite: {parquet: {path: x}}",
     "recipe:1: reads: unknown key 'reads'; did you mean read"),
    ("read: {josnl: {path: x}}\nwrite: {parquet: {path: x}}",
     "recipe:1: read.josnl: unknown source 'josnl'; did you mean jsonl?"),
    ("read: {jsonl: {path: x}}\nwrite: {parket: {path: x}}",
     "recipe:2: write.parket: unknown sink 'parket'; did you mean parquet?"),
    ("read: {drop: {}}\nwrite: {parquet: {path: x}}", "read.drop: 'drop' is a stage, not a source; it belongs under steps"),
    ("read: {jsonl: {path: x}}\nwrite: {drop: {path: x}}", "'drop' is a stage, not a sink"),
    ("read: jsonl\nwrite: {parquet: {path: x}}", "read.jsonl: the parameter 'path' is missing; it is a text or a list of texts"),
    ("read: {jsonl: {path: x}}\nsteps: {drop: {}}\nwrite: {parquet: {path: x}}", "recipe:2: steps: expected a list"),
    ("read: {jsonl: {path: x}}\nwrite: {parquet: {path: x}}\nbranches: [a]", "branches: expected a mapping"),
    ("read: {jsonl: {path: x}}\nwrite: {parquet: {path: x}}\nbranches: {a: 5}", "branches.a: expected a mapping with from"),
    ("read: {jsonl: {path: x}}\nwrite: {parquet: {path: x}}\nname: [a]", "name: expected a text, got a list"),
    ("read: {jsonl: {path: x}}\nwrite: {parquet: {path: x}}\nread: {jsonl: {path: y}}",
     "recipe:3: 'read' is given twice here, first on line 1"),
    ("- a", "recipe:1: a recipe is a mapping with read, steps and write"),
    ("read: {jsonl: {path: x}}\n  steps: [", "recipe:2: this is not YAML"),
    ("read: &x {jsonl: {path: x}}\nwrite: *x", "recipe:1: recipes have no anchors and aliases"),
    ("read: {jsonl: {path: !!str x}}\nwrite: 3", "recipe:1: recipes have no tags"),
    ("a: 1\n---\nb: 2", "second document"),
    ("", "the recipe is empty"),
    ("a: " + "[" * 60 + "]" * 60, "recipe:1: more than 40 levels of nesting"),
    ("? [a]\n: b\n", "a name is expected before the colon"),
])
def test_what_is_wrong_with_a_recipe_is_said_with_its_place(text, said):
    assert any(said in problem for problem in problems(text + "\n"))


ROUTED = "read: {jsonl: {path: x}}\nsteps: [route: {a: x, b: y}]\nwrite: {parquet: {path: p}}\nbranches:\n"


@pytest.mark.parametrize(("text", "said"), [
    (ROUTED + "  c: {write: {jsonl: {path: j}}}", "recipe:5: branches.c: nothing feeds this branch: no stage has a port 'c'"),
    (ROUTED + "  bb: {write: {jsonl: {path: j}}}", "did you mean 'b'?"),
    (ROUTED + "  b: {steps: [text.signals]}", "recipe:5: branches.b: branch 'b' leads nowhere (signals.out): give it a write"),
    (ROUTED + "  b: {}", "recipe:5: branches.b: branch 'b' leads nowhere (route.b): give it a write"),
    ("read: {jsonl: {path: x}}\nsteps: [route: {a: x, b: y}]\nbranches: {b: {write: {jsonl: {path: j}}}}",
     "recipe:1: the main line leads nowhere (route.a): give it a write"),
    (ROUTED + "  a: {write: {jsonl: {path: j}}}\n  b: {write: {jsonl: {path: k}}}",
     "recipe:3: write.parquet: no row is left for this sink"),
    (ROUTED.replace("y}]", "y}, text.signals]") + "  a: {write: {jsonl: {path: j}}}\n  b: {write: {jsonl: {path: k}}}",
     "steps[1].text.signals: no row reaches this step"),
    (ROUTED.replace("y}]", "y}, merge: [b, b]]") + "  b: {steps: []}", None),
    (ROUTED.replace("y}]", "y}, merge: b, merge: b]") + "  b: {steps: []}",
     "branch 'b' is merged twice, first at recipe:2: steps[1]"),
    (ROUTED.replace("y}]", "y}, merge: [c]]") + "  b: {write: {jsonl: {path: j}}}", "there is no branch 'c'"),
    (ROUTED.replace("[route", "[merge: b, route") + "  b: {}", "recipe:2: steps[0].merge: a cycle: branch 'b' is merged here"),
    (ROUTED + "  b: {steps: [merge: b], write: {jsonl: {path: j}}}", "a cycle"),
    (ROUTED + "  b: {from: signals.dropped, steps: [text.signals], write: {jsonl: {path: j}}}",
     "recipe:5: branches.b: a cycle: branch 'b' starts from signals.dropped, which comes after"),
    (ROUTED + "  b: {from: rout.dropped, write: {jsonl: {path: j}}}",
     "branches.b.from: no step is named 'rout'; did you mean route?"),
    (ROUTED + "  b: {from: route.c, write: {jsonl: {path: j}}}",
     "'route' has no port 'c'; it has a, b, dropped, duplicate, failed"),
    (ROUTED + "  b: {from: to_parquet.out, write: {jsonl: {path: j}}}", "it is a sink, and nothing comes out of it"),
    (ROUTED + "  b: {from: route, write: {jsonl: {path: j}}}", "write stage.port, for example route.dropped"),
    (ROUTED + "  b: {from: {a: b}, write: {jsonl: {path: j}}}", "branches.b.from: expected a text or a list of texts"),
    (ROUTED.replace("[route", "[route: {b: z, c: z}, route") + "  b: {write: {jsonl: {path: j}}}",
     "2 stages have a port 'b' (route, route-2); say which one, from: stage.b"),
    (ROUTED.replace("[", "[drop, drop, ") + "  c: {from: drop.dropped, write: {jsonl: {path: j}}}",
     "2 steps are 'drop'; name the one"),
    (ROUTED + "  b: {write: {jsonl: {path: j}}}\ndiscard: [failed]", "failed records are always kept"),
    (ROUTED + "  b: {write: {jsonl: {path: j}}}\ndiscard: [droped]", "no stage has a port 'droped'; did you mean 'dropped'?"),
    (ROUTED + "  b: {write: {jsonl: {path: j}}}\ndiscard: [dropped/rute]", "no step is named 'rute'; did you mean route?"),
    (ROUTED + "  b: {write: {jsonl: {path: j}, with: {name: route}}}", None),
    ("read: {jsonl: {path: x}, with: {name: a}}\nwrite: {parquet: {path: p}, with: {name: a}}", "two steps are named 'a'"),
])
def test_what_is_wrong_with_the_graph(text, said):
    if said is None:
        load(text + "\n")
    else:
        assert any(said in problem for problem in problems(text + "\n")), problems(text + "\n")


def test_all_problems_are_told_at_once_in_order(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("""\
read: {josnl: {path: x}}
steps:
  - text.language: {keep: en, threshold: '1'}
  - drpo
  - merge: [gone]
write: {parquet: {}}
maxfailed: 3
seed: x
""")
    with pytest.raises(RecipeError) as caught:
        load(file)
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0].removeprefix(f"{file}:") for line in lines] == ["1", "3", "3", "4", "5", "6", "7", "8"]


# -- names and files -----------------------------------------------------------------------------------------------


def test_recipes_are_files_or_packaged(tmp_path):
    folder = tmp_path / "text" / "recipes"
    folder.mkdir(parents=True)
    (folder / "web.yaml").write_text("read: {jsonl: {path: x}}\nwrite: {parquet: {path: o}}\n")
    assert load("text/web").name == "web"
    assert load(str(folder / "web.yaml")).name == load(folder / "web.yaml").name == "web"
    assert recipe_text("text/web").startswith("read:")
    with pytest.raises(RecipeError, match=r"unknown recipe 'text/wbe'; did you mean text/web\?"):
        load("text/wbe")
    with pytest.raises(RecipeError, match=r"wbe\.yaml: there is no such file; did you mean web\.yaml?"):
        load(folder / "wbe.yaml")
    import fsspec

    fsspec.filesystem("memory").pipe_file("/recipes/far.yaml", (folder / "web.yaml").read_bytes())
    assert load("memory://recipes/far.yaml").name == "far"
    with pytest.raises(RecipeError, match="cannot be read"):
        load("memory://recipes/none.yaml")
    with pytest.raises(RecipeError, match="cannot be read"):
        load(Path(str(folder)))
    (folder / "latin.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(RecipeError, match="byte 6 is not UTF-8"):
        load("text/latin")


@pytest.mark.parametrize("name", ["recipe.yaml", "recipe"])
def test_a_pipe_is_no_recipe(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(RecipeError, match=rf"{name} is a pipe, .* write it into a file"):
        load(str(tmp_path / name))


# -- settings --------------------------------------------------------------------------------------------------------


SHORT = "read: {jsonl: {path: x}}\nwrite: {parquet: {path: o}}\n"


@pytest.mark.parametrize(("text", "value"), [
    ("5%", 0.05), ("0.5 %", 0.005), ("10", 10), ("0", 0), ("0.2", 0.2), ("100%", float("inf")), (".inf", float("inf")),
    ("'5%'", 0.05), ("1e3", 1000), ("1", 1), ("1.0", float("inf")), ("1e0", float("inf")), ("0.999", 0.999), ("1%", 0.01),
])
def test_max_failed(text, value):
    assert load(f"{SHORT}max_failed: {text}\n").settings.max_failed == value


@pytest.mark.parametrize("text", ["-1", "1.5", "101%", "x", "true", "[1]", "null", ".nan", "'%'", "''"])
def test_max_failed_nonsense(text):
    assert "max_failed: expected a count" in problems(f"{SHORT}max_failed: {text}\n")[0]


def test_discard_and_seed():
    text = "read: {jsonl: {path: x}}\nsteps: [sample, sample: {seed: 1}]\nwrite: {parquet: {path: o}}\n"
    assert load(text + "discard: true\n").settings.discard == ("dropped", "duplicate")
    assert load(text + "discard: false\n").settings.discard == ()
    assert load(text + "discard: dropped\n").settings.discard == ("dropped",)
    assert [n.stage.seed for n in load(text + "seed: 9\n").nodes()[1:3]] == [9, 1]
    assert [n.stage.seed for n in load(text).nodes()[1:3]] == [0, 1]


def test_a_pack_that_cannot_be_imported_is_a_problem_of_its_steps_only(monkeypatch, tmp_path):
    (tmp_path / "broken_pack_of_recipes.py").write_text("import a_library_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = packs.Pack("image", "broken_pack_of_recipes", "d-image", "2")
    claims = (*packs.claims(), broken)
    monkeypatch.setattr(packs, "claims", lambda: claims)
    text = "read: {jsonl: {path: x}}\nsteps: [text.signals, image.resize]\nwrite: {parquet: {path: o}}\n"
    [problem] = problems(text)
    assert problem.startswith("recipe:2: steps[1].image.resize: pack 'image' (d-image 2) cannot be used")
    assert "a_library_nobody_has" in problem
    assert flat(load(text.replace(", image.resize", ""))) == ["jsonl", "signals", "to_parquet"]
