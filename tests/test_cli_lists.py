"""`curator stages`, `recipes`, `rules` and `doctor`: what they tell of packs, good and broken."""

import re
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

from curator.api.errors import CuratorError, RecipeError
from curator.api.resources import Resources
from curator.api.stage import Contract, Sink, Source, Stage, stage
from curator.cli.lists import COMMANDS
from curator.cli.main import main
from curator.registry import packs


@dataclass(kw_only=True)
class Language(Stage):
    """Tell the language of a text, among a hundred and more languages, and send the others to dropped with a reason.

    Adds `language`.

    `keep`: codes to keep; the others are dropped. `threshold`: probability below
    which the language is unknown.

    `chunk`, `step`: characters that are looked at.
    """

    column: str = "text"  # where the text is
    keep: list[str] | None = None
    threshold: float = 0.5
    chunk: int
    step: int = 7

    resources = Resources(cpus=2, gpus=0.5)
    batch_size = 64
    version = 3

    def contract(self) -> Contract:
        return Contract(needs={self.column}, adds={"language": pa.string(), "pixels": None}, removes=["html"])


@dataclass(kw_only=True)
class Route(Stage):
    routes: dict[str, str]
    ports = ("high", "low")

    def contract(self):
        raise ValueError("wants real labels")


@dataclass(kw_only=True)
class Jsonl(Source):
    """Records of JSON lines."""

    path: str


@dataclass(kw_only=True)
class ToJsonl(Sink):
    """JSON lines."""

    path: str


@stage
def shout(batch, times: int = 2):
    """Upper case.

    `times`: how loud.
    """
    return batch


@pytest.fixture
def curator(monkeypatch, tmp_path):
    """Runs a command over two fake packs, `core` and `text`, and what `add` installs."""
    claims = []
    monkeypatch.setattr(packs, "claims", lambda: tuple(claims))
    commands = click.Group(commands={command.name: command for command in COMMANDS})

    def run(*args, code=0):
        result = CliRunner().invoke(commands, args)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code
        assert all(len(line) <= 80 and line == line.rstrip() for line in result.output.splitlines())
        return result.output

    def add(name, stages=(), error=None, files=None):
        folder = tmp_path / f"fake_lists_{name}"
        folder.mkdir()
        (folder / "__init__.py").write_text(error or "")
        for file, text in (files or {}).items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
        if error is None:
            module = ModuleType(folder.name)
            module.STAGES = stages
            module.__spec__ = SimpleNamespace(submodule_search_locations=[str(folder)], origin=None)
            monkeypatch.setitem(sys.modules, folder.name, module)
        monkeypatch.syspath_prepend(str(tmp_path))
        claims.append(packs.Pack(name, folder.name, f"d-{name}", "1.0"))

    add("core", (Jsonl, ToJsonl, Route))
    add("text", (Language, shout), files={
        "recipes/web.yaml": "name: web\ndescription: |\n  Good pages of the web.\n  More.\n"
                            "read: {jsonl: {path: i}}\nwrite: {jsonl: {path: o}}\n",
        "recipes/broken.yaml": "a: [\n",
        "rules/small.yaml": "name: small\ndescription: Short ones.\nsource: A paper, table 2\nrules:\n"
                            "  - {reason: short, when: words < 5, source: table 2}\n  - {reason: long, when: words > 9}\n"})
    run.add = add
    return run


def words(output: str) -> str:
    return " ".join(output.split())


def test_stages_are_listed_by_pack(curator):
    output = curator("stages")
    assert words(output).startswith("core (d-core 1.0) name kind what you get jsonl source Records of JSON lines. "
                                    "to_jsonl sink JSON lines. route stage text (d-text 1.0)")
    assert "text.language stage Tell the language of a text, among a hundred and more languages, and send" in words(output)
    assert "text.shout stage Upper case." in words(output)


def test_the_stages_of_one_pack(curator):
    output = curator("stages", "text")
    assert curator("stages", "text.") == output
    assert "text.shout" in output
    assert "jsonl" not in output


@pytest.mark.parametrize("name", ["text.language", "language"])
def test_a_stage_tells_all_about_itself(curator, name):
    output = words(curator("stages", name))
    assert output.count("which the language is unknown") == 1
    assert output.count("characters that are looked at") == 2
    for said in ("text.language (stage, version 3, ", "Tell the language of a text", 'column: str = \'text\' where the text is',
                 "keep: list[str] | None = None codes to keep; the others are dropped",
                 "threshold: float = 0.5 probability below which the language is unknown",
                 "chunk: int (required) characters that are looked at", "step: int = 7 characters that are looked at",
                 "needs text", "adds language (string), pixels", "removes html",
                 "resources cpus 2, gpus 0.5", "batch_size 64"):
        assert said in output


