"""Batches: whatever is chosen, cut, joined or multiplied, a row keeps its columns and its payloads."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.batch import concat_tables
from curator.api.tasks import AudioBatch, Batch, ImageBatch, TextBatch, VideoBatch

VALUES = {
    "number": (pa.int64(), st.none() | st.integers(-2**63, 2**63 - 1)),
    "real": (pa.float64(), st.none() | st.floats()),
    "text": (pa.string(), st.none() | st.text(max_size=5)),
    "flag": (pa.bool_(), st.none() | st.booleans()),
    "raw": (pa.binary(), st.none() | st.binary(max_size=4)),
    "many": (pa.list_(pa.int32()), st.none() | st.lists(st.integers(-9, 9), max_size=3)),
    "deep": (pa.struct([("a", pa.string())]), st.none() | st.fixed_dictionaries({"a": st.none() | st.text(max_size=3)})),
    "nothing": (pa.null(), st.none()),
}


def chunked(values, kind, cuts):
    """The values in as many chunks as the cuts make, some of them empty."""
    edges = [0, *sorted(cut % (len(values) + 1) for cut in cuts), len(values)]
    return pa.chunked_array([pa.array(values[a:b], kind) for a, b in itertools.pairwise(edges)], type=kind)


@st.composite
def batches(draw, start=0, max_size=8):
    """An ImageBatch with columns of many types, each chunked in its own way, and payloads that name their row."""
    rows = draw(st.integers(0, max_size))
    ids = [f"r{start + i}" for i in range(rows)]
    cuts = st.lists(st.integers(0, 20), max_size=3)
    columns = {"id": chunked(ids, pa.string(), draw(cuts)), "source": chunked(["s"] * rows, pa.string(), draw(cuts)),
               "_row": chunked(list(range(rows)), pa.int32(), draw(cuts))}
    for name in draw(st.sets(st.sampled_from(sorted(VALUES)))):
        kind, values = VALUES[name]
        columns[name] = chunked(draw(st.lists(values, min_size=rows, max_size=rows)), kind, draw(cuts))
    encoded = [i.encode() for i in ids] if draw(st.booleans()) else None
    pixels = [None if n % 3 == 2 else np.full((1, 1, 3), n, np.uint8) for n in range(rows)] if draw(st.booleans()) else None
    return ImageBatch(pa.table(columns), encoded=encoded, pixels=pixels)


def row_of(batch, at):
    """All that belongs to a row, in a form that can be compared."""
    row = batch.rows.slice(at, 1).to_pylist()[0]
    carried = {name: None if values[at] is None else bytes(values[at]) for name, values in batch.payloads().items()}
    return repr((row, carried))


def rows_of(batch):
    return [row_of(batch, at) for at in range(len(batch))]


@given(batches(), st.data())
def test_take_gives_the_rows_asked_for_with_all_that_belongs_to_them(batch, data):
    places = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=12) if len(batch) else st.just([]))
    taken = batch.take(places)
    assert type(taken) is ImageBatch
    assert taken.rows.schema.equals(batch.rows.schema)
    assert rows_of(taken) == [row_of(batch, at) for at in places]


@given(batches(), st.data(), st.sampled_from(["list", "numpy", "arrow", "chunked"]))
def test_filter_keeps_what_is_true_in_order_and_null_is_not(batch, data, form):
    mask = data.draw(st.lists(st.booleans() | (st.none() if form != "numpy" else st.booleans()),
                              min_size=len(batch), max_size=len(batch)))
    forms = {"list": list, "numpy": lambda m: np.array(m, dtype=bool), "arrow": lambda m: pa.array(m, pa.bool_()),
             "chunked": lambda m: chunked(m, pa.bool_(), [1, 3])}
    kept = batch.filter(forms[form](mask))
    assert rows_of(kept) == [row_of(batch, at) for at, wanted in enumerate(mask) if wanted]


@given(batches(), st.data())
def test_split_gives_each_row_to_its_label_and_loses_none(batch, data):
    labels = data.draw(st.lists(st.sampled_from(["a", "b", None]), min_size=len(batch), max_size=len(batch)))
    parts = batch.split(labels)
    assert list(parts) == list(dict.fromkeys(labels))
    for label, part in parts.items():
        assert rows_of(part) == [row_of(batch, at) for at, own in enumerate(labels) if own == label]


@given(batches(), st.integers(0, 10), st.integers(0, 12))
def test_slice_is_a_range_of_rows(batch, start, stop):
    start = min(start, len(batch))
    assert rows_of(batch.slice(start, stop)) == rows_of(batch)[start:stop]


@given(batches(), st.data())
def test_explode_makes_children_that_know_their_parent(batch, data):
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(batch), max_size=len(batch)))
    children = batch.explode(counts)
    expected = [(f"r{at}#{k}", f"r{at}") for at, count in enumerate(counts) for k in range(count)]
    assert list(zip(children.column("id"), children.column("parent"), strict=True)) == expected
    for child, (_, parent) in enumerate(expected):
        assert children.rows["_row"][child].as_py() == int(parent[1:])
        if batch.encoded is not None:
            assert children.encoded[child] == parent.encode()


@given(batches(), batches(start=100), batches(start=200))
def test_concat_joins_rows_in_order_and_fills_what_one_lacks_with_null(first, second, third):
    parts = [first, second, third]
    joined = Batch.concat(parts)
    assert type(joined) is ImageBatch
    assert joined.column("id") == [i for part in parts for i in part.column("id")]
    whole = [row for part in parts for row in part.rows.to_pylist()]
    for at, row in enumerate(joined.rows.to_pylist()):
        assert repr({name: row[name] for name in whole[at]}) == repr(whole[at])
        assert all(row[name] is None for name in row.keys() - whole[at].keys())
    for name in ("encoded", "pixels"):
        carried = [getattr(part, name) for part in parts]
        if any(values is not None for values in carried):
            expected = [v for part, values in zip(parts, carried, strict=True) for v in values or [None] * len(part)]
            assert [None if v is None else bytes(v) for v in getattr(joined, name)] == [
                None if v is None else bytes(v) for v in expected]
        else:
            assert getattr(joined, name) is None


@given(batches(), st.integers(1, 5))
def test_cut_into_pieces_and_joined_again_it_is_the_same(batch, size):
    pieces = [batch.slice(at, at + size) for at in range(0, len(batch), size)] or [batch]
    assert rows_of(Batch.concat(pieces)) == rows_of(batch)


@given(batches())
def test_columns_can_be_added_replaced_selected_and_left_out(batch):
    more = batch.with_columns({"new": list(range(len(batch))), "source": ["t"] * len(batch)})
    assert more.rows.column_names == [*batch.rows.column_names, "new"]
    assert more.column("source") == ["t"] * len(batch)
    assert rows_of(more.without(["new"]).with_columns({"source": batch.rows["source"]})) == rows_of(batch)
    assert more.select(["new"]).rows.column_names == ["id", "source", "_row", "new"]
    assert list(more.rename({"new": "old"}).column("old")) == list(range(len(batch)))
    assert "_row" not in more.visible().column_names
    assert more.payloads().keys() == batch.payloads().keys()


@given(batches())
def test_bytes_count_only_the_rows_that_are_there(batch):
    pieces = [batch.slice(at, at + 1).nbytes for at in range(len(batch))]
    assert batch.slice(0, 0).nbytes <= 64  # offsets of empty columns
    assert all(size <= batch.nbytes + 64 for size in pieces)


def simple(rows=3, **columns):
    ids = [f"r{i}" for i in range(rows)]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * rows, **columns}))


def test_a_payload_must_have_one_entry_a_row():
    with pytest.raises(ValueError, match=r"ImageBatch.encoded has 1 entries for 3 rows"):
        ImageBatch(simple().rows, encoded=[b"x"])


@pytest.mark.parametrize("call", [lambda b: b.filter([True]), lambda b: b.split(["a"]), lambda b: b.explode([1]),
                                  lambda b: b.with_columns({"x": [1]})])
def test_a_wrong_number_of_values_is_refused(call):
    with pytest.raises(ValueError, match="3 rows"):
        call(simple())


def test_a_column_is_a_list_whatever_it_holds():
    batch = simple(n=[1, 2, 3], gaps=[1, None, 3], flag=[True, False, True], text=["a", None, "c"])
    assert batch.column("n") == [1, 2, 3]
    assert batch.column("flag") == [True, False, True]
    assert batch.column("gaps") == [1, None, 3]
    assert batch.column("text") == ["a", None, "c"]
    with pytest.raises(KeyError, match="no column 'txt'; there are id, source, n, gaps, flag, text"):
        batch.column("txt")


def test_an_array_has_numbers_and_no_gap_that_nobody_filled():
    batch = simple(n=[1, 2, 3], gaps=[1, None, 3], share=[0.5, None, 1.0], flag=[True, None, False], text=["a", None, "c"],
                   none=[None] * 3)
    assert batch.array("n").tolist() == [1, 2, 3]
    assert batch.array("n", null=7).dtype == np.int64
    assert np.shares_memory(batch.array("n"), batch.rows.column("n").chunk(0).to_numpy()), "not copied"
    assert batch.array("gaps", null=0).tolist() == [1, 0, 3]
    assert batch.array("gaps", null=0).dtype == np.int64
    np.testing.assert_array_equal(batch.array("gaps", null=np.nan), [1, np.nan, 3])
    np.testing.assert_array_equal(batch.array("share", null=np.nan), [0.5, np.nan, 1])
    assert batch.array("share", null=0).tolist() == [0.5, 0, 1]
    assert batch.array("flag", null=False).tolist() == [True, False, False]
    assert batch.array("none", null=0).tolist() == [0, 0, 0]
    assert Batch.concat([batch, batch]).array("n").tolist() == [1, 2, 3, 1, 2, 3]
    assert batch.slice(0, 0).array("n").tolist() == []
    with pytest.raises(ValueError, match=r"column 'gaps' has 1 nulls: say what stands for them, such as array\('gaps', null=0\)"):
        batch.array("gaps")
    with pytest.raises(TypeError, match=r"column 'text' is string, and an array has numbers or booleans; use column\('text'\)"):
        batch.array("text")
    with pytest.raises(KeyError, match="no column 'txt'"):
        batch.array("txt")


def test_numbers_widen_and_other_mixtures_are_refused_by_name():
    assert concat_tables([pa.table({"x": [1]}), pa.table({"x": [1.5]})])["x"].to_pylist() == [1.0, 1.5]
    assert concat_tables([pa.table({"x": pa.nulls(1)}), pa.table({"x": ["a"]})])["x"].to_pylist() == [None, "a"]
    with pytest.raises(ValueError, match="Field x has incompatible types: int64 vs string"):
        concat_tables([pa.table({"y": [1], "x": [1]}), pa.table({"y": [1], "x": ["a"]})])


def test_a_number_that_a_float_cannot_hold_is_refused_not_rounded():
    with pytest.raises(ValueError, match="9007199254740993"):
        concat_tables([pa.table({"x": [2**53 + 1]}), pa.table({"x": [0.5]})])


def test_kinds_of_batches_do_not_mix_and_nothing_cannot_be_joined():
    image, audio = ImageBatch(simple().rows, encoded=[b""] * 3), AudioBatch(simple().rows, samples=[None] * 3)
    with pytest.raises(ValueError, match="ImageBatch and AudioBatch"):
        Batch.concat([image, audio])
    with pytest.raises(ValueError, match="no batch"):
        Batch.concat([])


def test_records_can_become_another_kind_and_keep_the_payloads_of_both():
    video = VideoBatch(simple().rows, encoded=[b"a", b"b", b"c"], timestamps=[None] * 3)
    image = video.as_type(ImageBatch)
    assert image.payloads() == {"encoded": [b"a", b"b", b"c"]}
    assert video.as_type(VideoBatch) is video


def test_reasons_and_errors_are_columns():
    assert simple().with_reason("short").column("reason") == ["short"] * 3
    assert simple().with_reason(["a", "b", "c"]).column("reason") == ["a", "b", "c"]
    failed = simple().with_error(ValueError("no"))
    assert failed.column("error") == ["ValueError: no"] * 3
    assert "ValueError: no" in failed.column("traceback")[0]
    assert simple(0).with_error("gone").rows.schema.field("error").type == pa.string()


def test_the_labels_of_a_split_may_be_numpy_values():
    parts = simple().split(np.array(["a", "b", "a"]))
    assert parts["a"].column("id") == ["r0", "r2"]


def test_a_mask_that_is_all_null_keeps_nothing():
    assert len(simple().filter(pa.nulls(3))) == 0
    assert len(simple().filter(pa.nulls(3, pa.bool_()))) == 0


def test_what_is_kept_shares_memory_with_the_batch_it_comes_from():
    batch = simple(n=np.arange(3))
    assert batch.filter([True] * 3) is batch
    before = batch.rows["n"].chunk(0).buffers()[1].address
    assert batch.with_columns({"m": [1, 2, 3]}).rows["n"].chunk(0).buffers()[1].address == before
    assert batch.slice(1, 3).rows["n"].chunk(0).buffers()[1].address == before
