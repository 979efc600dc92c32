"""The recipes that get what they read, against a server in this process; one of them killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from curator.cli.main import main
from curator.io.files.folder import open_input
from packs.text.tests.archive_server import Archives, paths_gz
from packs.text.tests.test_get_arxiv import MAIN as TEX_MAIN
from packs.text.tests.test_get_arxiv import gz, tar
from packs.text.tests.test_get_common_crawl import CRAWL, WARC, response
from packs.text.tests.test_get_wikipedia import ARTICLE as WIKI_ARTICLE
from packs.text.tests.test_get_wikipedia import multistream
from packs.text.tests.test_get_wikipedia import page as wiki_page
from packs.text.tests.test_text_recipes import ARTICLE, SPAM, page


def run(tmp_path, recipe, **settings):
    """The numbers of a run and what it wrote."""
    words = ["run", recipe, "--workers", "0", "--out", str(tmp_path / "out")]
    for name, value in settings.items():
        words += ["--set", f"{name.replace('__', '.')}={value}"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    files = sorted((tmp_path / "out/data").rglob("*.parquet"))
    return json.loads((tmp_path / "out/_run/stats.json").read_text())["records"], [r for f in files for r in pq.read_table(f).to_pylist()]


def test_common_crawl_becomes_clean_documents(tmp_path):
    members = [response(f"https://a.example/{n}", page(html)) for n, html in enumerate([ARTICLE, SPAM, ARTICLE])]
    server = Archives({WARC.format(0): b"".join(members), f"crawl-data/{CRAWL}/warc.paths.gz": paths_gz(WARC.format(0))})
    try:
        counts, rows = run(tmp_path, "text/common-crawl", read__base_url=server.url, read__private="true", read__snapshots=f"[{CRAWL}]")
    finally:
        server.close()
    assert [row["url"] for row in rows] == ["https://a.example/0"]
    assert (counts["in"], counts["dropped"], counts["duplicate"], counts["failed"]) == (3, 1, 1, 0)
    assert rows[0]["snapshot"] == CRAWL


def test_wikipedia_becomes_documents(tmp_path):
    pages = [wiki_page(1, WIKI_ARTICLE), wiki_page(2, "A stub."), wiki_page(3, "#REDIRECT [[Page 1]]", redirect="Page 1")]
    name = "simplewiki-20240601-pages-articles-multistream.xml.bz2"
    data = multistream(pages)
    status = {"jobs": {"articlesmultistreamdump": {"status": "done", "files": {name: {"size": len(data), "sha1": "x"}}}}}
    server = Archives({f"simplewiki/20240601/{name}": data, "simplewiki/20240601/dumpstatus.json": json.dumps(status).encode()})
    try:
        counts, rows = run(tmp_path, "text/wikipedia", read__base_url=server.url, read__private="true", read__date="20240601")
    finally:
        server.close()
    assert [row["id"] for row in rows] == ["simplewiki-1"]
    assert rows[0]["text"].startswith("**Niue** is an island country")
    assert "## History" in rows[0]["text"]
    assert (counts["in"], counts["dropped"]) == (3, 2)


def test_arxiv_becomes_documents(tmp_path):
    long = TEX_MAIN.replace("We study", "We study islands. " * 99 + "We study")
    sent = {"main.tex": long.encode(), "sections/intro.tex": b"Islands."}
    members = {f"2403/2403.0000{n}.gz": gz(data) for n, data in enumerate([tar(sent), TEX_MAIN.encode(), tar(sent)])}
    (tmp_path / "arXiv_src_2403_001.tar").write_bytes(tar({**members, "2403/2403.00009.pdf": b"%PDF"}))
    counts, rows = run(tmp_path, "text/arxiv", read__path=tmp_path / "*.tar")
    assert [(row["id"], row["title"]) for row in rows] == [("2403.00000", "On Niue")]
    assert (counts["in"], counts["dropped"], counts["duplicate"]) == (4, 2, 1)


RECIPE = """
name: killed
read:
  text.common_crawl: {{snapshots: [{crawl}], base_url: "{url}", index_url: "{url}", private: true, delay_s: 0.01{more}}}
steps: [text.extract_html]
write: jsonl
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("more", ["", ', urls: ["*.example"]'], ids=["archives", "index"])
def test_a_run_that_is_killed_goes_on_and_gets_nothing_twice(tmp_path, more):
    archives, pages_each = 8, 30  # enough for whole batches while one archive is held back
    server, entries, held = Archives(), [], f"/{WARC.format(5)}"
    for number in range(archives):
        data, name = b"", WARC.format(number)
        for at in range(pages_each):
            url, html = f"https://h{number}.example/{at}", page(f"<p>Page {at} of {number} says something.</p>")
            member = response(url, html)
            entries.append({"url": url, "status": "200", "filename": name, "offset": str(len(data)), "length": str(len(member))})
            data += member
        server.put(name, data)
    server.put(f"crawl-data/{CRAWL}/warc.paths.gz", paths_gz(*(WARC.format(n) for n in range(archives))))
    server.index(CRAWL, entries, page_lines=pages_each)
    answer = server.pages[held]
    server.pages[held] = lambda handler: (server.released.wait(400), answer(handler))
    (tmp_path / "killed.yaml").write_text(RECIPE.format(crawl=CRAWL, url=server.url, more=more))
    command = [sys.executable, "-m", "curator", "run", str(tmp_path / "killed.yaml"), "--out", str(tmp_path / "out"), "--workers", "2"]

    def committed() -> int:
        return sum('"uris"' in line for file in (tmp_path / "out/_run").glob("ledger/[0-9]*") for line in file.read_text().splitlines())

    try:
        with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
            deadline = time.monotonic() + 240
            while not (committed() and server.asked[held]) and killed.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            early = killed.poll()
            os.killpg(killed.pid, signal.SIGKILL)
        assert early is None
        assert 1 <= committed() < archives
        server.released.set()
        asked = {name: len(server.parts.get(name, [])) for name in map(WARC.format, range(archives))}
        again = subprocess.run(command, capture_output=True, text=True, timeout=400)
        assert again.returncode == 0, again.stdout + again.stderr
        assert any(len(server.parts[name]) == asked[name] > 0 for name in asked), "what was committed is read again"
    finally:
        server.close()
    found = [json.loads(line)["url"] for file in (tmp_path / "out/data").rglob("*.jsonl*") for line in lines_of(file)]
    assert sorted(found) == sorted(entry["url"] for entry in entries)


def lines_of(file) -> list[str]:
    with open_input(str(file)) as opened:
        return opened.read().decode().splitlines()
