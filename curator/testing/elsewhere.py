"""What another process sees of a pack: what its import brings along, and whether its stages answer there as
here.

A run that is continued is another process: its text hashes have another seed, and whatever was kept in this
one is gone.
"""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cloudpickle

from curator.api.batch import Batch
from curator.api.stage import Sink, Source, Stage
from curator.registry import packs
from curator.testing.run import Answers, answers, difference, fresh, in_words, named, read_unit, records
from curator.testing.whole import as_one

# What takes a quarter of a second or 50 MB to import, starts threads, or touches a GPU: every command that
# lists stages, and every worker of another stage, would pay for it.
HEAVY = ("PIL", "accelerate", "av", "cv2", "datasets", "decord", "diffusers", "faiss", "fasttext", "jax",
         "librosa", "matplotlib", "nltk", "numba", "onnxruntime", "pandas", "polars", "ray", "scipy",
         "sentence_transformers", "skimage", "sklearn", "soundfile", "spacy", "tensorflow", "timm", "torch",
         "torchaudio", "torchvision", "transformers", "triton", "vllm", "whisper")


@dataclass(frozen=True)
class Seen:
    """`heavy`: of HEAVY, what importing the pack imports. `broken`: packs that cannot be used once it is
    imported. `answers`: for each example its fingerprint and what it answers, or what it raises."""

    heavy: list[str]
    broken: list[str]
    answers: list[tuple[str, Answers | str]]


def check_elsewhere(module: str, examples: Sequence[tuple[Stage, Batch | None, float]]) -> None:
    """Check a pack in another process; each example is a stage, its batch (None for a source) and a
    tolerance."""
    seen = _ask(module, [(stage, batch) for stage, batch, _ in examples])
    assert not seen.heavy, (f"importing {module} imports {', '.join(seen.heavy)}, which is heavy: import it "
                            "in `setup`, or in a "
                            "module that only `setup` imports, so that listing stages stays instant")
    harmed = [pack.name for pack in packs.installed() if pack.name in seen.broken and pack.error is None]
    assert not harmed, (
        f"after {module} is imported the pack {harmed[0]!r} cannot be: it must leave alone what others use")
    for (stage, batch, tolerance), (fingerprint, answered) in zip(examples, seen.answers, strict=True):
        where = f"{named(stage)} in another process, as when a run is continued,"
        assert not isinstance(answered, str), f"{where} raises {answered}"
        assert fingerprint == stage.fingerprint(), (
            f"{where} has another fingerprint: a run that is continued would do everything again. Make its "
            "parameters plain values, or a `setting` where one does not change the answer")
        different = difference(_answers(stage, batch), answered, tolerance)
        assert different is None, (f"{where} answers differently: {different}. Take nothing from what "
                                   "changes between processes: hash() of a text, the order of a set, the "
                                   "clock, counters, files of its own")


def _ask(module: str, examples: list[tuple[Stage, Batch | None]]) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "given"), Path(folder, "found")
        given.write_bytes(cloudpickle.dumps(examples))
        code = f"from curator.testing.elsewhere import look; look({module!r}, {str(given)!r}, {str(found)!r})"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        environment.pop("PYTHONHASHSEED", None)
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert found.exists(), (
            f"another process cannot import {module} and take its stages: it ends "
            f"with\n{done.stderr[-2000:]}")
        return pickle.loads(found.read_bytes())


def look(module: str, given: str, found: str) -> None:
    """Called in the other process: import the pack, then work through the pickled examples."""
    before = set(sys.modules)
    importlib.import_module(module)
    errors = {pack.name: pack.error for pack in sorted(packs.installed(), key=lambda p: p.module != module)}
    heavy = [name for name in HEAVY if name in sys.modules and name not in before]
    broken = [name for name, error in errors.items() if error is not None]
    seen: list[tuple[str, Answers | str]] = []
    for stage, batch in pickle.loads(Path(given).read_bytes()):
        try:
            seen.append((stage.fingerprint(), _answers(stage, batch)))
        except Exception as error:  # reported by the process that asked
            seen.append(("", in_words(error)))
    Path(found).write_bytes(pickle.dumps(Seen(heavy, broken, seen)))


def _answers(stage: Stage, batch: Batch | None) -> Answers:
    """What a stage answers to its batch; of a source the records, by unit; of a sink nothing."""
    if isinstance(stage, Sink):
        return {}
    if not isinstance(stage, Source):
        assert batch is not None, f"{named(stage)} has no batch"
        return answers(as_one(stage), batch)
    driver = copy.copy(stage)
    return {f"{unit.label}, key {unit.key}": list(enumerate(
        record for _, batch in read_unit(fresh(driver), unit) for record in records(batch)))
            for unit in driver.units()}
