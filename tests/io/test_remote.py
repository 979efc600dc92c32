"""S3 (moto's server) and HTTP (Python's), each one real server for the module."""

from __future__ import annotations

import functools
import gzip
import http.server
import threading

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs
from curator.io.files.faults import fault
from curator.io.files.folder import Folder, _fetched, list_files, open_input
from curator.io.files.remote import RemoteFiles
from curator.io.media.files import Files
from curator.io.tables.csv import Csv, ToCsv
from curator.io.tables.jsonl import Jsonl, ToJsonl
from curator.io.tables.parquet import Parquet, ToParquet


def rows(**columns) -> pa.Table:
    return pa.table({"id": [f"r{i}" for i in range(len(next(iter(columns.values()))))], **columns})


def test_a_folder_on_s3(bucket, s3_options):
    folder = Folder.open(bucket + "/a/b", s3_options)
    assert not folder.is_local
    assert folder.names() == []
    folder.make()
    folder.write("x", b"one")
    folder.write("x", b"two")
    folder.sub("deep").write("y", b"")
    assert folder.read("x") == b"two"
    assert (folder.names(), folder.names(recursive=True)) == (["x"], ["deep/y", "x"])
    assert folder.exists("x")
    assert folder.exists("deep")
    assert not folder.exists("z")
    folder.delete(["x", "z"])
    assert folder.names() == []
    with pytest.raises(InputError, match=r"cannot read s3://.*/a/b/x: it does not exist"):
        folder.read("x")


def test_listings_are_never_old(bucket, s3_options):
    folder, other = Folder.open(bucket + "/in", s3_options), Folder.open(bucket + "/in", s3_options)
    folder.write("a.jsonl", b"{}")
    assert [f.uri for f in list_files(folder.uri, s3_options)] == [bucket + "/in/a.jsonl"]
    before = list_files(folder.uri, s3_options)[0].version
    other.write("a.jsonl", b"[]")
    other.write("b.jsonl", b"{}")
    after = list_files(folder.uri + "/*.jsonl", s3_options)
    assert [f.uri for f in after] == [bucket + "/in/a.jsonl", bucket + "/in/b.jsonl"]
    assert after[0].version != before
    assert folder.exists("b.jsonl")


@pytest.mark.parametrize(("path", "names"), [
    ("", ["a.jsonl", "y1/b.jsonl", "y1/m/c.jsonl"]), ("*.jsonl", ["a.jsonl"]), ("y?/*.jsonl", ["y1/b.jsonl"]),
    ("**/*.jsonl", ["a.jsonl", "y1/b.jsonl", "y1/m/c.jsonl"]), ("y*", ["y1/b.jsonl", "y1/m/c.jsonl"])])
def test_globs_and_folders_on_s3(bucket, s3_options, path, names):
    folder = Folder.open(bucket + "/in", s3_options)
    for name in ("a.jsonl", "y1/b.jsonl", "y1/m/c.jsonl", "_run/x.jsonl", "dropped/s/d.jsonl"):
        folder.write(name, b"{}")
    found = list_files(folder.path_of(path) if path else folder.uri, s3_options)
    assert [f.uri[len(folder.uri) + 1:] for f in found] == names


def test_missing_things_on_s3(bucket, s3_options):
    Folder.open(bucket, s3_options).write("in/docs.jsonl", b"{}")
    with pytest.raises(InputError, match=r"in/doc.jsonl does not exist. The nearest folder .* docs.jsonl"):
        list_files(bucket + "/in/doc.jsonl", s3_options)
    with pytest.raises(InputError, match=r"in/\*.gz matches no file"):
        list_files(bucket + "/in/*.gz", s3_options)


def test_a_bucket_that_is_missing_is_named(bucket, s3_options):
    for path, said in {"x": "does not exist", "": "does not exist", "x/*.jsonl": "matches no file"}.items():
        with pytest.raises(InputError, match=rf"{said}: there is no bucket s3://no-such-bucket$"):
            list_files(f"s3://no-such-bucket/{path}".rstrip("/"), s3_options)
        with pytest.raises(InputError, match=rf"{said}$"):  # an empty one is there
            list_files(f"{bucket}/{path or 'y'}", s3_options)
    folder = Folder.open("s3://no-such-bucket/out", s3_options)
    for doing, do in {"write": lambda: folder.write("a", b""), "list": lambda: folder.names(recursive=True),
                      "read": lambda: folder.read("a")}.items():
        with pytest.raises(InputError, match=rf"cannot {doing} s3://no-such-bucket/out.*: there is no bucket "
                                             r"s3://no-such-bucket\. To go on, make it or name another"):
            do()


