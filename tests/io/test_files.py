from __future__ import annotations

import errno
import os
import pickle
import resource
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from curator.api.errors import InputError
from curator.io.files.compression import codec_of, compressed
from curator.io.files.faults import explained, fault
from curator.io.files.folder import Folder, list_files, open_input


def fill(place: str, *names: str) -> Folder:
    folder = Folder.open(place)
    for name in names:
        folder.write(name, b"x")
    return folder


def packed(folder: Folder, name: str, codec: str | None = None):
    """A file to write, compressed by its name or by `codec`."""
    return compressed(folder.open_file(name, "wb"), codec or codec_of(name))


def listed(place: str, path: str, **settings) -> list[str]:
    """The names that a path below the folder stands for."""
    folder = Folder.open(place)
    return [f.uri[len(folder.uri) + 1:] for f in list_files(folder.path_of(path) if path else folder.uri, **settings)]


# -- a folder -----------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_listed_and_deleted(place):
    folder = Folder.open(place)
    assert folder.names() == []
    assert not folder.exists("a")
    folder.write("a", b"one")
    folder.write("a", b"two")
    folder.sub("deep").sub("er").write("b", b"")
    assert folder.read("a") == b"two"
    assert folder.names() == ["a"]
    assert folder.names(recursive=True) == ["a", "deep/er/b"]
    assert folder.exists("a")
    assert folder.exists("deep/er")
    folder.delete(["a", "not there"])
    assert folder.names() == []


def test_a_folder_survives_pickling(place):
    folder = fill(place, "a")
    assert pickle.loads(pickle.dumps(folder)).read("a") == b"x"


def test_a_second_run_sees_new_files(place):
    folder = fill(place, "a")
    assert [f.uri for f in list_files(place)] == [folder.path_of("a")]
    fill(place, "b")
    assert len(list_files(place)) == 2
    assert folder.names() == ["a", "b"]


def test_the_version_changes_with_the_content(place):
    folder = fill(place, "a")
    before = list_files(place)[0]
    folder.write("a", b"y")
    after = list_files(place)[0]
    assert (before.uri, before.size_bytes) == (after.uri, after.size_bytes)
    assert before.version != after.version


def test_readers_of_one_file_do_not_disturb_each_other(place):
    folder = Folder.open(place)
    folder.write("a", b"0123456789")
    one, two = folder.open_file("a"), folder.open_file("a")
    assert (one.read(3), two.read(2), one.read(3)) == (b"012", b"01", b"345")


def test_a_missing_file_says_so(place):
    with pytest.raises(InputError, match=r"cannot read .*/nope: it does not exist"):
        Folder.open(place).read("nope")


def test_paths_are_absolute_and_file_urls_are_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill("data", "a")
    assert Folder.open("data").uri == str(tmp_path / "data")
    assert Folder.open(f"file://{tmp_path}/data").read("a") == b"x"
    assert [f.uri for f in list_files("data/*")] == [str(tmp_path / "data" / "a")]


# -- a file appears whole or not at all -----------------------------------------------------------------------------


def test_nothing_has_the_final_name_before_close(place):
    folder = Folder.open(place)
    file = folder.open_file("a", "wb")
    file.write(b"half")
    assert folder.names() == []
    file.close()
    assert folder.read("a") == b"half"
    assert folder.everything() == ["a"]


