"""A pipeline made in Python as a recipe that loads again as the same one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curator.api.errors import RecipeError
from curator.outside.memory import is_memory
from curator.pipeline.graph import Graph
from curator.recipe import dump, load
from curator.recipe.dump import plain
from curator.registry import packs


def to_yaml(pipeline: Graph) -> str:
    """The recipe of a pipeline; see `Pipeline.to_yaml`."""
    if pipeline.ends or not pipeline.sinks:
        raise RecipeError("a recipe says where everything goes: end the pipeline with a sink, for example >> "
                          "write(\"out/\")")
    nodes, names = pipeline.nodes(), pipeline.names()
    for node in nodes:
        if is_memory(node.stage):
            raise RecipeError("YAML cannot say rows that are in memory: write them to a file, and read that")
        for stage in (node.stage, *node.stage.inner().values()):
            if packs.name_of(stage) is None:
                raise RecipeError(f"YAML cannot say stage {names[node]!r}, which is "
                                  f"{packs.described(stage)}, code that no module has by that name: "
                                  "put it into a module of its own, or a pack (docs/packs.md)")
    text = dump(pipeline)
    try:
        before, after = _said(pipeline), _said(load(text))
    except RecipeError as error:
        raise RecipeError(f"YAML cannot say this pipeline: {error}") from None
    different = [name for name in before if before[name] != after.get(name)]
    if different:
        raise RecipeError(f"YAML cannot say all that {' and '.join(map(repr, different))} "
                          f"{'is' if len(different) == 1 else 'are'} in Python: give texts, numbers, lists "
                          "and mappings as parameters")
    return text


def _said(pipeline: Graph) -> Mapping[str, Any]:
    """What makes two pipelines the same, by the name of the stage; secrets, which YAML hides, aside."""
    names, settings = pipeline.names(), pipeline.settings
    stages = {names[node]: (node.stage.fingerprint(),
                            sorted((names[end.node], end.port) for end in node.inputs),
                            plain(getattr(node.stage, "path", None)), node.stage.resources,
                            node.stage.batch_size, node.stage.timeout_s) for node in pipeline.nodes()}
    return stages | {"the settings": (pipeline.name, settings.max_failed, sorted(settings.discard),
                                      plain(settings.out), settings.description, settings.license)}
