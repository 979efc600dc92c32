"""What a ledger removes, and the proof that this output made it: the name of a file, or of a folder above, has its id."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence

from curator.api.stage import SIDE_OUTPUTS
from curator.io.files.folder import Folder
from curator.io.files.listing import CLUSTERS, DATA
from curator.pipeline.plan import SPOOLS, Step
from curator.run.folder.owner import Owner


class Removal:
    """The files of one phase (`number`, from 0) in a run's folder and in those of its sinks.

    `sinks`: every sink of the plan, in whose folders an interrupted attempt may have left files; which phase a sink is in
    may have changed since.
    """

    def __init__(self, out: Folder, number: int, sinks: Sequence[Step], owner: Owner) -> None:
        self.out, self.sinks = out, sinks
        self._names = {inside: owner.names(number, inside) for inside in (True, False)}

    def full_path(self, path: str) -> str:
        """The path or URL of a file as records hold it."""
        return path if _absolute(path) else self.out.path_of(path)

    def relative(self, path: str) -> str:
        """A path as records hold it: relative to the run's folder where it lies below it."""
        root = self.out.path_of("").rstrip("/") + "/"
        path = path if _absolute(path) else os.path.abspath(path)
        return path[len(root):] if path.startswith(root) else path

    def sweep(self, doomed: Collection[str], named: Iterable[str]) -> None:
        """Delete `doomed`, and all files of ours that are not `named`, which is asked only if there are any.

        Nobody may be writing: a file is named only once its unit is finished.
        """
        places = {self.out.path_of(f): self.out for f in ("_run/state", SPOOLS, DATA, CLUSTERS, *SIDE_OUTPUTS)}
        for step in self.sinks:
            folder = Folder.open(str(step.stage.path), dict(getattr(step.stage, "storage_options", None) or {}) or None)
            places.setdefault(folder.uri, folder)
        outer = [Folder(place, folder.storage_options) for place, folder in places.items()
                 if not any(place.startswith(other + "/") for other in places)]
        # What is above the file or folder that is named after an attempt does not matter.
        found = [{n: own for n in folder.everything() if (own := self._own_name(folder.path_of(n)))} for folder in outer]
        unnamed = {name for there in found for name in there.values()}
        gone = {path for path in doomed if self._own_name(path)}
        if unnamed or gone:
            for path in named:
                gone.discard(path)
                unnamed.discard(self._own_name(path))
        for path in gone:
            self._remove(path, places | {self.out.uri.rstrip("/"): self.out})
        for folder, there in zip(outer, found, strict=True):
            folder.delete([n for n, name in there.items() if name in unnamed])

    def _own_name(self, path: str) -> str:
        """The part of a path which proves that this output made it in this phase; empty if it did not."""
        proof: re.Match[str] | None = self._names[not _absolute(path) or path.startswith(self.out.path_of(""))].search(path)
        return proof[1] if proof else ""

    def _remove(self, path: str, places: dict[str, Folder]) -> None:
        """Delete a file below the output or in a sink's folder; behind a link there it does not.

        A sink that wrote elsewhere before has no folder in the plan any more: of its files only the name tells.
        """
        full = self.full_path(path)
        if ".." in full.split("/"):  # no line of ours has that
            return
        place = max((p for p in places if full.startswith(p + "/")), key=len, default=None)
        above, name = full.rsplit("/", 1) if place is None else (place, full[len(place) + 1:])
        Folder(above, (self.out if place is None else places[place]).storage_options).delete([name])


def _absolute(path: str) -> bool:
    return path.startswith("/") or "://" in path
