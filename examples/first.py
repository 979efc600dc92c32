"""Install each distribution from its wheel into an environment of its own, and run the first example of its README.

    python examples/first.py dist/ [DISTRIBUTION…]

The environment has what the README's `pip install` brings and nothing else. Where the example reads something, a small one of it is
made. Ends with an error if an example does not run, or writes no record.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READMES = {"curator-core": ROOT / "curator", **{f"curator-{path.name}": path for path in sorted((ROOT / "packs").iterdir())}}

# What the examples read, made by Python alone or by what the distribution brings.
INPUTS = """
import gzip, os, wave
from pathlib import Path
from pydoc_data.topics import topics

wanted = {wanted!r}
parts = dict.fromkeys(" ".join(part.split()) for text in topics.values() for part in text.split("\\n\\n"))
plain = [part for part in parts if len(part) > 150 and sum(word.isalpha() for word in part.split()) > 0.8 * len(part.split())]
prose = ["\\n\\n".join(plain[n:n + 8]) for n in range(0, 160, 8)]  # documents of paragraphs that are no tables and no code
for folder in wanted:
    os.makedirs(folder)
if "docs" in wanted:
    for n, text in enumerate(prose):
        Path(f"docs/{{n}}.txt").write_text(text)
if "crawl" in wanted:
    with open("crawl/pages.warc.gz", "wb") as file:
        for n, text in enumerate(prose):
            page = f"<html><body><main>{{''.join(f'<p>{{part}}</p>' for part in text.split(chr(10) * 2))}}</main></body></html>"
            http = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/html\\r\\n\\r\\n" + page.encode()
            head = {{"WARC-Type": "response", "WARC-Target-URI": f"https://a.example/{{n}}", "WARC-Date": "2026-01-01T00:00:00Z",
                    "Content-Type": "application/http; msgtype=response", "Content-Length": len(http)}}
            head = "WARC/1.0\\r\\n" + "".join(f"{{key}}: {{value}}\\r\\n" for key, value in head.items()) + "\\r\\n"
            file.write(gzip.compress(head.encode() + http + b"\\r\\n\\r\\n"))
if "photos" in wanted:
    import numpy as np
    from PIL import Image
    for n in range(5):
        Image.fromarray(np.random.default_rng(n).integers(0, 255, (300, 400, 3), np.uint8)).save(f"photos/{{n}}.png")
if "sounds" in wanted:
    import numpy as np
    for n in range(3):
        with wave.open(f"sounds/{{n}}.wav", "wb") as file:
            file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
            file.writeframes((np.random.default_rng(n).standard_normal(32000) * 3000).astype("<i2").tobytes())
if "films" in wanted:
    import av
    import numpy as np
    with av.open("films/one.mp4", "w") as file:
        stream = file.add_stream("libx264", rate=24)
        stream.width, stream.height, stream.pix_fmt = 640, 360, "yuv420p"
        ground = np.random.default_rng(0).random((12, 20, 3)).repeat(60, 0).repeat(60, 1)
        ground = (ground * 200 + np.random.default_rng(1).random(ground.shape) * 40).astype(np.uint8)
        for n in range(96):
            picture = np.ascontiguousarray(ground[2 * n:2 * n + 360, 4 * n:4 * n + 640])
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
"""


def example(distribution: str) -> tuple[list[str], str, str]:
    """What the README of a distribution installs, and its first example: `python` or `shell`, and the text."""
    text = (READMES[distribution] / "README.md").read_text(encoding="utf-8")
    install = re.search(r"pip install ([\w -]+)", text)
    for kind, block in re.findall(r"(?ms)^```(\w*)\n(.*?)^```", text):
        if kind == "python":
            return install[1].split(), kind, block
        lines = [line.partition("   #")[0].strip() for line in block.splitlines() if line.startswith("curator ")]
        if lines:
            return install[1].split(), "shell", lines[0]
    raise SystemExit(f"the README of {distribution} has no example")


def try_it(distribution: str, wheels: Path, folder: Path) -> str:
    """Install, run, and say what came out."""
    names, kind, text = example(distribution)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python, out = folder / "venv" / "bin" / "python", folder / "out"
    files = [str(next(wheels.glob(f"{name.replace('-', '_')}-*.whl"))) for name in names]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--find-links", wheels,
                    "-c", ROOT / "constraints.txt", *files], check=True)
    wanted = [name for name in ("docs", "crawl", "photos", "sounds", "films") if f"{name}/" in text]
    subprocess.run([python, "-c", INPUTS.format(wanted=wanted)], cwd=folder, check=True)
    if kind == "python":
        said = subprocess.run([python, "-c", text], cwd=folder, check=True, capture_output=True, text=True).stdout
        return f"{len(said.splitlines())} lines"
    command = text.replace("curator ", f"{folder}/venv/bin/curator ", 1) + " --quiet"
    subprocess.run(command, shell=True, cwd=folder, check=True)
    records = json.loads((out / "_run" / "stats.json").read_text(encoding="utf-8"))["records"]
    if not records["written"]:
        raise SystemExit(f"{distribution}: {text} wrote no record: {records}")
    return f"{records['written']} of {records['in']} records written"


def main() -> None:
    wheels = Path(sys.argv[1]).resolve()
    for distribution in sys.argv[2:] or READMES:
        began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="curator-first-"))
        try:
            print(f"{distribution}: {try_it(distribution, wheels, folder)}, {time.monotonic() - began:.0f} s", flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
