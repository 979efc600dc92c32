"""How fast files of S3 are read and written: s3fs, which the core uses, beside obstore, through one server of moto on this machine.

    pip install obstore 'moto[server]' s3fs
    python benchmarks/places.py                  # a table; --small 2000 --large 16 for other counts

The server takes most of the time, so figures are ratios: CPU seconds of the client's own process, and wall time, each the median
of three turns that take each other's place. Objects are made new for each turn.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable

SMALL, LARGE = 4 << 10, 8 << 20
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False)
server.start()
sys.stdin.read()
"""


def s3fs_way(endpoint: str) -> tuple[Callable, Callable, Callable]:
    """As `curator/io/files/remote.py` does it: an open file to write, a file read whole, many small ones together."""
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=endpoint, key="k", secret="s")

    def write(name: str, data: bytes) -> None:
        with fs.open(f"bucket/{name}", "wb") as file:
            file.write(data)

    def read(name: str) -> int:
        with fs.open(f"bucket/{name}", "rb") as file:
            return len(file.read())

    return write, read, lambda names: sum(map(len, fs.cat([f"bucket/{name}" for name in names]).values()))


def obstore_way(endpoint: str) -> tuple[Callable, Callable, Callable]:
    """The same by obstore's own calls; many small ones by as many threads as s3fs has requests under way."""
    from concurrent.futures import ThreadPoolExecutor

    import obstore
    from obstore.store import S3Store

    store = S3Store("bucket", endpoint=endpoint, access_key_id="k", secret_access_key="s", region="us-east-1",
                    virtual_hosted_style_request=False, client_options={"allow_http": True})
    pool = ThreadPoolExecutor(32)

    def write(name: str, data: bytes) -> None:
        with obstore.open_writer(store, name) as file:
            file.write(data)

    def read(name: str) -> int:
        return len(obstore.get(store, name).bytes())

    return write, read, lambda names: sum(pool.map(read, names))


WAYS = {"s3fs": s3fs_way, "obstore": obstore_way}


def turn(way: str, endpoint: str, small: int, large: int, number: int) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds of each kind of work."""
    write, read, together = WAYS[way](endpoint)
    little, much = os.urandom(SMALL), os.urandom(LARGE)
    names = {"small": [f"{way}/{number}/s{i}" for i in range(small)], "large": [f"{way}/{number}/l{i}" for i in range(large)]}
    found = {}
    work: dict[str, Callable[[], object]] = {
        f"write {small} of 4 KB": lambda: [write(name, little) for name in names["small"]],
        f"read {small} of 4 KB": lambda: [read(name) for name in names["small"]],
        f"read {small} of 4 KB together": lambda: together(names["small"]),
        f"write {large} of 8 MB": lambda: [write(name, much) for name in names["large"]],
        f"read {large} of 8 MB": lambda: [read(name) for name in names["large"]]}
    for what, do in work.items():
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        do()
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found[what] = (time.perf_counter() - began, cpu)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=300)
    parser.add_argument("--large", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--port", type=int, default=5557)
    given = parser.parse_args()
    os.environ |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1", "NO_PROXY": "127.0.0.1"}
    endpoint = f"http://127.0.0.1:{given.port}"
    with subprocess.Popen([sys.executable, "-c", SERVER, str(given.port)], stdin=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as server:
        for _ in range(200):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT")).close()
                break
            except OSError:
                time.sleep(0.1)
        turns: dict[str, list[dict[str, tuple[float, float]]]] = {way: [] for way in WAYS}
        for number in range(given.turns):
            for way in WAYS if number % 2 else reversed(WAYS):
                turns[way].append(turn(way, endpoint, given.small, given.large, number))
        server.stdin.close()
        server.terminate()
    print("| work | s3fs wall, s | obstore wall, s | ratio | s3fs CPU, s | obstore CPU, s |\n| --- | --- | --- | --- | --- | --- |")
    for what in turns["s3fs"][0]:
        wall, cpu = ({way: statistics.median(one[what][at] for one in turns[way]) for way in WAYS} for at in (0, 1))
        print(f"| {what} | {wall['s3fs']:.2f} | {wall['obstore']:.2f} | {wall['s3fs'] / wall['obstore']:.2f} | {cpu['s3fs']:.2f} | "
              f"{cpu['obstore']:.2f} |")


if __name__ == "__main__":
    main()
