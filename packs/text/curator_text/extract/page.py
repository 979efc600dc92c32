"""The text of a page, by one of three libraries that know what on a page is its text."""

from __future__ import annotations

import logging
import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from curator_text.extract import markdown
from curator_text.extract.markup import Code, Marks, needs_order, put_in_order
from curator_text.extract.tables import put_tables_in_order

# In main-content mode resiliparse 2.0 takes a piece of text of one character of three bytes for an icon and
# drops it: the full stop behind a link in Chinese, a Thai or Hindi letter in bold. Characters for private use
# are icons indeed.
_LONE = re.compile(r">(\s*(?:[\u0800-\ud7ff\uf900-\uffff]|&#?\w+;)\s*)(?=<)")
_CODE: dict[str, Code | None] = {"resiliparse": None, "trafilatura": "lines", "justext": "whole"}
_FILLER = "\ufdd0"  # a code point that is no character (Unicode 23.7), so in no text


class Page(NamedTuple):
    """What a page says. `title`, `author` and `published` are None where it has none; `charset` is the encoding
    that it was read in."""

    text: str
    title: str | None = None
    charset: str | None = None
    author: str | None = None
    published: str | None = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """As `ExtractHtml` has them."""

    engine: Literal["resiliparse", "trafilatura", "justext"] = "resiliparse"
    markdown: bool = False
    favour: Literal["balance", "precision", "recall"] = "balance"
    main_content: bool = True
    preserve_formatting: bool = True
    comments: bool = False
    tables: bool = True
    alt_texts: bool = False
    links: bool = False
    maths: bool = True


def read_page(markup: str, options: Options, language: str | None = None) -> Page:
    """The text of a page, its title, and what else the engine says. `language`: a code, for jusText."""
    from resiliparse.parse.html import HTMLTree

    if options.engine == "resiliparse" and options.main_content:
        markup = _LONE.sub(rf">\1{_FILLER}", markup)
    tree, marks = HTMLTree.parse(markup), Marks(markup)
    code = _CODE[options.engine]
    ordered = needs_order(markup, options.maths, code is not None)
    if ordered:
        put_in_order(tree, marks, options.maths, code)
    if options.engine == "resiliparse" and options.markdown and options.tables and "<table" in markup.lower():
        put_tables_in_order(tree, marks, options.links)
    title = " ".join((tree.title or "").replace(_FILLER, "").split()) or None
    if options.engine == "resiliparse":
        text = marks.restore(_by_resiliparse(tree, options)).replace(_FILLER, "")
        return Page(markdown.tidy(text) if options.markdown else text, title)
    markup = str(tree) if ordered else markup
    if options.engine == "justext":
        return Page(marks.restore(_by_justext(tree, markup, options, language)), title)
    found = _by_trafilatura(markup, options)
    return Page(marks.restore(found.text), found.title or title, None, found.author, found.published)


def _by_resiliparse(tree: Any, options: Options) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    formatting: bool | Literal["minimal_html"] = "minimal_html" if options.markdown else options.preserve_formatting
    text = extract_plain_text(tree, main_content=options.main_content, preserve_formatting=formatting,
                              comments=options.comments, alt_texts=options.alt_texts, links=options.links,
                              skip_elements=None if options.tables else ["table"])
    return markdown.of_minimal_html(text) if options.markdown else text


def _by_trafilatura(markup: str, options: Options) -> Page:
    from trafilatura import bare_extraction

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # it tells of each page that it finds odd
    found = bare_extraction(markup, with_metadata=True, include_formatting=options.markdown,
                            favor_precision=options.favour == "precision",
                            favor_recall=options.favour == "recall", include_comments=options.comments,
                            include_tables=options.tables, include_links=options.links)
    if found is None or isinstance(found, dict):  # it takes a page of a few words for none; a dict is another option's
        return Page("")
    text = "\n".join(filter(None, (found.text, found.comments if options.comments else "")))
    return Page(unicodedata.normalize("NFC", text.strip()), found.title or None, None, found.author or None,
                found.date or None)


