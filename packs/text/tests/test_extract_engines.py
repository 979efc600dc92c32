"""Three engines for one stage, formulas and code in their texts, and the process that the slow ones work in."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from curator_text import ExtractHtml
from curator_text.extract.apart import Apart, CallFailed
from curator_text.extract.mathml import latex
from curator_text.extract.page import Options, read_page, stop_words

from curator.api.errors import CuratorError
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage

pytest.importorskip("trafilatura")
pytest.importorskip("justext")

SENTENCES = ("This is a paragraph that has the words of a text in it, and it is long enough to be taken for one by "
             "all of them. There is more of it here, so that it has over two hundred characters, as the good ones "
             "of the paragraphs have. ")
PAGE = f"""<html lang="en"><head><title>The title</title><meta name="author" content="Jane Doe">
<meta property="article:published_time" content="2024-02-03T10:00:00Z"></head><body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/b">About us and what we do</a></li></ul></nav>
<main><article><h1>The heading</h1><p>{SENTENCES}</p><p>With <a href="/x">a link</a> and a formula
<span class="katex"><span class="katex-mathml"><math><semantics><mi>x</mi><annotation encoding="application/x-tex">x_{{1}}*y
</annotation></semantics></math></span><span class="katex-html">xy</span></span> in it. {SENTENCES}</p>
<ul><li>a thing of the list, the first one of them</li><li>and another thing</li></ul>
<pre><code><span class="k">def</span> f(a_b):
    if a_b &lt; 1:

        return "*"</code></pre>
