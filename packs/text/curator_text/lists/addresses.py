"""Addresses of pages in one plain form, and all parts of each that a list may name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator_text.measures.joined import Joined, join

# What goes, in order: scheme, fragment, user, port, www. (unless the rest has no dot), full stops at the
# host's end; then a slash before a question mark that follows the host, and no slash at the end.
_STEPS = ((r"^(?:[a-z][a-z0-9+.-]*:)?//", ""), (r"#.*$", ""), (r"^[^/?]*@", ""),
          (r"^([^/?:]+|\[[^\]]*\]):[0-9]*", r"\1"), (r"^(?:www\.)+([^./?]+\.)", r"\1"),
          (r"^([^/?]*?)\.+(/|\?|$)", r"\1\2"), (r"^([^/?]+)\?", r"\1/?"), (r"/+$", ""))


def plain(addresses: pa.Array) -> pa.Array:
    """Host and path, `example.com/a?b=1`: lower case, without scheme, user, port, `www.`, fragment and what
    is empty at the end. Hosts in other scripts than Latin become ASCII (IDNA)."""
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(addresses.cast(pa.large_string())))
    for pattern, instead in _STEPS:
        texts = pc.replace_substring_regex(texts, pattern, instead)
    foreign = pc.fill_null(pc.invert(pc.string_is_ascii(texts)), False)
    if foreign.true_count:
        texts = pc.replace_with_mask(texts, foreign, pa.array(
            [_in_ascii(text) for text in texts.filter(foreign).to_pylist()], pa.large_string()))
    return texts


def _in_ascii(address: str) -> str:
    host, slash, path = address.partition("/")
    if not host.isascii():
        with suppress(UnicodeError):  # of a name that nobody can ask for: it is compared as it stands
            host = host.encode("idna").decode().lower()
    return host + slash + path


class Parts(NamedTuple):
    """Parts of addresses, each by its row and its place in a text of all of them. Of a row the host comes
    first, then the domains above it, then the address from its longest part to its shortest."""

    joined: Joined
    row: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    of_path: np.ndarray  # bool: has more than a host

    def text(self, at: int) -> str:
        return self.joined.text[self.start[at]:self.stop[at]]


def parts(addresses: Sequence[str]) -> Parts:
    """What of each plain address a list may name: the host and every domain above it that has a dot, and the
    address cut off at a slash, a question mark or its end."""
    joined = join(list(addresses))
    first, last, codes = joined.starts, joined.stops, joined.codes
    slash, mark, dot = (np.flatnonzero(codes == ord(sign)) for sign in "/?.")
    host = np.minimum(np.append(slash, len(codes))[np.searchsorted(slash, first)], last)
    dot = dot[dot < host[joined.document(dot)]]
    row = joined.document(dot)
    another = np.append(row[1:] == row[:-1], np.zeros(min(1, len(row)), bool))  # a dot follows in the host
    dot, row = dot[another], row[another]
    cut = np.sort(np.concatenate([slash, mark, last]))[::-1]
    cut = cut[cut > host[joined.document(cut)]]
    cut_row = joined.document(cut)
    rows = np.concatenate([np.arange(len(joined)), row, cut_row])
    start = np.concatenate([first, dot + 1, first[cut_row]])
    stop = np.concatenate([host, host[row], cut])
    order = np.argsort(rows, kind="stable")
    of_path = np.repeat([False, True], [len(joined) + len(row), len(cut)])
    return Parts(joined, rows[order], start[order], stop[order], of_path[order])
