"""Malformed input, where bytes come in."""

from __future__ import annotations

import logging

import pytest

from tests.fuzz.command import fuzzed
from tests.fuzz.targets import TARGETS
from tests.instruments import HEAD

SECONDS = 60.0
"""Of CPU, for each place."""


@pytest.mark.usefixtures("table")
def test_malformed_input_is_read_or_refused_with_a_reason() -> None:
    print(HEAD)
    logging.disable(logging.CRITICAL)
    try:
        assert fuzzed(TARGETS, SECONDS, 1, slower=6.0) == 0
    finally:
        logging.disable(logging.NOTSET)
