"""The section `notifications` of the configuration: sinks, their rules, and where their secrets are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, field_validator, model_validator

from queuectl.core.model.reasons import FAMILIES, Code, Family
from queuectl.kinds.invalid import Section
from queuectl.kinds.selectors import label_selector

MAX_SINKS: Final = 32
MAX_SECRET: Final = 4096
"""Characters of a secret, a URL included."""
_VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,252}$"
_MAILBOX: Final = re.compile(r"[!-;=?A-~]{1,64}@[A-Za-z0-9.-]{1,253}")
_NAME: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_EVICTED: Final = tuple(code.value for code in Code if FAMILIES[code] is Family.EVICTED)


class SecretSettings(Section):
    """Where a secret is: its value is in no configuration file."""

    env: str | None = Field(default=None, pattern=_VARIABLE)
    """Name of an environment variable."""
    file: Path | None = Field(default=None, strict=False)
    """A file, such as of a mounted Secret. Read for each message; a newline at its end does not count."""

    @model_validator(mode="after")
    def _one(self) -> SecretSettings:
        if (self.env is None) == (self.file is None):
            raise ValueError("set either env or file")
        return self


class WebhookSinkSettings(Section):
    url: str | None = Field(default=None, max_length=MAX_SECRET)
    """`https://HOST/PATH`; with a secret in it, `urlFrom` instead."""
    url_from: SecretSettings | None = None
    secret_from: SecretSettings | None = None
    """Key of the signature of each message."""
    ca_file: Path | None = Field(default=None, strict=False)
    """PEM: the CA certificates to trust; none: those of the system."""

    @field_validator("url")
    @classmethod
    def _no_secret(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            if parts.scheme not in ("https", "http") or not parts.hostname:
                raise ValueError("must be https://HOST/PATH")
            if parts.username is not None or parts.password is not None:
                raise ValueError("must have no user and password: set urlFrom")
        return value

    @model_validator(mode="after")
    def _one_url(self) -> WebhookSinkSettings:
        if (self.url is None) == (self.url_from is None):
            raise ValueError("set either url or urlFrom")
        return self


class SlackSinkSettings(Section):
    url_from: SecretSettings
    """The incoming webhook's URL, which is a secret itself."""
    ca_file: Path | None = Field(default=None, strict=False)
    """PEM: the CA certificates to trust; none: those of the system."""


def _mailbox(value: str) -> str:
    if _MAILBOX.fullmatch(value) is None:
        raise ValueError(f"{value!r} is not a mail address such as queue@example.com")
    return value


Mailbox = Annotated[str, AfterValidator(_mailbox)]


class MailSinkSettings(Section):
    host: str = Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:-]+$")
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    """TLS after the greeting, from the first byte (port 465), or not at all."""
    sender: Mailbox
    receivers: tuple[Mailbox, ...] = Field(min_length=1, max_length=32, strict=False)
    user: str | None = Field(default=None, min_length=1, max_length=253)
    password_from: SecretSettings | None = None
    ca_file: Path | None = Field(default=None, strict=False)
    """PEM: the CA certificates to trust; none: those of the system."""

    @model_validator(mode="after")
    def _protected(self) -> MailSinkSettings:
        if (self.user is None) != (self.password_from is None):
            raise ValueError("set both user and passwordFrom, or neither")
        if self.security == "none" and self.user is not None:
            raise ValueError("security none would send the password readable: set starttls or tls")
        return self


def _code(value: object) -> Code:
    if value not in _EVICTED:
        raise ValueError(f"must be one of {', '.join(_EVICTED)}, not {value!r}")
    return Code(str(value))


EvictionCode = Annotated[Code, BeforeValidator(_code), PlainSerializer(str)]


class RuleSettings(Section):
    event: Literal["Started", "Evicted", "Ended", "CanNeverRun", "Idle", "Budget", "StartMoved"]
    waited_more_than_seconds: int | None = Field(default=None, ge=1, le=31_536_000)
    """With `Started`: only after a longer wait; none: each start."""
    reasons: tuple[EvictionCode, ...] = Field(default=(), max_length=16, strict=False)
    """With `Evicted`: only with one of these reasons; none: each eviction."""
    outcomes: tuple[Literal["Succeeded", "Failed", "Cancelled", "TimedOut"], ...] = Field(
        default=(), max_length=4, strict=False
    )
    """With `Ended`: only with one of these; none: each end."""
    moved_more_than_seconds: int | None = Field(default=None, ge=60, le=31_536_000)
    """With `StartMoved`: by how much the expected start of a pending workload moves at least."""

    @model_validator(mode="after")
    def _of_its_event(self) -> RuleSettings:
        if self.waited_more_than_seconds is not None and self.event != "Started":
            raise ValueError(f"waitedMoreThanSeconds is for Started only, not for {self.event}")
        if self.reasons and self.event != "Evicted":
            raise ValueError(f"reasons is for Evicted only, not for {self.event}")
        if self.outcomes and self.event != "Ended":
            raise ValueError(f"outcomes is for Ended only, not for {self.event}")
        if (self.moved_more_than_seconds is not None) != (self.event == "StartMoved"):
            raise ValueError(f"movedMoreThanSeconds is for StartMoved, which needs it, not for {self.event}")
        return self


def _selector(value: str) -> str:
    try:
        label_selector(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a label selector such as notify=team-a") from None
    return value


class NotificationSettings(Section):
    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    webhook: WebhookSinkSettings | None = None
    slack: SlackSinkSettings | None = None
    mail: MailSinkSettings | None = None
    rules: tuple[RuleSettings, ...] = Field(min_length=1, max_length=16, strict=False)
    namespaces: tuple[Annotated[str, Field(pattern=_NAME)], ...] = Field(
        default=(), max_length=1000, strict=False
    )
    """Only workloads in these, and no names of workloads in others; none: all workloads."""
    queues: tuple[Annotated[str, Field(pattern=_NAME)], ...] = Field(
        default=(), max_length=1000, strict=False
    )
    """Only workloads of LocalQueues with these names; none: of all."""
    users: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = Field(
        default=(), max_length=1000, strict=False
    )
    """Only workloads that these users submitted; none: of all."""
    label_selector: Annotated[str, Field(max_length=1024), AfterValidator(_selector)] | None = None
    """Only workloads with these labels, by which users ask for messages; none: all."""
    page: str | None = Field(default=None, max_length=1024, pattern=r"^https?://[!-~]+$")
    """Address of the web page, for a link to the workload in each message; none: no link."""

    @property
    def sink(self) -> WebhookSinkSettings | SlackSinkSettings | MailSinkSettings:
        found = self.webhook or self.slack or self.mail
        assert found is not None
        return found

    @property
    def kind(self) -> str:
        return "webhook" if self.webhook else "slack" if self.slack else "mail"

    @model_validator(mode="after")
    def _of_decisions(self) -> NotificationSettings:
        if (self.users or self.label_selector) and any(one.event == "StartMoved" for one in self.rules):
            raise ValueError("StartMoved goes with namespaces and queues, not with users and labelSelector")
        return self

    @model_validator(mode="after")
    def _one_sink(self) -> NotificationSettings:
        given = [name for name in ("webhook", "slack", "mail") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"set one of webhook, slack and mail, not {' and '.join(given) or 'none'}")
        return self
