"""Compressed streams: gzip, zstandard, bzip2 and xz behind one reader and one writer.

The codecs are libraries (isal, zstandard, bz2, lzma); the loop over their members is ours. The libraries' own
readers pass over garbage behind the last member, or end without a word in the middle of one, and cannot tell
damage from an error of the disk.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO

from curator.api.errors import InputError
from curator.io.files.local import Output

SUFFIXES = {".gz": "gz", ".gzip": "gz", ".bgz": "gz", ".zst": "zst", ".zstd": "zst", ".bz2": "bz2",
            ".xz": "xz"}
CHUNK_BYTES = 1 << 18  # compressed bytes read at once
# compressed bytes decoded at once: bounds what a bomb gives, and what is lost with a damaged step
STEP_BYTES = 1 << 13


class DamagedStream(InputError):
    """A compressed file that ends too early or is broken. `position`: decompressed bytes that could be
    read."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position

    def __reduce__(self):
        return DamagedStream, (self.args[0], self.position)


def codec_of(name: str) -> str | None:
    """The codec that a file name's ending tells (`gz`, `zst`, `bz2`, `xz`), None for an uncompressed file."""
    lowered = name.lower().partition("?")[0] if "://" in name else name.lower()
    return next((codec for suffix, codec in SUFFIXES.items() if lowered.endswith(suffix)), None)


def without_codec(name: str) -> str:
    """The file name without the ending of its compression: `a.jsonl.gz` -> `a.jsonl`."""
    suffix = next((s for s in SUFFIXES if name.lower().endswith(s)), "")
    return name[:len(name) - len(suffix)]


def resolve_codec(name: str, compression: str | None) -> str | None:
    """The codec to use for a file; `compression` is "infer", None or one of `gz`, `zst`, `bz2`, `xz`.

    Raises:
        InputError: an unknown compression.
    """
    if compression == "infer":
        return codec_of(name)
    if compression in (None, "none"):
        return None
    if compression not in SUFFIXES.values():
        raise InputError(f"unknown compression {compression!r}: take infer, none, gz, zst, bz2 or xz")
    return compression


def decompressed(raw: BinaryIO, codec: str | None, name: str = "the compressed stream") -> BinaryIO:
    """`raw` read through a codec, forwards only. All that stands before a damage can be read with `read1`.

    Several members or frames one after the other are read as one stream. Raises DamagedStream in `read`.
    """
    return raw if codec is None else io.BufferedReader(_Decompressed(raw, codec, name), CHUNK_BYTES)


def compressed(output: Output, codec: str | None) -> Output:
    """An output written through a codec: None, `gz` or `zst`."""
    if codec is None:
        return output
    if codec not in _ENCODERS:
        output.abort()
        raise InputError(f"cannot write {codec}: take gz, zst or none")
    return _Compressed(output, _ENCODERS[codec]())


class _Decompressed(io.RawIOBase):
    """The members of a compressed file, one after another."""

    def __init__(self, raw: BinaryIO, codec: str, name: str) -> None:
        self._raw, self._codec, self._name = raw, codec, name
        self._chunk, self._at = memoryview(b""), 0
        self._member: Any = None  # the decoder of the member that is open
        self._members = 0  # begun so far
        self._piece = memoryview(b"")  # decompressed and not asked for yet
        self._position = 0
        self._damage: DamagedStream | None = None  # raised again by each further read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._piece:
            if self._damage is not None:
                raise self._damage
            if self._at == len(self._chunk) and not self._read_chunk():
                return 0
            self._decode()
        count = min(len(buffer), len(self._piece))
        buffer[:count], self._piece = self._piece[:count], self._piece[count:]
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()

    def _read_chunk(self) -> bool:
        """False at the end of the file."""
        self._chunk, self._at = memoryview(self._raw.read(CHUNK_BYTES)), 0
        if not self._chunk and self._member is not None:
            self._fail(EOFError("it ends in the middle of the compressed content"))
        return bool(self._chunk)

    def _decode(self) -> None:
        """The next step of the open member, or of the next one."""
        step = self._chunk[self._at:self._at + STEP_BYTES]
        self._at += len(step)
        if self._member is None:
            # padding, as gzip(1) and xz(1) have it
            if self._members and self._codec in ("gz", "xz") and not any(step):
                return
            self._member = _DECODERS[self._codec]()
            self._members += 1
        try:
            self._piece = memoryview(self._member.decompress(step))
        except Exception as error:  # each library has its own kind of exception for damaged data
            self._fail(error)
        if self._member.eof:
            self._at -= len(self._member.unused_data)
            self._member = None

    def _fail(self, error: Exception) -> None:
        self._damage = DamagedStream(f"{self._name} is damaged after {self._position} decompressed bytes: "
                                     f"{str(error) or type(error).__name__}", self._position)
        raise self._damage from error


class _Compressed(Output):
    """An output whose content is compressed on the way. `tell` counts compressed bytes."""

    def __init__(self, output: Output, encoder: Any) -> None:
        super().__init__(output.uri)
        self._output, self._encoder = output, encoder

    def tell(self) -> int:
        return self._output.tell()

    def _write(self, data) -> None:
        self._output.write(self._encoder.compress(data))

    def _commit(self) -> None:
        self._output.write(self._encoder.flush())
        self._output.close()

    def _discard(self) -> None:
        self._output.abort()


# The libraries are imported when they are needed: most runs need none of them. A decoder is for one member.
_DECODERS: dict[str, Callable[[], Any]] = {
    "gz": lambda: import_module("isal.isal_zlib").decompressobj(wbits=31),
    "zst": lambda: import_module("zstandard").ZstdDecompressor().decompressobj(),
    "bz2": lambda: import_module("bz2").BZ2Decompressor(),
    "xz": lambda: import_module("lzma").LZMADecompressor(),
}
_ENCODERS: dict[str, Callable[[], Any]] = {
    "gz": lambda: import_module("isal.isal_zlib").compressobj(level=2, wbits=31),
    "zst": lambda: import_module("zstandard").ZstdCompressor(level=1).compressobj(),
}
