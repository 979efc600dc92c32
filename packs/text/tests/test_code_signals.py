"""Signals of source code: languages, comments, encoded data, generated files, and the rule sets made of them."""

from __future__ import annotations

import ast
import base64
import io
import random
import tokenize
from pathlib import Path

import pyarrow as pa
import pytest
from curator_text import CodeSignals
from curator_text.code.comments import Comments
from curator_text.code.encoded import encoded
from curator_text.code.generated import generated
from curator_text.code.languages import load_languages
from curator_text.code.measure import characters, line_lengths, visible_characters

from curator.api.errors import RecipeError
from curator.api.tasks import TextBatch
from curator.stages.drop import Drop
from curator.testing import check_stage, run_stage

TABLE = load_languages(None)


def files(*pairs, **columns):
    paths, texts = zip(*pairs, strict=True)
    return TextBatch(pa.table({"id": [f"r{n}" for n in range(len(pairs))], "source": pa.array(paths, pa.string()),
                               "text": pa.array(texts, pa.string()), **columns}))


@pytest.mark.parametrize(("path", "text", "language"), [
    ("a/b.PY", "", "Python"), ("Makefile", "", "Makefile"), ("x/CMakeLists.txt", "", "CMake"), ("notes.txt", "", "Text"),
    ("a.h", "int f(void);\n", "C"), ("a.h", "#pragma once\nnamespace a {\n}\n", "C++"), ("a.h", "@interface A\n", "Objective-C"),
    ("a.m", "function y = f(x)\n  y = x;\n", "MATLAB"), ("a.m", "#import <A.h>\n", "Objective-C"),
    ("a.pl", "use strict;\n", "Perl"), ("a.pl", "father(X, Y) :- parent(X, Y).\n", "Prolog"), ("a.ts", "let a = 1", "TypeScript"),
    ("a.ts", "<!DOCTYPE TS><TS version='2'>", "Qt Linguist"), ("a.v", "Theorem x : 1 = 1.\nProof.", "Coq"),
    ("a.v", "module m; endmodule", "Verilog"), ("run", "#!/usr/bin/env python3.11\n", "Python"), ("run", "#!/bin/bash -e\n", "Shell"),
    ("run", "#! /usr/bin/env -S node --x\n", "JavaScript"), ("run", "hello", None), (None, "x", None), (".gitignore", "", None),
    ("a.fs", "module A\nlet x = 1", "F#"), ("a.fs", "#version 330\n", "GLSL")])
def test_the_language_is_told_by_name_and_where_that_does_not_tell_by_content(path, text, language):
    assert TABLE.of(path, text) == language


@pytest.mark.parametrize(("language", "text", "comments"), [
    ("Python", 'x = "# no"  # yes\n', ["# yes"]), ("Python", 'def f():\n    """Doc."""\n    return """no"""\n', ['"""Doc."""']),
    ("Python", 'f(\n  """no""",\n  """\n  no"""\n)\n', []), ("Python", "s = '''# no\n# no'''\n#yes", ["#yes"]),
    ("Python", r'a = "\"# no"', []),
    ("C", 'char *s = "/* no"; // a\n/* b\n */ x', ["// a", "/* b\n */"]), ("C", "/* never closed", ["/* never closed"]),
    ("JavaScript", "let a = `// no ${b}\n// no`; // yes", ["// yes"]), ("Shell", 'echo $# "${a#x}" # yes\n', ["# yes"]),
    ("Rust", "fn f<'a>(x: &'a str) {} // yes\nlet c = '\"'; // too", ["// yes", "// too"]), ("SQL", "select '--no' -- yes", ["-- yes"]),
    ("Lua", "--[[ a\nb ]] x = 1 -- c", ["--[[ a\nb ]]", "-- c"]), ("HTML", "<p>a</p><!-- b -->", ["<!-- b -->"]),
    ("Haskell", "f x' = x' -- a\n{- b -}", ["-- a", "{- b -}"]), ("TeX", "50 % c\n", ["% c"]),
    ("Fortran", "C old\n      x = 1 ! new\n", ["C old", "! new"]), ("YAML", "a: b#c # d", ["# d"])])
def test_comments_are_found_and_strings_are_none(language, text, comments):
    found = [text[a:b] for a, b in Comments(TABLE.styles[language]).spans(text)]
    assert found == comments


