"""What the folder of a run tells, from what was written alone: look, decide, repair."""

from __future__ import annotations

from curator.results.output import RunOutput
from curator.results.places import Place

__all__ = ["Place", "RunOutput"]
