"""Small runs for the tests of the page."""

from __future__ import annotations

import io
import math
import struct
import wave
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from curator import load
from curator.results import RunOutput

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>document.title='owned'</script></svg>"
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def png(width=24, height=16, colour=(45, 148, 103)):
    rows = (b"\0" + bytes(colour) * width) * height

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def wav(seconds=1.0, rate=8000):
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(b"".join(struct.pack("<h", int(9000 * math.sin(i / 9) * math.sin(i / 900)))
                                   for i in range(int(seconds * rate))))
    return file.getvalue()


def texts(n=40):
    """Records 0 to n - 1, whose column n is their number."""
    rows = [{"id": f"r{i:03}", "source": f"src/{'ab'[i % 2]}.jsonl", "text": f"Record number {i}. # tag {'word ' * i}", "n": i,
             "ratio": i / n, "language": "en" if i % 3 else "de", "select": i % 5} for i in range(n)]
    rows[20]["text"] = HOSTILE
    rows[21]["id"] = "a/../b\n<b>"
    rows[22]["text"] = rows[23]["text"] = "The same text twice."
    return rows


STEPS = """
- drop: {few: n < 10, late: "ratio > 0.8 AND language = 'en'"}
- dedup.exact
- drop: {fours: '"select" = 4'}
  with: {name: odd}"""


def made(folder, rows=None, steps=STEPS, written="parquet"):
    """A run's output."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(texts() if rows is None else rows), folder / "in.parquet", row_group_size=16)
    load(f"read: {{parquet: {{path: {folder}/in.parquet}}}}\nsteps: {steps}\nwrite: {written}\nout: {folder}/out\nname: looked\n"
         "max_failed: 1000").run(workers=0)
    return RunOutput.open(str(folder / "out"))