def test_comments_of_python_are_those_that_its_own_tokenizer_and_parser_tell():
    for module in (ast, io, tokenize, random, pytest):
        text = Path(module.__file__).read_text(encoding="utf-8")
        comments = sum(len(t.string) for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT)
        documents = [ast.get_source_segment(text, node) for node in ast.walk(ast.parse(text))
                     if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
        expected = comments + sum(len(d) for d in documents if d.lower().startswith(('"""', "'''", 'r"""')))
        assert Comments(TABLE.styles["Python"]).share(text) == pytest.approx(expected / len(text), abs=0.002)


DATA = random.Random(0).randbytes(600)
WRAPPED = base64.encodebytes(DATA).decode()
LITERAL = "".join(f"\\x{b:02x}" for b in DATA[:40])


@pytest.mark.parametrize(("text", "longest"), [
    ("key = '" + base64.b64encode(DATA).decode() + "'", 800), (WRAPPED, len(WRAPPED.rstrip())), (LITERAL, 160),
    ("{" + ", ".join(f"0x{b:02X}" for b in DATA[:40]) + "}", 40 * 6 - 2), (" ".join(f"{b:02x}" for b in DATA[:40]), 40 * 3 - 1),
    (DATA[:64].hex(), 128), ("\\u00e9" * 30, 180),
    ("\n".join(["apple", "banana", "cherry"] * 200), 0), ("usr/local/lib/python/site/packages/" * 8, 0), ("x" * 500, 0),
    ("AVeryLongNameOfAClassThatSomeoneWroteInJavaForAFactoryOfFactoriesOfBeans", 0), ("10, 11, 12, 13, 14, 15, 16, 17, 18, 19", 0),
    ("-" * 200, 0), ("", 0)], ids=range(14))
def test_encoded_data_is_found_and_words_and_paths_are_not(text, longest):
    assert encoded(text)[0] == pytest.approx(longest, abs=2)
    assert encoded(f"a\n{text}\nb = 1\n")[1] <= longest + 2


@pytest.mark.parametrize(("path", "text", "sign"), [
    ("a.go", "// Code generated by protoc-gen-go. DO NOT EDIT.\npackage a", "header"), ("a.py", "\n# This file is generated\n", "phrase"),
    ("a_pb2.py", "x", "name"), ("package-lock.json", "{}", "lock"), ("a.min.js", "x", "minified"), ("a.js", "x=1;" * 500, "minified"),
    ("a.css.map", "{}", "source map"), ("a.py", "x = 1\n" * 5 + "# automatically generated\n", None),
    ("a.js", "let a = 1\n" * 300, None), ("a.py", "def code_generated_by(x): pass", None)])
def test_what_a_program_wrote_is_told(path, text, sign):
    assert generated(path, text) == sign


def test_lines_and_characters():
    assert line_lengths("Lorem ipsum \ndolor sit amet,") == (2, 15, 13.5)
    assert line_lengths("") == (0, 0, 0.0)
    assert line_lengths("abc\n") == (1, 3, 3.0)
    assert visible_characters("<html><script>var a</script><style>b{}</style><!-- c --><p title='>'>a &amp; b</p>") == len("a & b")


@pytest.mark.parametrize("text", ["", "abc 12_\n", "aé1٣²Ⅷ中ª\U0001d7d8 _\x00", "ß"])
def test_characters_are_counted_as_python_counts_them(text):
    assert characters(text) == tuple(sum(map(kind, text)) for kind in (str.isalpha, str.isalnum, str.isdecimal))


def verdicts(rules, expected):
    """What the rules say of (path, text) -> reason, beside what is expected."""
    outputs = run_stage(Drop(rules=rules), run_stage(CodeSignals(), files(*((path, text) for path, text, _ in expected)))["out"])
    dropped = outputs.get("dropped")
    said = dict(zip(dropped.column("source"), dropped.column("reason"), strict=True)) if dropped is not None else {}
    return [(path, said.get(path)) for path, _, _ in expected], [(path, reason) for path, _, reason in expected]


GOOD = "# Adds numbers.\n" + "def add(first, second):\n    return first + second\n\n" * 8
XML = "<?xml version='1.0'?>\n" + GOOD


@pytest.mark.parametrize(("rules", "expected"), [
    ("starcoder", [
        ("a.py", GOOD, None), ("b.py", "x" * 1001, "long_lines"), ("c.md", "word " * 400, None), ("d.csx", GOOD, "ending"),
        ("e.js", "{}[]();\n" * 9, "few_letters_and_digits"), ("f.xml", XML, "xml"), ("g.xslt", XML, None),
        ("h.html", "<p>short</p>", "little_visible_text"), ("i.json", '{"a": 1}', "few_letters_in_data"),
        ("i.yaml", "abc: abc\n" * 600, "size_of_data"), ("j", GOOD, "unknown_language"), ("k.y", "12345 + 12345\n" * 9, "few_letters")]),
    ("starcoder2", [
        ("a.py", GOOD, None), ("b.py", "# autogenerated\n" + GOOD, "generated"), ("c.md", "w " * 600, None),
        ("d.py", "x = '" + "é" * 1000 + "'", "long_lines"), ("f.txt", "hello world", "other_text_file"), ("README", "hello", None),
        ("g.yaml", "a: b\n" * 513, "large_data_file"), ("h.py", "1 + 1\n" * 9, "few_letters"),
        ("i.html", "<p>" + "word " * 30 + "</p>", None), ("j.py", WRAPPED, "encoded_data")]),
    ("nemo_code", [
        ("a.py", GOOD, None), ("b.py", GOOD.replace("#", "x=1;"), "comments"), ("c.py", "# abc\nxyz = 1\n", "lines"),
        ("d.c", "// only comments\n" * 20, "comments"), ("e.xml", XML.replace("\n", "\n<!-- a comment -->"), "xml"),
        ("f.json", GOOD, None)]),
])
def test_the_rule_sets_say_what_their_sources_say(rules, expected):
    said, right = verdicts(rules, expected)
    assert said == right


def test_a_table_of_ones_own_and_what_is_wrong_with_it(tmp_path):
    own = tmp_path / "table.yaml"
    own.write_text("languages:\n  Mine: {extensions: [xyz], comments: bang}\nstyles:\n  bang: {line: ['!']}\n")
    rows = run_stage(CodeSignals(table=str(own)), files(("a.xyz", "! abc\n1234"), ("a.py", GOOD)))["out"]
    assert rows.column("code_language") == ["Mine", None]
    assert rows.column("code_comment_ratio") == [0.5, None]
    before = CodeSignals(table=str(own)).fingerprint()
    own.write_text("languages: {Mine: {extensions: [abc]}}")
    assert CodeSignals(table=str(own)).fingerprint() != before
    assert load_languages(str(own)).of("a.abc", "") == "Mine"
    with pytest.raises(RecipeError, match=r"the table of languages .*nowhere\.yaml"):
        CodeSignals(table=str(tmp_path / "nowhere.yaml")).check({})
    for text, told in (("languages: {A: {extensions: [x]}, B: {extensions: [x]}}", "'x' stands for A and B"), ("- a", "expected a mapping"),
                       ("languages: {A: {comments: c}}", "no style 'c'"), ("ambiguous: {h: [{language: C}]}", "no language 'C'"),
                       ("{", "is no YAML"), ("languages: {A: {ending: [x]}}", "language 'A'")):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(RecipeError, match=told):
            load_languages(str(tmp_path / "bad.yaml"))


def test_it_keeps_the_rules_of_stages_and_knows_null_from_empty(tmp_path):
    batch = files(("a.py", GOOD), ("b.html", "<p>x</p>"), ("", "x"), ("c.py", None), ("d.py", ""), ("e.c", "\x00\ud7ff é"))
    check_stage(CodeSignals(), batch)
    rows = run_stage(CodeSignals(), batch)["out"].rows.to_pylist()
    assert {name for name, value in rows[3].items() if value is not None} == {"id", "source", "_row", "_unit"}
    assert (rows[4]["code_lines"], rows[4]["code_alnum_ratio"], rows[4]["code_language"]) == (0, None, "Python")
    known = run_stage(CodeSignals(language_column="lang"), files(("a", "// x"), lang=pa.array(["C"], pa.string())))["out"]
    assert (known.column("code_language"), known.column("code_comment_ratio")) == (["C"], [1.0])


def test_characters_a_token(tmp_path):
    (tmp_path / "tokenizer.json").write_text(
        '{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},'
        ' "pre_tokenizer": {"type": "Whitespace"}, "normalizer": null, "post_processor": null, "decoder": null}')
    rows = run_stage(CodeSignals(tokenizer=str(tmp_path)), files(("a.py", "abc defg"), ("b.py", None), ("c.py", "")))["out"]
    assert rows.column("code_chars_per_token") == [4.0, None, None]
