"""Parquet shards of a run, and where on the Hugging Face hub they go when it has ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import WrittenFile, setting
from curator.io.files.faults import lacking
from curator.io.hub.push import Push
from curator.io.tables.parquet import ToParquet

_REPO, _NAME = re.compile(r"[\w.-]+/[\w.-]+"), re.compile(r"\w[\w.-]*")


@dataclass(kw_only=True)
class ToHub(ToParquet):
    """Write Parquet files, and push them to a dataset of the Hugging Face hub when the run has ended well.

    They are one split of one configuration there: what an earlier push made of it is replaced, and nothing
    else is touched. The dataset's card gets the split, its features and counts, and how it was made: funnel,
    sources, recipe, licence. A card that somebody has edited keeps its text. Everything appears in one commit
    (of each 1,000 files), after all is uploaded. A push that was broken off is continued by the same command,
    and what is there already is not sent again.

    `repo`: `owner/name`, made if it is not there. `split`, `config`: what the files are there. `private`:
    whether a dataset that is made is private. `revision`: a branch, made if it is not there; None for the
    main one. The rest as for `parquet`. The token is taken from HF_TOKEN, or is that of `hf auth login`.
    """

    repo: str = setting()
    split: str = setting(default="train")
    config: str = setting(default="default")
    private: bool = setting(default=True)
    revision: str | None = setting(default=None)

    name = "to_hub"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _REPO.fullmatch(str(self.repo)):
            raise ValueError(f"repo must be owner/name, got {self.repo!r}")
        for name, given in (("split", self.split), ("config", self.config)):
            if not _NAME.fullmatch(str(given)):
                raise ValueError(f"{name} must be a name of letters, digits, `_`, `.` and `-`, got {given!r}")

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        try:
            from huggingface_hub import get_token
        except ImportError as error:
            raise RecipeError(lacking("huggingface_hub", "a push to the hub needs")) from error
        if get_token() is None:
            raise RecipeError("a push to the hub needs a token that may write: set HF_TOKEN, or log in by "
                              "`hf auth login`")

    def publish(self, files: Sequence[WrittenFile], about: str) -> str:
        return Push(repo=self.repo, config=self.config, split=self.split, private=self.private,
                    revision=self.revision, options=self.storage_options).send(files, about)
