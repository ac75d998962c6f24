"""Labels against selectors, and taints against tolerations, as in Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from queuectl.core.model.policy import LabelSelector, Requirement, Taint, Toleration


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether `selector` matches `labels`. An empty selector matches everything."""
    return all(labels.get(key) == value for key, value in selector.labels) and all(
        meets(requirement, labels) for requirement in selector.expressions
    )


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether one match expression matches `labels`. An unknown operator matches nothing."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    """Compare for Gt and Lt. Both sides are integers of at most 64 characters, as in node labels."""
    if value is None or len(requirement.values) != 1:
        return False
    bound = requirement.values[0]
    try:
        left, right = int(value[:64]), int(bound[:64])
    except ValueError:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether `taint` is tolerated. An effect other than NoSchedule and NoExecute always is."""
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return True
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> list[Taint]:
    """Return the taints that are not tolerated."""
    return [taint for taint in taints if not tolerated(taint, tolerations)]


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == taint.value
