"""Source code parsed by tree-sitter: errors, functions, and what documents them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from curator_text import CodeParse
from curator_text.code.languages import load_languages
from curator_text.code.parse import load_grammar, module_of

from curator.api.counts import Counts
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage

pytest.importorskip("tree_sitter")


def files(*rows):
    languages, texts = zip(*rows, strict=True)
    return TextBatch(pa.table({"id": [f"r{n}" for n in range(len(rows))], "source": ["s"] * len(rows),
                               "code_language": pa.array(languages, pa.string()), "text": pa.array(texts, pa.string())}))


CASES = [  # language, code, functions, documented
    ("Python",
    'class A:\n    @x\n    def f(self):\n        """Doc."""\n    # b\n    async def g(self): pass\n    def h(self): return "no"\n', 3, 2),
    ("C", "/* Adds. */\nint add(int a, int b) { return a + b; }\nint sub(int a, int b) { return a - b; }\n", 2, 1),
    ("C++", "// T\ntemplate <class T>\nT f(T a) { return a; }\n\nstruct A { void g() {} };\n", 2, 1),
    ("C#", "class A {\n  /// <summary>x</summary>\n  int F() { return 1; }\n  A() {}\n}\n", 2, 1),
    ("Java", "class A {\n  /** Doc. */\n  @Override\n  int f() { return 1; }\n  A() {}\n}\n", 2, 1),
    ("JavaScript", "/** Doc. */\nexport function f() {}\n\nclass A { g() {} }\n", 2, 1),
    ("TypeScript", "// Doc\nfunction f(a: number): void {}\nabstract class A { abstract g(): void }\n", 2, 1),
    ("Go", "package a\n\n// F does.\nfunc F() {}\nfunc (a A) G() {}\n", 2, 1),
    ("Rust", "/// Doc.\n#[inline]\npub fn f() {}\n\nfn g() {}\n", 2, 1),
    ("Ruby", "# Doc\ndef f\nend\n\ndef self.g\nend\n", 2, 1),
    ("PHP", "<?php\n/** Doc */\nfunction f() {}\nclass A { function g() {} }\n", 2, 1),
    ("Shell", "# Doc\nf() { echo; }\n", 1, 1), ("Kotlin", "/** Doc */\nfun f() {}\nfun g() {}\n", 2, 1),
    ("Scala", "/** Doc */\ndef f(a: Int): Int = a\n", 1, 1), ("Lua", "-- Doc\nfunction f() end\nlocal function g() end\n", 2, 1),
    ("Zig", "/// Doc\nfn f() void {}\n", 1, 1),
    *((name, text, 0, 0) for name, text in {
        "JSON": '{"a": [1]}', "YAML": "a: b\n", "TOML": "[a]\nb = 1\n", "CSS": "a { b: c }", "HTML": "<p>a</p>",
        "HCL": 'a "b" {\n c = 1\n}\n',
        "Makefile": "all:\n\techo\n"}.items())]


def test_functions_and_what_documents_them_in_each_language_of_the_extra():
    rows = run_stage(CodeParse(), files(*((language, text) for language, text, _, _ in CASES)))["out"].rows.to_pylist()
    for row, (language, _, functions, documented) in zip(rows, CASES, strict=True):
        assert (language, row["code_errors"], row["code_error_ratio"], row["code_functions"]) == (language, 0, 0.0, functions)
        assert row["code_docstring_ratio"] == (documented / functions if functions else None), language


def test_what_does_not_parse_is_told_by_its_share():
    good = "def f(a):\n    return a\n" * 5
    rows = run_stage(CodeParse(), files(("Python", good), ("Python", good + "def g(:\n    return ]\n"), ("Python",
    "!! no code ?? at [ all (" * 4),
                                        ("Python", ""), ("C", "int f( { return"), ("Python", None), ("Haskell", "f x = x"), (None, "x"),
                                        ("Text", "a"), ("C", "\x00\ud7ff é")))["out"].rows.to_pylist()
    shares = [row["code_error_ratio"] for row in rows]
    assert shares[0] == 0 < shares[1] < 0.3 < shares[2]
    assert shares[3] == 0
    assert rows[4]["code_errors"] > 0
    assert shares[5:9] == [None] * 4
    assert run_stage(CodeParse(max_chars=9), files(("Python", good)))["out"].column("code_errors") == [None]


def test_it_keeps_the_rules_of_stages_and_names_the_grammars_that_are_missing():
    check_stage(CodeParse(), files(*((language, text) for language, text, _, _ in CASES[:6]), ("C", None), (None, "")))
    seen = Counts(by_value={"code_language": {"Python": {"out": 1}, "Haskell": {"out": 1}, "Text": {"out": 2}}})
    said = [alarm.text for alarm in CodeParse().findings("parse", seen)]
    assert load_grammar("haskell") is not None or (len(said) == 1 and said[0].endswith("pip install tree-sitter-haskell."))
    assert all(module_of(grammar).isidentifier() for grammar in load_languages(None).grammars.values())
    with pytest.raises(ValueError, match="max_chars must be"):
        CodeParse(max_chars=0)
