"""Text stages for Curator: readers of archives and files, extraction, repair, language, statistics."""

from curator_text.c4 import C4Lines
from curator_text.clean import Clean
from curator_text.extract_html import ExtractHtml
from curator_text.language import Language
from curator_text.minhash import Minhash
from curator_text.signals import Signals
from curator_text.text_files import TextFiles
from curator_text.warc import Warc

__all__ = ["STAGES", "C4Lines", "Clean", "ExtractHtml", "Language", "Minhash", "Signals", "TextFiles", "Warc"]

STAGES: tuple[type, ...] = (Warc, TextFiles, ExtractHtml, Clean, Language, C4Lines, Signals, Minhash)
