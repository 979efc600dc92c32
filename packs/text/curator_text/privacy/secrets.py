"""Keys, tokens and passwords: a pattern for each service's shape, and what a match must satisfy.

The shapes are those that the services document or that are seen in their tokens; which services matter, and
that a shape is looked for only where its first letters stand, follows gitleaks (config/gitleaks.toml). What
is no secret is told by its entropy and by words such as EXAMPLE.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

ENTROPY_MIN = 3.0  # bits a character: gitleaks' bound for most shapes; 16 random hexadecimal digits have 3.4
# What stands in a manual and opens nothing. AKIAIOSFODNN7EXAMPLE is Amazon's own.
_PLACEHOLDER = re.compile(
    r"example|sample|dummy|placeholder|redacted|changeme"
    r"|your[_-]|(?-i:x{5}|X{5})|\*\*\*|(?<!\d)0?1234567890(?!\d)"
    r"|0123456789abcdef|abcdefghij|not[_-]?a[_-]?real|<[^>]*>|\$\{|\{\{|\$\(|%\(|%s|\.\.\.$", re.IGNORECASE)


@dataclass(frozen=True)
class Shape:
    """`hints`: strings of which one must occur, quick to look for. The group `value` of the pattern is the
    secret, without one the whole match. `entropy_min`: bits a character of the value."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    entropy_min: float = ENTROPY_MIN

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        if any(hint in text for hint in self.hints):
            group = "value" if "value" in self.pattern.groupindex else 0
            for match in self.pattern.finditer(text):
                if is_secret(match[group], self.entropy_min):
                    yield match.span(group)


def _shape(pattern: str, *hints: str, entropy_min: float = ENTROPY_MIN) -> Shape:
    """A token that stands by itself."""
    return Shape(hints, re.compile(rf"(?<![A-Za-z0-9_-])(?:{pattern})(?![A-Za-z0-9_-])"), entropy_min)


def entropy(value: str) -> float:
    """Shannon's, of its characters, in bits a character."""
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)


def is_secret(value: str, entropy_min: float = ENTROPY_MIN) -> bool:
    """Whether a value of the right shape is not one of a manual."""
    return entropy(value[:400]) >= entropy_min and not _PLACEHOLDER.search(value[:400])


