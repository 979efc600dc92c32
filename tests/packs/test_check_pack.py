"""`check_pack` passes a good pack, and tells the author of a broken one what to do."""

import importlib
import sys

import pyarrow as pa
import pytest

from curator.api.tasks import TextBatch
from curator.stages import Drop
from curator.testing import check_pack
from tests.packs.conftest import STAGE, Site

ROWS = TextBatch(pa.table({"id": ["a", "b", "c"], "source": ["s"] * 3, "text": ["x", None, "yy"], "more": [1, 2, 3]}))
RECIPE = """
name: loud
read: {jsonl: {path: in.jsonl}}
steps: [loud.shout]
write: {jsonl: {path: out/}}
"""
RULES = """
name: short
rules: [{reason: short, when: length(text) < 3}]
"""
MORE = """
class Other(Stage):
    '''Another.'''

    def process(self, batch):
        return batch

STAGES = (Shout, Other)
"""
FUNCTION = """
from curator import stage

MARK = "?"

def twice(text):
    return (text or "") * 2 + MARK

@stage(needs={"text"}, adds={"echo": pa.string()})
def echo(batch, times: int = 1):
    '''The text, again.'''
    return batch.with_columns({"echo": pa.array([twice(t) * times for t in batch.column("text")], pa.string())})

STAGES = (Shout, echo)
"""
# A source and a sink besides, each as small as they can be.
ENDS = """
import json, os
from pathlib import Path
from curator import Batch, Sink, Source
from curator.api.stage import SourceRange, Unit, Writer, WrittenFile

@dataclass(kw_only=True)
class Poems(Source):
    '''Poems from files.'''
    path: str

    def contract(self):
        return Contract(adds={"text": pa.string()})

    def units(self):
        return [Unit((SourceRange(uri=str(p), size_bytes=p.stat().st_size),)) for p in sorted(Path(self.path).glob("*.txt"))]

    def read(self, unit):
        uri = unit.parts[0].uri
        yield Batch(pa.table({"id": [READ], "source": [uri], "text": [Path(uri).read_text()]}))

@dataclass(kw_only=True)
class ToPoems(Sink):
    '''Poems into files.'''
    path: str

    def open(self, name):
        os.makedirs(self.path, exist_ok=True)
        return PoemWriter(Path(self.path, name + ".txt"))

class PoemWriter(Writer):
    def __init__(self, file):
        self.file, self.texts = file, []

    def write(self, batch):
        self.texts += batch.column("text")

    def close(self):
        self.file.write_text(json.dumps(self.texts))
        return [WrittenFile(str(self.file), len(self.texts), self.file.stat().st_size)]

STAGES = (Shout, Poems, ToPoems)
"""


def stages(name="stranger_loud"):
    return __import__(name)


def test_a_good_pack_passes(site, tmp_path):
    site.install("loud", site.stage + ENDS.replace("READ", "uri"), files={"recipes/loud.yaml": RECIPE, "rules/short.yaml": RULES})
    made = stages()
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name)
    check_pack("loud", [(made.Shout(), ROWS), (made.Shout(mark="?"), ROWS, {"skip": {"order"}}),
                        made.Poems(path=str(tmp_path)), (made.ToPoems(path=str(tmp_path / "out")), ROWS)])


def test_a_function_is_a_stage_of_a_pack_too(site):
    recipe = RECIPE.replace("loud.shout", "loud.echo: {times: 2}")
    site.install("loud", site.stage + FUNCTION, files={"recipes/loud.yaml": recipe})
    made = stages()
    check_pack("loud", [(made.Shout(), ROWS), (made.echo, ROWS), (made.echo(times=3), ROWS)])


def changed(old, new):
    return lambda code: code.replace(old, new)


