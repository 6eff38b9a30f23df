"""A local HTTP endpoint whose answers a test writes: status, headers and body of each request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What the endpoint answers; a `body` that is no text is sent as JSON."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    """A request as it came."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]


@contextmanager
def endpoint(answer: Callable[[Asked], Reply]) -> Iterator[tuple[str, list[Asked]]]:
    """Give the address of the server and the requests it gets, as they come."""
    seen: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = Asked(self.path, body, dict(self.headers))
            seen.append(asked)
            self._send(answer(asked))

        def do_GET(self) -> None:
            self._send(Reply({"detail": "Not Found"}, 404))

        def _send(self, reply: Reply) -> None:
            data = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def said(content: str | None, finish: str = "stop", **message: Any) -> Reply:
    """Answer as a chat endpoint does."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return Reply({"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}})


def completed(text: str, finish: str = "stop") -> Reply:
    """Answer as a completions endpoint does."""
    return Reply({"choices": [{"index": 0, "finish_reason": finish, "text": text}]})
