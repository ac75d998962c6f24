"""The pictures of the month in docs/accounting.md are what its ledger shows."""

from __future__ import annotations

import pytest

from docs.pictures import month


@pytest.mark.acceptance
def test_the_pictures_of_the_month_are_what_its_ledger_shows() -> None:
    for name, content in month.pictures().items():
        assert (month.HERE / name).read_text(encoding="utf-8") == content, "python -m docs.pictures.month"
