"""Codes of languages: those that `text.language` can tell, so that a recipe is checked without loading the
model, and all others."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TypeVar

from curator.api.batch import Batch

# code: ISO 639-2 or 639-3 codes, also those of the usual variety of a language (cmn, arb), and English names
_LANGUAGES = """
ace acehnese|af afr afrikaans|am amh amharic|an arg aragonese|ar ara arb arabic|as asm assamese|az aze azj azerbaijani
ba bak bashkir|bcl bikol|be bel belarusian|bg bul bulgarian|bn ben bengali bangla|br bre breton|bs bos bosnian
ca cat catalan valencian|crh crimean_tatar|cs ces cze czech cz|cy cym wel welsh|da dan danish dk
de deu ger german deutsch|dz dzo dzongkha|el ell gre greek gr|en eng english us gb|eo epo esperanto
es spa spanish castilian espanol español|et est ekk estonian|eu eus baq basque|ext extremaduran|fa fas per pes persian farsi
ff ful fulah fula|fi fin finnish|fo fao faroese|fr fra fre french francais français|fy fry frisian|ga gle irish
gcf antillean_creole|gcr guianese_creole|gd gla gaelic scottish|gl glg galician|gn grn guarani|gom konkani
grc ancient_greek|gu guj gujarati|guw gun|ha hau hausa|hbo ancient_hebrew|he heb hebrew iw|hi hin hindi
hr hrv croatian|ht hat haitian|hu hun hungarian|hy hye arm armenian|id ind indonesian in|ig ibo igbo
is isl ice icelandic|it ita italian italiano|ja jpn japanese jp|jv jav javanese jw|ka kat geo georgian|kab kabyle
ki kik kikuyu|kk kaz kazakh|km khm khmer|kn kan kannada|ko kor korean kr|ku kur kmr kurdish|ky kir kyrgyz|la lat latin
lb ltz luxembourgish|lg lug ganda luganda|lij ligurian|ln lin lingala|lo lao|lt lit lithuanian|lv lav lvs latvian
mg mlg plt malagasy|mk mkd mac macedonian|ml mal malayalam|mn mon khk mongolian|mr mar marathi|ms msa may zsm malay
mt mlt maltese|my mya bur burmese|ne nep npi nepali np|nl nld dut dutch flemish|nn nno nynorsk
no nor nb nob norwegian bokmal|nso sepedi|oc oci occitan|om orm oromo|or ori ory odia oriya|pa pan punjabi
pcm nigerian_pidgin|pl pol polish|ps pus pbt pashto|pt por portuguese portugues português|qu que quechua
ro ron rum romanian mo|ru rus russian|rw kin kinyarwanda|sa san sanskrit|se sme northern_sami|si sin sinhala
sk slk slo slovak|sl slv slovenian slovene|sn sna shona|so som somali|sq sqi alb als albanian|sr srp serbian|st sot sotho
sv swe swedish|sw swa swh swahili|ta tam tamil|te tel telugu|tg tgk tajik|th tha thai|tk tuk turkmen
tl tgl tagalog filipino fil|tr tur turkish|tt tat tatar|ug uig uyghur|uk ukr ukrainian ua|und undetermined
ur urd urdu|uz uzb uzn uzbek|vec venetian|vi vie vietnamese vn|vo vol volapuk|wa wln walloon|xh xho xhosa|yo yor yoruba
zh zho chi cmn chinese mandarin cn|zu zul zulu|zxx no_language
"""
ALIASES = {name: code for line in _LANGUAGES.split("\n") for entry in line.split("|") if entry
           for code, *names in [entry.split()] for name in [code, *names]}
CODES = tuple(dict.fromkeys(ALIASES.values()))

# Varieties that the model tells apart, and the language with an ISO 639-1 code that they are of.
# Source: ISO 639-3 macrolanguage mappings, https://iso639-3.sil.org/code_tables/macrolanguage_mappings/data.
VARIETIES = {"ary": "ar", "arz": "ar", "fuv": "ff", "gug": "gn", "kik": "ki", "ltg": "lv", "sdh": "ku",
             "uzs": "uz", "wuu": "zh", "yue": "zh"}

# Source: ISO 639-1:2002, the two-letter codes.
_TWO_LETTERS = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo
es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg
ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn
no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw
ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
ISO_639_1 = frozenset(_TWO_LETTERS.split())


def is_code(text: str) -> bool:
    """True for a code of ISO 639-1, and for anything that has the shape of one of ISO 639-3's 7,900.

    A script or region may follow (`zh-Hant`, `deu_Latn`, `pt-BR`).
    """
    language, *subtags = re.split("[-_]", text)
    if not all(re.fullmatch("[A-Z][a-z]{3}|[A-Z]{2}|[0-9]{3}", subtag) for subtag in subtags):
        return False
    return language in ISO_639_1 or bool(re.fullmatch("[a-z]{3}", language))


Code = TypeVar("Code", str, str | None)


def short_code(code: Code) -> Code:
    """The code by which lists here name a language: `en` of `eng`, `eng_Latn` and `en-US`, `nhk` of
    `nhk_Latn`; what is no code stays as it is."""
    if code is None:
        return None
    first = re.split("[-_]", code)[0]
    return ALIASES.get(first) or (first if is_code(code) else code)


def languages_of(batch: Batch, column: str, language: str | None) -> list[str | None]:
    """The language of each row by its short code; `language` where the batch does not say."""
    told = batch.column(column) if column in batch.columns else [None] * len(batch)
    return [short_code(language if code is None else code) for code in told]


def check_codes(codes: list[str], field: str, *, varieties: bool) -> None:
    """See that each is a code that can be told; `varieties`: also those of `VARIETIES`.

    Raises:
        ValueError: naming the code, the field and what was probably meant.
    """
    known = {*CODES, *VARIETIES} if varieties else set(CODES)
    for code in codes:
        if code in known:
            continue
        if code is False:
            raise ValueError(f'{field}: YAML reads no as false; write "no" in quotes for Norwegian')
        if code in VARIETIES:
            raise ValueError(f"{field}: {code!r} is reported as {VARIETIES[code]!r}; to tell varieties "
                             "apart, set varieties: true")
        raise ValueError(f"{field}: unknown language {code!r}{_meant(str(code))} (codes are those of ISO "
                         "639-1 in lower case, such as en; of 639-3 for languages that have none there)")


def _meant(code: str) -> str:
    name = code.lower().replace(" ", "_")
    exact = ALIASES.get(name) or ALIASES.get(re.split("[-_]", name)[0])
    near = [exact] if exact else [ALIASES[n] for n in get_close_matches(name, ALIASES, n=3, cutoff=0.6)]
    return f", did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
