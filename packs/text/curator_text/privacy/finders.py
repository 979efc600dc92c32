"""Where personal data and secrets stand in a text: a pattern each, and what a match must satisfy besides.

Patterns alone are wrong too often: one in ten 16-digit numbers passes the check of card numbers, version
numbers look like addresses, and so do names of hosts in commands. So each match is checked: by its check
digits, by prefixes that were given out, by what stands before it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from curator_text.privacy.secrets import find_secrets, first_of_each_place

_Check = Callable[[re.Match[str]], bool]


@dataclass(frozen=True)
class Finder:
    """`hint`: a pattern without which there is no match, quick to look for. `check`: whether a match is
    one."""

    hint: re.Pattern[str]
    pattern: re.Pattern[str]
    check: _Check

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        if self.hint.search(text):
            for match in self.pattern.finditer(text):
                if self.check(match):
                    yield match.span()


# -- addresses of people -------------------------------------------------------------------------------------

# The part before the @ as RFC 5321 4.1.2 has it unquoted, in any script (RFC 6531); a domain of labels that
# ends in letters.
_EMAIL = re.compile(
    r"(?<![\w.%+@/-])[\w][\w.%+'-]{0,63}(?:@| ?[\[(] ?(?:at|AT) ?[\])] ?)"
    r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.)+[^\W\d_]{2,63}(?![\w@-])")
_FILE_ENDINGS = frozenset({"png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js", "html", "php"})


def _is_email(match: re.Match[str]) -> bool:
    """Not `git@github.com:user/repo`, a place to clone from; nor `icon@2x.png`, a picture."""
    text, local = match.string, re.split(r"@| ?[\[(]", match[0])[0]
    if text[match.end():match.end() + 1] == ":" and re.match(r":[\w~/]", text[match.end():match.end() + 2]):
        return False
    return (not local.endswith(".") and ".." not in local
            and match[0].rsplit(".", 1)[1].lower() not in _FILE_ENDINGS)


# -- addresses of machines -----------------------------------------------------------------------------------

_IP_4 = r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)"
_IP_6 = r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){2,7}(?::|[0-9A-Fa-f]{1,4})(?::?[0-9A-Fa-f]{1,4}){0,6}(?![\w:])"
_IP = re.compile(f"{_IP_4}|{_IP_6}")
_VERSION = re.compile(r"(?:\bv|\bver\.?|\bversion|\brelease|\brev\.?|\bbuild|[\w)]/)\s*$", re.IGNORECASE)
_NAMED = re.compile(
    r"\b(?:ip|ipv4|address|addr|host|dns|server|nameserver|gateway|ping|ssh|router|proxy|peer|from)\b",
    re.IGNORECASE)
_SMALL = 30  # numbers of sections are below it; of all addresses one in 5,000 has four such numbers
_RESOLVERS = frozenset({"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9"})  # that are named everywhere


def _is_public_ip(match: re.Match[str]) -> bool:
    """An address that is reached from everywhere, and no number of a version or of a section."""
    try:
        address = ipaddress.ip_address(match[0])
    except ValueError:
        return False
    begin, end = match.span()
    before, after = match.string[max(0, begin - 40):begin], match.string[end:end + 2]
    if not address.is_global or _VERSION.search(before):
        return False
    if address.version == 6 or max(address.packed) >= _SMALL or match[0] in _RESOLVERS:
        return True
    return bool(_NAMED.search(before.rpartition("\n")[2]) or re.match(r"[:/]\d", after))


# -- numbers -------------------------------------------------------------------------------------------------

# In the international form, or as North America writes them: without separators a number could be anything.
_PHONE = re.compile(r"(?<![\w.+/-])(?:\+\d{1,3}[ .\-/]?(?:\(\d{1,4}\)[ .\-/]?)?"
                    r"(?:\d{1,4}[ .\-/]?){1,5}\d{2,4}"
                    r"|(?:1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])[2-9]\d{2}[ .-]\d{4})(?![\w]|[.\-/]\d)")


def _is_phone(match: re.Match[str]) -> bool:
    """In the international form 8 to 15 digits: ITU-T E.164 has up to 15."""
    digits = re.sub(r"\D", "", match[0])
    return 8 <= len(digits) <= 15 if match[0].startswith("+") else True


_CARD = re.compile(r"(?<![\w.+-])\d(?:[ -]?\d){12,18}(?![\w]|[.-]\d)")
# Prefixes and lengths of ISO/IEC 7812 issuers: Visa, Mastercard, American Express, Discover, JCB, Diners
# Club, UnionPay, Maestro.
_ISSUERS = ((r"4", {13, 16, 19}), (r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720", {16}), (r"3[47]", {15}),
            (r"6011|64[4-9]|65", {16, 19}), (r"35(?:2[89]|[3-8])", {16, 17, 18, 19}),
            (r"3(?:0[0-5]|[68])", {14, 15, 16, 19}), (r"62", {16, 17, 18, 19}),
            (r"50|5[6-8]|6[37]", {13, 14, 15, 16, 17, 18, 19}))


def luhn(digits: str) -> bool:
    """Whether the last digit checks the others (ISO/IEC 7812-1, annex B)."""
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0


def _is_card(match: re.Match[str]) -> bool:
    digits = re.sub(r"\D", "", match[0])
    groups = re.split(r"[ -]", match[0])
    in_fours = len(groups) == 1 or all(len(group) >= 4 for group in groups[:-1])
    return in_fours and luhn(digits) and any(re.match(prefix, digits) and len(digits) in lengths
                                             for prefix, lengths in _ISSUERS)


_IBAN = re.compile(r"(?<![A-Za-z0-9])(?:[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?"
                   r"|[a-z]{2}\d{2}[a-z0-9]{11,29})(?![A-Za-z0-9])")
# SWIFT, IBAN Registry, release 99: how long an IBAN of a country is.
_IBAN_LENGTHS = {code: int(length) for length, codes in {
    15: "NO", 16: "BE", 18: "DK FI FO GL NL SD FK", 19: "MK SI", 20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV", 22: "BG BH CR DE GB GE IE ME RS VA", 23: "AE GI IL IQ OM SO TL",
    24: "AD CZ DZ ES MD PK RO SA SE SK TN VG", 25: "LY PT ST", 26: "IS TR", 27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV", 29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC",
    33: "RU"}.items() for code in codes.split()}


def _is_iban(match: re.Match[str]) -> bool:
    """Of the country's length, and checked by its two digits (ISO 13616; ISO/IEC 7064, mod 97-10)."""
    plain = match[0].replace(" ", "").upper()
    if len(plain) != _IBAN_LENGTHS.get(plain[:2]):
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


