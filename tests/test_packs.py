"""Packs: names, clashes, broken packs, recipes and rule sets, did-you-mean."""

import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

import curator
from curator.api.errors import PackError, RecipeError
from curator.api.stage import Sink, Source, Stage, stage
from curator.registry import packs
from curator.stages.late import attributes


@dataclass(kw_only=True)
class Signals(Stage):
    """Statistics of a text."""


@dataclass(kw_only=True)
class Drop(Stage):
    """Drops."""


@dataclass(kw_only=True)
class Exact(Stage):
    """Drops copies."""

    name = "dedup.exact"


@dataclass(kw_only=True)
class Jsonl(Source):
    path: str


@dataclass(kw_only=True)
class ToJsonl(Sink):
    path: str


@stage
def shout(batch):
    """Upper case."""
    return batch


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Install packs: `install(text=(Signals,))`, or several claims of one name with `("text", "dist", (…))`."""
    claims = []
    monkeypatch.setattr(packs, "claims", lambda: tuple(claims))

    def add(name, stages=(), *, distribution=None, error=None):
        folder = tmp_path / f"fake_{name}_{len(claims)}"
        folder.mkdir()
        module = folder.name
        if error is None:
            (folder / "__init__.py").write_text("STAGES = ()\n")
            loaded = ModuleType(module)
            loaded.STAGES = stages
            loaded.__spec__ = ModuleSpec(module, None, is_package=True)
            loaded.__path__ = loaded.__spec__.submodule_search_locations = [str(folder)]
            monkeypatch.setitem(sys.modules, module, loaded)
        else:
            (folder / "__init__.py").write_text(error)
            monkeypatch.syspath_prepend(str(tmp_path))
        claims.append(packs.Pack(name, module, distribution or f"curator-{name}", "1.2"))
        return folder

    return add


def test_core_names_are_bare_and_pack_names_have_their_pack_in_front(install):
    install("core", (Drop, Exact, Jsonl, ToJsonl))
    install("text", (Signals, shout))
    assert packs.stage_class("drop") is Drop
    assert packs.stage_class("dedup.exact") is Exact
    assert packs.stage_class("text.signals") is Signals
    assert packs.stage_class("text.shout") is shout
    assert list(packs.all_stages()) == ["drop", "dedup.exact", "jsonl", "to_jsonl", "text.signals", "text.shout"]
    assert [packs.kind_of(f) for f in (Jsonl, ToJsonl, Drop, shout)] == ["source", "sink", "stage", "stage"]


def test_the_real_packs_are_found():
    names = {p.name: p for p in packs.installed()}
    assert packs.installed()[0].name == "core"
    assert names["core"].distribution == "curator-core"
    assert names["core"].error is None


def test_only_the_pack_of_a_name_is_imported(install):
    install("core", (Drop,))
    install("text", (Signals,))
    install("image", error="raise SystemExit('imported')")
    assert packs.stage_class("text.signals") is Signals
    assert packs.stage_class("drop") is Drop
    assert [p.name for p in packs.installed()] == ["core", "image", "text"]


@pytest.mark.parametrize(("name", "near"), [
    ("drpo", "drop"), ("signals", "text.signals"), ("text.signal", "text.signals"), ("txt.signals", "text.signals"),
    ("image.signals", "text.signals"), ("text.drop", "drop"), ("Drop", "drop"), ("near", None), ("sig", "text.signals"),
])
def test_an_unknown_name_is_answered_with_the_nearest(install, name, near):
    install("core", (Drop, Exact))
    install("text", (Signals,))
    with pytest.raises(RecipeError) as caught:
        packs.stage_class(name)
    expected = f"did you mean {near}" if near else "there are dedup.exact, drop, text.signals"
    assert repr(name) in str(caught.value)
    assert expected in str(caught.value)


NAMED = """
from dataclasses import dataclass
from curator import Stage

@dataclass(kw_only=True)
class Late(Stage):
    \"\"\"Comes late.\"\"\"

Again = Late
"""


@pytest.fixture
def named(install, monkeypatch, tmp_path):
    """A pack `text` with these STAGES, each of which is imported alone: `late.py` is well, `bad.py` is not."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(**stages):
        folder = install("text", {name: place.format(f"fake_text_{len(packs.claims())}") for name, place in stages.items()})
        (folder / "late.py").write_text(NAMED)
        (folder / "bad.py").write_text("import a_library_nobody_has")
        return folder.name

    return add


