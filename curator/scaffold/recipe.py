"""A new recipe: commented, for the input that is there, and runs as it is."""

from __future__ import annotations

import json
import re
import shlex
from importlib.resources import files
from pathlib import Path
from string import Template

import pyarrow as pa
import yaml

from curator.api.errors import CuratorError
from curator.api.format import listing
from curator.io.files.faults import path_text
from curator.pipeline.formats import TABLES, format_of, source_for
from curator.recipe import recipe_text
from curator.recipe.inputs import NAMED, endings, reads, who_reads
from curator.registry import packs

# what the text of a record is called mostly
MAIN = ("text", "content", "body", "caption", "raw_content", "document")
SHOWN = 12  # columns that are named in the recipe
SAMPLE = [{"id": "river", "text": "The river rises in the hills and reaches the sea after 300 kilometres."},
          {"id": "bread", "text": "Mix flour, water and salt.\nWait a day.\nBake it hot."},
          {"id": "again", "text": "Mix flour, water and salt.\nWait a day.\nBake it hot."},
          {"id": "none", "text": None}]


def new_recipe(name: str, read: str | None = None, like: str | None = None) -> list[Path]:
    """Write a recipe to NAME.yaml. `read`: what it reads; without it, a few records are written to
    NAME.jsonl, which it reads. `like`: the packaged recipe that it is a copy of, with `read` in it.

    Raises:
        CuratorError: a file is there already, or no recipe can be made of this input: which ones read it.
    """
    read = None if read is None else path_text(read)
    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    records = path.with_suffix(".jsonl")
    made = [path] if read is not None or like is not None else [path, records]
    for there in made:
        if there.exists():
            raise CuratorError(f"{there} is there already, and nothing is overwritten: choose another name")
    if like is not None:
        text = copied(like, path.stem, read)
    elif read is not None:
        text = over_table(path, read)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        records.write_text("".join(json.dumps(one) + "\n" for one in SAMPLE), encoding="utf-8")
        text = over_table(path, str(records))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    return made


def over_table(path: Path, read: str) -> str:
    """A recipe over a table, about the columns that it has."""
    kind = format_of(read) or _inside(read)
    if kind not in TABLES:
        found = who_reads(read)
        like = found[0] if len(found) == 1 else "RECIPE"
        raise CuratorError(f"{read} is no table ({', '.join(TABLES)}). " + (
            f"These packaged recipes read it: {listing(found, NAMED)}. To copy one: "
            f"curator new recipe {shlex.quote(path.stem)} --read {shlex.quote(read)} --like {like}"
            if found else "No packaged recipe reads it either: `curator recipes` lists them"))
    columns = source_for(read, kind).columns() or {}
    named = {column: of for column, of in columns.items() if column not in ("id", "source")}
    texts = [column for column, of in named.items() if of is not None and (pa.types.is_string(of)
                                                                         or pa.types.is_large_string(of))]
    main = next((column for column in MAIN if column in texts), next(iter(texts), None))
    key = main or next(iter(named), "id")
    shown = listing((f"{column} ({of or 'null'})" for column, of in named.items()), SHOWN)
    words = {"reason": "missing", "when": f"{in_sql(key)} IS NULL", "new": "read_from",
             "expression": "source"}
    if main is not None:
        words = {"reason": "empty", "when": f"{in_sql(main)} IS NULL OR length(trim({in_sql(main)})) = 0",
                 "new": "characters", "expression": f"length({in_sql(main)})"}
    words |= {key: in_yaml(words[key]) for key in ("when", "expression")}
    copies = ("  # Of records that are equal in this column one stays. For those almost equal: dedup.near\n"
              f"  - dedup.exact: {{column: {in_yaml(key)}}}\n") if packs.find_stage("dedup.exact") else ""
    out = f"{path.stem}-out/"
    template = files("curator.scaffold").joinpath("recipe.yaml.txt").read_text(encoding="utf-8")
    return Template(template).substitute(words, name=in_yaml(path.stem), file=shlex.quote(str(path)),
                                         out=in_yaml(out), run=shlex.quote(out), format=kind,
                                         path=in_yaml(read), copies=copies, columns=shown)


def in_sql(column: str) -> str:
    """The name of a column in a condition."""
    return column if column in MAIN else '"' + column.replace('"', '""') + '"'


def in_yaml(text: str) -> str:
    """A text in a recipe, in quotes where it needs them; `yes` and `null` are other values without."""
    plain = re.fullmatch(r"[A-Za-z./][\w./ ()=-]*", text) and yaml.safe_load(text) == text
    return text if plain else json.dumps(text, ensure_ascii=False)


def copied(like: str, name: str, read: str | None) -> str:
    """The text of a packaged recipe, its comments too, under another name and with another path to read."""
    text = re.sub(r"(?m)^name:.*$", f"name: {in_yaml(name)}", recipe_text(like), count=1)
    if read is None:
        return text
    changed = reads(like, [read])
    if "read" in changed:  # another reader
        block = "read: " + changed["read"]
        text = re.sub(r"(?m)^read:.*\n(?:[ #\t-].*\n)*", lambda _: block + "\n", text, count=1)
    else:
        text = re.sub(r"(?m)(^read:(?:.*\n[ #\t])*?.*\bpath: *)(\[.*?\]|\".*?\"|'.*?'|[^\s,}#]+)",
                      lambda found: found[1] + in_yaml(read), text, count=1)
    reader = yaml.safe_load(text).get("read")
    steps = reader.values() if isinstance(reader, dict) else ()
    if not any(isinstance(step, dict) and step.get("path") == read for step in steps):
        raise CuratorError(f"{like} has no read.path that could be {read!r}: copy it with "
                           f"`curator recipes {like} > FILE`, and edit what it reads")
    return text


def _inside(read: str) -> str | None:
    """The table format of most files at a path, None if it is another one."""
    return next((kind for ending in endings(read)[:1] if (kind := format_of("x" + ending))), None)
