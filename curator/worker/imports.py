"""What workers import, and who does it: the process that they are forked from, once, and single-threaded.

Arrow looks for pandas when it makes its first array. Where that is installed, it costs each process a third
of a second, 360 modules and 34 MB, for a package that few stages use. So the command line, and the process
that workers are forked from, tell Arrow that there is none. When somebody does import pandas, Arrow is told
of it, and behaves as ever.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle
import pyarrow as pa

from curator.api.errors import CuratorError
from curator.pipeline.plan import Operator
from curator.worker.pickling import send_by_value


class _Modules(cloudpickle.Pickler):
    """Pickles, and notes where the classes and functions come from."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), protocol=5)
        self.found: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, FunctionType)):
            self.found.add(value.__module__)
        return super().reducer_override(value)


def modules_of(operators: Iterable[Operator]) -> list[str]:
    """The modules that workers need for their stages; the fork server imports them once.

    Raises:
        CuratorError: a stage cannot be sent to a worker at all.
    """
    pickler = _Modules()
    for step in (step for operator in operators for step in operator.steps):
        try:
            pickler.dump(step.stage)
        except Exception as error:
            raise CuratorError(f"{step.name} cannot be sent to a worker: {error}. What cannot be pickled (a "
                               "lock, an open file, a connection) is made in setup") from error
    for name in pickler.found:
        send_by_value(name)
    return sorted(pickler.found - {"__main__"})


# -- pandas --------------------------------------------------------------------------------------------------


class _Finder(importlib.abc.MetaPathFinder):
    """Finds pandas where others do, and tells Arrow that it is there; `hiding`, says that there is none."""

    hiding = False

    def find_spec(self, name: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.hiding:
            raise ModuleNotFoundError("held back", name=name)
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_tell(module: ModuleType) -> None:
                load(module)
                # it is older than Arrow wants, who says so when it matters
                with contextlib.suppress(ImportError):
                    _ = pa.lib._pandas_api.pd

            spec.loader.exec_module = load_and_tell  # type: ignore[method-assign]  # of this one
        return spec


_finder = _Finder()


def hold_back() -> None:
    """From now on this process, and those forked from it, import pandas when somebody asks for it by name,
    and not before; and Arrow takes memory as the system gives it."""
    if "pandas" not in sys.modules and importlib.util.find_spec("pandas") and hasattr(pa.lib, "_pandas_api"):
        sys.meta_path.insert(0, _finder)
        _finder.hiding = True
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())  # its own takes 4 MB at once, and keeps more
    pa.array([0])  # here Arrow looks for pandas, once
    _finder.hiding = False


def bring_for(schema: pa.Schema) -> None:
    """Import pandas, if it was held back, for times in nanoseconds, which Arrow gives as its objects."""
    if _finder in sys.meta_path and "pandas" not in sys.modules and "[ns" in str(schema):
        importlib.import_module("pandas")
