"""Which IdlePolicy is for a workload, and when it gives a notice, lowers and stops (I1 to I8)."""

from __future__ import annotations

from datetime import datetime, timedelta

from queuectl.core.directory import Directory
from queuectl.core.entries import Entry
from queuectl.core.model.device_use import DeviceUse, IdleNotice
from queuectl.core.model.idle_policies import IdlePolicy
from queuectl.core.subjects import targets_of


class IdlePolicies:
    """The IdlePolicies in force."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._policies: dict[str, IdlePolicy] = {}
        """By name, in this order."""

    def set(self, name: str, policy: IdlePolicy | None) -> bool:
        """Set or remove a policy. Return whether it has changed."""
        before = self._policies.get(name)
        others = {one: known for one, known in self._policies.items() if one != name}
        added = {} if policy is None else {name: policy}
        self._policies = dict(sorted((others | added).items()))
        return policy != before

    def of(self, entry: Entry) -> IdlePolicy | None:
        """Return the first by name whose target an admitted workload belongs to; None: there is none."""
        if not self._policies or entry.attempt is None:
            return None
        booked = entry.attribution or entry.workload
        named = booked.priority_class if booked is not None else None
        held = entry.attempt.assignment.cluster_queue
        targets = set(targets_of(self._directory, (entry.ref.namespace, entry.queue, named, held)))
        return next((one for one in self._policies.values() if one.target in targets), None)


def notice_due(policy: IdlePolicy, use: DeviceUse) -> datetime:
    """Return when a workload that stays idle has been idle for as long as its policy allows untold."""
    return _idle_for(use, policy.notify_after)


def hold_due(policy: IdlePolicy, use: DeviceUse) -> datetime | None:
    """Return when a workload that stays idle is held: not before its notice said; None: it is not."""
    notice = use.notice
    if policy.hold_after is None or notice is None or notice.hold_at is None:
        return None
    return max(notice.hold_at, _idle_for(use, policy.hold_after))


def lower_due(policy: IdlePolicy, use: DeviceUse) -> datetime | None:
    """Return when a workload that stays idle is lowered: not before its notice said; None: it is not."""
    notice = use.notice
    if policy.lower_after is None or notice is None or notice.lower_at is None:
        return None
    return max(notice.lower_at, _idle_for(use, policy.lower_after))


def _idle_for(use: DeviceUse, seconds: int) -> datetime:
    return use.since + timedelta(milliseconds=1000 * seconds - use.idle_ms)


def new_notice(policy: IdlePolicy, at: datetime) -> IdleNotice:
    """Return the notice that `policy` gives at a time."""

    def after(seconds: int | None) -> datetime | None:
        return None if seconds is None else at + timedelta(seconds=seconds - policy.notify_after)

    hold_at, lower_at = after(policy.hold_after), after(policy.lower_after)
    return IdleNotice(
        policy=policy.name,
        at=at,
        hold_at=hold_at,
        cancels=policy.cancels,
        lower_at=lower_at,
        dry_run=policy.dry_run,
    )


def is_of(notice: IdleNotice, policy: IdlePolicy) -> bool:
    """Return whether it says what `policy` does: otherwise the user is told again first."""
    dry_run = notice.dry_run == policy.dry_run
    said = (notice.policy, notice.hold_at is None, notice.cancels, notice.lower_at is None)
    does = (policy.name, policy.hold_after is None, policy.cancels, policy.lower_after is None)
    return dry_run and said == does
