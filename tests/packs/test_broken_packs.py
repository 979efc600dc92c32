"""Broken packs beside good ones: the good ones work, and `curator doctor` tells of each broken one why and what to do."""

import json

import pytest

RECIPE = """
name: loud
description: Texts in capitals.
read: {jsonl: {path: in.jsonl}}
steps: [loud.shout]
write: {jsonl: {path: out/, compression: none}}
"""
RULES = "name: short\ndescription: What is short.\nrules: [{reason: short, when: length(text) < 3}]\n"
IMPORTED = "import pathlib; pathlib.Path(__file__).with_name('imported').touch()\n"


@pytest.fixture(scope="module")
def site(site_of_others):
    """One good pack, and every way to be broken that we know of."""
    install, stage = site_of_others.install, site_of_others.stage
    install("loud", files={"recipes/loud.yaml": RECIPE, "rules/short.yaml": RULES})
    install("raises", IMPORTED + "import nothing_like_it_is_there\n", files={"rules/fine.yaml": RULES})
    install("divides", "1 / 0\n")
    install("syntax", "import json\nx = (\n")
    install("library", "import json\n\njson.loads('{')\n")
    install("stale", "from curator.api import NothingOfTheKind\n")
    install("exits", "raise SystemExit('no licence')\n")
    install("undeclared", "import a_library_nobody_has\n")
    install("declared", "import a_library_nobody_has\n", requires=["numpy>=2", "a-library-nobody-has (>=1)", "x; extra == 'dev'"])
    install("extra", "import a_library_nobody_has\n", requires=["a-library-nobody-has>=2; extra == 'models'"])
    install("lacking", IMPORTED + stage, requires=["no-library>=2; extra == 'models'", "winlib; sys_platform == 'win32'"])
    install("empty", "")
    install("comma", stage.replace("(Shout,)", "(Shout)"))
    install("number", stage.replace("(Shout,)", "(Shout, 5)"))
    install("nameless", stage.replace("STAGES", "Shout.name = 5\nSTAGES"))
    install("plain", stage.replace("@dataclass(kw_only=True)\n", ""))
    install("untyped", stage.replace("mark: str", "mark"))
    install("moved", module="not a module")
    install("inside", stage, module="stranger_outside.inside", files={"recipes/inner.yaml": RECIPE})
    (site_of_others.folder / "stranger_outside" / "__init__.py").write_text("1 / 0\n")
    no_sql = RULES.replace("length(text)", "length(text")
    install("written", files={"recipes/notyaml.yaml": "a: [\n", "recipes/good.yaml": RECIPE,
                              "recipes/unknown.yaml": RECIPE.replace("loud.shout", "loud.shuot"), "rules/nosql.yaml": no_sql})
    contrary = RECIPE.replace("loud.shout", "contrary.shout").replace("jsonl: {path: in.jsonl}", "text.files: in/")
    install("contrary", stage.replace("return Contract", "1 / 0; Contract"), files={"recipes/contrary.yaml": contrary})
    install("twice", module="stranger_one", distribution="curator-one")
    install("twice", module="stranger_two", distribution="curator-two")
    (site_of_others.folder / "in.jsonl").write_text(json.dumps({"id": "a", "text": "well"}) + "\n")
    return site_of_others


BROKEN = {
    "raises": "No module named 'nothing_like_it_is_there'",
    "divides": "ZeroDivisionError: division by zero; the error is in the pack's own code at",
    "syntax": "stranger_syntax/__init__.py:2; tell its author",
    "library": "stranger_library/__init__.py:3; tell its author",  # and not a line of json
    "stale": "stranger_stale/__init__.py:1; tell its author",
    "exits": "SystemExit: no licence",
    "undeclared": "it needs 'a_library_nobody_has', which is not installed: pip install --upgrade curator-undeclared; if that "
                  "does not bring it, its author forgot to require it",
    "declared": "it needs 'a_library_nobody_has', which is not installed: pip install a-library-nobody-has",
    "extra": "it needs 'a_library_nobody_has', which is not installed: pip install 'curator-extra[models]'",
    "empty": "the module stranger_empty has no STAGES; list all of its stages there: STAGES = (MyStage,)",
    "comma": "which is no tuple; list all of its stages there: STAGES = (MyStage,), with a comma also after a single one",
    "number": "5 in stranger_number.STAGES is not a stage; name a class made from Stage, Source or Sink, or a function under @stage",
    "nameless": "stranger_nameless.Shout has the name 5; a name is a text that is not empty",
    "moved": "its entry point names the module 'not a module'; reinstall curator-moved",
    "inside": "ZeroDivisionError",
    "twice": "two packs claim the name 'twice': curator-one 1.0 (stranger_one) and curator-two 1.0 (stranger_two); uninstall one",
}
FAULTY = {
    "written": ["recipe written/notyaml: ", "this is not YAML", "unknown stage 'loud.shuot'; did you mean loud.shout",
                "rule set written/nosql: "],
    "contrary": ["recipe contrary/contrary: ZeroDivisionError: division by zero"],
}


