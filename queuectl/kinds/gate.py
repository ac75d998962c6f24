"""Whether the gate is in force: each of its policies and bindings is stored as this version makes it.

A policy without its binding enforces nothing, nor does one with a further condition, or with other
`validationActions` than Deny.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from queuectl.core.model.events import ContextGone, ContextObserved, Event
from queuectl.core.model.policy import Gate
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.json_fields import BadField, Json, mapping, timestamp
from queuectl.kinds.labels import KUEUE_QUEUE_LABEL, QueueLabels
from queuectl.kinds.manifests import manifests
from queuectl.kubernetes_yaml import load

GATE: Final = "queuectl-jobs"
"""The name of the whole gate in the ledger. It is that of one of its policies: once it was the only one."""
GATE_LABEL: Final = "queuectl.dev/gate"
"""On the policies of the gate and their bindings; the value says what the policy is about."""
POLICY: Final = "ValidatingAdmissionPolicy"
BINDING: Final = "ValidatingAdmissionPolicyBinding"
QUEUED: Final = "queued"
"""Name of the condition by which manifests/kueue-labels selects objects: a selector has no "or"."""
_BOTH: Final = f"['queuectl.dev/queue-name', '{KUEUE_QUEUE_LABEL}']"
_DEFAULTS: Final[Mapping[str, Any]] = {
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "scope": "*",
}
"""What the API server adds where a field is absent."""

Key = tuple[str, str]
"""Kind and name of a policy or binding."""


class GateWatch:
    """The policies and bindings that were observed, compared with those that this version makes."""

    def __init__(self, kinds: KindRegistry, honoured: QueueLabels) -> None:
        self._expected = expected(kinds, honoured)
        self._since: dict[Key, datetime] = {}
        """When those that are as they must be were created."""
        self._gate: Gate | None = None

    def problem(self, kind: str, obj: Json) -> str | None:
        """What is different about a policy or binding of the gate; None: it is as it must be."""
        spec = self._expected.get((kind, name_of(obj)))
        if spec is None:
            return None
        try:
            different = next(_differences(spec, mapping(obj, "spec", ""), "spec"), None)
            timestamp(mapping(obj, "metadata", "").get("creationTimestamp"), "metadata.creationTimestamp")
        except BadField as error:
            return str(error)
        return f"{different} is not as this version of queuectl makes it" if different else None

    def observe(self, kind: str, obj: Json) -> list[Event]:
        """The events of a policy or binding that exists: none if the gate is in force as before."""
        key = (kind, name_of(obj))
        if key in self._expected and self.problem(kind, obj) is None:
            created = mapping(obj, "metadata", "").get("creationTimestamp")
            self._since[key] = timestamp(created, "metadata.creationTimestamp")
        else:
            self._since.pop(key, None)
        return self._changed()

    def gone(self, kind: str, name: str) -> list[Event]:
        """The events of a policy or binding that does not exist any more."""
        self._since.pop((kind, name), None)
        return self._changed()

    def missing(self) -> list[Key]:
        """The policies and bindings that are not observed as they must be."""
        return sorted(self._expected.keys() - self._since.keys())

    def _changed(self) -> list[Event]:
        before, self._gate = self._gate, None
        if not self.missing():
            # What a later version adds does not make the gate younger.
            self._gate = Gate(GATE, min(self._since.values()))
        if self._gate == before:
            return []
        return [ContextGone(Gate, GATE) if self._gate is None else ContextObserved(self._gate)]


def expected(kinds: KindRegistry, honoured: QueueLabels) -> dict[Key, Json]:
    """The spec of each policy and binding of the gate; with Kueue's label, as manifests/kueue-labels."""
    found: dict[Key, Json] = {}
    for name, text in manifests(kinds, honoured).items():
        for obj, _ in load(text.encode()) if name.startswith("gate/") else ():
            role = (obj.get("metadata") or {}).get("labels", {}).get(GATE_LABEL)
            if role is not None:
                spec = obj["spec"]
                if KUEUE_QUEUE_LABEL in honoured.queue:
                    _select_both(obj["kind"], role, spec)
                found[obj["kind"], obj["metadata"]["name"]] = spec
    return found


def _select_both(kind: str, role: str, spec: dict[str, Any]) -> None:
    if kind == BINDING and role == "self":
        other = {"key": KUEUE_QUEUE_LABEL, "operator": "DoesNotExist"}
        spec["matchResources"]["objectSelector"]["matchExpressions"].append(other)
    elif kind == BINDING and role == "kind":
        del spec["matchResources"]["objectSelector"]
    elif role == "kind":
        queued = (
            "[object, oldObject].exists(o, o != null && has(o.metadata.labels) "
            f"&& {_BOTH}.exists(label, label in o.metadata.labels))"
        )
        spec["matchConditions"].insert(0, {"name": QUEUED, "expression": queued})
        spec["variables"][0]["expression"] = _BOTH


def _differences(wanted: object, stored: object, path: str) -> Iterator[str]:
    """The paths of what differs, but for what the API server adds, and for a further validationAction."""
    if wanted == stored:
        return
    if isinstance(wanted, Mapping) and isinstance(stored, Mapping):
        for key in {**wanted, **stored}:
            if stored.get(key) != _DEFAULTS.get(key, stored) or key in wanted:
                yield from _differences(wanted.get(key), stored.get(key), f"{path}.{key}")
    elif path == "spec.validationActions" and isinstance(stored, list):
        if "Deny" not in stored:
            yield path
    elif isinstance(wanted, list) and isinstance(stored, list) and len(wanted) == len(stored):
        for place, (one, other) in enumerate(zip(wanted, stored, strict=True)):
            yield from _differences(one, other, f"{path}[{place}]")
    else:
        yield path


def name_of(obj: Json) -> str:
    """The name of an object; empty if it has none."""
    metadata = obj.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""
