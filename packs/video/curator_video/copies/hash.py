"""Perceptual hashes of clips, to find copies by."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import VideoBatch

HASHES_MOST = 128  # 5 to 20 s of what moves fast, minutes of what does not; dedup.near takes up to 136 at a distance of 4 with a share


@dataclass(kw_only=True)
class Hash(Stage):
    """Hash what a clip shows, so that `dedup.near` finds its copies: other resolution, bit rate, bars, start, a logo or subtitle over it,
    a clip inside another.

    Adds `phash` (list of binary, 8 bytes each, in the order of time): of a picture which of the 8 x 8 lowest frequencies of its middle
    are above their median. Black bars are cut off, and 15 % on each side are not looked at, where logos and subtitles lie. Every
    picture is hashed, and kept where it differs from the last kept one by more than `collapse` bits: so copies that begin at other
    moments keep pictures that are alike, however fast things move. Pictures whose middle has too little structure (black, blank, an even
    gradient) have no hash. Where that is more than `most`, only pictures an eighth of a second apart are asked, or a quarter, half a
    second and so on. And `phash_times` (list of double): their seconds in the source. Both null where there are no pictures, or none has
    a hash. Needs `thumbs` and `thumb_times`, as `video.decode` makes them.

    `collapse`: hashes that differ from the last kept one by so many bits and less are left out; -1 keeps all. `most`: hashes a clip.

    Then `dedup.near: {column: phash, distance: 4, hashes: 128, share: 0.75, within: 10}`, with the `most` of this stage: two clips
    are copies if two of their hashes are within 4 bits, and of the shorter clip's hashes 75 % within 10. So a clip inside another is
    one, and clips that share a title or an intro are none, unless most of what changes in the shorter one is in it: three seconds that
    move fast have more hashes than ten that hardly move. A clip in which nothing moves has one hash: it is a copy of what shows the same
    picture; so may be parts of one shot in which little moves, and people who talk before the same background. Pictures of different
    films of the samples tried have 12 bits and more between them. Missed are mirrored copies, those of a film with bars where a title
    covers them, and parts of a clip with more hashes than `most`, or copies of it that begin at another moment.

    Source: Zauner 2010, Implementation and Benchmarking of Perceptual Image Hash Functions (DCT based hash); the order of bits is that
    of `imagehash.phash`. That the middle is hashed, and which pictures are kept, is our own.
    """

    collapse: int = 8
    most: int = HASHES_MOST

    version = 5

    def __post_init__(self) -> None:
        if not -1 <= self.collapse <= 32:
            raise ValueError(f"collapse is from -1, which keeps all, to 32 bits of 64, got {self.collapse}")
        if self.most < 1:
            raise ValueError(f"most is 1 or more hashes a clip, got {self.most}; the usual is {HASHES_MOST}")

    def contract(self) -> Contract:
        return Contract(needs={"thumbs", "thumb_times"},
                        adds={"phash": pa.list_(pa.binary()), "phash_times": pa.list_(pa.float64())})

    def setup(self, ctx: Context) -> None:
        from curator_video.copies.frame_hashes import clip_hashes

        self._hashes = clip_hashes

    def process(self, batch: VideoBatch) -> VideoBatch:
        none = [None] * len(batch)
        hashes: list[list[bytes] | None] = []
        times: list[list[float] | None] = []
        for thumbs, stamps in zip(batch.thumbs or none, batch.thumb_times or none, strict=True):
            found = [] if thumbs is None or stamps is None else self._hashes(thumbs, stamps, self.collapse, self.most)
            hashes.append([one for _, one in found] or None)
            times.append([time for time, _ in found] or None)
        adds = self.contract().adds
        return batch.with_columns({"phash": pa.array(hashes, adds["phash"]), "phash_times": pa.array(times, adds["phash_times"])})
