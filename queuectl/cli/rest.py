"""A client of `queuectl api`, with the standard library only, which is fast to import."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPResponse, HTTPSConnection
from typing import Any, Final
from urllib import error, parse, request

import click

from queuectl.cli import contexts
from queuectl.cli.identity import CallerToken, Grant, trust
from queuectl.cli.options import Failure, NotGood, Options
from queuectl.cli.options import NoAnswer as NoAnswer
from queuectl.net.addresses import is_loopback
from queuectl.net.failures import why
from queuectl.ports import SILENT_SECONDS

TIMEOUT_SECONDS: Final = 15.0
MAX_BODY: Final = 64 << 20
PAGE: Final = 1000
PORT_FORWARD: Final = "kubectl -n queuectl-system port-forward service/queuectl-api 8443:443"
CERTIFICATES: Final = (
    "kubectl get cm -n queuectl-system queuectl-api-ca -o jsonpath='{.data.ca\\.crt}' > queuectl-ca.crt"
)
PATIENCE_SECONDS: Final = 10
"""The longest Retry-After that the client waits for."""
_TRIES: Final = 5

Document = dict[str, Any]


class NotThere(NotGood):
    """There is no such object, or the caller may not read it."""


class _NoRedirects(request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **values: Any) -> None:
        return None


class _Dialled(HTTPSConnection):
    """TLS on a connection that is opened elsewhere."""

    def __init__(
        self, host: str, *, dial: Callable[[], socket.socket], tls: ssl.SSLContext, timeout: float
    ) -> None:
        super().__init__(host, timeout=timeout, context=tls)
        self._dial = dial
        self._tls = tls

    def connect(self) -> None:
        opened = self._dial()
        try:
            opened.settimeout(self.timeout)
            self.sock = self._tls.wrap_socket(opened, server_hostname=self.host)
        except BaseException:
            opened.close()
            raise


class _Dialling(request.HTTPSHandler):
    def __init__(self, dial: Callable[[], socket.socket], tls: ssl.SSLContext) -> None:
        super().__init__(context=tls)
        self._connection = partial(_Dialled, dial=dial, tls=tls)

    def https_open(self, req: request.Request) -> HTTPResponse:
        return self.do_open(self._connection, req)


class Server:
    """One REST server and one caller."""

    def __init__(
        self,
        url: str,
        identity: CallerToken,
        *,
        timeout: float = TIMEOUT_SECONDS,
        tls: Callable[[], ssl.SSLContext] = trust,
        dial: Callable[[], socket.socket] | None = None,
        place: contexts.Place | None = None,
    ) -> None:
        """`tls`: made for an https URL only. `dial`: opens connections to it; None: by its name and port.
        `place`: where it was found; None: it was given."""
        try:
            parts = parse.urlsplit(url)
        except ValueError:
            parts = parse.urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Failure(f"--server {url}: must be a URL such as http://127.0.0.1:8080")
        if parts.username is not None:
            raise Failure("--server: a URL must not contain a user: see --token-file")
        self.url = url.rstrip("/")
        self.now: datetime | None = None
        """The server's clock at its last answer; after `look_back`, that time."""
        self._as_of: datetime | None = None
        self._identity = identity
        self._timeout = timeout
        self._secure = parts.scheme == "https"
        self._local = is_loopback(parts.hostname)
        self._place = place
        self._grant: Grant | None = None
        self._told: set[str] = set()
        """Notes on its answers that were printed already."""
        # No proxy between this machine and itself.
        handlers: list[Any] = [request.ProxyHandler({})] if self._local or dial is not None else []
        if dial is not None:
            handlers.append(_Dialling(dial, tls()))
        elif self._secure:
            handlers.append(request.HTTPSHandler(context=tls()))
        self._opener = request.build_opener(_NoRedirects, *handlers)

    def get(
        self, path: Iterable[str], parameters: Mapping[str, str] | None = None, *, quiet: bool = False
    ) -> Document:
        """The document at /api/v1/ and `path`. Raises NotThere, NoAnswer, or another Failure.

        `quiet`: no note if it is stale or only observed.
        """
        # Arguments that are not UTF-8 are sent as they are: the server refuses them.
        url = self._url(path)
        if self._as_of is not None:
            parameters = {**(parameters or {}), "asOf": utc(self._as_of)}
        if parameters:
            url += "?" + parse.urlencode(parameters, errors="surrogateescape")
        document = self._ask(url)
        if not quiet:
            self._introduce()
            self._tell(document)
        return document

    def post(self, path: Iterable[str], body: Document) -> Document:
        """The answer to a document. Raises as `get` does."""
        document = self._ask(self._url(path), json.dumps(body).encode())
        self._introduce()
        self._tell(document)
        return document

    def _url(self, path: Iterable[str]) -> str:
        parts = (parse.quote(part, safe="", errors="surrogateescape") for part in path)
        return f"{self.url}/api/v1/" + "/".join(parts)

    def look_back(self, to: datetime | timedelta | None) -> None:
        """From now on ask for answers as of a time, or of so long ago; None: of now. Raises Failure."""
        if isinstance(to, timedelta):
            self.learn_time()
            if self.now is None:
                raise Failure("--as-of: the server does not send its time: give a time, not how long ago")
            to = self.now - to
        self._as_of = to

    def learn_time(self) -> None:
        """Ask for something small, so that `now` is known."""
        self._ask(f"{self.url}/api/v1/clusterqueues?limit=1")

    @property
    def looks_back(self) -> bool:
        """Whether answers are as of an earlier time."""
        return self._as_of is not None

    @property
    def shown(self) -> str:
        """Its name for people: the context in which it was found, or its URL."""
        if self._place is None or self._place.sandbox is not None:
            return self.url
        return f"context {self._place.context}"

    def _introduce(self) -> None:
        """Say once, on stderr, which server was found and how."""
        if self._place is None or "place" in self._told:
            return
        self._told.add("place")
        how = ""
        if self._place.sandbox is None:
            source = self._grant.source if self._grant is not None else "no token"
            how = f": REST through the API server, with {source}"
        contexts.announce(f"{self._place}{how}")

    def _tell(self, document: Document) -> None:
        """Notes on an answer, on stderr, printed once while they apply."""
        age = document.get("ageSeconds", 0)
        silence = (document.get("controller") or {}).get("seconds", 0)
        stale = bool(document.get("stale"))
        for word, applies, text in (
            ("stale", stale, f"the ledger cannot be reached; this is the state of {age:.0f} s ago"),
            (
                "no controller",
                not stale and silence > SILENT_SECONDS,
                f"none has committed for {silence:.0f} s: nothing is decided until one runs",
            ),
            (
                "observed",
                bool(document.get("observed")),
                "decisions of an observer: none of them was carried out",
            ),
        ):
            if not applies:
                self._told.discard(word)
            elif word not in self._told:
                self._told.add(word)
                click.echo(f"{word}: {text}", err=True)

    def pages(self, path: Iterable[str], parameters: Mapping[str, str]) -> Iterator[Document]:
        """A list, page by page."""
        path = tuple(path)
        page = self.get(path, {"limit": str(PAGE), **parameters})
        yield page
        while page["next"]:
            page = self.get(path, {"limit": str(PAGE), **parameters, "next": page["next"]}, quiet=True)
            yield page

    def all(
        self, path: Iterable[str], parameters: Mapping[str, str], *, limit: int | None = None
    ) -> Document:
        """A list with the items of all pages, or the first `limit` of them."""
        asked = dict(parameters) if limit is None else {**parameters, "limit": str(min(limit, PAGE))}
        first: Document | None = None
        items: list[Document] = []
        for page in self.pages(path, asked):
            first = first or page
            items += page["items"]
            if limit is not None and len(items) >= limit:
                break
        assert first is not None
        return {**first, "items": items if limit is None else items[:limit], "next": None}

    def _ask(self, url: str, body: bytes | None = None) -> Document:
        given = self._identity.given(secure=self._secure, local=self._local, url=self.url)
        self._grant, looked = given or self._grant, given is not None
        for left in reversed(range(_TRIES)):
            try:
                return self._once(url, self._grant.token if self._grant is not None else None, body)
            except error.HTTPError as problem:
                with problem:
                    told = _problem(problem)
                if problem.code == 401 and not looked:
                    # None was sent, or the one that was found before has expired.
                    looked = True
                    self._grant = self._identity.found(told.get("audiences"), secure=self._secure)
                    if self._grant is not None:
                        continue
                wait = problem.headers.get("Retry-After", "")
                if problem.code == 429 and left and wait.isdigit() and int(wait) <= PATIENCE_SECONDS:
                    time.sleep(int(wait))
                    continue
                raise self._refused(problem.code, told, asked=self._grant is not None) from None
        raise AssertionError("the last attempt returns or raises")

    def _once(self, url: str, token: str | None, sent: bytes | None = None) -> Document:
        """Raises HTTPError, or NoAnswer and Failure."""
        headers = {"Accept": "application/json", "User-Agent": "queuectl"}
        if sent is not None:
            headers["Content-Type"] = "application/json"
        asked = request.Request(url, data=sent, headers=headers)
        if token is not None:
            # Unredirected: the token is not sent again on a redirect.
            asked.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with self._opener.open(asked, timeout=self._timeout) as answer:
                body = answer.read(MAX_BODY + 1)
                self.now = self._as_of or _date(answer.headers.get("Date")) or self.now
        except (error.HTTPError, Failure):
            raise
        except (OSError, ValueError) as problem:
            raise _silent(self.url, getattr(problem, "reason", problem), self._secure) from None
        except Exception as problem:  # errors of http.client, for an answer that is not HTTP
            raise _silent(self.url, problem, self._secure) from None
        try:
            document = json.loads(body) if len(body) <= MAX_BODY else None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or "sequence" not in document:
            raise Failure(f"{self.url} does not answer like queuectl's REST server: is --server correct?")
        return document

    def _refused(self, status: int, told: Document, *, asked: bool) -> Failure:
        detail = told.get("detail")
        if status == 404:
            return NotThere(f"not found: {detail}\n`queuectl get` lists what exists; -n names the namespace")
        if status == 401:
            return Failure(self._identity.how_to_sign_in(self.url, told.get("audiences"), refused=asked))
        kind = NoAnswer if status in (429, 502, 503, 504) else Failure
        return kind(f"{self.url} answers {status}: {detail}")


