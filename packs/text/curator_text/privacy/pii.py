"""Personal data and secrets counted, replaced or masked."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from curator.api.findings import Shown
from curator.api.stage import Contract, Stage
from curator.api.tasks import TextBatch
from curator_text.privacy.finders import FINDERS, find, put_in

# Names of RFC 2606 and numbers of RFC 5737 and of the North American Numbering Plan that belong to nobody.
_FAKES = {
    "email": ("email@example.com", "firstname.lastname@example.org", "user@example.net"),
    "ip": ("192.0.2.1", "198.51.100.17", "203.0.113.203", "192.0.2.88"),
    "phone": ("+1 202-555-0123", "+1 202-555-0147", "+1 202-555-0188"),
    "card": ("4000 0000 0000 0000",), "iban": ("XX00 0000 0000 0000",), "ssn": ("000-00-0000",),
    "key": ("<KEY>",),
}


@dataclass(kw_only=True)
class Pii(Stage):
    """Find personal data and secrets in a text: count, mark, replace or mask them.

    Adds `pii_count` and for each kind `pii_<kind>` (int32); null where there is no text. Changes the text
    unless `action` is `count`. To drop records give `drop` a condition on the counts (`{personal: pii_count >
    5}`).

    `kinds`: `email`; `ip`, public addresses, of version 4 and 6; `phone`, in the international form or as
    North America writes them; `card`, numbers of payment cards; `iban`, of bank accounts; `ssn`, US social
    security numbers; `key`, keys and tokens of known services, and private keys. Numbers are checked by their
    check digits, lengths and prefixes; version numbers, hosts to clone from, and addresses inside a private
    network are not taken. `action`: `count` leaves the text; `mark` puts `marks` there (`<EMAIL>`); `replace`
    puts addresses and numbers that belong to nobody, the same one for the same value everywhere; `mask` puts
    as many `*` as there are characters. `marks`: kind to another mark (`{email: "|||EMAIL_ADDRESS|||"}`, as
    Dolma writes it).

    Known limits: names and postal addresses need a model. A number without its country code is found only as
    North America writes it. Sources: RFC 5321 and 6531 (addresses), ITU-T E.164 (telephone), ISO/IEC 7812
    (cards), ISO 13616 (IBAN); what is found, and what is not, follows Dolma (arXiv 2402.00159, appendix) and
    FineWeb (arXiv 2406.17557, 3.7) less their known errors.
    """

    column: str = "text"
    kinds: list[str] = field(default_factory=lambda: ["email", "ip", "phone", "card", "iban", "key"])
    action: Literal["count", "mark", "replace", "mask"] = "replace"
    marks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in [*self.kinds, *self.marks]:
            if name not in FINDERS:
                raise ValueError(f"there is no kind {name!r} of personal data; there are "
                                 f"{', '.join(FINDERS)}")
        if not self.kinds:
            raise ValueError(f"kinds names nothing to look for; there are {', '.join(FINDERS)}")
        if self.action not in ("count", "mark", "replace", "mask"):
            raise ValueError(f"action must be count, mark, replace or mask, got {self.action!r}")
        self.sparse = tuple(self.contract().adds)

    def contract(self) -> Contract:
        changed = {} if self.action == "count" else {self.column: pa.string()}
        return Contract(needs={self.column: pa.string()},
                        adds=changed | dict.fromkeys(["pii_count", *(f"pii_{kind}" for kind in self.kinds)],
                                                     pa.int32()))

    def example_columns(self) -> dict[str, Shown]:
        return {"pii_count": "number"}

    def process(self, batch: TextBatch) -> TextBatch:
        texts, kinds = batch.column(self.column), tuple(self.kinds)
        found = [None if text is None else find(text, kinds) for text in texts]
        counts = [None if spans is None else Counter(kind for _, _, kind in spans) for spans in found]
        columns = {"pii_count": pa.array([None if c is None else c.total() for c in counts], pa.int32())}
        columns |= {f"pii_{kind}": pa.array([None if c is None else c[kind] for c in counts], pa.int32())
                    for kind in kinds}
        if self.action != "count":
            columns[self.column] = pa.array([put_in(text, spans, self._instead) if spans else text
                                             for text, spans in zip(texts, found, strict=True)], pa.string())
        return batch.with_columns(columns)

    def _instead(self, kind: str, value: str) -> str:
        if self.action == "mask":
            return "*" * len(value)
        if self.action == "mark" or kind in self.marks:
            return self.marks.get(kind, f"<{kind.upper()}>")
        fakes = _FAKES[kind]
        return fakes[hashlib.blake2b(value.lower().encode(), digest_size=2).digest()[0] % len(fakes)]
