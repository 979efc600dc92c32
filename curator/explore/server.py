"""The server of the page: this machine only, whoever has the token only, the run's own bytes only.

What a request must have is checked in one place, `Handler._refused`, before anything is looked up:

- a `Host` that is this machine: a page elsewhere cannot reach us under a name of its own (DNS rebinding);
- no `Origin` or `Sec-Fetch-Site` of another page, for questions and for bytes alike;
- the token: once in the address, from then on in a cookie that scripts cannot read.

Files of the page come from a fixed list, bytes by record and column, never by path. Every answer forbids the
browser all that the page does not need, and says what type it has.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from curator.api.errors import CuratorError
from curator.explore.blobs import Blob

HOSTS = {"127.0.0.1", "localhost", "::1"}
QUESTION_BYTES = 1 << 20
PIECE_BYTES = 1 << 18
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")  # of several, a player gets all
IDLE_S = 60  # a browser keeps a connection open so long
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                               "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                               "frame-ancestors 'none'; require-trusted-types-for 'script'; "
                               "trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Asked(Protocol):
    """What a page asks."""

    def answer(self, name: str, given: dict[str, Any]) -> Any: ...

    def blob(self, asked: Mapping[str, str]) -> AbstractContextManager[Blob]: ...


class Server(ThreadingHTTPServer):
    """Answers until `shutdown`. `url` is the address with the token."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, questions: Asked, port: int = 0, page: str = "page") -> None:
        """Port 0 is any free one. `page`: the folder with its index.html.

        Raises:
            CuratorError: the port is taken.
        """
        self.questions, self.token = questions, secrets.token_urlsafe(24)
        self.page = _page_files("page") | _page_files(page)
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            raise CuratorError(f"port {port} cannot be used ({error}): give another one with --port, or none "
                               "for any that is free") from error

    @property
    def port(self) -> int:
        return self.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """Named by port, since browsers give a cookie to every port of a host."""
        return f"curator_{self.port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is none of our errors; any other one is shown, and the server goes on."""
        import sys

        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


def _page_files(folder: str) -> dict[str, tuple[str, bytes]]:
    """The files of a page by address: nothing else is ever served by a name."""
    found = {}
    for file in (resources.files("curator.explore") / folder).iterdir():
        ending = file.name[file.name.rfind("."):]
        if ending in TYPES:
            found[f"/{file.name}"] = (TYPES[ending], file.read_bytes())
    return found | {"/": found["/index.html"]}


class Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "curator", ""
    timeout = IDLE_S

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if self._refused(asked.get("token") if url.path == "/" else None):
            return
        if url.path == "/blob":
            self._answer(self._blob, asked)
        elif url.path in self.server.page:
            kind, content = self.server.page[url.path]
            given = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(HTTPStatus.OK, f"{kind}; charset=utf-8", content,
                       {"Set-Cookie": given} if url.path == "/" and "token" in asked else {})
        else:
            self._complain(HTTPStatus.NOT_FOUND, "there is no such page")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        if self._refused():
            self.close_connection = True  # the body has not been read
            return
        size = self.headers.get("Content-Length", "")
        kind = self.headers.get_content_type()
        if not size.isdecimal() or int(size) > QUESTION_BYTES or kind != "application/json":
            self.close_connection = True
            self._complain(HTTPStatus.BAD_REQUEST, f"a question is JSON of up to {QUESTION_BYTES:,} bytes")
            return
        content = self.rfile.read(int(size))
        self._answer(self._question, content)

    def _question(self, content: bytes) -> None:
        name = urlsplit(self.path).path.removeprefix("/api/")
        try:
            given = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise CuratorError(f"the question is no JSON: {error}") from None
        if not isinstance(given, dict):
            raise CuratorError("the question is no JSON object")
        answer = self.server.questions.answer(name, given)
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._send(HTTPStatus.OK, "application/json", text.encode("utf-8", "replace"))

    def _blob(self, asked: Mapping[str, str]) -> None:
        with self.server.questions.blob(asked) as blob:
            self._send_blob(blob)

    def _answer(self, make: Any, given: Any) -> None:
        """What a question comes to; what is wrong with it is told, and ends nothing."""
        try:
            make(given)
        except CuratorError as error:
            self._complain(HTTPStatus.BAD_REQUEST, str(error))
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            self._say(error)
            self._complain(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def _refused(self, token: str | None = None) -> bool:
        """Whether the request was turned away."""
        if not self._is_for_us():
            self._complain(HTTPStatus.FORBIDDEN, "this server answers to localhost only")
        elif not self._is_own_page():
            self._complain(HTTPStatus.FORBIDDEN, "another page may not ask here")
        elif not self._has_token(token):
            self._complain(HTTPStatus.FORBIDDEN, "open the address that was printed, with its token")
        else:
            return False
        return True

    def _is_for_us(self) -> bool:
        """Any port is fine: through an SSH tunnel it is another one than ours."""
        hosts = self.headers.get_all("Host") or []
        try:
            return len(hosts) == 1 and urlsplit(f"//{hosts[0]}").hostname in HOSTS
        except ValueError:
            return False

    def _is_own_page(self) -> bool:
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "none")
        if origin is not None and origin != f"http://{self.headers['Host']}":
            return False
        # somebody may follow a link to the page itself; it shows nothing to the page where the link was
        followed = self.headers.get("Sec-Fetch-Mode") == "navigate" and urlsplit(self.path).path == "/"
        return site in ("none", "same-origin") or followed

    def _has_token(self, token: str | None) -> bool:
        if token is None:
            try:
                cookies = SimpleCookie(self.headers.get("Cookie", ""))
            except CookieError:
                return False
            token = cookies[self.server.cookie].value if self.server.cookie in cookies else ""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes,
              more: Mapping[str, str] | None = None) -> None:
        self._head(status, kind, len(content), {"Cache-Control": "no-store", **(more or {})})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _complain(self, status: HTTPStatus, text: str) -> None:
        content = json.dumps({"error": text}).encode()
        self._send(status, "application/json", content)

    def _head(self, status: HTTPStatus, kind: str, size: int, more: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(size), **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_blob(self, blob: Blob) -> None:
        """The bytes, or the range of them that a player asks for."""
        asked = RANGE.fullmatch(self.headers.get("Range", "").strip())
        start, stop = _span(asked[1], asked[2], blob.size) if asked else (0, blob.size)
        if asked and start >= stop:
            more = {"Content-Range": f"bytes */{blob.size}"}
            self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "application/json", b"{}", more)
            return
        more = {"Accept-Ranges": "bytes", "Cache-Control": "private, max-age=3600",
                "Content-Disposition": "inline"}
        status = HTTPStatus.OK
        if asked:
            status = HTTPStatus.PARTIAL_CONTENT
            more["Content-Range"] = f"bytes {start}-{stop - 1}/{blob.size}"
        self._head(status, blob.kind, stop - start, more)
        if self.command != "HEAD":
            self._stream(blob, start, stop)

    def _stream(self, blob: Blob, start: int, stop: int) -> None:
        """What fails now comes too late for an answer: the connection ends, and the browser sees that."""
        try:
            for piece in blob.pieces(start, stop, PIECE_BYTES):
                self.wfile.write(piece)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            self._say(error)
            raise ConnectionAbortedError from error

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: neither the address of each picture nor a connection that lies idle is news."""

    def _say(self, error: Exception) -> None:
        super().log_message("%s: %r", self.path.partition("?")[0], error)


def _span(first: str, last: str, size: int) -> tuple[int, int]:
    """First byte and the one behind the last, of `bytes=first-last`; the last so many where `first` is
    empty."""
    if not first:
        return max(0, size - int(last or 0)), size
    return int(first), min(size, int(last) + 1 if last else size)
