"""What a webhook, a Slack-compatible URL and a mail server get, and what they never get."""

from __future__ import annotations

import asyncio
import email
import hashlib
import hmac
import json
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code
from queuectl.notifications.delivery import MAX_PAUSE, Sink, SinkFailed
from queuectl.notifications.messages import Message, about
from queuectl.notifications.rules import Event
from queuectl.notifications.sinks import HttpSink, MailSink, selection, sinks
from queuectl.ports.outbox import Occurrence
from queuectl.settings import ConfigurationError, load
from queuectl.settings.notifications import MailSinkSettings
from tests.unit.notifications.books import CREATED, PREEMPTED, row
from tests.unit.notifications.receivers import hook, mail_server

TLS = ssl.create_default_context()
MESSAGE = about(
    "uid", Event.EVICTED, Occurrence(row(7, Verdict.EVICTED, reason=PREEMPTED), "main", CREATED), {"team-b"}
)


def configured(tmp_path: Path, text: str) -> list[Sink]:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return sinks(load(file, environ={}).notifications)


async def test_a_webhook_gets_the_document_its_id_and_a_signature() -> None:
    async with hook() as receiver:
        await HttpSink(lambda: receiver.url, TLS, lambda: "key").webhook(MESSAGE)
        await HttpSink(lambda: receiver.url, TLS).webhook(MESSAGE)
    (headers, body), (unsigned, _) = receiver.requests
    assert json.loads(body) == MESSAGE.document
    assert headers["Idempotency-Key"] == MESSAGE.document["id"] == "uid/1/7"
    signed = hmac.new(b"key", body, hashlib.sha256).hexdigest()
    assert headers["X-Queuectl-Signature-256"] == f"sha256={signed}"
    assert "X-Queuectl-Signature-256" not in unsigned


async def test_slack_gets_a_text_in_which_nothing_is_markup() -> None:
    message = Message("c/1", "Evicted", CREATED, "a <!channel> & b, @all, by ann@corp", {})
    async with hook() as receiver:
        await HttpSink(lambda: receiver.url, TLS).slack(message)
    ((headers, body),) = receiver.requests
    assert json.loads(body) == {"text": "a &lt;!channel&gt; &amp; b, @\u200ball, by ann@corp"}
    assert headers["Idempotency-Key"] == "c/1"


@pytest.mark.parametrize(
    ("status", "headers", "problem", "pause"),
    [
        (302, {"Location": "http://127.0.0.1:1/other"}, "answers 302: redirects are not followed", None),
        (500, {}, "answers 500", None),
        (429, {"Retry-After": "30"}, "answers 429", 30.0),
        (503, {"Retry-After": "999999999999999"}, "answers 503", MAX_PAUSE),
        (503, {"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}, "answers 503", None),
    ],
)
async def test_an_answer_that_is_no_success_is_a_failure(
    status: int, headers: dict[str, str], problem: str, pause: float | None
) -> None:
    async with hook() as receiver:
        receiver.answers.append((status, headers))
        with pytest.raises(SinkFailed) as failed:
            await HttpSink(lambda: receiver.url, TLS).webhook(MESSAGE)
    assert (str(failed.value), failed.value.retry_after) == (problem, pause)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/T0/secret",
        "ftp://example.com/secret",
        "secret",
        "https:///secret",
        "https://a b/secret",
    ],
)
async def test_a_url_without_tls_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(SinkFailed) as failed:
        await HttpSink(lambda: url, TLS).webhook(MESSAGE)
    assert "its URL" in str(failed.value)
    assert "secret" not in str(failed.value)


async def test_no_connection_is_a_failure_that_shows_no_path() -> None:
    async with hook() as receiver:
        url = f"{receiver.url}/secret"
    with pytest.raises(SinkFailed) as failed:
        await HttpSink(lambda: url, TLS).webhook(MESSAGE)
    assert "no connection" in str(failed.value)
    assert "secret" not in str(failed.value)


async def test_a_mail_has_a_message_id_of_its_decision() -> None:
    async with mail_server() as server:
        sink = MailSink(
            MailSinkSettings(
                host="127.0.0.1",
                port=server.port,
                security="none",
                sender="queue@example.com",
                receivers=("a@example.com", "b@example.com"),
            ),
            TLS,
        )
        await sink.send(MESSAGE)
        await sink.send(MESSAGE)
    first, second = (email.message_from_bytes(one) for one in server.mails)
    assert first["Message-ID"] == second["Message-ID"] == "<uid.1.7@queuectl>"
    assert first["Subject"].startswith("Job team-a/train was evicted, LocalQueue main")
    assert '"sequence": 7' in first.get_payload()
    assert server.receivers == ["a@example.com", "b@example.com"] * 2


