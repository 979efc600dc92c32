"""Text stages for Curator: readers of archives and files, extraction, repair, language, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curator.stages.late import attributes

# Each by its name, as `module:Class`: who asks for one imports that module alone.
STAGES = {
    "warc": "curator_text.read.warc:Warc",
    "files": "curator_text.read.text_files:TextFiles",
    "common_crawl": "curator_text.get.common_crawl:CommonCrawl",
    "extract_html": "curator_text.extract.extract_html:ExtractHtml",
    "clean": "curator_text.clean.clean:Clean",
    "language": "curator_text.language.language:Language",
    "c4_lines": "curator_text.clean.c4:C4Lines",
    "signals": "curator_text.measures.signals:Signals",
    "minhash": "curator_text.copies.minhash:Minhash",
    "fasttext": "curator_text.models.fasttext:Fasttext",
    "classify": "curator_text.models.classify:Classify",
    "embed": "curator_text.models.embed:Embed",
    "perplexity": "curator_text.models.perplexity:Perplexity",
    "pii": "curator_text.privacy.pii:Pii",
    "tokenize": "curator_text.tokens.tokenize:Tokenize",
    "pack_tokens": "curator_text.tokens.pack:PackTokens",
    "to_megatron": "curator_text.tokens.to_megatron:ToMegatron",
    "to_nanotron": "curator_text.tokens.to_nanotron:ToNanotron",
    "llm": "curator_text.llm.llm:Llm",
    "url_lists": "curator_text.lists.url_lists:UrlLists",
    "bad_words": "curator_text.lists.bad_words:BadWords",
    "stop_words": "curator_text.lists.stop_words:StopWords",
    "thresholds": "curator_text.lists.thresholds:Thresholds",
    "code_signals": "curator_text.code.signals:CodeSignals",
    "noise_lines": "curator_text.clean.noise_lines:NoiseLines",
    "pdf": "curator_text.extract.pdf:Pdf",
    "translate": "curator_text.llm.translate:Translate",
    "wikipedia": "curator_text.get.wikipedia:Wikipedia",
    "extract_wiki": "curator_text.get.extract_wiki:ExtractWiki",
    "code_secrets": "curator_text.code.secrets:CodeSecrets",
    "chunk": "curator_text.pieces.chunk:Chunk",
    "split": "curator_text.pieces.split:Split",
    "join": "curator_text.pieces.join:Join",
    "to_mds": "curator_text.tokens.to_mds:ToMds",
    "code_files": "curator_text.code.files:CodeFiles",
    "code_license": "curator_text.code.license:CodeLicense",
    "arxiv": "curator_text.get.arxiv:Arxiv",
    "extract_latex": "curator_text.get.extract_latex:ExtractLatex",
    "alphabet": "curator_text.lists.alphabet:Alphabet",
    "chat": "curator_text.chat.chat:Chat",
    "chat_template": "curator_text.chat.chat_template:ChatTemplate",
    "chat_turns": "curator_text.chat.turns:ChatTurns",
    "train_classifier": "curator_text.models.train.train_classifier:TrainClassifier",
    "zero_shot": "curator_text.models.zero_shot:ZeroShot",
    "code_parse": "curator_text.code.parse:CodeParse",
    "own_words": "curator_text.language.own_words:OwnWords",
    "rehydrate": "curator_text.copies.rehydrate:Rehydrate",
    "static_embed": "curator_text.models.static_embed:StaticEmbed",
    "dsir": "curator_text.models.dsir:Dsir",
}

if TYPE_CHECKING:
    from curator_text.chat.chat import Chat as Chat
    from curator_text.chat.chat_template import ChatTemplate as ChatTemplate
    from curator_text.chat.turns import ChatTurns as ChatTurns
    from curator_text.clean.c4 import C4Lines as C4Lines
    from curator_text.clean.clean import Clean as Clean
    from curator_text.clean.noise_lines import NoiseLines as NoiseLines
    from curator_text.code.files import CodeFiles as CodeFiles
    from curator_text.code.license import CodeLicense as CodeLicense
    from curator_text.code.parse import CodeParse as CodeParse
    from curator_text.code.secrets import CodeSecrets as CodeSecrets
    from curator_text.code.signals import CodeSignals as CodeSignals
    from curator_text.copies.minhash import Minhash as Minhash
    from curator_text.copies.rehydrate import Rehydrate as Rehydrate
    from curator_text.extract.extract_html import ExtractHtml as ExtractHtml
    from curator_text.extract.pdf import Pdf as Pdf
    from curator_text.get.arxiv import Arxiv as Arxiv
    from curator_text.get.common_crawl import CommonCrawl as CommonCrawl
    from curator_text.get.extract_latex import ExtractLatex as ExtractLatex
    from curator_text.get.extract_wiki import ExtractWiki as ExtractWiki
    from curator_text.get.wikipedia import Wikipedia as Wikipedia
    from curator_text.language.language import Language as Language
    from curator_text.language.own_words import OwnWords as OwnWords
    from curator_text.lists.alphabet import Alphabet as Alphabet
    from curator_text.lists.bad_words import BadWords as BadWords
    from curator_text.lists.stop_words import StopWords as StopWords
    from curator_text.lists.thresholds import Thresholds as Thresholds
    from curator_text.lists.url_lists import UrlLists as UrlLists
    from curator_text.llm.llm import Llm as Llm
    from curator_text.llm.translate import Translate as Translate
    from curator_text.measures.signals import Signals as Signals
    from curator_text.models.classify import Classify as Classify
    from curator_text.models.dsir import Dsir as Dsir
    from curator_text.models.embed import Embed as Embed
    from curator_text.models.fasttext import Fasttext as Fasttext
    from curator_text.models.perplexity import Perplexity as Perplexity
    from curator_text.models.static_embed import StaticEmbed as StaticEmbed
    from curator_text.models.train.train_classifier import TrainClassifier as TrainClassifier
    from curator_text.models.zero_shot import ZeroShot as ZeroShot
    from curator_text.pieces.chunk import Chunk as Chunk
    from curator_text.pieces.join import Join as Join
    from curator_text.pieces.split import Split as Split
    from curator_text.privacy.pii import Pii as Pii
    from curator_text.read.text_files import TextFiles as TextFiles
    from curator_text.read.warc import Warc as Warc
    from curator_text.tokens.pack import PackTokens as PackTokens
    from curator_text.tokens.to_mds import ToMds as ToMds
    from curator_text.tokens.to_megatron import ToMegatron as ToMegatron
    from curator_text.tokens.to_nanotron import ToNanotron as ToNanotron
    from curator_text.tokens.tokenize import Tokenize as Tokenize
else:
    __getattr__, __dir__ = attributes(__name__, STAGES)
