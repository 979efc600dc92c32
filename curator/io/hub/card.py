"""The card of a dataset on the hub, with one split more."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

from curator.io.card import head_text, is_sealed, sealed
from curator.io.hub.contents import head_of, without_head

_SECTION = re.compile(r"^<!-- configuration (\S+) -->\n", re.M)


@dataclass(frozen=True, kw_only=True)
class Split:
    """`path`: its files, as a pattern. `features`: its columns, None where they cannot be told."""

    name: str
    path: str
    rows: int
    size_bytes: int
    features: list[dict[str, Any]] | None


@dataclass(frozen=True)
class Card:
    """`former`: the head that it had."""

    text: str
    head: dict[str, Any]
    former: dict[str, Any]


def merged(card: str | None, repo: str, config: str, split: Split, about: str) -> Card:
    """The card with this split in its head, and in its text how the configuration was made. A text that
    somebody has edited stays."""
    former = head_of(card or "")
    head = _head(former, config, split, head_of(about))
    if card is not None and not is_sealed(card):
        body = without_head(card)
        return Card(f"---\n{head_text(head)}---\n{body}", head, former)
    sections = _sections(card or "")
    how = f'```python\nload_dataset("{repo}", "{config}")\n```'
    sections[config] = f"{without_head(about).strip()}\n\n## To load it\n\n{how}\n"
    body = "\n".join(f"<!-- configuration {name} -->\n{text.strip()}\n" for name, text in sections.items())
    return Card(sealed(f"---\n{head_text(head)}---\n\n{body}"), head, former)


def _sections(card: str) -> dict[str, str]:
    """What a card says of each configuration."""
    parts = _SECTION.split(card.rpartition("\n<!-- Written by")[0])[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _head(former: dict[str, Any], config: str, split: Split, about: dict[str, Any]) -> dict[str, Any]:
    head = copy.deepcopy(former)
    if about.get("license"):
        head.setdefault("license", about["license"])
    configs = head.setdefault("configs", [])
    entry = _entry(configs, config, {"data_files": []})
    entry["data_files"] = _with(_as_list(entry["data_files"]), "split", split.name, {"path": split.path})
    if len(configs) > 1 and not any(one.get("default") for one in configs):
        configs[0]["default"] = True
    infos = head.get("dataset_info") or []
    infos = head["dataset_info"] = infos if isinstance(infos, list) else [{"config_name": "default", **infos}]
    info = _entry(infos, config, {})
    others = [one for one in info.get("splits", []) if one.get("name") != split.name]
    if split.features is None or (others and info.get("features") not in (None, split.features)):
        info.pop("features", None)  # each file says its own
    else:
        info["features"] = split.features
    info["splits"] = _with(info.get("splits", []), "name", split.name,
                           {"num_bytes": split.size_bytes, "num_examples": split.rows})
    info["download_size"] = info["dataset_size"] = sum(one.get("num_bytes", 0) for one in info["splits"])
    return head


def _entry(entries: list[dict[str, Any]], config: str, new: dict[str, Any]) -> dict[str, Any]:
    """The entry of a configuration, made if there is none."""
    for entry in entries:
        if entry.get("config_name", "default") == config:
            return entry
    entries.append({"config_name": config, **new})
    return entries[-1]


def _with(entries: list[dict[str, Any]], key: str, name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries with this one, in its old place or at the end."""
    new = {key: name, **values}
    if any(entry.get(key) == name for entry in entries):
        return [new if entry.get(key) == name else entry for entry in entries]
    return [*entries, new]


def _as_list(data_files: Any) -> list[dict[str, Any]]:
    if isinstance(data_files, list) and all(isinstance(one, dict) for one in data_files):
        return data_files
    return [{"split": "train", "path": data_files}] if data_files else []