def test_a_stage_that_cannot_be_made_without_values_tells_the_rest(curator):
    output = words(curator("stages", "route"))
    assert "It has no description." in output
    assert "columns depend on the parameters ports high, low" in output


def test_functions_sources_and_sinks(curator):
    assert "times: int = 2 how loud" in words(curator("stages", "shout"))
    assert "jsonl (source, version 1" in curator("stages", "jsonl")
    assert "in recipes write: {jsonl: {…}} ports none" in words(curator("stages", "to_jsonl"))


def test_a_sink_is_found_by_what_recipes_call_it(curator):
    curator.add("other", (type("ToTiles", (ToJsonl,), {"name": "to_tiles", "__doc__": "Write tiles."}),))
    for name in ("other.tiles", "tiles", "other.to_tiles"):
        assert "in recipes write: {other.tiles: {…}}" in words(curator("stages", name))


def test_an_unknown_stage_is_answered_with_the_nearest(curator):
    with pytest.raises(RecipeError, match=r"did you mean text\.language"):
        curator("stages", "langage")


def test_the_version_names_the_core_and_every_pack_with_its_place(curator, tmp_path):
    curator.add("image", error="import a_library_nobody_has")
    told = CliRunner().invoke(main, ["--version"])
    assert told.exit_code == 0
    assert told.output.splitlines() == [f"d-{name} 1.0 ({tmp_path}/fake_lists_{name})" for name in ("core", "image", "text")]
    assert "fake_lists_image" not in sys.modules


def test_a_name_that_several_packs_have(curator):
    curator.add("other", (Language,))
    with pytest.raises(CuratorError, match=r"other\.language or text\.language"):
        curator("stages", "language")


def test_recipes_are_listed_and_printed(curator):
    output = words(curator("recipes"))
    assert "text/web Good pages of the web." in output
    assert "text/broken cannot be read" in output
    for name in ("text/web", "web"):
        assert curator("recipes", name).startswith("name: web\ndescription: |\n  Good pages")
    with pytest.raises(RecipeError, match="did you mean text/web"):
        curator("recipes", "wbe")


def test_rule_sets_are_listed_and_shown(curator):
    assert "text/small 2 Short ones." in words(curator("rules"))
    output = words(curator("rules", "small"))
    assert "text/small: Short ones. Source: A paper, table 2" in output
    assert "reason dropped when (source) short words < 5 (table 2) long words > 9" in output
    with pytest.raises(RecipeError, match="unknown rule set 'smal'; did you mean text/small"):
        curator("rules", "smal")


def test_doctor_says_that_all_is_well_and_what_is_not(curator, tmp_path):
    output = words(curator("doctor", code=1))
    assert "text d-text 1.0 faulty 2 stages, 2 recipes, 1 rule set" in output
    assert "recipe text/broken: " in output
    (tmp_path / "fake_lists_text" / "recipes" / "broken.yaml").unlink()
    output = words(curator("doctor"))
    assert "text d-text 1.0 ok 2 stages, 1 recipe, 1 rule set" in output
    for said in ("Python 3.", "cores", "memory", "free", "pyarrow", "GPUs"):
        assert said in output


def test_doctor_names_a_broken_pack_and_ends_with_1(curator):
    curator.add("image", error="import a_library_nobody_has")
    output = words(curator("doctor", code=1))
    assert "image d-image 1.0 broken" in output
    assert "a_library_nobody_has" in output
    assert "core d-core 1.0 ok" in output
    listed = words(curator("stages"))
    assert "image (d-image 1.0) pack 'image' (d-image 1.0) cannot be used" in listed
    assert "text.shout" in listed


@pytest.mark.parametrize("name", ["jsonl", "csv", "parquet", "to_jsonl", "to_csv", "to_parquet"])
def test_every_field_is_explained_also_those_of_a_base_class(name):
    result = CliRunner().invoke(click.Group(commands={c.name: c for c in COMMANDS}), ["stages", name])
    told = result.output.partition("parameters\n")[2].partition("\n\n")[0]
    fields = re.split(r"^  (?=\S)", told, flags=re.MULTILINE)[1:]
    assert len(fields) > 4
    for field in fields:
        assert re.search(r"(\(required\)|= (None|'.*'|\{\}|\d+))\n      \S", field), field


def test_the_real_installation_can_be_listed():
    main = click.Group(commands={command.name: command for command in COMMANDS})
    for command in ("stages", "recipes", "rules"):
        result = CliRunner().invoke(main, [command])
        assert result.exit_code == 0, result.output
    for name in packs.all_stages():
        result = CliRunner().invoke(main, ["stages", name])
        assert result.exit_code == 0, (name, result.exception)
