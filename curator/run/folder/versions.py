"""Which versions a run reads: commits of the hub, versions and snapshots of tables.

They are the newest when it began, to its end, however often it is stopped; the same for its shards and the
run that gathers them. When it has ended well they are forgotten: the next one reads what is new.
"""

from __future__ import annotations

import json
import time

from curator.api.errors import InputError
from curator.api.stage import Source
from curator.io.files.folder import Folder
from curator.pipeline.plan import Plan
from curator.run.folder.guard import VERSIONS, paths_of

TRIES, WAIT_S = 20, 0.1  # for a shard beside this one to have written them

Versions = dict[str, "str | int"]


def versions_of(plan: Plan) -> Versions:
    """By what is read, what its sources are pinned to."""
    return {key: source.pinned for key, source in _sources(plan) if source.pinned is not None}


def hold(plan: Plan, in_shards: bool) -> list[str]:
    """Pin the sources as the run here began; gives what to tell people. `in_shards`: several may begin it."""
    for _, source in _sources(plan):
        source.pin()
    if not (newest := versions_of(plan)):
        return []
    folder, notes = plan.out.sub("_run"), []
    if in_shards:
        folder.make()
        folder.create(VERSIONS, json.dumps(newest).encode())
    kept = _read(folder)
    if in_shards and (others := newest.keys() - kept.keys()):  # the shards would not agree on a version
        raise InputError(f"{folder.path_of(VERSIONS)} is of a run that did not read {min(others)}: write to "
                         "another folder, or remove this file if that run is not to go on")
    for key, source in _sources(plan):
        began = kept.get(key)
        if began is None or began == source.pinned:
            continue
        old, new = _told_apart(began, newest.get(key, "nothing"))
        try:
            source.pin(began)
            notes.append(f"{key} has changed since this run began: it goes on with version {old}, and the "
                         f"next run reads {new}")
        except InputError as error:
            notes.append(f"{key} cannot be read as it was when this run began ({error}): it goes on with "
                         f"version {new}")
    return notes


def keep(plan: Plan) -> None:
    """Until the run has ended well."""
    if found := versions_of(plan):
        plan.out.sub("_run").write(VERSIONS, json.dumps(found).encode())


def forget(plan: Plan) -> None:
    """Also those of sources that the recipe had before it was edited."""
    plan.out.sub("_run").delete(VERSIONS)


def _told_apart(one: str | int, other: str | int) -> tuple[str, str]:
    """Two versions as they are usually written: of the hub's, the commits that differ."""
    pairs = zip(str(one).split("/"), str(other).split("/"), strict=False)
    old, new = next((pair for pair in pairs if pair[0] != pair[1]), (str(one), str(other)))
    return (old[:10], new[:10]) if len(old) == 40 else (old, new)


def _sources(plan: Plan) -> list[tuple[str, Source]]:
    """By what is asked for, so that another `revision` in the recipe is another thing. A name that two
    sources share, as tables of two catalogs may, is followed by that of the step."""
    found: dict[str, Source] = {}
    for step in plan.steps:
        if isinstance(source := step.stage, Source):
            revision = getattr(source, "revision", None)
            asked = ", ".join(paths_of(source)) + (f"@{revision}" if revision else "")
            found[f"{asked} ({step.name})" if asked in found else asked] = source
    return list(found.items())


def _read(folder: Folder) -> Versions:
    for _ in range(TRIES):
        if not folder.exists(VERSIONS):
            return {}
        if data := folder.read(VERSIONS):
            return json.loads(data)
        time.sleep(WAIT_S)
    raise InputError(f"{folder.path_of(VERSIONS)} is empty: remove it")
