"""The numbers of a run for Prometheus: their text, the port, a run that is read while it works, the dashboard."""

import json
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from urllib.request import Request, urlopen

import pytest

from curator import CuratorError
from curator.io.files.folder import Folder
from curator.observe.live.metrics import FAMILIES, Endpoint, Published, Sample, Steady, samples
from curator.observe.live.observer import Observer
from tests.engine.small_stages import DropWord, FirstOfText, Shout, WaitingSink, lines, wait_until, write_lines

DOCS = Path(__file__).parents[2] / "docs/observe.md"
RUN = {"name": "x", "out": "out", "attempt": 1, "version": "0", "seconds": 1.5, "units_done": 1, "units_left": 2, "bytes_done": 3,
       "bytes_left": 4, "limit": "ocr on 2 cores"}
STAGE = {"name": "ocr", "in": 5, "made": 1, "out": {"out": 3}, "dropped": {"too_short": 1}, "duplicate": 1, "failed": 1,
         "absorbed": 0, "busy_s": 0.25}
ENGINE = {"operators": [{"name": "ocr", "queue_rows": 1, "queue_bytes": 2, "queue_limit": 3.5, "rows_per_s": 4.0,
                         "setup_s": 0.5, "calls": 6, "busy_s": 7.0, "workers": {"starting": 0, "working": 1, "idle": 2}}],
          "nodes": [{"node": "0", "cores": 2.0, "cores_used": 1.0, "gpus": 1, "gpus_used": 0.5}],
          "live_bytes": 8, "budget_bytes": 9}
ALL = samples(RUN, [STAGE], ENGINE, {"worker_lost": 2})

UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def parse(text: str) -> dict[tuple[str, tuple], float]:
    """Prometheus' text format, strictly: every name typed and told before its first sample, in one piece; no series twice."""
    found: dict[tuple[str, tuple], float] = {}
    seen: list[str] = []
    assert text.endswith("\n")
    rows = iter(text.removesuffix("\n").split("\n"))
    for row in rows:
        if row.startswith("# HELP "):
            name = re.fullmatch(r"# HELP ([a-zA-Z_:][\w:]*) [^\n]+", row)[1]
            kind = re.fullmatch(rf"# TYPE {name} (counter|gauge)", next(rows))[1]
            assert (kind == "counter") == name.endswith("_total")
            assert name not in seen
            seen.append(name)
            continue
        match = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", row)
        assert match, row
        assert match[1] == seen[-1], row
        label = r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"'
        inner = match[2] or ""
        assert re.fullmatch(rf"(?:{label}(?:,{label})*)?", inner), row
        labels = tuple((n, re.sub(r'\\[\\"n]', lambda m: UNESCAPED[m[0]], v)) for n, v in re.findall(label, inner))
        assert (match[1], labels) not in found, row
        found[match[1], labels] = float(match[3])
    return found