@pytest.mark.parametrize(("protocol", "said"), [("gs", "bucket gs://b"), ("az", "container az://b"), ("hf", None)])
def test_a_missing_bucket_of_another_store_is_named(protocol, said):
    """What gcsfs and adlfs raise where there is none says the path only."""
    told = str(fault(FileNotFoundError("b/x"), "write", f"{protocol}://b/x"))
    assert (f"there is no {said}." in told) if said else ("there is no" not in told)
    assert "there is no" not in str(fault(FileNotFoundError("b/x"), "read", f"{protocol}://b/x"))
    gone = FileNotFoundError("The specified upload does not exist.")
    assert "there is no" not in str(fault(gone, "write", f"{protocol}://b/x"))


def test_an_upload_appears_whole_or_not_at_all(bucket, s3_options):
    folder = Folder.open(bucket, s3_options)
    file = folder.open_file("big", "wb")
    for _ in range(12):
        file.write(b"x" * (1 << 20))  # more than one part of a multipart upload
    assert folder.names() == []
    file.abort()
    del file
    assert folder.names() == []
    with folder.open_file("big", "wb") as file:
        for _ in range(60):
            file.write(b"x" * (1 << 20))
    assert list_files(bucket, s3_options)[0].size_bytes == 60 << 20


@pytest.mark.parametrize(("sink", "source"), [(ToJsonl, Jsonl), (ToParquet, Parquet), (ToCsv, Csv)])
def test_what_is_written_to_s3_is_read_in_units(bucket, s3_options, read_all, write_all, sink, source):
    place = {"path": bucket + "/out", "storage_options": s3_options}
    plain = {"compression": "none"} if sink is not ToParquet else {}
    files = write_all(sink(**place, **plain), *(rows(n=list(range(k, k + 100))) for k in range(0, 3000, 100)))
    assert [f.path.startswith(bucket + "/out/part-x-a0-000.") for f in files] == [True]
    assert files[0].size_bytes == list_files(bucket + "/out", s3_options)[0].size_bytes
    found = read_all(source(**place, unit_bytes=5000))
    assert [int(n) for n in found.column("n")] == list(range(3000))


def test_an_aborted_writer_leaves_nothing_on_s3(bucket, s3_options):
    writer = ToJsonl(path=bucket, storage_options=s3_options, target_bytes=1).open("part")
    for _ in range(2):
        writer.write(Batch(rows=rows(n=[1])))
    writer.abort()
    assert Folder.open(bucket, s3_options).names() == []


