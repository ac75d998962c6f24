"""The sections of the configuration file, and reading it."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from queuectl.core.model.policy import HALF_LIVES, SchedulingConfiguration
from queuectl.core.model.workload import ObjectRef
from queuectl.files import BadFile, FileDocument, Places, documents, read
from queuectl.kinds.invalid import InvalidValue, Section, problems_of
from queuectl.kinds.json_fields import kind_of
from queuectl.net.addresses import is_loopback
from queuectl.settings.accounting import AccountingSettings
from queuectl.settings.idle import IdleSettings
from queuectl.settings.notifications import MAX_SINKS, NotificationSettings
from queuectl.settings.scheduling import DAY, SchedulingSettings

DATABASE_URL_VARIABLE: Final = "QUEUECTL_DATABASE_URL"
MAX_FILE_BYTES: Final = 1 << 20
MAX_KINDS: Final = 64
_SCHEMES: Final = ("postgresql://", "postgres://", "postgresql+asyncpg://")


class ConfigurationError(Exception):
    """The configuration can't be used. `problems` has one line per problem, each naming its place."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Address(NamedTuple):
    """Where to listen. Port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


def parse_address(value: object) -> Address:
    """`HOST:PORT` as written in the file, IPv6 hosts in brackets. Raises ValueError."""
    if isinstance(value, Address):
        return value
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port[:6]) > 65535:
        raise ValueError(f"must be HOST:PORT such as 127.0.0.1:8080 with a port of 0 to 65535, not {value!r}")
    return Address(host, int(port))


Listen = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str, when_used="json")]


_CHOICES: Final = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("any", "primary", "standby", "read-write", "read-only", "prefer-standby"),
}


def _check_database(url: str) -> None:
    """Raises ValueError for what the driver takes for an error of its own. A message has no password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("must be a URL such as postgresql://USER@HOST/DATABASE") from None
    for host in parts.netloc.rpartition("@")[2].split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
            raise ValueError(f"the port {port[:20]!r} must be a number of 1 to 65535")
    for name, value in parse_qsl(parts.query):
        if value not in _CHOICES.get(name, (value,)):
            raise ValueError(f"{name}={value[:20]} must be {', '.join(_CHOICES[name])}")


