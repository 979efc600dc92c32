"""The text pack, whole: its stages and sources keep the rules, its recipes and rule sets load."""

from __future__ import annotations

import bz2
import gzip
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from curator_text import (
    Alphabet,
    Arxiv,
    BadWords,
    C4Lines,
    Chat,
    ChatTemplate,
    ChatTurns,
    Chunk,
    Classify,
    Clean,
    CodeFiles,
    CodeLicense,
    CodeParse,
    CodeSecrets,
    CodeSignals,
    CommonCrawl,
    Dsir,
    Embed,
    ExtractHtml,
    ExtractLatex,
    ExtractWiki,
    Fasttext,
    Join,
    Language,
    Llm,
    Minhash,
    NoiseLines,
    OwnWords,
    PackTokens,
    Pdf,
    Perplexity,
    Pii,
    Rehydrate,
    Signals,
    Split,
    StaticEmbed,
    StopWords,
    TextFiles,
    Thresholds,
    Tokenize,
    ToMds,
    ToMegatron,
    ToNanotron,
    TrainClassifier,
    Translate,
    UrlLists,
    Warc,
    Wikipedia,
    ZeroShot,
)

from curator.api.tasks import TextBatch
from curator.registry import packs
from curator.testing import check_pack, run_stage
from packs.image.tests.chat_server import Model, completion
from packs.text.tests import tiny_text_models as tiny
from packs.text.tests.fasttext_models import TinyModel
from packs.text.tests.test_pdf import BOOK

ENGLISH = ("The quick brown fox jumps over the lazy dog. It was a sunny day, and the fox was happy.\n"
           "Visit https://example.com/a?b=1 for more...\n\n• Bullet one\n• Bullet two\n"
           "The quick brown fox jumps over the lazy dog.")
TEXTS = (ENGLISH, "", None, "Der schnelle braune Fuchs springt über den faulen Hund und geht dann nach Hause. cafÃ©  \n", "x",
         "中文字符测试文本。", "a b c a b c a b c a b c", "\ud7ff\x00", "A line that stays.\r\nGone\n", "short", ENGLISH * 40)
PAGE = ("<html><head><title>The &amp; title</title></head><body><nav>menu</nav><main><p>The first paragraph: größer.</p></main>"
        "</body></html>").encode()


WIKI = (b"<page><title>T</title><ns>0</ns><id>1</id><revision><id>2</id><text>'''A''' [[b]].</text></revision></page>"
        b"<page><title>U</title><ns>4</ns><id>2</id><revision><id>3</id><text>c</text></revision></page><page><id>")


def texts(**columns):
    return TextBatch(pa.table({"id": [f"r{n}" for n in range(len(TEXTS))], "source": ["s"] * len(TEXTS),
                               "text": pa.array(TEXTS, pa.string()), **columns}))


def pages():
    html = [PAGE, None, bytes(range(256)) * 9, b"", b"x" * 6000, PAGE]
    return TextBatch(pa.table({"id": [f"p{n}" for n in range(6)], "source": ["s"] * 6, "html": pa.array(html, pa.binary())}))


def chats():
    chat = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    return TextBatch(pa.table({"id": ["a", "b", "c"], "source": ["s"] * 3, "messages": pa.array([chat, None, chat[:1]])}))


def pdfs():
    return TextBatch(pa.table({"id": ["a", "b", "c"], "source": ["s"] * 3, "bytes": pa.array([BOOK, None, b"no pdf"], pa.binary())}))


def wiki_pages():
    return TextBatch(pa.table({"id": ["a", "b", "c", "d"], "source": ["s"] * 4,
                               "wikitext": pa.array(["== A ==\nb [[c]] {{d}}", None, None, ""], pa.string()),
                               "html": pa.array([None, b"<p>a <b>b</b></p>", None, None], pa.binary()),
                               "prefixes": pa.array([["Datei"], None, None, []], pa.list_(pa.string()))}))


