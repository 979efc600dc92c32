"""Language models of n-grams for tests: the files of KenLM, and probabilities reckoned word by word."""

from __future__ import annotations

import base64
import math
import random
import struct
import zlib

# log10 of probability and of back-off
TOY = {("<unk>",): (-1.2, 0), ("<s>",): (0, -0.30103), ("</s>",): (-0.9, 0), ("the",): (-0.7, -0.2), ("fox",): (-0.8, -0.25),
       ("jumps",): (-1.0, -0.1), ("<s>", "the"): (-0.4, -0.15), ("the", "fox"): (-0.5, -0.05), ("fox", "jumps"): (-0.6, -0.12),
       ("jumps", "</s>"): (-0.35, 0), ("fox", "the"): (-0.9, -0.2), ("fox", "</s>"): (-0.8, 0), ("<s>", "the", "fox"): (-0.2, 0),
       ("the", "fox", "jumps"): (-0.3, 0), ("fox", "jumps", "</s>"): (-0.1, 0)}


def random_model(seed: int, words: int = 12, orders: int = 4, *, gaps: bool = False) -> dict[tuple[str, ...], tuple[float, float]]:
    """N-grams without those whose beginning is not there; without `gaps` also without those whose end is not."""
    random_ = random.Random(seed)
    vocabulary = ["<unk>", "<s>", "</s>", *(f"w{n}é" if n % 3 else "狐" * n + "x" for n in range(1, words))]

    def pair() -> tuple[float, float]:
        return -round(random_.uniform(0.01, 3), 4), -round(random_.uniform(0, 1), 4)

    model = {(word,): pair() for word in vocabulary}
    before = [(word,) for word in vocabulary if word != "</s>"]
    for _ in range(2, orders + 1):
        longer = [(*some, word) for some in before for word in vocabulary if word != "<s>" and random_.random() < 0.3]
        longer = [one for one in longer if gaps or one[1:] in model]
        model |= {one: pair() for one in longer}
        before = [one for one in longer if one[-1] != "</s>"]
    return model


def log10(model: dict, words: list[str]) -> float:
    """Of a sentence with its beginning and end, by the definition of back-off."""
    longest = max(map(len, model))
    said, total = ["<s>"], 0.0
    for word in [*words, "</s>"]:
        word = word if (word,) in model else "<unk>"
        context = tuple(said[-(longest - 1):]) if longest > 1 else ()
        while (*context, word) not in model:
            total += model.get(context, (0, 0))[1]
            context = context[1:]
        total += model[*context, word][0]
        said.append(word)
    return total


def arpa(model: dict) -> bytes:
    longest = max(map(len, model))
    parts = [[ngram for ngram in model if len(ngram) == n] for n in range(1, longest + 1)]
    lines = ["", "\\data\\", *(f"ngram {n}={len(part)}" for n, part in enumerate(parts, 1)), ""]
    for n, part in enumerate(parts, 1):
        lines.append(f"\\{n}-grams:")
        for ngram in part:
            probability, backoff = model[ngram]
            lines.append(f"{probability}\t{' '.join(ngram)}" + (f"\t{backoff}" if backoff and n < longest else ""))
        lines.append("")
    return ("\n".join([*lines, "\\end\\"]) + "\n").encode()


