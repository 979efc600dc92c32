"""`curator watch`: a run followed from another terminal or machine."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from curator.cli.live import END_S, LiveCommand, served
from curator.cli.live import option as dashboard_option
from curator.cli.loading import run_argument

EVERY_S = 2.0


@click.command(cls=LiveCommand, short_help="Follow a run from another terminal or machine.")
@run_argument
@click.option("--once", is_flag=True, help="Say how it is now, and end.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON each time the numbers change.")
@click.option("--stages", is_flag=True, help="A line for each stage too.")
@dashboard_option
@click.option("--every", type=click.FloatRange(min=0.1), default=EVERY_S, show_default=True,
              metavar="SECONDS", help="Look so often.")
def watch(folder: str, once: bool, as_json: bool, stages: bool, dashboard: int | None, every: float) -> None:
    """Follow the run in the folder RUN (a path or URL), which another process writes, by what it writes
    there; nothing is locked or changed. Shows the funnel when the run has ended.

    Ends with 0 if the run finished or still works, with 2 if it did not end well or was killed.
    """
    from curator.observe.live.progress import Progress
    from curator.results.watching import Watching

    watching = Watching(folder)
    progress = None if once or as_json else Progress(stages=stages)
    try:
        with served(folder, dashboard):
            state = _follow(watching, progress, as_json, 0.0 if once else every)
            if dashboard is not None and not once:
                time.sleep(END_S)
    except KeyboardInterrupt:
        return
    finally:
        if progress:
            progress.close()
    if not as_json:
        _show(watching, state, once, stages)
    if state == "dead" or (state == "ended" and watching.stats["status"] != "finished"):
        sys.exit(2)


def _follow(watching: Any, progress: Any, as_json: bool, every: float) -> str:
    """Tell how the run is until it has ended; once, if `every` is 0. Gives how it is at last."""
    shown: Any = None
    while True:
        state = watching.look()
        if as_json and (told := told_of(watching, state)) != shown:
            click.echo(json.dumps(told, ensure_ascii=False))
            shown = told
        elif progress and (shot := watching.snapshot()):
            progress.update(shot)
        if not every or state in ("dead", "ended"):
            return state
        time.sleep(every)


def told_of(watching: Any, state: str) -> dict[str, Any]:
    """What a program wants to know of a run."""
    stats = watching.stats
    return {"state": state, "message": watching.message or stats.get("message", ""),
            "name": stats.get("name", ""), "status": stats.get("status", "running"),
            "records": stats.get("records", {}), "first_errors": stats.get("first_errors", []),
            "alarms": stats.get("alarms", []), "live": stats.get("live", {})}


def _show(watching: Any, state: str, once: bool, stages: bool) -> None:
    from curator.observe.live.words import line, table
    from curator.observe.report.funnel import show_funnel

    stats = watching.stats
    if state in ("dead", "ended"):
        show_funnel({**stats, "status": "killed", "message": watching.message} if state == "dead" else stats)
    elif once:
        shot = watching.snapshot()
        click.echo("the run begins: there are no numbers yet" if state == "starting" else line(shot))
        for row in table(shot) if stages and shot else ():
            click.echo(f"  {row}")