_SSN = re.compile(r"(?<![\w.-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w]|[.-]\d)")


class _Keys:
    """Keys and tokens of known services."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        return ((begin, end) for begin, end, _ in find_secrets(text))


FINDERS: dict[str, Finder | _Keys] = {
    "key": _Keys(),
    "email": Finder(re.compile(r"@|[\[(] ?(?:at|AT) ?[\])]"), _EMAIL, _is_email),
    "iban": Finder(re.compile(r"[A-Za-z]{2}\d{2}"), _IBAN, _is_iban),
    "card": Finder(re.compile(r"\d{4}"), _CARD, _is_card),
    "ip": Finder(re.compile(r"\d\.\d{1,3}\.|[0-9A-Fa-f]:[0-9A-Fa-f:]"), _IP, _is_public_ip),
    "ssn": Finder(re.compile(r"\d-\d\d-"), _SSN, lambda match: True),
    "phone": Finder(re.compile(r"\+\d|\d{3}[ .-]\d{4}"), _PHONE, _is_phone),
}


def find(text: str, kinds: tuple[str, ...]) -> list[tuple[int, int, str]]:
    """Where something of these kinds stands: begin, end, kind, in order of the text. Of what overlaps the
    kind counts that is first in `FINDERS`."""
    return first_of_each_place((kind, finder.spans(text)) for kind, finder in FINDERS.items()
                               if kind in kinds)


def put_in(text: str, spans: list[tuple[int, int, str]], instead: Callable[[str, str], str]) -> str:
    """The text with something else in each span: what `instead` says of its kind and what stands there."""
    parts, at = [], 0
    for begin, end, kind in spans:
        parts += [text[at:begin], instead(kind, text[begin:end])]
        at = end
    return "".join([*parts, text[at:]])
