"""Statistics of source code, those that the published rules for code are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.api.findings import Shown
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator_text.code.comments import Comments
from curator_text.code.encoded import encoded
from curator_text.code.generated import generated
from curator_text.code.languages import Languages, extension_of, file_name, load_languages, table_digest
from curator_text.code.measure import characters, has_xml_header, line_lengths, visible_characters
from curator_text.tokens.tokenizers import open_tokenizer, required

COLUMNS: dict[str, pa.DataType] = {
    "code_language": pa.string(), "extension": pa.string(), "code_name": pa.string(),
    "code_lines": pa.int32(), "code_line_max": pa.int32(), "code_line_mean": pa.float64(),
    "code_alnum_ratio": pa.float64(), "code_alpha_ratio": pa.float64(), "code_digit_ratio": pa.float64(),
    "code_comment_ratio": pa.float64(), "code_encoded_max": pa.int32(), "code_encoded_ratio": pa.float64(),
    "code_generated": pa.string(), "code_xml_header": pa.bool_(),
    "code_visible_chars": pa.int32(), "code_visible_ratio": pa.float64(),
}
_MARKUP = ("HTML", "HTML+Razor")
MEASURED_CHARS_MAX = 8_000_000


@dataclass(kw_only=True)
class CodeSignals(Stage):
    """Measure source code: the statistics that the rules of StarCoder, The Stack v2 and NeMo Curator need.

    Adds, of names: `code_language` (null where neither name nor content tells it), `extension` (behind the
    last dot, in lower case, "" if there is none), `code_name` (the file's name in lower case, without
    folders). Of lines: `code_lines` (as `str.splitlines` has them), `code_line_max` and `code_line_mean`
    (characters). Shares of all characters, null in an empty file: `code_alnum_ratio` (letters and numbers),
    `code_alpha_ratio` (letters), `code_digit_ratio`, `code_comment_ratio` (comments with their marks, and
    strings that document; null too where the language has no comments, or it is not known how they are
    written), `code_encoded_ratio` (base64, hexadecimal bytes, Unicode escapes; `code_encoded_max` is the
    longest piece in characters). `code_generated`: what says that a program wrote the file (`phrase`,
    `header`, `name`, `lock`, `minified`, `source map`), null where nothing does. `code_xml_header` (bool): an
    XML declaration in the first 100 characters. Of HTML, else null: `code_visible_chars`, the text without
    scripts and styles, and its share `code_visible_ratio`. With a `tokenizer` also `code_chars_per_token`.
    All null where there is no text; of a text of over 8 million characters the first are measured.

    `column`: the text. `path_column`: its path or name. `language_column`: the language if it is known
    already, as The Stack's `lang`; else it is told by name and content. `table`: a YAML of your own in place
    of `curator_text/code/languages.yaml`, which says what ending is what language and how its comments look.
    `tokenizer`: as in `text.tokenize`.

    Sources: The Stack v2 (Lozhkov et al. 2024, arXiv 2402.19173, 3.1); StarCoder (Li et al. 2023, arXiv
    2305.06161, 3); NeMo Curator's code filters. Decide by the rule sets `starcoder`, `starcoder2`,
    `nemo_code`.

    Known difference: base64 and hexadecimal are told more strictly, see `curator_text.code.encoded`.
    """

    column: str = "text"
    path_column: str = "source"
    language_column: str | None = None
    table: str | None = None
    tokenizer: str | None = None

    sparse = ("code_generated", "code_xml_header", "code_visible_chars", "code_visible_ratio",
              "code_encoded_max", "code_encoded_ratio", "code_comment_ratio", "code_digit_ratio")

    def __post_init__(self) -> None:
        self.requires = required(self.tokenizer)

    def contract(self) -> Contract:
        needs = [self.column, self.path_column] + ([self.language_column] if self.language_column else [])
        more = {"code_chars_per_token": pa.float64()} if self.tokenizer else {}
        return Contract(needs=dict.fromkeys(needs, pa.string()), adds=COLUMNS | more)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        load_languages(self.table)

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"table": table_digest(self.table)}

    def example_columns(self) -> dict[str, Shown]:
        return {"code_language": "text"}

    def setup(self, ctx: Context) -> None:
        self._languages = load_languages(self.table)
        self._comments = {name: Comments(style) for name, style in self._languages.styles.items()}
        if self.tokenizer:
            self._encode = open_tokenizer(self.tokenizer, max(1, int(ctx.cpus))).encode

    def process(self, batch: TextBatch) -> TextBatch:
        texts, paths = batch.column(self.column), batch.column(self.path_column)
        known: Sequence[str | None] = [None] * len(batch)
        if self.language_column:
            known = batch.column(self.language_column)
        rows = [{} if text is None else measured(text[:MEASURED_CHARS_MAX], path, language, self._languages,
                                                 self._comments)
                for text, path, language in zip(texts, paths, known, strict=True)]
        columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in COLUMNS.items()}
        if self.tokenizer:
            columns["code_chars_per_token"] = pa.array(self._token_lengths(texts), pa.float64())
        return batch.with_columns(columns)

    def _token_lengths(self, texts: Sequence[str | None]) -> list[float | None]:
        counts = iter(self._encode(text for text in texts if text))
        return [len(text) / max(1, len(next(counts))) if text else None for text in texts]


def measured(text: str, path: str | None, language: str | None, languages: Languages,
             comments: dict[str, Comments]) -> dict[str, Any]:
    """The signals of one file by the name of the column."""
    language = language or languages.of(path, text)
    lines, longest, mean = line_lengths(text)
    letters, alnum, digits = characters(text)
    longest_piece, in_pieces = encoded(text)
    size = len(text)
    row = {
        "code_language": language, "extension": extension_of(path), "code_name": file_name(path),
        "code_lines": lines, "code_line_max": longest, "code_line_mean": mean,
        "code_encoded_max": longest_piece, "code_generated": generated(path, text),
        "code_xml_header": has_xml_header(text),
    }
    if size:
        row |= {"code_alnum_ratio": alnum / size, "code_alpha_ratio": letters / size,
                "code_digit_ratio": digits / size, "code_encoded_ratio": in_pieces / size}
        if language in comments:
            row["code_comment_ratio"] = comments[language].share(text)
    if language in _MARKUP:
        row["code_visible_chars"] = visible = visible_characters(text)
        if size:
            row["code_visible_ratio"] = visible / size
    return row