# One letter of base64url, of base62, and a hexadecimal digit.
_B, _A, _H = "[A-Za-z0-9_-]", "[A-Za-z0-9]", "[0-9a-f]"
KEYS: dict[str, Shape] = {
    "age": _shape("AGE-SECRET-KEY-1[0-9A-Z]{58}", "AGE-SECRET-KEY-1"),
    "anthropic": _shape(f"sk-ant-(?:api|admin)\\d\\d-{_B}{{80,120}}", "sk-ant-"),
    "aws": _shape("(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z2-7]{16}", "AKIA", "ASIA", "ABIA", "ACCA", "A3T"),
    "azure": Shape(("AccountKey=", "SharedAccessKey="), re.compile(
        r"(?:AccountKey|SharedAccessKey)=(?P<value>[A-Za-z0-9+/]{42,86}={1,2})"), 4.0),
    "crates.io": _shape(f"cio{_A}{{32}}", "cio", entropy_min=3.8),
    "databricks": _shape(f"dapi{_H}{{32}}(?:-\\d)?", "dapi"),
    "digitalocean": _shape(f"do[opr]_v1_{_H}{{64}}", "_v1_"),
    "discord": _shape(  # the first part is a number of 17 to 19 digits, in base64
        rf"(?:[MNO][DTjz][AEIMQUYcgk][w-z0-5]){{5,6}}{_A}{{0,3}}\.{_B}{{6}}\.{_B}{{27,38}}",
        "MD", "MT", "Mj", "ND", "NT", "OD", "OT"),
    "docker": _shape(f"dckr_(?:pat|oat)_{_B}{{27,32}}", "dckr_"),
    "doppler": _shape(rf"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{{2,35}}\.)?{_A}{{40,44}}", "dp."),
    "figma": _shape(f"figd_{_B}{{40,43}}", "figd_"),
    "github": _shape(f"gh[pousr]_{_A}{{36,251}}|github_pat_[A-Za-z0-9_]{{82}}",
                     "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "gitlab": _shape(
        f"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent)-{_B}{{20,64}}(?:\\.[0-9a-z]{{2}}\\.[0-9a-z]{{9}})?",
        "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-"),
    "google": _shape(f"AIza{_B}{{35}}|GOCSPX-{_B}{{28}}|ya29\\.{_B}{{40,}}", "AIza", "GOCSPX-", "ya29."),
    "grafana": _shape(f"glsa_{_A}{{32}}_{_H}{{8}}|glc_[A-Za-z0-9+/]{{32,400}}={{0,2}}", "glsa_", "glc_"),
    "groq": _shape(f"gsk_{_A}{{52}}", "gsk_"),
    "heroku": _shape(f"HRKU-AA{_B}{{58}}", "HRKU-AA"),
    "huggingface": _shape(f"hf_{_A}{{34}}|api_org_{_A}{{34}}", "hf_", "api_org_"),
    "jwt": _shape(rf"eyJ{_B}{{8,}}\.eyJ{_B}{{8,}}\.{_B}{{16,}}", "eyJ"),  # signed, RFC 7519
    "linear": _shape(f"lin_api_{_A}{{40}}", "lin_api_"),
    "mailchimp": _shape(f"{_H}{{32}}-us\\d{{1,2}}", "-us"),
    "mailgun": _shape(f"key-{_H}{{32}}", "key-"),
    "newrelic": _shape("NRAK-[A-Z0-9]{27}", "NRAK-"),
    "notion": _shape(f"ntn_{_A}{{40,50}}|secret_{_A}{{43}}", "ntn_", "secret_"),
    "npm": _shape(f"npm_{_A}{{36}}", "npm_"),
    "openai": _shape(f"sk-(?:proj-|svcacct-|admin-)?{_B}{{40,200}}", "sk-"),
    "perplexity": _shape(f"pplx-{_A}{{48}}", "pplx-"),
    "postman": _shape(f"PMAK-{_H}{{24}}-{_H}{{34}}", "PMAK-"),
    "private_key": Shape(("PRIVATE KEY",), re.compile(  # RFC 7468, and OpenPGP's
        r"-----BEGIN (?:[A-Z]+ ){0,2}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s:,.()\\\"'-]{64,20000}?"
        r"-----END (?:[A-Z]+ ){0,2}PRIVATE KEY(?: BLOCK)?-----"), 3.5),
    "pulumi": _shape(f"pul-{_H}{{40}}", "pul-"),
    "pypi": _shape(f"pypi-AgE{_B}{{50,1000}}", "pypi-AgE"),
    "replicate": _shape(f"r8_{_A}{{37}}", "r8_"),
    "rubygems": _shape(f"rubygems_{_H}{{48}}", "rubygems_"),
    "sendgrid": _shape(rf"SG\.{_B}{{22}}\.{_B}{{43}}", "SG."),
    "sentry": _shape(f"sntrys_{_B}{{60,}}|sntryu_{_H}{{64}}", "sntry"),
    "shopify": _shape("shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", "shp"),
    "slack": _shape(r"xox[abeprs]-(?:\d{10,13}-)+[A-Za-z0-9-]{16,64}|xapp-\d-[A-Z0-9]+-\d+-[a-z0-9]{32,}"
                    r"|hooks\.slack\.com/(?:services|workflows)/T\w+/[AB]\w+/\w{20,}",
                    "xox", "xapp-", "hooks.slack"),
    "square": _shape(f"sq0(?:atp|csp|idp)-{_B}{{22,43}}", "sq0"),
    "stripe": _shape(f"[rs]k_(?:live|test)_{_A}{{24,99}}|whsec_{_A}{{32,}}", "k_live_", "k_test_", "whsec_"),
    "supabase": _shape(f"sbp_{_H}{{40}}", "sbp_"),
    "telegram": _shape(rf"\d{{8,10}}:AA{_B}{{33}}", ":AA"),
    "terraform": _shape(rf"{_A}{{14}}\.atlasv1\.{_B}{{60,70}}", ".atlasv1."),
    "twilio": _shape(f"SK{_H}{{32}}", "SK"),
    "vault": _shape(rf"hv[sb]\.{_B}{{24,300}}", "hvs.", "hvb."),
    "xai": _shape(f"xai-{_A}{{80}}", "xai-"),
}

# -- by what stands before it --------------------------------------------------------------------------------