async def test_a_mail_is_delivered_once_one_receiver_has_it() -> None:
    async def sent(*receivers: str) -> list[str]:
        async with mail_server("gone@example.com") as server:
            sink = MailSink(
                MailSinkSettings(
                    host="127.0.0.1",
                    port=server.port,
                    security="none",
                    sender="queue@example.com",
                    receivers=receivers,
                ),
                TLS,
            )
            await sink.send(MESSAGE)
            return server.receivers

    assert await sent("gone@example.com", "a@example.com") == ["a@example.com"]
    with pytest.raises(SinkFailed, match=r"all receivers are refused: gone@example.com \(550\)"):
        await sent("gone@example.com")


async def test_a_mail_server_that_offers_no_tls_gets_nothing() -> None:
    async with mail_server() as server:
        sink = MailSink(
            MailSinkSettings(
                host="127.0.0.1",
                port=server.port,
                security="starttls",
                sender="queue@example.com",
                receivers=("a@example.com",),
            ),
            TLS,
        )
        with pytest.raises(SinkFailed, match="STARTTLS"):
            await sink.send(MESSAGE)
    assert server.mails == []


# --- the configuration --------------------------------------------------------------------------------


async def test_a_configured_webhook_reads_its_secrets_at_each_message(tmp_path: Path) -> None:
    async with hook() as receiver:
        url, key = tmp_path / "url", tmp_path / "key"
        url.write_text(f"{receiver.url}\n")
        key.write_text("one")
        (sink,) = configured(
            tmp_path,
            f"notifications: [{{name: team, rules: [{{event: Evicted}}], "
            f"webhook: {{urlFrom: {{file: {url}}}, secretFrom: {{file: {key}}}}}}}]",
        )
        await sink.send(MESSAGE)
        key.write_text("two")
        await sink.send(MESSAGE)
    signatures = [headers["X-Queuectl-Signature-256"] for headers, _ in receiver.requests]
    assert len(set(signatures)) == 2


