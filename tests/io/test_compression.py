from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random

import pyarrow as pa
import pytest

from curator.io.files.compression import DamagedStream, codec_of, decompressed, without_codec

LINES = b"".join(b'{"n": %d}\n' % n for n in random.Random(0).choices(range(10**9), k=40_000))
PACKED = {"gz": gzip.compress(LINES, 1), "bz2": bz2.compress(LINES, 1), "xz": lzma.compress(LINES, preset=0),
          "zst": pa.compress(LINES, "zstd", asbytes=True)}


def read(data: bytes, codec: str) -> tuple[bytes, DamagedStream | None]:
    file, found = decompressed(io.BytesIO(data), codec, "name"), b""
    try:
        while piece := file.read1(1 << 16):
            found += piece
    except DamagedStream as error:
        return found, error
    return found, None


@pytest.mark.parametrize("codec", PACKED)
def test_whole_files_and_several_members(codec):
    assert read(PACKED[codec], codec) == (LINES, None)
    assert read(PACKED[codec] * 2, codec) == (LINES * 2, None)
    assert read(b"", codec) == (b"", None)


@pytest.mark.parametrize("codec", PACKED)
def test_what_stands_before_the_end_of_a_truncated_file_is_read(codec):
    found, error = read(PACKED[codec][:len(PACKED[codec]) // 2], codec)
    assert error is not None
    assert "name is damaged after" in str(error)
    assert LINES.startswith(found)
    assert len(found) > len(LINES) * (0.3 if codec in ("bz2", "zst") else 0.45)  # these two come in blocks


@pytest.mark.parametrize("codec", ["gz", "zst", "xz"])
def test_what_stands_before_a_damage_is_read_but_for_little(codec):
    whole = PACKED[codec]
    broken = b"\xff" * 64  # neither is a block of any codec
    found, error = read(whole * 3 + broken + whole, codec)
    assert found == LINES * 3
    assert error.position == len(LINES) * 3
    at = len(whole) // 2
    found, error = read(whole[:at] + broken + whole[at + len(broken):], codec)
    assert error is not None
    assert len(found) > len(LINES) * 0.3


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_what_is_compressed_a_thousand_times_comes_in_pieces(codec):
    zeros = bytes(16 << 20)
    packed = gzip.compress(zeros, 1) if codec == "gz" else pa.compress(zeros, "zstd", asbytes=True)
    file, pieces = decompressed(io.BytesIO(packed * 4), codec), []
    while piece := file.read1(1 << 20):
        pieces.append(len(piece))
    assert sum(pieces) == 4 * len(zeros)
    assert max(pieces) <= 1 << 20


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_after_the_end_is_told_after_all_content(codec):
    found, error = read(PACKED[codec] + b"garbage", codec)
    assert found == LINES
    assert error is not None


@pytest.mark.parametrize("codec", PACKED)
def test_a_file_that_is_not_compressed_is_damaged_from_the_start(codec):
    found, error = read(b"hello, this is text\n", codec)
    assert found == b""
    assert error.position == 0


def test_zeros_after_a_gzip_member_are_padding():
    assert read(PACKED["gz"] + b"\0" * 512, "gz") == (LINES, None)


def test_damage_is_told_by_each_further_read():
    file = decompressed(io.BytesIO(PACKED["gz"][:1000]), "gz")
    for _ in range(3):
        with pytest.raises(DamagedStream):
            file.read()


@pytest.mark.parametrize("codec", PACKED)
def test_an_error_of_the_disk_is_no_damage(codec):
    class Broken(io.RawIOBase):
        def read(self, size=-1):
            raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        decompressed(Broken(), codec).read1(10)


def test_endings():
    assert [codec_of(n) for n in ("a.gz", "A.JSONL.ZST", "a.bz2", "a.xz", "a.txt", "gz")] == \
        ["gz", "zst", "bz2", "xz", None, None]
    assert codec_of("https://host/a.gz?token=x.txt") == "gz"
    assert without_codec("a.tsv.gz") == "a.tsv"
    assert without_codec("a.tsv") == "a.tsv"