def test_an_aborted_file_leaves_nothing(place):
    folder = Folder.open(place)
    file = folder.open_file("a", "wb")
    file.write(b"half")
    file.abort()
    with pytest.raises(ZeroDivisionError), folder.open_file("b", "wb") as file:
        file.write(b"%d" % (1 // (file.tell() - 0)))
    assert folder.everything() == []


def test_what_a_killed_process_left_is_no_file_of_the_folder_and_can_be_found(tmp_path):
    folder = fill(str(tmp_path), "a")
    (tmp_path / ".tmp-b.jsonl.1234").write_bytes(b"half")
    assert folder.names() == ["a"]
    assert folder.everything() == [".tmp-b.jsonl.1234", "a"]


def test_a_file_that_nobody_closed_does_not_appear(place):
    folder = Folder.open(place)
    file = folder.open_file("a", "wb")
    file.write(b"half")
    del file
    assert folder.everything() == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_says_path_and_remedy_and_leaves_nothing(tmp_path, monkeypatch, call):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = Folder.open(str(tmp_path))
    monkeypatch.setattr(os, call, full)
    with pytest.raises(InputError, match=rf"cannot write {tmp_path}/a: the disk is full. To go on, free space"):
        folder.write("a", b"x")
    monkeypatch.undo()
    assert folder.everything() == []


@pytest.mark.parametrize(("number", "words"), [(errno.EACCES, "no permission"), (errno.EROFS, "read-only"),
                                               (errno.EDQUOT, "quota"), (errno.ENOENT, "write to another path")])
def test_a_place_that_cannot_be_written_says_why(tmp_path, monkeypatch, number, words):
    def refused(*_, **__):
        raise OSError(number, "no")

    monkeypatch.setattr("builtins.open", refused)
    with pytest.raises(InputError, match=rf"cannot write {tmp_path}/a: .*{words}"):
        Folder.open(str(tmp_path)).write("a", b"x")


def test_a_file_in_the_way_of_a_folder(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(InputError, match="a part of the path is a file"):
        Folder.open(str(tmp_path / "a")).write("b", b"x")


# -- what is not ours ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "/x", "../x", "a/../../x", "a/..", "..", "/"])
def test_a_name_that_does_not_lie_below_a_folder_is_never_removed(place, name):
    folder = Folder.open(place)
    folder.write("a/x", b"mine")
    Folder.open(place.rsplit("/", 1)[0]).write("x", b"mine")
    with pytest.raises(ValueError, match="no name of a file below"):
        folder.delete(["not there", name])
    assert folder.exists("a/x")
    assert folder.exists("../x") or place.startswith("memory")


def test_what_lies_behind_a_link_is_neither_listed_with_everything_nor_removed(tmp_path):
    away = fill(str(tmp_path / "away"), "a", "deep/b")
    folder = fill(str(tmp_path / "here"), "a", "in/b")
    (tmp_path / "here/link").symlink_to(tmp_path / "away")
    (tmp_path / "here/in/link").symlink_to(tmp_path / "away")
    (tmp_path / "here/file").symlink_to(tmp_path / "away/a")
    (tmp_path / "here/broken").symlink_to(tmp_path / "nothing")
    assert folder.everything() == ["a", "file", "in/b"]
    folder.delete(["link/a", "link/deep/b", "in/link/a", "broken/a", "a/b", "file"])
    assert away.everything() == ["a", "deep/b"]
    assert folder.everything() == ["a", "in/b"]


def test_a_folder_that_is_itself_a_link_is_that_folder(tmp_path):
    fill(str(tmp_path / "away"), "a/b", "c")
    (tmp_path / "here").symlink_to(tmp_path / "away")
    folder = Folder.open(str(tmp_path / "here"))
    folder.delete(folder.everything())
    assert folder.everything() == []


def test_a_link_in_the_place_of_a_file_is_replaced_and_what_it_names_stays(tmp_path):
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/a").symlink_to(tmp_path / "precious")
    Folder.open(str(tmp_path / "here")).write("a", b"ours")
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert (tmp_path / "here/a").read_bytes() == b"ours"


class Disk(LocalFileSystem):
    """A filesystem on which, unlike in a bucket, a file can be seen while it is written."""

    protocol = "disk"

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("disk://").strip("/")


def test_two_who_write_one_file_do_not_touch_what_the_other_has_begun(tmp_path):
    fsspec.register_implementation("disk", Disk, clobber=True)
    folder = Folder.open(f"disk:/{tmp_path}")
    first, second = folder.open_file("a", "wb"), folder.open_file("a", "wb")
    first.write(b"one")
    second.write(b"half")
    second.abort()
    first.close()
    assert folder.read("a") == b"one"
    assert folder.everything() == ["a"]


def test_folders_of_an_attempt_go_with_their_last_file(tmp_path):
    folder = fill(str(tmp_path), "data/part-a-0/x/1.flac", "data/part-a-0/2.flac", "data/sub/3.flac")
    folder.delete(["data/part-a-0/x/1.flac", "data/sub/3.flac"])
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["2.flac", "data", "part-a-0", "sub"]
    folder.delete("data/part-a-0/2.flac")
    begun = folder.open_file("data/part-b-0/4.flac", "wb")
    assert (tmp_path / "data/part-b-0").exists()
    begun.abort()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["data", "sub"]


# -- what a path names -----------------------------------------------------------------------------------------------


def test_a_folder_is_read_at_any_depth_without_hidden_names(place):
    fill(place, "b.txt", "a.txt", "sub/c.txt", ".hidden", "_SUCCESS", "_run/ledger/x", ".git/y", "sub/_temporary/z")
    assert listed(place, "") == ["a.txt", "b.txt", "sub/c.txt"]


def test_what_counts_as_hidden_can_be_said(place):
    fill(place, "__init__.py", ".git/x.py", "_in/b.py", "out/_run/x.py", "out/data/c.py", "out/dropped/x.py")
    assert listed(place, "", suffixes=(".py",)) == ["out/data/c.py"]
    for path in ("", "**", "**/*.py"):
        assert listed(place, path, suffixes=(".py",), hidden=".") == ["__init__.py", "_in/b.py", "out/data/c.py"]
    assert listed(place, "*", hidden=".")[:2] == ["__init__.py", "_in/b.py"]


def test_only_the_written_records_of_a_run_are_read(place):
    fill(place, "data/part-0.jsonl", "dropped/short/part-0.jsonl", "failed/x/part-0.jsonl", "clusters/near/part-0.parquet",
         "README.md", "_run/manifest.json", "other/dropped/kept.jsonl")
    assert listed(place, "") == ["data/part-0.jsonl", "other/dropped/kept.jsonl"]
    assert listed(place, "**/*.jsonl") == ["data/part-0.jsonl", "other/dropped/kept.jsonl"]
    assert listed(place, "*") == ["data/part-0.jsonl", "other/dropped/kept.jsonl"]
    assert listed(place, "dropped") == ["dropped/short/part-0.jsonl"]


def test_suffixes_choose_in_folders_only(place):
    fill(place, "a.JSONL", "b.jsonl.gz", "c.txt")
    wanted = (".jsonl", ".jsonl.gz")
    assert listed(place, "", suffixes=wanted) == ["a.JSONL", "b.jsonl.gz"]
    assert listed(place, "c.txt", suffixes=wanted) == ["c.txt"]
    assert listed(place, "c.*", suffixes=wanted) == ["c.txt"]
    assert listed(place, "**", suffixes=wanted) == ["a.JSONL", "b.jsonl.gz"]
    with pytest.raises(InputError, match=r"\*\* matches no file that ends in \.wav"):
        listed(place, "**", suffixes=(".wav",))


@pytest.mark.parametrize(("glob", "names"), [
    ("*.gz", ["b.gz"]),
    ("*", ["a.txt", "b.gz", "y1/a.txt", "y1/m/b.txt", "y2/c.txt"]),
    ("y?/*.txt", ["y1/a.txt", "y2/c.txt"]),
    ("y[1]", ["y1/a.txt", "y1/m/b.txt"]),
    ("y[!1]/*", ["y2/c.txt"]),
    ("**/b*", ["b.gz", "y1/m/b.txt"]),
    ("y1/**", ["y1/a.txt", "y1/m/b.txt"]),
    ("**/m/*.txt", ["y1/m/b.txt"]),
    (".h*", [".h.txt"]),
])
def test_globs(place, glob, names):
    fill(place, "a.txt", "b.gz", "y1/a.txt", "y1/m/b.txt", "y2/c.txt", ".h.txt", "_x/a.txt")
    assert listed(place, glob) == names


def test_a_name_that_looks_like_a_glob_is_a_name_if_it_exists(place):
    fill(place, "a[1].txt", "a1.txt")
    assert listed(place, "a[1].txt") == ["a[1].txt"]


def test_several_paths_give_each_file_once_in_order(place):
    folder = fill(place, "b", "a", "c")
    found = list_files([folder.path_of("c"), folder.path_of("[ab]"), folder.path_of("*")])
    assert [f.uri for f in found] == [folder.path_of(n) for n in "abc"]


def test_links_are_followed_but_not_in_circles(tmp_path):
    fill(str(tmp_path / "data"), "a/x")
    fill(str(tmp_path / "elsewhere"), "y")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "circle").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "broken").symlink_to(tmp_path / "nothing")
    (tmp_path / "data" / "itself").symlink_to(tmp_path / "data" / "itself")
    os.mkfifo(tmp_path / "data" / "pipe")
    assert listed(str(tmp_path / "data"), "") == ["a/x", "broken", "itself", "link/y"]


def test_a_missing_path_says_what_is_there(place):
    fill(place, "web/docs.jsonl", "web/other.jsonl")
    with pytest.raises(InputError, match=r"web/docs.json does not exist. The nearest folder that exists is .*/web "
                                         r"with 2 names: docs.jsonl, other.jsonl"):
        listed(place, "web/docs.json")
    with pytest.raises(InputError, match=r"wep/x/docs.json does not exist. .* with 1 names: web/"):
        listed(place, "wep/x/docs.json")


def test_an_empty_glob_says_what_is_there(place):
    fill(place, "web/docs.jsonl")
    with pytest.raises(InputError, match=r"web/\*.gz matches no file. .* with 1 names: docs.jsonl"):
        listed(place, "web/*.gz")


def test_a_folder_without_the_wanted_files_says_which_there_are(place):
    fill(place, "a.parquet", "b.parquet", "README", "x.tar.gz")
    with pytest.raises(InputError, match=r"has no .jsonl file: there are 2 .parquet, 1 .tar.gz, 1 no "
                       r"ending\. Take the reader of that format, or a glob if this one is to read them$"):
        listed(place, "", suffixes=(".jsonl",))


def test_an_empty_folder(tmp_path):
    with pytest.raises(InputError, match="has no files"):
        list_files(str(tmp_path))


@pytest.mark.parametrize(("path", "message"), [
    ("nope://a/b", "unknown protocol nope://"),
    ("s3x://a/b", "unknown protocol"),
    ([], "no path is given"),
])
def test_paths_that_cannot_be(path, message):
    with pytest.raises(InputError, match=message):
        list_files(path)


def test_a_missing_extra_says_the_command(monkeypatch):
    import fsspec

    def missing(*_, **__):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "filesystem", missing)
    with pytest.raises(InputError, match=r"need the package s3fs. Install it with: pip install 'curator-core\[s3\]'"):
        list_files("s3://bucket/x")
    with pytest.raises(InputError, match=r"pip install 'curator-core\[gcs\]'"):
        list_files("gs://bucket/x")


