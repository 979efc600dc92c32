"""What a server says in the headers of an answer about using it for training."""

from __future__ import annotations

from collections.abc import Collection, Mapping

TDM = "tdm-reservation"
OPT_OUT = ("noai", "noimageai", "noindex", "noimageindex", "none", TDM)  # none: no index and no links
# Directives that have a value of their own, so that what stands before the colon is no user agent.
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


def opts_out(headers: Mapping[str, str], opt_out: Collection[str], agent: str) -> bool:
    """Whether one of the directives `opt_out` is there, for everybody or for `agent`.

    Source: X-Robots-Tag: https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag (a name
    before a colon says whom the directives behind it are for); noai, noimageai: DeviantArt 2022, honoured as
    img2dataset does. tdm-reservation: W3C TDM Reservation Protocol, final report 2024, section
    "TDM-Reservation HTTP header": 1 reserves the rights, 0 does not.
    """
    if TDM in opt_out and any(line.strip() == "1" for line in _lines(headers, "tdm-reservation")):
        return True
    return any(directive in opt_out for line in _lines(headers, "x-robots-tag")
               for directive in _directives(line, agent))


def _directives(line: str, agent: str) -> list[str]:
    """The directives of one X-Robots-Tag line that are for us."""
    addressed, found = True, []
    for part in line.lower().split(","):
        name, colon, rest = part.partition(":")
        name = name.strip()
        # a name is one word; what has more is the rest of a date
        if colon and name not in _VALUED and " " not in name:
            addressed, part = name in ("*", agent.lower()), rest
        if addressed:
            found.append(part.strip())
    return found


def _lines(headers: Mapping[str, str], name: str) -> list[str]:
    """A header's lines apart, for the addressee of one is none of the next."""
    every = getattr(headers, "getlist", None)
    return list(every(name)) if every else [headers[name]] if name in headers else []
