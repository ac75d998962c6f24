"""Which context objects the ledger keeps: as policy, so that an engine can be made for any past time.

Those of a namespace are kept from its first LocalQueue on: without one nothing of it is queued.
"""

from __future__ import annotations

from collections.abc import Collection

from queuectl.core.model.events import ContextGone, ContextObserved
from queuectl.core.model.policy import Context
from queuectl.core.model.workload import ConfigKey

NAMESPACE = "Namespace"
"""Kind of the ledger key of a Namespace."""


class ContextRecords:
    """The context objects that are to be kept, by namespace."""

    def __init__(self) -> None:
        self._keys: dict[tuple[type[Context], str], ConfigKey] = {}
        self._by_namespace: dict[str, dict[ConfigKey, None]] = {}

    def observe(self, event: ContextObserved) -> ConfigKey | None:
        """Return its key in the ledger; None: it is not kept."""
        key = event.key
        if key is not None:
            self._keys[type(event.value), event.value.name] = key
            self._by_namespace.setdefault(namespace_of(key), {})[key] = None
        return key

    def forget(self, event: ContextGone) -> ConfigKey | None:
        """Return its key in the ledger; None: it was not kept."""
        key = self._keys.pop((event.kind, event.name), None)
        if key is not None:
            known = self._by_namespace[namespace_of(key)]
            del known[key]
            if not known:
                del self._by_namespace[namespace_of(key)]
        return key

    def of(self, namespace: str) -> Collection[ConfigKey]:
        """Return the keys of a Namespace and of the objects in it."""
        return self._by_namespace.get(namespace, {}).keys()


def namespace_of(key: ConfigKey) -> str:
    """Return the namespace to whose workloads the object matters; empty: to those of all namespaces."""
    return key.name if key.kind == NAMESPACE else key.namespace
