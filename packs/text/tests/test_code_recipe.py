"""The recipe text/code on a made tree of repositories: what becomes of each file."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
from click.testing import CliRunner

from curator.cli.main import main

MIT = ("Permission is hereby granted, free of charge, to any person obtaining a copy of this software. "
       "The above copyright notice and this permission notice shall be included.")
CODE = "".join(f"def function_{n}(first, second):\n    total = first * {n} + second\n    return total - {n % 7}\n\n" for n in range(12))
KEY = "ghp_aZ3kQ9xT1mB7vN5cL2pR8sD4fG6hJ0wEuiop"
FILES = {
    "one/LICENSE": MIT, "one/src/__init__.py": "", "one/src/sums.py": '"""Sums."""\n' + CODE, "one/copy.py": '"""Copies."""\n' + CODE,
    "one/net.py": f'TOKEN = "{KEY}"\nMAIL = "jane.doe@company.com"\n' + CODE.replace("total", "answer").replace("function", "answer_of"),
    "one/gen_pb2.py": CODE.replace("total", "x"), "one/long.js": "let a = '" + "word " * 400 + "';\n",
    "one/gpl.py": "# SPDX-License-Identifier: GPL-3.0\n" +
    CODE.replace("first", "begin").replace("total", "number"), "one/bad.c": "\0\1\2" * 50,
    "two/free.go": "package free\n" + "func F(a int) int { return a }\n" * 9}


def test_each_file_of_a_tree_is_written_or_accounted_for(tmp_path):
    for name, text in FILES.items():
        (tmp_path / "repos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repos" / name).write_text(text)
    out = tmp_path / "out"
    told = CliRunner().invoke(main, ["run", "text/code", "--workers", "0", "--out", str(out), "--set", f"read.path={tmp_path}/repos",
                                     "--set", "read.repository_depth=1"])
    assert told.exit_code == 0, told.output
    counts = json.loads((out / "_run/stats.json").read_text())["records"]
    assert {name: counts[name] for name in ("in", "written", "dropped", "duplicate", "failed")} == {
        "in": 9, "written": 2, "dropped": 5, "duplicate": 1, "failed": 1}
    rows = {row["path"]: row for file in (out / "data").glob("*.parquet") for row in pq.read_table(file).to_pylist()}
    assert rows.keys() in ({"net.py", "src/sums.py"}, {"net.py", "copy.py"})
    net = rows["net.py"]
    assert (net["repository"], net["license"], net["code_language"], net["secret_kinds"]) == ("one", "MIT", "Python", ["github"])
    assert KEY not in net["text"]
    assert "jane.doe" not in net["text"]
    assert 'TOKEN = "ghp_EXAMPLE' in net["text"]
    reasons = {row["path"]: row["reason"] for file in (out / "dropped").rglob("*.parquet") for row in pq.read_table(file).to_pylist()}
    assert reasons == {"src/__init__.py": "empty", "gen_pb2.py": "generated", "long.js": "long_lines", "gpl.py": "not_permissive",
                       "free.go": "no_license"}
