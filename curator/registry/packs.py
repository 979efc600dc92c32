"""Packs: what is installed, and which stage, recipe or rule set a name means.

A pack is a distribution with an entry point in the group `curator.packs`: its name is the pack's, its value a
module with `STAGES`, and folders `recipes/` and `rules/` of YAML beside it. STAGES is a tuple of stage
classes (or functions made stages by `@stage`), or says by name where each is, which is imported alone when it
is asked for: `{"tile": "curator_geo.tile:Tile"}`. The core comes in by the same door, as the pack `core`,
whose stages have bare names; of another pack a stage that has the pack's own name has one. A pack is imported
when one of its names is asked for, never before.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from curator.api.errors import PackError, RecipeError
from curator.api.names import nearest, unknown
from curator.api.own_code import spec_of

if TYPE_CHECKING:  # Tab and `--help` ask what packs there are, and need no Arrow for that
    from curator.api.stage import FunctionStage, Stage

GROUP = "curator.packs"
CORE = "core"
NO_FEATURE = ("dev", "test", "tests", "doc", "docs")  # extras for those who work on a pack
Factory: TypeAlias = "type[Stage] | FunctionStage"  # what makes a stage when it is called with parameters


@dataclass(frozen=True)
class Pack:
    """An installed pack. `clash` says why its name cannot be used: another distribution claims it too."""

    name: str
    module: str
    distribution: str
    version: str
    clash: str | None = None

    @property
    def error(self) -> str | None:
        """What is wrong with a stage of this pack, None if all is well. Imports the pack with all its
        stages."""
        try:
            dict(self.stages())
        except PackError as error:
            return str(error)
        return None

    def stages(self) -> Stages:
        """The pack's stages, sources and sinks, by the name that recipes use. Imports the pack.

        Raises:
            PackError: it cannot be imported, or two of its stages have one name.
        """
        if self.clash is not None:
            raise PackError(self.clash)
        with self._blamed():
            declared = getattr(importlib.import_module(self.module), "STAGES", None)
        if isinstance(declared, Mapping):
            for name, place in declared.items():
                if not (isinstance(name, str) and isinstance(place, str) and ":" in place):
                    raise PackError(f"{self} cannot be used: {self.module}.STAGES has {name!r}: {place!r}; "
                                    "write it as \"tile\": \"curator_geo.tile:Tile\" for each stage")
            return Stages(self, {self._full_name(name): place for name, place in declared.items()})
        if not isinstance(declared, (tuple, list)):
            found = "has no STAGES" if declared is None else f"has STAGES = {declared!r}, which is no tuple"
            raise PackError(f"{self} cannot be used: the module {self.module} {found}; list all of its "
                            "stages there: STAGES = (MyStage,), with a comma also after a single one")
        named: dict[str, Factory] = {}
        for factory in declared:
            other = named.setdefault(self._name_of(factory), factory)
            if other is not factory:
                raise PackError(f"{self} cannot be used: {described(other)} and {described(factory)} are "
                                f"both named {factory.name!r}; give one of them another `name`")
        return Stages(self, named)

    def made_at(self, place: str, name: str) -> Factory:
        """The stage of this name, imported from `module:Class`.

        Raises:
            PackError: it cannot be, or is another one.
        """
        module, _, kind = place.partition(":")
        with self._blamed():
            factory = getattr(importlib.import_module(module), kind, None)
        found = None if factory is None else (self._name_of(factory), place_of(code_of(factory)))
        if factory is None or found != (name, place):
            there = f"{found[0]!r} of {found[1]!r}" if found else "nothing"
            raise PackError(f"{self} cannot be used: {self.module}.STAGES says that {name!r} is at "
                            f"{place!r}, and there is {there}; correct its name or place")
        return factory

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """A stranger's code is imported: whatever it raises is reported, and harms it alone."""
        try:
            yield
        except (Exception, SystemExit) as error:
            raise PackError(f"{self} cannot be used: {_why(error, self)}") from error

    def _name_of(self, factory: Any) -> str:
        from curator.api.stage import FunctionStage, Stage

        if not isinstance(factory, FunctionStage) and not _is_a(factory, Stage):
            raise PackError(f"{self} cannot be used: {factory!r} in {self.module}.STAGES is not a stage; "
                            "name a class made from Stage, Source or Sink, or a function under @stage")
        if not isinstance(factory.name, str) or not factory.name:
            raise PackError(f"{self} cannot be used: {described(factory)} has the name {factory.name!r}; "
                            "a name is a text that is not empty")
        return self._full_name(factory.name)

    def _full_name(self, name: str) -> str:
        """`pack.stage`. A name that begins with the pack's, or is it, stays as it is."""
        return name if self.name in (CORE, name.partition(".")[0]) else f"{self.name}.{name}"

    def folder(self, kind: str) -> Path | None:
        """The pack's folder of this kind (`recipes`, `rules`), None if it has none. Does not import the
        pack."""
        return next((found for found in (Path(p) / kind for p in _places_of(self.module))
                     if found.is_dir()), None)

    @property
    def place(self) -> str:
        """The folder that it would be imported from. Does not import the pack."""
        return next(iter(_places_of(self.module.partition(".")[0])), "not found")

    def __str__(self) -> str:
        return f"pack {self.name!r} ({self.distribution} {self.version})"


