"""Sinks of notifications, made from the configuration: webhooks, Slack-compatible URLs, and mail."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import re
import smtplib
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from queuectl import __version__
from queuectl.kinds.selectors import label_selector
from queuectl.net.addresses import is_loopback
from queuectl.net.failures import why
from queuectl.notifications.delivery import MAX_PAUSE, Send, Sink, SinkFailed
from queuectl.notifications.messages import Message
from queuectl.notifications.rules import Selection
from queuectl.settings import ConfigurationError, NotificationSettings
from queuectl.settings.notifications import (
    MAX_SECRET,
    MailSinkSettings,
    SecretSettings,
    SlackSinkSettings,
    WebhookSinkSettings,
)

SIGNATURE: Final = "X-Queuectl-Signature-256"
"""Header with `sha256=` and the HMAC-SHA256 of the body in hex, as webhooks of GitHub have it."""
SECONDS: Final = 10.0
"""For one request, from the connection to the status."""
Secret = Callable[[], str]
"""Reads a secret: at each message, so that a changed one counts at once. Raises SinkFailed."""


class HttpSink:
    """POSTs to one URL: TLS is verified, redirects are not followed, proxies of the environment not used."""

    def __init__(self, url: Secret, tls: ssl.SSLContext, secret: Secret | None = None) -> None:
        """`secret`: key of the signature; None: requests are not signed."""
        self._url = url
        self._tls = tls
        self._secret = secret

    async def webhook(self, message: Message) -> None:
        """Raises SinkFailed."""
        await self._post(message, message.body)

    async def slack(self, message: Message) -> None:
        """Raises SinkFailed."""
        await self._post(message, json.dumps({"text": _escaped(message.text)}).encode())

    async def _post(self, message: Message, body: bytes) -> None:
        url = checked(self._url())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"queuectl/{__version__}",
            "Idempotency-Key": message.id,
            "X-Queuectl-Event": message.event,
        }
        if self._secret is not None:
            headers[SIGNATURE] = signature(self._secret(), body)
        try:
            async with (
                asyncio.timeout(SECONDS),
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=self._tls), cookie_jar=aiohttp.DummyCookieJar()
                ) as session,
                session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                _accepted(answer.status, answer.headers)
        except TimeoutError:
            raise SinkFailed(f"no answer within {SECONDS:g} s") from None
        except aiohttp.InvalidURL:
            raise SinkFailed("its URL is not valid") from None  # the message would have the URL
        except aiohttp.ClientConnectionError as error:
            raise SinkFailed(f"no connection: {why(error)}") from None
        except aiohttp.ClientError as error:
            raise SinkFailed(why(error)) from None


def signature(secret: str, body: bytes) -> str:
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def checked(url: str) -> str:
    """The URL, if messages may be sent there. Raises SinkFailed, without the URL: it may be a secret."""
    problem = url_problem(url)
    if problem is not None:
        raise SinkFailed(f"its URL {problem}")
    return url


def url_problem(url: str) -> str | None:
    """What is wrong with the URL of a sink; None: nothing."""
    try:
        parts = urlsplit(url)
        known = parts.hostname is not None and parts.port != 0
    except ValueError:
        known = False
    if not known or not url.isascii() or not url.isprintable() or " " in url:
        return "is not a URL"
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return "must start with https://, or with http:// and the name of this machine's loopback"
    return None


def _accepted(status: int, headers: Mapping[str, str]) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise SinkFailed(f"answers {status}: redirects are not followed")
    wait = headers.get("Retry-After", "")
    seconds = min(float(wait[:9]), MAX_PAUSE) if wait.isascii() and wait.isdigit() else None
    raise SinkFailed(f"answers {status}", seconds)


_MENTION: Final = re.compile(r"(?<!\w)@")


def _escaped(text: str) -> str:
    """Slack reads three characters as its own, and servers like it take `@all` for a mention of everyone."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MENTION.sub("@\N{ZERO WIDTH SPACE}", text)


log = logging.getLogger(__name__)
_SUBJECT: Final = 150
"""Characters."""
_NO_ID: Final = re.compile(r"[^A-Za-z0-9.-]")


