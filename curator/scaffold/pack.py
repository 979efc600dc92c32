"""A new pack: files that install, run and pass the kit as they are."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template

from curator.api.errors import CuratorError
from curator.registry import packs

FILES = {  # where a file of the pack goes, and the template that it is made from
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
    "$package/__init__.py": "init.py.txt",
    "$package/py.typed": "py.typed.txt",
    "$package/text_length.py": "text_length.py.txt",
    "$package/recipes/clean.yaml": "clean.yaml.txt",
    "$package/rules/length.yaml": "length.yaml.txt",
    "tests/test_pack.py": "test_pack.py.txt",
    "examples/texts.jsonl": "texts.jsonl.txt",
}
STAGE = "text_length"


def new_pack(name: str, folder: Path | None = None) -> tuple[Path, list[Path]]:
    """Write the files of a pack called `name` into a new folder (`curator-NAME` by default), or an empty one.
    Gives the folder and the files.

    Raises:
        CuratorError: the name cannot be one, or is taken; or something lies in the folder.
    """
    check_name(name)
    folder = folder or Path(f"curator-{name.replace('_', '-')}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise CuratorError(f"{folder} {what}, and nothing is overwritten: name another folder, "
                           f"curator new pack {name} FOLDER")
    major, minor = importlib.metadata.version("curator-core").split(".")[:2]
    below = f"0.{int(minor) + 1}" if major == "0" else f"{int(major) + 1}"
    words = {"name": name, "package": f"curator_{name}", "distribution": f"curator-{name.replace('_', '-')}",
             "core": f">={major}.{minor},<{below}"}
    templates = files("curator.scaffold").joinpath("pack")
    made = []
    for target, template in FILES.items():
        path = folder / Template(target).substitute(words)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(Template(templates.joinpath(template).read_text(encoding="utf-8")).substitute(words))
        made.append(path)
    return folder, made


def check_name(name: str) -> None:
    """Raises a CuratorError if no pack can be called so here."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise CuratorError(f"{name!r} cannot be the name of a pack: it begins names of stages and ends that "
                           "of a Python package, so it has small letters, digits and _, a letter first: "
                           "curator new pack geo")
    for pack in packs.installed():
        if name == pack.name:
            raise CuratorError(f"a pack {name!r} is installed already ({pack.distribution} {pack.version}, "
                               f"{pack.place}): choose another name")
    if name == STAGE or packs.find_stage(name) is not None:
        raise CuratorError(f"{name!r} is the name of a stage: choose another one for the pack")
    if importlib.util.find_spec(f"curator_{name}") is not None:
        raise CuratorError(f"there is a Python package curator_{name} already, which is no pack: "
                           "choose another name")