@pytest.mark.parametrize(("change", "told"), [
    (changed('    """The text in capitals."""\n', ""), r"loud\.shout \(stranger_loud\.Shout\) has no docstring: its first line"),
    (changed("mark: str", "mark: 'complex'"), "no recipe can give the parameter 'mark', which is .*complex"),
    (changed("mark: str", "mark: 'Text'"), r"loud\.shout: the types of the parameters .*name 'Text' is not defined"),
    (changed("@dataclass(kw_only=True)\n", ""), r"mark cannot be set, because .*Shout is no dataclass: write @dataclass"),
    (changed("import pyarrow as pa", "import pyarrow as pa\nimport faiss"), "imports faiss, which is heavy: import it in"),
    (changed("def contract", 'name = "drop"\n\n    def contract'), None),
    (changed("(t or \"\").upper()", "str(hash(t))"), "in another process.* answers differently: .*Take nothing from"),
    (changed("STAGES", "Shout.fingerprint = lambda self: str(hash('x'))\nSTAGES"),
     "has another fingerprint: a run that is continued would do everything again"),
    (changed("STAGES", "import os\nif 'harm' in os.environ:\n    import curator.stages as s\n    s.STAGES = 5\nSTAGES"),
     "the pack 'core' cannot be: it must leave alone what others use"),
    (changed("STAGES", "import os\nif 'harm' in os.environ:\n    os._exit(3)\nSTAGES"), "another process cannot import stranger"),
])
def test_what_is_wrong_with_a_pack_is_told(site, monkeypatch, change, told):
    (site.folder / "faiss.py").write_text("")
    site.install("loud", change(site.stage))
    made = stages()
    if "harm" in change(site.stage):
        monkeypatch.setenv("harm", "1")  # from here on, for the other process
    if told is None:
        check_pack("loud", [(made.Shout(), ROWS)])  # loud.drop is not drop
        return
    with pytest.raises(AssertionError, match=f"(?s){told}"):
        check_pack("loud", [(made.Shout(), ROWS)])


@pytest.mark.parametrize(("file", "text", "told"), [
    ("recipes/bad.yaml", "a: [", r"recipe loud/bad: .*bad\.yaml:2: this is not YAML"),
    ("recipes/bad.yaml", RECIPE.replace("loud.shout", "loud.shuot"), r"unknown stage 'loud\.shuot'; did you mean loud\.shout\?"),
    ("recipes/bad.yaml", RECIPE.replace("loud.shout", "voice.pitch"), r"voice\.pitch'.*\(no pack 'voice' is installed"),
    ("recipes/bad.yaml", RECIPE.replace("[loud.shout]", "[{loud.shout: {marc: x}}]"), "parameter 'marc'; did you mean 'mark'"),
    ("recipes/bad.yaml", RECIPE.replace("{jsonl: {path: out/}}", "[{jsonl: {path: o}}, {csv: {path: o}}]"), "no folder for the"),
    ("rules/bad.yaml", RULES.replace("length(text) < 3", "length(text"), r"rule set loud/bad: .*rules\[0\]: short: .*not valid SQL"),
    ("rules/bad.yaml", RULES.replace("length(text) < 3", "1 < 3"), "rule 'short' names no column: `1 < 3` is the same for every"),
])
def test_recipes_and_rule_sets_are_loaded(site, file, text, told):
    site.install("loud", files={file: text})
    with pytest.raises(AssertionError, match=f"(?s){told}"):
        check_pack("loud", [(stages().Shout(), ROWS)])


def test_contracts_are_checked_behind_a_source_that_says_what_it_gives(site, tmp_path):
    bad = RECIPE.replace("{jsonl: {path: in.jsonl}}", "{loud.poems: {path: in}}").replace("[loud.shout]", "[{map: {n: txet}}]")
    site.install("loud", site.stage + ENDS.replace("READ", "uri"), files={"recipes/bad.yaml": bad})
    made = stages()
    (tmp_path / "a.txt").write_text("x")
    examples = [(made.Shout(), ROWS), made.Poems(path=str(tmp_path)), (made.ToPoems(path=str(tmp_path / "out")), ROWS)]
    with pytest.raises(AssertionError, match=r"bad\.yaml:4: .*needs 'txet', which nothing before it makes; did you mean 'text'"):
        check_pack("loud", examples)


