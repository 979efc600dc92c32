"""A stand-in for the API of the Hugging Face hub: what `huggingface_hub` and `datasets` call to read and to push, in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

PAGE = 3  # entries of a listing that come at once
REPO = r"datasets/([^/]+/[^/]+)"


class Repo:
    def __init__(self, private: bool) -> None:
        self.private = private
        self.branches: dict[str, list[tuple[str, str, dict[str, bytes]]]] = {"main": [("0" * 40, "first", {})]}  # sha, summary, files

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        for branch, commits in self.branches.items():
            for sha, _, files in reversed(commits):
                if revision in (branch, sha):
                    return sha, files
        return None

    def commit(self, files: dict[str, bytes], branch: str = "main", summary: str = "put") -> str:
        commits = self.branches.setdefault(branch, [])
        sha = hashlib.sha1(f"{branch} {len(commits)} {id(self)}".encode()).hexdigest()
        commits.append((sha, summary, files))
        return sha


class HubServer:
    """`repos` by name. `requests`: what was asked. `trouble`: answers to give instead, by a pattern of METHOD and path, each once."""

    token = "hf_stand_in_secret"

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.lfs: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.trouble: list[tuple[str, int]] = []
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stand_in(self, patch: pytest.MonkeyPatch) -> None:
        """From here on this is the hub, for this process and those that it starts."""
        import huggingface_hub

        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
            patch.delenv(name, raising=False)
        for name, value in {"HF_ENDPOINT": self.url, "HF_TOKEN": self.token, "HF_HUB_DISABLE_XET": "1",
                            "HF_HUB_DISABLE_PROGRESS_BARS": "1"}.items():
            patch.setenv(name, value)
        here = {"ENDPOINT": self.url, "HUGGINGFACE_CO_URL_TEMPLATE": self.url + "/{repo_id}/resolve/{revision}/{filename}",
                "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
        for name, value in here.items():
            patch.setattr(f"huggingface_hub.constants.{name}", value)
        patch.setattr("huggingface_hub.hf_api.api.endpoint", self.url)
        huggingface_hub.utils.disable_progress_bars()
        if (config := sys.modules.get("datasets.config")) is not None:
            patch.setattr(config, "HF_ENDPOINT", self.url)
            patch.setattr(config, "HUB_DATASETS_URL", self.url + "/datasets/{repo_id}/resolve/{revision}/{path}")
            patch.setattr(config, "HF_HUB_OFFLINE", False)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def put(self, name: str, files: dict[str, bytes], branch: str = "main", private: bool = False) -> Repo:
        repo = self.repos.setdefault(name, Repo(private))
        before = repo.branches.get(branch, [("", "", {})])[-1][2]
        repo.commit({**before, **files}, branch)
        return repo

    def files(self, name: str, branch: str = "main") -> dict[str, bytes]:
        return self.repos[name].branches[branch][-1][2]

    def asked(self, pattern: str) -> list[str]:
        return [request for request in self.requests if re.search(pattern, request)]


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer of two pieces takes 40 ms

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _go(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(size)
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.body = self._chunks()
        url = urlsplit(self.path)
        self.query, path = parse_qs(url.query), url.path
        with self.hub.lock:
            asked = f"{self.command} {unquote(path)}"
            self.hub.requests.append(asked)
            for one in self.hub.trouble:
                if re.search(one[0], asked):
                    self.hub.trouble.remove(one)
                    return self._say({"error": "trouble"}, one[1])
            for pattern, method in _ROUTES:
                if found := re.fullmatch(pattern, f"{self.command} {path}"):
                    return getattr(self, method)(*(part and unquote(part) for part in found.groups()))
        return self._say({"error": f"no such page: {self.command} {path}"}, 404)

    do_GET = do_HEAD = do_POST = do_PUT = _go

    def _chunks(self) -> bytes:
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _say(self, answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _missing(self, code: str, status: int = 404) -> None:
        self._say({"error": code}, status, {"X-Error-Code": code, "X-Error-Message": code})

    def _may(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.hub.token}"

    def _at(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not self._may()):
            self._missing("RepoNotFound", 401 if not self._may() else 404)
            return None
        if (found := repo.at(revision)) is None:
            self._missing("RevisionNotFound")
        return found

    # -- reading ------------------------------------------------------------------------------------------------

    def whoami(self) -> None:
        self._say({"name": "tester", "type": "user", "auth": {"accessToken": {"role": "write"}}} if self._may() else {"error": "who?"},
                  200 if self._may() else 401)

    def info(self, name: str, revision: str | None = None) -> None:
        if found := self._at(name, revision or "main"):
            self._say({"id": name, "_id": "1", "sha": found[0], "private": self.hub.repos[name].private, "gated": False, "disabled": False,
                       "tags": [], "downloads": 0, "likes": 0, "siblings": [{"rfilename": path} for path in found[1]]})

    def tree(self, name: str, revision: str, folder: str | None = None) -> None:
        if not (found := self._at(name, revision)):
            return None
        top = f"{folder}/" if folder else ""
        below = {path: data for path, data in found[1].items() if path.startswith(top)}
        if folder and not below:
            return self._missing("EntryNotFound")
        entries = [_file(path, data) for path, data in sorted(below.items())]
        folders = {path[:at.end() - 1] for path in below for at in re.finditer("/", path) if at.start() >= len(top)}
        entries += [{"type": "directory", "path": path, "oid": "d", "size": 0} for path in sorted(folders)]
        if self.query.get("recursive", ["false"])[0].lower() != "true":
            entries = [entry for entry in entries if "/" not in entry["path"][len(top):]]
        at = int(self.query.get("cursor", ["0"])[0])
        more = {}
        if at + PAGE < len(entries):
            recursive = self.query.get("recursive", ["false"])[0]
            link = f"{self.hub.url}{urlsplit(self.path).path}?recursive={recursive}&cursor={at + PAGE}"
            more = {"Link": f'<{link}>; rel="next"'}
        return self._say(entries[at:at + PAGE], headers=more)

    def paths_info(self, name: str, revision: str) -> None:
        if not (found := self._at(name, revision)):
            return
        given = parse_qs(self.body.decode()) if b"paths=" in self.body else json.loads(self.body)
        self._say([_file(path, found[1][path]) for path in given["paths"] if path in found[1]])

    def resolve(self, name: str, revision: str, path: str) -> None:
        if not (found := self._at(name, revision)):
            return None
        data = found[1].get(path)
        if data is None:
            return self._missing("EntryNotFound")
        headers = {"X-Repo-Commit": found[0], "ETag": f'"{hashlib.sha1(data).hexdigest()}"', "Accept-Ranges": "bytes",
                   "Content-Type": "application/octet-stream"}
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            begin, end = int(wanted[1]), int(wanted[2] or len(data) - 1)
            headers["Content-Range"] = f"bytes {begin}-{min(end, len(data) - 1)}/{len(data)}"
            return self._say(data[begin:end + 1], 206, headers)
        return self._say(data, headers=headers)

    # -- pushing ------------------------------------------------------------------------------------------------

    def create(self) -> None:
        if not self._may():
            return self._say({"error": "Invalid credentials"}, 401)
        given = json.loads(self.body)
        name = f"{given.get('organization') or 'tester'}/{given['name']}"
        if name in self.hub.repos:
            return self._say({"error": "You already created this dataset repo", "url": f"{self.hub.url}/datasets/{name}"}, 409)
        self.hub.repos[name] = Repo(bool(given.get("private")) or given.get("visibility") == "private")
        return self._say({"url": f"{self.hub.url}/datasets/{name}", "name": name, "id": "1"})

    def branch(self, name: str, branch: str) -> None:
        repo = self.hub.repos[name]
        repo.branches.setdefault(branch, list(repo.branches["main"]))
        self._say({})

    def validate(self) -> None:
        self._say({"errors": [], "warnings": []})

    def preupload(self, name: str, revision: str) -> None:
        if not self._may():
            return self._say({"error": "Forbidden"}, 403)
        if self._at(name, revision):
            files = json.loads(self.body)["files"]
            self._say({"files": [{"path": file["path"], "uploadMode": "lfs" if file["path"].endswith(".parquet") else "regular",
                                  "shouldIgnore": False} for file in files]})
        return None

    def batch(self, name: str) -> None:
        objects = json.loads(self.body)["objects"]
        self._say({"transfer": "basic", "objects": [
            one if one["oid"] in self.hub.lfs else {**one, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}"}}}
            for one in objects]})

    def upload(self, oid: str) -> None:
        assert hashlib.sha256(self.body).hexdigest() == oid
        self.hub.lfs[oid] = self.body
        self._say({})

    def commit(self, name: str, revision: str) -> None:
        found = self._at(name, revision)
        if not found or not self._may():
            return None if not found else self._say({"error": "Forbidden"}, 403)
        files, summary = dict(found[1]), ""
        for line in self.body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                summary = value["summary"]
                if value.get("parentCommit", found[0]) != found[0]:
                    return self._say({"error": "A commit has happened since."}, 412)
            elif item["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                files[value["path"]] = self.hub.lfs[value["oid"]]
            else:
                del files[value["path"]]
        sha = self.hub.repos[name].commit(files, revision, summary)
        return self._say({"commitUrl": f"{self.hub.url}/datasets/{name}/commit/{sha}", "commitOid": sha})


def _file(path: str, data: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(data).hexdigest()
    lfs = {"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}} if path.endswith(".parquet") else {}
    return {"type": "file", "path": path, "oid": blob, "size": len(data), **lfs}


_ROUTES = (
    ("GET /api/whoami-v2", "whoami"), ("POST /api/validate-yaml", "validate"), ("POST /api/repos/create", "create"),
    (f"GET /api/{REPO}", "info"), (f"GET /api/{REPO}/revision/(.+)", "info"),
    (f"GET /api/{REPO}/tree/([^/]+)", "tree"), (f"GET /api/{REPO}/tree/([^/]+)/(.+)", "tree"),
    (f"POST /api/{REPO}/paths-info/([^/]+)", "paths_info"),
    (f"(?:GET|HEAD) /{REPO}/resolve/([^/]+)/(.+)", "resolve"),
    (f"POST /api/{REPO}/branch/(.+)", "branch"), (f"POST /api/{REPO}/preupload/([^/]+)", "preupload"),
    (rf"POST /{REPO}\.git/info/lfs/objects/batch", "batch"), ("PUT /lfs/(.+)", "upload"),
    (f"POST /api/{REPO}/commit/([^/]+)", "commit"))