class Stages(Mapping[str, "Factory"]):
    """The stages of a pack by full name. One that STAGES only names is imported when it is asked for, which
    may raise PackError."""

    def __init__(self, pack: Pack, declared: Mapping[str, Factory | str]) -> None:
        self.pack, self.declared = pack, declared

    def __getitem__(self, name: str) -> Factory:
        made = self.declared[name]
        return self.pack.made_at(made, name) if isinstance(made, str) else made

    def __contains__(self, name: object) -> bool:  # that of Mapping asks for the stage
        return name in self.declared

    def __iter__(self) -> Iterator[str]:
        return iter(self.declared)

    def __len__(self) -> int:
        return len(self.declared)

    def name_of(self, made_by: Any) -> str | None:
        """The name of what was written as this class or function. Imports none."""
        return next((name for name, made in self.declared.items() if (
            made == place_of(made_by) if isinstance(made, str) else code_of(made) is made_by)), None)


@dataclass(frozen=True)
class Resource:
    """A file that a pack brings: `name` is `pack/name`, as recipes and the command line call it."""

    name: str
    pack: Pack
    path: Path

    @property
    def short(self) -> str:
        return self.name.partition("/")[2]


# -- packs ---------------------------------------------------------------------------------------------------


@functools.cache
def claims() -> tuple[Pack, ...]:
    """Every pack that a distribution claims to bring; read once a process, as metadata take their time."""
    # the module as it is written, also where that is no module's name
    points = importlib.metadata.entry_points(group=GROUP)
    return tuple(Pack(p.name, p.value.partition(":")[0].strip(), p.dist.name, p.dist.version)
                 for p in points if p.dist is not None)


def installed() -> list[Pack]:
    """Every installed pack, the core first, the others by name. Imports none of them."""
    known = {(pack.name, pack.distribution, pack.module): pack for pack in claims()}.values()
    packs = sorted(known, key=lambda p: (p.name != CORE, p.name, p.distribution))
    for at, pack in enumerate(packs):
        owners = [f"{p.distribution} {p.version} ({p.module})" for p in known if p.name == pack.name]
        if len(owners) > 1:
            clash = (f"two packs claim the name {pack.name!r}: {' and '.join(sorted(owners))}; uninstall one "
                     "of them")
            packs[at] = replace(pack, clash=clash)
    return packs


def all_stages() -> dict[str, Factory]:
    """The stages, sources and sinks of every pack that can be imported, by full name."""
    stages: dict[str, Factory] = {}
    for pack in installed():
        if pack.error is None:
            stages |= pack.stages()
    return stages


def stage_class(name: str) -> Factory:
    """What makes the stage of this name: `pack.stage`, a bare name of the core, or the pack's own. Imports no
    other pack.

    Raises:
        RecipeError: there is none; the message names the nearest.
        PackError: its pack cannot be imported, or two packs claim the name.
    """
    found = find_stage(name)
    if found is None:
        raise RecipeError(unknown_stage("stage", name, all_stages()))
    return found


def build(factory: Factory, **parameters: Any) -> Stage:
    """The stage with these parameters."""
    make: Callable[..., Stage] = factory
    return make(**parameters)


def find_stage(name: str) -> Factory | None:
    """As `stage_class`, and None if there is none; no pack is imported to say what there is instead.

    Raises:
        PackError: its pack cannot be imported, or two packs claim the name.
        RecipeError: it is a `module:Name` at which there is no stage.
    """
    if ":" in name:
        return _in_no_pack(name)
    prefix = name.partition(".")[0]
    found: dict[str, Factory] = {}
    errors: list[PackError] = []
    for pack in installed():
        if pack.name not in (CORE, prefix):
            continue
        try:
            stages = pack.stages()
            if name in stages:
                found[str(pack)] = stages[name]
        except PackError as error:
            errors.append(error)
    if len(found) > 1:
        raise PackError(f"two packs claim the name {name!r}: {' and '.join(found)}; uninstall one of them")
    if errors and not found:
        raise errors[-1]
    return found.popitem()[1] if found else None


