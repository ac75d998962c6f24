"""Section `idle`: where the controller reads what GPUs do, and when they count as idle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from queuectl.kinds.invalid import Section

MAX_RESOURCES: Final = 32
MAX_CLASSES: Final = 100
_RESOURCE: Final = r"^[a-z0-9.-]{1,253}/[A-Za-z0-9]?[-A-Za-z0-9_.]{0,61}\*?$"
_MATCHER: Final = r"[a-zA-Z_]\w*(=|!=|=~|!~)\"[^\"\\\n]*\""
_OBJECT: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"


class PrometheusSettings(Section):
    url: str = Field(max_length=2048)
    """Such as http://prometheus.monitoring:9090: what is before /api/v1."""
    token_file: Path | None = Field(default=None, strict=False)
    """A bearer token, read for each query."""
    ca_file: Path | None = Field(default=None, strict=False)
    """PEM: the CA certificates to trust; none: those of the system."""

    selector: str = Field(default="", max_length=1024, pattern=rf"^({_MATCHER}(, ?{_MATCHER})*)?$")
    """Matchers of PromQL, such as `job="dcgm-exporter"`, for the series of the exporter; empty: all series of
    its metrics, also those that pods of tenants export."""

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        expected = "must be http://HOST:PORT or https://HOST, with a path if there is one"
        try:
            parts = urlsplit(value)
            known = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
        except ValueError:
            raise ValueError(expected) from None
        if not known:
            raise ValueError(expected)
        if parts.username is not None or parts.password is not None:
            raise ValueError("must have no user and password: set tokenFile")
        if parts.query or parts.fragment:
            raise ValueError("must have no query")
        return value


class HangSettings(Section):
    """Engines are active and multiprocessors are not. Without metrics of these: no tensor or memory activity,
    and little power."""

    window_seconds: int = Field(default=600, ge=300, le=86_400)
    engine_above: float = Field(default=0.9, ge=0, le=1)
    multiprocessors_below: float = Field(default=0.05, ge=0, le=1)
    pipes_below: float = Field(default=0.01, ge=0, le=1)
    watts_below: float = Field(default=150.0, ge=0, le=10_000)


class IdleSettings(Section):
    prometheus: PrometheusSettings | None = None
    """The server with the metrics of dcgm-exporter; none: nothing is read."""
    resources: tuple[Annotated[str, Field(pattern=_RESOURCE)], ...] = Field(
        default=("nvidia.com/*",), min_length=1, max_length=MAX_RESOURCES, strict=False
    )
    """Attempts that hold any of these are judged. A name that ends with * stands for all that begin so."""
    exempt_classes: tuple[Annotated[str, Field(pattern=_OBJECT)], ...] = Field(
        default=(), max_length=MAX_CLASSES, strict=False
    )
    """WorkloadPriorityClasses that are not judged, such as serving: at low load it looks idle and is not."""
    check_seconds: int = Field(default=300, ge=30, le=3600)
    window_seconds: int = Field(default=1800, ge=600, le=86_400)
    """Of samples that a verdict needs."""
    sample_seconds: int = Field(default=30, ge=1, le=300)
    """Between two samples, as Prometheus scrapes the exporter."""
    coverage: float = Field(default=0.9, ge=0.5, le=1)
    """The least share of the expected samples; with fewer the verdict is Unknown."""
    idle_below: float = Field(default=0.0003, ge=0, le=1)
    """Mean activity of the engine, 0 to 1, below which a device is idle."""
    sparse_below: float = Field(default=0.01, ge=0, le=1)
    """Mean activity of the engine below which its use is sparse."""
    hang: HangSettings = HangSettings()

    @model_validator(mode="after")
    def _in_order(self) -> IdleSettings:
        if self.sparse_below < self.idle_below:
            raise ValueError("sparseBelow must be at least idleBelow")
        return self