def connect(
    options: Options,
    *,
    namespace: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
    patience: float | None = None,
) -> Server:
    """The given server, else that of the sandbox or of the kubeconfig's cluster.

    `timeout`: of one request to it, in seconds. `patience`: of each request to the cluster on the way there;
    None: what an exec plugin may take, and more.

    Raises Failure that says how to reach one, NoAnswer if it may be reached later.
    """
    identity = CallerToken(
        token_file=options.token_file,
        kubeconfig=options.kubeconfig,
        context=options.context,
        namespace=namespace,
    )
    tls = partial(trust, options.server_ca)
    if options.server is not None:
        return Server(options.server, identity, timeout=timeout, tls=tls)
    place = contexts.checked(contexts.place(options), options)
    if place.rest is not None:
        identity = replace(identity, kubeconfig=place.kubeconfig)
        return Server(place.rest, identity, timeout=timeout, tls=tls, place=place)
    if place.server is None and not contexts.in_pod():
        raise Failure(
            f"no server is given, there is no sandbox in {options.folder}, and no kubeconfig with a context\n"
            f"{how_to_reach()}"
        )
    from queuectl.cli.reaching import Reached

    cluster = Reached(place, options.context, patience)
    authority = cluster.authority()
    return Server(
        cluster.url,
        replace(identity, kubeconfig=place.kubeconfig, cluster=cluster),
        timeout=timeout,
        tls=lambda: trust(text=authority),
        dial=cluster.connect,
        place=place,
    )


