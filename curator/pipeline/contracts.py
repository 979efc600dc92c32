"""Whether each stage of a graph gets the columns and payloads that it needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from curator.api.errors import ContractError, InputError, RecipeError
from curator.api.format import listing
from curator.api.names import suggestion
from curator.api.stage import FunctionStage, Reduce, Sink, Source, Stage
from curator.pipeline.checkpoint import payloads
from curator.pipeline.graph import End, Node

SIDE_COLUMNS: dict[str, dict[str, pa.DataType | None]] = {
    "dropped": {"reason": pa.string()}, "duplicate": {"duplicate_of": pa.string()},
    "failed": {"error": pa.string(), "traceback": pa.string()}}


def check_contracts(nodes: list[Node], names: dict[Node, str],
                    parts: Mapping[Node, Node], kept: Collection[End] = ()) -> dict[Node, dict | None]:
    """The columns after each node (None where a source does not say), checked against what each one needs.

    `parts`: the parts of composite stages, each with the main one. What a main one gets from them are no
    records. `kept`: ends with a checkpoint, where payloads end.
    """
    after: dict[Node, dict | None] = {}
    names = {node: names[parts.get(node, node)] for node in nodes}
    decoded = payloads(lasting=False) if kept else frozenset()
    for node in nodes:
        if isinstance(node.stage, Source):
            known = node.stage.columns()
            after[node] = None if known is None else {"id": pa.string(), "source": pa.string(), **known}
            continue
        ends = tuple(end for end in node.inputs if parts.get(end.node) is not node)
        before = columns_at(ends or node.inputs, after, kept, decoded)
        if before is None:
            after[node] = None
            continue
        for name, kind in _needs(node.stage).items():
            if name in decoded and name not in before:
                raise ContractError(f"{place_of(node)}stage {names[node]!r} needs {name!r}, and a checkpoint "
                                    "before it keeps no decoded images, sounds or frames: put the checkpoint "
                                    f"behind {names[node]!r}, or before the stage that makes {name!r}")
            _check_need(node, names[node], name, kind, before)
        try:
            node.stage.check(before)
        except (RecipeError, InputError) as error:
            raise type(error)(f"{place_of(node)}stage {names[node]!r}: {error}") from None
        after[node] = node.stage.columns_after(before)
    return after


def _needs(stage: Stage) -> dict[str, pa.DataType | None]:
    """What its contract says; of a `Reduce` also its key and columns."""
    needs = stage.contract().needs
    reads = (stage.key, *(stage.columns or ())) if isinstance(stage, Reduce) else ()
    typed = needs if isinstance(needs, Mapping) else dict.fromkeys(needs)
    return {**{n: None for n in reads if n is not None}, **typed}


def wanted_behind(nodes: list[Node],
                  takers: Mapping[tuple[Node, str], list[Node]]) -> dict[Node, frozenset[str] | None]:
    """What each node, or one behind it, reads of the rows that it is given, as far as contracts say.

    None where everything may be read: by a stage that says nothing of its needs. Of a sink: its columns.
    """
    wanted: dict[Node, frozenset[str] | None] = {}
    for node in reversed(nodes):
        stage, contract = node.stage, node.stage.contract()
        later = [wanted[taker] for (of, _), found in takers.items() if of is node for taker in found]
        silent = (not contract.needs if isinstance(stage, FunctionStage)
                  else type(stage).contract is Stage.contract)
        known = [names for names in later if names is not None]
        if len(known) < len(later) or (silent and not isinstance(stage, (Source, Sink))):
            wanted[node] = None
            continue
        wanted[node] = frozenset(_needs(stage)) | (frozenset().union(*known) - set(contract.adds))
    return wanted


def columns_at(ends: tuple[End, ...], after: dict[Node, dict | None], kept: Collection[End],
               decoded: frozenset[str]) -> dict | None:
    """The columns that all of these ends carry; None where that is not known. `kept`: those that let no
    `decoded` payloads through."""
    known = [(end, columns) for end in ends if (columns := after[end.node]) is not None]
    if len(known) < len(ends):
        return None
    tables = [{n: kind for n, kind in (columns | SIDE_COLUMNS.get(end.port, {})).items()
               if end not in kept or kind is not None or n not in decoded} for end, columns in known]
    common = dict(tables[0])
    for other in tables[1:]:
        common = {n: (k if other[n] == k else None) for n, k in common.items() if n in other}
    return common


def _check_need(node: Node, stage: str, name: str, kind: pa.DataType | None, before: dict) -> None:
    if name not in before:
        there_are = f"there are {listing(sorted(before), 12) or 'none'} (`rename` renames one)"
        hint = suggestion(name, before, "", quoted=True) or _maker(name) + there_are
        for holder, kind_held in before.items():
            if (kind_held is not None and pa.types.is_struct(kind_held)
                and kind_held.get_field_index(name) >= 0):
                hint = f"{holder!r} has it inside: put `map: {{{name}: {holder}.{name}}}` before"
        raise ContractError(f"{place_of(node)}stage {stage!r} needs {name!r}, which nothing before it makes; "
                            f"{hint}")
    have = before[name]
    if kind is not None and have is not None and not have.equals(kind) and not _same_family(have, kind):
        raise ContractError(f"{place_of(node)}stage {stage!r} needs {name!r} as {kind}, and here it is "
                            f"{have}")


def _maker(name: str) -> str:
    """What adds a column; nothing if that is not known."""
    from curator.registry import packs  # here: every worker imports this module, and metadata take their time

    if makers := packs.makers(name):
        return f"{' or '.join(makers[:3])} adds it; "
    broken = [pack.name for pack in packs.installed() if pack.error is not None]
    return (f"no pack that works adds it; {', '.join(broken)} cannot be used: `curator doctor` says why; "
            if broken else "")


def _same_family(a: pa.DataType, b: pa.DataType) -> bool:
    t = pa.types
    families = ((t.is_string, t.is_large_string, t.is_null), (t.is_binary, t.is_large_binary),
                (t.is_integer, t.is_floating))
    return any(any(is_kind(a) for is_kind in family) and any(is_kind(b) for is_kind in family)
               for family in families)


def place_of(node: Node) -> str:
    """Where a recipe names it, to stand before a message; empty where none does."""
    return f"{node.place}: " if node.place else ""
