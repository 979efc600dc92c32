"""What went wrong with a file, said so that a user can do something about it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from curator.api.errors import CuratorError, InputError

EXTRAS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
          "abfss": "adlfs", "http": "aiohttp", "https": "aiohttp", "hf": "huggingface_hub",
          "sftp": "paramiko", "ssh": "paramiko", "smb": "smbprotocol", "oss": "ossfs", "webdav": "webdav4"}

# Where the first part of a path is a bucket or container, and other folders are only in the names.
BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss"})
# packages that our extras bring
_OURS = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure", "huggingface_hub": "hub", "pylance": "lance",
         "pyiceberg": "iceberg"}
# in the names of what HTTP libraries raise
_UNREACHABLE = ("connect", "dns", "timeout", "timedout", "gaierror", "proxyerror")
_SHOWN_CHARS = 300  # of what a library says
_AGAIN = "write to another path, then run the same command again"
_REASONS = {
    errno.ENOENT: "it does not exist",
    errno.EEXIST: "a part of the path is a file, not a folder. Name another path",
    errno.ENOSPC: f"the disk is full. To go on, free space or {_AGAIN}",
    errno.EDQUOT: f"the disk quota is used up. To go on, free space or {_AGAIN}",
    errno.EACCES: "no permission. To go on, change its permissions, or run as a user who may",
    errno.EPERM: "no permission. To go on, change its permissions, or run as a user who may",
    errno.EROFS: "the filesystem is read-only. To go on, write to another path",
    errno.EISDIR: "it is a folder. To go on, name a file",
    errno.ENOTDIR: "a part of the path is a file, not a folder. To go on, name another path",
    errno.ENAMETOOLONG: "the name is too long. To go on, take a shorter path",
    errno.ELOOP: "it is a symbolic link that leads to itself, or to where nothing is to be written. To go "
                 "on, remove the link",
    errno.EFBIG: "a process may not write files as large as this. To go on, raise the limit with `ulimit -f "
                 "unlimited`",
    errno.EMFILE: "too many files are open. To go on, raise the limit with `ulimit -n`",
}
# Remote filesystems raise the class without a number.
_NUMBERS = {FileNotFoundError: errno.ENOENT, FileExistsError: errno.EEXIST, PermissionError: errno.EACCES,
            IsADirectoryError: errno.EISDIR, NotADirectoryError: errno.ENOTDIR}


def fault(error: BaseException, doing: str, uri: str) -> InputError:
    """The InputError for an error of a filesystem. `doing`: "read", "write", "list", "delete"."""
    protocol = uri.partition("://")[0] if "://" in uri else ""
    reason = _reason(error, protocol)
    place = getattr(error, "filename", None)
    if isinstance(place, str) and place.startswith(f"{uri.rstrip('/')}/"):  # a folder below, a file in it
        uri = path_text(place)
    # S3 says what does not exist (a key, an upload); others do not, and a folder need not be there
    unsaid = doing in ("write", "list") and "does not exist" not in str(error)
    if reason == _REASONS[errno.ENOENT] and protocol in BUCKETS and (
            unsaid or re.search("(bucket|container) does not exist", str(error))):
        reason = f"{no_bucket(uri)}. To go on, make it or name another"
    elif doing == "write" and reason == _REASONS[errno.ENOENT]:
        reason = "nothing can be made there. To go on, write to another path"
    return InputError(f"cannot {doing} {uri}: {reason}")


def no_bucket(uri: str) -> str:
    """That there is no bucket of this name."""
    return f"there is no {'container' if uri.startswith('a') else 'bucket'} {'/'.join(uri.split('/')[:3])}"


def path_text(path: str) -> str:
    """A path as listings and records have it: bytes of a name that are no UTF-8 are written as `\\xff`."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _reason(error: BaseException, protocol: str) -> str:
    """What happened and what to do about it. `protocol`: "" on this machine."""
    if isinstance(error, ImportError):
        package = EXTRAS.get(protocol, error.name or protocol)
        return lacking(package, f"paths that begin with {protocol}:// need")
    if isinstance(error, ValueError) and "Protocol not known" in str(error):
        return (f"unknown protocol {protocol}://. Take a path on this machine, s3://, gs://, az://, "
                "https://, memory:// or another that fsspec knows")
    if isinstance(error, UnicodeEncodeError):
        return "its name is not UTF-8. To go on, take another path"
    message = " ".join(str(error).split())[:_SHOWN_CHARS]
    refused = getattr(getattr(error, "response", None), "status_code", None) in (401, 403)
    if protocol and (refused or isinstance(error, PermissionError)):
        return (f"the server refuses it ({message}). Check the credentials, in the environment or in "
                "`storage_options`, and what they may do")
    number = getattr(error, "errno",
                     None) or next((n for kind, n in _NUMBERS.items() if isinstance(error, kind)), None)
    if number in _REASONS:
        return _REASONS[number] + (unseen(f"{protocol}://") if number == errno.ENOENT else "")
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if "credentials" in kinds[0].lower() + str(error).lower():
        return f"no valid credentials ({message}). Give them in the environment or in `storage_options`"
    if protocol and any(word in kind.lower() for kind in kinds for word in _UNREACHABLE):
        return (f"the server cannot be reached ({message or kinds[0]}). Check the address, the network and "
                "its proxy, then run the same command again")
    return f"{kinds[0]}: {message}"


def lacking(package: str, who: str) -> str:
    """That a package is not installed. `who`: wants it, with the verb."""
    wanted = f"'curator-core[{_OURS[package]}]'" if package in _OURS else package
    return f"{who} the package {package}. Install it with: pip install {wanted}"


def is_damage(error: BaseException) -> bool:
    """Whether what pyarrow raised while it read a file is about what is in the file, and not about reaching
    it."""
    import pyarrow as pa

    if isinstance(error, (ConnectionError, TimeoutError)) or getattr(error, "errno", None) is not None:
        return False
    return isinstance(error, (pa.ArrowException, OSError, ValueError))


def unseen(uri: str) -> str:
    """What else it may mean that nothing is seen at a URL."""
    private = ". If it is private or gated, set HF_TOKEN to a token that may read it"
    return private if uri.startswith("hf://") else ""


@contextmanager
def explained(doing: str, uri: str) -> Iterator[None]:
    """Errors of a filesystem inside the block become an InputError that says path and remedy.

    What the libraries behind a URL raise has no class in common, so there it is whatever is raised, but for
    failed asserts.
    """
    try:
        yield
    except (CuratorError, AssertionError):
        raise
    except (OSError, ImportError, ValueError, RuntimeError) as error:
        raise fault(error, doing, uri) from error
    except Exception as error:
        if "://" in uri:
            raise fault(error, doing, uri) from error
        raise
