"""Account keys: what usage is booked on beside queues and users, such as a cost center or a project (B2).

An admission is booked on the values of that time, by the labels of the workload and of its namespace, the
groups of its user, and what controls it, as far as each key allows them. Without a value of a key that is
required it waits.
"""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.directory import Directory
from queuectl.core.feature import Feature
from queuectl.core.model.policy import AccountKey, AccountSource
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import AccountValue, Workload

MAX_VALUE = 63
"""Characters of a value: those of a label of Kubernetes."""


class Accounts(Feature):
    def __init__(self, keys: tuple[AccountKey, ...], directory: Directory) -> None:
        self._keys = keys
        self._directory = directory
        self.active = bool(keys)

    def account(self, workload: Workload) -> tuple[AccountValue, ...]:
        return tuple(self._value(key, workload) for key in self._keys)

    def _value(self, key: AccountKey, workload: Workload) -> AccountValue:
        for source in key.sources:
            for value in (one[:MAX_VALUE] for one in self._values(key, source, workload)):
                if value and (key.allowed is None or value in key.allowed):
                    return AccountValue(key.name, value, source)
        return AccountValue(key.name, None, None)

    def _values(self, key: AccountKey, source: AccountSource, workload: Workload) -> Iterable[str]:
        match source:
            case AccountSource.WORKLOAD:
                return (value for label, value in workload.labels if label == key.label)
            case AccountSource.NAMESPACE:
                return (self._directory.namespaces.get(workload.ref.namespace, {}).get(key.label, ""),)
            case AccountSource.GROUP:
                return workload.groups
            case AccountSource.OWNER:
                return (workload.controller,)

    def problem(self, workload: Workload, pods: object, cluster_queue: str) -> Reason | None:
        """Return which account key is required and has no value."""
        for key, booked in zip(self._keys, self.account(workload), strict=True):
            if key.required and booked.value is None:
                detail = f"account key {key.name} is required: {_remedy(key, workload.ref.namespace)}"
                return Reason(code=Code.MISCONFIGURED, detail=detail)
        return None


def _remedy(key: AccountKey, namespace: str) -> str:
    """Return in words what gives `key` a value. The allowed ones may be names of other tenants."""
    places = {
        AccountSource.WORKLOAD: f"set label {key.label} of the workload",
        AccountSource.NAMESPACE: f"ask for label {key.label} of Namespace/{namespace}",
        AccountSource.GROUP: "submit it as a user in a group that is allowed",
        AccountSource.OWNER: "let an object such as a CronJob make it",
    }
    allowed = "" if key.allowed is None or not key.label else ", with a value that is allowed"
    return ", or ".join(places[source] for source in key.sources) + allowed
