"""Law: a plan that the ledger fails to store divides into parts that may be stored by themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Decision, Keep, Release, smaller, subject
from tests.builders import T0
from tests.integration.ledger import plans

DECISIONS = (
    *(plans.enqueue(name) for name in "abcd"),
    *(plans.admit(name, now=T0) for name in "abef"),
    *(plans.admit(name, now=T0, debt=True) for name in "gh"),
    *(plans.evict(name) for name in "ij"),
    *(plans.keep(name) for name in "klm"),
    *(plans.release(name) for name in "no"),
    plans.configure("team-a", 1),
)


@given(st.lists(st.sampled_from(DECISIONS), unique=True, min_size=1))
def test_a_plan_divides_down_to_single_subjects_and_never_stores_what_counts_on_the_rest(
    decisions: list[Decision],
) -> None:
    whole = plans.plan(*decisions, now=T0)
    alone: set[object] = set()
    todo = [whole]
    while todo:
        part = todo.pop()
        parts = smaller(part)
        names = {getattr(one, "key", None) or subject(one) for one in part.decisions}
        if not parts:
            assert len(names) == 1
            alone |= names
            continue
        kept = [one for each in parts for one in each.decisions]
        assert all(0 < len(one.decisions) < len(part.decisions) for one in parts)
        assert len(kept) == len(set(map(id, kept)))
        # What a cycle decides counts on the quota that is released.
        assert not ({Release, Keep} <= set(map(type, kept)))
        todo += parts
    assert alone
