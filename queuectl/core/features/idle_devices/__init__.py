"""What admitted workloads do with their devices: verdicts are recorded when they change (B16 to B18), and
IdlePolicies tell users of idle devices, lower priorities, and hold or cancel workloads (I1 to I8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

from queuectl.core.decisions import Amend, Decision, Evict
from queuectl.core.directory import AffectedObjects, Directory
from queuectl.core.entries import Entry
from queuectl.core.feature import Alarm, Feature, Kernel
from queuectl.core.model.device_use import (
    WASTEFUL,
    DeviceUse,
    IdleNotice,
    IdlePolicy,
    UseFinding,
    UseVerdict,
    use_after,
)
from queuectl.core.model.events import DeviceUseFound, Event, PolicyGone, PolicyObserved
from queuectl.core.model.priorities import LoweredPriority, lowered_by, with_lowered
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Attempt, LedgerSnapshot, PastAttempts, Phase, WorkloadId
from queuectl.core.queues.backoff import TO_REQUEUE
from queuectl.core.subjects import targets_of

KIND: Final = "IdlePolicy"
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
GRACE: Final = timedelta(hours=1)
"""How long a verdict of the ledger is kept after a start without a check."""


class IdleDevices(Feature):
    """Is active from the first finding on."""

    events: ClassVar = frozenset({DeviceUseFound, PolicyObserved, PolicyGone})
    decisions_while_active: ClassVar = frozenset({Amend})
    policies: ClassVar = IdlePolicy

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._policies = IdlePolicies(kernel.directory)
        self._found: dict[WorkloadId, DeviceUseFound] = {}
        """The last finding about each open attempt."""
        self._to_refresh: dict[WorkloadId, None] = {}
        self._told: dict[WorkloadId, IdleNotice] = {}
        """Notices of open attempts, dry runs left out."""
        self._to_tell: dict[WorkloadId, Entry] = {}

    # --- what happens

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        """Findings are not in the ledger: without another one, what it says holds for `GRACE`. Users are told
        again of notices: whether they were is not known."""
        at = self._kernel.clock + GRACE
        for entry in entries.values():
            use = _use_of(entry)
            if use is not None:
                self.active = True
                unknown = _unknown(use.finding.devices)
                known = self._found.get(entry.id)
                if known is None or known.until == _LAST:  # else this process has found it
                    self._found[entry.id] = DeviceUseFound(entry.id, use.attempt, unknown, at, _LAST)
                    self._to_refresh[entry.id] = None
                self._note(entry)

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        match event:
            case DeviceUseFound(workload, attempt):
                entry = self._kernel.entries.get(workload)
                if entry is not None and entry.attempt is not None and entry.attempt.number == attempt:
                    self.active = True
                    self._found[workload] = event
                    self._to_refresh[workload] = None
            case PolicyObserved(value=IdlePolicy() as policy):
                self._set(policy.name, policy)
            case PolicyGone(key) if key.kind == KIND:
                self._set(key.name, None)
            case _:
                pass

    def _set(self, name: str, policy: IdlePolicy | None) -> None:
        if self._policies.set(name, policy):
            self._to_refresh |= dict.fromkeys(self._found)

    def settle(self) -> None:
        workloads, self._to_refresh = self._to_refresh, {}
        for workload in workloads:
            if (entry := self._kernel.entries.get(workload)) is not None:
                self._kernel.refresh(entry)

    def released(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        for known in (self._found, self._told, self._to_tell):
            known.pop(entry.id, None)

    def decided(self, decision: Decision, entry: Entry) -> None:
        self._note(entry)

    def _note(self, entry: Entry) -> None:
        """Its user is to be told of a notice that is new."""
        use = _use_of(entry)
        notice = use.notice if use is not None else None
        if notice is None or notice.dry_run:
            self._told.pop(entry.id, None)
            self._to_tell.pop(entry.id, None)
        elif self._told.get(entry.id) != notice:
            self._told[entry.id] = notice
            self._to_tell[entry.id] = entry

    # --- what is recorded

    def noted(self, past: PastAttempts, entry: Entry, now: datetime) -> PastAttempts:
        """Return `past` with the verdict in force about its open attempt, and the notice that is due."""
        use = self._judged(entry, now)
        if use is None:
            return past
        use = self._with_notice(use, entry, now)
        lowered = with_lowered(past.lowered, KIND, self._lowering(use, entry, now))
        if (use, lowered) == (past.use, past.lowered):
            return past
        return replace(past, use=use, lowered=lowered)

    def _lowering(self, use: DeviceUse, entry: Entry, now: datetime) -> LoweredPriority | None:
        """Return what its policy lowers it to, from its time until it works again (I7); None: to nothing."""
        policy, notice, known = self._policies.of(entry), use.notice, _use_of(entry)
        if policy is None or policy.dry_run or notice is None or not is_of(notice, policy):
            return None
        if known is None or known.notice != notice:
            return None  # it is only given now, and its times count from the decision to give it
        due, named = lower_due(policy, use), policy.lower_class
        priority = self._kernel.directory.priority_of_class(named) if named is not None else None
        if due is None or named is None or priority is None:
            return None
        before, name = lowered_by(entry.past.lowered, KIND), f"{KIND}/{policy.name}"
        is_lowered = before is not None and (before.policy, before.attempt) == (name, use.attempt)
        if due > now or not (is_lowered or self._confirmed(entry, use, now)):
            return None
        return LoweredPriority(name, named, priority, use.attempt)

    def _judged(self, entry: Entry, now: datetime) -> DeviceUse | None:
        attempt, found, use = entry.attempt, self._found.get(entry.id), _use_of(entry)
        if attempt is None or found is None or found.attempt != attempt.number or found.at > now:
            return use
        finding, at = found.finding, found.at
        exempt = _exempt_until(entry)
        if now < exempt:
            finding = UseFinding(UseVerdict.EXEMPT, finding.devices)
        elif found.until <= now:
            finding, at = _unknown(finding.devices), found.until
        if at < exempt <= now:
            at = exempt
        if use is not None and (use.since > at or use.finding.says_as(finding)):
            return use
        return use_after(use, attempt.number, finding, at)

    def _with_notice(self, use: DeviceUse, entry: Entry, now: datetime) -> DeviceUse:
        policy, notice = self._policies.of(entry), use.notice
        if policy is None or (notice is not None and not is_of(notice, policy)):
            notice = None
        if policy is not None and self._confirmed(entry, use, now):
            if notice is None:
                due = notice_due(policy, use)
                notice = new_notice(policy, due) if due <= now else None
            elif notice.dry_run and notice.held_at is None:
                held_at = hold_due(policy, use)
                notice = replace(notice, held_at=held_at) if held_at and held_at <= now else notice
        return use if notice == use.notice else replace(use, notice=notice)

    def _confirmed(self, entry: Entry, use: DeviceUse, now: datetime) -> bool:
        """Return whether `use` says that it is idle, and the last check says so too and still counts.

        `use` may be older than its exemption, which was not read while no process ran.
        """
        if entry.workload is None or now < _exempt_until(entry):
            return False
        found = self._found.get(entry.id)
        if found is None or found.attempt != use.attempt or not found.at <= now < found.until:
            return False
        return use.finding.verdict in WASTEFUL and found.finding.verdict in WASTEFUL

    def accounted(self, past: PastAttempts, decision: Decision, entry: Entry, now: datetime) -> PastAttempts:
        if isinstance(decision, Evict):
            past = replace(past, lowered=with_lowered(past.lowered, KIND, None))
        match decision:
            case Evict(reason=reason) if reason.code in (Code.IDLE_DEVICES, Code.IDLE_CANCELLED):
                # What is cancelled is over, unless the record of its stop is lost.
                detail = f"{reason.detail}; {TO_REQUEUE}"
                barred = Reason(code=Code.DEACTIVATED, node=reason.node, detail=detail)
                return replace(past, use=None, barred=barred, until=None)
            case Evict():
                return replace(past, use=None)
            case Amend():
                return _timed(past, entry.past, now)
            case _:
                return past

    # --- what is decided

    def step(self, entry: Entry, now: datetime) -> Evict | None:
        """Evict it once its policy stops it, and its last check confirms that it is idle."""
        attempt, use, policy = entry.attempt, _use_of(entry), self._policies.of(entry)
        if attempt is None or use is None or policy is None or policy.dry_run:
            return None
        notice = use.notice
        if notice is None or not is_of(notice, policy) or not self._confirmed(entry, use, now):
            return None
        due = hold_due(policy, use)
        if due is None or due > now:
            return None
        detail = f"{_what(use)}, notice was given at {_text(notice.at)}"
        code = Code.IDLE_CANCELLED if policy.cancels else Code.IDLE_DEVICES
        reason = Reason(code=code, node=f"{KIND}/{policy.name}", detail=detail)
        return Evict(entry.id, entry.ref, attempt.number, reason)

    def next_time(self, entry: Entry, now: datetime) -> datetime | None:
        """Return when its finding begins or ends to say something, or its policy does something."""
        found, use, policy = self._found.get(entry.id), self._judged(entry, now), self._policies.of(entry)
        if found is None or entry.phase is not Phase.ADMITTED:
            return None
        times = [found.at, found.until, _exempt_until(entry)]
        if policy is not None and use is not None and use.finding.verdict in WASTEFUL:
            times += [
                notice_due(policy, use),
                hold_due(policy, use) or now,
                lower_due(policy, use) or now,
            ]
        return min((when for when in times if when > now), default=None)

    def take_alarms(self) -> Iterator[Alarm]:
        """Yield an alarm for each notice since the last call."""
        entries, self._to_tell = self._to_tell, {}
        for entry in entries.values():
            use = _use_of(entry)
            if use is not None and use.notice is not None:
                key, message = f"{use.attempt}/{_text(use.notice.at)}", _message(use, use.notice)
                if entry.workload is not None and entry.workload.problem is not None:
                    message += f"; {entry.workload.problem.message}"  # such as an exemption that is none
                yield Alarm(entry.id, entry.ref, use.attempt, Code.IDLE_DEVICES.value, message, key)


def _message(use: DeviceUse, notice: IdleNotice) -> str:
    steps = []
    if notice.lower_at is not None:
        steps.append(f"lowers its priority at {_text(notice.lower_at)}")
    if notice.hold_at is not None:
        steps.append(f"{'cancels' if notice.cancels else 'stops and holds'} it at {_text(notice.hold_at)}")
    does = (
        f"{' and '.join(steps)} unless they work before" if steps else "asks to end what does not need them"
    )
    told = f"leaves devices idle: {_what(use)}; {KIND}/{notice.policy} {does}"
    return f"{told}, and preemption chooses it first"


def _what(use: DeviceUse) -> str:
    finding, since = use.finding, _text(use.idle_since or use.since)
    many = f"{finding.idle_devices} of {finding.devices} are {finding.verdict} since {since}"
    return f"{many}, coverage {100 * finding.coverage:.0f} %"


def _text(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _timed(past: PastAttempts, before: PastAttempts, now: datetime) -> PastAttempts:
    """Return `past` with the time of the plan in a notice that is new: its grace begins then."""
    use, known = past.use, before.use.notice if before.use is not None else None
    if use is None or use.notice is None:
        return past
    if known is not None and replace(known, held_at=None) == replace(use.notice, held_at=None):
        return past
    late, notice = now - use.notice.at, use.notice
    hold_at = None if notice.hold_at is None else notice.hold_at + late
    lower_at = None if notice.lower_at is None else notice.lower_at + late
    told = replace(notice, at=now, hold_at=hold_at, lower_at=lower_at)
    return replace(past, use=replace(use, notice=told))


def _use_of(entry: Entry) -> DeviceUse | None:
    """Return the verdict in force about its open attempt."""
    use, attempt = entry.past.use, entry.attempt
    return use if use is not None and attempt is not None and attempt.number == use.attempt else None


def _exempt_until(entry: Entry) -> datetime:
    """The end of its exemption; in the past: it has none."""
    return (entry.workload and entry.workload.idle_exempt) or _FIRST


def _unknown(devices: int) -> UseFinding:
    return UseFinding(UseVerdict.UNKNOWN, devices)


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
