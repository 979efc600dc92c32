"""Every character's kind: one small number that says what word splitting and the line rules need to know of
it."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np

# Kinds in this order, so that "is white space" is kind <= SPACE and "needs a look" is kind >= DOT.
(
    NEWLINE,  # "\n"
    BREAK,  # what else ends a line for str.splitlines
    SPACE,  # other white space
    LOWER,  # letter, lower case
    UPPER,  # letter, upper case
    LETTER,  # letter without case
    CJK,  # letter of a script without spaces: Han, kana, bopomofo
    MAINLAND,  # letter of a script without spaces: Thai, Lao, Khmer, Myanmar, Tibetan, Tai
    DIGIT,  # decimal digit of any script
    MARK,  # combining mark: belongs to the character before it
    OTHER,  # other numbers
    SYMBOL,  # punctuation, symbols and controls that no splitting rule names: @ | \ • and others
    DOT,  # "."
    COMMA,  # ","
    HYPHEN,  # "-"
    DASH,  # en and em dash
    TILDE,  # "~"
    SLASH,  # "/"
    EQUALS,  # "="
    COLON,  # : < >
    PLUS,  # "+"
    STAR,  # "*"
    CARET,  # "^"
    LEAD,  # % § and currencies: a word of its own before a word, and after a digit
    APOSTROPHE,  # ' ’
    QUOTE,  # other quotation marks
    PUNCT,  # brackets and what else is a word of its own at either end of a word
    END,  # ! ? and the sentence ends of other scripts
    WIDE,  # a word of its own wherever it stands: …, East Asian punctuation, pictures
    WIDE_END,  # the sentence ends among them: 。！？
) = range(30)

KINDS = 30
_NAMED = {"\n": NEWLINE, ".": DOT, ",": COMMA, "-": HYPHEN, "~": TILDE, "/": SLASH, "=": EQUALS, "+": PLUS,
          "*": STAR, "^": CARET, "'": APOSTROPHE, "’": APOSTROPHE, "…": WIDE, "§": LEAD, "%": LEAD,
          "´": QUOTE, "`": QUOTE, '"': QUOTE, **dict.fromkeys(":<>", COLON), **dict.fromkeys("!?", END),
          **dict.fromkeys("–—―", DASH),
          **dict.fromkeys("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", BREAK),
          **dict.fromkeys("()[]{}_#&;¿¡·،؛٪", PUNCT), **dict.fromkeys("@\\|", SYMBOL)}
_BY_CATEGORY = {"Lu": UPPER, "Ll": LOWER, "Nd": DIGIT, "Mn": MARK, "Mc": MARK, "Me": MARK, "No": OTHER,
                "Nl": OTHER, "Ps": PUNCT, "Pe": PUNCT, "Pi": QUOTE, "Pf": QUOTE, "Sc": LEAD, "So": WIDE}

# Source: Unicode 16.0, PropList.txt, Sentence_Terminal (without the full stop), and the Khmer signs U+17D6,
# 17D9, 17DA.
_SENTENCE_ENDS = """21 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736
17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B 1B5E-1B5F 1B7D-1B7F 1C3B-1C3C 1C7E-1C7F 203C-203D
2047-2049 2CF9-2CFB 2E2E 2E3C 2E53-2E54 2E60-2E61 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9
AA5D-AA5F AAF0-AAF1 ABEB FE12 FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89
11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 113D4-113D5 1144B-1144C
115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44
16A6E-16A6F 16AF5 16B37-16B38 16B44 16D6E-16D6F 16E98 1BC9F 1DA88"""
_CJK = ("3005-3007 3031-312F 31A0-31BF 31F0-31FF 3400-4DBF 4E00-9FFF F900-FAFF FF66-FF9F 1B000-1B16F "
        "20000-3FFFF")
_MAINLAND = "E00-109F 1780-17FF 1950-19DF 1A20-1AAF A9E0-A9FF AA60-AA7F"
_EAST_ASIAN_PUNCTUATION = "3000-303F 30FB FE10-FE1F FE30-FE6F FF00-FF65"


def ranges(text: str) -> np.ndarray:
    """The code points named by hexadecimal numbers and ranges, `"21 3F 61D-61F"`."""
    bounds = [[int(end, 16) for end in part.split("-")] for part in text.split()]
    return np.concatenate([np.arange(bound[0], bound[-1] + 1) for bound in bounds])


@lru_cache(maxsize=1)
def kind_table() -> np.ndarray:
    """The kind of each of the 1,114,112 code points, uint8. Takes about 0.1 s once a process."""
    table = np.full(0x110000, SYMBOL, np.uint8)
    for code in range(0x20000):  # above are only Han (below), tags and private use (symbols)
        table[code] = _kind(chr(code))
    table[0x20000:0x32000] = LETTER
    for code in range(0xE0100, 0xE01F0):
        table[code] = MARK
    letters = (table >= LOWER) & (table <= LETTER)
    for kind, named in ((CJK, _CJK), (MAINLAND, _MAINLAND)):
        among = ranges(named)
        table[among[letters[among]]] = kind
    ends = ranges(_SENTENCE_ENDS)
    wide = ranges(_EAST_ASIAN_PUNCTUATION)
    punctuation = wide[np.isin(table[wide], (SYMBOL, PUNCT, QUOTE, LEAD))]
    table[punctuation] = WIDE
    table[ends] = np.where(np.isin(ends, wide), WIDE_END, END)
    return table


def _kind(char: str) -> int:
    if char in _NAMED:
        return _NAMED[char]
    if char.isspace():
        return SPACE
    if char.isalpha():
        return LOWER if char.islower() else UPPER if char.isupper() else LETTER
    return _BY_CATEGORY.get(unicodedata.category(char), SYMBOL)


@lru_cache(maxsize=1)
def ascii_kinds() -> bytes:
    """The kinds of the ASCII characters as a table for `bytes.translate`."""
    return kind_table()[:256].tobytes()


def members(*kinds: int) -> np.ndarray:
    """A boolean table over the kinds, true for these."""
    table = np.zeros(KINDS, bool)
    table[list(kinds)] = True
    return table


WHITE = members(NEWLINE, BREAK, SPACE)
ALPHA = members(LOWER, UPPER, LETTER, CJK, MAINLAND)
SPACELESS = members(CJK, MAINLAND)
SYMBOLS = members(*range(SYMBOL, KINDS))
SENTENCE_END = members(DOT, END, WIDE_END)
