"""LimitRanges and ResourceQuotas: what workloads of their namespace are charged, and held for (N1 to N4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Admit, Keep
from queuectl.core.directory import Directory
from queuectl.core.features.namespace_quota.limit_ranges import LimitRanges
from queuectl.core.model.events import ContextGone, ContextObserved
from queuectl.core.model.pod_limits import (
    Counts,
    HardLimit,
    LimitRange,
    LimitRangeItem,
    LimitType,
    NamespaceQuota,
    QuotaScope,
)
from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.resources import CPU, Container, Listed, PodResources, Role, amounts, requested
from queuectl.core.model.workload import Workload
from tests.builders import GPU, World, group, local_queue, pod_set, queue, workload

LQ = local_queue("lq", "cq")
CQ = queue("cq", groups=[group({"default": {CPU: 100_000, GPU: 8}})])
DEFAULTS = LimitRangeItem(type=LimitType.CONTAINER, default=((CPU, 2000),), default_request=((CPU, 500),))
SMALL = LimitRangeItem(type=LimitType.CONTAINER, max=((CPU, 1000),))


def of(name: str, pods: int = 1, *containers: Container) -> Workload:
    pod = PodResources(containers=containers or (Container("main", ()),))
    return workload(name, pods=[pod_set(pods, dict(requested(pod)), pod=pod)])


def gpus(name: str, count: int) -> Workload:
    return of(name, count, Container("main", ((GPU, 1),), ((GPU, 1),)))


def limits(*items: LimitRangeItem, name: str = "ns/x") -> ContextObserved:
    return ContextObserved(LimitRange(name, items))


def quota(hard: int, used: int = 0, *, scopes: tuple[QuotaScope, ...] = ()) -> ContextObserved:
    limit = HardLimit(f"requests.{GPU}", Counts.REQUESTS, GPU, hard, used)
    return ContextObserved(NamespaceQuota("ns/gpus", (limit,), scopes))


def last(world: World) -> Reason:
    found = [d for d in world.decided if isinstance(d, Keep)]
    return found[-1].reason


def test_defaults_are_charged_as_the_api_server_adds_them() -> None:
    world = World(CQ, LQ)
    world.tell(limits(DEFAULTS))
    world.submit(of("a", 2, Container("one", ()), Container("two", ((CPU, 1000),)), Container("three", ())))
    world.run()
    (admit,) = (d for d in world.decided if isinstance(d, Admit))
    assert admit.attempt.assignment.pod_sets[0].requests == ((CPU, 2000),)


def test_a_change_of_defaults_changes_the_charge_of_what_waits_and_not_of_what_holds_quota() -> None:
    world = World(queue("cq", groups=[group({"default": {CPU: 600}})]), LQ)
    world.tell(limits(DEFAULTS))
    world.submit(of("a"), of("b"))
    world.run()
    assert last(world).requested == 500
    world.tell(limits(replace(DEFAULTS, default_request=((CPU, 100),))))
    world.run()
    held = [d.attempt.assignment.pod_sets[0].requests for d in world.decided if isinstance(d, Admit)]
    assert held == [((CPU, 500),), ((CPU, 100),)]


def test_pods_that_a_limit_range_refuses_are_held_until_it_is_changed_or_deleted() -> None:
    for end in (limits(DEFAULTS), ContextGone(LimitRange, "ns/x")):
        world = World(CQ, LQ)
        world.tell(limits(SMALL))
        world.submit(of("a", 1, Container("train", ((CPU, 1500),), ((CPU, 1500),))))
        world.run()
        assert last(world).message == (
            "Misconfigured at LimitRange/ns/x: refuses the pods of podset main: "
            "container train: cpu limit 1500m, the max is 1"
        )
        world.tell(end)
        assert [type(d) for d in world.run()] == [Admit]


def test_pods_that_a_resource_quota_can_never_hold_are_held_until_it_is_raised() -> None:
    world = World(CQ, LQ)
    world.tell(quota(4))
    world.submit(gpus("a", 6))
    world.run()
    reason = last(world)
    assert (reason.code, reason.limit) == (Code.EXCEEDS_RESOURCE_QUOTA, Limit.HARD)
    assert reason.message == (
        "ExceedsResourceQuota: requests 6 nvidia.com/gpu, at most 4 ever, short by 2 "
        "(bound by spec.hard of ResourceQuota/ns/gpus): spec.hard[requests.nvidia.com/gpu]"
    )
    world.tell(quota(6))
    assert [type(d) for d in world.run()] == [Admit]


def test_a_workload_that_may_start_with_fewer_pods_is_held_only_if_the_fewest_are_too_many() -> None:
    for least, held in ((4, False), (5, True)):
        world = World(CQ, LQ)
        world.tell(quota(4))
        one = gpus("a", 8)
        world.submit(replace(one, pod_sets=(replace(one.pod_sets[0], min_count=least),)))
        world.run()
        assert (last(world).code is Code.EXCEEDS_RESOURCE_QUOTA) is held if held else True
        assert any(isinstance(d, Admit) for d in world.decided) is not held


@pytest.mark.parametrize(
    "scope",
    [
        QuotaScope("Terminating"),
        QuotaScope("PriorityClass", "In", ("high",)),
        QuotaScope("CrossNamespacePodAffinity"),
        QuotaScope("SomethingNew"),
    ],
    ids=lambda scope: scope.name,
)
def test_a_resource_quota_for_other_pods_or_for_pods_not_known_holds_nothing(scope: QuotaScope) -> None:
    world = World(CQ, LQ)
    world.tell(quota(0, scopes=(scope,)))
    world.submit(gpus("a", 6))
    assert [type(d) for d in world.run()] == [Admit]


def test_another_namespace_is_not_concerned_and_what_is_used_wakes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(CQ, LQ, local_queue("lq", "cq", "other"), namespaces=("ns", "other"))
    world.submit(*(gpus(f"a{n}", 8) for n in range(20)))
    world.run()
    asked: list[str] = []
    route = Directory.route

    def noted(self: Directory, one: Workload) -> object:
        asked.append(one.ref.name)
        return route(self, one)

    monkeypatch.setattr(Directory, "route", noted)
    world.tell(quota(8))
    assert len(asked) == 19  # all but the one that is admitted
    world.run()
    asked.clear()
    world.tell(*(quota(8, used) for used in range(8)))
    world.tell(limits(SMALL, name="other/x"))
    assert asked == []


LISTED = st.dictionaries(st.sampled_from([CPU, "memory", GPU]), st.integers(0, 5), max_size=3).map(
    lambda found: tuple(sorted(found.items()))
)
CONTAINERS = st.builds(Container, st.just("c"), LISTED, LISTED, st.sampled_from(list(Role)))
PODS = st.builds(
    PodResources,
    containers=st.lists(CONTAINERS, min_size=1, max_size=4).map(
        lambda found: tuple(sorted(found, key=lambda one: one.role is not Role.CONTAINER))
    ),
    overhead=LISTED,
)
ITEMS = st.builds(
    LimitRangeItem, type=st.sampled_from(list(LimitType)), default=LISTED, default_request=LISTED
)


@given(PODS, st.lists(st.lists(ITEMS, max_size=2).map(tuple), max_size=3))
def test_defaults_never_change_what_a_pod_names_and_are_added_once(
    pod: PodResources, found: list[tuple[LimitRangeItem, ...]]
) -> None:
    ranges = LimitRanges()
    for number, items in enumerate(found):
        ranges.observe(LimitRange(f"ns/{number}", items))
    once = ranges.completed("ns", pod)
    assert ranges.completed("ns", once) == once
    assert ranges.completed("elsewhere", pod) is pod
    for before, after in zip(pod.containers, once.containers, strict=True):
        for named, completed in ((before.requests, after.requests), (before.limits, after.limits)):
            assert dict(completed) | dict(named) == dict(completed)
    assert all(amount <= dict(requested(once))[name] for name, amount in requested(pod))


@given(st.lists(CONTAINERS, max_size=4), LISTED)
def test_without_init_containers_the_total_is_the_sum(containers: list[Container], overhead: Listed) -> None:
    plain = tuple(replace(one, role=Role.CONTAINER) for one in containers)
    total: dict[str, int] = dict(overhead)
    for one in plain:
        for name, amount in one.requests:
            total[name] = total.get(name, 0) + amount
    assert requested(PodResources(containers=plain, overhead=overhead)) == amounts(total)
