"""Runs the parts of `dedup.lines` and `dedup.substring` shard by shard, as the engine does."""

import itertools

import numpy as np
import pyarrow as pa

from curator.api.keys import shard_of
from curator.api.tasks import TextBatch
from curator.front import from_source
from curator.stages import Jsonl
from curator.testing import run_stage
from curator.testing.run import call, fresh, marked


def batch(texts, ids=None, source="s", **columns):
    ids = [f"r{i:03}" for i in range(len(texts))] if ids is None else ids
    values = texts if isinstance(texts, (pa.Array, pa.ChunkedArray)) else pa.array(texts, pa.string())
    sources = [source] * len(ids) if isinstance(source, str) else source
    return TextBatch(pa.table({"id": pa.array(ids, pa.string()), "source": pa.array(sources, pa.string()), "text": values,
                               **columns}))


def sharded(rows, key, shards):
    places = shard_of(rows.rows.column(key), shards)
    return [rows.filter(places == shard) for shard in range(shards)]


def run(stage, *batches):
    """What the composite answers to these batches, by port: a list of records, in the order of (id, text)."""
    nodes = stage.expand(from_source(Jsonl(path="nothing")), "", None).nodes()
    pieces, repeated, cut = (node.stage for node in nodes[1:])
    found = [run_stage(pieces, some).get("out") for some in batches]
    rows = [b for b in found if b is not None]
    made = []
    for shard in range(repeated.shards):
        own = [s for b in rows if len(s := sharded(b, "shard", repeated.shards)[shard])]
        made += [out for out in [run_stage(repeated, *own).get("out")] if out is not None] if own else []
    answers = {"out": [], "duplicate": []}
    for shard in range(cut.shards):
        working = fresh(cut)
        working.clear()
        cuts = [s for b in made if len(s := sharded(b, "id", cut.shards)[shard])]
        for some in cuts:
            working.absorb(some)
            assert set(call(working, marked(some))) == {"absorbed"}
        for some in batches:
            own = sharded(some, "id", cut.shards)[shard]
            for port, rows_out in call(working, marked(own)).items() if len(own) else ():
                answers[port] += rows_out.visible().to_pylist()
    return {port: sorted(some, key=lambda r: (r["id"], str(r["text"]), r["source"])) for port, some in answers.items()}


def texts(answer, port="out"):
    return [r["text"] for r in answer[port]]


def split_at(whole, parts, seed):
    """The batch in another order, cut into so many batches."""
    random = np.random.default_rng(seed)
    mixed = whole.take(random.permutation(len(whole)))
    bounds = [0, *sorted(random.integers(0, len(whole) + 1, parts - 1).tolist()), len(whole)]
    return [mixed.slice(a, b) for a, b in itertools.pairwise(bounds) if a < b]
