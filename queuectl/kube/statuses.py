"""The status of each queue, as this process wrote it last and as it was seen since."""

from __future__ import annotations

from queuectl.kinds.json_fields import Json
from queuectl.kinds.policy import POLICY_KINDS
from queuectl.kinds.policy_objects import GROUP, VERSION
from queuectl.kube.session import Object, api_path


def status_path(kind: str, namespace: str, name: str) -> str:
    """`kind`: ClusterQueue or LocalQueue; `namespace` of a ClusterQueue: empty."""
    return api_path(GROUP, VERSION, POLICY_KINDS[kind].plural, namespace or None, name, "status")


class QueueStatuses:
    """By the path of the status.

    A write that got no answer may reach the API server after a later one, and a queue may be deleted and made
    again: what was written is not what stands there then.
    """

    def __init__(self) -> None:
        self._written: dict[str, Object] = {}
        self._stored: dict[str, object] = {}
        """As the API server answered: it drops fields that it does not know."""

    def written(self, path: str) -> Object | None:
        return self._written.get(path)

    def wrote(self, path: str, status: Object, stored: object) -> None:
        self._written[path], self._stored[path] = status, stored

    def forget(self, path: str) -> None:
        self._written.pop(path, None)
        self._stored.pop(path, None)

    def lost(self, kind: str, obj: Json) -> bool:
        """Is the status of this object another one than was written last, or none?

        An event of an earlier write of this process counts too: then the status is written once more.
        """
        metadata = obj["metadata"]
        path = status_path(kind, metadata.get("namespace") or "", metadata["name"])
        if path not in self._stored or obj.get("status") == self._stored[path]:
            return False
        if not obj.get("status"):
            self._written.pop(path, None)  # of another object: its times are not those of this one
        return True
