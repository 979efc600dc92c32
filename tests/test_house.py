"""The house rules, as far as a machine can check them: layers, cycles, one home for each dependency, sizes, swallowed errors."""

from __future__ import annotations

import ast
import gc
import importlib
import re
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from curator.testing.installed import OPEN_TO_PACKS, is_open

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "curator"
SOURCES = sorted(p for top in ("curator", "packs") for p in (ROOT / top).rglob("*.py")
                 if "tests" not in p.relative_to(ROOT).parts)

# The longest prefix of a module's name says its layer; a module imports its own layer or a lower one, also inside functions.
LAYERS = {
    "curator.api": 1,
    "curator.machine": 2, "curator.io": 2, "curator.sql": 2, "curator.registry": 2, "curator.ngrams": 2, "curator.models": 2,
    "curator.pipeline": 3,
    "curator.engine": 4, "curator.recipe": 4,
    "curator.worker": 5, "curator.stages": 5, "curator.observe": 5, "curator.testing": 5,
    "curator.runtime": 6,
    "curator.run": 7,
    "curator.front": 8, "curator.results": 8, "curator.outside": 8, "curator.explore": 8, "curator.trial": 8, "curator.scaffold": 8,
    "curator.cli": 8, "curator.__main__": 8, "curator": 8,
}
FILE_LINES, FUNCTION_LINES, ARGUMENTS = 600, 70, 8
FOLDER_FILES = 13  # "about ten", and with more a folder has rooms
EXCUSED = {"curator/cli/main.py:run": "an argument for each option of the command line",
           "curator/run/run.py:run": "an argument for each option of a run"}


def module_of(path: Path) -> str:
    base = ROOT if path.is_relative_to(CORE) else path.relative_to(ROOT / "packs").parts[0] and ROOT / "packs" / path.relative_to(
        ROOT / "packs").parts[0]
    parts = list(path.relative_to(base).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(p): p for p in SOURCES}


