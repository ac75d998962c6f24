"""docs/metrics.md lists exactly the exported metrics."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.metrics.samples import Family, controller, notifier, of, serving, webhook

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "metrics.md").read_text()


def test_every_exported_metric_is_on_the_page_with_its_labels() -> None:
    rows = re.findall(r"^- `(\w+)` \((counter|gauge|histogram)(.*?)\): \S.*$", PAGE, re.MULTILINE)
    described = {name: Family(kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(rows) == len(described)
    assert described == of(controller(), serving(), webhook(), notifier())
