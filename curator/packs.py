"""The installed packs as names: `from curator.packs import text`, then `text.Signals(...)`.

Each name is the module of a pack, imported when it is asked for; stages of two packs may have one name.
`packs.pyi` says the same to editors and type checkers, of the packs that they can know.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from curator.api.names import unknown
from curator.registry.packs import installed


def __getattr__(name: str) -> ModuleType:
    if name.startswith("__"):
        raise AttributeError(f"module 'curator.packs' has no attribute {name!r}")
    known = {pack.name: pack for pack in installed()}
    pack = known.get(name)
    if pack is None:
        raise AttributeError(f"{unknown('pack', name, known)}; pip install curator-{name}, if its "
                             "distribution is called so")
    pack.stages()  # says what is wrong with it
    return importlib.import_module(pack.module)


def __dir__() -> list[str]:
    return [pack.name for pack in installed() if pack.clash is None]
