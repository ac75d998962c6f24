"""Laws of UsageLimits in random histories, judged by the rows of the ledger alone (X1 to X8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given

from queuectl.answers.state import CommittedState
from queuectl.answers.usage_limits import PENDING, limit_use
from queuectl.core.decisions import Admit
from queuectl.core.model.policy import ClusterQueue, Cohort, LocalQueueName, Policy
from queuectl.core.model.reasons import Code, Limit
from queuectl.core.model.usage_limits import (
    WORKLOADS,
    Dimension,
    LimitSubject,
    LimitTarget,
    SubjectKind,
    UsageLimit,
)
from queuectl.core.model.workload import ConfigKey, StoredWorkload, Workload
from queuectl.core.subjects import Place
from tests.builders import GPU
from tests.unit.core import actions, laws, profiles
from tests.unit.core.actions import JOBS, ON_QUOTA, SCRIPT_ON_NODES, SETUP, any_of
from tests.unit.core.driver import Driver, wait_for
from tests.unit.core.plans import Law, PlanContext, When, law
from tests.unit.core.trees import Dice, random_setup

USERS = ("ann", "bob")
PLACES = tuple[UsageLimit, str]


class DriverWithUsers(Driver):
    def submit(self, workload: Workload, *, running: bool = False) -> None:
        user = USERS[(self.made + workload.pod_sets[0].count) % len(USERS)]
        pods = tuple(replace(one, min_count=None) for one in workload.pod_sets)
        super().submit(replace(workload, submitter=user, pod_sets=pods), running=running)


def change_limit(driver: Driver, dice: Dice) -> None:
    """Set or remove one of three limits."""
    name = dice.pick("x", "y", "z")
    if name in driver.policy.limits and dice.below(3) == 2:
        driver.unset("UsageLimit", name)
        return
    queues = sorted(driver.policy.queues)
    local = dice.pick(*driver.setup.locals)
    target = dice.pick(
        LimitTarget("ClusterQueue", dice.pick(*queues)),
        *(LimitTarget("Cohort", one) for one in sorted(driver.policy.cohorts)),
        LimitTarget("LocalQueue", local, "ns"),
    )
    subject = dice.pick(
        LimitSubject(SubjectKind.EACH_USER),
        LimitSubject(SubjectKind.USER, "ann"),
        LimitSubject(SubjectKind.ALL),
    )
    most = dice.pick(
        ((Dimension(None, WORKLOADS), dice.below(3)),),
        ((Dimension(None, GPU), dice.below(6)),),
        ((Dimension("f1", GPU), dice.below(4)),),
        (),
    )
    pending = dice.pick(None, None, 0, 1, 2)
    driver.set(UsageLimit(name=name, target=target, subject=subject, most=most, pending=pending))


def limited(data: bytes, *more: Law) -> Driver:
    """Return a driver with a random policy, whose history has users and limits."""
    dice = Dice(data)
    driver = DriverWithUsers(
        random_setup(dice), *LAWS, *more, actions=any_of(ON_QUOTA, ON_QUOTA, change_limit)
    )
    change_limit(driver, Dice(data[::-1]))
    driver.deliver()
    return driver


# --- slow code


def counts(driver: Driver, limit: UsageLimit, row: StoredWorkload, cluster_queue: str) -> str | None:
    """Return for which subject a workload counts; None: it does not."""
    match limit.target.kind:
        case "LocalQueue":
            applies = LocalQueueName(row.ref.namespace, row.queue) == LocalQueueName("ns", limit.target.name)
        case "ClusterQueue":
            applies = cluster_queue == limit.target.name
        case _:
            applies = limit.target.name in above(driver, cluster_queue)
    match limit.subject.kind if applies else None:
        case SubjectKind.ALL:
            return ""
        case SubjectKind.USER:
            return row.submitter if row.submitter == limit.subject.name else None
        case SubjectKind.EACH_USER:
            own = (limit.target, LimitSubject(SubjectKind.USER, row.submitter or ""))
            named = [(one.target, one.subject) for one in driver.policy.limits.values()]
            return None if own in named else row.submitter
    return None


def above(driver: Driver, cluster_queue: str) -> Sequence[str]:
    queue = driver.policy.queues.get(cluster_queue)
    at, names = queue.cohort if queue else None, list[str]()
    while at is not None and at not in names:
        names.append(at)
        at = driver.policy.cohorts[at].parent if at in driver.policy.cohorts else None
    return names


def amount(row: StoredWorkload, dimension: Dimension) -> int:
    assert row.attempt is not None
    if dimension.resource == WORKLOADS:
        return 1
    usage = row.attempt.assignment.usage()
    return sum(n for (f, r), n in usage.items() if r == dimension.resource and dimension.flavor in (None, f))


def used(driver: Driver, limit: UsageLimit, dimension: Dimension) -> Counter[str]:
    """Return what each subject holds."""
    found: Counter[str] = Counter()
    for row in driver.loaded().workloads:
        if row.attempt is not None:
            subject = counts(driver, limit, row, row.attempt.assignment.cluster_queue)
            if subject is not None:
                found[subject] += amount(row, dimension)
    return found


# --- laws


@law(When.COMMIT)
def no_admission_exceeds_a_limit(context: PlanContext) -> None:
    """Above a limit is only what a lowered limit, or a start that was not asked for, has left there."""
    driver = context.driver
    if driver.watch:
        return  # the engine has not been told of all policy yet
    started = {
        d.attempt.workload for d in context.plan.decisions if isinstance(d, Admit) and not d.attempt.debt
    }
    for row in driver.loaded().workloads:
        if row.id not in started or row.attempt is None:
            continue
        for limit in driver.policy.limits.values():
            subject = counts(driver, limit, row, row.attempt.assignment.cluster_queue)
            for dimension, most in limit.most if subject is not None else ():
                if amount(row, dimension):
                    total = used(driver, limit, dimension)[subject or ""]
                    assert total <= most, f"{row.ref}: {total} of {dimension}, {limit}"


@law(When.REST)
def nothing_waits_for_a_limit_that_has_room(driver: Driver) -> None:
    for row in driver.loaded().workloads:
        reason = row.reason
        if row.attempt is not None or reason is None or reason.code is not Code.WAITING_FOR_USAGE_LIMIT:
            continue
        limit = driver.policy.limits[(reason.node or "").removeprefix("UsageLimit/")]
        subject = counts(driver, limit, row, row.cluster_queue or "")
        assert subject is not None, f"{limit} does not apply to {row.ref}"
        if reason.limit is Limit.PENDING:
            before = [
                one
                for one in driver.loaded().workloads
                if one.attempt is None and one.arrival < row.arrival
                if counts(driver, limit, one, one.cluster_queue or "") == subject
            ]
            assert limit.pending is not None
            assert len(before) >= limit.pending
            continue
        assert reason.resource is not None
        assert reason.requested is not None
        dimension = Dimension(reason.flavor, reason.resource)
        total = used(driver, limit, dimension)[subject] + reason.requested
        assert total > dict(limit.most)[dimension], f"{row.ref} fits: {reason}"


def committed_state(driver: Driver) -> CommittedState:
    """Return what readers have of the driver's ledger."""
    policy = driver.policy
    known: list[ClusterQueue | Cohort | UsageLimit] = [
        *policy.queues.values(),
        *policy.cohorts.values(),
        *policy.limits.values(),
    ]
    policies = {ConfigKey(type(one).__name__, "", one.name): one for one in known}

    def parse(key: ConfigKey, spec: str) -> Policy:
        if key not in policies:
            raise ValueError(key)
        return policies[key]

    return CommittedState().advance(wait_for(driver.ledger.since(0)), parse)


