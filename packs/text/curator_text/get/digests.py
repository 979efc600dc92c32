"""Whether a record of an archive is the one that its header and an index promise."""

from __future__ import annotations

import base64
import hashlib

from curator_text.read.warc_records import Broken, Record

_ALGORITHMS = frozenset(("sha1", "sha-1", "sha256", "sha-256", "md5"))


def verified(record: Record | Broken, digest: str | None = None) -> Record | Broken:
    """The record, or why it is not the one that was meant.

    Its block is compared with WARC-Block-Digest (SHA-1, SHA-256 or MD5, base 32 or hex); other algorithms are
    passed over. `digest`: of the content, as an index has it; it is compared with WARC-Payload-Digest.
    """
    if isinstance(record, Broken):
        return record
    stated = record.headers.get("warc-block-digest", "")
    name, _, value = stated.partition(":")
    if record.block is not None and name.lower() in _ALGORITHMS:
        found = hashlib.new(name.lower().replace("-", ""), record.block, usedforsecurity=False).digest()
        if not _same(value, found):
            return Broken(record.place, f"its block has not the digest {stated} that its header states",
                          record.headers)
    payload = record.headers.get("warc-payload-digest", "").rpartition(":")[2]
    if digest and payload and digest.rpartition(":")[2].upper() != payload.upper():
        return Broken(record.place, f"it is another record: its content has the digest {payload}, and the "
                                    f"index says {digest}", record.headers)
    return record


def _same(stated: str, found: bytes) -> bool:
    if len(stated) == 2 * len(found):
        return stated.lower() == found.hex()
    return stated.rstrip("=").upper() == base64.b32encode(found).decode().rstrip("=")