def _in_no_pack(place: str) -> Factory:
    """The stage at `module:Name`. The module is installed, or lies where the command was given."""
    from curator.api.stage import FunctionStage, Stage

    module, _, kind = place.partition(":")
    top = module.partition(".")[0]
    try:
        if os.getcwd() not in sys.path and importlib.util.find_spec(top) is None:
            sys.path.append(os.getcwd())
        found: Any = getattr(importlib.import_module(module), kind, None)
    except (Exception, SystemExit) as error:  # of a stranger's code
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        why = (f"there is no module {missing!r}, installed or in {os.getcwd()}"
               if missing and f"{module}.".startswith(f"{missing}.") else
               f"{type(error).__name__}: {error}{_line_of(error, top)}")
        raise RecipeError(f"{place!r} cannot be imported: {why}") from error
    if not isinstance(found, FunctionStage) and not _is_a(found, Stage):
        raise RecipeError(f"{place!r} is {'not there' if found is None else 'no stage'}; name a class made "
                          "from Stage, Source or Sink, or a function under @stage")
    return found


def name_of(stage: Stage) -> str | None:
    """The name under which a recipe has this stage: as a pack offers it, else `module:Name`; None where it
    can be made in Python only."""
    made_by = code_of(stage)
    top = made_by.__module__.partition(".")[0]
    for pack in installed():
        if pack.module.partition(".")[0] == top:
            with contextlib.suppress(PackError):
                if name := pack.stages().name_of(made_by):
                    return name
    if top != "__main__":
        with contextlib.suppress(RecipeError):
            if code_of(_in_no_pack(place_of(made_by))) is made_by:
                return place_of(made_by)
    return None


def makers(column: str) -> list[str]:
    """The stages that add a column or payload of this name, and do not need it, when they have their usual
    parameters. Imports every pack."""
    def adds(factory: Factory) -> Iterable[str]:
        try:
            contract = factory().contract()
            return set(contract.adds) - set(contract.needs) if kind_of(factory) == "stage" else ()
        # parameters that must be given, or a stranger's fault, which `doctor` and its own use tell of
        except Exception:
            return ()

    return [name for name, factory in all_stages().items() if column in adds(factory)]


def kind_of(factory: Factory) -> str:
    """`source`, `stage` or `sink`."""
    from curator.api.stage import Sink, Source

    return "source" if _is_a(factory, Source) else "sink" if _is_a(factory, Sink) else "stage"


def code_of(made: Factory | Stage) -> Any:
    """The class or function that a stage, or what makes it, was written as."""
    from curator.api.stage import FunctionStage

    if isinstance(made, FunctionStage):
        return made.function
    return made if isinstance(made, type) else type(made)


def described(made: Factory | Stage) -> str:
    """Module and name of the class or function, for messages."""
    return place_of(code_of(made)).replace(":", ".")


def place_of(code: Any) -> str:
    """`module:Class` of a class or function, as STAGES may name it."""
    return f"{code.__module__}:{code.__qualname__}"


# -- recipes and rule sets -----------------------------------------------------------------------------------


def resources(kind: str) -> list[Resource]:
    """The files of a kind (`recipes`, `rules`) in every pack, by name. Imports no pack."""
    found = []
    for pack in installed():
        if not pack.clash and (folder := pack.folder(kind)) is not None:
            found += [Resource(f"{pack.name}/{f.relative_to(folder).with_suffix('').as_posix()}", pack, f)
                      for f in sorted(folder.rglob("*.yaml"), key=lambda f: f.with_suffix(""))]
    return found


def resource(kind: str, name: str) -> Path:
    """The file of a recipe or rule set: `text/web`, or a bare name that only one pack has.

    Raises:
        RecipeError: there is none, or several packs have one; the message names the nearest.
    """
    word = {"recipes": "recipe", "rules": "rule set"}.get(kind, kind)
    known = resources(kind)
    matches = [r for r in known if name in (r.name, r.short)]
    if not matches:
        bare = [p for p in installed() if name.startswith(f"{p.name}/") and not p.clash
                and p.folder(kind) is None]
        forgotten = "".join(f" ({p} brings no {kind}; if it should, its package-data in pyproject.toml lacks "
                            f"\"{kind}/*.yaml\")" for p in bare[:1])
        raise RecipeError(unknown(word, name, [r.name for r in known]) + forgotten)
    exact = [r for r in matches if r.name == name] or matches
    if len(exact) > 1:
        raise RecipeError(f"several packs have a {word} {name!r}: write "
                          f"{' or '.join(r.name for r in matches)}")
    return exact[0].path


