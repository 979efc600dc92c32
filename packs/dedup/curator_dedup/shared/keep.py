"""Which one of records that are alike is kept."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.errors import RecipeError

WORDS = ("first", "longest", "none")  # what may stand alone
# what may stand in a mapping, and what beside it
FORMS = {"longest": (), "newest": (), "by": ("order",), "sources": ("column",)}
ALLOWED = ("first, longest, none, {longest: column}, {newest: column}, {by: column, order: desc}, {sources: "
           "[pattern, …]}, "
           "or a list of these")
ISO_8601 = (r"^\s*(?P<day>\d{4}-\d\d-\d\d)(?:[Tt "
            r"](?P<minute>\d\d:\d\d)(?P<second>:\d\d)?(?:[.,](?P<fraction>\d{1,6})\d*)?"
            r" ?(?:[Zz]|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?)?)?\s*$")
LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True)
class Order:
    """One comparison. `form` is a key of `FORMS`; `descending`: the greatest value is the best one."""

    form: str
    column: str
    descending: bool = True
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keep:
    """A keep order: `orders`, compared one after the other; records that tie in all of them go by id, then by
    source.

    `drops_all`: of records that are alike none is kept.
    """

    orders: tuple[Order, ...] = ()
    drops_all: bool = False

    @classmethod
    def parse(cls, value: Any) -> Keep:
        """What a recipe says under `keep:`.

        `first`: the smallest id. `longest`: the longest `text`; `{longest: column}`: the most characters,
        bytes or entries. `{newest: column}`: dates, times, numbers, or texts in ISO 8601. `{by: column,
        order: desc}`: the highest number or date, with `asc` the lowest. `{sources: [pattern, …], column:
        source}`: the first pattern that matches the whole value (`*` stands for any characters, `/` too).
        `none`: none of them; alone or last in a list. A record without a value comes after all that have one.

        Raises:
            RecipeError: it is none of these.
        """
        orders: list[Order] = []
        values = value if isinstance(value, list) else [value]
        if not values:
            raise RecipeError(f"keep: an empty list says nothing; there are {ALLOWED}")
        for at, one in enumerate(values):
            if isinstance(one, str):
                if one not in WORDS:
                    raise RecipeError(f"keep: {one!r} is unknown; {_hint(one, WORDS + tuple(FORMS))}")
                if one != "longest" and at < len(values) - 1:
                    raise RecipeError(f"keep: what comes after {one!r} never decides; put {one!r} last")
                if one == "longest":
                    orders.append(Order("longest", "text"))
            else:
                orders.append(_order(one))
        return cls(tuple(orders), drops_all=values[-1] == "none")

    def needs(self) -> set[str]:
        """The columns that are compared, but for `source`, which is always there."""
        return {order.column for order in self.orders} - {"source"}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        """Refuse columns that have no order of this kind.

        Raises:
            RecipeError: naming the column and what would do.
        """
        for order in self.orders:
            kind = columns.get(order.column)
            if kind is not None and not _fits(order.form, _plain(kind)):
                raise RecipeError(f"keep: {order.form} wants {WANTED[order.form]}, and {order.column!r} is "
                                  f"{kind}")

    def ranks(self, batch: Batch) -> np.ndarray:
        """A column for each order, float64 [rows, orders]: smaller is better, infinite where there is no
        value, never NaN.

        Integers beyond 2^53 and times more exact than a microsecond are rounded.
        """
        ranks = np.empty((len(batch), len(self.orders)), dtype=np.float64)
        for at, order in enumerate(self.orders):
            values = _values(order, batch.rows.column(order.column))
            absent = np.isnan(values)
            # and no negative zero
            values = np.clip(-values if order.descending else values, -LARGEST, LARGEST) + 0.0
            ranks[:, at] = np.where(absent, np.inf, values)
        return ranks


# -- reading it ----------------------------------------------------------------------------------------------


def _order(value: Any) -> Order:
    if not isinstance(value, dict) or not value:
        raise RecipeError(f"keep: {value!r} is no keep order; there are {ALLOWED}")
    forms = [key for key in value if key in FORMS]
    if len(forms) != 1:
        unknown = [str(key) for key in value if key not in FORMS]
        why = (f"{', '.join(forms)} cannot stand together; write a list" if forms
               else f"{unknown[0]!r} is unknown")
        raise RecipeError(
            f"keep: {why}; {_hint(unknown[0], tuple(FORMS)) if unknown else f'there are {ALLOWED}'}")
    form = forms[0]
    for key in value:
        if key != form and key not in FORMS[form]:
            allowed = ", ".join(FORMS[form]) or "nothing else"
            raise RecipeError(f"keep: {key!r} does not go with {form!r}; beside it may stand {allowed}")
    direction = value.get("order", "desc")
    if direction not in ("desc", "asc"):
        raise RecipeError(f"keep: order must be desc or asc, got {direction!r}")
    if form != "sources":
        return Order(form, _name(form, value[form]), descending=direction == "desc")
    patterns = value[form]
    if not isinstance(patterns, list) or not patterns or not all(isinstance(p, str) for p in patterns):
        raise RecipeError(f"keep: sources wants a list of patterns, the best first, got {patterns!r}")
    return Order(form, _name("column", value.get("column", "source")), descending=False,
                 patterns=tuple(patterns))


def _name(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise RecipeError(f"keep: {key} wants the name of a column, got {value!r}")
    return value


def _hint(word: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word.lower(), known, n=1)
    if not near:
        return f"there are {ALLOWED}"
    form = near[0]
    return f"did you mean {form!r}?" if form in WORDS else f"did you mean {{{form}: …}}?"


# -- values as numbers ---------------------------------------------------------------------------------------

WANTED = {"longest": "texts, bytes or lists", "newest": "dates, times, numbers, or texts in ISO 8601",
          "by": "numbers, true and false, or dates (texts have no rank)", "sources": "texts"}


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
            or pa.types.is_binary_view(kind))


def _fits(form: str, kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    if form == "longest":
        return _is_text(kind) or _is_bytes(kind) or _is_list(kind)
    if form == "sources":
        return _is_text(kind)
    number = (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
              or pa.types.is_boolean(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))
    return number or (form == "newest" and _is_text(kind))


def _values(order: Order, column: pa.ChunkedArray) -> np.ndarray:
    """A column as float64; NaN where there is no value.

    Raises:
        ValueError: the column has no such order (its type was not known when the plan was made).
    """
    kind = _plain(column.type)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not _fits(order.form, kind):
        raise ValueError(f"keep: {order.form} wants {WANTED[order.form]}, and {order.column!r} is {kind}")
    if order.form == "sources":
        return _matched(column, order.patterns)
    column = column.cast(kind)
    if order.form == "longest":
        numbers = _lengths(column)
    elif _is_text(kind):
        numbers = _microseconds(column)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        numbers = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
    else:
        numbers = column
    return numbers.cast(pa.float64(), safe=False).to_numpy()


def _lengths(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Characters of texts, bytes of bytes, entries of lists."""
    if _is_text(column.type):
        return pc.utf8_length(column.cast(pa.large_string()))
    return (pc.binary_length(column.cast(pa.large_binary())) if _is_bytes(column.type)
            else pc.list_value_length(column))


