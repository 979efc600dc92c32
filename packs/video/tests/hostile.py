"""Files that are no films, or broken ones, or that lie; each with what becomes of it."""

from __future__ import annotations

import io
import struct
import zlib
from itertools import chain

import numpy as np

from packs.video.tests.films import film, moving, numbered, sound_only, texture

X264 = {"crf": "14", "preset": "ultrafast", "g": "25"}
FAST = {"container_options": {"movflags": "faststart"}}


def two_shots(seed: int, **options) -> bytes:
    """2.4 s, and 2.4 s of another picture."""
    shots = (moving(seed, 2.4, 256, 256), moving(seed + 1, 2.4, 256, 256))
    return film(chain(*shots), 25, **{"options": X264, **options})


def halved(data: bytes) -> bytes:
    return data[:len(data) * 8 // 10]


def flipped(data: bytes, count: int, start: int) -> bytes:
    made = bytearray(data)
    for at in np.random.default_rng(0).integers(start, len(data), count):
        made[at] ^= 0xFF
    return bytes(made)


def lying_length(data: bytes) -> bytes:
    """An mp4 that says that it lasts for days."""
    made = bytearray(data)
    for box, behind in ((b"mvhd", 20), (b"tkhd", 24), (b"mdhd", 20)):
        at = data.index(box) + behind
        made[at:at + 4] = (2**31 - 1).to_bytes(4, "big")
    return bytes(made)


def lying_size(data: bytes) -> bytes:
    """An mp4 whose header says 16384 x 16384; its pictures are as they were."""
    made = bytearray(data)
    at = data.index(b"avc1") + 28
    made[at:at + 4] = struct.pack(">HH", 16384, 16384)
    at = data.index(b"tkhd") + 80
    made[at:at + 8] = struct.pack(">II", 16384 << 16, 16384 << 16)
    return bytes(made)


def huge_pictures() -> bytes:
    """Pictures that say that they are 16384 x 16384, in a container that says 320 x 240."""
    made = bytearray(film([texture(5)] * 3, 25, codec="mjpeg", container="matroska", pix_fmt="yuvj420p", options={"q:v": "20"}))
    at = -1
    while (at := bytes(made).find(b"\xff\xc0\x00\x11\x08", at + 1)) > 0:
        made[at + 5:at + 9] = struct.pack(">HH", 16384, 16384)
    return bytes(made)


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def jpeg() -> bytes:
    import cv2

    return cv2.imencode(".jpg", texture(3))[1].tobytes()


def no_films() -> dict[str, tuple[bytes, str]]:
    """Files, and how the error of each begins."""
    whole = film(numbered(50), 25, options=X264, **FAST)
    plain = film(numbered(50), 25, options=X264)
    flags = io.BytesIO(b"#EXTM3U\n#EXT-X-VERSION:3\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n")
    return {
        "empty.mp4": (b"", "empty"), "byte.mp4": (b"x", "not_media"), "text.mp4": (b"no film at all\n" * 100, "not_media"),
        "page.mp4": (b"<html><body>404</body></html>" * 50, "not_media"), "zeros.mp4": (bytes(100_000), "not_media"),
        "random.mkv": (np.random.default_rng(0).bytes(100_000), "not_media"), "playlist.ts": (flags.read(), "not_media"),
        "picture.mp4": (jpeg(), "not_media"), "bomb.gif": (png(60_000, 60_000), "not_media"),
        "no_moov.mp4": (plain[:plain.index(b"moov") - 4], "not_media"), "cut_in_moov.mp4": (whole[:900], "no"),
        "header.mp4": (whole[:whole.index(b"mdat") + 4] + bytes(2000), "no_frames"), "huge.mkv": (huge_pictures(), "no_frames"),
        "sound.avi": (sound_only(), "no_video"), "sound.mp4": (sound_only("mp4", "aac"), "no_video"),
        "cover.mp4": (sound_only("mp4", "aac", picture=texture(1, 64, 64)), "no_video"),
    }


def bad_films() -> dict[str, bytes]:
    """Films of two shots, of 2.4 s each, that are broken or lie, by what they are."""
    ts, mkv, mp4 = two_shots(1, container="mpegts"), two_shots(3, container="matroska"), two_shots(5)
    zeroed = two_shots(9)
    return {
        "half.mp4": halved(two_shots(7, **FAST)), "half.mkv": halved(mkv), "half.ts": halved(two_shots(19, container="mpegts")),
        "back.ts": ts + ts, "wrong.mp4": two_shots(11, container="matroska"), "lying_length.mp4": lying_length(two_shots(13)),
        "lying_size.mp4": lying_size(two_shots(15)), "flipped.mp4": flipped(mp4, 40, len(mp4) * 4 // 5),
        "zeroed.mp4": zeroed[:len(zeroed) // 5] + bytes(3000) + zeroed[len(zeroed) // 5 + 3000:],
    }