@dataclass(frozen=True, slots=True)
class MailSink:
    """One SMTP server, one sender, some receivers."""

    of: MailSinkSettings
    tls: ssl.SSLContext
    password: Secret | None = None

    async def send(self, message: Message) -> None:
        """Delivered once the server accepts it for one of the receivers. Raises SinkFailed if for none."""
        password = self.password() if self.password is not None else None
        await asyncio.to_thread(self._deliver, mail(message, self.of.sender, self.of.receivers), password)

    def _deliver(self, content: EmailMessage, password: str | None) -> None:
        try:
            with self._connected() as server:
                if self.of.user is not None and password is not None:
                    server.login(self.of.user, password)
                refused = server.send_message(content, self.of.sender, list(self.of.receivers))
        except smtplib.SMTPRecipientsRefused as error:
            raise SinkFailed(f"all receivers are refused: {_codes(error.recipients)}") from None
        except smtplib.SMTPResponseException as error:
            raise SinkFailed(f"the mail server answers {error.smtp_code}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise SinkFailed(f"no mail server: {why(error)}") from None
        if refused:
            # Another try would send it again to all others.
            log.warning("mail %s: some receivers are refused: %s", content["Message-ID"], _codes(refused))

    def _connected(self) -> smtplib.SMTP:
        if self.of.security == "tls":
            return smtplib.SMTP_SSL(
                self.of.host, self.of.port, local_hostname="queuectl", timeout=SECONDS, context=self.tls
            )
        server = smtplib.SMTP(self.of.host, self.of.port, local_hostname="queuectl", timeout=SECONDS)
        if self.of.security == "starttls":
            try:
                server.starttls(context=self.tls)
            except BaseException:
                server.close()
                raise
        return server


def mail(message: Message, sender: str, receivers: tuple[str, ...]) -> EmailMessage:
    """The mail for a message; equal messages have the same Message-ID."""
    content = EmailMessage()
    content["From"] = sender
    content["To"] = ", ".join(receivers)
    content["Subject"] = _printable(message.text)[:_SUBJECT]
    content["Date"] = format_datetime(message.at)
    content["Message-ID"] = f"<{_NO_ID.sub('.', message.id)}@queuectl>"
    content["X-Queuectl-Event"] = message.event
    content["Auto-Submitted"] = "auto-generated"
    details = json.dumps(message.document, indent=2, sort_keys=True, ensure_ascii=False)
    content.set_content(f"{message.text}\n\n{details}\n")
    return content


def _printable(text: str) -> str:
    """Without control characters, which a header must not have."""
    return "".join(letter for letter in text if letter.isprintable())


def _codes(refused: dict[str, tuple[int, bytes]]) -> str:
    return ", ".join(f"{receiver} ({code})" for receiver, (code, _) in sorted(refused.items()))


def sinks(configured: Sequence[NotificationSettings]) -> list[Sink]:
    """In this order. Raises ConfigurationError, also where a secret is missing."""
    if not configured:
        raise ConfigurationError("notifications: none is configured: docs/notifications.md shows how")
    problems: list[str] = []
    found = []
    for one in configured:
        problems += (f"notifications: {one.name}: {one.kind}.{problem}" for problem in _problems(one))
        if not problems:
            found.append(Sink(name=one.name, selection=selection(one), send=_send(one)))
    if problems:
        raise ConfigurationError(*problems)
    return found


def selection(of: NotificationSettings) -> Selection:
    return Selection(
        rules=of.rules,
        namespaces=frozenset(of.namespaces),
        queues=frozenset(of.queues),
        users=frozenset(of.users),
        labels=None if of.label_selector is None else label_selector(of.label_selector),
        page=of.page,
    )


def _problems(of: NotificationSettings) -> Iterator[str]:
    """What is wrong with what the configuration refers to."""
    sink = of.sink
    try:
        _trust(sink.ca_file)
    except OSError as error:
        yield f"caFile: {sink.ca_file}: {why(error)}"
    secrets: dict[str, SecretSettings | None] = {}
    if isinstance(sink, MailSinkSettings):
        secrets["passwordFrom"] = sink.password_from
    else:
        secrets["urlFrom"] = sink.url_from
    if isinstance(sink, WebhookSinkSettings):
        secrets["secretFrom"] = sink.secret_from
        if sink.url is not None and (problem := url_problem(sink.url)):
            yield f"url: {problem}"
    for name, where in secrets.items():
        if where is not None:
            try:
                _secret(where)()
            except SinkFailed as failed:
                yield f"{name}: {failed}"


def _send(of: NotificationSettings) -> Send:
    sink = of.sink
    tls = _trust(sink.ca_file)
    if isinstance(sink, MailSinkSettings):
        password = None if sink.password_from is None else _secret(sink.password_from)
        return MailSink(sink, tls, password).send
    if isinstance(sink, SlackSinkSettings):
        return HttpSink(_secret(sink.url_from), tls).slack
    url = sink.url
    key = None if sink.secret_from is None else _secret(sink.secret_from)
    if sink.url_from is not None:
        return HttpSink(_secret(sink.url_from), tls, key).webhook
    assert url is not None
    return HttpSink(lambda: url, tls, key).webhook


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


def _secret(where: SecretSettings) -> Secret:
    """Reads it at each use. Errors name the place, never the value."""

    def read() -> str:
        if where.env is not None:
            value, place = os.environ.get(where.env, ""), f"environment variable {where.env}"
        else:
            assert where.file is not None
            value, place = _content(where.file), f"file {where.file}"
        if not value:
            raise SinkFailed(f"{place} is not set or empty")
        if len(value) > MAX_SECRET:
            raise SinkFailed(f"{place} has more than {MAX_SECRET} characters")
        return value

    return read


def _content(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(MAX_SECRET + 2).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise SinkFailed(f"file {file}: {why}") from None