def test_a_server_that_cannot_be_reached_says_so():
    options = {"endpoint_url": "http://127.0.0.1:9", "key": "x", "secret": "y",
               "config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1}}
    with pytest.raises(InputError, match=r"cannot list s3://bucket/x"):
        list_files("s3://bucket/x", options)


# -- fetched ahead ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """The files that are opened, and those that are fetched whole, as they are asked for."""
    found = {"read": [], "read_all": []}
    for how, names in found.items():
        own = getattr(RemoteFiles, how)
        monkeypatch.setattr(RemoteFiles, how, lambda files, uris, own=own, names=names: (names.append(uris), own(files, uris))[1])
    return found


def test_small_files_elsewhere_are_fetched_side_by_side_while_one_is_read(bucket, s3_options, monkeypatch, asked):
    together, fetch = threading.Barrier(4), RemoteFiles.read_all
    monkeypatch.setattr(RemoteFiles, "read_all", lambda files, uris: (together.wait(5), fetch(files, uris))[1])
    for n in range(4):
        with Folder.open(bucket + "/in", s3_options).open_file(f"{n}.jsonl.gz", "wb") as file:
            file.write(gzip.compress(b'{"n": %d}\n' % n))
    source = Jsonl(path=bucket + "/in", storage_options=s3_options)
    (unit,) = source.units()
    asked["read"].clear()
    assert [batch.column("n") for batch in source.read(unit)] == [[0], [1], [2], [3]]
    assert asked["read"] == []


def test_what_cannot_be_fetched_ahead_is_opened_and_no_more_is_held_than_allowed(monkeypatch, asked):
    folder = Folder.open("memory://ahead/in")
    for n in range(6):
        folder.write(f"{n}.jsonl", b'{"n": %d}\n' % n)
    source = Jsonl(path=folder.uri)
    (unit,) = source.units()
    folder.delete("3.jsonl")
    monkeypatch.setattr("curator.io.files.folder._AHEAD_BYTES", 3 * 9)
    reading = source.read(unit)
    assert next(reading).column("n") == [0]
    assert len(asked["read_all"]) <= 3
    open_input(f"{folder.uri}/1.jsonl", {"of": "another reader"}).close()
    assert asked["read"].pop() == f"{folder.uri}/1.jsonl"
    rest = [found["failed"].column("error")[0] if isinstance(found, Outputs) else found.column("n") for found in reading]
    assert rest[:2] + rest[3:] == [[1], [2], [4], [5]]
    assert "3.jsonl: it does not exist" in rest[2]
    stopped = source.read(unit)
    next(stopped)
    stopped.close()
    assert not _fetched


def test_what_is_too_large_to_be_read_is_not_fetched(asked):
    folder = Folder.open("memory://too-large/in")
    for n in range(4):
        folder.write(f"{n}.bin", bytes(10 * n))
    source = Files(path=folder.uri, max_file_bytes=15)
    (unit,) = source.units()
    found = [{port: len(batch) for port, batch in outputs.items()} for outputs in source.read(unit)]
    assert sum(ports.get("out", 0) for ports in found) == sum(ports.get("dropped", 0) for ports in found) == 2
    assert {name for names in asked["read_all"] for name in names} <= {f"{folder.uri}/{n}.bin" for n in (0, 1)}
    assert asked["read"] == [f"{folder.uri}/0.bin", f"{folder.uri}/1.bin"]


def test_a_machine_that_paths_leave_out_stays_in_their_names():
    class Elsewhere(MemoryFileSystem):
        protocol = "elsewhere"

        def __init__(self, host: str, **options) -> None:
            super().__init__(**options)

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.partition("://")[2].partition("/")[2] if "://" in path else path

    fsspec.register_implementation("elsewhere", Elsewhere, clobber=True)
    folder = Folder.open("elsewhere://host/in", {"host": "host"})
    folder.write("a/b.txt", b"x")
    assert (folder.names(recursive=True), folder.read("a/b.txt")) == (["a/b.txt"], b"x")
    assert [file.uri for file in list_files("elsewhere://host/in", {"host": "host"})] == ["elsewhere://host/in/a/b.txt"]


# -- HTTP -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def website(tmp_path_factory):
    pytest.importorskip("aiohttp")
    folder = tmp_path_factory.mktemp("site")
    (folder / "a.jsonl").write_text('{"n":1}\n{"n":2}\n')
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b'{"n":3}\n'))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


def test_files_are_read_from_the_web(website, read_all):
    found = read_all(Jsonl(path=[website + "/a.jsonl", website + "/b.jsonl.gz"]))
    assert found.column("n") == [1, 2, 3]
    assert found.column("source")[0] == website + "/a.jsonl"
    assert open_input(website + "/a.jsonl").read() == b'{"n":1}\n{"n":2}\n'


def test_a_missing_page(website):
    with pytest.raises(InputError, match=r"/nope.jsonl does not exist"):
        list_files(website + "/nope.jsonl")


def test_the_web_cannot_be_written(website):
    with pytest.raises(InputError, match="cannot write http://"):
        Folder.open(website).write("x", b"")


def test_many_small_files_are_read_together_and_in_order():
    folder = Folder.open("memory://many/small")
    names = [f"{n % 3}/{n}" for n in range(1203)]
    for name in names:
        folder.write(name, name.encode())
    assert list(folder.read_all(names[::-1])) == [name.encode() for name in names[::-1]]
    assert list(folder.read_all([])) == []
