"""Parameters that several stages have, and what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curator.api.errors import RecipeError
from curator.api.stage import Composite

# shares of the records in one cluster, and of a source's that are lost
ALARM_ABOVE = {"cluster": 0.05, "source": 0.5}


def check_stream(stage: Composite, **usual: Any) -> None:
    """What decides as records flow by cannot choose among them: these parameters must be as usual.

    Raises:
        RecipeError: naming the first that is not.
    """
    for name, value in usual.items():
        if getattr(stage, name) != value:
            raise RecipeError(f"{stage.name}: {name} needs all records that are alike: set mode: cluster, or "
                              f"leave {name} out")


def check_clustering(stage: str, radius: int | None, shards: int, alarm_above: Mapping[str, float]) -> None:
    """Raises:
        RecipeError: a parameter that all stages have which make clusters is out of range.
    """
    if radius is not None and radius < 1:
        raise RecipeError(f"{stage}: radius must be 1 or more, or null, got {radius}")
    if shards < 1:
        raise RecipeError(f"{stage}: shards must be 1 or more, got {shards}")
    unknown = set(alarm_above) - set(ALARM_ABOVE)
    if unknown:
        raise RecipeError(f"{stage}: alarm_above has {', '.join(ALARM_ABOVE)}, not "
                          f"{', '.join(sorted(unknown))}")
