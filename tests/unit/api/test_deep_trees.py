"""Every path answers for a chain of a thousand cohorts, and every body for a thousand levels of JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from queuectl.answers import queue_states, state
from queuectl.answers.state import CommittedState, Under
from queuectl.api import answer_routes
from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.policy import Node
from queuectl.core.model.workload import ConfigKey, Phase
from queuectl.kubernetes_yaml import MAX_NESTING
from queuectl.ports.reader import Held
from tests.unit.api.canned import EPOCH_START, GPU, WAITS, CannedReadings, local_spec, queue_spec, workload
from tests.unit.api.conftest import Rest
from tests.unit.api.past_usage import configured
from tests.unit.api.test_what_ifs import ledger, manifest

Serve = Callable[..., Awaitable[Rest]]
DEPTH = 1000
NAMES = [f"c{number:04}" for number in range(DEPTH)]
RULES = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
PREEMPTS: dict[str, Any] = {"preemption": RULES}
QUERIES = {
    "/api/v1/clusterqueues/{name}/share": ("since=2026-01-05T09:00:00Z&steps=2",),
    "/api/v1/cohorts/{name}/share": ("since=2026-01-05T09:00:00Z&steps=2",),
    "/api/v1/preemptions": ("since=2026-01-05T09:00:00Z",),
}


def chain() -> CannedReadings:
    """`low` is in the lowest cohort and uses 3 of 2; `high`, with 8, is in the highest one, and waits."""
    readings = CannedReadings()
    configs: dict[ConfigKey, str | None] = {
        ConfigKey("ResourceFlavor", "", "a100"): "{}",
        ConfigKey("Namespace", "", "default"): json.dumps({"labels": {}}),
        ConfigKey("ClusterQueue", "", "low"): queue_spec(2, cohort=NAMES[0], **PREEMPTS),
        ConfigKey("ClusterQueue", "", "high"): queue_spec(8, cohort=NAMES[-1], **PREEMPTS),
        ConfigKey("LocalQueue", "default", "main"): local_spec("low"),
        ConfigKey("LocalQueue", "default", "up"): local_spec("high"),
    }
    for child, parent in pairwise(NAMES):
        configs[ConfigKey("Cohort", "", child)] = json.dumps({"parentName": parent})
    waits = workload("waits", 3, cluster_queue="high", queue="up", reason=WAITS)
    readings.commit(
        workload("runs", 1, cluster_queue="low", phase=Phase.ADMITTED, gpus=3),
        replace(waits, pod_sets=(replace(waits.pod_sets[0], count=9),)),
        configs=configs,
    )
    since = EPOCH_START - timedelta(minutes=30)
    readings.node(NodeFacts(name="gpu-1", node=Node("gpu-1", allocatable=((GPU, 8),))))
    readings.held.append(Held("low", "a100", GPU, 3, since, None))
    return readings


async def paths(rest: Rest) -> list[tuple[str, str]]:
    """Every path that is read, as (template, path), for objects of the chain."""
    document = await (await rest.client.get("/openapi.json")).json()
    found = []
    for template, methods in document["paths"].items():
        if "get" not in methods:
            continue
        of_queue = "clusterqueues" in template or "demand" in template
        name = NAMES[0] if "cohorts" in template else "low" if of_queue else "a100"
        name = "gpu-1" if "nodes" in template else name
        for workload_name in ("runs", "waits") if "{kind}" in template else ("",):
            path = template.replace("{namespace}", "default").replace("{kind}", "job")
            path = path.replace("{month}", "2026-01")
            if "localqueues" in template:
                path = path.replace("{name}", "main")
            found.append((template, path.replace("{name}", workload_name or name)))
            found += [(template, f"{found[-1][1]}?{query}") for query in QUERIES.get(template, ())]
    return found


@pytest.mark.acceptance
async def test_every_path_answers_for_a_chain_of_a_thousand_cohorts(serve: Serve) -> None:
    rest = await serve(chain())
    known = await paths(rest)
    assert len(known) > 25
    for _, path in known:
        answer = await rest.client.get(path)
        assert answer.status == 200, (path, await answer.text())
    top = await rest.client.get(f"/api/v1/cohorts/{NAMES[-1]}/share?since=2026-01-05T09:00:00Z")
    assert top.status == 200, await top.text()


@pytest.mark.acceptance
@pytest.mark.parametrize("path", [f"/api/v1/cohorts/{NAMES[-1]}", "/api/v1/cohorts?limit=1000"])
async def test_cohorts_are_added_up_beside_the_event_loop(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    rest = await serve(chain())
    threads = set()
    under = CommittedState.under_cohorts

    def noted(of: CommittedState) -> dict[str, Under]:
        threads.add(threading.get_ident())
        return under(of)

    monkeypatch.setattr(CommittedState, "under_cohorts", noted)
    assert (await rest.client.get(path)).status == 200
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("/api/v1/clusterqueues/low/share", "accounts_now"),
        (f"/api/v1/cohorts/{NAMES[-1]}/share", "all_now"),
    ],
)
async def test_shares_are_computed_beside_the_event_loop(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str, function: str
) -> None:
    rest = await serve(chain())
    threads = set()
    computed = getattr(answer_routes, function)

    def noted(*arguments: Any) -> Any:
        threads.add(threading.get_ident())
        return computed(*arguments)

    monkeypatch.setattr(answer_routes, function, noted)
    assert (await rest.client.get(path)).status == 200
    assert threads
    assert threading.get_ident() not in threads


async def test_the_tree_of_an_explanation_is_built_beside_the_event_loop(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = await serve(chain())
    threads = set()
    built = queue_states.quota_tree

    def noted(*arguments: Any, **named: Any) -> Any:
        threads.add(threading.get_ident())
        return built(*arguments, **named)

    monkeypatch.setattr(state, "quota_tree", noted)
    assert (await rest.client.get("/api/v1/workloads/default/job/waits")).status == 200
    assert threads
    assert threading.get_ident() not in threads


async def test_quotes_and_plans_answer_for_a_chain_of_a_thousand_cohorts(serve: Serve) -> None:
    rest = await serve(chain())
    plan = {"deleted": [{"kind": "Cohort", "metadata": {"name": NAMES[500]}}]}
    for path, body in (("quote", manifest(pods=2)), ("plan", plan)):
        answer = await rest.client.post(f"/api/v1/{path}", json=body)
        assert answer.status == 200, await answer.text()


@pytest.mark.parametrize(
    ("kind", "levels"),
    [*(("json", levels) for levels in (25, 33, 450, 900, 5000)), ("yaml", 25), ("yaml", 450)],
)
async def test_deep_bodies_are_refused_at_every_place(serve: Serve, levels: int, kind: str) -> None:
    rest = await serve(ledger())
    text = "[" * levels + '"x"' + "]" * levels
    mark = '"deep"'
    job: dict[str, Any] = manifest()
    queue = {"kind": "ClusterQueue", "metadata": {"name": "team-a"}, "spec": "deep"}
    bodies: list[tuple[str, Any]] = [("plan", {"objects": ["deep"]}), ("plan", {"objects": [queue]})]
    bodies += [("quote", {**job, field: "deep"}) for field in ("apiVersion", "kind", "metadata", "spec")]
    for field in ("name", "namespace", "labels", "annotations"):
        bodies.append(("quote", {**job, "metadata": {**job["metadata"], field: "deep"}}))
    for field in job["spec"]:
        bodies.append(("quote", {**job, "spec": {**job["spec"], field: "deep"}}))
    bodies.append(("quote", {**job, "spec": {**job["spec"], "x": {"y": "deep"}}}))
    for path, body in bodies:
        data = json.dumps(body).replace(mark, text)
        headers = {"Content-Type": f"application/{kind}"}
        answer = await rest.client.post(f"/api/v1/{path}", data=data, headers=headers)
        said = await answer.text()
        assert answer.status in ((200, 400) if levels < MAX_NESTING else (400,)), (path, body, said)
        if levels > MAX_NESTING:
            assert "nested deeper than 32" in said or levels == 5000, (path, body, said)


async def test_past_usage_of_a_chain_of_a_thousand_cohorts_is_answered(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch)
    readings = chain()
    readings.commit(configs={ConfigKey("Configuration", "", "queuectl"): "{}"})
    rest = await serve(readings)
    found = await rest.get(f"/api/v1/cohorts/{NAMES[-1]}/pastusage")
    cohorts = [(item["level"], item["name"]) for item in found["items"] if item["kind"] == "Cohort"]
    assert cohorts == [*enumerate(reversed(NAMES))]
