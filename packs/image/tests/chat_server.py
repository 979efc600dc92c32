"""A server in this process that speaks OpenAI's chat completions, and answers as a test says."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text, reason="stop", tokens=7, **message):
    whole = {"choices": [{"message": {"role": "assistant", "content": text, **message}, "finish_reason": reason}]}
    return 200, whole | ({"usage": {"completion_tokens": tokens}} if tokens is not None else {})


class Model:
    """A server. `answer` is called with each question and gives a status and an object, bytes, or None to hang up."""

    def __init__(self) -> None:
        self.questions, self.headers, self.paths = [], [], []
        self.answer = lambda question: completion(" " + caption_for(question) + "\n")
        self.extra, self.lock, self.released = {}, threading.Lock(), threading.Event()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with model.lock:
                    model.questions.append(question)
                    model.headers.append(dict(self.headers))
                    model.paths.append(self.path)
                answered = model.answer(question)
                if answered is None:
                    self.close_connection = True
                    return
                status, body = answered
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in model.extra.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args) -> None:
                """Nothing: what went wrong shows in the answers."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None  # clients that hang up are part of the tests
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


def caption_for(question) -> str:
    image, text = question["messages"][-1]["content"]
    sent = base64.b64decode(image["image_url"]["url"].partition(",")[2])
    return f"{text['text']} -> {sent[-6:].decode('latin-1')}"
