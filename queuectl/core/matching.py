"""Do labels, taints and affinities match? The rules are Kubernetes' own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queuectl.core.model import LabelSelector, PodSet, Requirement, ResourceFlavor, Taint, Toleration


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """An empty selector selects everything."""
    return all(labels.get(key) == value for key, value in selector.labels) and all(
        meets(requirement, labels) for requirement in selector.expressions
    )


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """One match expression; an operator that Kubernetes does not know matches nothing."""
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
    """Gt and Lt read both sides as integers of a length that node labels can have."""
    if value is None or len(requirement.values) != 1:
        return False
    bound = requirement.values[0]
    try:
        left, right = int(value[:64]), int(bound[:64])
    except ValueError:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Only NoSchedule and NoExecute keep pods away; PreferNoSchedule is always tolerated."""
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return True
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == taint.value


def mismatch(flavor: ResourceFlavor, pod_set: PodSet) -> str | None:
    """Why pods of this podset can't run on nodes of this flavor; None if they can (docs/scheduling.md, F2).

    Node selector and affinity are held against the labels that the flavor defines, and no others: what the
    flavor says nothing about is the scheduler's business.
    """
    for taint in flavor.node_taints:
        if not tolerated(taint, (*pod_set.tolerations, *flavor.tolerations)):
            return f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
    labels = dict(flavor.node_labels)
    for key, value in pod_set.node_selector:
        if key in labels and labels[key] != value:
            return f"node selector {key}={value} does not match its label {key}={labels[key]}"
    if pod_set.affinity and not any(_term_matches(term, labels) for term in pod_set.affinity):
        return "node affinity does not match its labels"
    return None


def _term_matches(term: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """A term left empty by the restriction to the flavor's keys matches."""
    return all(meets(requirement, labels) for requirement in term if requirement.key in labels)
