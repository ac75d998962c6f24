"""Asks `queuectl api` over HTTP, with the standard library alone: it starts in no time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib import error, parse, request

import click

from queuectl.cli.options import Failure, NotGood, Options

TIMEOUT_SECONDS: Final = 15.0
MAX_BODY: Final = 64 << 20
PAGE: Final = 1000
PORT_FORWARD: Final = "kubectl -n queuectl-system port-forward deployment/queuectl 8080:8080"

Document = dict[str, Any]


class _NoRedirects(request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **values: Any) -> None:
        return None


class Server:
    """One REST server."""

    def __init__(self, url: str) -> None:
        try:
            parts = parse.urlsplit(url)
        except ValueError:
            parts = parse.urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Failure(f"--server {url}: must be a URL such as http://127.0.0.1:8080")
        self.url = url.rstrip("/")
        # A proxy has no business between this machine and itself.
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        proxies = [request.ProxyHandler({})] if local else []
        self._opener = request.build_opener(_NoRedirects, *proxies)

    def get(self, path: Iterable[str], parameters: Mapping[str, str] | None = None) -> Document:
        """The document at /api/v1/ and `path`. Raises NotGood for what is not there, else Failure."""
        url = f"{self.url}/api/v1/" + "/".join(parse.quote(part, safe="") for part in path)
        if parameters:
            url += "?" + parse.urlencode(parameters)
        asked = request.Request(url, headers={"Accept": "application/json"})
        try:
            with self._opener.open(asked, timeout=TIMEOUT_SECONDS) as answer:
                body = answer.read(MAX_BODY + 1)
        except error.HTTPError as problem:
            with problem:
                raise _refused(problem, self.url) from None
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "reason", problem)
            raise Failure(f"no answer from {self.url}: {reason}\n{how_to_reach()}") from None
        try:
            document = json.loads(body) if len(body) <= MAX_BODY else None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or "sequence" not in document:
            raise Failure(f"{self.url} does not answer as queuectl's REST server does: is --server right?")
        if document.get("stale"):
            age = document.get("ageSeconds", 0)
            click.echo(f"stale: the ledger can't be reached; this was so {age:.0f} s ago", err=True)
        return document

    def all(self, path: Iterable[str], parameters: Mapping[str, str]) -> Document:
        """A list with the items of all its pages."""
        path = tuple(path)
        found = self.get(path, {**parameters, "limit": str(PAGE)})
        items = list(found["items"])
        page = found
        while page["next"]:
            page = self.get(path, {**parameters, "limit": str(PAGE), "next": page["next"]})
            items += page["items"]
        return {**found, "items": items, "next": None}


def connect(options: Options) -> Server:
    """The server that is named, else the sandbox's. Raises Failure that says how to reach one."""
    url = options.server or options.endpoints().get("rest")
    if url is None:
        raise Failure(f"no server is named, and there is no sandbox in {options.folder}\n{how_to_reach()}")
    return Server(url)


def how_to_reach() -> str:
    return (
        f"For a cluster: `{PORT_FORWARD}`, then --server http://127.0.0.1:8080\n"
        "(or QUEUECTL_SERVER). For a try-out on this machine: `queuectl sandbox`."
    )


def _refused(problem: error.HTTPError, url: str) -> Failure:
    try:
        detail = json.loads(problem.read(MAX_BODY))["detail"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        detail = problem.reason
    if problem.code == 404:
        return NotGood(f"not found: {detail}\n`queuectl get` lists what there is; -n names the namespace")
    return Failure(f"{url} answers {problem.code}: {detail}")
