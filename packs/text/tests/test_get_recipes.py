"""The recipes that get what they read, against a server in this process; one of them killed in the middle."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
from click.testing import CliRunner

from curator.cli.main import main
from packs.text.tests.archive_server import Archives, paths_gz
from packs.text.tests.test_get_common_crawl import CRAWL, WARC, response
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
