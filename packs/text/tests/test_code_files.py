"""Source files of folders and archives with the licence of their repository, and what licences say."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile

import pyarrow as pa
import pytest
from curator_text import CodeFiles, CodeLicense
from curator_text.code.licenses import is_license_file, load_licenses

from curator import write
from curator.api.errors import RecipeError
from curator.api.tasks import TextBatch
from curator.front import from_source
from curator.stages.drop import Drop
from curator.testing import check_source, check_stage, run_stage

MIT = """Copyright (c) 2020 A

Permission is hereby granted, free of charge, to any person obtaining a copy of this software (the "Software").
The above copyright notice and this permission notice shall be included in all copies."""
BSD = """Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions are met"""
GPL = "                    GNU GENERAL PUBLIC LICENSE\n                       Version 3, 29 June 2007\n"
TREE = {"LICENSE": MIT, "README.md": "# A", "src/__init__.py": "", "src/_inner/a.py": "x = 1\n",
    "src/b.h": "class B {};\nnamespace b {}\n",
        "vendor/COPYING": GPL, "vendor/lib/c.c": "int c;\n", "img.png": "\x89PNG", ".github/x.yml": "a: b", "Makefile": "all:\n",
        "data.bin.py": "\0" * 99}


def tree(folder, files=TREE):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def tar(files, mode="w:gz", prefix="repo-1.0/"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(prefix + name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def zipped(files, how=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def read(source):
    ports = {"out": [], "dropped": [], "failed": []}
    for unit in source.units():
        for outputs in source.read(unit):
            for port, batch in outputs.items():
                ports[port] += batch.rows.to_pylist()
    return ports


EXPECTED = {"Makefile": "MIT", "README.md": "MIT", "src/__init__.py": "MIT", "src/_inner/a.py": "MIT", "src/b.h": "MIT",
            "vendor/lib/c.c": "GPL-3.0-only"}


def test_a_tree_is_read_with_the_licence_that_is_nearest(tmp_path):
    found = read(CodeFiles(path=str(tree(tmp_path / "project"))))
    assert {row["path"]: row["repository_license"] for row in found["out"]} == EXPECTED
    assert {row["repository"] for row in found["out"]} == {"project"}
    assert {row["repository_license_file"] for row in found["out"]} == {"LICENSE", "COPYING"}
    assert [(row["path"], "no text" in row["error"]) for row in found["failed"]] == [("data.bin.py", True)]
    check_source(CodeFiles(path=str(tmp_path / "project")))


@pytest.mark.parametrize("name", ["repo.tar", "repo.tar.gz", "repo.tgz", "repo.tar.xz", "repo.zip"])
def test_an_archive_is_a_repository(tmp_path, name):
    files = dict(reversed(TREE.items()))     # the licence stands behind what it is about
    modes = {"tar": "w", "gz": "w:gz", "tgz": "w:gz", "xz": "w:xz"}
    data = zipped(files) if name.endswith("zip") else tar(files, modes[name.rpartition(".")[2]])
    (tmp_path / name).write_bytes(data)
    found = read(CodeFiles(path=str(tmp_path)))
    assert {row["path"]: row["repository_license"] for row in found["out"]} == EXPECTED
    assert {row["repository"] for row in found["out"]} == {"repo"}
    top = "" if name.endswith("zip") else "repo-1.0/"
    assert {row["source"] for row in found["out"]} == {f"{tmp_path}/{name}/{top}{path}" for path in EXPECTED}
    assert len({row["id"] for row in found["out"]}) == len(EXPECTED)
    assert len(found["failed"]) == 1


def test_damaged_archives_and_large_files_are_told(tmp_path):
    whole = tar({f"f{n}.py": f"x = {n}\n" * 500 for n in range(20)}, "w")
    (tmp_path / "cut.tar").write_bytes(whole[:len(whole) // 2])
    (tmp_path / "no.zip").write_bytes(b"PK nonsense")
    damaged = bytearray(zipped({"a.py": "x = 1\n" * 99}, zipfile.ZIP_LZMA))
    damaged[50] ^= 255
    (tmp_path / "lzma.zip").write_bytes(damaged)
    (tmp_path / "big.py").write_text("x" * 9000)
    found = read(CodeFiles(path=str(tmp_path), max_file_bytes=8000))
    assert 5 < len(found["out"]) < 15
    assert [row["reason"] for row in found["dropped"]] == ["too_large"]
    assert {row["repository"] for row in found["failed"]} == {"cut", "no", "lzma"}


def test_repositories_below_a_folder_and_languages_that_are_asked_for(tmp_path):
    for name in ("me/one", "you/two"):
        tree(tmp_path / name)
    found = read(CodeFiles(path=str(tmp_path), repository_depth=2, languages=["Python", "C"]))
    assert {(row["repository"], row["path"]) for row in found["out"]} == {
        (name, path) for name in ("me/one", "you/two") for path in ("src/__init__.py", "src/_inner/a.py", "vendor/lib/c.c")}
    assert [(row["path"], row["reason"]) for row in found["dropped"]] == [("src/b.h", "language")] * 2
    assert {row["path"] for row in read(CodeFiles(path=f"{tmp_path}/me/**/*.c"))["out"]} == {"one/vendor/lib/c.c"}
    with pytest.raises(ValueError, match="no ending stands for 'python'"):
        CodeFiles(path="x", languages=["python"])
    assert CodeFiles(path="x", languages=["Objective-C"]).languages  # its endings stand for others too


@pytest.mark.parametrize(("text", "license"), [
    ("// SPDX-License-Identifier: Apache-2.0\nint x;", ("Apache-2.0", "spdx")), ("/* SPDX-License-Identifier: (GPL-2.0+ OR MIT) */",
    ("(GPL-2.0-or-later OR MIT)", "spdx")),
    ("# SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note\n", ("GPL-2.0-only WITH Linux-syscall-note", "spdx")),
    ("# Licensed under the Apache License, Version 2.0 (the \"License\");\n# you may not", ("Apache-2.0", "header")),
    (" * Licensed under the Apache License,\n * Version 2.0", ("Apache-2.0", "header")), (f'"""{MIT}"""', ("MIT", "header")),
    ("/*\n * " + BSD.replace("\n", "\n * ") + "\n */", ("BSD-2-Clause", "header")),
    ("# " + BSD + " ... Neither the name of A", ("BSD-3-Clause", "header")), ("// This file is released under the MIT license.",
    ("MIT", "header")),
    ("This Source Code Form is subject to the terms of the Mozilla Public\n# License, v. 2.0.", ("MPL-2.0", "header")),
    ("under the terms of the GNU Lesser General Public License as published by the Free Software Foundation; either\n"
     "version 2.1 of the License, or (at your option) any later", ("LGPL-2.1-or-later", "header")),
    ("the terms of the GNU General Public License as published by\n# the Free Software Foundation, either version 3 of the License, or",
     ("GPL-3.0-or-later", "header")), ("license = argparse\nx = 1", None), ("def f(): pass", None), ("", None)])
def test_what_a_head_says(text, license):
    assert load_licenses(None).in_header(text) == license


@pytest.mark.parametrize(("expression", "permissive"), [
    ("MIT", True), ("mit", True), ("GPL-3.0-only", False), ("GPL-2.0-only OR MIT", True), ("MIT AND GPL-3.0-only", False),
    ("(MIT OR GPL-2.0-only) AND Zlib", True), ("Apache-2.0 WITH LLVM-exception", True), ("GPL-2.0-only WITH Classpath-exception-2.0",
    False),
    ("LicenseRef-own", False)])
def test_what_is_permissive(expression, permissive):
    assert load_licenses(None).is_permissive(expression) == permissive


def test_of_several_licences_in_one_file_the_first_counts():
    zero = ("Permission to use, copy, modify, and/or distribute this software for any purpose "
            "with or without fee is hereby granted.")
    for first, others, name in (("PSF LICENSE AGREEMENT FOR PYTHON 3.11", zero + MIT, "Python-2.0"), (zero, MIT, "0BSD"),
                                (GPL, MIT, "GPL-3.0-only"), (BSD, "Parts: " + zero + GPL, "BSD-2-Clause")):
        assert load_licenses(None).in_file(f"{first}\n{others}") == name


def test_names_of_licence_files():
    assert all(map(is_license_file, ("LICENSE", "LICENCE.md", "COPYING", "COPYING.LESSER", "license-mit", "LICENSE.txt", "UNLICENSE",
    "MIT-LICENSE")))
    assert not any(map(is_license_file, ("license.py", "licenses.go", "relicense", "copying_files.txt.c", "LICENSING_GUIDE")))


def test_the_stage_takes_the_head_first_and_the_rules_decide(tmp_path):
    texts = ["// SPDX-License-Identifier: GPL-3.0-only", "x = 1", "x = 2", None]
    rows = pa.table({"id": list("abcd"), "source": ["s"] * 4, "text": pa.array(texts, pa.string()),
                     "repository_license": pa.array(["MIT", "MIT", None, "Apache-2.0 OR MIT"], pa.string())})
    stage = CodeLicense()
    out = run_stage(stage, TextBatch(rows))["out"]
    assert out.column("license") == ["GPL-3.0-only", "MIT", None, "Apache-2.0 OR MIT"]
    assert out.column("license_source") == ["spdx", "repository", None, "repository"]
    assert out.column("license_permissive") == [False, True, None, True]
    dropped = run_stage(Drop(rules="permissive_licenses"), out)["dropped"]
    assert dropped.column("reason") == ["not_permissive", "no_license"]
    check_stage(stage, TextBatch(rows), skip={"needs"})
    own = tmp_path / "own.yaml"
    own.write_text("licenses: {Mine: {permissive: true, phrases: [[Do as you like!]]}}")
    mine = TextBatch(pa.table({"id": ["a"], "source": ["s"], "text": ["# License: do\n# as you like"]}))
    assert run_stage(CodeLicense(table=str(own)), mine)["out"].column("license") == ["Mine"]
    own.write_text("licenses: {Mine: {phrases: []}}")
    with pytest.raises(RecipeError, match="Mine: phrases is a list"):
        load_licenses(str(own))


def test_a_run_below_its_folder_goes_on_also_where_a_name_is_not_utf8(tmp_path):
    place = tree(tmp_path / os.fsdecode(b"\xff_a"))
    for skipped in (0, 1):
        result = (from_source(CodeFiles(path=str(place))) >> write(str(tmp_path / "out"), compression=None)).run(workers=0, check=False)
        assert (result.stats["units"]["skipped"], result.records["written"]) == (skipped, 6)
    assert {json.loads(line)["repository"] for line in lines_of(tmp_path / "out")} == {r"\xff_a"}
    inside = from_source(CodeFiles(path=str(tmp_path / "out"))) >> write(str(tmp_path / "out" / "again"), compression=None)
    assert [inside.run(workers=0).stats["units"]["skipped"] for _ in range(2)] == [0, 1]


def lines_of(out):
    return "".join(file.read_text() for file in (out / "data").iterdir()).splitlines()
