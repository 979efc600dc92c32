"""`curator explore`: a page in the browser over what a run wrote."""

from __future__ import annotations

import os
import sys

import click

from curator.cli.loading import run_argument


@click.command(short_help="Look at a run in the browser: scores, thresholds, records.")
@run_argument
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT",
              help="Port on this machine [default: one that is free].")
@click.option("--no-browser", is_flag=True,
              help="Open no browser, only print the address [default where there is no display].")
@click.option("--media-root", metavar="FOLDER",
              help="Show media outside of the run that records refer to by `path`, if they lie in here.")
def explore(folder: str, port: int, no_browser: bool, media_root: str | None) -> None:
    """Serve a page over the run in the folder RUN, to this machine only: every score with its threshold to
    drag, and the records themselves. Nothing is copied or changed. Ctrl-C ends it.

    From another machine: ssh -L 8000:127.0.0.1:8000 HOST, there curator explore RUN --port 8000
    --no-browser, and here the address that it prints.
    """
    from curator.explore.questions import Questions
    from curator.explore.server import Server
    from curator.results.output import RunOutput

    questions = Questions(RunOutput.open(folder), media_root)
    try:
        with Server(questions, port) as server:
            click.echo(f"{questions.output.stats['name']}: {server.url}")
            click.echo("Ctrl-C ends it.", err=True)
            displays = {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
            if not no_browser and (displays or sys.platform != "linux"):
                click.launch(server.url)
            server.serve_forever()
    except KeyboardInterrupt:
        click.echo("", err=True)
    finally:
        questions.close()