def archive():
    """Two responses that can be read, one of another status, and garbage behind them."""
    def response(number, status, body):
        block = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
        head = (f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number}>\r\nWARC-Target-URI: http://x/{number}\r\n"
                f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n")
        return gzip.compress(head.encode() + block + b"\r\n\r\n")

    return response(0, b"200 OK", PAGE) + response(1, b"404 Not Found", b"-") + response(2, b"200 OK", PAGE) + b"garbage"


@pytest.fixture
def server():
    made = Model()
    made.answer = lambda question: completion("- " + question["messages"][-1]["content"][-9:])
    yield made
    made.close()


def test_the_pack(tmp_path, server):
    (tmp_path / "crawl.warc.gz").write_bytes(archive())
    with tarfile.open(tmp_path / "papers.tar", "w") as papers:
        (tmp_path / "2403.00001.gz").write_bytes(gzip.compress(b"\\section{A} b % c"))
        papers.add(tmp_path / "2403.00001.gz", "2403/2403.00001.gz")
    (tmp_path / "tinywiki-pages.xml.bz2").write_bytes(bz2.compress(WIKI))
    crawl = tmp_path / "crawl-data" / "CC-MAIN-2024-10"
    crawl.mkdir(parents=True)
    (crawl / "warc.paths.gz").write_bytes(gzip.compress(b"crawl.warc.gz\n"))
    files = tmp_path / "files"
    (files / "sub").mkdir(parents=True)
    for name, data in {"a.txt": "Größe".encode("cp1252"), "b.md": "\ufeff# Title\n\nText".encode(), "sub/c.HTML": PAGE,
                       "image.png": b"\x89PNG\r\n\x1a\n"}.items():
        (files / name).write_bytes(data)
    (tmp_path / "chat.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"the": 0, "fox": 1, "?": 2}, "unk_token": "?"},
        "pre_tokenizer": {"type": "Whitespace"}, "normalizer": None, "post_processor": None, "decoder": None}))
    tokens = texts(token_ids=pa.array([[1, 2], None, [], *([n] for n in range(len(TEXTS) - 3))], pa.list_(pa.int32())))
    languages = pa.array(["en", "en", None, "de", "xx", "zh", "en", "en", "en", "de", "en"], pa.string())
    models = {"labels": tiny.save_bert(tmp_path / "labels", ("low", "high")), "encoder": tiny.save_bert(tmp_path / "encoder"),
              "nli": tiny.save_bert(tmp_path / "nli", ("entailment", "other")),
              "gpt2": tiny.save_gpt2(tmp_path / "gpt2")}
    (tmp_path / "en").write_text("e\nt\n]\n")
    (tmp_path / "model.bin").write_bytes(TinyModel(["</s>", "the"], ["en", "de"]).save())
    check_pack("text", [
        Warc(path=str(tmp_path / "crawl.warc.gz")),
        TextFiles(path=str(files)),
        Arxiv(path=str(tmp_path / "papers.tar")),
        (ExtractLatex(), texts(latex=pa.array(TEXTS, pa.string()))),
        Wikipedia(path=str(tmp_path / "tinywiki-pages.xml.bz2")),
        CommonCrawl(snapshots=["2024-10"], base_url=str(tmp_path)),
        (ExtractHtml(max_html_bytes=5000), pages()),
        (Pdf(), pdfs()),
        (ExtractWiki(), wiki_pages()),
        (Chunk(size=20), texts()),
        (Split(separator="\n"), texts()),
        (Join(), run_stage(Chunk(size=20), texts())["out"]),
        (Clean(), texts()),
        (Language(keep=["en", "de", "und"], score_min=0.1), texts()),
        (C4Lines(), texts()),
        (NoiseLines(), texts()),
        (Signals(), texts()),
        (Signals(only=["nemo_en", "porn_url", "word_count"]), texts(language=languages), {"skip": {"needs"}}),
        (Signals(), texts(language=languages), {"skip": {"needs"}}),  # the column is looked at where it is there
        (Minhash(), texts()),
        (Classify(model=models["labels"]), texts(), {"tolerance": 1e-4}),
        (ZeroShot(model=models["nli"], labels=["fox", "sea"], max_chars=40), texts(), {"tolerance": 1e-4}),
        (Embed(model=models["encoder"]), texts(), {"tolerance": 1e-4}),
        (Perplexity(model=models["gpt2"]), texts(), {"tolerance": 1e-4}),
        (Dsir(target="subject = 'b'", buckets=100), texts(subject=[*"abababababa"]), {"tolerance": 1e-9}),
        (StaticEmbed(model=tiny.save_static(tmp_path / "static")), texts(), {"tolerance": 1e-6}),
        (TrainClassifier(label="subject", bits=10, held_out=0), texts(subject=[*"abababababa"]), {"tolerance": 1e-5}),
        (Pii(), texts()),
        (CodeParse(), texts(code_language=pa.array(["Python", "C", None, "Text"] * 3, pa.string())[:len(TEXTS)])),
        (CodeLicense(), texts()),
        CodeFiles(path=str(files)),
        (CodeSecrets(), texts()),
        (CodeSignals(), texts()),
        (Llm(url=server.url, model="tiny", task="knowledge_list"), texts()),
        (Translate(url=server.url, model="tiny", to="de"), texts()),
        (Tokenize(tokenizer=str(tmp_path), ids=True), texts()),
        (PackTokens(length=3), tokens),
        (Chat(), chats()),
        (ChatTemplate(template=str(tmp_path / "chat.jinja")), chats()),
        (ChatTurns(), chats()),
        (ToMds(path=str(tmp_path / "mds")), tokens),
        (ToMegatron(path=str(tmp_path / "megatron")), tokens),
        (ToNanotron(path=str(tmp_path / "nanotron")), tokens),
        (Fasttext(model=str(tmp_path / "model.bin")), texts(), {"tolerance": 1e-6}),
        (UrlLists(), texts(url=pa.array(["http://x/", None] + ["x"] * (len(TEXTS) - 2)))),
        (BadWords(), texts()),
        (Alphabet(histograms=str(tmp_path / "en"), language="en"), texts()),
        (StopWords(language="de"), texts()),
        (OwnWords(lists=str(tmp_path / "en"), language="en"), texts()),
        (Rehydrate(), texts(copies=pa.array(range(len(TEXTS)), pa.int32()))),
        (Thresholds(), texts(language=languages)),
        (Minhash(shingle="24 chars", hashes=20, normalize=False, shingles="set", output="sketch"), texts()),
    ])


