"""Laws of random sequences, judged by the text of the rules, the rows of the ledger and slow code alone.

Laws of plans read a `PlanContext`, laws of states the driver. Where nodes limit admissions, those of
room_laws.py hold as well.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from queuectl.core.cycle.nomination import Nominator
from queuectl.core.cycle.plan_draft import PlanDraft
from queuectl.core.decisions import Admit, Configure, Evict, Keep, subject
from queuectl.core.engine import DEFAULT_BUDGET
from queuectl.core.model.policy import ClusterQueue, PreemptionPolicy
from queuectl.core.model.reasons import Code, ExcludedNodes, PreemptionCause, Reason
from queuectl.core.model.resources import PODS, Amounts, Usage
from queuectl.core.model.workload import Assignment, AttemptState, PastAttempts, Phase, Workload, WorkloadId
from tests.builders import GPU
from tests.doubles import engine_state
from tests.unit.core.plans import PlanContext, When, fits, law, within
from tests.unit.core.reference import Usage as UsageByQueue

if TYPE_CHECKING:
    from tests.unit.core.driver import Driver, Job

ROOM = frozenset({Code.CAPACITY_MISSING, Code.NO_NODE_CAN_FIT, Code.NO_NODE_FITS})

# --- deciding


@law(When.DECIDE)
def deciding_changes_nothing(context: PlanContext) -> None:
    driver = context.driver
    free = engine_state.free_on_nodes(driver.engine)
    again = driver.engine.decide(driver.now, context.budget, context.cycles)
    assert again == context.plan, "deciding changed the state"
    assert engine_state.free_on_nodes(driver.engine) == free, "deciding changed what is free on nodes"


@law(When.DECIDE)
def what_is_due_is_decided(context: PlanContext) -> None:
    plan = context.plan
    if not plan.decisions and not plan.probes:
        assert not context.driver.engine.due or plan.more, "due without anything to do: a driver would loop"


@law(When.DECIDE)
def a_plan_ends_by_itself(context: PlanContext) -> None:
    """C1. The budget is for many heads: with few workloads it is not used up by cycles that repeat."""
    if context.budget >= DEFAULT_BUDGET and context.cycles is None:
        assert not context.plan.left, f"cycles of {context.plan.left} do not end"


@law(When.DECIDE)
def what_could_not_have_enough_is_refused(context: PlanContext) -> None:
    """W7. No head that is passed over would be admitted, or find victims."""
    state = engine_state.state(context.driver.engine)
    with state.limits.trying() as trial:
        draft = PlanDraft(state, context.now, 1, trial)
        nominator = Nominator(draft.snapshot, state.directory, state.claims)
        for waiting in state.pending.values():
            for group in waiting.groups.values():
                head = group.head()
                if head is not None and not draft.chances.could_have_enough(waiting, group):
                    assert not nominator.nominate(head).promising, f"{head.ref} has a chance"


ALWAYS = (deciding_changes_nothing, what_is_due_is_decided, a_plan_ends_by_itself)
"""Every driver has these."""

# --- plans


@law(When.PLAN)
def no_workload_is_admitted_on_quota_that_is_not_available(context: PlanContext) -> None:
    quota = context.quota()
    for decision in context.plan.decisions:
        if not isinstance(decision, Admit):
            continue
        attempt = decision.attempt
        queue = attempt.assignment.cluster_queue
        for (flavor, resource), amount in attempt.assignment.usage().items():
            free = max(0, quota.available(queue, (flavor, resource)))
            assert amount <= free or attempt.debt, (
                f"{decision.ref} requests {amount} of {flavor}, available: {free}"
            )
        quota.charge(attempt)


@law(When.PLAN)
def preemptors_of_a_plan_fit_after_their_victims_end(context: PlanContext) -> None:
    """All preemptors of a tree fit together, with the admissions of the plan and with earlier claims."""
    if not context.preemptions:
        return
    quota = context.quota()
    for decision in context.plan.decisions:
        if isinstance(decision, Admit):
            quota.charge(decision.attempt)
    claims = [(a.queue, a.cells, a.waits_for) for a in (*context.preemptions, *context.earlier())]
    for victim in {uid for _, _, victims in claims for uid in victims}:
        if victim in context.attempts:
            quota.charge(context.attempts[victim], -1)
    for queue, cells, _ in claims:
        for cell, amount in cells.items():
            quota.add(queue, cell, amount)
    for preempting in context.preemptions:
        for cell in preempting.cells:
            over = -quota.available(preempting.queue, cell)
            assert over <= 0, f"{preempting.owner.ref} lacks {over} of {cell} without its victims"


@law(When.PLAN)
def no_victim_is_unnecessary(context: PlanContext) -> None:
    """P6: with any single victim restored, the request does not fit, or only with borrowing."""
    for preempting in context.alone():
        quota = context.quota()
        for uid in preempting.waits_for:
            quota.charge(context.attempts[uid], -1)
        assert fits(quota, preempting, allow_borrowing=True), f"{preempting.owner.ref} does not fit"
        bound = fits(quota, preempting, allow_borrowing=False)
        for victim in preempting.evicts:
            quota.charge(context.attempts[victim.workload])
            spared = fits(quota, preempting, allow_borrowing=True)
            if spared and bound and not context.fair(preempting.queue):
                spared = fits(quota, preempting, allow_borrowing=False)
            assert not spared, f"{victim.ref} is not needed as a victim of {preempting.owner.ref}"
            quota.charge(context.attempts[victim.workload], -1)


@law(When.PLAN)
def priority_is_respected(context: PlanContext) -> None:
    """P2. YuniKorn: only equal or lower priority is preempted. `Any` lifts this for borrowed quota."""
    for preempting in context.preemptions:
        rules, owner = context.rules(preempting.queue), preempting.owner
        for victim in preempting.evicts:
            own = context.queue_of(victim) == preempting.queue
            policy = rules.within_cluster_queue if own else rules.reclaim_within_cohort
            other = context.stored[victim.workload]
            cause = victim.reason.cause
            assert policy is not PreemptionPolicy.NEVER, f"{preempting.queue} may not preempt {victim.ref}"
            assert own is (cause is PreemptionCause.IN_CLUSTER_QUEUE)
            if policy is PreemptionPolicy.LOWER_PRIORITY:
                assert other.priority < owner.priority
            elif policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                newer = (-other.priority, other.created_at) > (-owner.priority, owner.created_at)
                assert newer, f"{victim.ref} is ahead of {owner.ref}"
            if cause is PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING:
                allowed = rules.borrow_within_cohort
                assert allowed is not None
                assert other.priority < owner.priority
                assert allowed.most_priority is None or other.priority <= allowed.most_priority


@law(When.PLAN)
def no_protected_workload_is_preempted(context: PlanContext) -> None:
    """P10 and P11. A workload that has ended and only has live pods is not protected."""
    settings = context.driver.setup.settings
    snapshot = context.driver.ledger._preemptions()
    for preempting in context.preemptions:
        for victim in preempting.evicts:
            attempt = context.attempts[victim.workload]
            job = context.driver.jobs.get(victim.workload)
            if job is None or job.finished is not None:
                continue
            cause = victim.reason.cause
            assert cause is not None
            ran = (context.now - attempt.admitted_at).total_seconds()
            assert ran >= context.rules(context.queue_of(victim)).min_run_time.seconds(cause)
            counts_for = settings.preemptions_count_for
            past = [t for t in snapshot[victim.workload] if context.now - t < counts_for]
            assert not past or ran >= settings.cooldown, f"{victim.ref} was preempted within the cooldown"
            recent = [t for t in past if (context.now - t).total_seconds() < settings.eviction_window]
            assert len(recent) < settings.eviction_budget, f"{victim.ref} was preempted {len(recent)} times"


@law(When.PLAN)
def a_victim_holds_what_is_requested(context: PlanContext) -> None:
    for preempting in context.preemptions:
        for victim in preempting.evicts:
            assert context.uses(victim) & preempting.cells.keys(), (
                f"{victim.ref} holds nothing that is requested"
            )


@law(When.PLAN)
def no_victim_is_in_another_tree(context: PlanContext) -> None:
    """YuniKorn: never outside the fence. The fence here is the root cohort."""
    quota = context.quota()
    for preempting in context.preemptions:
        for victim in preempting.evicts:
            assert quota.root(context.queue_of(victim)) == quota.root(preempting.queue)


@law(When.PLAN)
def preemptor_and_victim_are_different_workloads(context: PlanContext) -> None:
    """YuniKorn: never within one application. A workload is preempted whole and once, and not admitted."""
    admitted_since = {d.attempt.workload for d in context.plan.decisions if isinstance(d, Admit)}
    asking = {preempting.owner.id for preempting in context.preemptions}
    victims = [victim.workload for victim in context.plan.victims]
    assert len(victims) == len(set(victims)), "a workload is preempted twice"
    assert not set(victims) & (asking | admitted_since)
    assert not asking & admitted_since
    assert {victim.preemptor for victim in context.plan.victims} <= asking


@law(When.PLAN)
def a_queue_loses_only_what_it_borrows(context: PlanContext) -> None:
    """YuniKorn: the queue of a victim is above its guarantee, and is never pushed below it.

    A workload is preempted whole, so the last victim of a queue may bring it below: without this victim, the
    queue still borrows. If shares decide (P7), borrowing on any cell counts, else on a requested cell.
    """
    for preempting in context.alone():
        quota = context.quota()
        fair = context.fair(preempting.queue)
        by_queue: dict[str, list[Evict]] = {}
        for victim in context.elsewhere(preempting):
            by_queue.setdefault(context.queue_of(victim), []).append(victim)
        for uid in preempting.waits_for:
            quota.charge(context.attempts[uid], -1)
        for queue, victims in by_queue.items():
            known = {
                (f.name, r)
                for g in context.policy.queues[queue].resource_groups
                for f in g.flavors
                for r in g.covered
            }
            cells = {tuple(name) for name in context.names} | known if fair else preempting.cells.keys()
            found = False
            for victim in victims:
                quota.charge(context.attempts[victim.workload])
                found |= any(quota.borrows((queue, ClusterQueue), cell) for cell in cells)  # type: ignore[arg-type]
                quota.charge(context.attempts[victim.workload], -1)
            assert found, f"{queue} is pushed below its own quota by {preempting.owner.ref}"


@law(When.PLAN)
def the_preemptor_is_below_its_guarantee(context: PlanContext) -> None:
    """YuniKorn: preemption is only for queues below their guarantee.

    Here the request stays within the own quota of the queue, or of a cohort between it and the victim. Else
    priority (P2) or a share (P8) must allow the preemption.
    """
    for preempting in context.alone():
        quota = context.quota()
        mine = quota.path(preempting.queue)
        after = context.quota()
        for uid in preempting.waits_for:
            after.charge(context.attempts[uid], -1)
        for victim in context.elsewhere(preempting):
            if victim.reason.cause is not PreemptionCause.IN_COHORT_RECLAMATION:
                continue
            theirs = quota.path(context.queue_of(victim))
            between = mine[: next(n for n, node in enumerate(mine) if node in theirs)]
            fair = context.fair(preempting.queue)
            entitled = any(within(quota, preempting, node) for node in between) if not fair else False
            if not entitled and fair:
                entitled = any(
                    quota.numbers(mine[0], cell)[2] + amount <= quota.numbers(mine[0], cell)[0]
                    for cell, amount in preempting.cells.items()
                )
            assert entitled or fits(after, preempting, allow_borrowing=False), (
                f"{preempting.owner.ref} borrows and yet takes {victim.ref} back"
            )


@law(When.PLAN)
def share_causes_occur_only_with_fair_sharing(context: PlanContext) -> None:
    """S1: each cause occurs only in trees with, or only in trees without, fair sharing."""
    for preempting in context.preemptions:
        causes = {victim.reason.cause for victim in preempting.evicts}
        if context.fair(preempting.queue):
            assert PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING not in causes
        else:
            assert PreemptionCause.IN_COHORT_FAIR_SHARING not in causes


@law(When.PLAN)
def a_row_says_more_than_other_numbers(context: PlanContext) -> None:
    """R2: for a workload that waits already, a change of amounts, counts or times alone makes no row."""
    for decision in context.plan.recorded:
        if isinstance(decision, Keep) and (one := context.stored.get(decision.workload)) is not None:
            assert one.reason is None or _without_numbers(one.reason) != _without_numbers(decision.reason), (
                f"{decision.ref} waits with {one.reason}, and is told {decision.reason}"
            )


def _without_numbers(reason: Reason) -> tuple[object, ...]:
    """Return what identifies a reason, its text without digits."""
    text = re.sub(r"\d+", "0", reason.detail or "")
    return (
        *(reason.code, reason.flavor, reason.resource, reason.limit, reason.node),
        *(reason.cause, reason.by, text),
        *sorted(one.why for one in reason.nodes if isinstance(one, ExcludedNodes)),
    )


OF_PLANS = (
    no_workload_is_admitted_on_quota_that_is_not_available,
    preemptors_of_a_plan_fit_after_their_victims_end,
    no_victim_is_unnecessary,
    priority_is_respected,
    no_protected_workload_is_preempted,
    a_victim_holds_what_is_requested,
    no_victim_is_in_another_tree,
    preemptor_and_victim_are_different_workloads,
    a_queue_loses_only_what_it_borrows,
    the_preemptor_is_below_its_guarantee,
    share_causes_occur_only_with_fair_sharing,
    a_row_says_more_than_other_numbers,
)


@law(When.PLAN)
def a_reason_is_recorded_once(context: PlanContext) -> None:
    """R2, L29: a row says a new reason, or a workload requests something else than before."""
    for decision in context.plan.decisions:
        if isinstance(decision, Keep):
            before = context.stored.get(decision.workload)
            reason = before.reason if before is not None else None
            changed = reason is None or reason.key != decision.reason.key
            assert decision.recorded or not changed, (decision, reason)
            if decision.recorded:
                assert changed or decision.workload in context.driver.reshaped, (decision, reason)


@law(When.COMMIT)
def live_pods_are_charged(context: PlanContext) -> None:
    """L30, L31. All events were delivered: an admission took the quota of no live pod."""
    driver = context.driver
    if driver.watch or not context.admissions:
        return
    decided = {subject(d) for d in context.plan.decisions if not isinstance(d, Configure)}
    for uid, job in (*driver.jobs.items(), *driver.left.items()):
        unknown = uid not in driver.jobs and uid not in context.stored  # gone, and not in the dump
        if not job.pods or job.unasked or job.edited or unknown:
            continue
        held = context.stored[uid].attempt if uid in context.stored else None
        assert held is not None, f"{uid} has live pods and no charge, {sorted(decided)} were decided"
        if job.started is not None:
            missing = Counter(job.started.usage()) - Counter(held.assignment.usage())
            assert not missing, f"{uid} has live pods on {job.started.usage()}, charged is {held}"


# --- nothing is left to decide


@law(When.DECIDED)
def workloads_wait_for_what_the_reference_says(driver: Driver) -> None:
    """The ledger is compared with the reference implementation."""
    if driver.engine.frozen:
        return
    stored = driver.ledger.store.workloads
    usage: UsageByQueue = {}
    for row in stored.values():
        if row.attempt is not None:
            queue = row.attempt.assignment.cluster_queue
            for (flavor, resource), amount in row.attempt.assignment.usage().items():
                key = (queue, flavor, resource)
                usage[key] = usage.get(key, 0) + amount
    waiting = {
        uid: left(job)
        for uid, job in driver.jobs.items()
        if job.suspended and not job.finished and (uid not in stored or stored[uid].attempt is None)
    }
    assert waiting.keys() <= stored.keys(), "a pending workload is not in the ledger"
    claiming = {
        uid
        for uid in waiting
        if (reason := stored[uid].reason) and reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS
    }
    blocked = {str(stored[uid].cluster_queue) for uid in claiming}
    kept_out = {uid: _kept_out(driver, workload, stored[uid].past) for uid, workload in waiting.items()}
    pairs = ((_as_of(workload, stored[uid].past), stored[uid].arrival) for uid, workload in waiting.items())
    for uid, code in driver.policy.waits_for(pairs, usage, blocked, kept_out).items():
        reason = stored[WorkloadId(uid)].reason
        assert reason is not None, f"{uid} is pending with {code}, but has no reason"
        if _excused(driver, uid, code, reason):
            continue
        if code is None and (claiming or driver.policy.has_strict_queue):
            # What is available is reserved. The row may be older, from when it was in use (R2).
            assert reason.code is Code.WAITING_FOR_QUOTA, f"{uid} fits, but has reason {reason}"
            continue
        assert code is not None, f"{uid} fits, but was not admitted"
        assert reason.code is code, f"{uid} is pending with {code}, but has reason {reason}"
    assert not [uid for uid in stored.keys() - driver.jobs.keys() if stored[uid].attempt is None]


def left(job: Job) -> Workload:
    """Return the requests without the pods that have ended for good."""
    pod_sets = tuple(replace(p, count=max(0, p.count - job.ended)) for p in job.workload.pod_sets)
    return replace(job.workload, pod_sets=pod_sets)


def _kept_out(driver: Driver, workload: Workload, past: PastAttempts) -> Code | None:
    if workload.max_run_seconds is not None and past.run_ms >= workload.max_run_seconds * 1000:
        return Code.DEACTIVATED
    if past.barred is None or (past.until is not None and past.until <= driver.now):
        return None
    return past.barred.code


def _as_of(workload: Workload, past: PastAttempts) -> Workload:
    """Return the workload with the end of its backoff as its creation time (O6)."""
    if past.until is None:
        return workload
    return replace(workload, created_at=max(workload.created_at, past.until))


def _excused(driver: Driver, uid: str, code: Code | None, reason: Reason) -> bool:
    """Return whether a workload with `code` by the reference may wait with `reason`.

    The reference has no nodes: a workload that fits by it may lack room with some flavor (M1). Its row may
    be older, and behind a workload that lacks room it is not evaluated again (W1, R2).
    """
    entries = engine_state.entries(driver.engine)
    queue = entries[WorkloadId(uid)].cluster_queue
    current = [entry.reason for entry in entries.values() if entry.reason and entry.cluster_queue == queue]
    if ROOM.isdisjoint(each.code for whole in (reason, *current) for each in (whole, *whole.others)):
        return code is Code.WAITING_FOR_QUOTA and reason.code is Code.MIN_RUN_TIME_PROTECTED
    assert driver.nodes.nodes, f"no node is known, and {reason}"
    return code in (None, Code.WAITING_FOR_QUOTA)


@law(When.DECIDED)
def what_runs_is_charged_as_requested(driver: Driver) -> None:
    if driver.engine.frozen:
        return
    for uid, job in driver.jobs.items():
        if job.suspended or job.finished or not driver.policy.queue_of(job.workload):
            continue
        attempt = driver.ledger.store.workloads[uid].attempt
        assert attempt is not None, f"{uid} runs, but is not charged"
        if attempt.debt:
            continue
        held = [(p.name, _without_pods(p.requests)) for p in attempt.assignment.pod_sets]
        asked = [(p.name, p.requests) for p in job.workload.pod_sets]
        assert held == asked, f"{uid} runs with a charge that differs from its request"
        more = attempt.assignment.pods - sum(p.count for p in left(job).pod_sets)
        assert more >= 0, f"{uid} holds less than its pods"
        settled = attempt.state is AttemptState.ADMITTED and uid not in driver.effects
        assert more == 0 or not settled, f"{uid} holds what {more} pods have left"


def _without_pods(requests: Amounts) -> Amounts:
    return tuple(item for item in requests if item[0] != PODS)


@law(When.DECIDED)
def a_preemptor_that_fits_has_started(driver: Driver) -> None:
    """C13: pods of victims are still ending. Forecasts are from engines that start like a new process (A12).

    A new process admits no preemptor with what it claims. It may find another assignment, and does not
    know of victims of others that the preemptor waits for, too (C8).
    """
    evictions = {row.id: row.preemptor for row in driver.loaded().workloads}
    for plan in driver.plans_of(driver.fresh()):
        for attempt in (each.attempt for each in plan.decisions if isinstance(each, Admit)):
            claim = engine_state.claim_of(driver.engine, attempt.assignment.cluster_queue)
            if claim is not None and claim.owner == attempt.workload:
                recorded = all(evictions[victim.workload] == claim.owner for victim in claim.victims)
                assert claim.assignment != attempt.assignment or not recorded, attempt
        if any(isinstance(each, Admit | Evict) for each in plan.decisions):
            return


# --- at rest


@law(When.REST)
def preemptors_are_admitted(driver: Driver) -> None:
    """C7: no workload that preempted still waits for what its victims left, and no other uses that quota."""
    stored = driver.ledger.store.workloads
    waiting = [
        row.ref
        for row in stored.values()
        if row.reason and row.reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS and row.attempt is None
    ]
    assert not waiting, f"{waiting} preempted, but were not admitted"
    unserved = [
        owner for owner in driver.preemptors if owner in stored and owner not in driver.admitted_since
    ]
    assert not unserved, f"{unserved} preempted without being admitted"


@law(When.REST)
def a_new_process_decides_nothing(driver: Driver) -> None:
    """W1 to W6: no inadmissible workload would fit or find victims in a full evaluation."""
    for plan in driver.plans_of(driver.fresh()):
        for decision in plan.recorded:
            assert isinstance(decision, Keep), decision
            assert decision.claim is None, decision


@law(When.REST)
def a_new_process_says_the_same(driver: Driver) -> None:
    """It may report another one of several limits: what is inadmissible is not evaluated for that alone."""
    other = driver.fresh()
    for plan in driver.plans_of(other):
        for decision in plan.recorded:
            assert isinstance(decision, Keep), decision
            before = driver.ledger.store.workloads[decision.workload].reason
            assert before is not None, decision
            assert {before.code, decision.reason.code} <= {Code.WAITING_FOR_QUOTA, *ROOM}, (before, decision)
    driver.check(other)
    assert other.unacknowledged() == driver.engine.unacknowledged()


@law(When.REST)
def no_two_preempt_each_other_repeatedly(driver: Driver) -> None:
    """P12, without fair sharing: who preempts a victim again was preempted by a third workload between."""
    if driver.shares:
        return
    evicted = driver.evicted[driver.evicted_before :]
    last: dict[tuple[WorkloadId, str], int] = {}
    for number, (victim, preemptor) in enumerate(evicted):
        meanwhile = evicted[last.get((victim, preemptor), number) : number]
        thirds = [by for gone, by in meanwhile if gone == preemptor and by != victim]
        assert thirds or not meanwhile, evicted
        last[victim, preemptor] = number


@law(When.REST)
def no_workload_is_preempted_twice_at_the_same_moment(driver: Driver) -> None:
    """P11, P12. Budget and cooldown apply in addition to the rules, also with fair sharing."""
    evicted = Counter(victim for victim, _ in driver.evicted[driver.evicted_before :])
    for victim, times in evicted.items():
        assert times <= (2 if victim in driver.preempted_before else 1), driver.evicted


@law(When.REST)
def the_ledger_says_what_runs(driver: Driver) -> None:
    """L30, L31. What is to stop has stopped, and what runs is charged, on the flavor on which it runs."""
    stored, used = driver.ledger.store.workloads, Counter[object]()
    for uid, row in stored.items():
        job = driver.jobs.get(uid)
        assert job is not None, f"{uid} is gone, and open in the ledger"
        assert row.phase is not Phase.EVICTING, f"{uid} is being evicted for ever: {row.reason}"
        assert (row.attempt is not None) is not job.suspended, (
            f"{uid}: {row.phase}, suspended {job.suspended}"
        )
    for uid, job in driver.jobs.items():
        assert not (job.workload.hold and (job.pods or not job.suspended)), f"{uid} is held and runs"
        if job.suspended:
            continue
        held = stored[uid].attempt
        assert held is not None
        assert held.state is AttemptState.ADMITTED
        charged = _gpus(held.assignment)
        if job.started is not None and not job.edited:
            assert charged == _gpus(job.started), f"{uid} runs on another flavor than is charged"
        assert sum(charged.values()) == dict(job.workload.pod_sets[0].requests)[GPU]
        if not held.debt:
            used.update(charged)
    (queue,) = driver.policy.queues.values()
    nominal = {
        (flavor.name, name): quota.nominal
        for group in queue.resource_groups
        for flavor in group.flavors
        for name, quota in flavor.resources
    }
    assert all(amount <= nominal[cell] for cell, amount in used.items()), used  # type: ignore[index]


def _gpus(assignment: Assignment) -> Usage:
    return {cell: amount for cell, amount in assignment.usage().items() if cell.resource == GPU}
