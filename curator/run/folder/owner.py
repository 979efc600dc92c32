"""Which output this is: a random id in `_run/owner.json` and in the names of all files that it makes.

So a removal can prove that this output made a file: its name, or that of a folder above, has the id.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from curator.api.errors import CuratorError
from curator.api.stage import SIDE_OUTPUTS
from curator.io.files.folder import Folder
from curator.io.files.listing import CLUSTERS, DATA, RUN
from curator.io.files.local import TEMPORARY
from curator.pipeline.checkpoint import CHECKPOINTS
from curator.pipeline.layout import sink_folder
from curator.pipeline.plan import SPOOLS, Step

OWNER = "owner.json"
_NAMES = r"(?:owner|versions|manifest|profile|stats)\.json|events\.jsonl|recipe\.yaml|report\.html|README\.md"
_HALF_WRITTEN = re.compile(rf"(?:{re.escape(TEMPORARY)}(?:{_NAMES})|ledger(?:-\d+)?/{re.escape(TEMPORARY)}"
                           r"\d{8}\.jsonl)\.[0-9a-f]{8}")


@dataclass(frozen=True)
class Owner:
    """The id that an output has at the place where it lies.

    A folder that was moved or copied gets a new id for what it makes from then on. Those that it had before,
    `former`, it knows as its own inside the folder only: at a place that two copies share, a sink's own URL,
    the files of the first are not the other's.
    """

    id: str
    former: tuple[str, ...] = ()

    @classmethod
    def of(cls, out: Folder, make: bool = True) -> Owner:
        """That of a run's folder, made if it has none here yet. Nobody else may be starting there, but where
        one is not to be made.

        Raises:
            CuratorError: its file is damaged.
        """
        folder = out.sub("_run")
        known: list[str] = []
        if folder.exists(OWNER):
            try:
                found = json.loads(folder.read(OWNER))
                known = [found["id"], *found["former"]]
                if not all(re.fullmatch(r"[0-9a-f]{16}", one) for one in known):
                    raise ValueError(f"ids {known}")
                if found["made_at"] == out.uri:
                    return cls(known[0], tuple(known[1:]))
            except (ValueError, KeyError, TypeError) as error:
                raise CuratorError(f"{folder.path_of(OWNER)} is damaged ({error!r}), so it cannot be told "
                                   "which files here are this run's. Write to another folder") from error
        owner = cls(secrets.token_hex(8), tuple(known))
        if not make:
            return owner
        owner._write(out)
        return owner

    def knows(self, out: Folder, others: Iterable[Owner]) -> Owner:
        """This one, with what others made as its own too: what they made is brought into its folder."""
        ids = dict.fromkeys(id for other in others for id in (other.id, *other.former))
        owner = Owner(self.id, tuple(dict.fromkeys((*self.former, *ids))))
        owner._write(out)
        return owner

    def _write(self, out: Folder) -> None:
        made = {"id": self.id, "made_at": out.uri, "former": self.former}
        out.sub("_run").write(OWNER, json.dumps(made, indent=1).encode())

    def names(self, phase: int | None, inside: bool) -> re.Pattern[str]:
        """What the names of files of a phase (None: of any) look like, from the file or folder on that is
        named after an attempt.

        `inside`: in the run's folder, where files of former ids are this output's too.
        """
        ids = "|".join((self.id, *self.former)) if inside else self.id
        number = r"\d+" if phase is None else phase
        return re.compile(
            rf"(?:^|/)(?:{re.escape(TEMPORARY)})?(part-[0-9a-f]{{16}}-(?:{ids})-{number}-\d+-\d+(?!\d).*)$",
            re.DOTALL)


def remove_half_written(out: Folder) -> None:
    """Delete what a run that was killed had begun to write of its own files, in `_run/`. Nobody may be
    writing there."""
    folder = out.sub(RUN)
    folder.delete([name for name in folder.everything() if _HALF_WRITTEN.fullmatch(name)])


class Removal:
    """The files of one phase (`number`, from 0) in a run's folder and in those of its sinks.

    `sinks`: every sink of the plan, in whose folders an interrupted attempt may have left files; which phase
    a sink is in may have changed since.
    """

    def __init__(self, out: Folder, number: int, sinks: Sequence[Step], owner: Owner) -> None:
        self.out, self.sinks = out, sinks
        self._names = {inside: owner.names(number, inside) for inside in (True, False)}

    def relative(self, path: str) -> str:
        """A path as records hold it: relative to the run's folder where it lies below it."""
        root = self.out.path_of("").rstrip("/") + "/"
        path = path if _absolute(path) else os.path.abspath(path)
        return path.removeprefix(root)

    def sweep(self, doomed: Collection[str], named: Iterable[str]) -> None:
        """Delete `doomed`, and all files of ours that are not `named`, which is asked only if there are any.

        Nobody may be writing: a file is named only once its unit is finished.
        """
        places = {self.out.path_of(f): self.out
                  for f in ("_run/state", SPOOLS, CHECKPOINTS, DATA, CLUSTERS, *SIDE_OUTPUTS)}
        for step in self.sinks:
            folder = sink_folder(step.sink)
            places.setdefault(folder.uri, folder)
        outer = [Folder(place, folder.storage_options) for place, folder in places.items()
                 if not any(place.startswith(other + "/") for other in places)]
        # What is above the file or folder that is named after an attempt does not matter.
        found = [{n: own for n in folder.everything() if (own := self._own_name(folder.path_of(n)))}
                 for folder in outer]
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
        inside = not _absolute(path) or path.startswith(self.out.path_of(""))
        proof = self._names[inside].search(path)
        return proof[1] if proof else ""

    def _remove(self, path: str, places: dict[str, Folder]) -> None:
        """Delete a file below the output or in a sink's folder; behind a link there it does not.

        A sink that wrote elsewhere before has no folder in the plan: of its files only the name tells.
        """
        full = self.out.full_path(path)
        if ".." in full.split("/"):  # no line of ours has that
            return
        place = max((p for p in places if full.startswith(p + "/")), key=len, default=None)
        above, name = full.rsplit("/", 1) if place is None else (place, full[len(place) + 1:])
        Folder(above, (self.out if place is None else places[place]).storage_options).delete([name])


def _absolute(path: str) -> bool:
    return path.startswith("/") or "://" in path
