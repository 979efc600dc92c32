"""Papers from archives of arXiv's layout: a tar of gzipped tars, single files and PDFs; and LaTeX cleaned."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile

import pyarrow as pa
import pytest
from curator_text.get.arxiv import Arxiv, named
from curator_text.get.extract_latex import ExtractLatex
from curator_text.get.latex import cleaned, without_comments
from curator_text.get.tex_sources import main_file, paper
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import InputError
from curator.api.tasks import TextBatch
from curator.testing import check_source, run_stage
from packs.text.tests.archive_server import Archives

MAIN = r"""% a comment
\documentclass{article}
\newcommand{\R}{\mathbb{R}}  % reals
\def\name{Niue\xspace}
\newcommand{\norm}[1]{\|#1\|}
\title{On \name\thanks{Grant 5\% of 1}}
\begin{document}
\maketitle
\begin{abstract}
We study $\R^n$ in \name. % not this
\end{abstract}
\input{sections/intro}
% \input{sections/old}
\section{Results}
The share is 50\% of $\norm{x}$ \cite{a}.
\iffalse hidden \fi
\begin{verbatim}
100 % kept
\end{verbatim}
\input{lost}
\bibliographystyle{plain}
\bibliography{refs}
\appendix
\section{Proofs}
Behind.
\end{document}
nothing of this"""
INTRO = "\\section{Introduction}\nIslands%\n are small.\n"
TEXT = r"""\begin{abstract}
We study $\mathbb{R}^n$ in Niue.
\end{abstract}
\section{Introduction}
Islandsare small.

\section{Results}
The share is 50\% of $\norm{x}$ \cite{a}.

\begin{verbatim}
100 % kept
\end{verbatim}
\input{lost}"""


def tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def gz(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


SENT = {"./main.tex": MAIN.encode(), "sections/intro.tex": INTRO.encode(), "sections/old.tex": b"old", "refs.bib": b"@a{}",
        "fig.pdf": b"%PDF-1.5"}
PLAIN = b"\\magnification=1200\nA plain paper, one of many.\n\\bye\n"
ARCHIVE = tar({"2403/": b"", "2403/2403.00001.gz": gz(tar(SENT)), "2403/2403.00002.gz": gz(PLAIN), "2403/2403.00003.pdf": b"%PDF-1.4",
               "2403/2403.00004.gz": gz(b"%auto-ignore\nwithdrawn"), "2403/2403.00005.gz": gz(b"%!PS-Adobe-2.0"),
               "2403/2403.00006.gz": gz(tar({"a.html": b"<p>"})), "2403/2403.00007.gz": gz(tar(SENT))[:-30],
               "2403/2403.00008.gz": gz(tar({"a.tex": b"\\documentclass{a}\\input{a}"}))})


def read(source: Arxiv) -> dict[str, list[dict]]:
    ports: dict[str, list[dict]] = {}
    for unit in source.units():
        for outputs in source.read(unit):
            for port, batch in outputs.items():
                ports.setdefault(port, []).extend(batch.rows.to_pylist())
    return ports


def test_papers_come_as_latex_and_the_rest_with_its_reason(tmp_path):
    (tmp_path / "arXiv_src_2403_001.tar").write_bytes(ARCHIVE)
    source = Arxiv(path=str(tmp_path))
    found = read(source)
    first, second = found["out"]
    assert (first["id"], first["month"], first["url"]) == ("2403.00001", "2024-03", "https://arxiv.org/abs/2403.00001")
    assert (first["main_file"], first["missing_files"]) == ("main.tex", ["lost"])
    assert (second["id"], second["latex"]) == ("2403.00002", PLAIN.decode())
    assert {row["id"][-1]: row["reason"] for row in found["dropped"]} == {"3": "pdf", "4": "withdrawn", "5": "postscript", "6": "no_tex"}
    assert [("middle" in row["error"] or "includes itself" in row["error"]) for row in found["failed"]] == [True, True]
    assert all(row["offset"] for row in found["failed"])
    check_source(source)
    rows = run_stage(ExtractLatex(), TextBatch(pa.Table.from_pylist([first, first | {"id": "b", "latex": None}])))["out"].rows.to_pylist()
    assert rows[0]["text"] == TEXT
    assert (rows[0]["title"], rows[0]["abstract"]) == ("On Niue", r"We study $\mathbb{R}^n$ in Niue.")
    assert (rows[1]["text"], "latex" in rows[0]) == (None, False)


def test_the_manifest_names_archives_of_months_and_their_sums_are_checked():
    entries = [("src/arXiv_src_2403_001.tar", "2403", ARCHIVE), ("src/arXiv_src_9107_001.tar", "9107", b"")]
    manifest = "".join(f"<file><filename>{name}</filename><md5sum>{hashlib.md5(data).hexdigest()}</md5sum><size>{len(data)}</size>"
                       f"<yymm>{month}</yymm><num_items>8</num_items></file>" for name, month, data in entries)
    server = Archives({"arXiv_src_manifest.xml": f"<arXivSRC>{manifest}</arXivSRC>".encode(), "arXiv_src_2403_001.tar": ARCHIVE})
    try:
        source = Arxiv(months=["0001..2403"], base_url=server.url, private=True)
        assert [unit.parts[0].uri for unit in source.units()] == [f"{server.url}/arXiv_src_2403_001.tar"]
        assert len(read(source)["out"]) == 2
        server.put("arXiv_src_2403_001.tar", ARCHIVE.replace(b"PDF-1.4", b"PDF-1.5"))
        assert "MD5" in read(source)["failed"][-1]["error"]
        server.put("arXiv_src_2403_001.tar", ARCHIVE[:-512])
        assert [row["id"] for row in read(source)["failed"]] == [f"{server.url}/arXiv_src_2403_001.tar"]
        with pytest.raises(InputError, match="no archive of 2404"):
            Arxiv(months="2404", base_url=server.url, private=True).units()
    finally:
        server.close()


def test_an_archive_that_is_cut_off_is_told(tmp_path):
    (tmp_path / "a.tar").write_bytes(ARCHIVE[:1024 + len(gz(tar(SENT))) // 2])
    assert "cut off" in read(Arxiv(path=str(tmp_path)))["failed"][-1]["error"]


@pytest.mark.parametrize(("member", "name", "month"), [
    ("2403/2403.01234.gz", "2403.01234", "2024-03"), ("0001/astro-ph0001001.gz", "astro-ph/0001001", "2000-01"),
    ("9107/hep-th9107001.gz", "hep-th/9107001", "1991-07"), ("0704/0704.0001.pdf", "0704.0001", "2007-04"),
    ("0608/math.AG0608001.gz", "math.AG/0608001", "2006-08"), ("README", None, None)])
def test_ids_and_months_come_from_names(member, name, month):
    assert named(member) == (name, month)


def test_the_main_file_is_the_one_that_is_compiled():
    doc = r"\documentclass{a}\begin{document}\input{b}\end{document}"
    assert main_file({"supplement.tex": doc + "x" * 99, "ms.tex": doc, "b.tex": "b" * 999}, {}) == "ms.tex"
    assert main_file({"a.tex": r"\documentclass{a}\begin{document}", "b.tex": doc, "main.tex": "% \\documentclass"},
                     {"00README.XXX": b"b.tex toplevelfile\n"}) == "b.tex"
    said = b'{"sources": [{"filename": "c/b.tex", "usage": "toplevel"}]}'
    assert main_file({"a.tex": doc, "c/b.tex": doc}, {"00README.json": said}) == "c/b.tex"


def test_files_that_include_one_another_without_end_fail_soon():
    bomb = {f"f{n}.tex": f"\\input{{f{n + 1}}}".encode() * 10 for n in range(15)} | {"f15.tex": b"x"}
    with pytest.raises(ValueError, match="includes more than"):
        paper("2403/2403.1.gz", gz(tar({"main.tex": b"\\documentclass{a}\\input{f0}"} | bomb)), 1 << 20)


@pytest.mark.parametrize(("latex", "code"), [
    ("a % b\nc", "a \nc"), ("a% b\n c", "ac"), ("a\\% b\nc", "a\\% b\nc"), ("a\\\\% b\n\nc", "a\\\\\n\nc"), ("% all\nb", "b"),
    ("\\begin{verbatim}\n%\n\\end{verbatim}%x", "\\begin{verbatim}\n%\n\\end{verbatim}"), ("x\\begin{comment}a\\end{comment}y", "xy"),
    ("% \\begin{verbatim}\na % b\n% \\end{verbatim}", "a ")])
def test_comments_end_as_tex_ends_them(latex, code):
    assert without_comments(latex) == code


@pytest.mark.parametrize(("latex", "text"), [
    (r"\newcommand{\a}{\b}\def\b{x}\a\ab", r"x\ab"), (r"\newcommand\a{\a}\a", r"\newcommand\a{\a}\a"), (r"\def\a#1{x}\a", r"\def\a#1{x}\a"),
    (r"\renewcommand*{\eps}{\varepsilon}$\eps x$", r"$\varepsilon x$"),
    (r"\section{A}b\begin{thebibliography}{9}c\end{thebibliography}\section{D}", r"\section{A}b")])
def test_macros_and_ends(latex, text):
    assert cleaned(latex, macros=True, bibliography=False, appendix=False).text == text


def test_bibliography_and_appendix_stay_on_wish():
    latex = r"\section{A}b\begin{thebibliography}{9}c\end{thebibliography}\appendix d"
    assert cleaned(latex, macros=False, bibliography=True, appendix=False).text == latex.removesuffix(r"\appendix d")
    assert cleaned(latex, macros=False, bibliography=False, appendix=True).text == r"\section{A}b\appendix d"


@settings(max_examples=25)
@given(st.lists(st.sampled_from([r"\newcommand{\a}", r"\def\a", "{", "}", r"\a", r"\a\a", "%", "\n", r"\title", r"\begin{document}",
                                 r"\section{", r"\begin{verbatim}", r"\end{verbatim}", r"\appendix", "x"]), max_size=30))
def test_no_latex_is_too_strange_or_grows_without_end(pieces):
    latex = "".join(pieces)
    assert len(cleaned(latex, macros=True, bibliography=False, appendix=False).text) <= 4 * len(latex) + 1000


def test_mistakes_are_told_before_a_run():
    for wrong, message in [({}, "name months"), ({"months": "2413"}, "months are"), ({"path": "x", "max_paper_bytes": 0}, "1 or more")]:
        with pytest.raises(ValueError, match=message):
            Arxiv(**wrong)
