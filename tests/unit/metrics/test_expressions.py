"""Each expression of dashboard and alerts matches series that a running controller and REST export."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import promql_parser as promql
import pytest
import pytest_asyncio
import yaml
from prometheus_client.parser import text_string_to_metric_families

from queuectl.core.model.events import Result
from queuectl.core.model.reasons import FAMILIES, Code, Family
from queuectl.core.model.workload import Verb
from queuectl.sandbox.example import fake_node
from queuectl.sandbox.install import Installer
from tests.acceptance.e2e.plant import LEASE, Plant, plant
from tests.acceptance.e2e.site import cluster_queue, eventually, job, pod_template
from tests.integration.ledger.places import reachable_folder
from tests.unit.metrics import samples

pytestmark = [pytest.mark.acceptance, pytest.mark.asyncio(loop_scope="module")]

MONITORING = Path(__file__).resolve().parents[3] / "manifests" / "monitoring"
RULES: dict[str, Any] = yaml.load((MONITORING / "rules.yaml").read_text(), yaml.CSafeLoader)
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds to all it scrapes."""
FOR_EVER = 86_400.0


@dataclass(frozen=True)
class Expression:
    where: str
    text: str
    shown: frozenset[str] = field(default_factory=frozenset)
    """Labels that the text beside it refers to."""

    def __str__(self) -> str:
        return self.where


def _alerts() -> Iterator[Expression]:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            shown = re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))
            yield Expression(rule["alert"], rule["expr"], frozenset(shown))


