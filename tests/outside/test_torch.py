"""A pipeline as a dataset of PyTorch: each record once over ranks and workers, and the same ones go on after a stop."""

from __future__ import annotations

import itertools
import json
import pickle

import pytest

from curator import CuratorError, ImageBatch, RecipeError, read, stage, write
from curator.api.errors import ContractError, RunStopped
from curator.stages import Top

FILES, ROWS = 7, 11


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("in")
    for n in range(FILES):
        (folder / f"{n}.jsonl").write_text("".join(json.dumps({"row": n * ROWS + k, "few": [k, n]}) + "\n" for k in range(ROWS)))
    return read(str(folder / "*.jsonl"), unit_bytes=200) >> {"drop": {"thirds": "row % 3 = 1"}}


KEPT = [row for row in range(FILES * ROWS) if row % 3 != 1]


def rows(dataset) -> list[int]:
    return [record["row"] for record in dataset]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ranks", [1, 3, 20])
@pytest.mark.filterwarnings("ignore:.* units for 20")
def test_each_record_comes_once_over_all_ranks(many, ranks, shuffle):
    shares = [rows(many.to_torch(rank=rank, world_size=ranks, shuffle=shuffle)) for rank in range(ranks)]
    assert sorted(itertools.chain(*shares)) == KEPT
    if ranks == 1:
        assert (shares[0] == KEPT) != shuffle
    if ranks == 3:
        assert all(shares)


def test_units_that_are_too_few_are_told(many):
    dataset = many.to_torch(rank=0, world_size=20)
    with pytest.warns(UserWarning, match=f"{20 - dataset.units} of them get no record"):
        rows(dataset)


def test_an_epoch_is_shuffled_by_its_number_and_the_seed(many):
    dataset = many.to_torch(shuffle=True)
    first, again = rows(dataset), rows(dataset)
    dataset.set_epoch(1)
    assert first == again
    assert first != rows(dataset)
    assert first != rows(many.to_torch(shuffle=True, seed=1))


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_same_records_go_on_after_a_stop(many, shuffle):
    whole = rows(many.to_torch(shuffle=shuffle))
    for taken in (0, 1, 10, 25, len(whole)):
        dataset = many.to_torch(shuffle=shuffle)
        before = rows(itertools.islice(dataset, taken))
        state = json.loads(json.dumps(dataset.state_dict()))
        resumed = pickle.loads(pickle.dumps(many.to_torch(shuffle=shuffle)))
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert before + rows(resumed) == whole
        assert rows(resumed) == whole  # the epoch after it


def test_a_state_of_something_else_is_refused(many):
    state = many.to_torch(rank=0, world_size=2).state_dict()
    for other, what in ((many.to_torch(rank=1, world_size=2), "ranks"), (many.to_torch(rank=0, world_size=2, seed=1), "seed"),
                        ((many >> {"map": {"more": "row + 1"}}).to_torch(rank=0, world_size=2), "pipeline")):
        with pytest.raises(CuratorError, match=what):
            other.load_state_dict(state)
    with pytest.raises(CuratorError, match="another dataset"):
        other.load_state_dict({})


def test_columns_are_chosen_and_lists_of_numbers_are_arrays(many):
    first = next(iter(many.to_torch(columns=["few"])))
    assert list(first) == ["few"]
    assert first["few"].tolist() == [0, 0]
    with pytest.raises(ContractError, match="fwe"):
        many.to_torch(columns=["fwe"])


@stage(needs={"row"}, adds={"encoded": None})
def pictured(batch):
    return batch.as_type(ImageBatch).with_payloads(encoded=[bytes([row]) for row in batch.column("row")])


def test_payloads_come_where_they_are_asked_for(many):
    assert [record["encoded"][0] for record in (many >> pictured).to_torch(columns=["encoded"])] == KEPT
    assert "encoded" not in next(iter((many >> pictured).to_torch()))


def test_branches_come_together_in_the_same_order_each_time(many):
    parts = many.route({"low": "row < 30", "high": "row >= 30"})
    united = (parts["high"] >> {"map": {"half": "row / 2"}}) + parts["low"]
    assert sorted(rows(united.to_torch())) == KEPT
    assert rows(united.to_torch()) == rows(united.to_torch())


def test_stages_that_see_all_rows_and_sinks_are_refused(many):
    with pytest.raises(CuratorError, match="'top' has to see all rows"):
        (many >> Top(by="row", n=3)).to_torch()
    with pytest.raises(CuratorError, match="'limit' has to see all rows"):
        (many >> {"limit": {"records": 3}}).to_torch()
    with pytest.raises(RecipeError, match="sink"):
        (many >> write("out")).to_torch()


def test_an_error_of_a_stage_reaches_the_loop(many):
    @stage(needs={"row"})
    def broken(batch):
        raise ValueError(f"{len(batch)} are too many")

    with pytest.raises(RunStopped, match=r"(?s)max_failed = 0.*1 are too many"):
        rows((many.named("strict", max_failed=0) >> broken).to_torch())


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_the_workers_of_a_loader_share_the_units_and_go_on_where_they_stopped(many):
    loading = pytest.importorskip("torch.utils.data")
    assert sorted(r for b in loading.DataLoader(many.to_torch(columns=["row"]), batch_size=4, num_workers=2)
                  for r in b["row"].tolist()) == KEPT
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader():
        return stateful(many.to_torch(columns=["row"], shuffle=True), batch_size=4, num_workers=2)

    whole = [b["row"].tolist() for b in loader()]
    for stop in (1, 7):
        first = loader()
        before = [b["row"].tolist() for b in itertools.islice(first, stop)]
        second = loader()
        second.load_state_dict(first.state_dict())
        assert before + [b["row"].tolist() for b in second] == whole
