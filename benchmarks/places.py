"""What it costs to run over a bucket: whole runs that read and write through one server of moto on this machine, which answers
each request after a delay, as a bucket does.

    pip install obstore 'moto[server]' s3fs
    python benchmarks/places.py                  # a table; --small 1000 --large 4 --delay 20 --turns 2

`s3fs`: as a run does it, with small files fetched ahead of their reader. `one by one`: without that. `obstore`: its adapter for
fsspec in the place of s3fs, with what the adapter lacks put right (below), files fetched ahead. All give the same records.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request

SERVER = """
import sys, time
import moto.server
answer = moto.server.DomainDispatcherApplication.__call__
def late(self, environ, start):
    time.sleep(float(sys.argv[2]) / 1000)
    return answer(self, environ, start)
moto.server.DomainDispatcherApplication.__call__ = late
moto.server.ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False).start()
sys.stdin.read()
"""
WAYS = ("s3fs", "one by one", "obstore")


def put_obstore() -> None:
    """Have `s3://` mean obstore."""
    import fsspec
    from obstore.fsspec import FsspecStore

    class S3(FsspecStore):
        protocol = "s3"

        def __init__(self, endpoint_url: str | None = None, **more) -> None:
            super().__init__(endpoint=endpoint_url or "", virtual_hosted_style_request=False, client_options={"allow_http": True}, **more)

        async def _info(self, path: str, **more) -> dict:  # its own leaves the bucket out of a file's name
            found = await super()._info(path, **more)
            bucket, key = self._split_path(path)
            return found | {"name": f"{bucket}/{key}", "ETag": found.get("e_tag")}

        async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more) -> None:  # its own ignores `mode`
            bucket, key = self._split_path(path)
            await self._construct_store(bucket).put_async(key, value, mode=mode)

    fsspec.register_implementation("s3", S3, clobber=True)


def one_run(way: str, endpoint: str, out: str) -> None:
    """In a process of its own: prints the seconds of wall and of CPU, and how many records were written."""
    import curator.io.files.folder as files
    from curator import read, write
    from curator.stages import Drop

    if way == "obstore":
        put_obstore()
    if way == "one by one":
        files._AHEAD_BYTES = 0
    options = {"endpoint_url": endpoint}
    began, before = time.perf_counter(), time.process_time()
    made = read("s3://bucket/in/", format="jsonl", storage_options=options) >> Drop(conditions={"short": "length(text) < 20"})
    ended = (made >> write(f"s3://bucket/{out}", format="parquet", storage_options=options)).named("x", storage_options=options).run(
        workers=0)
    print(json.dumps([time.perf_counter() - began, time.process_time() - before, ended.records["written"]]))


def fill(endpoint: str, small: int, large: int) -> None:
    """Files of 4 KB and of 16 MB."""
    import s3fs

    def lines(name: str, count: int) -> bytes:
        return "".join(json.dumps({"id": f"{name}-{n}", "text": f"line {n} of {name} " * 20}) + "\n" for n in range(count)).encode()

    files = {f"bucket/in/s{n:05}.jsonl": lines(f"s{n}", 10) for n in range(small)}
    files |= {f"bucket/in/l{n}.jsonl": lines(f"l{n}", 40_000) for n in range(large)}
    fs = s3fs.S3FileSystem(endpoint_url=endpoint)
    for at in range(0, len(files), 200):
        fs.pipe(dict(list(files.items())[at:at + 200]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=1000)
    parser.add_argument("--large", type=int, default=4)
    parser.add_argument("--delay", type=float, default=20, help="milliseconds")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--port", type=int, default=5557)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1", "NO_PROXY": "127.0.0.1"}
    endpoint = f"http://127.0.0.1:{given.port}"
    if given.run:
        one_run(given.run[0], endpoint, given.run[1])
        return
    with subprocess.Popen([sys.executable, "-c", SERVER, str(given.port), str(given.delay)], stdin=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as server:
        for _ in range(200):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT")).close()
                break
            except OSError:
                time.sleep(0.1)
        fill(endpoint, given.small, given.large)
        turns: dict[str, list[list[float]]] = {way: [] for way in WAYS}
        for number in range(given.turns):
            for way in WAYS if number % 2 else reversed(WAYS):
                told = subprocess.run([sys.executable, __file__, "--port", str(given.port), "--run", way, f"{way}-{number}"],
                                      stdout=subprocess.PIPE, check=True).stdout
                turns[way].append(json.loads(told.splitlines()[-1]))
        server.stdin.close()
        server.terminate()
    assert len({records for found in turns.values() for _, _, records in found}) == 1, "not the same records"
    print("| | wall, s | CPU, s | times as long as s3fs |\n| --- | --- | --- | --- |")
    wall, cpu = ({way: statistics.median(one[at] for one in turns[way]) for way in WAYS} for at in (0, 1))
    for way in WAYS:
        print(f"| {way} | {wall[way]:.1f} | {cpu[way]:.1f} | {wall[way] / wall['s3fs']:.2f} |")


if __name__ == "__main__":
    main()
