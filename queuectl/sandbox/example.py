"""The example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def pytorchjob_crd() -> dict[str, Any]:
    """A small definition of our own, for where the real one is not installed."""
    found: dict[str, Any] = yaml.safe_load(
        Path(__file__).with_name("pytorchjob_crd.yaml").read_text(encoding="utf-8")
    )
    return found
