"""Account keys: what usage is booked on beside queues and users, such as a cost center or a project (B2).

They decide nothing. An admission is booked on the values of that time, by the labels of the workload and of
its namespace and by the groups of its user, as far as each key allows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queuectl.core.directory import Directory
from queuectl.core.feature import Feature
from queuectl.core.model.policy import AccountKey, AccountSource
from queuectl.core.model.workload import AccountValue, Workload

MAX_VALUE = 63
"""Characters of a value: those of a label of Kubernetes."""


class Accounts(Feature):
    def __init__(self, keys: tuple[AccountKey, ...], directory: Directory) -> None:
        self._keys = keys
        self._directory = directory
        self.active = bool(keys)

    def account(self, workload: Workload) -> tuple[AccountValue, ...]:
        by_source = {
            AccountSource.WORKLOAD: dict(workload.labels),
            AccountSource.NAMESPACE: self._directory.namespace_labels(workload.ref.namespace),
        }
        return tuple(_value(key, by_source, workload.groups) for key in self._keys)


def _value(
    key: AccountKey, by_source: Mapping[AccountSource, Mapping[str, str]], groups: Iterable[str]
) -> AccountValue:
    for source in key.sources:
        found = groups if source is AccountSource.GROUP else (by_source[source].get(key.label, ""),)
        for value in (one[:MAX_VALUE] for one in found):
            if value and (key.allowed is None or value in key.allowed):
                return AccountValue(key.name, value, source)
    return AccountValue(key.name, None, None)
