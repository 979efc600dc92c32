"""Small sources, stages and sinks for tests of the engine. Workers import this module, as they would a pack's."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from curator import Contract, Outputs, Resources, Sink, Source, Stage, TextBatch, VideoBatch, stage
from curator.api.stage import Snapshot, SourceRange, Stateful, Unit, Writer, WrittenFile
from curator.front import Pipeline, from_source
from curator.machine.folders import MARKER


@dataclass(kw_only=True)
class Lines(Source):
    """The lines of the text files in a folder, a unit a file: real inputs that can change between runs."""

    path: str
    batch: int = 10
    delay_s: float = 0.0

    def units(self) -> list[Unit]:
        return [Unit((SourceRange(uri=str(p), size_bytes=p.stat().st_size, version=str(p.stat().st_mtime_ns)),))
                for p in sorted(Path(self.path).glob("*.txt"))]

    def contract(self) -> Contract:
        return Contract(adds={"text": pa.string()})

    def read(self, unit: Unit):
        uri = unit.parts[0].uri
        name = Path(uri).stem
        lines = Path(uri).read_text().splitlines()
        for start in range(0, len(lines), self.batch):
            some = lines[start:start + self.batch]
            time.sleep(self.delay_s)
            yield TextBatch(pa.table({"id": [f"{name}:{start + i}" for i in range(len(some))], "source": [uri] * len(some),
                                      "text": pa.array(some, pa.string())}))


@dataclass(kw_only=True)
class JsonFiles(Sink):
    """One JSON file a unit, with every visible column."""

    path: str | None = None
    storage_options: dict | None = None
    fail: str = ""

    def open(self, name: str) -> Writer:
        return JsonWriter(self.path, name, self.fail)


@dataclass(kw_only=True)
class DyingSink(JsonFiles):
    """Kills its worker the first three times that it finishes a unit, before its file is there or (`after`) after that."""

    marks: str
    after: bool = False

    def open(self, name: str) -> Writer:
        return DyingWriter(self.path, name, self.marks, self.after)


@dataclass(kw_only=True)
class WaitingSink(JsonFiles):
    """Finishes no unit with a row that says "wait" before the file `gate` is there."""

    gate: str

    def open(self, name: str) -> Writer:
        return WaitingWriter(self.path, name, self.gate)


class JsonWriter(Writer):
    def __init__(self, path: str, name: str, fail: str) -> None:
        self.path, self.rows, self.fail = Path(path, f"{name}.json"), [], fail

    def write(self, batch) -> None:
        if self.fail == "write":
            raise ValueError("this sink cannot write")
        self.rows += batch.visible().to_pylist()

    def close(self) -> list[WrittenFile]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".tmp-{self.path.name}")
        temporary.write_text(json.dumps(self.rows))
        temporary.rename(self.path)
        return [WrittenFile(str(self.path), len(self.rows), self.path.stat().st_size)]


class DyingWriter(JsonWriter):
    def __init__(self, path: str, name: str, marks: str, after: bool) -> None:
        super().__init__(path, name, "")
        self.mark, self.after = Path(marks, name.split("-")[1]), after

    def close(self) -> list[WrittenFile]:
        dies = not self.mark.exists() and len(list(self.mark.parent.iterdir())) < 3
        files = super().close() if self.after or not dies else []
        if dies:
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return files


class WaitingWriter(JsonWriter):
    def __init__(self, path: str, name: str, gate: str) -> None:
        super().__init__(path, name, "")
        self.gate = Path(gate)

    def close(self) -> list[WrittenFile]:
        while any("wait" in row["text"] for row in self.rows) and not self.gate.exists():
            time.sleep(0.01)
        return super().close()


@dataclass(kw_only=True)
class Shout(Stage):
    """Adds `loud`, the text in capitals."""

    suffix: str = ""

    def contract(self) -> Contract:
        return Contract(needs={"text"}, adds={"loud": pa.string()})

    def process(self, batch):
        return batch.with_columns({"loud": [t.upper() + self.suffix for t in batch.column("text")]})


@dataclass(kw_only=True)
class DropWord(Stage):
    """Drops records whose text holds a word."""

    word: str = "bad"

    def process(self, batch):
        bad = np.array([self.word in t for t in batch.column("text")], dtype=bool)
        return Outputs(out=batch.filter(~bad), dropped=batch.filter(bad).with_reason("bad_word"))


@dataclass(kw_only=True)
class Trouble(Stage):
    """Does what the text of a record tells it: raise, die, hang, stop, once (raise or kill the first time), sleep, or
    gate: make a file `waits` in `marks`, and wait there until there is one called `open`."""

    marks: str = ""  # a folder for what must be remembered over deaths
    limit_s: float | None = None

    def __post_init__(self) -> None:
        if self.limit_s is not None:
            self.timeout_s = self.limit_s

    def process(self, batch):
        for identity, text in zip(batch.column("id"), batch.column("text"), strict=True):
            if "raise" in text:
                raise ValueError(f"cannot stand {identity}")
            if "die" in text:
                os.kill(os.getpid(), signal.SIGKILL)
            if "hang" in text:
                time.sleep(3600)
            if "stop" in text:
                os.kill(os.getpid(), signal.SIGSTOP)  # not even its other threads go on
            if "once" in text and not Path(self.marks, identity).exists():
                Path(self.marks, identity).touch()
                os.kill(os.getpid(), signal.SIGKILL) if "kill" in text else _raise(identity)
            if "sleep" in text:
                time.sleep(0.02)
            if "gate" in text:
                Path(self.marks, "waits").touch()
            while "gate" in text and not Path(self.marks, "open").exists():
                time.sleep(0.01)
        return batch


def _raise(identity: str) -> None:
    raise OSError(f"a passing trouble with {identity}")


@dataclass(kw_only=True)
class Loses(Stage):
    """A broken stage: it forgets the last row."""

    def process(self, batch):
        return batch.slice(0, len(batch) - 1)


@dataclass(kw_only=True)
class Children(Stage):
    """Each record becomes two, streamed one batch at a time."""

    def process(self, batch):
        for i in range(len(batch)):
            yield batch.slice(i, i + 1).explode([2])


@dataclass(kw_only=True)
class FirstOfText(Stateful):
    """Of records with equal text the first one goes on."""

    def setup(self, ctx) -> None:
        self.kept: dict[str, tuple[str, int]] = {}
        self.rests: dict[int, set[int]] = {}

    def process(self, batch):
        of = []
        for identity, text, unit in zip(batch.column("id"), batch.column("text"), batch.column("_unit"), strict=True):
            kept, kept_unit = self.kept.setdefault(text, (identity, int(unit)))
            of.append(kept)
            if kept != identity:
                self.rests.setdefault(int(unit), set()).add(kept_unit)
        new = np.array([a == b for a, b in zip(of, batch.column("id"), strict=True)], dtype=bool)
        return Outputs(out=batch.filter(new), duplicate=batch.with_columns({"duplicate_of": of}).filter(~new))

    def snapshot(self, unit: int) -> Snapshot:
        mine = [(t, i) for t, (i, u) in self.kept.items() if u == unit]
        columns = {"text": pa.array([t for t, _ in mine], pa.string()), "id": pa.array([i for _, i in mine], pa.string())}
        return Snapshot(pa.table(columns), frozenset(self.rests.get(unit, ())))

    def restore(self, unit: int, memory: pa.Table) -> None:
        for row in memory.to_pylist():
            self.kept[row["text"]] = (row["id"], unit)


@dataclass(kw_only=True)
class NoSetup(Stage):
    """Cannot be set up."""

    def setup(self, ctx) -> None:
        raise RuntimeError("the model file is not there")


@dataclass(kw_only=True)
class Weights(Stage):
    """Puts something down once a node, slowly, and works only when `workers` processes have been set up behind it.

    `trouble`: "die" kills the first process in the middle of it, "raise" fails each time.
    """

    told: str
    workers: int
    trouble: str = ""

    def setup_node(self, ctx) -> None:
        busy = Path(self.told, "busy")
        first = not list(Path(self.told).glob("node-*"))
        Path(self.told, f"node-{os.getpid()}").touch()
        if self.trouble == "raise":
            raise RuntimeError("the weights are not there")
        if self.trouble == "die" and first:
            os.kill(os.getpid(), signal.SIGKILL)
        busy.touch(exist_ok=self.trouble == "two nodes")  # an error if two do it at once
        time.sleep(0.2)
        busy.unlink(missing_ok=True)

    def setup(self, ctx) -> None:
        Path(self.told, f"setup-{os.getpid()}-{len(list(Path(self.told).glob('node-*')))}").touch()

    def process(self, batch):
        until = time.monotonic() + 60
        while len(list(Path(self.told).glob("setup-*"))) < self.workers:
            assert time.monotonic() < until, "other workers do not come"
            time.sleep(0.01)
        return batch


@dataclass(kw_only=True)
class Frames(Stage):
    """Gives each record 1 MB of frames, and asks for the next stage in another worker."""

    resources = Resources(cpus=0.5)

    def contract(self) -> Contract:
        return Contract(needs={"text"}, adds={"frames": None, "timestamps": None})

    def process(self, batch):
        frames = [np.full((4, 256, 342, 3), len(t), dtype=np.uint8) for t in batch.column("text")]
        return batch.as_type(VideoBatch).with_payloads(frames=frames, timestamps=[np.arange(4.0) for _ in frames])


@dataclass(kw_only=True)
class MeanFrame(Stage):
    """Adds the mean of the frames."""

    def contract(self) -> Contract:
        return Contract(needs={"frames"}, adds={"mean": pa.float64()})

    def process(self, batch):
        return batch.with_columns({"mean": [float(f.mean()) for f in batch.frames]})


@dataclass(kw_only=True)
class Payloads(Stage):
    """Adds the names of the payloads that are there; says it needs `wanted`, or nothing at all about it."""

    wanted: tuple[str, ...] = ()

    def contract(self) -> Contract:
        return Contract(needs=self.wanted, adds={"payloads": pa.string()})

    def process(self, batch):
        return batch.with_columns({"payloads": [" ".join(batch.payloads())] * len(batch)})


class Unsaid(Payloads):
    """Has no contract."""

    contract = Stage.contract


@stage(adds={"words": pa.int64()})
def words(batch):
    """Adds the number of words."""
    return batch.with_columns({"words": [len(t.split()) for t in batch.column("text")]})


def lines(folder: Path, **options) -> Pipeline:
    return from_source(Lines(path=str(folder), **options))


def sink_in(folder: Path, **options) -> JsonFiles:
    return JsonFiles(path=str(Path(folder, "out")), **options)


class Chaos:
    """Random pipelines: which steps a seed has, and the pipeline of them over a folder."""

    @staticmethod
    def steps(rng: random.Random) -> list[str]:
        """Kinds of steps; `aside` is a sink in the middle."""
        kinds = ["drop", "trouble", "first", "children", "shout", "heavy", "aside"]
        some = [k for k in rng.sample(kinds, len(kinds)) if rng.random() < 0.7]
        # The row that kills a worker is the one that its operator was given: a parent, not the child that did it.
        return [*(k for k in some if k != "children"), *(k for k in some if k == "children"), "shout"]

    def __call__(self, seed: int, folder: str) -> Pipeline:
        place = Path(folder)
        make = {"drop": DropWord, "first": FirstOfText, "children": Children, "shout": Shout,
                "trouble": lambda: Trouble(marks=str(place / "marks"), limit_s=1.0),
                "heavy": lambda: Shout(suffix="!").with_(resources=Resources(cpus=0.5), name="heavy"),
                "aside": lambda: JsonFiles(path=str(place / "aside"))}
        made = lines(place / "in", batch=2, delay_s=0.03)
        for kind in self.steps(random.Random(seed)):
            made = made.to(make[kind]()) if kind == "aside" else made >> make[kind]()
        return (made >> JsonFiles()).named("chaos", out=str(place / "out"), max_failed=1000)


chaos = Chaos()


def write_lines(folder: Path, **files: list[str]) -> Path:
    """A folder of text files, one a keyword."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in content))
    return folder


