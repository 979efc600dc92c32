"""What the page is told about a run: pages, counts, histograms, neighbours of a threshold, rules to keep."""

from __future__ import annotations

import math
import random
import time

import pytest
import yaml

from curator import CuratorError, load
from curator.explore.questions import Questions
from curator.io.media.types import media_type
from curator.sql.thresholds import thresholds
from curator.stages.rules import parse_rules
from tests.explore.runs import STEPS, made, texts


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    questions = Questions(made(tmp_path_factory.mktemp("asked")))
    yield questions
    questions.close()


def pages(questions, **given):
    found, after = [], None
    for _ in range(100):
        answer = questions.answer("page", {**given, "after": after})
        found += answer["rows"]
        after = answer["next"]
        if after is None:
            return found
    raise AssertionError("there is no end")


def test_a_run_is_told_with_its_rules_and_where_its_records_ended(run):
    told = run.answer("run", {})
    assert told["places"] == {"data": 20, "dropped": 19, "duplicate": 1, "failed": 0}
    assert told["total"] == 40
    assert [(r["stage"], r["reason"], r["when"]) for r in told["rules"]] == [
        ("drop", "few", "n < 10"), ("drop", "late", "ratio > 0.8 AND language = 'en'"), ("odd", "fours", '"select" = 4')]
    assert [t["measure"] for t in told["rules"][1]["thresholds"]] == ["ratio"]
    assert told["reasons"]['["drop","few"]'] == 10
    assert told["text"] == "text"
    assert told["facets"][:3] == ["_place", "_stage", "reason"]


@pytest.mark.parametrize(("sort", "descending"), [("", False), ("n", True), ("select", False), ("language", True), ("reason", False)])
def test_pages_show_every_record_once_and_in_order(run, sort, descending):
    rows = pages(run, sort=sort, descending=descending, limit=7)
    assert sorted(row["id"] for row in rows) == sorted(row["id"] for row in texts())
    values = [(row.get(sort) is None, row.get(sort)) for row in rows] if sort else [(False, row["id"]) for row in rows]
    some = [value for none, value in values if not none]
    assert some == sorted(some, reverse=descending)
    assert values == sorted(values, key=lambda v: v[0])


def test_records_with_one_id_or_with_odd_numbers_are_paged_too(tmp_path):
    numbers = [1.5, math.nan, None, math.inf, -math.inf, 1.5, 1.5, None]
    rows = [{"id": "same", "source": "s", "x": numbers[i % 8], "n": i} for i in range(40)]
    questions = Questions(made(tmp_path, rows, steps="[{drop: {few: n < 3}}]"))
    for sort in ("", "x"):
        for limit in (3, 8):
            rows = pages(questions, sort=sort, limit=limit)
            assert len(rows) == 40
    scale = questions.answer("histogram", {"column": "x"})
    assert sum(map(sum, scale["counts"].values())) == 25
    assert sum(scale["nulls"].values()) == 15


def test_columns_may_be_called_as_queries_call_their_own(tmp_path):
    rows = [{"id": f"r{i:02}", "source": "s", "n": i, "v": 99 - i, "g": 7, "b": 7, "name": "x"} for i in range(20)]
    questions = Questions(made(tmp_path, rows, steps="[{drop: {few: n < 10}}]"))
    assert [row["n"] for row in pages(questions, sort="n", limit=7)] == list(range(20))
    found = questions.answer("near", {"rule": {"stage": "drop", "reason": "few"}, "value": 10, "limit": 2})
    assert {side: [row["n"] for row in some] for side, some in found.items()} == {"below": [9, 8], "above": [10, 11]}


def test_filters_are_all_of_their_parts(run):
    def ids(**given):
        return {row["n"] for row in pages(run, filter=given, sort="n")}

    assert ids(**{"is": {"reason": ["few", "late"]}}) == set(range(10)) | {i for i in range(33, 40) if i % 3}
    assert ids(**{"is": {"reason": [None], "source": ["src/a.jsonl"]}}) == {10, 12, 14 + 2, 18, 20, 22, 26, 28, 30, 32, 36} - {14}
    assert ids(between={"n": [3, 6]}) == {3, 4, 5}
    assert ids(between={"n": [38, None]}) == {38, 39}
    assert ids(where="n % 10 = 0 AND _place = 'data'") == {10, 20, 30}
    assert ids(search="NUMBER 7.") == {7}
    assert ids(search="%") == set()
    assert ids(search="a/../b") == {21}


def test_groups_are_counted_by_where_their_records_ended(run):
    found = {row["value"]: row for row in run.answer("counts", {"by": "language"})["rows"]}
    assert sum(row["all"] for row in found.values()) == 40
    assert all(row["all"] == row["data"] + row["dropped"] + row["duplicate"] + row["failed"] for row in found.values())
    assert found["de"]["dropped"] == 4 + sum(i % 5 == 4 for i in range(12, 40, 3))


