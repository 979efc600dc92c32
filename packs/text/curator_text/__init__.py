"""Text stages for Curator: readers of archives and files, extraction, repair, language, statistics."""

from curator_text.chat.chat import Chat
from curator_text.chat.chat_template import ChatTemplate
from curator_text.chat.turns import ChatTurns
from curator_text.clean.c4 import C4Lines
from curator_text.clean.clean import Clean
from curator_text.clean.noise_lines import NoiseLines
from curator_text.code.files import CodeFiles
from curator_text.code.license import CodeLicense
from curator_text.code.parse import CodeParse
from curator_text.code.secrets import CodeSecrets
from curator_text.code.signals import CodeSignals
from curator_text.copies.minhash import Minhash
from curator_text.copies.rehydrate import Rehydrate
from curator_text.extract.extract_html import ExtractHtml
from curator_text.extract.pdf import Pdf
from curator_text.get.arxiv import Arxiv
from curator_text.get.common_crawl import CommonCrawl
from curator_text.get.extract_latex import ExtractLatex
from curator_text.get.extract_wiki import ExtractWiki
from curator_text.get.wikipedia import Wikipedia
from curator_text.language.language import Language
from curator_text.language.own_words import OwnWords
from curator_text.lists.alphabet import Alphabet
from curator_text.lists.bad_words import BadWords
from curator_text.lists.stop_words import StopWords
from curator_text.lists.thresholds import Thresholds
from curator_text.lists.url_lists import UrlLists
from curator_text.llm.llm import Llm
from curator_text.llm.translate import Translate
from curator_text.measures.signals import Signals
from curator_text.models.classify import Classify
from curator_text.models.dsir import Dsir
from curator_text.models.embed import Embed
from curator_text.models.fasttext import Fasttext
from curator_text.models.perplexity import Perplexity
from curator_text.models.static_embed import StaticEmbed
from curator_text.models.train.train_classifier import TrainClassifier
from curator_text.models.zero_shot import ZeroShot
from curator_text.pieces.chunk import Chunk
from curator_text.pieces.join import Join
from curator_text.pieces.split import Split
from curator_text.privacy.pii import Pii
from curator_text.read.text_files import TextFiles
from curator_text.read.warc import Warc
from curator_text.tokens.pack import PackTokens
from curator_text.tokens.to_mds import ToMds
from curator_text.tokens.to_megatron import ToMegatron
from curator_text.tokens.to_nanotron import ToNanotron
from curator_text.tokens.tokenize import Tokenize

__all__ = [
    "STAGES", "Alphabet", "Arxiv", "BadWords", "C4Lines", "Chat", "ChatTemplate", "ChatTurns", "Chunk",
    "Classify", "Clean", "CodeFiles", "CodeLicense", "CodeParse", "CodeSecrets", "CodeSignals",
    "CommonCrawl", "Dsir", "Embed", "ExtractHtml", "ExtractLatex", "ExtractWiki", "Fasttext", "Join", "Language",
    "Llm", "Minhash", "NoiseLines", "OwnWords", "PackTokens", "Pdf", "Perplexity", "Pii", "Rehydrate",
    "Signals", "Split", "StaticEmbed", "StopWords", "TextFiles", "Thresholds", "ToMds", "ToMegatron", "ToNanotron", "Tokenize",
    "TrainClassifier", "Translate", "UrlLists", "Warc", "Wikipedia", "ZeroShot",
]

STAGES: tuple[type, ...] = (
    Warc, TextFiles, CommonCrawl, ExtractHtml, Clean, Language, C4Lines, Signals, Minhash, Fasttext,
    Classify, Embed, Perplexity, Pii, Tokenize, PackTokens, ToMegatron, ToNanotron, Llm, UrlLists, BadWords,
    StopWords, Thresholds, CodeSignals, NoiseLines, Pdf, Translate, Wikipedia, ExtractWiki, CodeSecrets,
    Chunk, Split, Join, ToMds, CodeFiles, CodeLicense, Arxiv, ExtractLatex, Alphabet, Chat, ChatTemplate,
    ChatTurns, TrainClassifier, ZeroShot, CodeParse, OwnWords, Rehydrate,
    StaticEmbed, Dsir,
)
