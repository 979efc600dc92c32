"""A web server in this process, whose pages a test makes, and which counts what it is asked."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

JPEG = b"\xff\xd8\xff\xe0 not much of a picture"


class Web:
    """A server whose paths are functions of the handler; counts what it was asked, and who was there at once."""

    def __init__(self) -> None:
        self.pages, self.asked, self.agents, self.connections = {}, Counter(), [], 0
        self.released = threading.Event()  # what holds an answer back waits for this
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                with web.lock:
                    web.connections += 1

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                with web.lock:
                    web.asked[path] += 1
                    web.agents.append(self.headers["User-Agent"])
                    web.at_once += 1
                    web.most_at_once = max(web.most_at_once, web.at_once)
                try:
                    web.pages.get(path, missing)(self)
                finally:
                    with web.lock:
                        web.at_once -= 1

            def log_message(self, *args) -> None:
                """Nothing: what went wrong shows in the answers."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None  # clients that hang up are part of the tests
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


def page(body=JPEG, status=200, length=True, **headers):
    """A page. Headers by keyword, `_` for `-`; a list is several lines."""

    def answer(handler) -> None:
        handler.send_response(status)
        for name, values in {"Content_Type": "image/jpeg", **headers}.items():
            for value in [values] if isinstance(values, str) else values or []:
                handler.send_header(name.replace("_", "-"), value)
        if length:
            handler.send_header("Content-Length", str(len(body)))
        else:
            handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(body)

    return answer


missing = page(b"gone", status=404)


def redirect(to, status=302, **headers):
    return page(b"", status=status, Location=to, **headers)