@law(When.COMMIT)
def readers_see_the_use_that_the_engine_counts(context: PlanContext) -> None:
    driver = context.driver
    if driver.watch:
        return
    rows = limit_use(committed_state(driver))
    seen = {(row.limit.name, row.subject, row.dimension): row.used for row in rows if row.used}
    held = driver.engine.features.usage_limits.held
    counted = {
        (place.limit, place.subject, dimension): used
        for place, demand in held.by_subject().items()
        for dimension, used in demand.items()
        if used and dimension in dict(driver.policy.limits[place.limit].most)
    }
    assert {key: used for key, used in seen.items() if key[2] != PENDING} == counted


@law(When.REST)
def readers_count_pending_workloads_as_the_engine_does(driver: Driver) -> None:
    counts = driver.engine.features.usage_limits.pending
    for row in limit_use(committed_state(driver)):
        if row.dimension == PENDING:
            assert row.used == counts.count(Place(row.limit.name, row.subject)), row


LAWS = (
    no_admission_exceeds_a_limit,
    nothing_waits_for_a_limit_that_has_room,
    readers_see_the_use_that_the_engine_counts,
)


@profiles.sequences(150)
@given(SETUP, JOBS, SCRIPT_ON_NODES)
def test_no_subject_exceeds_a_limit_and_nothing_waits_for_one_that_has_room(
    setup: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    driver = actions.play(
        limited(setup, laws.no_workload_is_admitted_on_quota_that_is_not_available), jobs, script
    )
    driver.come_to_rest()


@profiles.sequences(100)
@given(SETUP, JOBS, SCRIPT_ON_NODES)
def test_a_new_process_decides_nothing_else_with_limits(
    setup: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    driver = actions.play(limited(setup, laws.a_new_process_decides_nothing), jobs, script)
    driver.come_to_rest()
