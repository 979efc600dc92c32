"""Files of a run as a split of a dataset on the Hugging Face hub.

They lie in `CONFIG/SPLIT/` there, under the names that they have here: a name is unique to a unit and an
attempt, so one name and size is one content. `.curator/CONFIG/SPLIT.json` lists what pushes have put there:
only that is ever removed. It is in the same commit as the files.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curator.api.errors import InputError
from curator.api.format import plural, size
from curator.api.stage import WrittenFile
from curator.io.card import feature
from curator.io.files.faults import explained
from curator.io.files.folder import open_input
from curator.io.hub.card import Split, merged
from curator.io.tables.parts import schema_of

COMMIT_FILES = 1000
UPLOAD_FILES, UPLOAD_BYTES = 100, 5 << 30  # uploaded together; of a run elsewhere they lie here meanwhile
SCHEMAS = 64  # files that are looked into for their columns
TRIES, WAIT_S = 5, 2.0
_PASSING = (408, 409, 412, 429, 500, 502, 503, 504)


@dataclass(frozen=True, kw_only=True)
class Push:
    """Where files go. `options`: of the filesystem that they are on."""

    repo: str
    config: str
    split: str
    private: bool
    revision: str | None
    options: dict[str, Any] | None

    @property
    def url(self) -> str:
        return f"hf://datasets/{self.repo}" + (f"@{self.revision}" if self.revision else "")

    @property
    def folder(self) -> str:
        return f"{self.config}/{self.split}"

    @property
    def listed(self) -> str:
        return f".curator/{self.folder}.json"

    def send(self, files: Sequence[WrittenFile], about: str) -> str:
        """Make the split what these files are. What went wrong in passing is tried again, from what is there.

        Raises:
            InputError: it cannot be pushed; nothing of it is seen, or the first thousands of files.
        """
        split = Split(name=self.split, path=f"{self.folder}/*.parquet", rows=sum(f.rows for f in files),
                      size_bytes=sum(f.size_bytes for f in files), features=self._features(files))
        for attempt in range(TRIES):
            try:
                with explained("write", self.url):
                    return self._send(files, about, split)
            except InputError as error:
                if attempt == TRIES - 1 or not _passes(error):
                    raise
            time.sleep(WAIT_S * 2**attempt)
        raise AssertionError("the last try ends it")

    def _send(self, files: Sequence[WrittenFile], about: str, split: Split) -> str:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

        api = HfApi()
        api.create_repo(self.repo, repo_type="dataset", private=self.private, exist_ok=True)
        if self.revision is not None:
            api.create_branch(self.repo, branch=self.revision, repo_type="dataset", exist_ok=True)
        head = str(api.repo_info(self.repo, repo_type="dataset", revision=self.revision).sha)
        there = self._there(api, head)
        wanted = {f"{self.folder}/{file.path.rpartition('/')[2]}": file for file in files}
        owned = set(json.loads(self._content(api, self.listed, head) or '{"files": []}')["files"])
        self._check_strangers(there, owned)
        missing = [path for path, file in wanted.items() if there.get(path) != file.size_bytes]
        old = sorted((owned & there.keys()) - wanted.keys())
        before = self._content(api, "README.md", head)
        card = merged(before, self.repo, self.config, split, about)
        if not missing and not old and card.head == card.former:
            return f"{self.url} has all {plural(len(files), 'file')} of {self.folder} already."
        adds = self._uploaded(api, {path: wanted[path] for path in missing})
        parts = [adds[at:at + COMMIT_FILES] for at in range(0, len(adds), COMMIT_FILES)] or [[]]
        for number, part in enumerate(parts, 1):
            last = number == len(parts)
            names = sorted(wanted if last else owned | wanted.keys())
            more: list[CommitOperationAdd | CommitOperationDelete] = [
                CommitOperationAdd(self.listed, json.dumps({"files": names}, indent=0).encode())]
            if last:
                more += [CommitOperationAdd("README.md", card.text.encode())]
                more += [CommitOperationDelete(path) for path in old]
            said = f"{self.folder}: {plural(len(files), 'file')}, commit {number} of {len(parts)}"
            # refused if somebody has committed since we looked: then it is tried again from what is there
            head = api.create_commit(self.repo, [*part, *more], repo_type="dataset", revision=self.revision,
                                     commit_message=said, parent_commit=head).oid
        sent = size(sum(wanted[path].size_bytes for path in missing))
        removed = f"; removed {len(old)} of an earlier push" if old else ""
        return (f"Pushed {plural(len(missing), 'file')} ({sent}) to {self.url} as {self.folder}, in "
                f"{plural(len(parts), 'commit')}{removed}.")

    def _there(self, api: Any, revision: str) -> dict[str, int]:
        """The files of the split, each with its size."""
        from huggingface_hub.errors import EntryNotFoundError

        try:
            found = list(api.list_repo_tree(self.repo, self.folder, recursive=True, repo_type="dataset",
                                            revision=revision))
        except EntryNotFoundError:
            return {}
        return {entry.path: entry.size for entry in found if hasattr(entry, "size")}

    def _content(self, api: Any, path: str, revision: str) -> str | None:
        from huggingface_hub.errors import EntryNotFoundError

        with tempfile.TemporaryDirectory(prefix="curator-push-") as folder:
            try:
                return Path(api.hf_hub_download(self.repo, path, repo_type="dataset", revision=revision,
                                                local_dir=folder)).read_text("utf-8")
            except EntryNotFoundError:
                return None

    def _check_strangers(self, there: dict[str, int], owned: set[str]) -> None:
        strange = sorted(path for path in there.keys() - owned if path.endswith(".parquet"))
        if strange:
            raise InputError(f"cannot push to {self.url}: {self.folder}/ has {plural(len(strange), 'file')} "
                             f"that no push put there, such as {strange[0]}. Name another config or split, "
                             "or remove them")

    def _uploaded(self, api: Any, wanted: dict[str, WrittenFile]) -> list[Any]:
        """The operations of a commit for files, whose content is on the hub then."""
        from huggingface_hub import CommitOperationAdd

        made = []
        for some in _batches(wanted):
            with tempfile.TemporaryDirectory(prefix="curator-push-") as folder:
                adds = [CommitOperationAdd(path, self._here(file.path, folder))
                        for path, file in some.items()]
                api.preupload_lfs_files(self.repo, adds, repo_type="dataset", revision=self.revision)
                made += adds
        return made

    def _here(self, path: str, folder: str) -> str:
        """The file on this machine."""
        if "://" not in path:
            return path
        copy = f"{folder}/{path.rpartition('/')[2]}"
        with open_input(path, self.options, None) as file, open(copy, "wb") as out:
            shutil.copyfileobj(file, out, 8 << 20)
        return copy

    def _features(self, files: Sequence[WrittenFile]) -> list[dict[str, Any]] | None:
        """The columns of the files as loaders are told them, None where they cannot be told."""
        try:
            columns = schema_of(files[::max(1, len(files) // SCHEMAS)], self.options)
        except InputError:  # of types that nothing joins
            return None
        found = [told for column in columns if (told := feature(column)) is not None]
        return found if found and len(found) == len(columns) else None


def _batches(files: dict[str, WrittenFile]) -> Iterator[dict[str, WrittenFile]]:
    some: dict[str, WrittenFile] = {}
    for path, file in files.items():
        if some and (len(some) >= UPLOAD_FILES or sum(f.size_bytes for f in some.values()) >= UPLOAD_BYTES):
            yield some
            some = {}
        some[path] = file
    if some:
        yield some


def _passes(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, may go away."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None:
            return status in _PASSING
        name = type(error).__name__.lower()
        if "timeout" in name or "connect" in name or "protocolerror" in name:
            return True
        error = error.__cause__
    return False