def _by_justext(tree: Any, markup: str, options: Options, language: str | None) -> str:
    from justext import core

    words = stop_words(language or _language_of(tree))
    low, high = (core.STOPWORDS_LOW_DEFAULT, core.STOPWORDS_HIGH_DEFAULT) if words else (0, 0)
    if tree.body is None or not tree.body.text.strip():
        return ""  # lxml has no tree for it
    paragraphs = core.ParagraphMaker.make_paragraphs(core.preprocessor(core.html_to_dom(markup)))
    core.classify_paragraphs(paragraphs, words, stopwords_low=low, stopwords_high=high)
    for paragraph in paragraphs:
        if _is_code(paragraph) and paragraph.links_density() <= core.MAX_LINK_DENSITY_DEFAULT:
            paragraph.cf_class = "short"  # code has no stop words: what stands around it decides
    core.revise_paragraph_classification(paragraphs)
    good = [(p.text.split(None, 1)[0] if _is_code(p) else p.text, p.dom_path.split("."))
            for p in paragraphs if not p.is_boilerplate]
    good = [(text, path) for text, path in good if options.tables or "table" not in path]
    return markdown.of_paragraphs(good) if options.markdown else "\n\n".join(text for text, _ in good)


def _is_code(paragraph: Any) -> bool:
    return "pre" in paragraph.dom_path.split(".")


def _language_of(tree: Any) -> str:
    """What the page says of itself, else what its words tell."""
    root = tree.document.query_selector("html[lang]")
    code = (root.getattr("lang") if root is not None else "").strip().lower()
    return code or _detector().identify([tree.body.text[:4000] if tree.body is not None else ""])[0][0]


@cache
def _detector() -> Any:
    from curator_text.language.language_model import LanguageModel

    return LanguageModel()


@cache
def stop_words(language: str) -> frozenset[str]:
    """jusText's list for a language (`de`, `de-AT`), empty where it has none."""
    from justext import get_stoplist

    code = language.replace("_", "-").partition("-")[0].lower()
    name = next((name for name, codes in _STOP_LISTS.items() if code in codes.split()), None)
    return get_stoplist(name) if name else frozenset()


# jusText's names by ISO 639 code. Left out are Chinese, Japanese and Thai, which it has not, and Korean, whose list
# is of words and whose texts are not.
_STOP_LISTS = {
    "Afrikaans": "af", "Albanian": "sq", "Arabic": "ar", "Aragonese": "an", "Armenian": "hy", "Aromanian": "rup",
    "Asturian": "ast", "Azerbaijani": "az", "Basque": "eu", "Belarusian": "be", "Bengali": "bn",
    "Bishnupriya_Manipuri": "bpy", "Bosnian": "bs", "Breton": "br", "Bulgarian": "bg", "Catalan": "ca",
    "Cebuano": "ceb", "Chuvash": "cv", "Croatian": "hr", "Czech": "cs", "Danish": "da", "Dutch": "nl",
    "English": "en", "Esperanto": "eo", "Estonian": "et", "Finnish": "fi", "French": "fr", "Galician": "gl",
    "Georgian": "ka", "German": "de", "Greek": "el", "Gujarati": "gu", "Haitian": "ht", "Hebrew": "he iw",
    "Hindi": "hi", "Hungarian": "hu", "Icelandic": "is", "Ido": "io", "Igbo": "ig", "Indonesian": "id",
    "Irish": "ga", "Italian": "it", "Javanese": "jv", "Kannada": "kn", "Kazakh": "kk", "Kurdish": "ku",
    "Kyrgyz": "ky", "Latin": "la", "Latvian": "lv", "Lithuanian": "lt", "Lombard": "lmo", "Low_Saxon": "nds",
    "Luxembourgish": "lb", "Macedonian": "mk", "Malay": "ms", "Malayalam": "ml", "Maltese": "mt", "Marathi": "mr",
    "Neapolitan": "nap", "Nepali": "ne", "Newar": "new", "Norwegian_Bokmal": "nb no", "Norwegian_Nynorsk": "nn",
    "Occitan": "oc", "Persian": "fa", "Piedmontese": "pms", "Polish": "pl", "Portuguese": "pt", "Quechua": "qu",
    "Romanian": "ro", "Russian": "ru", "Samogitian": "sgs", "Serbian": "sr", "Serbo_Croatian": "sh",
    "Sicilian": "scn", "Slovak": "sk", "Slovenian": "sl", "Spanish": "es", "Sundanese": "su", "Swahili": "sw",
    "Swedish": "sv", "Tagalog": "tl fil", "Tamil": "ta", "Telugu": "te", "Turkish": "tr", "Turkmen": "tk",
    "Ukrainian": "uk", "Urdu": "ur", "Uzbek": "uz", "Vietnamese": "vi", "Volapuk": "vo", "Walloon": "wa",
    "Waray_Waray": "war", "Welsh": "cy", "West_Frisian": "fy", "Western_Panjabi": "pnb", "Yoruba": "yo"}
