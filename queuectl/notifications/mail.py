"""Messages by mail. The standard library's client runs in a thread: a sink sends one message at a time."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Final

from queuectl.notifications.delivery import SinkFailed
from queuectl.notifications.http import Secret
from queuectl.notifications.messages import Message

log = logging.getLogger(__name__)

SECONDS: Final = 10.0
"""For each answer of the server."""
_SUBJECT: Final = 150
"""Characters."""
_NO_ID: Final = re.compile(r"[^A-Za-z0-9.-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSink:
    """One SMTP server, one sender, some receivers."""

    host: str
    port: int
    security: str
    """`tls`: from the first byte; `starttls`: before anything is sent; `none`."""
    sender: str
    receivers: tuple[str, ...]
    tls: ssl.SSLContext
    user: str | None = None
    password: Secret | None = None

    async def send(self, message: Message) -> None:
        """Delivered once the server accepts it for one of the receivers. Raises SinkFailed if for none."""
        password = self.password() if self.password is not None else None
        await asyncio.to_thread(self._deliver, mail(message, self.sender, self.receivers), password)

    def _deliver(self, content: EmailMessage, password: str | None) -> None:
        try:
            with self._connected() as server:
                if self.user is not None and password is not None:
                    server.login(self.user, password)
                refused = server.send_message(content, self.sender, list(self.receivers))
        except smtplib.SMTPRecipientsRefused as error:
            raise SinkFailed(f"all receivers are refused: {_codes(error.recipients)}") from None
        except smtplib.SMTPResponseException as error:
            raise SinkFailed(f"the mail server answers {error.smtp_code}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise SinkFailed(f"no mail server: {error or type(error).__name__}") from None
        if refused:
            # Another try would send it again to all others.
            log.warning("mail %s: some receivers are refused: %s", content["Message-ID"], _codes(refused))

    def _connected(self) -> smtplib.SMTP:
        if self.security == "tls":
            return smtplib.SMTP_SSL(
                self.host, self.port, local_hostname="queuectl", timeout=SECONDS, context=self.tls
            )
        server = smtplib.SMTP(self.host, self.port, local_hostname="queuectl", timeout=SECONDS)
        if self.security == "starttls":
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
