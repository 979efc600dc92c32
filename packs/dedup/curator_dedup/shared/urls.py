"""One spelling for the addresses of one page."""

from __future__ import annotations

import re

_PARTS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?//([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_UNPRINTED = "".join(map(chr, range(33)))
_PLAIN = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/]*")
_ODD = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/]")
_UNRESERVED = re.compile(r"[A-Za-z0-9\-._~]")
_WWW = re.compile(r"^(?:www\.)+(?=[^.]+\.)")
_SESSION_IN_PATH = re.compile(r";jsessionid=[^/;]*", re.IGNORECASE)
_IPV6 = re.compile(r"\[[^\[\]]*\]")
_HOST = re.compile(r"[a-z0-9._-]+")

# Parameters that say where a reader came from, or who it is, and not which page is asked for.
# Source: the parameters that these services document; the same families are in the lists of Firefox (query
# stripping), AdGuard (TrackParamFilter) and ClearURLs. Not in it are names with another use somewhere: `ref`,
# `source`, `id`, `page`, `campaign`.
TRACKING = re.compile("|".join((
    r"utm_\w+|gclid|gclsrc|dclid|gbraid|wbraid|gad_\w+|srsltid|_ga|_gl",  # Google
    r"fbclid|fb_action_\w+|fb_source|igshid|igsh",  # Meta
    r"msclkid|yclid|ysclid|twclid|ttclid|li_fat_id|epik|ref_src|ref_url|rb_clickid|zanpid|wickedid|s_kwcid|ef_id",  # others
    r"(?:mtm|pk|piwik|matomo)_\w+",  # Matomo
    r"mc_cid|mc_eid|_hsenc|_hsmi|__hs\w+|hsctatracking|mkt_tok|vero_\w+|oly_(?:anon|enc)_id|_openstat|xtor|wt_mc",  # mail
    r"phpsessid|jsessionid|aspsessionid\w*|cfid|cftoken",  # sessions
)), re.IGNORECASE)


def normalized_url(text: str) -> str:
    """The address in a form that is the same for all usual spellings of one page; what is no address stays,
    but for space around.

    By RFC 3986, 6.2.2 and 6.2.3: scheme and host in lower case, no default port, percent-encoding only where
    it is needed and in upper case, no dot segments, an empty path for `/`. Other than there, since the page
    is nearly always the same: http for https, no `www.`, no `/` at the end, no fragment (but for `#!`, which
    some sites have for a path), query parameters sorted and without those of `TRACKING`, international hosts
    in ASCII (IDNA).

    Addresses of other schemes than http and https get scheme and host in lower case.
    """
    text = text.strip(_UNPRINTED)
    found = _PARTS.fullmatch(text)
    if not found:
        return text
    scheme, authority, path, query, fragment = (part or "" for part in found.groups())
    scheme = scheme.lower() or "http"
    user, at, host = authority.rpartition("@")
    if scheme not in ("http", "https"):
        return f"{scheme}://{user}{at}{host.lower()}{text[found.end(2):]}"
    path = _without_dots(_SESSION_IN_PATH.sub("", _quoted(path))).rstrip("/")
    query = "&".join(sorted(part for part in _quoted(query, "?").replace("+", "%20").split("&")
                            if part and not TRACKING.fullmatch(part.partition("=")[0])))
    fragment = "#" + _quoted(fragment, "?") if fragment.startswith("!") else ""
    return f"http://{_quoted(user)}{at}{_host(host)}{path}{'?' if query else ''}{query}{fragment}"


def _host(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not (port == "" or (port.isascii() and port.isdigit())):
        host, port = text, ""
    if not host.isascii():
        try:
            ascii_host = host.encode("idna").decode().lower()
        except UnicodeError:
            ascii_host = ""
        host = ascii_host if _HOST.fullmatch(ascii_host) else host
    if not _IPV6.fullmatch(host):
        host = _WWW.sub("", _quoted(host).replace(":", "%3A").lower().rstrip("."))
    port = port.lstrip("0")
    return host.lower() + ("" if port in ("", "80", "443") else f":{port}")


def _quoted(text: str, also: str = "") -> str:
    """Percent-encoded where it must be and nowhere else; `also`: further characters that may stand as they
    are."""
    if _PLAIN.fullmatch(text):
        return text

    def quote(found: re.Match) -> str:
        odd = found[0]
        if len(odd) == 3:
            char = chr(int(odd[1:], 16))
            return char if _UNRESERVED.fullmatch(char) else odd.upper()
        return odd if odd in also else "".join(f"%{byte:02X}" for byte in odd.encode("utf-8", "replace"))

    return _ODD.sub(quote, text)


def _without_dots(path: str) -> str:
    """Source: RFC 3986, 5.2.4."""
    if "/." not in path:
        return path
    kept: list[str] = []
    first, *segments = path.split("/")
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/".join((first, *kept))
