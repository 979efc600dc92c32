"""How right text.pii is: values and look-alikes planted in sentences, precision and recall by kind.

    python benchmarks/text_pii.py [--count 2000] [--seed 0] [--show 5]

Each document is a sentence with one value that is personal or secret, or with one that only looks like it. A value counts as
found where exactly its characters were; a look-alike counts against the kind that it was taken for. `--show`: so many errors of
each kind are printed.
"""

from __future__ import annotations

import argparse
import random
import string
from collections import Counter, defaultdict
from itertools import pairwise

from curator_text.privacy.finders import find, luhn

KINDS = ("email", "ip", "phone", "card", "iban", "ssn", "key")
SENTENCES = ("Please write to {} before Friday.", "It is {}, as far as I know.", "contact: {}", "({})", "“{}” was all he said.", "\t{}\n",
             "Call or see {}; thanks.", "x = \"{}\"", "<td>{}</td>", "1. {}\n2. other", "The answer was {}.", "{}", "von {} erhalten",
             "- {}, yes", "log: value={} status=ok", "号码是 {} 。")
FIRST = ("ana", "j.smith", "o'neil", "li_wei", "jörg", "maria-jose", "bob+news", "x", "info", "иван", "a.b.c", "dev%ops")
HOSTS = ("gmail.com", "uni-bonn.de", "mail.example-shop.co.uk", "firma.museum", "пример.рф", "x.io", "a-b.org", "sub.domain.company.com")


