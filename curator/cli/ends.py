"""How a command ends that runs a recipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from curator.run.run import Result

# as shells have it: 128 and the number of the signal; anything else gives 2
EXITS = {"interrupted": 130, "terminated": 143}


def end(result: Result) -> None:
    """Say what went wrong, if something did, and end with its number."""
    if not result.ok:
        click.echo(f"curator: {result.stats['message']}", err=True)
        for error in result.first_errors[:1]:
            click.echo(f"curator: {error}", err=True)
        sys.exit(EXITS.get(result.stats["stopped_by"], 2))