def test_a_stage_that_is_only_named_is_imported_alone_when_it_is_asked_for(named, install):
    install("core", (Drop,))
    module = named(bad="{0}.bad:Bad", late="{0}.late:Late")
    assert "text.late" in packs.installed()[1].stages()
    assert f"{module}.late" not in sys.modules
    made = packs.stage_class("text.late")
    assert (made.__module__, packs.name_of(made())) == (f"{module}.late", "text.late")
    with pytest.raises(PackError, match=r"curator-text 1\.2.*a_library_nobody_has.*pip install .*curator-text"):
        packs.stage_class("text.bad")
    assert "a_library_nobody_has" in packs.installed()[1].error  # for `curator doctor`
    get, names = attributes(module, {"bad": f"{module}.bad:Bad", "late": f"{module}.late:Late"})
    assert get("Late") is made
    assert names() == ["STAGES", "Bad", "Late"]
    assert get("__all__") == ["Bad", "Late"]  # of `from pack import *`
    with pytest.raises(AttributeError, match=rf"module '{module}' has no attribute 'Lat'"):
        get("Lat")


@pytest.mark.parametrize(("name", "place", "told"), [
    ("later", "{0}.late:Late", r"STAGES says that 'text.later' is at .*and there is 'text.late' of .*late:Late"),
    ("late", "{0}.late:Again", r"there is 'text.late' of 'fake_text_\d.late:Late'"),
    ("late", "{0}.late:Lat", r"STAGES says that 'text.late' is at .*late:Lat', and there is nothing; correct its name or place"),
    ("late", "{0}.late", r"STAGES has 'late': 'fake_text_\d.late'; write .*:Tile"),
    ("late", "{0}.late:dataclass", r"STAGES is not a stage; name a class made from"),
    ("late", "{0}.lat:Late", r"No module named '\S+lat'; reinstall it with pip"),
])
def test_what_a_pack_names_wrongly_is_told(named, name, place, told):
    named(**{name: place})
    with pytest.raises(PackError, match=told):
        packs.find_stage(f"text.{name}")


def test_a_stage_that_is_named_like_its_pack_has_a_bare_name(install):
    @dataclass(kw_only=True)
    class Shuffle(Stage):
        pass

    install("core", (Drop,))
    install("shuffle", (Shuffle, Signals, Exact))
    assert list(packs.all_stages()) == ["drop", "shuffle", "shuffle.signals", "shuffle.dedup.exact"]
    assert packs.stage_class("shuffle") is Shuffle
    assert packs.stage_class("shuffle.signals") is Signals


def test_a_pack_that_is_missing_is_named_with_the_command_that_brings_it(install, monkeypatch):
    install("core", (Drop,))
    with pytest.raises(RecipeError, match=r"no pack 'dedup' is installed: pip install curator-dedup"):
        packs.stage_class("dedup.near")
    install("text", (Signals,))
    monkeypatch.setattr(packs, "unmet", lambda name: {"": ["curator-dedup"]} if name == "curator-text" else {})
    for name in ("dedup.near", "decontaminate"):
        with pytest.raises(RecipeError, match=r"curator-text needs curator-dedup.*pip install curator-dedup"):
            packs.stage_class(name)


def test_a_broken_pack_harms_its_own_names_only(install):
    install("core", (Drop,))
    install("text", (Signals,))
    install("image", error="import a_library_nobody_has")
    assert packs.stage_class("text.signals") is Signals
    with pytest.raises(PackError, match=r"curator-image 1\.2.*a_library_nobody_has.*pip install --upgrade curator-image"):
        packs.stage_class("image.resize")
    with pytest.raises(RecipeError, match=r"did you mean text\.signals"):
        packs.stage_class("signal")
    assert list(packs.all_stages()) == ["drop", "text.signals"]
    assert [p.name for p in packs.installed() if p.error] == ["image"]


@pytest.mark.parametrize("error", ["raise SystemExit(3)", "1/0", "STAGES = 5", "x = 1", "STAGES = (int,)"])
def test_whatever_a_pack_does_at_import_is_a_pack_error_that_names_it(install, error):
    install("core", ())
    install("odd", error=error)
    with pytest.raises(PackError, match=r"pack 'odd'.*curator-odd"):
        packs.stage_class("odd.x")


def test_two_distributions_that_claim_one_pack_name_are_both_named(install):
    install("core", (Drop,))
    install("text", (Signals,), distribution="curator-text")
    install("text", (Signals,), distribution="other-text")
    with pytest.raises(PackError, match=r"'text'.*curator-text.*other-text"):
        packs.stage_class("text.signals")
    assert packs.stage_class("drop") is Drop
    assert sum(p.clash is not None for p in packs.installed()) == 2


def test_a_pack_that_claims_a_name_of_the_core_is_an_error_for_that_name(install):
    @dataclass(kw_only=True)
    class Other(Stage):
        name = "exact"

    install("core", (Exact, Drop))
    install("dedup", (Other,))
    with pytest.raises(PackError, match=r"dedup\.exact.*curator-core.*curator-dedup"):
        packs.stage_class("dedup.exact")
    assert packs.stage_class("drop") is Drop