def told(words, text):
    """Whether a text stands in what a table has wrapped, folded or not."""
    return text.replace(" ", "") in words.replace(" ", "")


def test_doctor_says_which_are_broken_why_and_what_to_do(site):
    words = site.curator("doctor", code=1)
    for name, why in BROKEN.items():
        assert told(words, why), name
    for name, texts in FAULTY.items():
        assert told(words, f"{name} curator-{name} 1.0 faulty"), name
        for text in texts:
            assert told(words, text), text
    assert "loud curator-loud 1.0 ok 1 stage, 1 recipe, 1 rule set" in words
    assert "lacking curator-lacking 1.0 ok 1 stage" in words
    assert "lacking is without no-library: pip install 'curator-lacking[models]'" in words
    assert told(words, "written/good") is False
    assert "text curator-text" in words


@pytest.mark.parametrize(("command", "listed"), [
    ("stages", ["loud.shout stage The text in capitals.", "text.language stage", "lacking.shout"]),
    ("recipes", ["loud/loud Texts in capitals.", "written/good", "text/web", "written/notyaml cannot be read"]),
    ("rules", ["loud/short 1 What is short.", "raises/fine", "text/c4"])])
def test_the_others_are_listed(site, command, listed):
    words = site.curator(command)
    for text in listed:
        assert told(words, text), text


def test_the_others_run_and_only_what_is_named_is_imported(site):
    for marker in site.folder.glob("*/imported"):
        marker.unlink()
    site.curator("run", "loud/loud", "--workers", "0", "--quiet")
    assert [json.loads(line)["shout"] for f in (site.folder / "out" / "data").glob("*.jsonl") for line in f.open()] == ["WELL!"]
    site.curator("plan", "text/documents", "--set", "read={jsonl: {path: in.jsonl}}")
    assert list(site.folder.glob("*/imported")) == []


STEPS = {
    "raises.anything": "pack 'raises' (curator-raises 1.0) cannot be used",
    "twice.shout": "two packs claim the name 'twice'",
    "voice.pitch": "(no pack 'voice' is installed: pip install curator-voice",
    "plain.shout: {mark: x}": "unknown parameter 'mark'; Shout is no dataclass: write @dataclass(kw_only=True) above the class",
    "untyped.shout: {mark: x}": "unknown parameter 'mark'; Shout names it without a type: write mark: int = …, or what it is",
}


def test_a_recipe_that_names_broken_packs_or_stages_says_so_with_their_lines(site):
    steps = "".join(f"\n  - {step}" for step in STEPS)
    (site.folder / "mine.yaml").write_text(RECIPE.replace(" [loud.shout]", steps))
    words = site.curator("run", "mine.yaml", code=2)
    for number, (step, why) in enumerate(STEPS.items()):
        assert f"mine.yaml:{number + 6}: steps[{number}].{step.partition(':')[0]}" in words
        assert why in words


def test_a_column_that_is_missing_names_its_makers_whatever_strangers_raise(site):
    (site.folder / "missing.yaml").write_text(RECIPE.replace("[loud.shout]", "[{select: {drop: [shout]}}]"))
    words = site.curator("plan", "missing.yaml", code=2)
    assert "needs 'shout', which nothing before it makes;" in words
    assert "loud.shout" in words
    assert "Traceback" not in words


def test_a_column_that_nothing_makes_may_be_made_by_what_is_broken(site):
    (site.folder / "missing.yaml").write_text(RECIPE.replace("[loud.shout]", "[{select: {drop: [zzz]}}]"))
    words = site.curator("plan", "missing.yaml", code=2)
    assert "no pack that works adds it; " in words
    assert "raises, " in words
    assert "cannot be used: `curator doctor` says why" in words


def test_a_recipe_that_was_not_packaged(site):
    assert 'brings no recipes; if it should, its package-data in pyproject.toml lacks "recipes/*.yaml"' in site.curator(
        "run", "lacking/web", code=2)
