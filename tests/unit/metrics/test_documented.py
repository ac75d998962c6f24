"""docs/metrics.md lists exactly the exported metrics and the alerts."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.unit.metrics.samples import Family, controller, notifier, of, serving, webhook

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "metrics.md").read_text()
RULES = yaml.load((REPOSITORY / "manifests" / "monitoring" / "rules.yaml").read_text(), yaml.CSafeLoader)


def test_every_exported_metric_is_on_the_page_with_its_labels() -> None:
    rows = re.findall(r"^- `(\w+)` \((counter|gauge|histogram)(.*?)\): \S.*$", PAGE, re.MULTILINE)
    described = {name: Family(kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(rows) == len(described)
    assert described == of(controller(), serving(), webhook(), notifier())


def test_every_alert_is_on_the_page_with_its_severity() -> None:
    rows = re.findall(r"^- `(Queuectl\w+)` \((\w+)\):", PAGE, re.MULTILINE)
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    assert sorted(rows) == sorted((rule["alert"], rule["labels"]["severity"]) for rule in rules)
