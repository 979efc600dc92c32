"""What went wrong with a file, said so that a user can do something about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from curator.api.errors import CuratorError, InputError

EXTRAS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
          "abfss": "adlfs", "http": "aiohttp", "https": "aiohttp", "hf": "huggingface_hub", "sftp": "paramiko",
          "ssh": "paramiko", "smb": "smbprotocol", "oss": "ossfs", "webdav": "webdav4"}

_UNREACHABLE = ("connect", "dns", "timeout", "timedout", "gaierror", "proxyerror")  # in the names of what HTTP libraries raise
TOLD_CHARS = 300  # of what a library says
_REMEDIES = {
    errno.ENOSPC: ("the disk is full", "free space or write to another path, then run the same command again"),
    errno.EDQUOT: ("the disk quota is used up", "free space or write to another path, then run the same command again"),
    errno.EACCES: ("no permission", "change its permissions, or run as a user who may"),
    errno.EPERM: ("no permission", "change its permissions, or run as a user who may"),
    errno.EROFS: ("the filesystem is read-only", "write to another path"),
    errno.EISDIR: ("it is a folder", "name a file"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "name another path"),
    errno.ENAMETOOLONG: ("the name is too long", "take a shorter path"),
    errno.ELOOP: ("it is a symbolic link, and what it leads to is not to be written", "remove the link"),
    errno.EMFILE: ("too many files are open", "raise the limit with `ulimit -n`"),
}


def fault(error: BaseException, doing: str, uri: str) -> InputError:
    """The InputError for an error of a filesystem. `doing`: "read", "write", "list", "delete"."""
    protocol = uri.partition("://")[0] if "://" in uri else ""
    if isinstance(error, ImportError):
        package = EXTRAS.get(protocol, error.name or protocol)
        command = "pip install 'curator-core[s3]'" if package == "s3fs" else f"pip install {package}"
        return InputError(f"cannot {doing} {uri}: paths that begin with {protocol}:// need the package {package}. "
                          f"Install it with: {command}")
    if isinstance(error, ValueError) and "Protocol not known" in str(error):
        return InputError(f"cannot {doing} {uri}: unknown protocol {protocol}://. Take a path on this machine, s3://, "
                          "gs://, az://, https://, memory:// or another that fsspec knows")
    if isinstance(error, FileNotFoundError):
        return InputError(f"cannot {doing} {uri}: it does not exist")
    if isinstance(error, FileExistsError):
        return InputError(f"cannot {doing} {uri}: a part of the path is a file, not a folder. Name another path")
    told = " ".join(str(error).split())[:TOLD_CHARS]
    if isinstance(error, PermissionError) and protocol:
        return InputError(f"cannot {doing} {uri}: the server refuses it ({told}). Check the credentials, in the "
                          "environment or in `storage_options`, and what they may do")
    reason, remedy = _REMEDIES.get(getattr(error, "errno", None) or _errno_by_kind(error), ("", ""))
    if reason:
        return InputError(f"cannot {doing} {uri}: {reason}. To go on, {remedy}")
    if "credentials" in type(error).__name__.lower() + str(error).lower():
        return InputError(f"cannot {doing} {uri}: no valid credentials ({told}). Give them in the environment or in "
                          "`storage_options`")
    if protocol and any(word in cls.__name__.lower() for cls in type(error).__mro__ for word in _UNREACHABLE):
        return InputError(f"cannot {doing} {uri}: the server cannot be reached ({told or type(error).__name__}). Check the "
                          "address, the network and its proxy, then run the same command again")
    return InputError(f"cannot {doing} {uri}: {type(error).__name__}: {told}")


def _errno_by_kind(error: BaseException) -> int | None:
    """The number that belongs to an exception class: remote filesystems raise the class without a number."""
    kinds = {PermissionError: errno.EACCES, IsADirectoryError: errno.EISDIR, NotADirectoryError: errno.ENOTDIR}
    return next((number for kind, number in kinds.items() if isinstance(error, kind)), None)


@contextmanager
def explained(doing: str, uri: str) -> Iterator[None]:
    """Errors of a filesystem inside the block become an InputError that says path and remedy.

    What the libraries behind a URL raise has no class in common, so there it is whatever is raised, but for failed asserts.
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
