"""From a manifest of URLs to media."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from io import SEEK_END
from queue import SimpleQueue
from typing import Any, BinaryIO
from urllib.parse import urljoin

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.io.files.confined import located
from curator.io.files.faults import explained
from curator.io.files.folder import open_input
from curator.io.http.addresses import host_of
from curator.io.http.client import Client, Fetched, Limits
from curator.io.http.room import Room, Share
from curator.io.media.types import is_wanted, settled
from curator.stages.fetch.hosts import RowsByHost
from curator.stages.fetch.opt_out import OPT_OUT, opts_out

MAX_BYTES = 1 << 30  # a column of Arrow's binary type ends at 2 GiB
PART_BYTES = 16 << 20  # of finished rows that wait for company
HELD_BYTES = 64 << 20  # of all that was fetched and is not sent on; one file may go beyond
# links of pages that are no path
_OTHER = re.compile(r"(data|blob|about|javascript|mailto|tel):", re.IGNORECASE)


@dataclass(kw_only=True)
class Fetch(Stage):
    """Get what the URLs of a manifest name: the files themselves, from web servers, buckets and folders.

    Adds `bytes` (binary), `extension` (string, lower case, without dot: by the content type, else by the URL;
    null if neither tells), `content_type` (string: as the server says, in lower case and without parameters;
    where it says nothing of use, by the URL's ending; null if unknown) and `fetched_url` (string: where it
    was found, after redirects).

    What a server answered for good leaves on `dropped`, with the reason `no_url`, `bad_url` (neither http nor
    https, or unreadable), `private_address`, `http_404` and the like, `redirects` (more than 5), `opt_out`,
    `content_type`, `too_large`; of a path `no_root`, `outside_root`, `not_found`. What may be different next
    time leaves on `failed`: timeouts, HTTP 429 and 5xx after all tries, broken connections, unknown names.

    `column`: the URLs or paths. `into`: the column of the bytes. `content_types`: those that are wanted, such
    as `image/*`; null for all. `max_bytes`: a larger file is neither read to its end nor decompressed to it.
    `user_agent`: what servers are told; give a name and a contact, such as `mylab-curator/1.0
    (+https://mylab.example/crawler)`.

    `opt_out`: headers that keep a file from being fetched: directives of X-Robots-Tag, addressed to everybody
    or to the name in `user_agent`, and `tdm-reservation`; `[]` for none. robots.txt is not read.

    `private`: also fetch from addresses outside the public internet (this machine, 10.0.0.0/8, a cloud's
    metadata server), which a stranger's manifest could otherwise read from inside your network. `root`: the
    folder or URL that paths in the column are relative to and must lie below, `..` and links followed.
    Everything that is no http URL (`photos/1.jpg`, `file://`, `s3://`) is a path. Without `root` none is
    read, for the records of a manifest may claim any `source`; `/` allows all of this disk.

    `threads`: requests at a time, in each worker. `per_host`: at a time to one host, in each worker.
    `retries`: further tries, with `backoff_s` seconds before the first and twice as long before each next
    one, or as long as the server says in Retry-After. `connect_timeout_s`, `read_timeout_s`: for a
    connection, and for the silence of a server. `deadline_s`: for a record, all in all (the lookup of a name
    is not interrupted). `proxy`: the URL of a proxy; those of the environment are not used, because behind
    one the check of addresses is the proxy's. `storage_options`: what the filesystem of `root` wants.

    Rows go on as they finish, so that a slow host does not hold the others: rows that finish far apart may
    change places. Memory: all that a worker has fetched and not sent on, finished and on its way,
    decompressed, is at most 64 MiB and one file more (`max_bytes`). Who would hold more waits; that is no
    time of the server's and does not count for `deadline_s`.
    """

    column: str = "url"
    into: str = "bytes"
    content_types: list[str] | None = None
    max_bytes: int = 1 << 25
    user_agent: str = "curator (collects data for training)"
    opt_out: list[str] = field(default_factory=lambda: list(OPT_OUT))
    private: bool = False
    root: str | None = None
    threads: int = setting(default=32)
    per_host: int = setting(default=8)
    retries: int = setting(default=2)
    backoff_s: float = setting(default=0.5)
    connect_timeout_s: float = setting(default=10.0)
    read_timeout_s: float = setting(default=20.0)
    deadline_s: float = setting(default=60.0)
    proxy: str | None = setting(default=None)
    storage_options: dict[str, Any] | None = setting(default=None)

    # It waits more than it computes: a few workers share a core. Many rows a call, for at its end the threads
    # run dry.
    resources = Resources(cpus=0.25)
    batch_size = 1000

    def __post_init__(self) -> None:
        self.at_least(1, "threads", "per_host", "max_bytes")
        self.at_least(0, "retries", "backoff_s")
        for name in ("connect_timeout_s", "read_timeout_s", "deadline_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is seconds, more than 0, got {getattr(self, name)}")
        if self.max_bytes > MAX_BYTES:
            raise ValueError(f"max_bytes must be at most {MAX_BYTES}, which fits into a column, got "
                             f"{self.max_bytes}")
        if self.into in ("id", "source", "extension", "content_type", "fetched_url", self.column):
            raise ValueError(f"into names the new column of the bytes, and {self.into!r} is another one; "
                             "choose another name")
        for name in ("content_types", "opt_out"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is a list, got the text {getattr(self, name)!r}")
        if self.content_types == []:
            raise ValueError("content_types names no type, so that nothing would be kept; leave it out to "
                             "keep all")
        shouted = [directive for directive in self.opt_out if directive != directive.lower()]
        if shouted:
            raise ValueError(f"opt_out: write directives in lower case, got {', '.join(shouted)}")
        if not self.user_agent.strip() or not self.user_agent.isprintable() or not self.user_agent.isascii():
            raise ValueError("user_agent is a line of ASCII with a name and a contact, got "
                             f"{self.user_agent!r}")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds={
            self.into: pa.binary(), "extension": pa.string(), "content_type": pa.string(),
            "fetched_url": pa.string()})

    def setup(self, ctx: Context) -> None:
        limits = Limits(**{name: getattr(self, name) for name in Limits.__dataclass_fields__})
        # Media are compressed already; a server that compresses all the same is understood.
        headers = {"User-Agent": self.user_agent, "Accept": "*/*", "Accept-Encoding": "identity"}
        self._client = Client(limits, headers, self._refused, private=self.private, proxy=self.proxy,
                              per_host=self.per_host)
        self._room = Room(HELD_BYTES)
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="fetch")

    def close(self) -> None:
        self._room.close()
        self._client.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def process(self, batch: Batch) -> Iterator[Outputs]:
        urls = [url.strip() if isinstance(url, str) else "" for url in batch.column(self.column)]
        waiting = RowsByHost([host_of(url) if _is_web(url) else "" for url in urls], self.per_host)
        done: SimpleQueue[Future[Fetched] | None] = SimpleQueue()  # None: somebody waits for room
        running: dict[Future[Fetched], int] = {}
        finished: dict[int, Fetched] = {}
        finished_bytes = 0
        shares: dict[int, Share] = {}
        self._room = room = Room(HELD_BYTES, lambda: done.put(None))

        def sent_on() -> Outputs:
            """The answers to what is finished, which is kept here no longer."""
            outputs = self._answers(batch, finished)
            for row in finished:
                shares.pop(row).shrink()
            finished.clear()
            return outputs

        try:
            while waiting or running:
                while len(running) < self.threads and (row := waiting.take()) is not None:
                    shares[row] = Share(room)
                    asked = self._pool.submit(self._fetch, urls[row], shares[row])
                    running[asked] = row
                    asked.add_done_callback(done.put)
                    del asked  # it will keep its result
                future = done.get()
                if future is not None:
                    row = running.pop(future)
                    waiting.give_back(row)
                    finished[row] = future.result()
                    finished_bytes += len(finished[row].data or b"")
                    del future  # it keeps its result
                if finished and (room.crowded or finished_bytes >= PART_BYTES):
                    finished_bytes = 0
                    yield sent_on()
            if finished:
                yield sent_on()
        finally:
            room.close()
            if running:  # nobody wants the rest of this call
                self._client.abort()

    def _fetch(self, url: str, share: Share) -> Fetched:
        """What became of a URL or path; called in a thread of the pool. In the end `share` holds what
        came."""
        found = Fetched(reason="no_url")
        try:
            if self.root is not None and not _is_web(url) and _is_web(self.root):
                url = urljoin(self.root.rstrip("/") + "/", url)
            if url:
                found = self._client.get(url, share) if _is_web(url) else self._read(url, share)
            return found
        finally:
            share.shrink(len(found.data or b""))

    def _refused(self, url: str, headers: Mapping[str, str], redirect: bool) -> str | None:
        """Why an answer with these headers is not taken; None if it is."""
        if opts_out(headers, self.opt_out, self.user_agent.split("/")[0].split(" ")[0]):
            return "opt_out"
        if redirect or self.content_types is None:
            return None
        return None if is_wanted(settled(headers.get("Content-Type"), url)[0],
                                 self.content_types) else "content_type"

    def _read(self, path: str, share: Share) -> Fetched:
        """The file at a path, which must lie below `root`."""
        if _OTHER.match(path):
            return Fetched(reason="bad_url")
        if self.root is None:
            return Fetched(reason="no_root")
        try:
            place = located(path, self.root)
        except ValueError:
            return Fetched(reason="bad_url")
        if place is None:
            return Fetched(reason="outside_root")
        if self.content_types is not None and not is_wanted(settled(None, place)[0], self.content_types):
            return Fetched(url=place, reason="content_type")
        try:
            with explained("read", place), open_input(place, self.storage_options, compression=None) as file:
                data = self._content(file, share)
        except InputError as error:
            gone = isinstance(error.__cause__, (FileNotFoundError, IsADirectoryError, NotADirectoryError))
            return Fetched(url=place, reason="not_found") if gone else Fetched(url=place, error=str(error))
        return Fetched(url=place, data=data, reason="too_large" if data is None else None)

    def _content(self, file: BinaryIO, share: Share) -> bytes | None:
        """All of a file; None if it is too large, of which no more is read than tells it."""
        if file.seekable():
            size = file.seek(0, SEEK_END)
            file.seek(0)
            if size > self.max_bytes:
                return None
            share.grow(size)
        else:
            share.grow(self.max_bytes)
        data = file.read(self.max_bytes + 1)
        return data if len(data) <= self.max_bytes else None

    def _answers(self, batch: Batch, finished: Mapping[int, Fetched]) -> Outputs:
        """The finished rows, in their order, on the ports where they belong."""
        rows: dict[str, list[int]] = {}
        for row, one in sorted(finished.items()):
            port = "dropped" if one.reason else "failed" if one.error else "out"
            rows.setdefault(port, []).append(row)
        outputs = Outputs()
        for port, taken in rows.items():
            found = [finished[row] for row in taken]
            kinds = [settled(one.content_type, one.url or "") for one in found]
            answer = batch.take(taken).with_columns({
                self.into: pa.array([one.data for one in found], pa.binary()),
                "extension": pa.array([ending for _, ending in kinds], pa.string()),
                "content_type": pa.array([kind for kind, _ in kinds], pa.string()),
                "fetched_url": pa.array([one.url for one in found], pa.string())})
            if port == "dropped":
                answer = answer.with_reason([one.reason or "" for one in found])
            elif port == "failed":
                answer = answer.with_error([one.error or "" for one in found])
            outputs[port] = answer
        return outputs


def _is_web(url: str) -> bool:
    return url[:8].lower().startswith(("http://", "https://"))