def test_a_histogram_tells_who_would_change_hands(run):
    told = run.answer("histogram", {"rule": {"stage": "drop", "reason": "late", "at": 0}})
    counts = {name: sum(some) for name, some in told["counts"].items()}
    kept = list(pages(run, filter={"is": {"_place": ["data"]}}, sort="n"))
    late = [i for i in range(10, 40) if i / 40 > 0.8 and i % 3]
    assert told["drops"] == "above"
    assert counts["kept"] == sum(row["language"] == "de" for row in kept)  # whatever the threshold, the rule lets them pass
    assert counts["kept_movable"] == sum(row["language"] == "en" for row in kept)
    assert counts["this_caught"] == sum(i % 5 == 4 for i in late)
    assert counts["this_movable"] == len(late) - counts["this_caught"]
    assert sum(counts.values()) == 40
    assert told["scale"]["low"] == 0
    assert told["scale"]["high"] == pytest.approx(39 / 40)
    told = run.answer("histogram", {"rule": {"stage": "drop", "reason": "few", "at": 0}})
    assert told["drops"] == "below"
    assert told["scale"]["bins"] == 40


@pytest.mark.parametrize("value", [3, 10.5, 25, 100])
def test_what_all_changes_do_is_told_exactly_and_a_drag_guesses_the_same(run, value):
    told = run.answer("what_if", {"changes": [{"stage": "drop", "reason": "few", "values": [value]}]})
    rows = texts()
    late = [row["ratio"] > 0.8 and row["language"] == "en" for row in rows]
    truth = sum(row["n"] >= value and not late[row["n"]] and row["select"] != 4 for row in rows)
    copies = 1 if value <= 22 else 0
    counts = run.answer("histogram", {"rule": {"stage": "drop", "reason": "few", "at": 0}})["counts"]
    cut = min(40, math.ceil(value))
    assert told["before"] == 20
    assert told["lost"] == sum(counts["kept_movable"][:cut])
    assert told["back"] + sum(told["open"].values()) >= sum(counts["this_movable"][cut:])  # those that dedup must see are open
    assert told["before"] - told["lost"] + sum(counts["this_movable"][cut:]) == truth - copies


def test_scales_bend_where_a_few_values_are_far_off(tmp_path):
    rows = [{"id": f"{i}", "source": "s", "n": i, "x": random.Random(i).expovariate(1) if i else 1e9} for i in range(200)]
    questions = Questions(made(tmp_path, rows, steps="[{drop: {far: x > 1e6 OR n < 0}}]"))
    scale = questions.answer("histogram", {"rule": {"stage": "drop", "reason": "far", "at": 0}})["scale"]
    assert scale["kind"] == "asinh"
    place = (math.asinh(1 / scale["unit"]) - scale["low"]) / (scale["high"] - scale["low"])
    assert place > 0.03  # where most values are, a drag still tells them apart


@pytest.mark.parametrize(("values", "kind"), [([0.0], "linear"), ([0.0] * 999 + [0.2], "asinh")], ids=["all", "nearly all"])
def test_a_scale_has_places_for_people_where_all_or_nearly_all_values_are_the_same(tmp_path, values, kind):
    rows = [{"id": f"{i}", "source": "s", "n": i, "x": x} for i, x in enumerate(values)]
    questions = Questions(made(tmp_path, rows, steps="[{drop: {far: x > 0.3}}]"))
    scale = questions.answer("histogram", {"rule": {"stage": "drop", "reason": "far", "at": 0}})["scale"]
    assert scale["kind"] == kind
    bent = (lambda x: math.asinh(x / scale["unit"])) if kind == "asinh" else float
    assert bent(0.0) <= scale["low"] < bent(0.3) <= scale["high"]
    assert (bent(1e-9) - scale["low"]) / (scale["high"] - scale["low"]) < 0.01  # no part of it is for what nobody can tell from 0


@pytest.mark.parametrize("first", [64, 1], ids=["at once", "step by step"])
def test_neighbours_of_a_threshold_are_those_it_decides_about_the_nearest_first(run, first, monkeypatch):
    monkeypatch.setattr("curator.explore.pages.FIRST_NEAR", first)
    monkeypatch.setattr("curator.explore.pages.MORE_NEAR", 2)
    found = run.answer("near", {"rule": {"stage": "drop", "reason": "few", "at": 0}, "value": 12, "limit": 3})
    assert [row["_value"] for row in found["below"]] == [11, 10, 9]
    assert [row["_value"] for row in found["above"]] == [12, 13, 15]  # 14 is dropped by another rule
    found = run.answer("near", {"rule": {"stage": "drop", "reason": "late", "at": 0}, "value": 0.8, "limit": 2})
    assert [row["n"] for row in found["below"]] == [32, 31]
    assert [row["n"] for row in found["above"]] == [34, 35]


def test_a_record_is_told_with_what_belongs_to_it(run):
    twin = run.answer("record", {"id": "r023"})
    assert twin["row"]["_place"] == "duplicate"
    assert [(one["title"], one["rows"][0]["id"]) for one in twin["related"]] == [("stays in its place", "r022")]
    stays = run.answer("record", {"id": "r022", "place": "data"})
    assert [(one["title"], one["rows"][0]["id"]) for one in stays["related"]] == [("copies of it", "r023")]
    assert "reason" not in stays["row"]


