"""The metrics of the controller."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from aiohttp.test_utils import TestClient, TestServer

from queuectl.core.decisions import Admit, Decision, Evict, Keep, Plan, Release, Retire
from queuectl.core.feature import Number
from queuectl.core.model.device_use import UseFinding, UseVerdict
from queuectl.core.model.events import Result
from queuectl.core.model.policy import Condition, LocalQueueName
from queuectl.core.model.reasons import Code, PreemptionCause, Reason
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    EffectKey,
    ObjectRef,
    Verb,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.core.reports import BEYOND_ALL_SHARES, ClusterQueueReport, ClusterReport
from queuectl.metrics.collectors import MOST_QUEUES, OTHER, BoundedNames, Sampled, summed
from queuectl.metrics.exposition import application
from queuectl.metrics.registry import Metrics
from queuectl.ports.cluster import KindState
from tests.unit.metrics import samples

NOW = datetime(2026, 1, 5, tzinfo=UTC)
REF = ObjectRef("tenant-namespace", "Job", "tenant-name", "tenant-uid")
START = EffectKey(WorkloadId("a"), 1, Verb.START)


def report(name: str, *, pending: int = 0) -> ClusterQueueReport:
    why = ((Code.WAITING_FOR_QUOTA, pending),) if pending else ()
    return ClusterQueueReport(
        reasons=why,
        name=name,
        condition=Condition(True, "Ready", ""),
        pending=pending,
        admitted=2,
        nominal=((FlavorResource("a100", "cpu"), 1500), (FlavorResource("a100", "memory"), 2**40)),
        used=((FlavorResource("a100", "cpu"), 500),),
    )


def attempt(queue: str, number: int = 1) -> Attempt:
    return Attempt(
        workload=WorkloadId("tenant-uid"),
        number=number,
        state=AttemptState.ADMITTED,
        assignment=Assignment(cluster_queue=queue, pod_sets=()),
        admitted_at=NOW,
    )


def plan(*decisions: Decision) -> Plan:
    return Plan(version=1, cycle=1, now=NOW, decisions=decisions)


PROBES = Sampled(
    leads=lambda: True,
    lease_age=lambda: 1.0,
    silence=dict,
    kinds=dict,
    cluster_report=lambda: ClusterReport(
        local_queues={samples.LOCAL_QUEUE.name}, strays=(), frozen=0, set_aside=0, gate_installed=True
    ),
    numbers=lambda: [Number("slow_stops", "Late.", 0)],
    unsettled=lambda: (0, 0.0),
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
    )
    metrics.committed(plan, seconds=0.01, sequence=1)
    metrics.committed(plan, seconds=0.01, sequence=1)
    found = lines(metrics)
    assert 'queuectl_decisions_total{reason="WaitingForQuota",verdict="Pending"} 2.0' in found
    assert 'queuectl_decisions_total{reason="Preempted",verdict="Evicted"} 2.0' in found
    assert "tenant" not in "\n".join(found)


def test_cycles_are_counted_with_their_time_and_the_workloads_that_they_evaluated() -> None:
    metrics = Metrics()
    metrics.evaluated(40, seconds=0.02)
    metrics.evaluated(2, seconds=0.5)
    found = lines(metrics)
    assert "queuectl_workloads_evaluated_total 42.0" in found
    assert "queuectl_cycle_duration_seconds_count 2.0" in found
    assert "queuectl_cycle_duration_seconds_sum 0.52" in found


def test_amounts_are_in_cores_and_bytes() -> None:
    metrics = Metrics()
    metrics.reported((), [report("a")], ())
    metrics.capacity([samples.CAPACITY])
    found = lines(metrics)
    assert 'queuectl_quota_nominal{cluster_queue="a",flavor="a100",resource="cpu"} 1.5' in found
    assert (
        'queuectl_quota_nominal{cluster_queue="a",flavor="a100",resource="memory"} 1.099511627776e+12'
        in found
    )
    assert 'queuectl_quota_used{cluster_queue="a",flavor="a100",resource="cpu"} 0.5' in found
    assert 'queuectl_flavor_capacity{flavor="a100",resource="cpu"} 64.0' in found


def of_local_queues(metrics: Metrics) -> list[str]:
    return [line for line in lines(metrics) if line.startswith("queuectl_local_queue")]


def test_local_queues_have_figures_where_the_settings_say_so_and_while_they_exist() -> None:
    without = Metrics()
    without.reported([samples.LOCAL_QUEUE], (), ())
    without.observe(PROBES)
    assert of_local_queues(without) == []
    metrics = Metrics(of_local_queues=True)
    gone = replace(samples.LOCAL_QUEUE, name=LocalQueueName("ns", "deleted"))
    metrics.reported([samples.LOCAL_QUEUE, gone], (), ())
    metrics.observe(PROBES)
    shown = [
        'queuectl_local_queue_info{cluster_queue="a",local_queue="main",namespace="ns"} 1.0',
        'queuectl_local_queue_pending_workloads{local_queue="main",namespace="ns"} 1.0',
        'queuectl_local_queue_active_workloads{local_queue="main",namespace="ns"} 2.0',
        'queuectl_local_queue_quota_used{flavor="a100",local_queue="main",namespace="ns",resource="cpu"} 0.5',
    ]
    assert of_local_queues(metrics) == shown
    metrics.stepped_down()
    assert of_local_queues(metrics) == []


def test_beyond_a_number_of_local_queues_the_others_are_added_up() -> None:
    metrics = Metrics(of_local_queues=True)
    reports = [
        replace(samples.LOCAL_QUEUE, name=LocalQueueName("ns", f"q{number}"))
        for number in range(MOST_QUEUES + 2)
    ]
    metrics.reported(reports, (), ())
    report = replace(PROBES.cluster_report(), local_queues={one.name for one in reports})
    metrics.observe(replace(PROBES, cluster_report=lambda: report))
    found = of_local_queues(metrics)
    assert len(found) == 3 * (MOST_QUEUES + 1) + MOST_QUEUES
    assert not any("local_queue_info" in line and OTHER in line for line in found)
    assert 'queuectl_local_queue_pending_workloads{local_queue="other",namespace="other"} 2.0' in found


def test_the_cohort_of_a_queue_can_be_joined_with_its_figures() -> None:
    metrics = Metrics()
    metrics.reported((), [replace(report("a"), cohort="shared"), report("alone")], ())
    found = lines(metrics)
    assert 'queuectl_cluster_queue_info{cluster_queue="a",cohort="shared"} 1.0' in found
    assert 'queuectl_cluster_queue_info{cluster_queue="alone",cohort=""} 1.0' in found
    metrics.reported((), [replace(report("a"), cohort="other-cohort")], ())
    assert [line for line in lines(metrics) if "cluster_queue_info{" in line and '"a"' in line] == [
        'queuectl_cluster_queue_info{cluster_queue="a",cohort="other-cohort"} 1.0'
    ]


def test_the_share_of_a_queue_is_exported_where_queues_share_fairly() -> None:
    metrics = Metrics()
    shares = {"a": 250, "b": BEYOND_ALL_SHARES, "c": None}
    metrics.reported((), [replace(report(name), share=share) for name, share in shares.items()], ())
    found = [line for line in lines(metrics) if line.startswith("queuectl_cluster_queue_weighted_share{")]
    assert found == [
        'queuectl_cluster_queue_weighted_share{cluster_queue="a"} 250.0',
        'queuectl_cluster_queue_weighted_share{cluster_queue="b"} +Inf',
    ]


def test_devices_are_exported_by_the_verdict_of_their_attempt() -> None:
    metrics = Metrics()
    busy, idle = UseFinding(UseVerdict.BUSY, 8, 3), UseFinding(UseVerdict.IDLE, 4, 4)
    metrics.devices_used([("a", busy), ("a", idle), ("a", idle), ("b", busy)])
    found = [line for line in lines(metrics) if line.startswith(("queuectl_judged", "queuectl_idle"))]
    assert found == [
        'queuectl_judged_devices{cluster_queue="a",verdict="Busy"} 8.0',
        'queuectl_judged_devices{cluster_queue="a",verdict="Idle"} 8.0',
        'queuectl_judged_devices{cluster_queue="b",verdict="Busy"} 8.0',
        'queuectl_idle_devices{cluster_queue="a"} 11.0',
        'queuectl_idle_devices{cluster_queue="b"} 3.0',
    ]
    metrics.devices_used([])
    assert not [line for line in lines(metrics) if line.startswith(("queuectl_judged", "queuectl_idle"))]


def test_what_counts_of_a_quota_is_exported_beside_it() -> None:
    metrics = Metrics()
    cpu, memory = (cell for cell, _ in report("a").nominal)
    metrics.reported((), [replace(report("a"), reduced=((cpu, 500),))], ())
    found = lines(metrics)
    assert 'queuectl_quota_nominal{cluster_queue="a",flavor="a100",resource="cpu"} 1.5' in found
    assert 'queuectl_quota_effective{cluster_queue="a",flavor="a100",resource="cpu"} 0.5' in found
    whole = f'{{cluster_queue="a",flavor="a100",resource="{memory.resource}"}} 1.099511627776e+12'
    assert {f"queuectl_quota_nominal{whole}", f"queuectl_quota_effective{whole}"} <= set(found)


def test_what_nodes_have_is_exported_by_who_uses_it() -> None:
    metrics = Metrics()
    metrics.capacity([samples.CAPACITY])
    found = lines(metrics)
    for line in (
        'queuectl_flavor_nodes{flavor="a100",state="Ready"} 1.0',
        'queuectl_flavor_capacity{flavor="a100",resource="cpu"} 64.0',
        'queuectl_flavor_capacity_unusable{flavor="a100",resource="cpu",state="Cordoned"} 32.0',
        'queuectl_flavor_used{flavor="a100",resource="cpu"} 8.0',
        'queuectl_flavor_unmanaged{flavor="a100",resource="cpu"} 2.0',
        'queuectl_flavor_expected{flavor="a100",resource="cpu"} 4.0',
        'queuectl_flavor_free{flavor="a100",resource="cpu"} 50.0',
    ):
        assert line in found
    assert "kube-system" not in "\n".join(found)


def test_misses_of_predicted_room_are_counted() -> None:
    metrics = Metrics()
    metrics.predicted(3, 1)
    metrics.predicted(1, 0)
    found = lines(metrics)
    assert "queuectl_room_admissions_total 4.0" in found
    assert "queuectl_room_misses_total 1.0" in found


def test_demand_is_exported_in_pods_and_in_what_they_request() -> None:
    metrics = Metrics()
    metrics.reported((), [replace(report("a"), demand=(samples.DEMAND,))], ())
    found = lines(metrics)
    pods = 'queuectl_demand_pods{awaits="Room",cluster_queue="a",flavor="a100"} 16.0'
    cores = 'queuectl_demand{awaits="Room",cluster_queue="a",flavor="a100",resource="cpu"} 8.0'
    assert pods in found
    assert cores in found


def test_a_deleted_queue_leaves_no_series() -> None:
    metrics = Metrics()
    metrics.reported((), [report("a", pending=3), report("b")], ())
    metrics.committed(plan(Admit(attempt("a"), REF, created_at=NOW)), seconds=0.01, sequence=1)
    waiting = 'queuectl_pending_workloads{cluster_queue="a",reason="WaitingForQuota"} 3.0'
    assert waiting in lines(metrics)
    assert 'queuectl_admissions_total{cluster_queue="a"} 1.0' in lines(metrics)
    metrics.reported((), [report("b")], ["a"])
    assert not any('cluster_queue="a"' in line for line in lines(metrics))


def test_effects_start_at_zero_so_that_the_first_one_shows_in_a_rate() -> None:
    metrics = Metrics()
    assert 'queuectl_effects_total{result="Done",verb="Start"} 0.0' in lines(metrics)
    metrics.settled(START, Result.DONE, seconds=0.2)
    assert 'queuectl_effects_total{result="Done",verb="Start"} 1.0' in lines(metrics)
    assert 'queuectl_effect_duration_seconds_count{verb="Start"} 1.0' in lines(metrics)


def test_commits_and_leadership_are_exported() -> None:
    metrics = Metrics()
    keep = Keep(WorkloadId("a"), REF, Reason(code=Code.USER_HOLD), recorded=True)
    metrics.committed(plan(*[keep] * 5), seconds=0.02, sequence=42)
    metrics.ledger_unavailable()
    metrics.took_epoch(7)
    metrics.ledger_findings(["Usage", "DefaultPartition", "Gap"])
    found = lines(metrics)
    for line in (
        'queuectl_ledger_commits_total{result="committed"} 1.0',
        'queuectl_ledger_commits_total{result="unavailable"} 1.0',
        "queuectl_ledger_sequence 42.0",
        "queuectl_ledger_commit_decisions_sum 5.0",
        "queuectl_leadership_epoch 7.0",
        "queuectl_ledger_findings 2.0",
        "queuectl_ledger_default_partitions_used 1.0",
    ):
        assert line in found


def test_a_kind_that_cannot_be_read_is_marked() -> None:
    metrics = Metrics()
    states = {"Job": KindState(True, (), None), "TFJob": KindState(True, ("v1",), "403 no right")}
    metrics.observe(replace(PROBES, kinds=lambda: states))
    found = lines(metrics)
    assert 'queuectl_kind_problem{kind="Job"} 0.0' in found
    assert 'queuectl_kind_problem{kind="TFJob"} 1.0' in found


def test_a_kind_without_any_message_has_an_infinite_silence() -> None:
    metrics = Metrics()
    metrics.observe(replace(PROBES, silence=lambda: {"Job": 1.5, "PyTorchJob": None}))
    found = lines(metrics)
    assert 'queuectl_reflector_silence_seconds{kind="Job"} 1.5' in found
    assert 'queuectl_reflector_silence_seconds{kind="PyTorchJob"} +Inf' in found


def test_two_controllers_in_one_process_do_not_share_figures() -> None:
    first, second = Metrics(), Metrics()
    first.took_epoch(3)
    assert "queuectl_leadership_epoch 0.0" in lines(second)


def test_every_metric_is_named_by_the_conventions_of_prometheus() -> None:
    metrics = Metrics()
    metrics.reported((), [report("a")], ())
    for line in lines(metrics):
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            assert name.startswith(("queuectl_", "process_"))
            assert name.endswith("_total") == (kind == "counter"), name
            assert not name.endswith(("_milliseconds", "_ms", "_count", "_sum", "_bucket")), name


def test_only_the_first_admission_of_a_workload_records_its_wait() -> None:
    metrics = Metrics()
    created = NOW - timedelta(seconds=20)
    metrics.committed(plan(Admit(attempt("a"), REF, created_at=created)), seconds=0.01, sequence=1)
    metrics.committed(plan(Admit(attempt("a", number=2), REF, created_at=created)), seconds=0.01, sequence=1)
    # A workload that was running when first observed never waited.
    metrics.committed(plan(Admit(attempt("a"), REF)), seconds=0.01, sequence=1)
    found = lines(metrics)
    assert 'queuectl_admissions_total{cluster_queue="a"} 3.0' in found
    assert 'queuectl_admission_wait_seconds_count{cluster_queue="a"} 1.0' in found
    assert 'queuectl_admission_wait_seconds_bucket{cluster_queue="a",le="15.0"} 0.0' in found
    assert 'queuectl_admission_wait_seconds_bucket{cluster_queue="a",le="60.0"} 1.0' in found


def test_evictions_are_counted_by_reason_and_by_the_rule_of_a_preemption() -> None:
    metrics = Metrics()
    taken = Reason(code=Code.PREEMPTED, cause=PreemptionCause.IN_COHORT_RECLAMATION)
    metrics.committed(plan(Evict(WorkloadId("a"), REF, 1, taken)), seconds=0.01, sequence=1)
    metrics.committed(
        plan(Evict(WorkloadId("a"), REF, 1, Reason(code=Code.USER_HOLD))), seconds=0.01, sequence=1
    )
    found = lines(metrics)
    assert 'queuectl_evictions_total{cause="InCohortReclamation",reason="Preempted"} 1.0' in found
    assert 'queuectl_evictions_total{cause="",reason="UserHold"} 1.0' in found


def test_the_time_that_an_evicted_workload_holds_quota_is_counted_by_its_reason() -> None:
    metrics = Metrics()

    def tell(seconds: int, *decisions: Decision) -> None:
        now = NOW + timedelta(seconds=seconds)
        metrics.committed(replace(plan(*decisions), now=now), seconds=0.01, sequence=1)

    a, b = WorkloadId("a"), WorkloadId("b")
    tell(0, Release(b, REF, 1, "it never started"))
    tell(1, Evict(a, REF, 1, Reason(code=Code.PREEMPTED)), Evict(b, REF, 2, Reason(code=Code.USER_HOLD)))
    tell(31, Release(a, REF, 1, "its pods are gone"), Retire(b, REF, 2, WorkloadOutcome.DELETED))
    tell(99, Retire(a, REF, None, WorkloadOutcome.DELETED))
    tell(100, Evict(a, REF, 2, Reason(code=Code.PREEMPTED)))
    metrics.stepped_down()
    tell(200, Release(a, REF, 2, "its pods are gone"))
    found = [line for line in lines(metrics) if line.startswith("queuectl_eviction_duration_seconds_")]
    sums = [line for line in found if "_sum" in line or "_count" in line]
    assert sums == [
        'queuectl_eviction_duration_seconds_count{reason="Preempted"} 1.0',
        'queuectl_eviction_duration_seconds_sum{reason="Preempted"} 30.0',
        'queuectl_eviction_duration_seconds_count{reason="UserHold"} 1.0',
        'queuectl_eviction_duration_seconds_sum{reason="UserHold"} 30.0',
    ]


def test_workloads_without_a_queue_are_counted_too() -> None:
    metrics = Metrics()
    standing = ClusterReport(strays=((Code.QUEUE_NOT_FOUND, 4),), frozen=2, set_aside=3, gate_installed=False)
    metrics.observe(replace(PROBES, cluster_report=lambda: standing, unsettled=lambda: (3, 12.5)))
    found = lines(metrics)
    for line in (
        'queuectl_pending_workloads{cluster_queue="",reason="QueueNotFound"} 4.0',
        "queuectl_frozen_roots 2.0",
        "queuectl_set_aside_workloads 3.0",
        "queuectl_gate_installed 0.0",
        "queuectl_effects_unsettled 3.0",
        "queuectl_effect_oldest_age_seconds 12.5",
        "queuectl_leading 1.0",
        "queuectl_lease_held 1.0",
        "queuectl_lease_renewal_age_seconds 1.0",
    ):
        assert line in found


def test_a_standby_exports_no_held_lease_and_a_controller_without_a_lease_exports_no_lease_metric() -> None:
    metrics = Metrics()
    metrics.observe(replace(PROBES, leads=lambda: False, lease_age=lambda: None))
    assert {
        "queuectl_leading 0.0",
        "queuectl_lease_held 0.0",
        "queuectl_lease_renewal_age_seconds +Inf",
    } <= set(lines(metrics))
    metrics.observe(replace(PROBES, lease_age=None))
    assert not any("lease" in line for line in lines(metrics))


def test_ages_grow_until_the_next_event() -> None:
    clock = [100.0]
    metrics = Metrics(lambda: clock[0])
    assert "queuectl_ledger_commit_age_seconds +Inf" in lines(metrics)
    metrics.committed(plan(), seconds=0.01, sequence=1)
    metrics.ledger_findings([])
    clock[0] += 7
    metrics.committed(plan(), seconds=0.01, sequence=1)
    clock[0] += 2
    assert "queuectl_ledger_commit_age_seconds 2.0" in lines(metrics)
    assert "queuectl_ledger_verification_age_seconds 9.0" in lines(metrics)


def test_requests_to_the_api_server_are_counted_as_rbac_names_them() -> None:
    metrics = Metrics()
    metrics.kubernetes_answered("patch", "jobs", 422, 0.01)
    metrics.kubernetes_answered("watch", "jobs", 0, 10.0)
    found = lines(metrics)
    assert 'queuectl_kubernetes_requests_total{code="422",resource="jobs",verb="patch"} 1.0' in found
    assert 'queuectl_kubernetes_requests_total{code="0",resource="jobs",verb="watch"} 1.0' in found
    assert 'queuectl_kubernetes_request_duration_seconds_count{verb="patch"} 1.0' in found


def test_the_number_of_series_is_bounded_and_no_count_is_lost() -> None:
    names = BoundedNames(most=2)
    assert [names.label(name) for name in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]
    assert (names.forget("a"), names.forget("c")) == (True, False)
    assert names.label("c") == "c"
    rows = [((name, "x"), 1.0) for name in "aabcd"]
    assert summed(rows, most=2) == [(("a", "x"), 2.0), (("b", "x"), 1.0), (("other", "other"), 2.0)]


async def test_probes_say_what_is_wrong() -> None:
    problem: list[str | None] = [None]
    app = application(Metrics(), lambda: problem[0])
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/metrics")
        assert (answer.status, answer.content_type) == (200, "text/plain")
        assert "queuectl_build_info" in await answer.text()
        assert ((await client.get("/readyz")).status, (await client.get("/healthz")).status) == (200, 200)
        problem[0] = "not read yet: Job"
        answer = await client.get("/readyz")
        assert (answer.status, await answer.text()) == (503, "not read yet: Job\n")
        assert (await client.post("/metrics")).status == 405


def test_series_of_queues_and_sources_end_when_a_leader_steps_down_and_counters_stay() -> None:
    metrics = Metrics()
    metrics.observe(replace(PROBES, silence=lambda: {"Job": 3.0}))
    metrics.reported((), [report("team-a", pending=2)], ())
    metrics.committed(plan(Admit(attempt("team-a"), REF)), seconds=0.01, sequence=1)
    metrics.devices_used([("team-a", UseFinding(UseVerdict.IDLE, 4, 4))])
    assert any('cluster_queue="team-a"' in line and "pending" in line for line in lines(metrics))
    assert any('kind="Job"' in line for line in lines(metrics))
    metrics.stepped_down()
    assert not [line for line in lines(metrics) if line.startswith(("queuectl_judged", "queuectl_idle"))]
    assert not any('cluster_queue="team-a"' in line and "pending" in line for line in lines(metrics))
    assert not any('kind="Job"' in line for line in lines(metrics))
    assert 'queuectl_admissions_total{cluster_queue="team-a"} 1.0' in lines(metrics)
