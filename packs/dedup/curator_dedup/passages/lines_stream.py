"""Repeated lines cut out while records flow by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.keys import record_keys, units
from curator.api.stage import Context, Contract, Outputs, Snapshot, Stateful
from curator_dedup.passages.cut import Found
from curator_dedup.passages.line_pieces import Compared, LineCutting, all_hashed
from curator_dedup.passages.pieces import Hashed, Texts, check_text, gathered
from curator_dedup.shared.arrays import distinct, first_of_each, grown, ranges, turns
from curator_dedup.shared.hash_index import HashIndex

NOBODY = -1  # in place of a unit: the record is void, and its lines are free again
NONE = (1 << 32) - 1  # no further claim on the line


@dataclass(kw_only=True)
class LinesStream(LineCutting, Stateful):
    """Cut lines out of which `copies` went through before; the first to arrive stay.

    A line that stays is *claimed* by its record. A record that is shown again is known by its id, source and
    text, and finds its own claims: of each of its lines as many stay as did before. Lines are equal when 96
    bits of hash are.

    Memory: 41 to 82 bytes a line that stays (tables are doubled when they are full), 13 to 26 a further copy
    of it, and 44 to 80 and its id a record with such a line; half as much again while tables grow. Work grows
    with `copies`.
    """

    column: str = "text"
    compared: Compared
    copies: int = 1
    min_left: int = 1
    scope: str | None = None

    name = "stream"

    def contract(self) -> Contract:
        return Contract(needs={self.column, self.scope or self.column},
                        adds={self.column: None, **super().contract().adds})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_text(self.column, columns[self.column])

    def setup(self, ctx: Context) -> None:
        self._claims = _Claims()
        self._replayed: set[int] = set()  # units that are shown again
        self._depends: dict[int, set[int]] = {}  # units that hold lines that a unit lost

    def process(self, batch: Batch) -> Outputs:
        texts = Texts.of(batch.rows.column(self.column))
        found = all_hashed(texts, self.compared)
        if not found:
            return self.untouched(batch)
        lines = gathered(batch, found, self.scope)
        shown = _Shown(batch, record_keys(batch), texts.digests(), units(batch))
        verdict = self._judge(lines, shown)
        answer = self._answer(batch, texts, lines, verdict,
                              shown) if verdict.cut.any() else self.untouched(batch)
        owed = self._owed(lines, verdict, shown)
        new = np.flatnonzero(verdict.new)
        rows, record = np.unique(lines.row[new], return_inverse=True)
        who = shown.table(rows)
        # Nothing is learned before nothing can fail: a call that raised is repeated, and must find things as
        # they were.
        for one, other in owed:
            self._depends.setdefault(one, set()).add(other)
        self._claims.pending[verdict.own[verdict.own >= 0]] = False
        self._claims.add(verdict.hashes[new], record, who, shown.unit[rows])
        return answer

    def _judge(self, lines: Hashed, shown: _Shown) -> _Verdict:
        hashes = np.column_stack([lines.hash, lines.check.astype(np.uint64)])
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        fresh = np.ones(len(order), dtype=bool)
        fresh[1:] = (hashes[order[1:]] != hashes[order[:-1]]).any(axis=1)
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.cumsum(fresh) - 1
        known = self._claims.index.find(hashes[order[fresh]])
        taken = np.zeros(len(known), dtype=np.int64)
        for at, _ in self._claims.on(known):
            taken[at] += 1
        own = self._own(lines.row, group, known, shown)
        free = np.flatnonzero(own < 0)
        stays = turns(group[free]) < (self.copies - taken)[group[free]]
        new, cut = np.zeros(len(own), dtype=bool), np.zeros(len(own), dtype=bool)
        new[free], cut[free] = stays, ~stays
        return _Verdict(hashes, group, known, own, new, cut)

    def _own(self, row: np.ndarray, group: np.ndarray, known: np.ndarray, shown: _Shown) -> np.ndarray:
        """For each line the claim that its record made on it when it was shown before, -1 for none. A record
        that is there several times, or has a line several times, has a claim for each time."""
        own = np.full(len(row), -1)
        replay = [unit for unit in np.unique(shown.unit).tolist() if unit in self._replayed]
        mine = np.flatnonzero(np.isin(shown.unit, replay)[row]) if replay else np.empty(0, dtype=np.int64)
        names, unit, group = shown.names[row[mine]], shown.unit[row[mine]], group[mine]
        turn, passed = turns(group, names, unit), np.zeros(len(mine), dtype=np.int64)
        for at, claim in self._claims.on(known[group]):
            same = self._claims.awaited(claim, names[at], unit[at])
            at, claim = at[same], claim[same]
            now = passed[at] == turn[at]
            own[mine[at[now]]] = claim[now]
            passed[at] += 1
        return own

    def _answer(self, batch: Batch, texts: Texts, lines: Hashed, verdict: _Verdict, shown: _Shown) -> Outputs:
        assert lines.size is not None
        cut = np.flatnonzero(verdict.cut)
        order = np.lexsort((lines.place[cut], -lines.size[cut].astype(np.int64), lines.row[cut]))
        # of each record the longest line that it loses, of several the first
        rows, at = first_of_each(lines.row[cut[order]])
        holders = self._holders(verdict.group[cut[order[at]]], lines, verdict, shown)
        some = texts if len(rows) == len(texts) else Texts.of_array(texts.array().take(pa.array(rows)))
        nothing = np.empty(0, dtype=np.int64)
        places = np.searchsorted(rows, lines.row[cut]), lines.place[cut]
        return self.cut(batch, rows, some, Found(places, (nothing, nothing), np.arange(len(rows))), holders)

    def _holders(self, groups: np.ndarray, lines: Hashed, verdict: _Verdict, shown: _Shown) -> pa.Table:
        """A record that holds a line of each of these groups, as `of` and `cluster`: the one with the
        smallest name, for the order in which they came is not known in a resumed run, and the answer is to be
        the same."""
        row, least = np.full(len(verdict.known), -1), np.full(len(verdict.known), -1).astype(np.uint64)
        new = np.flatnonzero(verdict.new)
        new = new[np.argsort(shown.names[lines.row[new]])[::-1]]
        # the last write stays
        row[verdict.group[new]], least[verdict.group[new]] = lines.row[new], shown.names[lines.row[new]]
        row, least, owner = row[groups], least[groups], np.full(len(groups), -1)
        for at, claim in self._claims.on(verdict.known[groups]):
            names = self._claims.names(claim)
            better = (names < least[at]) | ((row[at] < 0) & (owner[at] < 0))
            at = at[better]
            least[at], owner[at] = names[better], self._claims.owner[claim[better]]
        before = owner >= 0
        owners = pa.concat_tables([self._claims.who(owner[before]), shown.table(row[~before])])
        place = np.where(before, np.cumsum(before) - 1, before.sum() + np.cumsum(~before) - 1)
        return pa.table({"of": owners.column("id"), "cluster": owners.column("key")}).take(pa.array(place))

    def _owed(self, lines: Hashed, verdict: _Verdict, shown: _Shown) -> set[tuple[int, int]]:
        """Pairs of a unit that loses a line and another one that holds it."""
        unit = shown.unit[lines.row].astype(np.int64)
        lost = distinct(unit[verdict.cut] << 32 | verdict.group[verdict.cut])
        one, group = lost >> 32, lost & NONE
        pairs = [np.empty(0, dtype=np.int64)]
        for at, claim in self._claims.on(verdict.known[group]):
            pairs.append(distinct(one[at] << 32 | self._claims.unit[self._claims.owner[claim]]))
        new = np.flatnonzero(verdict.new)
        if len(new) and (shown.unit != shown.unit[0]).any():
            new = new[np.argsort(verdict.group[new], kind="stable")]
            low, high = (np.searchsorted(verdict.group[new], group, side) for side in ("left", "right"))
            pairs.append(np.repeat(one, high - low) << 32 | unit[new[ranges(low, high - low)]])
        both = distinct(np.concatenate(pairs))
        return {(a, b) for a, b in zip((both >> 32).tolist(), (both & NONE).tolist(), strict=True) if a != b}

    # -- units ----------------------------------------------------------------------------------------------

    def snapshot(self, unit: int) -> Snapshot:
        """Id, key and name of each record that the unit brought, and the hashes of the lines that it
        claims."""
        return Snapshot(self._claims.table(unit), frozenset(self._depends.get(unit, ())))

    def restore(self, unit: int, state: pa.Table) -> None:
        hashes, checks = (state.column(name).combine_chunks() for name in ("hashes", "checks"))
        record = np.repeat(np.arange(len(state)), hashes.value_lengths().to_numpy())
        both = np.column_stack([hashes.flatten().to_numpy(), checks.flatten().to_numpy().astype(np.uint64)])
        self._claims.add(both, record, state.select(["id", "key", "name"]),
                         np.full(len(state), unit, dtype=np.int32))

    def replay(self, unit: int) -> None:
        """Each line that a record of the unit claims stays once more; until then the claim still stands."""
        self._claims.pending[self._claims.of_unit(unit)] = True
        self._replayed.add(unit)

    def discard(self, unit: int) -> None:
        self._claims.discard(unit)
        self._replayed.discard(unit)
        self._depends.pop(unit, None)


@dataclass(frozen=True)
class _Verdict:
    """Of each line of a batch its hash, the group of equal ones, its claim from before (-1), and whether it
    is claimed now or cut; and of each group its number in the index, -1 for a new one."""

    hashes: np.ndarray
    group: np.ndarray
    known: np.ndarray
    own: np.ndarray
    new: np.ndarray
    cut: np.ndarray


class _Shown:
    """Who the records of a batch are."""

    def __init__(self, batch: Batch, keys: np.ndarray, digests: np.ndarray, unit: np.ndarray) -> None:
        self._ids, self._keys, self.names, self.unit = batch.rows.column("id"), keys, keys ^ digests, unit

    def table(self, rows: np.ndarray) -> pa.Table:
        return pa.table({"id": self._ids.take(pa.array(rows)).cast(pa.string()), "key": self._keys[rows],
                         "name": self.names[rows]})


class _Claims:
    """Which records hold which lines. Claims on one line are a chain, the latest first; those of one record
    follow each other."""

    def __init__(self) -> None:
        self.index = HashIndex()
        self._latest = np.empty(0, dtype=np.uint32)  # claim, by line
        # by claim: line, next of the chain
        self._line, self._before = np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.uint32)
        self.owner = np.empty(0, dtype=np.uint32)  # record, by claim
        self.pending = np.empty(0, dtype=bool)  # by claim: its record will be shown again
        self.unit = np.empty(0, dtype=np.int32)  # by record
        self._names, self._keys = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
        # of a record's claims
        self._start, self._size = np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.uint32)
        # one behind the other; where that of a record ends
        self._ids, self._id_end = bytearray(), np.empty(0, dtype=np.uint64)
        self._claimed, self._records = 0, 0
        self._by_unit: dict[int, list[np.ndarray]] = {}  # records

    @property
    def nbytes(self) -> int:
        arrays = (self.index, self._latest, self._line, self._before, self.owner, self.pending, self.unit,
                  self._names,
                  self._keys, self._start, self._size, self._id_end)
        return sum(array.nbytes for array in arrays) + len(self._ids)

    def add(self, hashes: np.ndarray, record: np.ndarray, who: pa.Table, unit: np.ndarray) -> None:
        """Claims on lines, uint64 [n, 2], by these new records, of which `record` has the numbers 0, 0, …, 1,
        …, rising."""
        if not len(hashes):
            return
        first, claims = self._records, np.arange(self._claimed, self._claimed + len(hashes))
        assert claims[-1] < NONE, f"{claims[-1]} lines are more than one worker can hold"
        lines, fresh = self.index.find_or_add(hashes)
        self._latest = grown(self._latest, len(self.index) - len(fresh),
                             np.full(len(fresh), NONE, dtype=np.uint32))
        order = np.argsort(lines, kind="stable")
        ordered, last = lines[order], np.ones(len(order), dtype=bool)
        last[:-1] = ordered[1:] != ordered[:-1]
        before = np.empty(len(order), dtype=np.uint32)
        before[order[1:]] = claims[order[:-1]]
        begins = np.append(True, last[:-1])
        before[order[begins]] = self._latest[ordered[begins]]
        self._latest[ordered[last]] = claims[order[last]]
        counts = np.bincount(record, minlength=len(who))
        ids = who.column("id").cast(pa.large_binary()).to_pylist()
        ends = len(self._ids) + np.cumsum(np.fromiter(map(len, ids), dtype=np.int64, count=len(ids)))
        for name, values in (("_line", lines), ("_before", before), ("owner", record + first),
                             ("pending", np.zeros(len(lines)))):
            setattr(self, name,
                    grown(getattr(self, name), self._claimed, values.astype(getattr(self, name).dtype)))
        for name, values in (("unit", unit), ("_names", who.column("name").to_numpy()),
                             ("_keys", who.column("key").to_numpy()),
                             ("_start", self._claimed + np.cumsum(counts) - counts), ("_size", counts),
                             ("_id_end", ends)):
            setattr(self, name, grown(getattr(self, name), first, values.astype(getattr(self, name).dtype)))
        self._ids += b"".join(ids)
        self._claimed, self._records = self._claimed + len(lines), first + len(who)
        for one in np.unique(unit).tolist():
            self._by_unit.setdefault(one, []).append(first + np.flatnonzero(unit == one))

    def on(self, lines: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The claims on each of these lines (-1: a line that is not there), the latest first, one of each at
        a time: the places in `lines`, and the claims. What is void is left out."""
        at = np.flatnonzero(lines >= 0)
        claim = self._latest[lines[at]]
        while len(at):
            holds = self.unit[self.owner[claim]] != NOBODY
            yield at[holds], claim[holds]
            claim = self._before[claim]
            on = claim != NONE
            at, claim = at[on], claim[on]

    def names(self, claim: np.ndarray) -> np.ndarray:
        """Of the records that made these claims."""
        return self._names[self.owner[claim]]

    def awaited(self, claim: np.ndarray, names: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """Whether these claims are of these very records, which are shown again as was said."""
        owner = self.owner[claim]
        return self.pending[claim] & (self.names(claim) == names) & (self.unit[owner] == unit)

    def who(self, records: np.ndarray) -> pa.Table:
        """Id, key and name of each."""
        ends = self._id_end[records].tolist()
        starts = np.where(records > 0, self._id_end[np.maximum(records, 1) - 1],
                          0).tolist() if len(records) else []
        ids = [self._ids[low:high].decode() for low, high in zip(starts, ends, strict=True)]
        return pa.table({"id": pa.array(ids, pa.string()), "key": self._keys[records],
                         "name": self._names[records]})

    def of_unit(self, unit: int) -> np.ndarray:
        """The claims of a unit."""
        records = self._records_of(unit)
        return ranges(self._start[records].astype(np.int64), self._size[records].astype(np.int64))

    def _records_of(self, unit: int) -> np.ndarray:
        return np.concatenate([np.empty(0, dtype=np.int64), *self._by_unit.get(unit, ())])

    def discard(self, unit: int) -> None:
        self.unit[self._records_of(unit)] = NOBODY
        self._by_unit.pop(unit, None)

    def table(self, unit: int) -> pa.Table:
        records, hashes = self._records_of(unit), self.index.hashes(self._line[self.of_unit(unit)])
        offsets = pa.array(np.concatenate([[0], np.cumsum(self._size[records])]).astype(np.int32))
        lists = {"hashes": hashes[:, 0], "checks": hashes[:, 1].astype(np.uint32)}
        return self.who(records).combine_chunks().append_column("hashes", pa.ListArray.from_arrays(
            offsets, pa.array(lists["hashes"]))).append_column("checks", pa.ListArray.from_arrays(
                offsets, pa.array(lists["checks"])))