def _panels() -> Iterator[Expression]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "1m").replace("$cluster_queue", "a|b")
            shown = frozenset(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            yield Expression(f"panel {panel['id']}{target['refId']}", text, shown)


EXPRESSIONS = [*_alerts(), *_panels()]


def _nodes(expression: Any) -> Iterator[Any]:
    """The expression and all expressions in it."""
    yield expression
    inner = [getattr(expression, name, None) for name in ("lhs", "rhs", "expr", "vector_selector", "param")]
    for child in [*inner, *(getattr(expression, "args", None) or ())]:
        if child is not None and not isinstance(child, str):
            yield from _nodes(child)


def _selectors(text: str) -> list[Any]:
    return [node for node in _nodes(promql.parse(text)) if isinstance(node, promql.VectorSelector)]


def _grouped_by(text: str) -> set[str]:
    """Labels named in `by` and `on`."""
    found: set[str] = set()
    for node in _nodes(promql.parse(text)):
        modifier = getattr(node, "modifier", None)
        labels = getattr(modifier, "labels", None) or getattr(modifier, "matching", None)
        found |= set(getattr(labels, "labels", labels) or ())
    return found


FAIR = [
    {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "Cohort",
        "metadata": {"name": "fair"},
        "spec": {"fairSharing": {"enabled": True}},
    },
    cluster_queue("in-fair", 0, cohortName="fair"),
]
BUDGET = {
    "apiVersion": "queuectl.dev/v1beta1",
    "kind": "Budget",
    "metadata": {"name": "exported"},
    "spec": {
        "target": {"kind": "Cohort", "name": "fair"},
        "subject": {"kind": "All"},
        "resource": "nvidia.com/gpu",
        "hours": 10,
        "period": {"kind": "Month"},
        "mode": "Metered",
        "onExhausted": "LowerClass",
        "lowerClass": "scavenge",
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def exported() -> AsyncIterator[dict[str, samples.Family]]:
    """Metrics of a controller with a lease and of REST, with running, pending and evicted workloads."""
    with reachable_folder() as folder:
        async with plant(folder, "small", gpus=4) as (site, world):
            await site.controller(lease=LEASE)
            await site.begin_rest(world.api)
            spare = fake_node("spare", "a100", gpus=1)
            spare["spec"]["unschedulable"] = True
            await Installer(world.api).apply([spare, *FAIR, BUDGET])
            for name in ("runs", "waits", "waits-longer"):
                await world.submit(job(name, template=pod_template(4, FOR_EVER)))
            await world.submit(job("lost", queue="nowhere"))
            await world.started("runs")
            await world.reason_is("waits", "WaitingForQuota")
            await world.annotate("runs", "queuectl.dev/hold", "true")
            await world.started("waits")
            found: dict[str, samples.Family] = {}

            async def all_of_it() -> bool:
                text = await _scrape(site, "controller")
                found.update(samples.families(await _scrape(site, "api")) | _not_run())
                found.update(samples.families(text) | _not_read())
                told = {sample.name: sample.value for sample in _series(text)}
                return (
                    told["queuectl_ledger_verification_age_seconds"] < FOR_EVER
                    and told["queuectl_leading"] == 1
                    and told["queuectl_workloads_evaluated_total"] > 0
                    and told["queuectl_cycle_duration_seconds_count"] > 0
                    and "cause" in found["queuectl_evictions_total"].labels
                    and "reason" in found["queuectl_eviction_duration_seconds"].labels
                    and "cluster_queue" in found["queuectl_pending_workloads"].labels
                    and "cluster_queue" in found["queuectl_quota_used"].labels
                    and "local_queue" in found["queuectl_local_queue_quota_used"].labels
                    and "cluster_queue" in found["queuectl_cluster_queue_weighted_share"].labels
                    and "cluster_queue" in found["queuectl_demand"].labels
                    and "queuectl_budget_lowered_workloads" in found
                    and "state" in found["queuectl_flavor_capacity_unusable"].labels
                    and "cluster_queue" in found["queuectl_admission_wait_seconds"].labels
                )

            await eventually("everything is exported", all_of_it)
            yield found


def _not_run() -> dict[str, samples.Family]:
    """The metrics of processes that the site does not run."""
    return samples.of(samples.webhook(), samples.notifier())


def _not_read() -> dict[str, samples.Family]:
    """The metrics of GPUs: the site has no Prometheus."""
    found = samples.of(samples.controller())
    return {name: found[name] for name in ("queuectl_judged_devices", "queuectl_idle_devices")}


async def _scrape(site: Plant, name: str) -> str:
    url = re.findall(r"metrics and probes at (http://\S+)", site.log(name))[-1]
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        assert answer.status == 200
        return await answer.text()


def _series(text: str) -> Iterator[Any]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def _family(exported: dict[str, samples.Family], name: str) -> samples.Family | None:
    base = re.sub(r"_(bucket|count|sum)$", "", name)
    histogram = exported.get(base)
    if base != name and histogram is not None and histogram.kind == "histogram":
        return samples.Family("histogram", histogram.labels | {"le"})
    return exported.get(name)


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
async def test_an_expression_queries_series_that_exist(
    exported: dict[str, samples.Family], expression: Expression
) -> None:
    selectors = _selectors(expression.text)
    assert selectors
    known: set[str] = set()
    for selector in selectors:
        family = _family(exported, selector.name)
        assert family is not None, f"nothing exports {selector.name}"
        known |= family.labels | SCRAPED
        for matcher in selector.matchers.matchers:
            assert matcher.name in family.labels, f"{selector.name} has no label {matcher.name}"
    assert _grouped_by(expression.text) <= known
    assert expression.shown <= known


async def test_every_documented_metric_of_the_controller_is_exported(
    exported: dict[str, samples.Family],
) -> None:
    assert exported == samples.of(samples.controller(), samples.serving()) | _not_run()


CLOSED = {
    "reason": {code.value for code in Code},
    "result": {result.value for result in Result},
    "verb": {verb.value for verb in Verb} | {"watch"},
}


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
async def test_an_expression_queries_label_values_that_exist(expression: Expression) -> None:
    for selector in _selectors(expression.text):
        for matcher in selector.matchers.matchers:
            if matcher.name in CLOSED:
                assert set(matcher.value.split("|")) <= CLOSED[matcher.name], str(selector)


async def test_the_alert_on_workloads_that_can_never_run_has_every_such_reason() -> None:
    (alert,) = (e for e in EXPRESSIONS if e.where == "QueuectlWorkThatCanNeverRun")
    ((matcher,),) = (selector.matchers.matchers for selector in _selectors(alert.text))
    never = {code.value for code in Code if FAMILIES[code] is Family.NEVER}
    assert set(matcher.value.split("|")) == never


async def test_counters_are_queried_as_rates_and_gauges_as_they_are() -> None:
    exported = samples.of(samples.controller(), samples.serving()) | _not_run()
    for expression in EXPRESSIONS:
        for node in _nodes(promql.parse(expression.text)):
            if isinstance(node, promql.Call) and node.func.name in ("rate", "increase"):
                (selector,) = _selectors(str(node))
                family = _family(exported, selector.name)
                assert family is not None
                assert family.kind in ("counter", "histogram"), expression.where
            elif isinstance(node, promql.MatrixSelector):
                assert str(node.vector_selector.name).endswith(("_total", "_bucket"))


async def test_every_alert_says_what_to_do() -> None:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert set(rule["annotations"]) == {"summary", "description", "runbook"}, rule["alert"]
            assert rule["labels"]["severity"] in ("critical", "warning", "info")


async def test_the_rules_for_the_prometheus_operator_are_the_same() -> None:
    made = yaml.safe_load((MONITORING / "prometheus-operator" / "rules.yaml").read_text())
    assert made["spec"] == RULES, "run `make manifests`"


async def test_the_dashboard_can_be_loaded_in_any_grafana() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in DASHBOARD["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