<h2>A second heading</h2><p>{SENTENCES}</p><table><tr><th>name</th><th>size</th></tr><tr><td>one</td><td>1</td></tr></table>
<p>{SENTENCES}</p></article></main><footer><a href="/c">Contact</a> All rights reserved</footer></body></html>"""
CODE = 'def f(a_b):\n    if a_b < 1:\n\n        return "*"'
ENGINES = ("resiliparse", "trafilatura", "justext")


def pages(*html, **columns):
    html = [h.encode() if isinstance(h, str) else h for h in html]
    return TextBatch(rows=pa.table({"id": [f"p{n}" for n in range(len(html))], "source": ["s"] * len(html),
                                    "html": pa.array(html, pa.binary()), **columns}))


@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_takes_the_text_and_keeps_code_and_formulas(engine):
    found = read_page(PAGE, Options(engine=engine))
    assert found.text.count(SENTENCES.strip()) == 4
    assert CODE in found.text
    assert "$x_{1}*y$" in found.text
    assert found.title in ("The title", "The heading")
    for gone in ("About us", "rights reserved", "qzmark"):
        assert gone not in found.text
    assert (found.author, found.published) == ("Jane Doe", "2024-02-03") or engine != "trafilatura"


@pytest.mark.parametrize("engine", ENGINES)
def test_markdown_has_headings_lists_and_code(engine):
    text = read_page(PAGE, Options(engine=engine, markdown=True, links=engine != "justext")).text
    lines = text.split("\n")
    assert "# The heading" in lines
    assert "## A second heading" in lines
    assert f"\n```\n{CODE}\n```\n" in text
    assert "$x_{1}*y$" in text
    assert "- and another thing" in lines or engine == "resiliparse"  # which takes no such list for text
    if engine != "justext":
        assert "With [a link](/x) and" in text
    if engine == "trafilatura":
        assert "| name | size |" in text
    if engine == "resiliparse":
        assert "\n\n| name | size |\n| --- | --- |\n| one | 1 |\n\n" in text


def test_nested_lists_and_links_as_markdown():
    from curator_text.extract.markdown import of_minimal_html

    html = ("<h2>A <a href='u'>b</a></h2><p>one<br>\ntwo &lt; 3</p><ol>\n<li>x\n<ul><li>y</li>\n<li>z</li></ul></li>"
            "<li>w<pre>a\n  b</pre></li></ol>")
    assert of_minimal_html(html) == ("## A [b](u)\n\none\ntwo < 3\n\n1. x\n   - y\n   - z\n2. w\n\n   ```\n   a\n"
                                     "     b\n   ```")


def test_tables_of_data_are_markdown_and_those_that_lay_out_a_page_are_text():
    head = f"<html><body><main><article><p>{SENTENCES}</p>"
    data = ("<table><caption>Sizes of <i>things</i></caption><tr><th>a<br>b</th><th colspan=2>wide</th></tr>"
            "<tr><td rowspan=2>x|y</td><td><a href='/u'>1</a><script>no()</script></td><td><math><mi>q</mi></math></td></tr>"
            "<tr><td>2</td><td>。</td></tr><tr></tr></table>")
    table = "Sizes of things\n\n| a b | wide |  |\n| --- | --- | --- |\n| x\\|y | 1 | $q$ |\n|  | 2 | 。 |"
    layout = ["<tr><td>Menu</td><td><h2>News</h2></td></tr><tr><td>1</td><td>2</td></tr>", "<tr><td>alone</td></tr><tr><td>two</td></tr>",
              "<tr><td>one row</td><td>only</td></tr>", "<tr><td colspan=999>n</td></tr>" * 11]
    text = read_page(f"{head}{data}<p>After it.</p>" + "".join(f"<table>{one}</table>" for one in layout), Options(markdown=True)).text
    assert f"\n\n{table}\n\nAfter it." in text
    assert text.count("\n| ---") == 1
    for said in ("News", "alone", "one row"):
        assert said in text
    assert "[1](/u)" in read_page(head + data, Options(markdown=True, links=True)).text
    assert "wide" not in read_page(head + data, Options(markdown=True, tables=False)).text
    assert "---" not in read_page(head + data, Options()).text


@pytest.mark.parametrize(("html", "said"), [
    ('<p>W <span class="mwe-math-element"><math alttext="{\\displaystyle a_{1}}"><mi>a</mi></math><img '
     'class="mwe-math-fallback-image-inline" alt="{\\displaystyle a_{1}}"></span> ends</p>', "W $a_{1}$ ends"),
    ('<p>W <img class="mwe-math-fallback-image-display" alt="{\\displaystyle {a}+{b}}"> ends', "W $${a}+{b}$$ ends"),
    ('<p>J <span class="MathJax_Preview">p</span><span class="MathJax"><math><mi>y</mi></math>yy</span><script '
     'type="math/tex; mode=display">\\frac{1}{2} < 3</script> ends', "J $$\\frac{1}{2} < 3$$ ends"),
    ('<p>J <mjx-container display="true"><svg></svg><mjx-assistive-mml><math><mfrac><mn>1</mn><mi>β</mi></mfrac></math>'
     "</mjx-assistive-mml></mjx-container> ends", "J $$\\frac{1}{\\beta}$$ ends"),
    ('<p>M <math display="block"><msqrt><mi>x</mi></msqrt></math> ends', "M $$\\sqrt{x}$$ ends"),
    ('<p>P <img class="latex" alt="$e^x$" src="a.png"> ends', "P $e^x$ ends"),
    ("<p>no <math></math> formula", "no formula")])
def test_formulas_of_pages_are_latex(html, said):
    assert " ".join(read_page(html, Options()).text.split()) == said


def test_without_maths_the_page_is_taken_as_it_is():
    assert "$" not in read_page(PAGE, Options(maths=False)).text


@pytest.mark.parametrize(("mathml", "made"), [
    ("<mi>x</mi><mo>=</mo><mfrac><mrow><mo>−</mo><mi>b</mi><mo>±</mo><msqrt><msup><mi>b</mi><mn>2</mn></msup><mo>−</mo>"
     "<mn>4</mn><mo>&#x2062;</mo><mi>a</mi></msqrt></mrow><mn>2</mn></mfrac>", r"x=\frac{-b\pm\sqrt{b^{2}-4a}}{2}"),
    ("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>0</mn></mrow><mi>n</mi></munderover><msub><mi>α</mi><mi>i</mi>"
     "</msub><mi>x</mi>", r"\sum_{i=0}^{n}\alpha_{i}x"),
    ("<mi>θ</mi><mi>x</mi><mover><mi>v</mi><mo>→</mo></mover>", r"\theta x\vec{v}"),
    ("<mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>0</mn></mtd></mtr><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi>"
     "</mtd></mtr></mtable><mo>)</mo>", r"(\begin{matrix}1 & 0 \\ a & b\end{matrix})"),
    ("<mtext>if x_1</mtext><msup><mi>f</mi><mo>′</mo></msup>", r"\text{if x\_1}f'"),
    ("<mroot><mi>x</mi><mn>3</mn></mroot><mo>{</mo><mi mathvariant='double-struck'>R</mi><mo>}</mo>",
     r"\sqrt[3]{x}\{\mathbb{R}\}"),
    ("<munder><mi>lim</mi><mrow><mi>x</mi><mo>→</mo><mn>0</mn></mrow></munder><mi>sin</mi><mi>x</mi>",
     r"\lim_{x\to0}\sin x"),
    ("<mmultiscripts><mi>C</mi><mn>6</mn><none/><mprescripts/><none/><mn>14</mn></mmultiscripts>", r"{}^{14}C_{6}"),
    ("<mfenced open='[' close=')'><mi>a</mi><mi>b</mi></mfenced><mi>Re</mi>", r"[a,b)\mathrm{Re}"),
    ("<mfrac linethickness='0'><mi>n</mi><mi>k</mi></mfrac><msubsup><mrow><mi>a</mi><mi>b</mi></mrow><mi>i</mi><mi>j</mi>"
     "</msubsup>", r"{n \atop k}{ab}_{i}^{j}")])
def test_mathml_becomes_latex(mathml, made):
    from resiliparse.parse.html import HTMLTree

    assert latex(HTMLTree.parse(f"<math>{mathml}</math>").body.query_selector("math")) == made


def test_columns_and_failures_are_the_same_for_all():
    given = pages(PAGE, None, bytes(range(256)) * 9, "", "x" * 20_000, text=pa.array([None, "Mine.", None, None, None]))
    for engine in ENGINES:
        out = run_stage(ExtractHtml(engine=engine, max_html_bytes=10_000), given)
        assert out["out"].column("id") == ["p0", "p1", "p3"]
        assert out["out"].column("text")[1:] == ["Mine.", ""]
        assert out["out"].column("charset")[0] == "utf-8"
        assert out["failed"].column("id") == ["p2"]
        assert "no text" in out["failed"].column("error")[0]
        assert out["dropped"].column("reason") == ["too_large"]
        assert ("author" in out["out"].columns) == (engine == "trafilatura")
        check_stage(ExtractHtml(engine=engine, max_html_bytes=10_000), given, skip={"needs"})


def test_justext_knows_languages():
    assert stop_words("de-AT") == stop_words("de") > {"und", "nicht"}
    assert stop_words("zh") == stop_words("ko") == frozenset()
    german = "Der schnelle braune Fuchs springt über den faulen Hund und geht dann wieder nach Hause, wo er schläft. " * 4
    html = f"<body><p>{german}</p></body>"
    assert read_page(html, Options(engine="justext")).text == german.strip()  # told by its words
    assert read_page(html, Options(engine="justext"), "de").text == german.strip()
    assert read_page(html, Options(engine="justext"), "en").text == ""
    assert read_page(f"<html lang=en>{html}", Options(engine="justext")).text == ""
    by_column = run_stage(ExtractHtml(engine="justext"), pages(html, html, language=pa.array(["de", "en"])))["out"]
    assert by_column.column("text") == [german.strip(), ""]
    assert "狐狸" in read_page("<p>" + "敏捷的棕色狐狸跳过了懒狗。" * 20, Options(engine="justext")).text


def test_what_an_engine_cannot_do_is_told():
    with pytest.raises(ValueError, match=r"comments is nothing that justext knows: .* resiliparse or trafilatura"):
        ExtractHtml(engine="justext", comments=True)
    with pytest.raises(ValueError, match=r"favour is nothing that resiliparse knows: .* trafilatura"):
        ExtractHtml(favour="precision")
    with pytest.raises(ValueError, match="engine must be one of"):
        ExtractHtml(engine="lynx")
    with pytest.raises(ValueError, match="page_seconds must be above 0"):
        ExtractHtml(page_seconds=0)


def test_a_call_that_hangs_or_kills_its_process_fails_and_the_next_is_answered():
    apart = Apart("time:sleep", 0.05, "the page", "install it")
    try:
        apart.start()
        began = time.monotonic()
        with pytest.raises(CallFailed, match=r"TimeoutError: the page took over 0.05 s"):
            apart.call(60)
        assert time.monotonic() - began < 20
        assert apart.call(0) is None
        with pytest.raises(CallFailed, match="TypeError") as failed:
            apart.call("x")
        assert "Traceback" in failed.value.traceback
        assert apart.call(0) is None
    finally:
        apart.close()
    dies = Apart("os:abort", 5, "the page", "install it")
    with pytest.raises(CallFailed, match=r"the page killed the process that worked on it \(signal 6\)"):
        dies.call()
    dies.close()


def test_a_missing_library_is_told_before_any_page():
    with pytest.raises(CuratorError, match=r"install it .*no_such_library"):
        Apart("time:sleep", 1, "the page", "install it", imports=("no_such_library",)).start()
