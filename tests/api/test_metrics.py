"""What Prometheus reads."""

from __future__ import annotations

from datetime import UTC, datetime

from aiohttp.test_utils import TestClient, TestServer

from queuectl.core.decisions import Evict, Keep, Plan
from queuectl.core.events import Result
from queuectl.core.model import ObjectRef, Verb, WorkloadId
from queuectl.core.reasons import Code, Reason
from queuectl.core.report import ClusterQueueReport, Condition
from queuectl.core.resources import FlavorResource
from queuectl.metrics.endpoint import application
from queuectl.metrics.registry import Metrics

NOW = datetime(2026, 1, 5, tzinfo=UTC)
REF = ObjectRef("tenant-namespace", "Job", "tenant-name", "tenant-uid")


def report(name: str, *, pending: int = 0) -> ClusterQueueReport:
    return ClusterQueueReport(
        name=name,
        condition=Condition(True, "Ready", ""),
        pending=pending,
        admitted=2,
        nominal=((FlavorResource("a100", "cpu"), 1500), (FlavorResource("a100", "memory"), 2**40)),
        used=((FlavorResource("a100", "cpu"), 500),),
    )


def lines(metrics: Metrics) -> list[str]:
    return metrics.render().decode().splitlines()


def test_decisions_are_counted_by_verdict_and_reason() -> None:
    metrics = Metrics()
    waits = Reason(code=Code.WAITING_FOR_QUOTA)
    plan = Plan(
        version=1,
        cycle=1,
        now=NOW,
        decisions=(
            Keep(WorkloadId("tenant-uid"), REF, waits, recorded=True),
            Keep(WorkloadId("b"), REF, waits, recorded=False),
            Evict(WorkloadId("c"), REF, 1, Reason(code=Code.PREEMPTED)),
        ),
        work=40,
    )
    metrics.observe_plan(plan)
    metrics.observe_plan(plan)
    found = lines(metrics)
    assert 'queuectl_decisions_total{reason="WaitingForQuota",verdict="Pending"} 2.0' in found
    assert 'queuectl_decisions_total{reason="Preempted",verdict="Evicted"} 2.0' in found
    assert "queuectl_workloads_evaluated_total 80.0" in found
    assert "tenant" not in "\n".join(found)


def test_amounts_are_in_cores_and_bytes() -> None:
    metrics = Metrics()
    metrics.observe_reports([report("a")])
    metrics.flavor_capacity({FlavorResource("a100", "cpu"): 64_000})
    found = lines(metrics)
    assert 'queuectl_quota_nominal{cluster_queue="a",flavor="a100",resource="cpu"} 1.5' in found
    assert (
        'queuectl_quota_nominal{cluster_queue="a",flavor="a100",resource="memory"} 1.099511627776e+12'
        in found
    )
    assert 'queuectl_quota_used{cluster_queue="a",flavor="a100",resource="cpu"} 0.5' in found
    assert 'queuectl_flavor_capacity{flavor="a100",resource="cpu"} 64.0' in found


def test_a_queue_that_is_gone_leaves_no_series_behind() -> None:
    metrics = Metrics()
    metrics.observe_reports([report("a", pending=3), report("b")])
    assert 'queuectl_pending_workloads{cluster_queue="a"} 3.0' in lines(metrics)
    metrics.observe_reports([report("b")])
    assert not any('cluster_queue="a"' in line for line in lines(metrics))


def test_effects_start_at_zero_so_that_the_first_one_shows_in_a_rate() -> None:
    metrics = Metrics()
    assert 'queuectl_effects_total{result="Done",verb="Start"} 0.0' in lines(metrics)
    metrics.effect_settled(Verb.START, Result.DONE, 0.2)
    assert 'queuectl_effects_total{result="Done",verb="Start"} 1.0' in lines(metrics)
    assert 'queuectl_effect_duration_seconds_count{verb="Start"} 1.0' in lines(metrics)


def test_commits_and_leadership_show() -> None:
    metrics = Metrics()
    metrics.committed(decisions=5, seconds=0.02, sequence=42)
    metrics.commit_failed("unavailable")
    metrics.epoch(7)
    metrics.ledger_findings(2)
    found = lines(metrics)
    for line in (
        'queuectl_ledger_commits_total{result="committed"} 1.0',
        'queuectl_ledger_commits_total{result="unavailable"} 1.0',
        "queuectl_ledger_sequence 42.0",
        "queuectl_ledger_commit_decisions_sum 5.0",
        "queuectl_leadership_epoch 7.0",
        "queuectl_ledger_findings 2.0",
    ):
        assert line in found


def test_a_kind_that_was_never_heard_is_silent_without_end() -> None:
    metrics = Metrics()
    metrics.observe_reflectors(lambda: {"Job": 1.5, "PyTorchJob": None})
    found = lines(metrics)
    assert 'queuectl_reflector_silence_seconds{kind="Job"} 1.5' in found
    assert 'queuectl_reflector_silence_seconds{kind="PyTorchJob"} +Inf' in found


def test_two_controllers_in_one_process_do_not_share_figures() -> None:
    first, second = Metrics(), Metrics()
    first.epoch(3)
    assert "queuectl_leadership_epoch 0.0" in lines(second)


def test_every_metric_is_named_as_prometheus_asks() -> None:
    metrics = Metrics()
    metrics.observe_reports([report("a")])
    for line in lines(metrics):
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            assert name.startswith("queuectl_")
            assert name.endswith("_total") == (kind == "counter"), name
            assert not name.endswith(("_milliseconds", "_ms", "_count", "_sum", "_bucket")), name


async def test_probes_tell_what_is_wrong() -> None:
    problem: list[str | None] = [None]
    app = application(Metrics(), healthy=lambda: None, ready=lambda: problem[0])
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/metrics")
        assert (answer.status, answer.content_type) == (200, "text/plain")
        assert "queuectl_build_info" in await answer.text()
        assert ((await client.get("/readyz")).status, (await client.get("/healthz")).status) == (200, 200)
        problem[0] = "not read yet: Job"
        answer = await client.get("/readyz")
        assert (answer.status, await answer.text()) == (503, "not read yet: Job\n")
        assert (await client.post("/metrics")).status == 405