def test_what_recipes_read_is_not_looked_at(site, monkeypatch):
    (site.folder / "in.jsonl").write_text('{"number": 5}\n')
    monkeypatch.chdir(site.folder)
    site.install("loud", files={"recipes/loud.yaml": RECIPE})
    check_pack("loud", [(stages().Shout(), ROWS)])


def test_a_source_answers_the_same_in_another_process(site, tmp_path):
    site.install("loud", site.stage + ENDS.replace("READ", "str(os.getpid())"))
    made = stages()
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(AssertionError, match=r"'poems' \(Poems\) in another process.* answers differently: .* has id = "):
        check_pack("loud", [(made.Shout(), ROWS), made.Poems(path=str(tmp_path)),
                            (made.ToPoems(path=str(tmp_path / "out")), ROWS)])


def test_every_stage_wants_an_example_and_every_example_a_stage(site):
    site.install("loud", site.stage + MORE)
    made = stages()
    with pytest.raises(AssertionError, match=r"has no example of loud\.other: each stage of the pack wants one"):
        check_pack("loud", [(made.Shout(), ROWS)])
    with pytest.raises(AssertionError, match=r"'drop' \(Drop\) is not in STAGES of pack 'loud'"):
        check_pack("loud", [(Drop(conditions={"x": "more > 1"}), ROWS)])
    for example in (made.Shout(), made.Shout, (made.Shout(), None), (made.Shout, ROWS), ()):
        with pytest.raises(AssertionError, match="check_pack cannot use the example"):
            check_pack("loud", [example])


def test_each_stage_is_checked_by_the_kit(site):
    site.install("loud", site.stage.replace('(t or "")', "t"))
    with pytest.raises(AssertionError, match=r"'shout' \(Shout\) raises AttributeError"):
        check_pack("loud", [(stages().Shout(), ROWS)])


def test_a_pack_that_is_not_installed_or_cannot_be_imported(site):
    with pytest.raises(AssertionError, match=r"no pack 'loud' is installed, there are core, .*run pip install -e \."):
        check_pack("loud", [])
    site.install("loud", "import a_library_nobody_has")
    with pytest.raises(AssertionError, match="it needs 'a_library_nobody_has', which is not installed"):
        check_pack("loud", [])


def test_a_name_that_another_pack_has_too(site):
    site.install("drop", site.stage.replace("class Shout(Stage):", "class Shout(Stage):\n    name = 'drop'"))
    made = stages("stranger_drop")
    assert "stranger_drop" in sys.modules
    with pytest.raises(AssertionError, match=r"two packs claim the name 'drop'"):
        check_pack("drop", [(made.Shout(), ROWS)])


@pytest.mark.parametrize(("code", "told"), [
    ("import curator.engine.events", r"stranger_loud.*py:\d+ imports curator\.engine\.events, which may change: a pack uses curator, "),
    ("from curator import run", r"imports curator\.run, which may change"),
    ("def f():\n    from curator.worker import runner", r"imports curator\.worker\.runner, which may change"),
    ("import curator_text.measures.words", r"imports curator_text\.measures\.words of pack 'text' .*they meet in columns"),
])
def test_what_a_pack_imports_beyond_what_is_open_to_it_is_named_with_its_line(site, code, told):
    site.install("loud", f"{code}\n{site.stage}")
    with pytest.raises(AssertionError, match=told):
        check_pack("loud", [(stages().Shout(), ROWS)])


def test_the_code_counts_in_a_pack_that_is_edited_and_the_version_in_one_that_is_installed(site, tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    for name, where, counts in (("edited", site, True), ("released", Site(folder), False)):
        place, told = where.install(name), []
        for code in (STAGE, STAGE.replace(".upper()", ".upper().strip()")):
            (place / "__init__.py").write_text(code)
            importlib.invalidate_caches()
            sys.modules.pop(f"stranger_{name}", None)
            told.append(importlib.import_module(f"stranger_{name}").Shout().fingerprint())
        assert (told[0] != told[1]) == counts