def _matched(column: pa.ChunkedArray, patterns: tuple[str, ...]) -> np.ndarray:
    """The position of the first pattern that matches each text; their number where none does."""
    coded = pa.chunked_array([column.combine_chunks()]) if column.num_chunks != 1 else column
    coded = coded.chunk(0) if pa.types.is_dictionary(coded.type) else coded.chunk(0).dictionary_encode()
    places = [next((at for at, pattern in enumerate(patterns) if text is not None
                    and fnmatchcase(text, pattern)), len(patterns))
              for text in coded.dictionary.to_pylist()]
    return pa.array(places, pa.float64()).take(coded.indices).to_numpy(zero_copy_only=False)


def _microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts in ISO 8601 as microseconds since 1970 in UTC (also where no zone is said); null where a text is
    none."""
    parts = pc.extract_regex(column.cast(pa.large_string()), ISO_8601)
    day, minute, second, fraction, sign, hours, minutes = (
        pc.struct_field(parts, at).cast(pa.string()) for at in range(7))
    clock = pc.binary_join_element_wise(_or(minute, "00:00"), _or(second, ":00"), "")
    whole = pc.strptime(pc.binary_join_element_wise(day, clock, " "), "%Y-%m-%d %H:%M:%S", "us",
                        error_is_null=True)
    below = pc.utf8_rpad(_or(fraction, "0"), 6, "0").cast(pa.int64())
    offset = pc.add(pc.multiply(_or(hours, "0").cast(pa.int64()), 60), _or(minutes, "0").cast(pa.int64()))
    offset = pc.if_else(pc.equal(sign, "-"), offset, pc.negate(offset))
    shift = pc.fill_null(pc.multiply(offset, 60_000_000), 0)
    return pc.add(pc.add(whole.cast(pa.int64()), below), shift)


def _or(texts: pa.ChunkedArray, value: str) -> pa.ChunkedArray:
    """The texts, with `value` for those that are empty or null."""
    texts = pc.fill_null(texts, "")
    return pc.if_else(pc.equal(texts, ""), value, texts)


# -- ranks of records ----------------------------------------------------------------------------------------


def as_lists(ranks: np.ndarray) -> pa.Array:
    """Ranks [rows, orders] as a column list<double>."""
    rows, width = ranks.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * width),
                                    pa.array(ranks.ravel()))


def from_lists(column: pa.ChunkedArray) -> np.ndarray:
    """A column list<double> of lists that are equally long as float64 [rows, orders]."""
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), len(values) // max(len(column), 1))


def best_first(ids: pa.ChunkedArray, sources: pa.ChunkedArray, ranks: np.ndarray, reference: np.ndarray,
               last: np.ndarray | None = None, group: np.ndarray | None = None) -> np.ndarray:
    """The positions of records in keep order: references, then by rank, then by id, then by source; group by
    group, if said.

    `ids`: texts. `sources`: texts as a dictionary. `ranks`: float64 [rows, orders]. `reference`: bool [rows].
    `last`: numbers by which records go that tie in all of these.
    """
    sources = sources.unify_dictionaries().combine_chunks()
    names = pc.rank(sources.dictionary) if len(sources.dictionary) else pa.array([], pa.uint64())
    keys = {} if group is None else {"group": group}
    keys |= {"removable": ~reference} | {f"rank{at}": ranks[:, at] for at in range(ranks.shape[1])}
    table = pa.table({**keys, "id": ids, "source": names.take(sources.indices)}
                     | ({} if last is None else {"last": last}))
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]).to_numpy()
