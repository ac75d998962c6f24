"""Sinks of notifications, made from the configuration."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from queuectl.notifications.delivery import Send, Sink, SinkFailed
from queuectl.notifications.http import HttpSink, Secret, url_problem
from queuectl.notifications.mail import MailSink
from queuectl.notifications.rules import Event, Rule, Selection
from queuectl.settings import ConfigurationError, NotificationSettings
from queuectl.settings.notifications import (
    MAX_SECRET,
    MailSinkSettings,
    RuleSettings,
    SecretSettings,
    SlackSinkSettings,
    WebhookSinkSettings,
)


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
        rules=tuple(map(_rule, of.rules)), namespaces=frozenset(of.namespaces), queues=frozenset(of.queues)
    )


def _rule(of: RuleSettings) -> Rule:
    seconds, moved = of.waited_more_than_seconds, of.moved_more_than_seconds
    return Rule(
        event=Event(of.event),
        waited_more_than=None if seconds is None else timedelta(seconds=seconds),
        reasons=frozenset(of.reasons),
        moved_more_than=None if moved is None else timedelta(seconds=moved),
    )


def _problems(of: NotificationSettings) -> Iterator[str]:
    """What is wrong with what the configuration refers to."""
    sink = of.sink
    try:
        _trust(sink.ca_file)
    except OSError as error:
        yield f"caFile: {sink.ca_file}: {error.strerror or error}"
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
        return MailSink(
            host=sink.host,
            port=sink.port,
            security=sink.security,
            sender=sink.sender,
            receivers=sink.receivers,
            tls=tls,
            user=sink.user,
            password=None if sink.password_from is None else _secret(sink.password_from),
        ).send
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
