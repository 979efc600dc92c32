"""Compressed streams: gzip, zstandard, bzip2 and xz behind one reader and one writer."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import BinaryIO

from curator.api.errors import InputError

SUFFIXES = {".gz": "gz", ".gzip": "gz", ".bgz": "gz", ".zst": "zst", ".zstd": "zst", ".bz2": "bz2", ".xz": "xz"}
CHUNK_BYTES = 1 << 18  # compressed bytes a step; the output that a damaged step loses is in proportion


class DamagedStream(InputError):
    """A compressed file that ends too early or is broken. `position`: decompressed bytes that could be read."""

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
    if compression is None or compression == "none":
        return None
    if compression not in set(SUFFIXES.values()):
        raise InputError(f"unknown compression {compression!r}: take infer, none, gz, zst, bz2 or xz")
    return compression


def decompressed(raw: BinaryIO, codec: str | None, name: str = "") -> BinaryIO:
    """`raw` read through a codec, forwards only. All that stands before a damage can be read with `read1`.

    Several members or frames one after the other are read as one stream. Raises DamagedStream in `read`.
    """
    if codec is None:
        return raw
    return io.BufferedReader(_Decompressed(raw, codec, name), CHUNK_BYTES)


class _Decompressed(io.RawIOBase):
    """The pieces of a decompressing iterator as a raw stream."""

    def __init__(self, raw: BinaryIO, codec: str, name: str) -> None:
        self._raw, self._name = raw, name
        self._pieces = _DECODERS[codec](_Guarded(raw))
        self._rest = memoryview(b"")
        self._position = 0
        self._damage: DamagedStream | None = None  # raised again by each further read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._rest:
            piece = self._next()
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._position += count
        return count

    def _next(self) -> bytes | None:
        if self._damage is not None:
            raise self._damage
        try:
            return next(self._pieces, None)
        except _SourceFailed as error:
            raise error.cause from None
        except Exception as error:  # each library has its own kind of exception for damaged data
            why = str(error) or type(error).__name__
            name = self._name or "the compressed stream"
            self._damage = DamagedStream(f"{name} is damaged after {self._position} decompressed bytes: {why}",
                                         self._position)
            raise self._damage from error

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _SourceFailed(Exception):
    """The file below could not be read: not a damage of its content."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Guarded:
    """The file below, whose own errors are told from errors of the decompression."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def read(self, size: int) -> bytes:
        try:
            return self._raw.read(size)
        except Exception as error:
            raise _SourceFailed(error) from error

    def rewind(self) -> bool:
        """Back to the beginning, False where the file cannot do that."""
        try:
            self._raw.seek(0)
        except (OSError, ValueError):
            return False
        return True


def _gz(raw: _Guarded) -> Iterator[bytes]:
    """The decompressed pieces of gzip members; zeros after a member are padding, as gzip(1) has it."""
    from isal import isal_zlib

    data = raw.read(CHUNK_BYTES)
    while data:
        member = isal_zlib.decompressobj(wbits=31)
        while not member.eof:
            if not data:
                raise EOFError("it ends in the middle of a gzip member")
            yield member.decompress(data)
            data = b"" if member.eof else raw.read(CHUNK_BYTES)
        data = member.unused_data
        while data is not None and not data.strip(b"\0"):
            data = raw.read(CHUNK_BYTES)
            if not data:
                return


def _zst(raw: _Guarded) -> Iterator[bytes]:
    stream, source = _zst_stream(raw)
    position = 0
    while True:
        try:
            piece = stream.read(_ZST_STEP)
        except Exception as error:
            if source.error is not None:
                raise source.error from None
            yield _before_damage(raw, position)
            raise error
        if not piece:
            return
        position += len(piece)
        yield piece


_ZST_STEP = 1 << 17


def _zst_stream(raw: _Guarded) -> tuple:
    import pyarrow as pa

    source = _Once(raw)
    return pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd"), source


def _before_damage(raw: _Guarded, position: int) -> bytes:
    """What stands between `position` and the damage: Arrow's failed read gave nothing of it, so byte by byte."""
    if not raw.rewind():
        return b""
    stream, _ = _zst_stream(raw)
    while position > 0:
        position -= len(stream.read(min(position, _ZST_STEP)))
    saved = bytearray()
    try:
        for _ in range(_ZST_STEP):
            saved += stream.read(1)
    except OSError:
        return bytes(saved)  # the damage, which the caller raises
    return bytes(saved)


class _Once(io.RawIOBase):
    """A guarded file as Arrow wants it. Arrow hides the kind of an error, so it is kept here."""

    def __init__(self, raw: _Guarded) -> None:
        self._guarded = raw
        self.error: BaseException | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            return self._guarded.read(size)
        except _SourceFailed as error:
            self.error = error
            raise


def _bz2(raw: _Guarded) -> Iterator[bytes]:
    import bz2

    return _members(raw, bz2.BZ2Decompressor)


def _xz(raw: _Guarded) -> Iterator[bytes]:
    import lzma

    return _members(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_AUTO))


def _members(raw: _Guarded, make: Callable) -> Iterator[bytes]:
    data = raw.read(CHUNK_BYTES)
    while data:
        member = make()
        while not member.eof:
            if not data:
                raise EOFError("it ends in the middle of a compressed stream")
            yield member.decompress(data)
            data = b"" if member.eof else raw.read(CHUNK_BYTES)
        data = member.unused_data or raw.read(CHUNK_BYTES)


_DECODERS: dict[str, Callable[[_Guarded], Iterator[bytes]]] = {"gz": _gz, "zst": _zst, "bz2": _bz2, "xz": _xz}


def compressed(output, codec: str | None):
    """`output` (see `curator.io.files.local.Output`) written through a codec: None, `gz` or `zst`."""
    if codec is None:
        return output
    if codec not in ("gz", "zst"):
        output.abort()
        raise InputError(f"cannot write {codec}: take gz, zst or none")
    return _Compressed(output, codec)


class _Compressed:
    """An output whose content is compressed on the way. Ends with `close` or `abort`, as the output does."""

    def __init__(self, output, codec: str) -> None:
        self.uri, self._output = output.uri, output
        self._encoder = _gz_encoder() if codec == "gz" else _ZstEncoder()

    @property
    def closed(self) -> bool:
        return self._output.closed

    def write(self, data) -> int:
        self._output.write(self._encoder.compress(data))
        return memoryview(data).nbytes

    def tell(self) -> int:
        """Compressed bytes so far."""
        return self._output.tell()

    def close(self) -> None:
        if self._output.closed:
            return
        try:
            self._output.write(self._encoder.flush())
        except BaseException:
            self._output.abort()
            raise
        self._output.close()

    def abort(self) -> None:
        self._output.abort()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close() if kind is None else self.abort()


def _gz_encoder():
    from isal import isal_zlib

    return isal_zlib.compressobj(level=2, wbits=31)


class _ZstEncoder:
    """zstd by Arrow's stream, which hands over what it compressed as it likes."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._done = bytearray()
        self._stream = pa.CompressedOutputStream(pa.PythonFile(_Sink(self._done), mode="w"), "zstd")

    def compress(self, data) -> bytes:
        self._stream.write(data)
        return self._take()

    def flush(self) -> bytes:
        self._stream.close()
        return self._take()

    def _take(self) -> bytes:
        done = bytes(self._done)
        self._done.clear()
        return done


class _Sink(io.RawIOBase):
    def __init__(self, into: bytearray) -> None:
        self._into = into

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._into += data
        return memoryview(data).nbytes
