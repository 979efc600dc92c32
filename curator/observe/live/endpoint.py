"""A port on which Prometheus, or a browser, reads the numbers of a run while it runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from curator.api.errors import CuratorError
from curator.observe.live.metrics import Sample, exposition

HOST = "127.0.0.1"  # who may read the numbers of a run is the user's to say
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """Serves the last samples it was told of at `/metrics`, from a thread of its own; `url` says where.

    `address`: a port of this machine (0 for any free one), or "HOST:PORT" to let others in ("0.0.0.0:9400").

    Raises:
        CuratorError: the port cannot be had.
    """

    def __init__(self, address: int | str) -> None:
        host, port = _parsed(address)
        self.samples: Sequence[Sample] = ()
        try:
            self._server = _Server((host, port), _handler(self))
        except OSError as error:
            raise CuratorError(f"metrics cannot be served on {host}:{port} ({error.strerror or error}); "
                               "choose another port, or 0 for any that is free") from None
        self.url = f"http://{host}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the port back. May be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a reader that never finishes keeps no run from ending
    block_on_close = False


def _parsed(address: int | str) -> tuple[str, int]:
    host, _, port = str(address).rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise CuratorError(f"metrics port {address!r}: give a port such as 9400, or host and port such as 0.0.0.0:9400")
    return host or HOST, int(port)


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds for a reader to say what it wants

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/metrics", "/"):
                self.send_error(404, "the metrics are at /metrics")
                return
            text = exposition(endpoint.samples).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Nothing: a line for each read would fill the terminal of the run."""

    return Handler
