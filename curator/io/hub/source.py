"""Datasets of the Hugging Face hub, by configuration and split."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import quote

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, Unit, setting
from curator.io.files.faults import explained
from curator.io.files.folder import FileInfo, Folder, ahead, list_files
from curator.io.files.listing import ending
from curator.io.hub.contents import (
    CONVERTED,
    config_of,
    head_of,
    splits_by_card,
    splits_by_name,
    splits_converted,
)
from curator.io.media.webdataset import WebDataset
from curator.io.source import FileSource, VersionedSource, passed_over
from curator.io.tables.arrow import Arrow
from curator.io.tables.csv import Csv
from curator.io.tables.jsonl import Jsonl
from curator.io.tables.parquet import Parquet

READERS: tuple[type[FileSource], ...] = (Parquet, Jsonl, Csv, Arrow, WebDataset)
PREFIX = "hf://datasets/"
_REPO = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(kw_only=True)
class Hub(VersionedSource):
    """Read a dataset of the Hugging Face hub, streamed from there: no more of it is kept than what is worked
    on.

    Adds the column `split`, if the dataset has none. Which files it has is said by the configurations of its
    card, or else by their names; where none of them is a table, or a script makes it, the Parquet files are
    taken that the hub converts datasets to (the branch refs/convert/parquet; of large ones that has the first
    5 GB, as the split `partial-train`).

    `path`: `owner/name`, or `hf://datasets/owner/name@revision`. `config`: the configuration; None for the
    default. `split`: one or several; None for all. `revision`: a branch, tag or commit. `select`,
    `id_column`, `unit_bytes`: as for `parquet`. `storage_options`: endpoint. The token for private datasets
    is taken from HF_TOKEN, or is that of `hf auth login`.
    """

    config: str | None = setting(default=None)
    split: str | list[str] | None = setting(default=None)
    revision: str | None = setting(default=None)

    name = "hub"
    _split_of = dict[str, str]()  # by URL, where there are several splits
    _only = ""  # where there is one

    def __post_init__(self) -> None:
        super().__post_init__()
        self._reader: FileSource | None = None  # made on the driver
        bare = str(self.path).removeprefix(PREFIX).strip("/")
        repo, at, revision = bare.partition("@")
        if not _REPO.fullmatch(repo) or (at and not revision):
            raise ValueError("path must be owner/name or hf://datasets/owner/name, with @revision if need "
                             f"be, got {self.path!r}; for single files name their format, such as parquet")
        if at and self.revision not in (None, revision):
            raise ValueError(f"path says the revision {revision!r}, and revision says {self.revision!r}")
        self._repo, self._revision = repo, revision or self.revision

    def pin(self, version: str | int | None = None) -> None:
        """`version`: the commit that is read, and that of the branch of converted files."""
        if version is None:
            self.pinned = f"{self._commit(self._revision)}/{self._commit(CONVERTED)}"
            return
        newest, self.pinned = self.pinned, version
        try:
            self._found()
        except InputError as error:
            self.pinned = newest
            raise InputError(f"{PREFIX}{self._repo} has no such commit any more: {version}") from error

    def remarks(self) -> list[str]:
        return passed_over(self._folder(self._revision).uri, self.passed)

    def units(self) -> list[Unit]:
        reader = self._chosen()
        units = reader.units()
        reader.listed = []  # or it would travel to each worker
        return units

    def columns(self) -> dict[str, pa.DataType | None]:
        return {"split": pa.string(), **self._chosen().columns()}

    def read(self, unit: Unit) -> Iterator[Batch | Outputs]:
        assert self._reader is not None, "units or columns is called first"
        for part in ahead(unit.parts, self._reader.storage_options):
            for given in self._reader.read(replace(unit, parts=(part,))):
                if isinstance(given, Batch) and "split" not in given.columns:
                    split = self._split_of.get(part.uri, self._only)
                    given = given.with_columns({"split": pa.array([split] * len(given), pa.string())})
                yield given

    def _folder(self, revision: str | None) -> Folder:
        """Named as it is asked for, and read as it was when it was pinned: names are to stay the same."""
        at = f"@{quote(revision, '/' if revision.startswith('refs/') else '')}" if revision else ""
        uri, commits = f"{PREFIX}{self._repo}{at}", str(self.pinned).split("/")
        commit = commits[-1 if revision == CONVERTED else 0]
        pinned = {"pinned": (uri, f"{PREFIX}{self._repo}@{commit}")} if commit else {}
        return Folder.open(uri, {**(self.storage_options or {}), **pinned} or None)

    def _commit(self, revision: str | None) -> str:
        """The newest one of a branch, that of a tag; "" where nothing is seen, which the listing says."""
        place = Folder.open(f"{PREFIX}{self._repo}", self.storage_options)
        with explained("read", place.uri):
            from huggingface_hub import HfApi
            from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

            try:
                hub = place.fsspec()
                about = HfApi(endpoint=hub.endpoint, token=hub.token).repo_info(
                    self._repo, repo_type="dataset", revision=revision)
            except (RepositoryNotFoundError, RevisionNotFoundError):
                return ""
        return str(about.sha)

    def _chosen(self) -> FileSource:
        """The reader of the files, which it has been told."""
        if self.pinned is None:
            self.pin()
        folder, splits, files = self._found()
        there = ", ".join(splits)
        wanted = [self.split] if isinstance(self.split, str) else self.split or list(splits)
        if lacking := [one for one in wanted if one not in splits]:
            raise InputError(f"{folder.uri} has no split {lacking[0]!r}; there are {there}")
        by_uri = {folder.path_of(path): split for split in wanted for path in splits[split]}
        kinds = {reader: [uri for uri in by_uri if uri.lower().endswith(reader.suffixes)]
                 for reader in READERS}
        kind = max(kinds, key=lambda reader: len(kinds[reader]))
        read = {by_uri[uri] for uri in kinds[kind]}
        if other := [split for split in wanted if split not in read]:
            raise InputError(f"{folder.uri} has splits in several formats: {', '.join(sorted(read))} in "
                             f"{kind.name}, and {', '.join(other)} not. Read them one after another, by "
                             "split=")
        self.passed = Counter(ending(uri) or "no ending" for uri in by_uri
                              if not uri.lower().endswith(kind.suffixes))
        self._split_of, self._only = (by_uri if len(wanted) > 1 else {}), wanted[0]
        reader = kind(path=kinds[kind], select=self.select, id_column=self.id_column,
                      storage_options=folder.storage_options, unit_bytes=self.unit_bytes)
        reader.listed = [files[uri] for uri in sorted(kinds[kind])]
        self._reader = reader
        return reader

    def _found(self) -> tuple[Folder, dict[str, list[str]], dict[str, FileInfo]]:
        """Where the files lie, those of each split, and each by its URL."""
        folder = self._folder(self._revision)
        files = {file.uri: file for file in list_files(folder.uri, folder.storage_options)}
        paths = [uri[len(folder.path_of("")):] for uri in files]
        script = f"{self._repo.rpartition('/')[2]}.py" in paths
        tables = [path for path in paths if _is_table(path)]
        head = head_of(folder.read("README.md").decode()) if "README.md" in paths else {}
        try:
            config = config_of(head, self.config)
            if config is not None and (splits := splits_by_card(config, tables)):
                return folder, splits, files
            if tables and not script and self.config is None and config is None:
                return folder, splits_by_name(tables), files
            return self._converted(folder)
        except InputError as error:
            raise InputError(f"cannot read {folder.uri}: {error}") from error.__cause__

    def _converted(self, folder: Folder) -> tuple[Folder, dict[str, list[str]], dict[str, FileInfo]]:
        branch = self._folder(CONVERTED)
        try:
            if self._revision is not None:
                raise InputError("")  # what is converted is the main branch
            files = {file.uri: file for file in list_files(branch.uri, branch.storage_options)}
        except InputError as error:
            named = f"no configuration {self.config!r}" if self.config else f"no file that ends in {_ENDINGS}"
            raise InputError(f"its card and files name {named}, and there is no branch {CONVERTED}. Name "
                             "files with a path, and their format, such as files") from error
        splits = splits_converted(self.config, [uri[len(branch.path_of("")):] for uri in files])
        if not splits:
            raise InputError(f"the branch {CONVERTED} has no Parquet file")
        return branch, splits, files


_ABOUT = ("dataset_infos.json", "dataset_info.json", "state.json")  # JSON that is no data
_SUFFIXES = tuple(suffix for reader in READERS for suffix in reader.suffixes)
_ENDINGS = ", ".join(dict.fromkeys(s for reader in READERS for s in reader.suffixes[:1]))


def _is_table(path: str) -> bool:
    name = path.rpartition("/")[2]
    return not name.startswith((".", "_")) and name not in _ABOUT and name.lower().endswith(_SUFFIXES)
