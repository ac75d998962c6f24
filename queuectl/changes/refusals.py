"""Refusals of the API server in words that say what to do next."""

from __future__ import annotations

import re
from typing import Final

from queuectl.changes.edit import EditTarget, NoSuchObject
from queuectl.changes.fit import NotPermitted
from queuectl.kinds.pod_sizes import CannotFit
from queuectl.kube.errors import ApiError

_DENIED: Final = "denied request"
"""In the message of a refusal by an admission policy; one for a missing right does not have it."""
_DUMPED: Final = re.compile(r"Invalid value: [\w.&]*\{.*", re.DOTALL)
"""In a refusal: the whole field as it was sent, such as a pod template."""
_SINCE: Final = (
    "What the pods of a suspended Job request can be changed from Kubernetes 1.36 on (feature gate"
    " MutablePodResourcesForSuspendedJobs), once its status says that it is suspended; the number of its pods"
    " alone can be changed on every version"
)
_VERB: Final = re.compile(r"cannot (\w+) ")


def forbidden(of: EditTarget, problem: ApiError) -> str:
    """For a missing right."""
    found = _VERB.search(str(problem))
    verb = found[1] if found else "get"
    where = f"in namespace {of.namespace}" if of.namespace else "in the cluster"
    if of.resource.endswith(".queuectl.dev"):
        grants = "ClusterRole queuectl-admin has it; a cluster admin binds it"
    elif of.resource.endswith(".batch"):
        grants = "ClusterRole edit has it; an admin of the namespace binds it"
    else:
        grants = f"a Role with {verb} on {of.resource} has it; its operator or a cluster admin adds one"
    return f"you may not {verb} {of.resource} {where} ({grants})\n{problem}"


def denied(of: EditTarget, problem: ApiError) -> str | None:
    """For a refusal by an admission policy; None: it is another one."""
    if _DENIED not in str(problem):
        return None
    return f"an admission policy refuses the change of {of}: {problem}"


def missing(of: EditTarget, problem: NoSuchObject, near: str = "") -> str:
    """`near`: a hint on names that are similar."""
    where = f"namespace {of.namespace}" if problem.kind == "LocalQueue" else "the cluster"
    there = ", ".join(sorted(problem.known)) or "none"
    return f"{where} has no {problem.kind} {problem.name}{near}\nThere are: {there}. Nothing is written"


def replaced(of: EditTarget) -> str:
    """For a conflict: the UID is another one, or the object changes all the time."""
    return f"{of} was changed or replaced meanwhile: nothing is written; try again"


def not_fitted(of: EditTarget, problem: CannotFit) -> str:
    return f"{of}: {problem}; nothing is written"


def not_permitted(of: EditTarget, problem: NotPermitted) -> str:
    """For another size that the API server refuses."""
    hint = f"\n{_SINCE}" if of.kind == "Job" else ""
    return f"the API server does not permit it: {_DUMPED.sub('Invalid value', str(problem))}{hint}"