def test_two_names_that_are_told_alike_are_not_taken_for_one(tmp_path):
    for name in (b"a\xff", b"a\\xff"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    with pytest.raises(InputError, match=r"a\\xff is the name of two files"):
        list_files(str(tmp_path))


def test_what_fails_in_a_place_whose_name_is_not_utf8_is_told_as_text():
    told = str(fault(PermissionError(errno.EACCES, "no", "/d/\udcff"), "list", "/d"))
    assert told.encode().startswith(rb"cannot list /d/\xff: no permission")


def test_a_folder_without_permission(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    fill(str(tmp_path), "a")
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match=r"cannot list .*: no permission"):
        list_files(str(tmp_path))


# -- compressed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_compressed_file_reads_as_what_was_written(place, suffix):
    folder = Folder.open(place)
    uri = folder.path_of("a.txt" + suffix)
    with packed(folder, "a.txt" + suffix) as file:
        for i in range(1000):
            file.write(b"line %d\n" % i)
    with open_input(uri) as file:
        assert file.read() == b"".join(b"line %d\n" % i for i in range(1000))


def test_compression_can_be_said(place):
    folder = Folder.open(place)
    uri = folder.path_of("a.txt")
    with packed(folder, "a.txt", "gz") as file:
        file.write(b"hello")
    assert open_input(uri, compression="gz").read() == b"hello"
    with pytest.raises(InputError, match="unknown compression 'rar'"):
        open_input(uri, compression="rar")
    with pytest.raises(InputError, match="cannot write bz2"):
        packed(folder, "a.txt", "bz2")


def test_a_server_that_refuses_says_what_to_check():
    error = fault(PermissionError("Access Denied"), "list", "s3://bucket/x")
    assert "cannot list s3://bucket/x: the server refuses it (Access Denied). Check the credentials" in str(error)


def test_the_root_of_a_filesystem_is_a_folder():
    folder = Folder.open("memory://")
    folder.write("at-the-root.txt", b"x")
    assert "at-the-root.txt" in folder.names()
    folder.delete("at-the-root.txt")


def test_compressed_output_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for suffix in (".gz", ".zst"):
        file = packed(Folder.open(str(tmp_path)), f"a{suffix}")
        file.write(b"x" * 1000)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="the disk is full"):
            file.close()
        monkeypatch.undo()
    assert os.listdir(tmp_path) == []


