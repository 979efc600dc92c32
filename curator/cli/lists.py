"""What there is: the commands `stages`, `recipes`, `rules` and `doctor`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from curator.api.errors import CuratorError, RecipeError
from curator.api.format import plural
from curator.cli.loading import complete_resources, complete_stages
from curator.observe.report.terminal import show
from curator.registry import packs
from curator.registry.packs import Factory, Pack, Resource

LIBRARIES = ("pyarrow", "numpy", "duckdb", "fsspec", "isal", "xxhash", "s3fs", "ray", "torch")


@click.command(short_help="List stages, sources and sinks, or explain one.")
@click.argument("name", required=False, shell_complete=complete_stages)
def stages(name: str | None) -> None:
    """List the stages, sources and sinks of all packs, or those of one; with a stage's NAME, all about it."""
    from curator.recipe.describe import about
    installed = packs.installed()
    name = name and name.rstrip(".")  # as a shell completes a pack's
    if name is not None and name not in (pack.name for pack in installed):
        _print(*about(*_find_stage(name)))
        return
    for pack in installed:
        if name in (None, pack.name):
            _print(*_stages_of(pack))
    click.echo("curator stages NAME tells all about one.")


@click.command(short_help="List the packaged recipes, or print one.")
@click.argument("name", required=False, shell_complete=complete_resources)
def recipes(name: str | None) -> None:
    """List the packaged recipes; with a NAME, print its YAML, to be copied and changed."""
    from curator.recipe.describe import table
    if name is not None:
        click.echo(packs.resource("recipes", name).read_text(encoding="utf-8"), nl=False)
        return
    made = table("recipe", "what it does")
    for found in packs.resources("recipes"):
        made.add_row(found.name, _cell(found, lambda content: _first_line(content.get("description"))))
    _print(made)
    click.echo("\ncurator recipes NAME prints one, curator plan NAME explains it.")


@click.command(short_help="List the packaged rule sets, or print one.")
@click.argument("name", required=False, shell_complete=complete_resources)
def rules(name: str | None) -> None:
    """List the packaged rule sets; with a NAME, its rules: what each drops, and where that comes from."""
    from curator.recipe.describe import table
    if name is None:
        made = table("rule set", "rules", "what it drops")
        for found in packs.resources("rules"):
            made.add_row(found.name, _cell(found, lambda content: str(len(content.get("rules") or ()))),
                          _cell(found, lambda content: _first_line(content.get("description"))))
        _print(made)
        click.echo("\ncurator rules NAME shows one; a recipe uses it by drop: {rules: NAME}.")
        return
    path = packs.resource("rules", name)
    [found] = [r for r in packs.resources("rules") if r.path == path]
    content = _content(found)
    made = table("reason", "dropped when (source)")
    for rule in content.get("rules") or ():
        made.add_row(str(rule.get("reason", "")), str(rule.get("when", "")))
        if rule.get("source"):
            made.add_row("", f"({rule['source']})", style="dim")
    _print(f"{found.name}: {content.get('description', '')}".strip(),
           f"Source: {content.get('source', 'none given')}", "", made, f"\nFile: {path}")


@click.command(short_help="Check what is installed here.")
def doctor() -> None:
    """Check what is installed and what this machine has.

    Ends with 1 if a pack cannot be used, or a recipe or rule set of one.
    """
    from curator.recipe.describe import table
    from curator.testing.installed import faults

    made = table("pack", "distribution", "", "")
    wrong: dict[str, None] = {}  # each once, in order
    lacking: list[str] = []
    for pack in packs.installed():
        error = pack.error
        found = [error] if error else faults(pack)
        wrong |= dict.fromkeys(found)
        state = "broken" if error else "faulty" if found else "ok"
        made.add_row(pack.name, f"{pack.distribution} {pack.version}", state, "" if error else _size_of(pack))
        lacking += [] if error else _lacking(pack)
    machine = table("machine", "")
    for what, value in _machine():
        machine.add_row(what, value)
    messages = [line for text in (*wrong, *lacking) for line in ("", text)]
    _print(made, *messages, "", machine)
    if wrong:
        sys.exit(1)