_ASSIGNED = re.compile(
    r"(?P<word>pass(?:w(?:or)?d|phrase)|pwd|secret|token|credential|(?:api|access|auth|private)[_-]?key)"
    r"(?:s|[_-]?[A-Za-z0-9]{1,12})?[\"'`]?\s{0,8}(?::=|=>|[:=])\s{0,8}"
    r"[\"'`](?P<value>[^\"'`\s]{8,200})[\"'`]", re.IGNORECASE)
_ASSIGNED_HINTS = ("passw", "pwd", "passphrase", "secret", "token", "key", "credential")
_URL_PASSWORD = re.compile(
    r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@\"'<>]{1,64}:(?P<value>[^\s/@\"'<>]{3,128})@[\w.-]+")
_WORDS = frozenset((
    "password", "passwort", "passwd", "pass", "pwd", "secret", "token", "user", "username", "root", "admin",
    "postgres", "mysql", "guest", "test", "foo", "bar", "key", "mypassword", "password1", "password123"))


def assigned(text: str) -> Iterator[tuple[int, int]]:
    """Values in quotes that are given to a name such as password, secret or api_key, and look made up by
    chance: several kinds of characters, and much entropy."""
    lowered = text.lower()
    if any(hint in lowered for hint in _ASSIGNED_HINTS):
        for match in _ASSIGNED.finditer(text):
            if _is_made(match["value"], password=match["word"].lower().startswith("p")):
                yield match.span("value")


def in_urls(text: str) -> Iterator[tuple[int, int]]:
    """Passwords in addresses (`postgres://me:secret@host`)."""
    if "://" in text and "@" in text:
        for match in _URL_PASSWORD.finditer(text):
            value = match["value"]
            if value.lower() not in _WORDS and not _PLACEHOLDER.search(value) and not re.fullmatch(
                    r"[:$%{(\[].*|\d{1,5}|[xX*.]+|[A-Z_]+|[a-z_-]{1,7}", value):
                yield match.span("value")


def _is_made(value: str, password: bool) -> bool:
    """A key has 16 characters and more, letters and digits, and no words; a password eight of two kinds."""
    if value.lower() in _WORDS or _PLACEHOLDER.search(value):
        return False
    if re.search(r"^[\W_]|^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}|[(){}\[\];,<>|]|::|->|^https?:"
                 r"|^(?:[a-z]+[._/-])+[a-z]+\d?$", value):
        return False  # code, a path, a name of several words
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", r"\d", r"[^A-Za-z0-9]"))
    if password:
        return bool(re.search(r"\d", value)) and kinds >= 2 and entropy(value) >= 2.75
    return len(value) >= 16 and bool(re.search(r"\d", value)) and kinds >= 2 and entropy(value) >= 3.5


CONTEXTS = {"assigned": assigned, "url": in_urls}
NAMES = (*KEYS, *CONTEXTS)


def find_secrets(text: str, names: tuple[str, ...] = tuple(KEYS)) -> list[tuple[int, int, str]]:
    """Where a secret of these names stands: begin, end, name, in order of the text. Of what overlaps the one
    counts that comes first in `NAMES`."""
    return first_of_each_place((name, KEYS[name].spans(text) if name in KEYS else CONTEXTS[name](text))
                               for name in NAMES if name in names)


def first_of_each_place(found: Iterable[tuple[str, Iterable[tuple[int, int]]]]) -> list[tuple[int, int, str]]:
    """Spans by name, as begin, end, name in order of the text: of what overlaps the name that comes first."""
    taken: list[tuple[int, int, str]] = []
    for name, spans in found:
        fresh = []
        for begin, end in spans:
            before = bisect_left(taken, (end,)) - 1  # the last that begins before this one ends
            if before < 0 or taken[before][1] <= begin:
                fresh.append((begin, end, name))
        if fresh:
            taken = sorted(taken + fresh)
    return taken


_SERVICE = re.compile(
    r"(?:[a-z]{2,8}_(?:live_|test_|pat_|api_|v1_)?|[a-z]{2,6}-(?:proj-|ant-(?:api|admin)\d\d-)?"
    r"|A[KS]IA|AIza|SG\.|hv[sb]\.|eyJ)(?=\S{8})")


def kept_length(value: str) -> int:
    """How many characters at the beginning of a key say whose it is (`ghp_`, `AKIA`)."""
    found = _SERVICE.match(value)
    return found.end() if found else 0
