"""How many rows a call may have once memory ran out: fewer, and more again when calls go well."""

from __future__ import annotations

from collections.abc import Iterator

GROW_AFTER = 8  # calls of the full size that went well, then it is doubled
# such calls before a size that ran out of memory is tried again: twice as many each time it does so again
TRY_AFTER = 64
TRY_AFTER_MAX = 4096

# What libraries say that have no error of their own for it: torch on a CPU and cuBLAS, ONNX Runtime, XLA.
_SAYINGS = ("out of memory", "can't allocate memory", "alloc_failed", "failed to allocate memory",
            "resource_exhausted")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory of the machine or a device ran out, also where a stage raised another error from it."""
    return any(isinstance(one, MemoryError)  # also pyarrow's and numpy's own
               or any("OutOfMemory" in kind.__name__ for kind in type(one).__mro__)  # torch's
               or (isinstance(one, RuntimeError) and any(saying in str(one).lower() for saying in _SAYINGS))
               for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


class Fitting:
    """The rows that a call of one step may have: `rows_max`, None for as many as come."""

    def __init__(self) -> None:
        self.rows_max: int | None = None
        self._whole = 0  # the most rows that ran out of memory: where so many fit, there is no limit
        self._ceiling: int | None = None  # the fewest rows that ran out and were not seen to fit since
        self._good = 0  # calls of the full size that went well since the size was set
        self._patience = TRY_AFTER

    def ran_out(self, rows: int) -> None:
        """A call with so many rows ran out of memory."""
        if self.rows_max is not None and rows == self.rows_max == self._ceiling:  # it was tried again
            self._patience = min(2 * self._patience, TRY_AFTER_MAX)
        # One row alone that does not fit says nothing of two others.
        self._ceiling = max(2, rows if self._ceiling is None else min(rows, self._ceiling))
        self._whole = max(self._whole, rows)
        self.rows_max, self._good = max(1, rows // 2), 0

    def went_well(self, rows: int) -> bool:
        """A call with so many rows went well. Whether more may come now."""
        if self.rows_max is None or rows < self.rows_max:
            return False
        self._good += 1
        if self._ceiling is not None and rows >= self._ceiling:
            self._ceiling = None
        if self._ceiling is None and rows >= self._whole:
            self.rows_max = None
            return True
        more = min(2 * self.rows_max, self._whole if self._ceiling is None else self._ceiling)
        if self._good < (self._patience if more == self._ceiling else GROW_AFTER):
            return False
        self.rows_max, self._good = more, 0
        return True
