"""Answers of a REST server, kept in a file: what is drawn from them is the same each time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

FILE: Final = Path(__file__).with_name("recording.json")
_OPENER: Final = build_opener(ProxyHandler({}))


@dataclass(frozen=True)
class Answer:
    status: int
    date: str
    """The header Date."""
    document: dict[str, Any]


@dataclass
class Recording:
    """One moment of the sandbox's example."""

    answers: dict[str, Answer] = field(default_factory=dict)
    """By path and query."""
    kubectl: dict[str, str] = field(default_factory=dict)
    """What kubectl printed, by its arguments."""

    @classmethod
    def read(cls) -> Self:
        found = json.loads(FILE.read_text(encoding="utf-8"))
        return cls({path: Answer(**answer) for path, answer in found["answers"].items()}, found["kubectl"])

    def write(self) -> None:
        """One line for each answer."""
        answers = ",\n".join(
            f"{json.dumps(path)}: {json.dumps(vars(answer))}" for path, answer in sorted(self.answers.items())
        )
        kubectl = json.dumps(self.kubectl, indent=1)
        FILE.write_text(f'{{"answers": {{\n{answers}\n}},\n"kubectl": {kubectl}\n}}\n', encoding="utf-8")

    @contextmanager
    def recorded(self, server: str) -> Iterator[str]:
        """A server that passes requests on to `server`, and keeps what that answers. Its URL."""

        def ask(path: str) -> Answer:
            try:
                with _OPENER.open(f"{server}{path}", timeout=30) as answer:
                    found = Answer(answer.status, answer.headers["Date"], json.load(answer))
            except HTTPError as problem:
                found = Answer(problem.code, problem.headers["Date"], json.load(problem))
            return self.answers.setdefault(path, found)

        with _serving(ask) as url:
            yield url

    @contextmanager
    def replayed(self) -> Iterator[str]:
        """A server that gives the answers that were kept. Its URL."""
        missing = Answer(404, "", {"detail": "this request was not recorded: make pictures"})
        with _serving(lambda path: self.answers.get(path, missing)) as url:
            yield url


@contextmanager
def _serving(ask: Callable[[str], Answer]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = ask(self.path)
            body = json.dumps(answer.document).encode()
            self.send_response_only(answer.status)
            if answer.date:
                self.send_header("Date", answer.date)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
