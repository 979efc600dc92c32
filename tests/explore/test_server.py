"""Who may ask the server of the page, and what it gives out."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import contextmanager

import pytest

from curator import CuratorError
from curator.explore.blobs import Blob
from curator.explore.questions import Questions
from curator.explore.server import PIECE_BYTES, Handler, Server
from tests.explore.runs import HOSTILE, SVG, made, png, texts, wav


@contextmanager
def served(output, **options):
    questions = Questions(output, **options)
    server = Server(questions)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        questions.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    rows = [{**row, "picture": None, "sound": None} for row in texts(30)]
    rows[10]["picture"], rows[11]["picture"], rows[12]["sound"] = png(), SVG, wav()
    with served(made(tmp_path_factory.mktemp("served"), rows)) as one:
        yield one


def get(server, path, method="GET", cookie=True, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    given = {"Cookie": f"{server.cookie}={server.token}"} if cookie else {}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def ask(server, name, **given):
    status, _, content = get(server, f"/api/{name}", "POST", body=json.dumps(given), Content_Type="application/json")
    return status, json.loads(content)


def test_the_token_opens_the_page_and_a_cookie_the_rest(server):
    status, headers, page = get(server, f"/?token={server.token}", cookie=False)
    assert (status, page[:15]) == (200, b"<!doctype html>")
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert get(server, "/app.js", cookie=False, Cookie=cookie.partition(";")[0])[0] == 200
    for path, given in (("/", {}), ("/?token=wrong", {}), ("/?token=", {}), ("/app.js", {"Cookie": f"{server.cookie}=wrong"}),
                        ("/blob?id=r010&place=data&stage=to_parquet&column=picture", {}), ("/app.js?token=" + server.token, {})):
        status, headers, content = get(server, path, cookie=False, **given)
        assert (status, "Set-Cookie" in headers, b"token" in content) == (403, False, True), path


@pytest.mark.parametrize(("headers", "allowed"), [
    ({"Host": "127.0.0.1:1"}, True), ({"Host": "localhost:9000"}, True), ({"Host": "[::1]:80"}, True),
    ({"Host": "evil.example"}, False), ({"Host": "127.0.0.1.evil.example:80"}, False), ({"Host": ""}, False), ({"Host": "[::"}, False),
    ({"Host": "localhost:1", "Origin": "http://localhost:1"}, True), ({"Host": "localhost:1", "Origin": "http://localhost:2"}, False),
    ({"Origin": "http://evil.example"}, False), ({"Origin": "null"}, False),
    ({"Sec_Fetch_Site": "same-origin"}, True), ({"Sec_Fetch_Site": "cross-site"}, False), ({"Sec_Fetch_Site": "same-site"}, False),
    ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, False)])
def test_other_hosts_and_other_pages_are_refused(server, headers, allowed):
    assert get(server, "/app.js", **headers)[0] == (200 if allowed else 403)


def test_every_answer_forbids_what_the_page_does_not_need(server):
    for path in ("/", "/style.css", "/nothing", "/blob?id=r010&place=data&stage=to_parquet&column=picture"):
        _, headers, _ = get(server, path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
    page = b"".join(content for _, content in server.page.values())
    assert b"innerHTML" not in page
    assert b"https://" not in page
    assert b" style=\"" not in page


@pytest.mark.parametrize("path", ["/../server.py", "/%2e%2e/server.py", "//etc/passwd", "/page/app.js", "/style.css/..",
                                  "/../../../../etc/passwd", "/blob?id=r010&place=data&stage=to_parquet&column=../../in.parquet",
                                  "/blob?id=../../in.parquet&place=data&stage=to_parquet&column=picture",
                                  "/blob?column=path&id=r010&place=data&stage=to_parquet",
                                  "/blob?column=text&id=r010&place=data&stage=to_parquet",
                                  "/blob", "/blob?member=0&id=r010&place=data&stage=to_parquet"])
def test_no_path_leads_to_a_file(server, path):
    status, _, content = get(server, path)
    assert status in (400, 404)
    assert b"error" in content


def test_bytes_are_given_out_as_what_they_are_whole_or_by_range(server):
    blob = "/blob?place=data&stage=to_parquet&"
    status, headers, content = get(server, blob + "id=r010&column=picture")
    assert (status, headers["Content-Type"], content) == (200, "image/png", png())
    assert get(server, blob + "id=r011&column=picture")[1]["Content-Type"] == "application/octet-stream"  # SVG may hold scripts
    sound = wav()
    for header, part in (("bytes=0-3", sound[:4]), ("bytes=10-", sound[10:]), ("bytes=-5", sound[-5:]), ("bytes=5-999999999", sound[5:])):
        status, headers, content = get(server, blob + "id=r012&column=sound", Range=header)
        assert (status, content) == (206, part), header
        start = len(sound) - 5 if header == "bytes=-5" else int(header[6:].partition("-")[0])
        assert headers["Content-Range"] == f"bytes {start}-{start + len(part) - 1}/{len(sound)}"
    assert get(server, blob + "id=r012&column=sound", Range="bytes=999999999-")[0] == 416
    assert get(server, blob + "id=r012&column=sound", Range="bytes=0-1,5-6")[2] == sound
    assert get(server, blob + "id=r012&column=sound", "HEAD")[2] == b""
    assert get(server, blob + "id=r013&column=sound")[0] == 400  # it has none
    file = server.questions.output.places[0].files[0]
    assert get(server, f"{blob}id=r010&column=picture&file={file}")[2] == png()
    assert get(server, f"{blob}id=r010&column=picture&file=../in.parquet")[2] == png()  # a file that is none of the run's is not opened


@pytest.mark.parametrize("where", ["n <", "n < 5; DROP TABLE x", "1 = (SELECT 1)", "nothing < 5", "random() < 0.5", "count(*) > 1",
                                   "n < 5) OR (1 = 1", "read_text('/etc/passwd') = ''", "getenv('HOME') = ''", "text", "n < 'x'"])
def test_a_wrong_condition_is_an_error_that_ends_nothing(server, where):
    status, told = ask(server, "page", filter={"where": where})
    assert status == 400
    assert told["error"]
    assert ask(server, "page", limit=1)[0] == 200


@pytest.mark.parametrize(("name", "given"), [
    ("nothing", {}), ("page", {"sort": "no such"}), ("page", {"after": "x"}), ("page", {"filter": []}),
    ("page", {"filter": {"is": {"n; --": ["1"]}}}),
    ("page", {"filter": {"between": {"n": ["1", 2]}}}), ("page", {"filter": {"drop": 1}}), ("page", {"limit": "x"}),
    ("histogram", {"column": "text"}), ("histogram", {"column": "x\"y"}), ("histogram", {"rule": {"stage": "drop", "reason": "no"}}),
    ("near", {"rule": {"stage": "drop", "reason": "few"}, "value": "1; DROP"}), ("counts", {"by": None}), ("record", {"id": "none"}),
    ("what_if", {"changes": [{"stage": "drop", "reason": "few", "values": ["1 OR true"]}]}), ("write", {"changes": 3})])
def test_wrong_questions_get_an_answer(server, name, given):
    status, told = ask(server, name, **given)
    assert status == 400
    assert isinstance(told["error"], str)


def test_what_is_no_json_object_is_refused(server):
    for body, kind in ((b"{", "application/json"), (b"[]", "application/json"), (b"{}", "text/plain"), (b"[" * 100000, "application/json")):
        assert get(server, "/api/run", "POST", body=body, Content_Type=kind)[0] == 400
    assert get(server, "/api/run", "POST", body=b"{}", Content_Type="application/json", cookie=False)[0] == 403


def test_hostile_text_goes_through_as_text(server):
    _, found = ask(server, "record", id="r020")
    assert found["row"]["text"] == HOSTILE
    assert ask(server, "record", id="a/../b\n<b>")[1]["row"]["n"] == 21


def test_media_outside_of_the_run_is_shown_from_the_folder_that_was_named_only(tmp_path):
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "in.wav").write_bytes(wav())
    (tmp_path / "secret.wav").write_bytes(wav())
    (tmp_path / "films" / "link.wav").symlink_to(tmp_path / "secret.wav")
    paths = {"in": f"{tmp_path}/films/in.wav", "out": f"{tmp_path}/secret.wav", "up": f"{tmp_path}/films/../secret.wav",
             "link": f"{tmp_path}/films/link.wav", "gone": f"{tmp_path}/films/gone.wav", "url": "http://localhost/x.wav"}
    output = made(tmp_path / "run", [{"id": name, "source": "s", "path": path, "n": 50} for name, path in paths.items()],
                  steps="[{drop: {few: n < 10}}]")
    stage = output.places[0].stage
    with served(output, media_root=str(tmp_path / "films")) as server:
        status = {name: get(server, f"/blob?id={name}&place=data&stage={stage}&column=path", Range="bytes=0-3")[0] for name in paths}
    assert status == dict.fromkeys(paths, 400) | {"in": 206}
    with served(output) as server:
        assert get(server, f"/blob?id=in&place=data&stage={stage}&column=path")[0] == 400
        assert "media-root" in ask(server, "record", id="in")[1]["hint"]


class Broken:
    """Has a film whose second piece cannot be read."""

    @contextmanager
    def blob(self, asked):
        def read(start, stop):
            if start:
                raise OSError("the disk is gone")
            return bytes(stop - start)

        yield Blob("video/mp4", 2 * PIECE_BYTES, read)


def test_bytes_that_cannot_be_read_to_their_end_end_the_connection(capfd):
    with Server(Broken()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(http.client.IncompleteRead) as told:
            get(server, "/blob")
        server.shutdown()
    assert told.value.partial == bytes(PIECE_BYTES)
    assert "/blob: OSError('the disk is gone')" in capfd.readouterr().err


def test_a_browser_that_lets_its_connection_lie_is_no_news(server, monkeypatch, capfd):
    monkeypatch.setattr(Handler, "timeout", 0.05)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/", headers={"Cookie": f"{server.cookie}={server.token}"})
    connection.getresponse().read()
    assert connection.sock.recv(1) == b""  # the server has ended it
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_and_a_folder_that_is_not_there_are_errors(server):
    with pytest.raises(CuratorError, match="--port"):
        Server(server.questions, server.port)
    with pytest.raises(CuratorError, match="no such folder"):
        Questions(server.questions.output, media_root="/no/such/folder")


def test_the_command_says_what_is_wrong_with_a_folder(tmp_path):
    from click.testing import CliRunner

    from curator.cli.main import main

    told = CliRunner().invoke(main, ["explore", str(tmp_path), "--no-browser"])
    assert (told.exit_code, "holds no run" in told.output) == (2, True)


@pytest.mark.parametrize(("words", "display", "opened"), [((), "", 0), ((), ":0", 1), (("--no-browser",), ":0", 0)])
def test_a_browser_is_opened_where_there_is_a_display(tmp_path, monkeypatch, words, display, opened):
    from click.testing import CliRunner

    from curator.cli.main import main

    def stop(server):
        raise KeyboardInterrupt

    launched = []
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("click.launch", launched.append)
    monkeypatch.setattr(Server, "serve_forever", stop)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", display) if display else monkeypatch.delenv("DISPLAY", raising=False)
    told = CliRunner().invoke(main, ["explore", str(made(tmp_path, texts(30)).folder.uri), *words])
    assert "http://127.0.0.1:" in told.output
    assert len(launched) == opened