def test_changed_rules_are_written_down_so_that_a_recipe_does_the_same(run, tmp_path):
    changes = [{"stage": "drop", "reason": "few", "values": [12.5]}, {"stage": "drop", "reason": "late", "values": None}]
    told = run.answer("write", {"changes": changes})
    assert told["arguments"] == ["--set 'steps[0].few=n < 12.5'", "--set 'steps[0].late=false'"]
    [file] = told["files"]
    assert file["name"] == "drop.yaml"
    assert [(rule.reason, rule.when) for rule in parse_rules(file["text"], file["name"]).rules] == [("few", "n < 12.5")]
    assert run.rules.get("odd", "fours").path == "steps.odd.fours"  # two steps are called drop, one is called odd
    steps = yaml.safe_load(STEPS)
    recipe = {"read": {"jsonl": {"path": "x"}}, "steps": steps, "write": "parquet", "out": "out"}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    graph = load(str(tmp_path / "r.yaml"), {"steps[0].few": "n < 12.5", "steps[0].late": "false"})
    assert graph.nodes()[1].stage.reasons() == {"few": "n < 12.5", "late": "false"}


def test_a_query_that_takes_too_long_ends_and_others_go_on(run):
    with pytest.raises(CuratorError, match="took too long"):
        run.records.ask("SELECT sum(a.range * b.range) FROM range(10000000) a, range(100000) b", seconds=0.2)
    assert run.records.ask("SELECT count(*) FROM records") == [(40,)]


def test_values_that_python_does_not_hold_are_an_error_and_nothing_is_stuck(run):
    with pytest.raises(CuratorError, match="cannot be shown"):
        run.records.ask("SELECT to_years(3000000)")
    assert not run.records._stuck


def test_one_call_that_cannot_be_stopped_keeps_nobody_waiting(run, monkeypatch):
    monkeypatch.setattr("curator.explore.records.STOP_S", 0.05)
    long = "SELECT levenshtein(repeat('a', 25000), repeat('b', 25000) || id) FROM records LIMIT 1"
    began = time.monotonic()
    with pytest.raises(CuratorError, match="cannot be ended"):
        run.records.ask(long, seconds=0.15)
    assert time.monotonic() - began < 2
    with monkeypatch.context() as patch:
        patch.setattr("curator.explore.records.STUCK_MAX", 1)
        with pytest.raises(CuratorError, match="start curator explore again"):
            run.records.ask("SELECT 1")
    assert run.records.ask("SELECT count(*) FROM records") == [(40,)]
    while run.records._stuck:
        time.sleep(0.05)
    assert run.records.ask("SELECT 1") == [(1,)]


@pytest.mark.parametrize(("steps", "notes"), [("[{drop: {all: n >= 0}}]", 0), ("[{drop: {few: n < 10}}]", 0)])
def test_a_run_that_kept_nothing_or_one_without_a_text_is_shown(tmp_path, steps, notes):
    questions = Questions(made(tmp_path, [{"id": f"{i}", "source": f"{i}.bin", "n": i} for i in range(30)], steps=steps))
    told = questions.answer("run", {})
    assert told["total"] == 30
    assert len(told["notes"]) == notes
    assert told["text"] is None
    assert len(questions.answer("page", {})["rows"]) == 30
    assert questions.answer("histogram", {"column": "n"})["scale"]["bins"] == 30


def test_a_recipe_that_cannot_be_loaded_here_is_said_and_the_records_are_shown(run, monkeypatch):
    def missing(*_):
        raise CuratorError("there is no stage text.nowhere; pip install curator-text")

    monkeypatch.setattr(run.output, "graph", missing)
    told = Questions(run.output).answer("run", {})
    assert told["rules"] == []
    assert "pip install curator-text" in told["notes"][0]
    assert told["total"] == 40


PLAIN = "application/octet-stream"


@pytest.mark.parametrize(("head", "kind"), [
    (b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff\xe0", "image/jpeg"), (b"RIFFxxxxWEBPVP8 ", "image/webp"), (b"GIF89a", "image/gif"),
    (b"\0\0\0\x20ftypavif", "image/avif"), (b"\0\0\0\x18ftypmp42", "video/mp4"), (b"RIFFxxxxWAVEfmt ", "audio/wav"), (b"", PLAIN),
    (b"<svg xmlns", PLAIN), (b"<!doctype html>", PLAIN), (b"%PDF-1.4", PLAIN), (b"GIF8<script>", PLAIN)], ids=lambda x: repr(x)[:20])
def test_bytes_are_a_picture_only_if_they_begin_like_one(head, kind):
    assert media_type(head) == kind


def test_thresholds_that_move_are_those_of_the_condition(run):
    rule = run.rules.get("drop", "late")
    assert rule.thresholds == thresholds(rule.when)
    assert rule.with_values([0.25]) == "ratio > 0.25 AND language = 'en'"
    with pytest.raises(CuratorError, match="number"):
        rule.with_values([True])
