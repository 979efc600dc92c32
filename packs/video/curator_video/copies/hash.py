"""Perceptual hashes of clips, to find copies by."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import VideoBatch

HASHES_MOST = 128  # more than a minute at two a second; dedup.near takes up to 204 at a distance of 4 with a share


@dataclass(kw_only=True)
class Hash(Stage):
    """Hash what a clip shows, so that `dedup.near` finds its copies: other resolution, bit rate, bars, start, a clip inside another.

    Adds `phash` (list of binary, 8 bytes each, in the order of time): of a frame each `every_s` seconds which of the 8 x 8
    lowest frequencies are above their median. Black bars are cut off; frames with too little structure (black, blank, an
    even gradient) have no hash; one that is like the last kept one is left out, and of what is left `most` are taken, evenly
    spread. And `phash_times` (list of double): their seconds in the source. Both null where there are no frames, or none has a
    hash.

    `every_s`: seconds between frames that are hashed; frames that are farther apart are all hashed. `collapse`: hashes that differ
    from the last kept one by so many bits and less are left out; -1 keeps all. `most`: hashes a clip.

    Then `dedup.near: {column: phash, distance: 4, hashes: 128, share: 0.7, within: 10}`, with the `most` of this stage: two clips
    are copies if two of their frames are within 4 bits, and of the shorter clip's frames 70 % within 10. So a clip inside another is
    one, and clips that share a title or an intro are none, unless it is most of what the shorter one shows. A clip in which nothing
    moves has one hash: it is a copy of what shows the same picture. Frames of different films of the samples tried have 12 bits and
    more between them. Missed are some copies with a mark over them, or of clips in which every frame is new, when cut at other places.

    Source: Zauner 2010, Implementation and Benchmarking of Perceptual Image Hash Functions (DCT based hash); bits as
    `imagehash.phash` orders them.
    """

    every_s: float = 0.5
    collapse: int = 6
    most: int = HASHES_MOST

    def __post_init__(self) -> None:
        if not self.every_s > 0:
            raise ValueError(f"every_s is more than 0 seconds, got {self.every_s}")
        if not -1 <= self.collapse <= 32:
            raise ValueError(f"collapse is from -1, which keeps all, to 32 bits of 64, got {self.collapse}")
        if self.most < 1:
            raise ValueError(f"most is 1 or more hashes a clip, got {self.most}; the usual is {HASHES_MOST}")

    def contract(self) -> Contract:
        return Contract(needs={"frames", "timestamps"},
                        adds={"phash": pa.list_(pa.binary()), "phash_times": pa.list_(pa.float64())})

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_video.copies.frame_hashes import clip_hashes

        cv2.setNumThreads(1)
        self._hashes = clip_hashes

    def process(self, batch: VideoBatch) -> VideoBatch:
        none = [None] * len(batch)
        hashes: list[list[bytes] | None] = []
        times: list[list[float] | None] = []
        for frames, stamps in zip(batch.frames or none, batch.timestamps or none, strict=True):
            found = [] if frames is None or stamps is None else self._hashes(frames, stamps, self.every_s, self.collapse, self.most)
            hashes.append([one for _, one in found] or None)
            times.append([time for time, _ in found] or None)
        adds = self.contract().adds
        return batch.with_columns({"phash": pa.array(hashes, adds["phash"]), "phash_times": pa.array(times, adds["phash_times"])})
