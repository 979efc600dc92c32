"""The text of wiki pages."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from curator.api.errors import CuratorError
from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import TextBatch
from curator_text.get.wiki_html import PageHtml
from curator_text.get.wiki_parts import TEMPLATES, Wishes
from curator_text.get.wikitext import Wikitext


@dataclass(kw_only=True)
class ExtractWiki(Stage):
    """Make text, or Markdown, of wiki pages that `text.wikipedia` read, without boxes, notices, navigation,
    pictures and comments.

    Reads `html`, or where that is null `wikitext` and `prefixes`; adds `text` ("" where both are null);
    removes these three. A page that cannot be taken apart, or takes more than its time, leaves on `failed`.

    Headings stand on lines of their own, items of lists begin with `- `, formulas are `$TeX$`, code keeps its
    lines; headings without text below them go. `markup`: `markdown` also marks headings, bold, lists in
    lists, tables and code; `text` does not. `tables`, `references` (as notes below the text), `captions` (of
    pictures): kept on wish. `drop_sections`: titles of sections to leave out, upper and lower case alike.

    `templates`: of wikitext, what stays of them: `{1}` for the first argument, `{name}` for a named one; all
    others go, and with them what modules would write. In HTML they are worked out.

    Wikitext wants `pip install 'curator-text[wiki]'`.

    Source: mwparserfromhell, https://mwparserfromhell.readthedocs.io; resiliparse for HTML,
    https://www.mediawiki.org/wiki/Specs/HTML.
    """

    markup: str = "text"
    tables: bool = False
    references: bool = False
    captions: bool = False
    drop_sections: list[str] = field(default_factory=list)
    templates: dict[str, str] = field(default_factory=lambda: dict(TEMPLATES))

    timeout_s = 60.0
    batch_size = 64

    def __post_init__(self) -> None:
        if self.markup not in ("text", "markdown"):
            raise ValueError(f"markup must be text or markdown, got {self.markup!r}")

    def contract(self) -> Contract:
        needs = {"wikitext": pa.string(), "html": pa.binary(), "prefixes": pa.list_(pa.string())}
        return Contract(needs=needs, adds={"text": pa.string()}, removes=tuple(needs))

    def setup(self, ctx: Context) -> None:
        self._wishes = Wishes(markup=self.markup, tables=self.tables, references=self.references,
                              captions=self.captions,
                              drop_sections=frozenset(title.lower() for title in self.drop_sections),
                              templates={name.lower(): kept for name, kept in self.templates.items()})
        self._html = PageHtml(self._wishes)
        self._wikitexts: dict[tuple[str, ...], Wikitext] = {}  # one a wiki

    def process(self, batch: TextBatch) -> Outputs:
        columns = [batch.column(name) for name in ("wikitext", "html", "prefixes")]
        found = [self._text(*row) for row in zip(*columns, strict=True)]
        rows = batch.without(["wikitext", "html", "prefixes"])
        whole = [at for at, text in enumerate(found) if isinstance(text, str)]
        outputs = Outputs(out=rows.take(whole).with_columns(
            {"text": pa.array([found[at] for at in whole], pa.string())}))
        bad = [at for at, text in enumerate(found) if not isinstance(text, str)]
        if bad:
            outputs["failed"] = batch.take(bad).with_error([found[at][0] for at in bad]).with_columns(
                {"traceback": [found[at][1] for at in bad]})
        return outputs

    def _text(self, wikitext: str | None, html: bytes | None,
              prefixes: Sequence[str] | None) -> str | tuple[str, str]:
        """The text of a page, or the error and its traceback."""
        try:
            if html is not None:
                return self._html.text(html.decode("utf-8", "replace"))
            return "" if wikitext is None else self._parser(tuple(prefixes or ())).text(wikitext)
        except CuratorError:
            raise
        except Exception as error:  # whatever the libraries raise is the page's fault, and the row says so
            return f"{type(error).__name__}: {error}", traceback.format_exc()

    def _parser(self, prefixes: tuple[str, ...]) -> Wikitext:
        if prefixes not in self._wikitexts:
            try:
                self._wikitexts[prefixes] = Wikitext(self._wishes, prefixes)
            except ImportError as error:
                raise CuratorError("wikitext wants mwparserfromhell: pip install 'curator-text[wiki]' "
                                   "(text.wikipedia with format: html does without)") from error
        return self._wikitexts[prefixes]
