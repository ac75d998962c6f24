"""The component's one configuration file, checked before anything starts. Read by app and cli only."""

from __future__ import annotations

from queuectl.settings.component import (
    Address,
    ApiSettings,
    ConfigurationError,
    NotifierSettings,
    Settings,
    TlsSettings,
    WebhookSettings,
    load,
)
from queuectl.settings.notifications import NotificationSettings

__all__ = [
    "Address",
    "ApiSettings",
    "ConfigurationError",
    "NotificationSettings",
    "NotifierSettings",
    "Settings",
    "TlsSettings",
    "WebhookSettings",
    "load",
]
