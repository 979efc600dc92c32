"""The live page of a run, served while a command works: `--dashboard`."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

import click

if TYPE_CHECKING:
    from curator.explore.board import Board

ANY_PORT = "0"
END_S = 2.5  # an open page is given so long to see the end

option = click.option("--dashboard", metavar="[PORT]", is_flag=False, flag_value=ANY_PORT,
                      type=click.IntRange(0, 65535),
                      help="Serve a live page to this machine: flow, queues, rates, workers, failures. "
                           "[default: a port that is free]")


class LiveCommand(click.Command):
    """A command with options that take a value or none: what follows one is its value only if it looks like
    one. So a number behind `--dashboard` is its port."""

    optional: ClassVar[dict[str, tuple[str, str]]] = {"--dashboard": (r"[0-9]+", ANY_PORT)}  # form, default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for option, (form, default) in self.optional.items():
            at = args.index(option) if option in args else len(args)
            if at + 1 < len(args) and not re.fullmatch(form, args[at + 1]):
                args = [*args[:at], f"{option}={default}", *args[at + 1:]]
        return super().parse_args(ctx, args)


@contextmanager
def served(folder: str, port: int | None) -> Iterator[Board | None]:
    """Serve the page of the run in this folder from a thread; None without a port.

    Raises:
        CuratorError: the port is taken.
    """
    if port is None:
        yield None
        return
    from curator.explore.board import Board
    from curator.explore.server import Server

    board = Board(folder)
    with Server(board, port, "live") as server:
        thread = threading.Thread(target=server.serve_forever, name="dashboard", daemon=True)
        thread.start()
        click.echo(f"live page: {server.url}", err=True)
        try:
            yield board
        finally:
            server.shutdown()
            thread.join()