class Planter:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def digits(self, n: int) -> str:
        return "".join(self.rng.choices(string.digits, k=n))

    def chance(self, n: int, letters: str = string.ascii_letters + string.digits) -> str:
        return "".join(self.rng.choices(letters, k=n))

    # -- what must be found: by kind and form ------------------------------------------------------------

    def values(self) -> dict[tuple[str, str], str]:
        d, c, rng = self.digits, self.chance, self.rng
        area, exchange, line = f"{rng.randint(2, 9)}{d(2)}", f"{rng.randint(2, 9)}{d(2)}", d(4)
        hexadecimal, upper = "0123456789abcdef", string.ascii_uppercase
        four = [str(rng.choice((23, 51, 78, 93, 134, 151, 185, 212))), *(str(rng.randint(0, 255)) for _ in range(3))]
        card, iban = self.card(), self.iban()
        pem = "\n".join(c(64) for _ in range(12))
        return {
            ("email", "any"): f"{rng.choice(FIRST)}{rng.choice(('', d(2)))}@{rng.choice(HOSTS)}",
            ("email", "capitals"): f"{rng.choice(FIRST)}@{rng.choice(HOSTS)}".upper(),
            ("email", "written out"): f"{rng.choice(FIRST)} (at) {rng.choice(HOSTS)}",
            ("ip", "version 4"): ".".join(four),
            ("ip", "version 4 with small numbers"): f"23.{rng.randint(1, 20)}.{rng.randint(1, 20)}.{rng.randint(1, 20)}",
            ("ip", "version 6"): "2a02:" + ":".join(c(4, hexadecimal[1:]) for _ in range(7)),
            ("ip", "version 6, shortened"): f"2a02:{c(3, hexadecimal[1:])}::{c(4, hexadecimal[1:])}",
            ("phone", "international"): rng.choice((
                f"+1 {area}-{exchange}-{line}", f"+49 {rng.choice((30, 40, 89))} {d(7)}", f"+33 1 {d(2)} {d(2)} {d(2)} 4{d(1)}",
                f"+44 20 7{d(3)} {d(4)}", f"+91 {rng.randint(7, 9)}{d(4)} {d(5)}", f"+86 138 {d(4)} {d(4)}", f"+4915{d(9)}",
                f"+44 (0)20 7{d(3)} {d(4)}")),
            ("phone", "North American"): rng.choice((
                f"({area}) {exchange}-{line}", f"{area}-{exchange}-{line}", f"{area}.{exchange}.{line}",
                f"1-{area}-{exchange}-{line}", f"{area} {exchange} {line}")),
            ("phone", "national elsewhere"): rng.choice((
                f"030 9{d(6)}", f"01 4{d(1)} {d(2)} {d(2)} {d(2)}", f"07911 {d(6)}", f"0151-{d(8)}")),
            ("card", "one number"): card, ("card", "groups"): self._grouped(card),
            ("iban", "one word"): iban, ("iban", "groups of four"): " ".join(iban[at:at + 4] for at in range(0, len(iban), 4)),
            ("iban", "small letters"): iban.lower(),
            ("ssn", "with hyphens"): f"{rng.randint(1, 665):03}-{rng.randint(1, 99):02}-{rng.randint(1, 9999):04}",
            ("key", "of a service"): rng.choice((
                "AKIA" + c(16, upper + "234567"), "ghp_" + c(36), "glpat-" + c(20), "hf_" + c(34), "AIza" + c(35), "sk_live_" + c(24),
                f"xoxb-{d(12)}-{d(12)}-" + c(24), "npm_" + c(36), f"SG.{c(22)}.{c(43)}", "sk-proj-" + c(80),
                "dop_v1_" + c(64, hexadecimal), f"eyJhbGciOiJIUzI1NiJ9.eyJ{c(30)}.{c(43)}", "r8_" + c(37), "SK" + c(32, hexadecimal),
                f"{c(32, hexadecimal)}-us{rng.randint(1, 21)}")),
            ("key", "private key"): f"-----BEGIN RSA PRIVATE KEY-----\n{pem}\n-----END RSA PRIVATE KEY-----"}

    def card(self) -> str:
        prefix, size = self.rng.choice((("4", 16), ("51", 16), ("2221", 16), ("34", 15), ("37", 15), ("6011", 16),
                                        ("3530", 16), ("36", 14)))
        body = prefix + self.digits(size - len(prefix) - 1)
        return body + next(d for d in string.digits if luhn(body + d))

    def _grouped(self, number: str) -> str:
        cuts = {15: (0, 4, 10, 15), 16: (0, 4, 8, 12, 16), 14: (0, 4, 10, 14)}[len(number)]
        return self.rng.choice(" -").join(number[a:b] for a, b in pairwise(cuts))

    def iban(self) -> str:
        country, pattern = self.rng.choice((("DE", "d" * 18), ("GB", "aaaa" + "d" * 14), ("FR", "d" * 23), ("NL", "aaaa" + "d" * 10),
                                            ("ES", "d" * 20), ("IT", "a" + "d" * 22), ("CH", "d" * 17), ("NO", "d" * 11)))
        body = "".join(self.rng.choice(string.digits if kind == "d" else string.ascii_uppercase) for kind in pattern)
        rest = int("".join(str(int(char, 36)) for char in body + country + "00")) % 97
        return f"{country}{98 - rest:02}{body}"

    # -- what must not be found ------------------------------------------------------------

    def look_alikes(self) -> dict[str, str]:
        d, c, rng = self.digits, self.chance, self.rng
        number = rng.choice("1234567890") + d(15)
        while luhn(number):
            number = "9" + d(15)
        return {
            "host to clone from": f"git@{rng.choice(('github.com', 'gitlab.example.org'))}:{c(5).lower()}/{c(6).lower()}.git",
            "package with version": f"@{c(5).lower()}/{c(6).lower()}@{rng.randint(1, 20)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}",
            "account of Mastodon": f"@{c(6).lower()}@mastodon.social", "picture": f"{c(5).lower()}@2x.png",
            "decorator": f"@{c(6).lower()}.setter",
            "version": f"version {rng.randint(1, 12)}.{rng.randint(0, 30)}.{rng.randint(0, 30)}.{d(2)}",
            "section": f"{rng.randint(1, 9)}.{rng.randint(1, 9)}.{rng.randint(1, 20)}.{rng.randint(1, 9)}",
            "browser": f"Chrome/{rng.randint(60, 130)}.0.{rng.randint(1000, 6999)}.{rng.randint(10, 199)}",
            "private network": f"192.168.{rng.randint(0, 255)}.{rng.randint(0, 255)}",
            "time": f"{rng.randint(0, 23):02}:{d(1)}5:{d(1)}7", "order": f"order {d(10)}",
            "date": f"20{d(2)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
            "years": f"19{d(2)}-20{d(2)}", "price": f"{d(1)} {d(3)} {d(3)}", "number without its check digit": number,
            "ISBN": f"978-3-{d(2)}-{d(6)}-{d(1)}",
            "random number": str(rng.randint(10**11, 10**12)), "float": f"{d(1)}.{d(15)}", "IBAN with a wrong digit": self._broken_iban(),
            "part number": f"{c(2, string.ascii_uppercase)}{d(2)}-{d(4)}-{d(4)}",
            "digest": c(40, "0123456789abcdef"), "UUID": "-".join(c(n, "0123456789abcdef") for n in (8, 4, 4, 4, 12)),
            "key of a manual": rng.choice(("AKIAIOSFODNN7EXAMPLE", "ghp_" + "x" * 36, "sk-" + "0" * 48)),
            "name in code": f"{c(8).lower()}_{c(9).lower()}_{c(7).lower()}",
            "MAC address": ":".join(c(2, "0123456789abcdef") for _ in range(6)), "C++": f"std::{c(6).lower()}::{c(5).lower()}",
            "coordinates": f"{rng.randint(10, 80)}.{d(4)}, {rng.randint(10, 80)}.{d(4)}", "score": f"{d(1)}-{d(1)}, {d(1)}-{d(1)}",
            "SSN never given out": f"{rng.choice(('000', '666', '9' + d(2)))}-{d(1)}1-{d(3)}1",
            "hash of a key": f"sha256:{c(64, '0123456789abcdef')}", "serial": f"S/N {d(4)}-{d(3)}-{d(3)}", "fraction": f"{d(3)}/{d(4)}",
            "IPv6 prefix of documentation": "2001:db8::" + c(4, "123456789abcdef")}

    def _broken_iban(self) -> str:
        value = self.iban()
        return value[:-1] + str((int(value[-1], 36) + 1) % 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="documents of each form, and of each look-alike half as many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0)
    options = parser.parse_args()
    planter = Planter(options.seed)
    right: Counter[tuple[str, str]] = Counter()
    wrong: Counter[str] = Counter()
    taken_for: Counter[tuple[str, str]] = Counter()
    errors: dict[str, list[str]] = defaultdict(list)

    def look(value: str, kind: str | None, name: str) -> bool:
        """Whether exactly the value was found; counts what else was."""
        text = planter.rng.choice(SENTENCES).format(value)
        found = {(text[a:b], found_kind) for a, b, found_kind in find(text, KINDS)}
        for other, other_kind in sorted(found - {(value, kind)}):
            wrong[other_kind] += 1
            taken_for[name, other_kind] += 1
            errors[f"wrong {other_kind}"].append(f"{text!r}: {other!r}")
        if kind is not None and (value, kind) not in found:
            errors[f"missed {name}"].append(repr(text))
        return (value, kind) in found

    for _ in range(options.count):
        for (kind, form), value in planter.values().items():
            right[kind, form] += look(value, kind, f"{kind}, {form}")
    for _ in range(options.count // 2):
        for name, value in planter.look_alikes().items():
            look(value, None, name)
    print("| kind | form | recall |\n| --- | --- | --- |")
    for (kind, form), count in right.items():
        print(f"| `{kind}` | {form} | {count / options.count:.1%} |")
    print("\n| kind | taken wrongly | precision |\n| --- | --- | --- |")
    for kind in KINDS:
        found = sum(count for (of, _), count in right.items() if of == kind)
        print(f"| `{kind}` | {wrong[kind]} | {found / max(1, found + wrong[kind]):.2%} |")
    print(f"\n{options.count:,} values of each form; look-alikes of {len(planter.look_alikes())} sorts, {options.count // 2:,} "
          "of each. Taken for something:")
    for (name, kind), count in taken_for.most_common():
        print(f"  {name} as {kind}: {count}")
    for name, lines in errors.items():
        for line in lines[:options.show]:
            print(f"{name}: {line}")


if __name__ == "__main__":
    main()