def test_a_broken_pack_whose_name_begins_a_core_name_does_not_harm_it(install):
    install("core", (Exact,))
    install("dedup", error="1/0")
    assert packs.stage_class("dedup.exact") is Exact
    with pytest.raises(PackError):
        packs.stage_class("dedup.other")


def test_a_broken_core_does_not_harm_packs(install):
    install("core", error="1/0")
    install("text", (Signals,))
    assert packs.stage_class("text.signals") is Signals
    with pytest.raises(PackError, match="curator-core"):
        packs.stage_class("drop")


def test_two_stages_of_a_pack_with_one_name_are_both_named(install):
    @dataclass(kw_only=True)
    class Other(Stage):
        name = "signals"

    install("core", ())
    install("text", (Signals, Other))
    with pytest.raises(PackError, match=r"Signals.*Other"):
        packs.stage_class("text.signals")


def test_resources_are_found_with_and_without_their_pack(install):
    install("core", ())
    text, image = install("text", ()), install("image", ())
    broken = install("broken", error="1/0")
    for folder, name in ((text, "recipes/web"), (text, "rules/gopher"), (image, "rules/gopher"), (image, "rules/small"),
                         (broken, "recipes/x")):
        path = folder / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"name: {name}\n")
    assert packs.resource("recipes", "text/web").read_text() == "name: recipes/web\n"
    assert packs.resource("recipes", "web") == packs.resource("recipes", "text/web")
    assert packs.resource("rules", "small").parent.parent == image
    assert packs.resource("rules", "image/gopher").parent.parent == image
    with pytest.raises(RecipeError, match="write image/gopher or text/gopher"):
        packs.resource("rules", "gopher")
    with pytest.raises(RecipeError, match="unknown rule set 'gophr'; did you mean"):
        packs.resource("rules", "gophr")
    with pytest.raises(RecipeError, match="did you mean text/web"):
        packs.resource("recipes", "image/web")
    with pytest.raises(RecipeError, match="unknown recipe"):
        packs.resource("recipes", "text/../recipes/web")
    assert [r.name for r in packs.resources("rules")] == ["image/gopher", "image/small", "text/gopher"]
    assert packs.resource("recipes", "broken/x").is_file()  # looked up without importing the pack


def test_a_stage_tells_under_which_name_a_pack_offers_it(install, monkeypatch):
    install("core", (Drop,))
    install("text", (Signals, shout))
    monkeypatch.setattr(Signals, "__module__", "fake_text_1.signals")
    monkeypatch.setattr(shout.function, "__module__", "fake_text_1")
    assert packs.name_of(Signals()) == "text.signals"
    assert packs.name_of(shout(x=1)) == "text.shout"
    assert packs.name_of(Drop()) == "tests.test_packs:Drop"  # of no pack: by its module


# -- stages of no pack ------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    code = "from curator import stage\n@stage(needs={'text'}, adds={'loud': 'string'})\ndef shout(batch, mark='!'):\n" \
           "    return batch.with_columns({'loud': [text.upper() + mark for text in batch.column('text')]})\n"
    (tmp_path / "own_of_a_folder.py").write_text(code)
    (tmp_path / "own_and_broken.py").write_text("x = 1\nraise ValueError('half done')\n")
    (tmp_path / "in.jsonl").write_text('{"text": "hear"}\n')
    yield tmp_path
    for module in [m for m in sys.modules if m.startswith("own_")]:
        del sys.modules[module]


def test_a_recipe_has_stages_of_modules_where_the_command_is_given(own):
    recipe = "name: r\nread: {jsonl: {path: in.jsonl}}\nsteps: [own_of_a_folder:shout: {mark: '?'}]\nwrite: jsonl\n"
    pipeline = curator.load(recipe)
    result = pipeline.run(out="out", workers=1)
    assert [row["loud"] for row in curator.read(f"{result.out}/data/*", format="jsonl").collect().to_pylist()] == ["HEAR?"]
    assert "does not load" not in (own / "out/_run/recipe.yaml").read_text()
    assert "own_of_a_folder:shout" in pipeline.to_yaml()
    assert curator.load(pipeline.to_yaml()).to_yaml() == pipeline.to_yaml()


@pytest.mark.parametrize(("name", "why"), [
    ("own_of_nobody:shout", "there is no module 'own_of_nobody', installed or in "),
    ("own_of_a_folder:shoot", "is not there; name a class"),
    ("own_of_a_folder:stage", "is no stage; name a class"),
    ("own_and_broken:shout", "ValueError: half done at .*own_and_broken.py:2"),
    (":shout", "cannot be imported"),
])
def test_a_module_that_has_no_such_stage_is_told(own, name, why):
    with pytest.raises(RecipeError, match=why):
        curator.load(f"name: r\nread: {{jsonl: {{path: in.jsonl}}}}\nsteps: ['{name}']\nwrite: jsonl\n")
