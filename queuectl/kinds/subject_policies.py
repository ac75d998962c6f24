"""UsageLimits, Budgets and IdlePolicies, which are about the workloads of a target, to values of the core."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from zoneinfo import ZoneInfo

from queuectl.core.model.budgets import (
    HOUR,
    Budget,
    BudgetGrant,
    BudgetMode,
    BudgetPeriods,
    OnExhausted,
    Period,
    PeriodKind,
)
from queuectl.core.model.device_use import IdlePolicy
from queuectl.core.model.resources import CPU
from queuectl.core.model.usage_limits import (
    WORKLOADS,
    Dimension,
    LimitSubject,
    LimitTarget,
    SubjectKind,
    UsageLimit,
)
from queuectl.core.model.workload import ConfigKey
from queuectl.kinds.policy_amounts import BadPolicy, amount_of, listed_once
from queuectl.kinds.subject_policy_objects import (
    AFTER_NOTICE,
    LEAST_NOTICE,
    BudgetGrantSpec,
    BudgetObject,
    IdlePolicyObject,
    LimitSubjectSpec,
    LimitTargetSpec,
    UsageLimitObject,
)


def _subject(subject: LimitSubjectSpec) -> LimitSubject:
    for name, kinds in (("name", ("User", "Account")), ("key", ("Account", "EachAccount"))):
        if (subject.kind in kinds) != (getattr(subject, name) is not None):
            either = " and ".join(kinds)
            raise BadPolicy(f"spec.subject.{name}: is required for {either}, and not allowed for other kinds")
    return LimitSubject(SubjectKind(subject.kind), subject.name or "", subject.key or "")


def budget(key: ConfigKey, model: BudgetObject) -> Budget:
    spec, period = model.spec, model.spec.period
    dates, zone = None, period.time_zone
    for name in ("begins", "ends"):
        if (period.kind == "Dates") != (getattr(period, name) is not None):
            raise BadPolicy(f"spec.period.{name}: is required for Dates, and not allowed for other kinds")
    if period.begins is not None and period.ends is not None:
        if zone is not None:
            raise BadPolicy("spec.period.timeZone: is not allowed for Dates, which have their own")
        dates = Period(period.begins.astimezone(UTC), period.ends.astimezone(UTC))
        if dates.begins >= dates.ends:
            raise BadPolicy("spec.period.ends: must be later than begins")
    if (spec.on_exhausted == "LowerClass") != (spec.lower_class is not None):
        raise BadPolicy(
            "spec.lowerClass: is required for onExhausted LowerClass, and not allowed with others"
        )
    try:
        ZoneInfo(zone or "UTC")
    except (KeyError, ValueError, OSError):
        raise BadPolicy(f"spec.period.timeZone: {zone} is not the name of a time zone") from None
    if zone in ("localtime", "posixrules"):  # links of a host, of which each process may have another
        raise BadPolicy(f"spec.period.timeZone: {zone} is a setting of a host, not the name of a time zone")
    return Budget(
        name=key.name,
        target=_target(spec.target),
        subject=_subject(spec.subject),
        resource=spec.resource,
        amount=amount_of(spec.hours, spec.resource, "spec.hours") * HOUR,
        periods=BudgetPeriods(PeriodKind(period.kind), zone or "UTC", dates),
        mode=BudgetMode(spec.mode),
        refund_preempted=spec.refunds.preempted,
        refund_node_failures=spec.refunds.node_failures,
        on_exhausted=OnExhausted(spec.on_exhausted),
        lower_class=spec.lower_class,
        grants=tuple(
            _grant(one, spec.resource, f"spec.grants[{index}]") for index, one in enumerate(spec.grants)
        ),
    )


def _grant(model: BudgetGrantSpec, resource: str, path: str) -> BudgetGrant:
    thousandths = amount_of(model.hours, CPU, f"{path}.hours")
    return BudgetGrant(
        amount=thousandths * HOUR // (1 if resource == CPU else 1000),
        at=model.at.astimezone(UTC),
        subject=model.subject,
        workload=model.workload,
        reason=model.reason,
    )


def usage_limit(key: ConfigKey, model: UsageLimitObject) -> UsageLimit:
    spec = model.spec
    most = [] if spec.running is None else [(Dimension(None, WORKLOADS), spec.running)]
    most += _most(None, spec.resources, "spec.resources")
    seen: dict[tuple[str, str], str] = {}
    for index, flavor in enumerate(spec.flavors):
        path = f"spec.flavors[{index}]"
        listed_once(seen, ("flavor", flavor.name), path)
        most += _most(flavor.name, flavor.resources, f"{path}.resources")
    return UsageLimit(
        name=key.name,
        target=_target(spec.target),
        subject=_subject(spec.subject),
        most=tuple(most),
        pending=spec.pending,
        min_request=tuple(
            (one.resource, amount) for one, amount in _most(None, spec.min_request, "spec.minRequest")
        ),
    )


def _target(target: LimitTargetSpec) -> LimitTarget:
    if (target.kind == "LocalQueue") != (target.namespace is not None):
        raise BadPolicy(
            "spec.target.namespace: is required for a LocalQueue, and not allowed for other kinds"
        )
    return LimitTarget(target.kind, target.name, target.namespace or "")


def idle_policy(key: ConfigKey, model: IdlePolicyObject) -> IdlePolicy:
    spec = model.spec
    hold, cancel, lower = spec.hold_after_seconds, spec.cancel_after_seconds, spec.lower_after_seconds
    for name, after in zip(AFTER_NOTICE, (hold, cancel, lower), strict=True):
        if after is not None and after < spec.notify_after_seconds + LEAST_NOTICE:
            raise BadPolicy(
                f"spec.{name}: {after}, must be at least {LEAST_NOTICE} more than notifyAfterSeconds, "
                f"which is {spec.notify_after_seconds}"
            )
    if hold is not None and cancel is not None:
        raise BadPolicy("spec.cancelAfterSeconds: is not allowed with holdAfterSeconds")
    if (lower is None) != (spec.lower_class is None):
        raise BadPolicy("spec.lowerClass: is required with lowerAfterSeconds, and not allowed without")
    return IdlePolicy(
        name=key.name,
        target=_target(spec.target),
        notify_after=spec.notify_after_seconds,
        hold_after=cancel if hold is None else hold,
        cancels=cancel is not None,
        lower_after=lower,
        lower_class=spec.lower_class,
        dry_run=spec.dry_run,
    )


def _most(flavor: str | None, found: Mapping[str, int | str], path: str) -> list[tuple[Dimension, int]]:
    return [
        (Dimension(flavor, resource), amount_of(value, resource, f"{path}.{resource}"))
        for resource, value in sorted(found.items())
    ]
