"""The table of instruments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def table(figures: list[str], capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """What the test prints is in the report."""
    yield
    figures += capsys.readouterr().out.splitlines()
