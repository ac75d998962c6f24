"""Trials on limits: what is tried leaves no trace, whatever ends it (C5)."""

from __future__ import annotations

import pytest

from queuectl.core.limits import Hold, Limits, Trial
from queuectl.core.model.workload import WorkloadId
from queuectl.core.quota.tree import QuotaTree
from tests.builders import queue

OWNER = WorkloadId("owner")


class Site:
    """Two ClusterQueues of 4 GPUs in one cohort; one GPU of the first is in use."""

    def __init__(self) -> None:
        self.tree = QuotaTree()
        for name in ("first", "second"):
            self.tree.set_queue(queue(name, 4, cohort="cohort"))
        self.limits = Limits(self.tree)
        self.used = self.hold("first", 1)
        self.tree.add(self.used.node, self.used.cells)
        self.before = self.state()

    def hold(self, name: str, gpus: int) -> Hold:
        return Hold(self.tree.queue(name), [(0, gpus)], OWNER)

    def state(self) -> tuple[object, ...]:
        usage = {str(node): tuple(node.usage) for node in self.tree.nodes()}
        return usage, list(self.limits.journal), set(self.limits.released)

    def change(self, trial: Trial) -> None:
        trial.release(self.used)
        trial.add(self.hold("second", 7))

    def fail_in_the_middle(self) -> None:
        with self.limits.trying() as outer:
            self.change(outer)
            with self.limits.trying() as inner:
                inner.remove(self.hold("second", 7))
                inner.keep()
                inner.add(self.hold("first", 2))
                raise ZeroDivisionError


def test_a_trial_is_rolled_back_at_its_end() -> None:
    site = Site()
    with site.limits.trying() as trial:
        assert site.limits.fits(site.hold("second", 7))
        site.change(trial)
        assert site.limits.released == {OWNER}
        assert site.limits.fits(site.hold("first", 1))
        assert not site.limits.fits(site.hold("first", 2))
    assert site.state() == site.before


def test_an_exception_in_the_middle_leaves_limits_as_they_were() -> None:
    site = Site()
    with pytest.raises(ZeroDivisionError):
        site.fail_in_the_middle()
    assert site.state() == site.before


def test_an_inner_trial_leaves_the_changes_of_the_outer_one() -> None:
    site = Site()
    with site.limits.trying() as outer:
        site.change(outer)
        between = site.state()
        with site.limits.trying() as inner:
            inner.remove(site.hold("second", 7))
            inner.release(site.used)
        assert site.state() == between
    assert site.state() == site.before


def test_what_is_kept_stays_until_the_outer_trial_ends() -> None:
    site = Site()
    with site.limits.trying() as outer:
        with site.limits.trying() as inner:
            site.change(inner)
            inner.keep()
            inner.add(site.hold("first", 1))
        assert site.limits.fits(site.hold("first", 1))
        assert site.limits.released == {OWNER}
        outer.roll_back()
        assert site.state() == site.before
