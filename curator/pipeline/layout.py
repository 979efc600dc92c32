"""The folder of a run: which one it is, and what lies where in it.

    out/data/                 what was written; `data/<sink>/` where several sinks share it
    out/dropped/<stage>/      and `duplicate/`, `failed/`, `clusters/`: what was not, beside it
    out/README.md             what this is, for people and for readers of datasets
    out/_run/                 what the run knows of itself
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from curator.api.errors import RecipeError
from curator.api.stage import SIDE_OUTPUTS, Sink, Stage
from curator.io.files.folder import Folder
from curator.io.files.listing import CARD, CLUSTERS, DATA, RUN
from curator.io.tables.one_file import ToFile
from curator.pipeline.contracts import place_of
from curator.pipeline.graph import Graph, Node

ASIDE = (*SIDE_OUTPUTS, CLUSTERS, RUN)  # the folders that no sink of a recipe writes into
OURS = (DATA, CARD, *ASIDE)  # all that a run makes in its folder


def placed(pipeline: Graph) -> Graph:
    """The pipeline with the run's folder in its settings, and with the folder of every sink in the sink.

    The only place where it is decided who writes where: each sink has a folder of its own, and none touches
    what a run keeps beside the data.

    Raises:
        RecipeError: it is not said where to write, or two folders meet.
    """
    out, options = _run_folder(pipeline)
    names = pipeline.names()
    free = [node for node in pipeline.sinks if _own(pipeline, node) is None]
    sinks = []
    for node in pipeline.sinks:
        if node in free:
            name = f"{DATA}/{names[node].removeprefix('to_')}" if len(free) > 1 else DATA
            node = replace(node, stage=_with_path(node.sink, below(out, name), options))
        sinks.append(node)
    settings = replace(pipeline.settings, out=out, storage_options=options or {})
    made = replace(pipeline, sinks=tuple(sinks), settings=settings)
    _check_folders(made)
    return made


def run_folder(pipeline: Graph) -> Folder:
    """The run's folder, of a placed pipeline."""
    return Folder.open(str(pipeline.settings.out), dict(pipeline.settings.storage_options) or None)


def moved(pipeline: Graph, out: str) -> Graph:
    """The pipeline with another folder for its run. Sinks that lie in the present one move along."""
    old = _stated(pipeline)
    root = None if old is None else Folder.open(old, _options(pipeline, pipeline.sinks[0])).uri.rstrip("/")
    sinks = []
    for node in pipeline.sinks:
        path = _own(pipeline, node)
        if path is None:
            node = node if node.sink.path is None else replace(node, stage=without_path(node.sink))
        elif root is not None and (folder := folder_of(node.sink)).startswith(f"{root}/"):
            node = replace(node, stage=_with_path(node.sink, below(out, folder[len(root) + 1:]), None))
        sinks.append(node)
    return replace(pipeline, sinks=tuple(sinks), settings=replace(pipeline.settings, out=out))


def elsewhere(pipeline: Graph) -> list[str]:
    """The folders of sinks that do not lie in the run's folder, which the settings say."""
    root = run_folder(pipeline).uri.rstrip("/")
    return [str(node.sink.path) for node in pipeline.sinks
            if node.sink.path is not None and not folder_of(node.sink).startswith(f"{root}/")]


def _check_folders(pipeline: Graph) -> None:
    out, names = run_folder(pipeline), pipeline.names()
    root, aside = out.uri.rstrip("/"), {out.path_of(name): name for name in ASIDE}
    folders: dict[str, str] = {}
    for node in pipeline.sinks:
        path = folder_of(node.sink)
        if f"{root}/".startswith(f"{path}/"):
            raise RecipeError(f"{place_of(node)}sink {names[node]!r} writes to {path}, which holds the run's "
                              f"folder, {root}: leave its path out, and it writes to {out.path_of(DATA)}")
        if name := next((name for folder, name in aside.items() if f"{path}/".startswith(f"{folder}/")),
                        None):
            raise RecipeError(f"{place_of(node)}sink {names[node]!r} writes to {path}, and {name}/ is for "
                              "what the run keeps beside the data: give the sink another path, or none")
        for other, who in folders.items():
            if path == other:
                raise RecipeError(f"{place_of(node)}sinks {who!r} and {names[node]!r} write to one folder, "
                                  f"{path}")
            if f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/"):
                raise RecipeError(f"{place_of(node)}sinks {who!r} and {names[node]!r} write into each other: "
                                  f"{other} and {path}")
        folders[path] = names[node]


def below(folder: str, name: str) -> str:
    """The path of a name in a folder."""
    return folder + name if folder.endswith("://") else f"{folder.rstrip('/')}/{name}"


def folder_of(sink: Sink) -> str:
    """A sink's folder, called the same however its path is written (`out`, `./out/`, `file:///…/out`)."""
    return sink_folder(sink).uri.rstrip("/")


def sink_folder(sink: Sink) -> Folder:
    return Folder.open(str(sink.path), dict(getattr(sink, "storage_options", None) or {}) or None)


def written_to(out: Folder, stages: Iterable[Stage]) -> tuple[str, ...]:
    """The folders that a run writes to, and the files beside them, each with a slash at its end."""
    sinks = [stage for stage in stages if isinstance(stage, Sink)]
    places = [*(out.path_of(name) for name in (DATA, *ASIDE)), *(folder_of(sink) for sink in sinks),
              *(sink.place for sink in sinks if isinstance(sink, ToFile))]
    return tuple(f"{place}/" for place in places)


def _run_folder(pipeline: Graph) -> tuple[str, dict[str, Any] | None]:
    """The run's folder, and what its filesystem wants to know."""
    stated = _stated(pipeline)
    if stated is not None:
        return stated, _options(pipeline, pipeline.sinks[0])
    first = pipeline.sinks[0]
    if all(node.sink.path is None for node in pipeline.sinks):
        raise RecipeError(f"{place_of(first)}it is not said where to write: give `out: out/` in a recipe, "
                          "write(\"out/\") or run(out=\"out/\") in Python, --out out/ on the command line")
    raise RecipeError(f"{place_of(first)}there are {len(pipeline.sinks)} sinks, and no folder for the run: "
                      "give `out: FOLDER` in a recipe, run(out=FOLDER) in Python. A sink without a path then "
                      "writes to FOLDER/data/<its name>")


def _stated(pipeline: Graph) -> str | None:
    """The run's folder: as the settings say, else the path of the only sink."""
    if pipeline.settings.out is not None or len(pipeline.sinks) != 1:
        return pipeline.settings.out
    return pipeline.sinks[0].sink.path


def _own(pipeline: Graph, node: Node) -> str | None:
    """The path that a sink has of its own: one that is the run's folder stands for what is written there."""
    path, stated = node.sink.path, _stated(pipeline)
    same = (path is not None and stated is not None
            and folder_of(node.sink) == Folder.open(stated).uri.rstrip("/"))
    return None if same else path


def _options(pipeline: Graph, first: Node) -> dict[str, Any] | None:
    own = getattr(first.stage, "storage_options", None) if _own(pipeline, first) is None else None
    return dict(pipeline.settings.storage_options) or dict(own or {}) or None


def without_path(sink: Sink) -> Sink:
    """The sink, to be written wherever the run's folder is."""
    return _with_path(sink, None, None)


def _with_path(sink: Sink, path: str | None, options: dict[str, Any] | None) -> Sink:
    sink = copy.copy(sink)
    object.__setattr__(sink, "path", path)
    if options and not getattr(sink, "storage_options", None):
        object.__setattr__(sink, "storage_options", options)
    return sink
