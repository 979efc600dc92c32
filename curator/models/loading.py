"""Models of the Hugging Face hub or of a folder: how they are loaded, and where they compute."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from curator.api.errors import CuratorError
from curator.api.resources import Resources
from curator.api.stage import Context

EXTRA = "pip install 'curator-core[models]'"
MODELS = {"torch": EXTRA, "transformers": EXTRA}  # what a stage with a model `requires`

# A quarter of a GPU: Python and the copies leave it idle half of the time, so that several workers fill it.
# The memory is what CLIP L/14 takes while it is loaded in float32.
MODEL_RESOURCES = Resources(cpus=1, gpus=0.25, memory_gb=3)


@dataclass(frozen=True)
class Place:
    """Where a worker's model computes: a `torch.device`, and the `torch.dtype` of its numbers."""

    device: Any
    dtype: Any


def place_of(ctx: Context) -> Place:
    """The worker's GPU with float16, else as many cores as it has with float32.

    float16 and not bfloat16: its rounding moves the cosine of two CLIP B/32 embeddings by 2e-4 and not by
    1e-3.

    Raises:
        CuratorError: the worker has a GPU that the installed torch cannot use.
    """
    torch = library("torch")
    torch.set_num_threads(max(1, int(ctx.cpus)))
    if not ctx.gpus:
        # A worker has GNU's C library take new pages for each layer and give them back, and the system clears
        # them: with CLIP B/32 that was a quarter of the processor time. So M_MMAP_MAX and M_TRIM_THRESHOLD
        # have it keep them, in a worker and not in the process of a user, whose memory is not ours to keep.
        with contextlib.suppress(AttributeError, OSError):
            for option, value in ((-4, 0), (-1, 1 << 30)) if "MALLOC_MMAP_THRESHOLD_" in os.environ else ():
                ctypes.CDLL(None).mallopt(option, value)
        return Place(torch.device("cpu"), torch.float32)
    if not torch.cuda.is_available():
        raise CuratorError(f"this worker has a GPU that the installed torch {torch.__version__} cannot use: "
                           "install a torch built for it (https://pytorch.org/get-started), or give the "
                           "stage `with: {resources: {gpus: 0}}`")
    # cuDNN plans attention anew for each shape, 50 ms on an H100, and most batches of texts have their own.
    # An encoder of 109 million weights read 860 texts a second with it, and 3,400 without.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return Place(torch.device("cuda", 0), torch.float16)


def need_models() -> None:
    """Called in `setup` before a module that imports these at its top.

    Raises:
        CuratorError: torch or transformers is not installed; with the command that does it.
    """
    for name in MODELS:
        library(name)


def library(name: str) -> ModuleType:
    """A library of the extra `models`.

    Raises:
        CuratorError: it is not installed; with the command that does it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CuratorError(f"{name} is wanted and cannot be imported ({error}): {EXTRA}") from error


def load(loader: str | type, model: str, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """What `transformers.<loader>.from_pretrained` makes of a hub id, `id@revision`, or folder; `loader` may
    be a class too.

    `trust_remote_code`: run code that comes with the model. Workers that start together do not download
    twice: the hub's cache locks each file.

    Raises:
        CuratorError: it cannot be found or read; says where it was looked for.
    """
    if model.startswith((".", "/", "~")) and not Path(model).is_dir():
        raise CuratorError(f"there is no folder {model!r} (from {Path.cwd()}); a model on the Hugging Face "
                           "hub is written organisation/name")
    transformers = library("transformers")
    transformers.logging.set_verbosity_error()  # what it warns of (weights that are missing) is an error here
    transformers.logging.disable_progress_bar()
    name, _, revision = (model, "", "") if Path(model).is_dir() else model.partition("@")
    if revision:
        options["revision"] = revision
    try:
        maker: Any = getattr(transformers, loader) if isinstance(loader, str) else loader
        return maker.from_pretrained(name, trust_remote_code=trust_remote_code, **options)
    except (OSError, ValueError, ImportError) as error:
        named = loader if isinstance(loader, str) else loader.__name__
        raise CuratorError(_not_loaded(named, model, error)) from error


def load_model(loader: str, model: str, place: Place, *, optional: tuple[str, ...] = (),
               trust_remote_code: bool = False) -> tuple[Any, bool]:
    """A model ready to answer, still in main memory, and whether weights whose names begin with one of
    `optional` are missing.

    Raises:
        CuratorError: other weights are missing: the model would answer at random.
    """
    loaded, info = load(loader, model, dtype=place.dtype, output_loading_info=True,
                        trust_remote_code=trust_remote_code)
    missing = sorted(info["missing_keys"])
    wanted = [key for key in missing if not key.startswith(optional)]
    if wanted:
        raise CuratorError(f"{model!r} has no weights for "
                           f"{wanted[0]}{f' and {len(wanted) - 1} others' if wanted[1:] else ''}, "
                           f"which a {type(loaded).__name__} needs: name a model that was trained for this")
    return loaded.eval().requires_grad_(False), bool(missing)


def fetch(reference: str) -> Path:
    """A file: a path on this machine, `folder:file` for that of a model in a folder, or `repository:file` or
    `repository@revision:file` on the hub.

    Raises:
        CuratorError: there is no such file.
    """
    repository, colon, name = reference.rpartition(":")
    for path in (Path(reference), Path(repository, name)):
        if path.is_file():
            return path
    if colon and Path(repository).is_dir():
        raise CuratorError(f"the folder {repository!r} has no file {name!r}")
    if not colon or "/" not in repository:
        raise CuratorError(f"there is no file {reference!r}; a file on the Hugging Face hub is written "
                           "repository:file")
    hub = library("huggingface_hub")
    repository, _, revision = repository.partition("@")
    try:
        return Path(hub.hf_hub_download(repository, name, revision=revision or None))
    except (OSError, ValueError) as error:  # the errors of the hub are among these
        raise CuratorError(_not_loaded("file", reference, error)) from error


def _not_loaded(what: str, model: str, error: Exception) -> str:
    constants = library("huggingface_hub").constants
    where = f"the cache {constants.HF_HUB_CACHE} (HF_HOME moves it)"
    if Path(model).exists():
        where = "that folder"
    elif constants.HF_HUB_OFFLINE:
        where += "; HF_HUB_OFFLINE is set, so the Hugging Face hub was not asked"
    else:
        where += " and the Hugging Face hub. Without a network, download it elsewhere and name its folder"
    reason = " ".join(str(error).split())[:500].rstrip(".")
    return (f"{model!r} cannot be loaded ({what}). It was looked for in {where}. {type(error).__name__}: "
            f"{reason}")