def murmur(key: bytes) -> int:
    m, mask = 0xC6A4A7935BD1E995, 2**64 - 1
    h = len(key) * m & mask
    for at in range(0, len(key) - 7, 8):
        k = int.from_bytes(key[at:at + 8], "little") * m & mask
        h = ((h ^ ((k ^ k >> 47) * m & mask)) * m) & mask
    if rest := key[len(key) // 8 * 8:]:
        h = ((h ^ int.from_bytes(rest, "little")) * m) & mask
    h = (h ^ h >> 47) * m & mask
    return h ^ h >> 47


def key_of(ids: list[int]) -> int:
    key = ids[-1]
    for number in reversed(ids[:-1]):
        key = (key * 8978948897894561157 ^ (1 + number) * 17894857484156487943) % 2**64
    return key


def probing(model: dict, multiplier: float = 1.5) -> bytes:
    """As `build_binary` writes it. Of models without gaps."""
    words = ["<unk>", *(ngram[0] for ngram in model if len(ngram) == 1 and ngram[0] != "<unk>")]
    ids = {word: number for number, word in enumerate(words)}
    longest = max(map(len, model))
    counts = [sum(len(ngram) == n for ngram in model) for n in range(1, longest + 1)]
    head = b"mmap lm http://kheafield.com/code format version 5\n\0".ljust(56, b"\0")
    head += struct.pack("<fffIIIQ", 0, 1, -0.5, 1, 2**32 - 1, 0, 1)
    head += struct.pack(f"<B3xfi?3xI{longest}Q", longest, multiplier, 0, True, 0, *counts)
    head += b"\0" * (-len(head) % 8)

    def table(rows: dict[int, bytes], count: int) -> bytes:
        buckets = max(count + 1, int(multiplier * count))
        size = len(next(iter(rows.values()))) + 8
        found = [b"\0" * size] * buckets
        for key, value in rows.items():
            at = key % buckets
            while any(found[at][:8]):
                at = (at + 1) % buckets
            found[at] = struct.pack("<Q", key) + value
        return b"".join(found)

    body = struct.pack("<II", 0, len(words))
    body += table({murmur(word.encode()): struct.pack("<I", ids[word]) for word in words[1:]}, counts[0])
    ends = {ngram[1:] for ngram in model}

    def pair(ngram: tuple[str, ...]) -> bytes:
        """A probability is positive where a longer n-gram ends so."""
        probability, backoff = model[ngram]
        return struct.pack("<ff", math.copysign(probability, 1 if ngram in ends else -1), backoff)

    body += b"".join(pair((word,)) for word in words) + b"\0" * 8
    for n in range(2, longest + 1):
        body += table({key_of([ids[word] for word in ngram]): pair(ngram)[:8 if n < longest else 4]
                       for ngram in model if len(ngram) == n}, counts[n - 1])
    return head + body + b"".join(word.encode() + b"\0" for word in words)

# Files of KenLM 0.3.0 (`build_binary -s [-q 5 -b 3] [-a 22] trie`) of TOY, and of random_model(3, 5, gaps=True), behind the mark.
TRIES = {
    "toy, trie": (
        'c-muT0D%McOhA$mirE+-07f%2AOI_rE~r!7YuQ%HV7sh8!)Ve~#;c*X&-;DSO5w`+{;{_BLALgyr&4Rwt(U;`&6+uLKagrbGKyig!mND=Uc>&gXU^<}@y?#{'
        '0jh7<#|Y)8rKN%OGeP;r#>PPPKKoc0PyrhQc5wO3nIE=X*S`k=&4@QP4$cQU=qt$ZU1@2{<bm{q%(S#`K>Wkb*myHg#pL%etvoQs)iY<lES)*?<o2|*XL87f'
        '+mz;I+cDS_+c9L7<`xt)q~%vI*ysbfB^jv<0F(Ys_y'
    ),
    "toy, quantised": (
        'c-muT0D%Mc%s`S6irE+-07f%2AOI_rE~r!7YuQ%HV7sh8!)Ve~#;c*X&-;DSO5w`+{;{_BLALgyr&4Rwt(U;`F|oo-Y50$h)6&xRqvNw@d@%5=nUYvB&`=C~'
        '_RN`m=-AkJ^FELRVD12#xeurxjQbCL-3#RJ#pXV2c-G9B`-sILdx*nl_5#)KN4OCJW-H9vhu}4U{I(ay1BDAvY#$?(4+=YwA|@!`*w`2pcKcWuPyrhQcJO)e'
        'dd~ZfvahxqA(Vu!{0*14Db35aW3VZ<W5_DaEhuJ4%dcRt(Fbx%GEx};kJHY+'
    ),
    "toy, arrays": (
        'c-muT0D%McEI^VGirE+-07f%2AOI_rE~r!7YuQ%HV7sh8!)Ve~#;c*X&-;DSO5w`+{;{_BLALgyr&4Rwt(U;`&6+uLKagrbGKyig!mND=Uc>&gXU^<}@y?#{'
        '0jh7<#|Y)8rKN%OGeP;r#>PPPKKoc0PyrhQ4j_hA^zxZAKWw?Ke-8p09dB$LoDX#8SCE~%($bd61L+5uX=&ep_=lab@n)ck$?suWd0>pIXU=?CI&<d9?P+Px'
        '<d6-wDb35aW3VZ<W5_DaEhuJ4%dcRt(Fbx%GEx};K8jBe'
    ),
    "toy, quantised with arrays": (
        'c-muT0D%MctU!_xirE+-07f%2AOI_rE~r!7YuQ%HV7sh8!)Ve~#;c*X&-;DSO5w`+{;{_BLALgyr&4Rwt(U;`F|oo-Y50$h)6&xRqvNw@d@%5=nUYvB&`=C~'
        '_RN`m=-AkJ^FELRVD12#xeurxjQbCL-3#RJ#pXV2c-G9B`-sILdx*nl_5#)KN4OCJW-H9vhu}4U{I(ay1BDAvY#$?(4+=YwA|@!`*w`2pcKcWuPyrhQ4j_hA'
        '^z-8NocA4NUu`!+=nP%?8!m5CnwM?IU{h?zkX4#nP|T2)U%_Cb59F3)q%r^i!J*F9'
    ),
    "pruned, arrays": (
        'c-muO0D%McEI^VGirE<;KmbbfLTNSz1c0#%>J;}{wv{rRvpH_8WpvPrE9d*i+TsV<NfMW=IZ|75KNbf3ye;)?qo<OYNAgmIyD<HhTP*f(4B*}m<1e}2x8HE4'
        ')P5!?e?_?0-n6tZI6w5@hy8a|+V-+S`ApjO2Q*KA*vARww~Kl14}X)tj~i~j!hy}NKJVjWKm`H}IDi;d(HfCFMy*3`f0`z*G^&TF``s-Mq!L6_G%kSxN@LkI'
        'lOLc^<9p%3){t^0cfUxqlTbo;&i(w0ZR(6ORyIA2ZvAb=0P;vwfAE|JAl;Czb45=9WLi_P+gFe&6H47g{(wwb^^n^cY|(7d9tMRs2Rie^XRczYV95V|8|Eex'
        '0&Z5_S@V1AiL!5pbiRq(1NjaNP^ZpVaBT^Lso=Ld*S^xP@jL&tug^I=nE@2@Qy%W)13T<<VV5u{h$gHxJ^Mp6(fRkZW_=zzA(8d>4@m}o02y*)$1Se^Dc1k%'
        '?z&`tjt^3ISkDNx*8t{#qd{W7CjR7q8{Xh?JbtVBiTd8Yls|zjy-Xa)&a^4b%eG^%DYj!MH$1$O!A2j*dfq(&f+`rwjevsXCO`rJcHplS'
    ),
}
MARK = b"mmap lm http://kheafield.com/code format version 5\n\0".ljust(56, b"\0") + struct.pack("<fffIIIQ", 0, 1, -0.5, 1, 2**32 - 1, 0, 1)


def trie(name: str) -> bytes:
    return MARK + zlib.decompress(base64.b85decode(TRIES[name]))
