"""The heaps of a pending queue, compared with a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.entries import Entry
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.core.preemption.claims import PreemptionClaims
from queuectl.core.queues.pending import PendingQueue

CELL = FlavorResource("a100", "gpu")
LACKS = Reason(code=Code.WAITING_FOR_QUOTA, flavor=CELL.flavor, resource=CELL.resource, requested=1)
STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 1)), max_size=300)


def entries() -> list[Entry]:
    found = []
    for number in range(10):
        uid = f"uid-{number}"
        found.append(Entry(WorkloadId(uid), ObjectRef("ns", "Job", uid, uid)))
    return found


@given(STEPS, st.booleans())
def test_the_head_is_the_first_pending_workload_after_any_removals_and_returns(
    steps: list[tuple[int, int]], strict: bool
) -> None:
    pending, all_entries = PendingQueue("cq", PreemptionClaims(), strict=strict), entries()
    for number, priority in steps:
        entry = all_entries[number]
        if entry.group is not None:
            pending.remove(entry)
        else:
            pending.add(entry, (), (priority, 0, number, entry.id))
        standing = [e for e in all_entries if e.group is not None]
        groups = pending.groups.values()
        assert sorted(e.id for e in pending.entries()) == sorted(e.id for e in standing)
        for group in groups:
            mine = [e for e in standing if e.group is group]
            assert group.head() is min(mine, key=lambda e: e.order)
            assert len(group.heap) <= 2 * len(mine) + 2 * len(all_entries) + 17


def test_inadmissible_workloads_are_indexed_by_what_they_lack_until_requeued() -> None:
    pending, (first, second, *_) = PendingQueue("cq", PreemptionClaims(), strict=False), entries()
    pending.add(first, (), (0, 0, 1, first.id))
    pending.add(second, (), (-1, 0, 2, second.id))
    pending.mark_inadmissible(first, LACKS)
    pending.mark_inadmissible(second, Reason(code=Code.EXCEEDS_MAX_QUOTA, flavor="a100", resource="gpu"))
    assert not pending.due
    assert pending.by_missing == {CELL: {first.group: 1}}
    assert first.group is not None
    pending.activate(first.group)
    assert list(pending.active) == [first.group]
    assert pending.by_missing == {}


def test_an_emptied_pending_queue_keeps_no_references() -> None:
    pending, (first, *_) = PendingQueue("cq", PreemptionClaims(), strict=False), entries()
    pending.add(first, (), (0, 0, 1, first.id))
    pending.mark_inadmissible(first, LACKS)
    pending.remove(first)
    assert (pending.groups, pending.active, pending.unreported, pending.by_missing) == ({}, {}, {}, {})


@given(st.permutations(range(60)), st.sets(st.integers(0, 59), min_size=2, max_size=12))
def test_workloads_that_remain_after_most_left_keep_their_order(places: list[int], staying: set[int]) -> None:
    pending = PendingQueue("cq", PreemptionClaims(), strict=False)
    made = [Entry(WorkloadId(f"uid-{n}"), ObjectRef("ns", "Job", f"{n}", f"uid-{n}")) for n in range(60)]
    for entry, place in zip(made, places, strict=True):
        pending.add(entry, (), (0, place, 0, entry.id))
    for number, entry in enumerate(made):
        if number not in staying:
            pending.remove(entry)
    (group,) = pending.groups.values()
    last = Entry(WorkloadId("uid-last"), ObjectRef("ns", "Job", "last", "uid-last"))
    pending.add(last, (), (0, 60, 0, last.id))
    assert len(group.heap) == len(staying) + 1
    for place in sorted(places[number] for number in staying):
        head = group.head()
        assert head is not None
        assert head.order[1] == place
        pending.remove(head)
    assert group.head() is last
