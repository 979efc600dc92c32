"""Pickles that every process of a run can read, on any node.

Pickle names a class by its module. One that is defined in a script or a notebook stands in `__main__`, which
is another module in each process, and some stand in modules that cannot be imported by name. Those go by
value, as cloudpickle has it: who reads one twice gets the same class, and who sent it gets his own back.
"""

from __future__ import annotations

import pickle
import sys
from functools import cache, lru_cache
from typing import Any

import cloudpickle

_by_value = {b"__main__"}  # modules that mean nothing elsewhere


def send_by_value(name: str) -> None:
    """Send what this module defines by value, if no other process could import it."""
    module, top = sys.modules.get(name), name.partition(".")[0]
    if module is not None and all(finder.find_spec(top, None) is None for finder in sys.meta_path):
        cloudpickle.register_pickle_by_value(module)
        _by_value.add(name.encode())


def dumps(value: Any, buffers: list[pickle.PickleBuffer] | None = None) -> bytes:
    """A value, pickled. `buffers` gets what is large and need not be copied."""
    callback = None if buffers is None else buffers.append
    try:
        data = pickle.dumps(value, protocol=5, buffer_callback=callback)
        if not any(name in data for name in _by_value):
            return data
    except (pickle.PicklingError, AttributeError):
        pass  # a class of a script, in another process than the script's
    if buffers is not None:
        buffers.clear()
    return cloudpickle.dumps(value, protocol=5, buffer_callback=callback)


@cache
def dump_class(kind: type) -> bytes:
    return dumps(kind)


@lru_cache(1000)
def load_class(data: bytes) -> type:
    """What `dump_class` gave; by value it is slow to read, so it is read once."""
    return pickle.loads(data)