def test_a_selection_is_that_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "notifications:\n- name: team\n  webhook: {url: 'https://example.com/x'}\n"
        "  namespaces: [team-a]\n  queues: [main]\n"
        "  rules: [{event: Started, waitedMoreThanSeconds: 3600}, {event: Evicted, reasons: [Preempted]},\n"
        "    {event: StartMoved, movedMoreThanSeconds: 7200},\n"
        "    {event: StartMoved, movedMoreThanSeconds: 900}]\n"
        "- name: asked\n  webhook: {url: 'https://example.com/x'}\n  users: [ada]\n"
        "  labelSelector: notify=me\n  page: 'https://q.example.com/'\n"
        "  rules: [{event: Ended, outcomes: [Failed]}]\n"
    )
    one, other = load(file, environ={}).notifications
    asked = selection(other)
    assert asked.rules[0].outcomes == ("Failed",)
    assert (asked.users, asked.page) == (frozenset({"ada"}), "https://q.example.com/")
    assert asked.labels is not None
    assert [asked.labels({"notify": who}) for who in ("me", "you")] == [True, False]
    found = selection(one)
    assert (found.users, found.labels, found.page) == (frozenset(), None, None)
    assert [rule.event for rule in found.rules] == [Event.STARTED, Event.EVICTED, *[Event.START_MOVED] * 2]
    assert found.moved_more_than == timedelta(minutes=15)
    assert found.rules[0].waited_more_than_seconds == 3600
    assert found.rules[1].reasons == (Code.PREEMPTED,)
    assert (found.namespaces, found.queues) == (frozenset({"team-a"}), frozenset({"main"}))


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("", "none is configured"),
        (
            "{name: a, webhook: {url: 'http://example.com/x'}, rules: [{event: Evicted}]}",
            "must start with https://",
        ),
        ("{name: a, webhook: {url: 'https://u:p@h/x'}, rules: [{event: Evicted}]}", "no user and password"),
        ("{name: a, webhook: {}, rules: [{event: Evicted}]}", "set either url or urlFrom"),
        ("{name: a, rules: [{event: Evicted}]}", "set one of webhook, slack and mail, not none"),
        (
            "{name: a, slack: {urlFrom: {env: QUEUECTL_NO_SUCH}}, rules: [{event: Evicted}]}",
            "QUEUECTL_NO_SUCH is not",
        ),
        (
            "{name: a, slack: {urlFrom: {file: /none/x}}, rules: [{event: Evicted}]}",
            "file /none/x: No such file",
        ),
        ("{name: a, slack: {urlFrom: {env: A, file: b}}, rules: [{event: Evicted}]}", "either env or file"),
        ("{name: a, slack: {urlFrom: {env: A}}, rules: []}", "rules"),
        ("{name: a, slack: {urlFrom: {env: A}}, rules: [{event: Lost}]}", "rules.0.event"),
        (
            "{name: a, slack: {urlFrom: {env: A}}, rules: [{event: Evicted, waitedMoreThanSeconds: 9}]}",
            "Started only",
        ),
        ("{name: a, slack: {urlFrom: {env: A}}, rules: [{event: StartMoved}]}", "StartMoved, which needs it"),
        (
            "{name: a, slack: {urlFrom: {env: A}}, rules: [{event: Evicted, movedMoreThanSeconds: 900}]}",
            "not for Evicted",
        ),
        (
            "{name: a, slack: {urlFrom: {env: A}}, rules: [{event: Started, outcomes: [Failed]}]}",
            "Ended only",
        ),
        (
            "{name: a, slack: {urlFrom: {env: A}}, rules: [{event: Ended, outcomes: [Broken]}]}",
            "outcomes.0",
        ),
        (
            "{name: a, slack: {urlFrom: {env: A}}, labelSelector: 'a b', rules: [{event: Ended}]}",
            "'a b' is not a label selector such as notify=team-a",
        ),
        (
            "{name: a, slack: {urlFrom: {env: A}}, users: [ada], "
            "rules: [{event: StartMoved, movedMoreThanSeconds: 900}]}",
            "not with users and labelSelector",
        ),
        (
            "{name: a, slack: {urlFrom: {env: A}}, rules: [{event: Evicted, reasons: [OnHold]}]}",
            "must be one of Preempted",
        ),
        (
            "{name: a, mail: {host: h, sender: x, receivers: [a@b]}, rules: [{event: Evicted}]}",
            "'x' is not a mail address",
        ),
        (
            "{name: a, mail: {host: h, security: none, sender: a@b, receivers: [a@b], user: u, "
            "passwordFrom: {env: A}}, rules: [{event: Evicted}]}",
            "would send the password readable",
        ),
        (
            "{name: a, webhook: {url: 'https://h/x', caFile: /none/ca}, rules: [{event: Evicted}]}",
            "caFile: /none/ca: No such file",
        ),
    ],
)
def test_a_configuration_that_cannot_send_is_refused_with_its_field(
    tmp_path: Path, section: str, told: str
) -> None:
    text = f"notifications: [{section}]"
    with pytest.raises(ConfigurationError) as refused:
        configured(tmp_path, text)
    assert told in str(refused.value)


def test_two_sinks_have_two_names(tmp_path: Path) -> None:
    one = "{name: a, webhook: {url: 'https://h/x'}, rules: [{event: Evicted}]}"
    with pytest.raises(ConfigurationError, match="the name a is used twice"):
        configured(tmp_path, f"notifications: [{one}, {one}]")


def test_what_is_recorded_of_a_configuration_has_no_sink(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("notifications: [{name: a, webhook: {url: 'https://h/x'}, rules: [{event: Evicted}]}]")
    recorded = load(file, environ={}).public()
    assert "notifications" not in recorded
    assert "https://h/x" not in json.dumps(recorded)


async def test_a_certificate_of_another_ca_is_not_trusted(tmp_path: Path) -> None:
    ca, served = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(served)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "localhost", 0, ssl=served) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}/x"
        with pytest.raises(SinkFailed, match="certificate verify failed"):
            await HttpSink(lambda: url, TLS).webhook(MESSAGE)
        text = (
            f"{{name: a, webhook: {{url: '{url}', caFile: {tmp_path}/ca.pem}}, rules: [{{event: Evicted}}]}}"
        )
        (sink,) = configured(tmp_path, f"notifications: [{text}]")
        await sink.send(MESSAGE)