def unknown_stage(word: str, name: str, known: Iterable[str]) -> str:
    """The message for a stage, source or sink that no pack has; says so where there is not even the pack."""
    prefix, dot, _ = name.partition(".")
    if prefix == "__main__":
        return (f"{word} {name!r} is code of a script, which only that script can run: do it there, for "
                "example pipeline.run(replay=Replay()) for `curator replay`")
    there = {pack.name for pack in installed()} | {known.partition(".")[0] for known in all_stages()}
    if prefix in there:
        own = [each for each in known if each.startswith(f"{prefix}.")]
        return unknown(word, name, known if nearest(name, known) else own or known)
    lacking = {each: pack.distribution for pack in installed()
               for each in unmet(pack.distribution).get("", ())}
    wanted = [each for each in lacking if each == f"curator-{prefix}"
              or (not dot and each.startswith("curator-"))]
    if wanted:
        hint = (f" ({lacking[wanted[0]]} needs {' and '.join(wanted)}, not installed: pip install "
                f"{' '.join(wanted)})")
    else:
        hint = (f" (no pack {prefix!r} is installed: pip install curator-{prefix}, if its distribution is "
                f"called so; `curator new pack {prefix}` begins one of your own)" if dot else "")
    return unknown(word, name, known) + hint


def _is_a(factory: Any, kind: type[Stage]) -> bool:
    return isinstance(factory, type) and issubclass(factory, kind)


def _places_of(module: str) -> list[str]:
    """The folders of a module, or the one that its file lies in. Imports nothing."""
    spec = spec_of(module)
    return [] if spec is None else list(spec.submodule_search_locations
                                        or [str(Path(spec.origin or "").parent)])


# -- why a pack cannot be imported, and what to do about it --------------------------------------------------


def _why(error: BaseException, pack: Pack) -> str:
    """What went wrong when the pack's module was imported, and the remedy."""
    missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    top = pack.module.partition(".")[0]
    if missing and f"{pack.module}.".startswith(f"{missing}."):
        remedy = (f"its entry point names the module {pack.module!r}; reinstall {pack.distribution}, or "
                  "uninstall it")
    elif missing and missing.partition(".")[0] != top:
        remedy = _get(missing.partition(".")[0], pack.distribution)
    elif missing:
        remedy = f"reinstall it with pip install --force-reinstall {pack.distribution}, or uninstall it"
    else:
        remedy = (f"the error is in the pack's own code{_line_of(error, top)}; tell its author, or uninstall "
                  f"{pack.distribution}")
    return f"{type(error).__name__}: {error}; {remedy}"


def _line_of(error: BaseException, top: str) -> str:
    """Where in the pack it was raised, not where in a library that the pack calls."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if top in (*Path(f.filename).parts, Path(f.filename).stem)]
    return "".join(f" at {f.filename}:{f.lineno}" for f in (own or frames)[-1:])


def _get(library: str, distribution: str) -> str:
    """How to get a library that a pack imports and that is not there."""
    lacks = unmet(distribution)
    needs = f"it needs {library!r}, which is not installed"
    if "" in lacks:
        return f"{needs}: pip install {' '.join(lacks[''])}"
    if lacks:
        return f"{needs}: pip install '{distribution}[{','.join(lacks)}]'"
    return (f"{needs}: pip install --upgrade {distribution}; if that does not bring it, its author forgot to "
            "require it")


def unmet(distribution: str) -> dict[str, list[str]]:
    """The distributions that one requires and that are not installed, by the extra that wants them; "" for no
    extra.

    Requirements for some systems or versions of Python only are not looked at, nor are extras for those who
    work on it.
    """
    missing: dict[str, list[str]] = {}
    for requirement in (text for found in _installed_as(distribution) for text in found.requires or ()):
        wanted = re.fullmatch(r"([\w.-]+)[^;]*(?:;\s*extra\s*==\s*['\"]([\w.-]+)['\"]\s*)?", requirement)
        if wanted and wanted[2] not in NO_FEATURE and not any(_installed_as(wanted[1])):
            missing.setdefault(wanted[2] or "", []).append(wanted[1])
    return missing


def _installed_as(distribution: str) -> list[importlib.metadata.Distribution]:
    """The distribution of this name: one or none."""
    return list(importlib.metadata.Distribution.discover(name=distribution))[:1]
