"""The API servers that the suite runs against."""

from __future__ import annotations

import pytest

from queuectl.sandbox.control_plane import find_assets
from tests.integration.kube_api.conftest import NO_ASSETS


@pytest.mark.acceptance
def test_the_suite_runs_against_a_real_api_server_too() -> None:
    if find_assets() is None:
        pytest.skip(NO_ASSETS)
