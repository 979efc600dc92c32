"""The process that `curator_text.extract.apart` calls: a function named on the command line, asked by pipe."""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import signal
import struct
import sys
import traceback
from typing import IO, Any

SIZE = struct.Struct("!q")
_PR_SET_PDEATHSIG = 1


def send(pipe: IO[bytes], message: object) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(SIZE.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Raises:
        EOFError: the other side is gone.
    """
    head = pipe.read(SIZE.size)
    data = pipe.read(SIZE.unpack(head)[0]) if len(head) == SIZE.size else b""
    if not data:
        raise EOFError
    return pickle.loads(data)


def main(parent: int, name: str, *imports: str) -> None:
    """Answer calls until the pipe ends. What libraries print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # it died before
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, _, function = name.partition(":")
    try:
        for library in imports:
            importlib.import_module(library)
        call = getattr(importlib.import_module(module), function)
    except ImportError as error:
        send(answers, ("missing", str(error), ""))
        return
    send(answers, ("ready", None, ""))
    while True:
        try:
            arguments, keywords = receive(questions)
        except EOFError:
            return
        try:
            answer = ("answer", call(*arguments, **keywords), "")
        except Exception as error:  # whatever a library raises is the item's fault, and the parent says so
            answer = ("error", f"{type(error).__name__}: {error}", traceback.format_exc())
        send(answers, answer)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