def layer(module: str) -> int:
    found = [name for name in LAYERS if module == name or module.startswith(name + ".") or module.startswith(name + "_")]
    return LAYERS[max(found, key=len)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def forget():
    """The tests of other files need no memory full of trees, and no collection of garbage in them."""
    gc.disable()
    yield
    gc.enable()
    parsed.cache_clear()


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def imports(path: Path) -> set[str]:
    """The modules that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
    return found


def test_a_module_imports_its_own_layer_or_a_lower_one():
    for module in (m for m in MODULES if m.split(".")[0] == "curator"):
        for used in (u for u in imports(MODULES[module]) if u.split(".")[0] == "curator"):
            assert layer(used) <= layer(module), f"{module} (layer {layer(module)}) imports {used} (layer {layer(used)})"


def test_no_module_is_imported_in_a_circle():
    graph = {m: {u for u in imports(p) if u in MODULES and u != m} for m, p in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module):], module))
        if module not in done:
            for used in sorted(graph[module]):
                visit(used, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_core_knows_no_pack_and_packs_not_each_other():
    for module, path in MODULES.items():
        own = module.split(".")[0]
        for used in imports(path):
            top = used.split(".")[0]
            if top.startswith("curator_"):
                assert top == own, f"{module} imports {used}"
            if own.startswith("curator_") and top == "curator":
                assert is_open(used), f"{module} imports {used}, which the core keeps to itself"


@pytest.mark.parametrize("module", ["curator.stages", *(name for name in MODULES if name.startswith("curator_") and "." not in name)])
def test_checkers_and_editors_know_the_stages_that_a_pack_only_names(module):
    stages = importlib.import_module(module).STAGES
    shown = {f"{node.module}:{alias.name}" for node in ast.walk(parsed(MODULES[module])) if isinstance(node, ast.ImportFrom)
             for alias in node.names if alias.name == alias.asname}
    assert {place for place in shown if "decontaminate" not in place} == set(stages.values())


def test_the_page_for_pack_authors_names_what_they_may_import():
    page = (ROOT / "docs" / "packs.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| `(curator[.\w]*)` \|", page, re.M)) == OPEN_TO_PACKS


@pytest.mark.parametrize(("library", "homes"), [
    ("fsspec", {"curator.io.files.remote"}), ("ray", {"curator.runtime.ray", "curator.run.raydata.dataset"}),
    ("multiprocessing", {"curator.worker.main", "curator.worker.processes"}),
    ("torch", {"curator.models.loading", "curator.models.heads", "curator.models.captioner",
                "curator.outside.training"})])
def test_each_heavy_dependency_has_one_home_in_the_core(library, homes):
    users = {m for m, p in MODULES.items() if m.startswith("curator.") and library in {u.split(".")[0] for u in imports(p)}}
    assert users <= homes


def test_the_top_of_the_core_has_few_names():
    import curator

    assert len(curator.__all__) <= 25


def test_importing_the_core_imports_nothing_heavy():
    import subprocess
    import sys

    heavy = ["duckdb", "fsspec", "rich", "jinja2", "click", "yaml", "torch", "transformers", "ray", "pandas", "prometheus_client"]
    code = f"import sys; from curator import Batch, Pipeline, Stage, load, read; print([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_files_and_functions_stay_readable():
    for path in SOURCES:
        assert name_of(path) in EXCUSED or len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LINES, name_of(path)
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                place = f"{name_of(path)}:{node.name}"
                assert place in EXCUSED or node.end_lineno - node.lineno < FUNCTION_LINES, place
                assert place in EXCUSED or len(node.args.args) + len(node.args.kwonlyargs) <= ARGUMENTS + 1, place


COLUMNS = 110


def test_lines_of_the_core_are_short():
    for path in (p for p in SOURCES if p.is_relative_to(CORE)):
        lines = path.read_text(encoding="utf-8").splitlines()
        long = [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
        assert not long, f"{name_of(path)}: lines {long}"


def test_folders_stay_readable():
    files = Counter(path.parent for path in SOURCES if path.is_relative_to(CORE) and path.name != "__init__.py")
    assert not {name_of(folder): count for folder, count in files.items() if count > FOLDER_FILES}


def test_no_error_is_swallowed():
    """A handler that takes every exception raises again, records it, or does something with it."""
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ExceptHandler):
                names = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else {"BaseException"}
                empty = all(isinstance(b, (ast.Pass, ast.Continue)) for b in node.body)
                assert not (names & {"Exception", "BaseException"} and empty), f"{name_of(path)}:{node.lineno}"


# Physical lines a room, a ratchet: a number falls with the code, and rises only with a feature that needs it. "." are the files
# beside the rooms.
LINES = {
    "api": 2150,
    "machine": 451,
    "io": 5910,
    "io/tables": 2089,
    "sql": 542,
    "registry": 469,
    "models": 1181,
    "ngrams": 368,
    "pipeline": 1135,
    "stages": 2470,
    "engine": 3932,
    "recipe": 1668,
    "worker": 2285,
    "observe": 2947,
    "testing": 1292,
    "runtime": 1347,
    "run/raydata": 940,
    "run": 3795,
    "explore": 1478,
    "results": 2242,
    "outside": 1104,
    "trial": 1462,
    "scaffold": 199,
    "cli": 1474,
    ".": 324,
}


@pytest.mark.parametrize(("room", "most"), LINES.items())
def test_each_room_of_the_core_stays_small(room, most):
    inner = [other for other in LINES if other.startswith(room + "/")]
    files = CORE.glob("*.py") if room == "." else (CORE / room).rglob("*.py")
    own = [f for f in files if not any(f.is_relative_to(CORE / other) for other in inner)]
    assert sum(len(f.read_text(encoding="utf-8").splitlines()) for f in own) <= most


SLIM_CORE = ("api", "pipeline", "engine", "worker", "runtime", "run")  # the way of a batch: to be read in an afternoon


def test_the_slim_core_only_gets_slimmer():
    assert sum(LINES[room] for room in SLIM_CORE) <= 14644
    assert sum(LINES.values()) <= 43254


def test_nothing_names_a_machine():
    for path in [*SOURCES, *(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "Makefile"]:
        text = path.read_text(encoding="utf-8")
        for word in ("TODO", "FIXME", "/home/"):
            assert word not in text, f"{path.relative_to(ROOT)} says {word}"


TESTS = sorted(p for top in ("tests", "packs") for p in (ROOT / top).rglob("*.py")
               if "tests" in p.relative_to(ROOT).parts)


def test_no_test_draws_from_what_has_no_seed():
    for path in TESTS:
        if not re.search(r"\brandom\b|Random\b|default_rng|PCG64", path.read_text(encoding="utf-8")):
            continue
        tree = parsed(path)
        modules = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                place, name = ast.unparse(node.func.value), node.func.attr
                if name in ("Random", "default_rng", "PCG64"):
                    assert node.args or node.keywords, f"{name_of(path)}:{node.lineno} is new in every run"
                elif place in modules & {"random"} or place in ("np.random", "numpy.random"):
                    assert name in ("Generator", "RandomState"), f"{name_of(path)}:{node.lineno} depends on other tests"


def test_the_random_tests_have_the_same_examples_everywhere(request):
    """A profile that searches has to be asked for: `make fuzz`."""
    from hypothesis import settings

    asked = request.config.getoption("--hypothesis-profile")
    assert settings().derandomize == (asked != "fuzz")
    set_by_tests = [p for p in TESTS if "derandomize=" in p.read_text(encoding="utf-8") and p != Path(__file__)]
    assert not set_by_tests, "`make fuzz` would try the same examples again"


def test_the_pages_name_files_that_exist():
    """Paths in `code` on the pages about the code: below the repository or below curator/."""
    for page in ("architecture", "durability", "execution"):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        named = {found for found in re.findall(r"`([\w/]+(?:\.py|\.j2|/))`", text) if not found.startswith(("_run/", "out/", "dropped/",
                 "duplicate/", "failed/", "clusters/"))}
        gone = [name for name in sorted(named) if "/" in name and not any((root / name).exists() for root in (ROOT, CORE))]
        assert not gone, f"docs/{page}.md names {gone}"


OLD_WORDS = {"nursery", "janitor", "seat", "seats", "lane", "lanes", "crew", "crews", "salvage", "leaked", "scarce", "affine", "keeper",
             "keepers", "recalled", "remembered"}


def test_names_are_the_words_of_the_glossary():
    """The words that docs/architecture.md replaced by those of the field do not come back."""
    said = re.compile(rf"(?:\b|_)(?:{'|'.join(sorted(OLD_WORDS))})(?:\b|_)", re.IGNORECASE)
    for path in (p for p in SOURCES if said.search(p.read_text(encoding="utf-8"))):  # to look which of them are names
        with tokenize.open(path) as file:
            names = {token.string for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.NAME}
        old = [name for name in sorted(names) if OLD_WORDS & set(name.lower().split("_"))]
        assert not old, f"{name_of(path)} says {', '.join(old)}"
