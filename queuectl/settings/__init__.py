"""The component's one configuration file, checked before anything starts. Read by app and cli only."""

from __future__ import annotations

from queuectl.settings.component import (
    Address,
    ApiSettings,
    ConfigurationError,
    Settings,
    TlsSettings,
    WebhookSettings,
    load,
)

__all__ = [
    "Address",
    "ApiSettings",
    "ConfigurationError",
    "Settings",
    "TlsSettings",
    "WebhookSettings",
    "load",
]