def scrape(url: str) -> dict[tuple[str, tuple], float]:
    with urlopen(url, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    return parse(text) if text else {}


def test_samples_give_every_family_and_each_one_is_documented():
    assert {s.name for s in ALL} == set(FAMILIES)
    table = re.findall(r"^\| `(curator_\w+)` \| (\w+) \| (.*) \| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    assert [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), told) for name, kind, labels, told in table] == [
        (name, family.kind, family.labels, family.help) for name, family in FAMILIES.items()]


@pytest.fixture
def served():
    """What a port answers that serves these samples."""
    endpoint = Endpoint(0)

    def serve(samples):
        endpoint.samples = samples
        return scrape(endpoint.url)

    yield serve
    endpoint.close()


def in_order(samples):
    """By name and labels; the order of labels says nothing."""
    return {(s.name, tuple(sorted(s.labels))): s.value for s in samples}


def test_the_text_is_prometheus(served):
    parsed = served(ALL)
    assert parsed == in_order(ALL)
    assert parsed["curator_stage_rows_dropped_total", (("reason", "too_short"), ("stage", "ocr"))] == 1
    assert parsed["curator_node_gpus_used", (("node", "0"),)] == 0.5


def test_labels_may_hold_anything(served):
    odd = 'a "b" \\ c\nd {e="f"},'
    assert served([Sample("curator_limit_info", (("limit", odd),), 1)]) == {("curator_limit_info", (("limit", odd),)): 1}


def test_a_counter_stands_still_while_work_is_done_again():
    rows, steady = [("curator_events_total", (("event", "x"),)), ("curator_live_bytes", ())], Steady()
    assert [s.value for v in (5, 2, 6) for s in steady([Sample(*r, v) for r in rows])] == [5, 5, 5, 2, 6, 6]


def test_gauges_of_another_library_are_told_and_what_is_gone_is_0():
    told = {}

    def gauge(name, text, labels):
        assert text
        assert labels == FAMILIES[name].labels
        return SimpleNamespace(set=lambda value, tags: told.update({(name, tuple(tags.items())): value}))

    published = Published(gauge)
    published.publish(ALL)
    assert told == {(s.name, s.labels): s.value for s in ALL}
    later = samples({**RUN, "limit": "disk"}, [STAGE], ENGINE, {})
    published.publish(later)
    assert told["curator_limit_info", (("limit", "disk"),)] == 1
    assert told["curator_limit_info", (("limit", "ocr on 2 cores"),)] == 0


def test_an_observer_tells_numbers_only_where_somebody_wants_them(tmp_path):
    observer = Observer(Folder.open(str(tmp_path)), "x", 1)
    assert not observer.due()
    told = {}
    observer.publish_to(lambda name, text, labels: SimpleNamespace(set=lambda value, tags: told.update({name: value})))
    assert observer.due()
    shot = {"units_done": 1, "units_total": 3, "bytes_done": 5, "bytes_total": 7, "limit": ""}
    observer.update(shot, [STAGE], {})
    assert not observer.due(), "not again at once"
    assert told["curator_units"] == 2, "left to do"
    assert told["curator_stage_rows_failed_total"] == 1


def test_the_port_is_of_this_machine_and_answers_whoever_asks_for_another_format():
    endpoint = Endpoint(0)
    try:
        assert endpoint.url.startswith("http://127.0.0.1:")
        endpoint.samples = ALL
        assert len(scrape(endpoint.url)) == len(ALL)
        asked = Request(endpoint.url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        with urlopen(asked, timeout=30) as answer:
            assert answer.read().endswith(b"# EOF\n")
    finally:
        endpoint.close()


def test_a_port_that_is_taken_is_an_error_before_the_run(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        texts = write_lines(tmp_path / "in", a=["one"])
        with pytest.raises(CuratorError, match=rf"127\.0\.0\.1:{port}.*another port"):
            (lines(texts) >> WaitingSink(path=str(tmp_path / "out"), gate="")).run(workers=0, metrics_port=port)
    assert not (tmp_path / "out/_run/events.jsonl").exists()
    with pytest.raises(CuratorError, match="'ninety'"):
        Endpoint("ninety")
    with pytest.raises(CuratorError, match="choose another port"):
        Endpoint("no.such.host.invalid:9400")


def test_a_run_is_read_while_it_works_and_its_numbers_are_those_of_the_end(tmp_path):
    # One unit: behind one that waits, another could wait too.
    texts = write_lines(tmp_path / "in", a=["one", "two bad", "one", "three", "wait", "four bad"])
    gate, out = tmp_path / "gate", tmp_path / "out"
    pipeline = lines(texts) >> DropWord() >> Shout() >> FirstOfText() >> WaitingSink(path=str(out), gate=str(gate))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(pipeline.run, workers=2, metrics_port=0)
        try:
            log = out / "_run/events.jsonl"
            wait_until(lambda: running.done() or (log.exists() and log.read_text().endswith("\n")), 60)
            url = json.loads(log.read_text().splitlines()[0])["metrics"]
            seen: dict = {}

            def all_rows_are_in_the_sink() -> bool:
                seen.clear()
                seen.update(scrape(url))
                rows = sum(v for (name, _), v in seen.items() if name == "curator_stage_rows_in_total")
                return rows == 6 + 6 + 4 + 4 + 3

            wait_until(all_rows_are_in_the_sink, 60)
        finally:
            gate.touch()
        result = running.result(60)
    stats = json.loads((out / "_run/stats.json").read_text())
    assert stats["records"] == result.records == {**result.records, "in": 6, "written": 3, "dropped": 2, "duplicate": 1}
    of_stages = {key: value for key, value in seen.items() if key[0].startswith("curator_stage_rows")}
    assert of_stages == in_order(s for s in samples(RUN, stats["stages"], {}, {}) if s.name.startswith("curator_stage_rows"))
    working = {dict(labels)["operator"]: v for (name, labels), v in seen.items()
               if name == "curator_operator_workers" and dict(labels)["state"] == "working"}
    assert working["write"] >= 1
    assert seen["curator_node_cores", (("node", "0"),)] == 2
    assert 0 < seen["curator_node_cores_used", (("node", "0"),)] <= 2
    assert seen["curator_units", (("state", "left"),)] == seen["curator_events_total", (("event", "unit_read"),)] == 1
    with pytest.raises(OSError, match="refused"):
        urlopen(url, timeout=30)


# -- the dashboard ----------------------------------------------------------------------------------------------------


def dashboard() -> dict:
    return json.loads(files("curator.observe.live").joinpath("grafana.json").read_text())


def test_every_metric_of_the_dashboard_is_one_that_runs_give_and_each_one_is_shown():
    queries = [t["expr"] for panel in dashboard()["panels"] for t in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"\bcurator_\w+", query)}
    assert used == set(FAMILIES)
    for query in queries:
        for name, selected in re.findall(r"(curator_\w+)\{(.*?)\}", query):
            assert set(re.findall(r"(\w+)=", selected)) <= {"instance", *FAMILIES[name].labels}, query
        for by in re.findall(r"by \((.*?)\)", query):
            labels = {label for name in re.findall(r"curator_\w+", query) for label in FAMILIES[name].labels}
            assert set(by.split(", ")) <= labels, query


def test_counters_are_shown_as_rates_or_as_what_they_are():
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            for inner in re.findall(r"(?:rate|increase)\((curator_\w+)", target["expr"]):
                assert FAMILIES[inner].kind == "counter"


def test_the_dashboard_asks_for_its_data_source_and_places_its_panels_side_by_side():
    shown = dashboard()
    assert {v["name"]: v["type"] for v in shown["templating"]["list"]}["datasource"] == "datasource"
    cells = []
    for panel in shown["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells += [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in shown["panels"]}) == len(shown["panels"])


def test_the_command_prints_it():
    printed = subprocess.run([sys.executable, "-m", "curator", "grafana"], capture_output=True, text=True, check=True)
    assert json.loads(printed.stdout) == dashboard()
