"""Which output this is: a random id in `_run/owner.json` and in the names of all files that it makes."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass

from curator.api.errors import CuratorError
from curator.io.files.folder import Folder
from curator.io.files.local import TEMPORARY

OWNER = "owner.json"


@dataclass(frozen=True)
class Owner:
    """The id that an output has at the place where it lies.

    A folder that was moved or copied gets a new id for what it makes from then on. Those that it had before, `former`, it
    knows as its own inside the folder only: at a place that two copies share, a sink's own URL, the files of the first are
    not the other's.
    """

    id: str
    former: tuple[str, ...] = ()

    @classmethod
    def of(cls, out: Folder) -> Owner:
        """That of a run's folder, made if it has none here yet. Nobody else may be starting there.

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
                raise CuratorError(f"{folder.path_of(OWNER)} is damaged ({error!r}), so it cannot be told which files here are "
                                   "this run's. Write to another folder") from error
        owner = cls(secrets.token_hex(8), tuple(known))
        made = {"id": owner.id, "made_at": out.uri, "former": known}
        folder.write(OWNER, json.dumps(made, indent=1).encode())
        return owner

    def names(self, phase: int | None, inside: bool) -> re.Pattern[str]:
        """What the names of files of a phase (None: of any) look like, from the file or folder on that is named after an attempt.

        `inside`: in the run's folder, where files of former ids are this output's too.
        """
        ids, number = "|".join((self.id, *self.former)) if inside else self.id, r"\d+" if phase is None else phase
        return re.compile(
            rf"(?:^|/)(?:{re.escape(TEMPORARY)})?(part-[0-9a-f]{{16}}-(?:{ids})-{number}-\d+-\d+(?!\d).*)$", re.DOTALL)
