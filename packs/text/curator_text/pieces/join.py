"""Documents of the pieces that were made of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.api.batch import Batch, concat_tables
from curator.api.stage import Context, Contract, Outputs, Reduce, setting

_PLACES = {"parent": pa.string(), "piece": pa.int32(), "pieces": pa.int32(), "start": pa.int64(), "end": pa.int64()}
_COUNTS = {"pieces": pa.int32(), "pieces_missing": pa.int32()}
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


@dataclass(kw_only=True)
class Join(Reduce):
    """Put the pieces of `text.chunk` or `text.split` together again: a record a document, in the order of the
    text, whatever became of the pieces in between.

    Sees all pieces first. The first piece of a document that is left goes on as the document: with the document's
    `id`, its own other columns, the joined `text`, `pieces` (how many were joined) and `pieces_missing` (how many
    were lost on the way; null where nobody knows); without `parent`, `piece`, `start`, `end`. The other pieces
    are absorbed. Copies of a piece count once. A record without `parent` goes on as it is, `pieces` and
    `pieces_missing` null.

    Pieces that follow one another in the document and are as long as they were are joined without anything
    between, those that overlap without what they share; else `separator` stands between two. `column`: the text.
    `messages`: the pieces are the messages of conversations (`text.chat_turns`); then `messages` is added (list of
    `role`, `content`), and `role` and `calls_tools` go. `shards`: into how many parts documents are divided; the
    pieces of one must fit into memory.

    Known difference: what messages want of tools does not come back into `messages`.
    """

    separator: str = "\n\n"
    column: str = "text"
    messages: bool = False
    shards: int = setting(default=16)

    key = "parent"
    sparse = ("pieces_missing",)

    def __post_init__(self) -> None:
        self.at_least(1, "shards")
        self.columns = (*_PLACES, self.column, *(("role",) if self.messages else ()))

    def contract(self) -> Contract:
        needs: dict[str, pa.DataType | None] = {**dict.fromkeys(_PLACES), self.column: pa.string()}
        gone = [name for name in _PLACES if name != "pieces"]
        if self.messages:
            needs, gone = needs | {"role": pa.string()}, [*gone, "role", "calls_tools"]
        return Contract(needs=needs, adds={"id": pa.string(), self.column: pa.string(), **self._made()},
                        removes=gone)

    def _made(self) -> dict[str, pa.DataType]:
        return _COUNTS | ({"messages": _MESSAGES} if self.messages else {})

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._absorbed: list[pa.Table] = []
        self._documents: dict[str, tuple] | None = None

    def absorb(self, batch: Batch) -> None:
        columns = {name: batch.rows.column(name).cast(kind) for name, kind in _PLACES.items()}
        columns["role"] = batch.rows.column("role").cast(pa.string()) if self.messages else pa.nulls(len(batch))
        self._absorbed.append(pa.table({"id": batch.rows.column("id").cast(pa.string()), **columns,
                                        "text": batch.rows.column(self.column).cast(pa.string())}))

    def _joined(self) -> dict[str, tuple]:
        """Of each document: the id of its first piece, the text, how many pieces there are, how many lack, and
        the messages."""
        if not self._absorbed:
            return {}
        rows = concat_tables(self._absorbed).sort_by([("parent", "ascending"), ("piece", "ascending"),
                                                      ("id", "ascending")]).to_pylist()
        self._absorbed = []
        of: dict[str, list[dict]] = {}
        for row in rows:
            pieces = of.setdefault(row["parent"], []) if row["parent"] is not None else []
            if not pieces or row["piece"] is None or pieces[-1]["piece"] != row["piece"]:
                pieces.append(row)
        return {parent: (pieces[0]["id"], joined(pieces, self.separator), len(pieces),
                         None if pieces[0]["pieces"] is None else max(0, pieces[0]["pieces"] - len(pieces)),
                         [{"role": one["role"], "content": one["text"]} for one in pieces])
                for parent, pieces in of.items()}

    def process(self, batch: Batch) -> Outputs:
        if self._documents is None:
            self._documents = self._joined()
        ids, parents = batch.column("id"), batch.column("parent")
        goes_on = [parent is None or self._documents[parent][0] == one
                   for one, parent in zip(ids, parents, strict=True)]
        out = batch.filter(goes_on)
        made = [(one, text, None, None, None) if parent is None else (parent, *self._documents[parent][1:])
                for one, parent, text in zip(out.column("id"), out.column("parent"), out.column(self.column),
                                             strict=True)]
        columns = {"id": pa.string(), self.column: pa.string(), **self._made()}
        out = out.with_columns({name: pa.array([one[at] for one in made], kind)
                                for at, (name, kind) in enumerate(columns.items())})
        return Outputs(out=out.without(self.contract().removes),
                       absorbed=batch.filter([not one for one in goes_on]))


def joined(pieces: list[dict], separator: str) -> str:
    """The texts of pieces in order, each with `text`, `start` and `end` (its place in the document, or None)."""
    text, end, whole = "", None, False
    for piece in pieces:
        part = piece["text"] or ""
        known = None not in (piece["start"], piece["end"])
        as_it_was = known and len(part) == piece["end"] - piece["start"]
        if end is None:
            text = part
        elif as_it_was and whole and piece["start"] <= end:
            text += part[end - piece["start"]:]
        else:
            text += separator + part
        end, whole = (piece["end"] if known else -1), as_it_was
    return text