COMMANDS = (stages, recipes, rules, doctor)


def _stages_of(pack: Pack) -> list[Any]:
    from curator.recipe.describe import doc_of, table
    title = f"{pack.name} ({pack.distribution} {pack.version})"
    if (error := pack.error) is not None:
        return [title, f"  {error}", ""]
    made = table("  name", "kind", "what you get")
    for name, factory in pack.stages().items():
        made.add_row(f"  {name}", packs.kind_of(factory), _first_sentence(doc_of(factory)))
    return [title, made, ""]


def _find_stage(name: str) -> tuple[str, Factory]:
    """A stage by its name, with or without its pack, and a sink also by what recipes call it."""
    try:
        return name, packs.stage_class(name)
    except RecipeError:
        pack, dot, last = name.rpartition(".")
        meant = {name, f"{pack}{dot}to_{last}"}
        short = {full: factory for full, factory in packs.all_stages().items()
                 if full in meant or full.partition(".")[2] in meant}
        if len(short) == 1:
            return next(iter(short.items()))
        if short:
            raise CuratorError(f"several packs have a stage {name!r}: {' or '.join(short)}") from None
        raise


def _content(found: Resource) -> dict[str, Any]:
    from curator.io.yaml import Problems, parse

    problems = Problems()
    root = parse(found.path.read_text(encoding="utf-8"), str(found.path), problems)
    problems.check()
    if not root.is_map:
        raise RecipeError(f"{found.path}: expected a mapping with name, description and rules")
    return root.plain()


def _cell(found: Resource, read: Callable[[dict[str, Any]], str]) -> str:
    """A cell of a list: a file that cannot be read says so itself, and the list goes on."""
    try:
        return read(_content(found))
    except (CuratorError, OSError, ValueError) as error:
        return f"cannot be read: {error}"


def _size_of(pack: Pack) -> str:
    recipes, rules = (sum(r.pack == pack for r in packs.resources(kind)) for kind in ("recipes", "rules"))
    sizes = {"stage": len(pack.stages()), "recipe": recipes, "rule set": rules}
    return ", ".join(plural(n, word) for word, n in sizes.items() if n or word == "stage")


def _lacking(pack: Pack) -> Iterator[str]:
    """What is not installed that a pack could use, and how to get it."""
    for extra, missing in packs.unmet(pack.distribution).items():
        what = f"'{pack.distribution}[{extra}]'" if extra else " ".join(missing)
        yield f"{pack.name} is without {', '.join(missing)}: pip install {what}"


def _machine() -> Iterator[tuple[str, str]]:
    import importlib.metadata
    import platform
    import shutil
    import tempfile

    from curator.api.format import size
    from curator.machine.detect import available_cpus, memory_bytes, visible_devices
    from curator.machine.folders import shared_memory_parent

    yield "Python", f"{platform.python_version()} ({sys.executable})"
    yield "system", platform.platform()
    yield "cores", f"{available_cpus():g}"
    yield "memory", size(memory_bytes())
    yield "GPUs", str(len(visible_devices()))
    for what, folder in (("batches in", shared_memory_parent()),
                         ("temporary files in", tempfile.gettempdir())):
        yield what, f"{folder}, {size(shutil.disk_usage(folder).free)} free"
    for library in LIBRARIES:
        try:
            yield library, importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            yield library, "not installed"


def _first_sentence(text: str) -> str:
    """Up to its first full stop or semicolon that ends something, and no further than the first paragraph."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[^.])\.(?: |$)|; ", paragraph, maxsplit=1)[0]
    return sentence and f"{sentence}."


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _print(*parts: Any) -> None:
    show(lambda _: parts)
