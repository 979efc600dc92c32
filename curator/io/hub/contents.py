"""Which files of a dataset's repository are which split: as its card says, or else as they are called."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from curator.api.errors import InputError
from curator.io.files.listing import fits

CONVERTED = "refs/convert/parquet"  # the branch on which the hub keeps datasets as Parquet
_SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "dev", "val"),
           "test": ("test", "testing", "eval", "evaluation")}
_SHARDED = re.compile(r"data/(\w[\w.-]*?)-\d{5}-of-\d{5}[^/]*\.[^/]*")


def head_of(card: str) -> dict[str, Any]:
    """What stands at the top of a card as YAML."""
    import yaml

    found = re.match(r"---\r?\n(.*?)\r?\n---[ \t]*(\r?\n|$)", card, re.S)
    try:
        head = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError as error:
        raise InputError(f"the head of its README.md is no YAML: {error}") from error
    return head if isinstance(head, dict) else {}


def without_head(card: str) -> str:
    return re.sub(r"\A---\r?\n(.*?\r?\n)?---[ \t]*(\r?\n|$)", "", card, flags=re.S)


def config_of(head: Mapping[str, Any], config: str | None) -> dict[str, Any] | None:
    """The configuration of the card that is asked for: the default one where no name is given; None where the
    card has none.

    Raises:
        InputError: there are several without a default, or others than that which is asked for.
    """
    configs = [one for one in head.get("configs") or () if isinstance(one, dict) and one.get("data_files")]
    named = {str(one.get("config_name", "default")): one for one in configs}
    if not named:
        return None
    if config is not None:
        return named.get(config)
    chosen = [name for name, one in named.items() if one.get("default")]
    chosen = chosen or [name for name in named if name == "default"]
    if not chosen and len(named) > 1:
        raise InputError(f"it has {len(named)} configurations: say config= with one of {', '.join(named)}")
    return named[(chosen or list(named))[0]]


def splits_by_card(config: Mapping[str, Any], files: Collection[str]) -> dict[str, list[str]]:
    """The files of each split of a configuration of the card."""
    given = config["data_files"]
    given = [given] if isinstance(given, (str, dict)) else given
    folder = str(config.get("data_dir") or "").strip("/")
    found: dict[str, list[str]] = {}
    for one in given:
        one = one if isinstance(one, dict) else {"path": one}
        patterns = one.get("path") or ()
        taken = found.setdefault(str(one.get("split", "train")), [])
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            whole = f"{folder}/{pattern}" if folder else str(pattern)
            taken += [file for file in matching(whole, files) if file not in taken]
    return {split: taken for split, taken in found.items() if taken}


def matching(pattern: str, files: Iterable[str]) -> list[str]:
    """The files that a pattern names; `**` stands for any number of folders, also in `data/**.parquet`."""
    parts = re.sub(r"(^|/)\*\*(?=[^/])", r"\1**/*", pattern.removeprefix("./").lstrip("/")).split("/")
    return sorted(file for file in files if fits(file.split("/"), parts))


def splits_by_name(files: Collection[str]) -> dict[str, list[str]]:
    """The files of each split by their names: `data/SPLIT-00000-of-00001.parquet`, or a word for a split in a
    folder's name, or in the file's; all are `train` where there is none.

    Source: huggingface.co/docs/hub/datasets-file-names-and-splits
    """
    found: dict[str, list[str]] = {}
    for file in sorted(files):
        if named := _SHARDED.fullmatch(file):
            found.setdefault(named[1], []).append(file)
    if found:
        return found
    for in_folder in (True, False):
        for file in sorted(files):
            folders, _, name = file.rpartition("/")
            said = set(re.split(r"[-._ 0-9/]+", (folders if in_folder else name.partition(".")[0]).lower()))
            if split := next((split for split, words in _SPLITS.items() if said & set(words)), None):
                found.setdefault(split, []).append(file)
        if found:
            return found
    return {"train": sorted(files)} if files else {}


def splits_converted(config: str | None, files: Collection[str]) -> dict[str, list[str]]:
    """The files of each split on the branch of converted datasets: `CONFIG/SPLIT/0000.parquet`.

    Raises:
        InputError: there are several configurations and none is asked for, or not that one.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for file in sorted(files):
        parts = file.split("/")
        if len(parts) >= 3 and file.endswith(".parquet"):
            found.setdefault(parts[0], {}).setdefault(parts[1], []).append(file)
    if config is None and len(found) > 1 and "default" not in found:
        raise InputError(f"it has {len(found)} configurations: say config= with one of {', '.join(found)}")
    wanted = config or ("default" if "default" in found else next(iter(found), ""))
    if found and wanted not in found:
        raise InputError(f"it has no configuration {wanted!r}; there are {', '.join(found)}")
    return found.get(wanted, {})