class DatabaseSettings(Section):
    url: SecretStr | None = Field(default=None, strict=False)
    """`postgresql://USER@HOST/DATABASE`; the variable QUEUECTL_DATABASE_URL comes before it."""
    keep_months: int | None = Field(default=13, ge=1, le=1200)
    """History older than this many whole months is dropped; null: it is kept for ever."""

    @field_validator("url")
    @classmethod
    def _scheme(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(_SCHEMES):
            raise ValueError("must start with postgresql://")
        if value is not None:
            _check_database(value.get_secret_value())
        return value


class ControllerSettings(Section):
    listen: Listen = Address("127.0.0.1", 8081)
    """Metrics and probes: /metrics, /healthz, /readyz."""
    lease: str | None = Field(default=None, pattern=r"^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}$")
    """`NAMESPACE/NAME` of the Lease that elects the leader among several controllers; none: there is one."""
    budget: int = Field(default=10_000, ge=1, le=1_000_000)
    """Workloads evaluated before a plan is committed."""
    effects: int = Field(default=32, ge=1, le=1_000)
    """Kubernetes writes under way at one time."""
    status_seconds: float = Field(default=5.0, ge=1.0, le=3600.0)
    """Least time between two writes of one queue's status."""
    event_seconds: float = Field(default=5.0, ge=0.0, le=3600.0)
    """How long a workload waits before an Event says why."""
    local_queue_metrics: bool = False
    """Export figures of each LocalQueue too."""
    verify_seconds: float = Field(default=60.0, ge=1.0, le=86_400.0)
    """Time between two comparisons of the ledger with its own history."""


_PLACE: Final = r"^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}$"


class TlsSettings(Section):
    """Either files that are mounted and replaced, or certificates of our own in a Secret."""

    cert_file: Path | None = Field(default=None, strict=False)
    """PEM, the server's own certificate first. Read again when it changes."""
    key_file: Path | None = Field(default=None, strict=False)
    """PEM, without a passphrase."""
    ca_file: Path | None = Field(default=None, strict=False)
    """PEM: the CA that callers must trust, published to them; none: they have it already."""
    secret: str | None = Field(default=None, pattern=_PLACE)
    """`NAMESPACE/NAME` of an existing Secret for certificates of our own, made and renewed automatically."""
    names: tuple[str, ...] = Field(default=(), max_length=32, strict=False)
    """DNS names and IP addresses under which callers reach it; with `secret` only."""
    config_map: str | None = Field(default=None, pattern=_PLACE)
    """`NAMESPACE/NAME` of an existing ConfigMap in which to publish the CA, under the key ca.crt."""
    check_seconds: float = Field(default=60.0, ge=0.1, le=3600.0)
    """Between two checks of certificates and files."""
    min_version: Literal["VersionTLS12", "VersionTLS13"] = "VersionTLS12"
    """Handshakes with an older version are refused."""

    @field_validator("names")
    @classmethod
    def _each_name(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _is_host(name):
                raise ValueError(f"{name!r} is neither a DNS name nor an IP address")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> TlsSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("set both certFile and keyFile, or neither")
        if (self.cert_file is None) == (self.secret is None):
            raise ValueError("set either certFile and keyFile, or secret")
        if self.secret is not None and self.ca_file is not None:
            raise ValueError("caFile is only for certFile: the secret contains the CA to trust too")
        if (self.secret is None) != (not self.names):
            raise ValueError("set names with secret only: a certificate in files has its names already")
        return self


_HOST: Final = re.compile(
    r"(\*\.)?([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
)


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return len(name) <= 253 and _HOST.fullmatch(name) is not None
    return True


class ApiSettings(Section):
    listen: Listen = Address("127.0.0.1", 8080)
    """Beyond loopback only with `tls` and `identity: kubernetes`."""
    probes: Listen | None = None
    """/metrics, /healthz, /readyz over plain HTTP; none: the probes on `listen` alone, and no metrics."""
    identity: Literal["kubernetes", "local"] = "kubernetes"
    """`kubernetes`: the cluster identifies callers and authorizes what they read; `local`: every client that
    reaches this machine's loopback address may read everything."""
    audiences: tuple[str, ...] = Field(default=("queuectl",), min_length=1, max_length=8, strict=False)
    """A token must be meant for one of them. With the cluster's own among them, those of a kubeconfig do."""
    cluster_tokens: bool = False
    """Accept tokens for the API server itself too, as kubeconfigs have them, whatever its audience is."""
    changes: Literal["none", "caller", "local"] = "none"
    """Of workloads and queues, by hold, release, move, priority, fit, cancel, stop and resume. `caller`: with
    the token of the caller at the API server; `local`: with the rights of the kubeconfig, by every client
    that reaches this machine's loopback address."""
    identity_seconds: float = Field(default=30.0, ge=0.1, le=30.0)
    """How long a review of a caller by the cluster stays valid."""
    tls: TlsSettings | None = None
    cluster: str | None = Field(default=None, max_length=253)
    """UID of namespace kube-system of the cluster it serves; none: the only one in the ledger."""
    refresh_seconds: float = Field(default=0.5, ge=0.05, le=60.0)
    """Time between two reads of the ledger."""
    links: dict[str, str] = Field(default={}, max_length=8)
    """Links of each workload by title, as URLs with {namespace}, {kind}, {name} and {uid}."""

    @field_validator("links")
    @classmethod
    def _each_link(cls, value: dict[str, str]) -> dict[str, str]:
        for title, url in value.items():
            rest = re.sub("|".join(rf"\{{{name}\}}" for name in ObjectRef._fields), "", url)
            if (
                not url.startswith(("https://", "http://"))
                or set(rest) & set("{}")
                or not 1 <= len(title) <= 60
            ):
                raise ValueError(
                    f"{title!r}: {url!r} is not a URL of http or https with no braces but those of "
                    + ", ".join(f"{{{name}}}" for name in ObjectRef._fields)
                )
        return value

    @field_validator("audiences")
    @classmethod
    def _each_audience(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for audience in value:
            if not 1 <= len(audience) <= 253 or not audience.isascii() or not audience.isprintable():
                raise ValueError(
                    f"{audience!r} is not an audience: 1 to 253 printable characters are expected"
                )
        return value

    @model_validator(mode="after")
    def _changes_by_identity(self) -> ApiSettings:
        needed = {"caller": "kubernetes", "local": "local"}.get(self.changes, self.identity)
        if self.identity != needed:
            raise ValueError(f"changes: {self.changes} needs identity: {needed}, and it is {self.identity}")
        return self

    @model_validator(mode="after")
    def _protected_beyond_loopback(self) -> ApiSettings:
        if self.listen.loopback:
            return self
        if self.identity == "local":
            raise ValueError(
                f"listen {self.listen} is not loopback: with identity local every client that reaches it "
                "could read everything; set identity to kubernetes, or listen on 127.0.0.1 or ::1"
            )
        if self.tls is None:
            raise ValueError(
                f"listen {self.listen} is not loopback: without tls the tokens could be read and used on "
                "the way; set api.tls, or listen on 127.0.0.1 and reach it by kubectl port-forward"
            )
        return self


class WebhookSettings(Section):
    listen: Listen = Address("127.0.0.1", 9443)
    """Where API servers call it, over TLS."""
    probes: Listen = Address("127.0.0.1", 8082)
    """/metrics, /healthz, /readyz, over plain HTTP."""
    tls: TlsSettings | None = None
    """Without it `queuectl webhook` does not start."""
    configuration: str | None = Field(default=None, min_length=1, max_length=253)
    """MutatingWebhookConfiguration in which to keep caBundle up to date; none: its caBundle is left alone."""
    connections: int = Field(default=64, ge=4, le=4096)
    """Open at one time."""
    work: int = Field(default=16, ge=1, le=1024)
    """Reviews under way at one time, at most 7 MiB each."""


class NotifierSettings(Section):
    listen: Listen = Address("127.0.0.1", 8084)
    """Metrics and probes of `queuectl notifier`: /metrics, /healthz, /readyz."""


class CompatibilitySettings(Section):
    kueue_labels: bool = False
    """Kueue's labels queue work too, where ours are absent. Needs manifests/kueue-labels; Kueue's own
    controller must not run."""


class Settings(Section):
    database: DatabaseSettings = DatabaseSettings()
    controller: ControllerSettings = ControllerSettings()
    api: ApiSettings = ApiSettings()
    webhook: WebhookSettings = WebhookSettings()
    notifier: NotifierSettings = NotifierSettings()
    notifications: tuple[NotificationSettings, ...] = Field(default=(), max_length=MAX_SINKS, strict=False)
    """Where messages about decisions go. Read by `queuectl notifier` and `queuectl notifications` only."""
    scheduling: SchedulingSettings = SchedulingSettings()
    accounting: AccountingSettings = AccountingSettings()
    idle: IdleSettings = IdleSettings()
    compatibility: CompatibilitySettings = CompatibilitySettings()
    kinds: tuple[Any, ...] = Field(default=(), max_length=MAX_KINDS, strict=False)
    """Names of optional kinds, and rows for further kinds of jobs. Each is read by itself: a malformed one
    costs no other."""

    _file: tuple[Path, Places] | None = PrivateAttr(default=None)

    def place(self, *path: int | str) -> str:
        """Where a value is: `FILE: line 3`, or empty if it is from no file."""
        if self._file is None:
            return ""
        file, places = self._file
        return f"{file}: line {places.of(path)[0]}"

    @field_validator("notifications")
    @classmethod
    def _distinct(cls, value: tuple[NotificationSettings, ...]) -> tuple[NotificationSettings, ...]:
        names = [one.name for one in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name} is used twice: a sink is known by its name")
        return value

    @model_validator(mode="after")
    def _history_that_counts_is_kept(self) -> Settings:
        months, sharing = self.database.keep_months, self.scheduling.admission_fair_sharing
        if months is None or sharing is None:
            return self
        half_life = sharing.usage_half_life_seconds
        # A restart must find all history that counts; the oldest period is only partly over.
        most = months * 28 * DAY // (HALF_LIVES + 1)
        if half_life > most:
            raise ValueError(
                f"scheduling.admissionFairSharing.usageHalfLifeSeconds is {half_life}, must be at most "
                f"{most} where database.keepMonths is {months}: {HALF_LIVES + 1} half-lives count"
            )
        return self

    def configuration(self) -> SchedulingConfiguration:
        """What the core needs of it."""
        return replace(self.scheduling.configuration(), account_keys=self.accounting.account_keys())

    @property
    def database_url(self) -> str:
        """Raises ConfigurationError if none is set."""
        if self.database.url is None:
            raise ConfigurationError(
                f"database.url is not set: give --database-url, {DATABASE_URL_VARIABLE} or --config"
            )
        return self.database.url.get_secret_value()

    @property
    def cursor_key(self) -> bytes:
        """Secret that signs REST cursors: the same in every replica on one database, and known only there."""
        return blake2b(self.database_url.encode(), person=b"queuectl-cursor", digest_size=32).digest()

    def public(self) -> dict[str, Any]:
        """The configuration in force as JSON values, without database.url, which may contain a password, and
        without notifications, which no decision depends on."""
        hidden: Any = {"database": {"url"}, "notifier": True, "notifications": True}
        return self.model_dump(mode="json", by_alias=True, exclude=hidden)


def load(
    path: Path | None = None,
    *,
    database_url: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The configuration in `path`. Its database URL is overridden by the environment's, that by the caller's.

    Raises ConfigurationError with every problem of the file at once.
    """
    environ = os.environ if environ is None else environ
    document, places = _document(path) if path else ({}, None)
    url = database_url or environ.get(DATABASE_URL_VARIABLE)
    if url and isinstance(document.setdefault("database", {}), dict):
        document["database"]["url"] = url
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        where = f"{path}: " if path else ""
        raise ConfigurationError(
            *(
                f"{where}{f'line {places.of(one.path)[0]}: ' if places is not None else ''}{_problem(one)}"
                for one in problems_of(error)
            )
        ) from None
    if path is not None and places is not None and settings.kinds:
        settings._file = path, places
    return settings


def _problem(problem: InvalidValue) -> str:
    place = ".".join(str(part) for part in problem.path) or "file"
    return f"{place}: {'there is no such setting' if problem.type == 'extra_forbidden' else problem.text}"


def _document(path: Path) -> tuple[dict[str, Any], Places]:
    try:
        text = read(path, MAX_FILE_BYTES)
        found = documents(text, str(path))
    except BadFile as error:
        raise ConfigurationError(str(error)) from None
    if len(found) > 1:
        raise ConfigurationError(f"{path}: line {found[1].line}: expected a single document, not a second")
    document = found[0].content if found else {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: must be an object, not {kind_of(document)}")
    return document, Places(text, found[0] if found else FileDocument({}, 1))
