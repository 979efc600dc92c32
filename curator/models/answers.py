"""Answers of servers kept on disk, so that no question is paid for twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from curator.api.errors import CuratorError
from curator.models.chat import Reply


class Answers:
    """A file of SQLite in a folder of this machine, shared by all workers there. An answer is kept as soon as
    it has come: a process that is killed loses none.

    A question is known again by its URL and all of its fields. What was paid for is added up for each URL and
    model.
    """

    def __init__(self, folder: str, url: str) -> None:
        self._url, self._lock = url, threading.Lock()
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(Path(folder) / "answers.sqlite", timeout=60, isolation_level=None,
                                         check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute("CREATE TABLE IF NOT EXISTS answers (question BLOB PRIMARY KEY, answer TEXT) "
                               "WITHOUT ROWID")
            self._file.execute("CREATE TABLE IF NOT EXISTS paid (url TEXT, model TEXT, answers INTEGER, "
                               "tokens_in INTEGER, tokens INTEGER, PRIMARY KEY (url, model)) WITHOUT ROWID")
        except (OSError, sqlite3.Error) as error:
            raise CuratorError(f"answers cannot be kept in {folder!r}: {error}. Name a folder on a disk of "
                               "this machine in cache") \
                from error

    def get(self, question: Mapping[str, Any]) -> Reply | None:
        with self._lock:
            found = self._file.execute("SELECT answer FROM answers WHERE question = ?",
                                       (self._key(question),)).fetchone()
        return replace(Reply(**json.loads(found[0])), kept=True) if found else None

    def put(self, question: Mapping[str, Any], reply: Reply) -> None:
        bill = (self._url, question["model"], 1, reply.tokens_in or 0, reply.tokens or 0)
        with self._lock, self._file:  # which commits, or takes all back
            self._file.execute("BEGIN IMMEDIATE")
            self._file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)",
                               (self._key(question), json.dumps(asdict(reply))))
            self._file.execute("INSERT INTO paid VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                               "answers = answers + excluded.answers, tokens = tokens + excluded.tokens, "
                               "tokens_in = tokens_in + excluded.tokens_in", bill)

    def paid(self, model: str) -> tuple[int, int, int]:
        """Answers of a model that were paid for so far, the tokens it read for them and those it made."""
        with self._lock:
            found = self._file.execute("SELECT answers, tokens_in, tokens FROM paid WHERE url = ? AND model "
                                       "= ?", (self._url, model)).fetchone()
        return found or (0, 0, 0)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _key(self, question: Mapping[str, Any]) -> bytes:
        return hashlib.blake2b(json.dumps([self._url, question], sort_keys=True).encode(),
                               digest_size=16).digest()