@pytest.mark.parametrize("page", ["docs/text.md", "packs/text/README.md"])
def test_a_stranger_finds_each_stage_and_recipe(page):
    pack = next(pack for pack in packs.installed() if pack.name == "text")
    stages = [name.replace(".to_", ".") for name in pack.stages()]  # as recipes write sinks
    recipes = [f"text/{path.stem}" for path in pack.folder("recipes").glob("*.yaml")]
    told = (Path(__file__).parents[3] / page).read_text("utf-8")
    assert not [name for name in stages + recipes if f"`{name}`" not in told]


@pytest.mark.parametrize(("stage", "wants"), [
    (Chunk(size=9), set()), (Chunk(size=9, by="tokens", tokenizer="a/b"), {"tokenizers"}),
    (CodeSignals(), set()), (CodeSignals(tokenizer="tiktoken:gpt2"), {"tiktoken"}),
    (ChatTemplate(tokenizer="a/b"), {"jinja2"}), (ChatTemplate(template="t", tokens_by="x.model"), {"jinja2", "sentencepiece"}),
    (ExtractHtml(), set()), (ExtractHtml(engine="justext"), {"justext"}), (Pdf(), {"pypdfium2"}), (StaticEmbed(), {"tokenizers"}),
])
def test_what_an_extra_brings_is_asked_for_before_a_run_works(stage, wants):
    assert set(stage.requires) == wants
    assert all("pip install 'curator-text[" in get for get in stage.requires.values())
