"""What one pod is charged: excluded resources and transformations (H8, H9)."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Admit, Keep
from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextObserved, EffectSettled, Listed, Result
from queuectl.core.model.policy import Namespace, RuntimeClass, SchedulingConfiguration
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import CPU, MAX_AMOUNT, Charging, ResourceForms, Transformation, amounts
from queuectl.core.model.workload import Attempt, LedgerSnapshot, Phase, StoredWorkload
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    flavor,
    group,
    local_queue,
    observed,
    pod_set,
    policy,
    queue,
    workload,
)

LQ = local_queue("lq", "cq")
SLICE, SEVENTHS, MEMORY = "nvidia.com/mig-1g.5gb", "example.com/gpu-sevenths", "example.com/gpu-memory"
MIG = (
    Transformation(input=SLICE, replace=True, outputs=((SEVENTHS, 1),)),
    Transformation(input=GPU, replace=True, outputs=((SEVENTHS, 7),)),
)
SHARED = Transformation(input=MEMORY, replace=True, multiply_by=GPU, outputs=(("example.com/total", 2),))
EACH_CORE = Transformation(input=CPU, outputs=(("example.com/credits", 3),))


def charged(requests: dict[str, int], *rules: Transformation, excluded: tuple[str, ...] = ()) -> object:
    forms = ResourceForms(excluded_prefixes=excluded, transformations=rules)
    return dict(Charging(forms).of(amounts(requests)))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (charged({SLICE: 3}, *MIG), {SEVENTHS: 3}),
        (charged({SLICE: 2, GPU: 1, CPU: 500}, *MIG), {SEVENTHS: 9, CPU: 500}),
        (charged({MEMORY: 40, GPU: 2}, SHARED), {"example.com/total": 160, GPU: 2}),
        (charged({MEMORY: 40}, SHARED), {"example.com/total": 80}),
        (charged({CPU: 2000}, EACH_CORE), {CPU: 2000, "example.com/credits": 6}),
        (charged({CPU: 1500}, EACH_CORE), {CPU: 1500, "example.com/credits": 5}),
        (charged({GPU: 1, "a/b": 1, "a/c": 1, "b": 2}, excluded=("a/",)), {GPU: 1, "b": 2}),
        (charged({"a/gpus": 2, MEMORY: 40}, SHARED, excluded=("a/",)), {"example.com/total": 80}),
        (charged({MEMORY: MAX_AMOUNT, GPU: MAX_AMOUNT}, SHARED)["example.com/total"], MAX_AMOUNT),  # type: ignore[index]
    ],
    ids=[
        "a slice is a seventh of a GPU",
        "slices and whole GPUs are added up in one resource, others stay",
        "an output is multiplied by the amount of another resource",
        "without that resource it is multiplied by one",
        "Retain keeps the input",
        "a fraction of a unit is rounded up",
        "an excluded prefix is not charged",
        "what is excluded is no input",
        "an amount that is too large is cut",
    ],
)
def test_a_pod_is_charged_by_the_rules(found: object, expected: object) -> None:
    assert found == expected


NAMES = st.sampled_from([CPU, "memory", GPU, SLICE, "a/x", "a/y", "b/z"])
REQUESTS = st.dictionaries(NAMES, st.integers(0, 10**6))
OUTPUTS = st.dictionaries(NAMES, st.integers(1, 10**6), max_size=3).map(lambda found: tuple(found.items()))
RULES = st.lists(
    st.builds(
        Transformation,
        input=NAMES,
        replace=st.booleans(),
        multiply_by=st.none() | NAMES,
        outputs=OUTPUTS,
    ),
    max_size=4,
    unique_by=lambda rule: rule.input,
).map(tuple)
FORMS = st.builds(
    ResourceForms,
    excluded_prefixes=st.lists(st.sampled_from(["a/", "nvidia.com/", "cpu"]), max_size=2).map(tuple),
    transformations=RULES,
)


def by_hand(requests: dict[str, int], forms: ResourceForms) -> dict[str, Fraction]:
    """The formula of H8 and H9, in fractions."""
    kept = {k: v for k, v in requests.items() if v and not any(map(k.startswith, forms.excluded_prefixes))}
    unit = {k: Fraction(v, 1000 if k == CPU else 1) for k, v in kept.items()}
    total = {k: Fraction(v) for k, v in kept.items()}
    for rule in forms.transformations:
        if rule.input in kept and rule.replace:
            del total[rule.input]
    for rule in forms.transformations:
        for output, factor in rule.outputs if rule.input in kept else ():
            times = unit[rule.input] * unit.get(rule.multiply_by or "", Fraction(1))
            total[output] = total.get(output, Fraction(0)) + factor * times
    return total


@given(REQUESTS, FORMS)
def test_the_charge_is_the_exact_sum_rounded_up_and_never_negative(
    requests: dict[str, int], forms: ResourceForms
) -> None:
    found = Charging(forms).of(amounts(requests))
    assert dict(found) == {k: min(-(-v // 1), MAX_AMOUNT) for k, v in by_hand(requests, forms).items() if v}
    assert all(amount > 0 for _, amount in found)
    excluded = forms.excluded_prefixes
    outputs = {name for rule in forms.transformations for name, _ in rule.outputs}
    assert not [k for k, _ in found if k not in outputs and any(map(k.startswith, excluded))]


@given(REQUESTS, FORMS, st.integers(2, 1000))
def test_without_multiply_by_the_charge_of_whole_units_is_linear(
    requests: dict[str, int], forms: ResourceForms, times: int
) -> None:
    whole = {k: v * 1000 if k == CPU else v for k, v in requests.items()}
    rules = tuple(
        Transformation(input=r.input, replace=r.replace, outputs=r.outputs) for r in forms.transformations
    )
    charging = Charging(ResourceForms(excluded_prefixes=forms.excluded_prefixes, transformations=rules))
    once = charging.of(amounts(whole))
    more = charging.of(amounts({k: v * times for k, v in whole.items()}))
    assert more == amounts({k: v * times for k, v in once})


SETTINGS = SchedulingConfiguration(resources=ResourceForms(transformations=MIG))


def held(world: World) -> list[object]:
    return [d.attempt.assignment.pod_sets[0].requests for d in world.decided if isinstance(d, Admit)]


def test_slices_and_whole_gpus_share_one_quota() -> None:
    world = World(queue("cq", groups=[group({"default": {SEVENTHS: 14}})]), LQ, settings=SETTINGS)
    world.submit(
        workload("slices", pods=[pod_set(6, {SLICE: 1})]),
        workload("whole", pods=[pod_set(1, {GPU: 1})], created=1),
        workload("late", pods=[pod_set(2, {SLICE: 1})], created=2),
    )
    made = world.run()
    assert held(world) == [((SEVENTHS, 1),), ((SEVENTHS, 7),)]
    (kept,) = (d for d in made if isinstance(d, Keep))
    assert (kept.reason.code, kept.reason.resource, kept.reason.short_by) == (
        Code.WAITING_FOR_QUOTA,
        SEVENTHS,
        1,
    )


def test_what_becomes_too_large_for_one_amount_is_named_and_not_queued() -> None:
    settings = SchedulingConfiguration(resources=ResourceForms(transformations=(SHARED,)))
    world = World(queue("cq", 4), LQ, settings=settings)
    world.submit(workload("a", pods=[pod_set(1, {MEMORY: 2**40, GPU: 2**40})]))
    (kept,) = world.run()
    assert isinstance(kept, Keep)
    assert kept.reason.code is Code.QUANTITY_OUT_OF_RANGE
    assert kept.reason.resource == "example.com/total"


IGNORED = SchedulingConfiguration(resources=ResourceForms(ignore_uncovered=True))
FABRIC = "example.com/fabric"


@pytest.mark.parametrize("pods", [1, 2], ids=["one podset", "two podsets"])
def test_a_resource_that_no_group_covers_is_refused_or_not_charged(pods: int) -> None:
    one = workload("a", pods=[pod_set(1, {GPU: 1, FABRIC: 3}, f"p{number}") for number in range(pods)])
    refused, ignored = (
        World(queue("cq", 4), LQ, settings=each) for each in (SchedulingConfiguration(), IGNORED)
    )
    for world in (refused, ignored):
        world.submit(one)
    (kept,) = refused.run()
    assert isinstance(kept, Keep)
    assert (kept.reason.code, kept.reason.resource) == (Code.RESOURCE_NOT_COVERED, FABRIC)
    ignored.run()
    assert held(ignored) == [((GPU, 1),)]


def test_a_workload_of_which_nothing_is_covered_is_admitted_and_holds_nothing() -> None:
    world = World(queue("cq", 4), LQ, settings=IGNORED)
    world.submit(workload("a", pods=[pod_set(1, {FABRIC: 3})]))
    world.run()
    assert held(world) == [()]


@pytest.mark.parametrize(("requests", "sent_again"), [({GPU: 1, FABRIC: 9}, True), ({GPU: 2}, False)])
def test_an_edit_of_what_is_not_charged_sends_the_same_start_again(
    requests: dict[str, int], sent_again: bool
) -> None:
    world = World(queue("cq", 4), LQ, settings=IGNORED)
    world.submit(workload("a", pods=[pod_set(1, {GPU: 1, FABRIC: 3})]))
    world.run()
    (effect,) = world.engine.take_effects()
    edited = workload("a", pods=[pod_set(1, requests)])
    world.tell(observed(edited, generation=2), EffectSettled(effect.key, Result.REFUSED))
    world.run()
    again = [one.key for one in world.engine.take_effects()]
    assert (again == [effect.key]) is sent_again


def stored(name: str, attempt: Attempt) -> StoredWorkload:
    one = workload(name, pods=[pod_set(1, {SLICE: 1})])
    return StoredWorkload(
        id=one.id,
        ref=one.ref,
        queue=one.queue,
        cluster_queue="cq",
        priority=0,
        created_at=one.created_at,
        arrival=1,
        phase=Phase.ADMITTED,
        attempts=1,
        attempt=attempt,
        reason=None,
        pod_sets=one.pod_sets,
    )


def test_after_a_change_of_the_rules_holds_keep_their_charge_and_new_admissions_have_the_new_one() -> None:
    quotas = [group({"default": {SEVENTHS: 14}}), group({"default": {SLICE: 4}})]
    world = World(queue("cq", groups=quotas), LQ)
    one = workload("old", pods=[pod_set(1, {SLICE: 1})])
    world.submit(one)
    world.run()
    (effect,) = world.engine.take_effects()
    world.engine = Engine(SOURCES, SETTINGS)
    world.engine.restore(LedgerSnapshot(sequence=3, now=T0, workloads=(stored("old", effect.attempt),)))
    world.tell(ContextObserved(Namespace("ns")), policy(flavor("default")))
    world.tell(policy(queue("cq", groups=quotas)), policy(LQ), Listed("policies"))
    new = workload("new", pods=[pod_set(1, {SLICE: 1})], created=1)
    jobs = (observed(one, suspended=False, admission=effect.attempt), observed(new))
    world.tell(*jobs, Listed("Job", frozenset({one.id, new.id})))
    world.run()
    assert held(world) == [((SLICE, 1),), ((SEVENTHS, 1),)]
    (report,) = world.engine.take_reports()[1]
    assert {cell.resource: amount for cell, amount in report.used} == {SLICE: 1, SEVENTHS: 1}


@pytest.mark.parametrize("runs", [False, True], ids=["waits", "runs"])
def test_a_sum_with_overhead_that_no_amount_can_hold_waits_or_is_charged_as_much_as_fits(runs: bool) -> None:
    world = World(flavor("default"), queue("cq", groups=[group({"default": {"memory": MAX_AMOUNT}})]), LQ)
    world.tell(ContextObserved(RuntimeClass("kata", (("memory", 1),))))
    large = workload("large", pods=[pod_set(1, {"memory": MAX_AMOUNT}, runtime_class="kata")])
    world.tell(observed(large, suspended=not runs))
    decisions = world.run()
    if runs:
        (admit,) = (d for d in decisions if isinstance(d, Admit))
        assert admit.attempt.assignment.resources() == {"memory": MAX_AMOUNT}
    else:
        (kept,) = (d for d in decisions if isinstance(d, Keep))
        assert kept.reason.code is Code.QUANTITY_OUT_OF_RANGE
        assert kept.reason.detail == f"a pod of podset main is charged more than {MAX_AMOUNT} of it"