def utc(time: datetime) -> str:
    """As REST takes it."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def how_to_reach() -> str:
    return (
        "With the kubeconfig of a cluster that has queuectl nothing else is needed (--context).\n"
        f"By hand:\n  {PORT_FORWARD}\n  {CERTIFICATES}\n"
        "then --server https://127.0.0.1:8443 --server-ca queuectl-ca.crt (or QUEUECTL_SERVER, "
        "QUEUECTL_SERVER_CA).\nTo try queuectl on this machine: `queuectl sandbox`."
    )


def _silent(url: str, reason: object, secure: bool) -> NoAnswer:
    text = why(reason)
    if secure and "CERTIFICATE_VERIFY_FAILED" in str(reason):
        return NoAnswer(
            f"{url} is not trusted: {text}\n"
            "--server-ca FILE (or QUEUECTL_SERVER_CA) names the CA certificates to trust:\n"
            f"  {CERTIFICATES}"
        )
    return NoAnswer(f"no answer from {url}: {text}\n{how_to_reach()}")


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC) if text else None
    except ValueError:
        return None


def _problem(problem: error.HTTPError) -> Document:
    """The problem document of a refusal; it has at least `detail`."""
    try:
        found = json.loads(problem.read(MAX_BODY))
        if isinstance(found["detail"], str):
            return dict(found)
    except Exception:  # the server may be another program
        pass
    return {"detail": problem.reason}