def written(out: Path, glob: str = "*.json") -> list[dict]:
    """Every record in the files of the JSON sink, sorted by id. `out`: a run's folder, or that of a sink elsewhere."""
    data = Path(out, "data") if Path(out, "_run").exists() else Path(out)
    rows = [row for path in sorted(data.glob(glob)) for row in json.loads(path.read_text())]
    return sorted(rows, key=lambda row: row["id"])


def kept_aside(out: Path, ending: str) -> list[dict]:
    """Every record that a run kept under `dropped`, `duplicate` or `failed`, sorted by id."""
    import pyarrow.parquet as pq

    paths = sorted(Path(out, ending).rglob("*.parquet"))
    rows = [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


TOKEN = "CURATOR_TEST_TOKEN"  # in the environment of a test's processes: other tests may run beside it


def orphans(token: str) -> list[str]:
    """Processes of runs that were started with this token in their environment, and the shared memory of these runs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                ours = f"{TOKEN}={token}".encode() in (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                told = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if ours and state != "Z":
                found.append(f"{entry.name} {state} {told}")
    return found


def folders(*drivers: int) -> list[Path]:
    """The folders for batches of runs by these processes."""
    parents = {"/dev/shm", tempfile.gettempdir()}
    return [path for parent in parents for pid in drivers for path in Path(parent).glob(f"curator-{os.geteuid()}/{pid}-*")]


def remains(*killed: int) -> list[Path]:
    """What is left in the folders of processes that were killed. One that died before it had a fork server leaves nothing but their
    markers, for the next run to remove; here they are removed now."""
    for path in folders(*killed):
        with contextlib.suppress(FileNotFoundError):  # the fork server is removing it
            if os.listdir(path) == [MARKER]:
                (path / MARKER).unlink()
                path.rmdir()
    return folders(*killed)


def wait_until(true, seconds: float = 120.0) -> None:
    """Wait for something that other processes do. The limit is for a machine that is slow and busy; it passes only on failure."""
    until = time.monotonic() + seconds
    while not true():  # once it is: what other processes do may undo it again
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)