class _Nowhere(Exception):
    """As a library of its own raises it: no class in common with others."""


class _ConnectError(_Nowhere):
    pass


@pytest.mark.parametrize(("raised", "told"), [
    (_ConnectError("Name or service\nnot known"), "the server cannot be reached (Name or service not known)"),
    (_Nowhere("no such\n dataset"), "_Nowhere: no such dataset")])
def test_whatever_the_library_behind_a_url_raises_is_one_line(raised, told):
    with pytest.raises(InputError) as failed, explained("list", "hf://datasets/x/y"):
        raise raised
    assert "\n" not in str(failed.value)
    assert str(failed.value).startswith(f"cannot list hf://datasets/x/y: {told}")


def test_a_mistake_of_ours_stays_one():
    with pytest.raises(_Nowhere), explained("read", "/a/local/path"):
        raise _Nowhere
    with pytest.raises(AssertionError), explained("read", "hf://x"):
        raise AssertionError


def test_a_folder_below_that_may_not_be_listed_is_the_one_that_is_named(tmp_path, monkeypatch):
    (tmp_path / "in" / "closed").mkdir(parents=True)
    own = os.scandir

    def refused(path):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "no", path)
        return own(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match=rf"cannot list {tmp_path}/in/closed: no permission"):
        list_files(str(tmp_path / "in"))


def test_a_pipe_that_is_named_is_told_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    for path in (str(tmp_path / "a.jsonl"), str(tmp_path / "*"), "/dev/zero"):
        with pytest.raises(InputError, match=r"is a pipe or a device|matches no file"):
            listed(path, "")
    for path in (str(tmp_path / "a.jsonl"), "/dev/zero"):  # as a record of a manifest may name one
        with pytest.raises(InputError, match="is a pipe or a device"):
            open_input(path)


def test_a_file_that_cannot_grow_takes_no_room_any_more(tmp_path):
    before, file = resource.getrlimit(resource.RLIMIT_FSIZE), Folder.open(str(tmp_path)).open_file("a", "wb")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(InputError, match=rf"cannot write {tmp_path}/a: .*ulimit -f unlimited"):
            file.write(b"x" * (1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())  # its writer may be ended before it takes anything back
