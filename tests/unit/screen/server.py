"""A REST server with canned answers, on its own thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from queuectl.screen.facts import Answers
from tests.unit.screen.documents import page


class Site:
    """What it says now."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.details: dict[str, Any] = {}
        """By the path below /api/v1."""
        self.silent = False
        """Every connection is cut."""

    def find(self, path: str, phase: str) -> Any:
        lists = {
            "clusterqueues": self.answers.queues,
            "workloads": {
                "Admitted": self.answers.admitted,
                "Evicting": self.answers.evicting,
                "Pending": self.answers.pending,
            }.get(phase, page()),
            "decisions": self.answers.decisions,
            "capacity": self.answers.capacity,
            **self.details,
        }
        return lists.get(path)


@contextmanager
def serving(site: Site) -> Iterator[str]:
    """Its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if site.silent:
                self.close_connection = True
                return
            parts = urlsplit(self.path)
            phase = parse_qs(parts.query).get("phase", [""])[0]
            found = site.find(parts.path.removeprefix("/api/v1/"), phase)
            body = json.dumps(found or {"detail": "no such thing"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on the terminal of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
