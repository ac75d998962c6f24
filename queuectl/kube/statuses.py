"""The status of each queue, as this process wrote it last and as it was seen since."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from queuectl.kinds.json_fields import Json
from queuectl.kinds.policy import POLICY_KINDS
from queuectl.kinds.policy_objects import GROUP, VERSION
from queuectl.kube.session import Object, api_path

_NONE: Final = object()
"""Unlike each status."""


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
        self._lost: set[str] = set()
        self._sent: dict[str, Object] = {}
        """What is being written."""

    def written(self, path: str) -> Object | None:
        return self._written.get(path)

    def is_lost(self, path: str) -> bool:
        """Was another status seen since the last write was sent, or did that fail?"""
        return path in self._lost

    @contextmanager
    def writing(self, path: str, status: Object) -> Iterator[None]:
        """What is seen lost while it is written stays lost: the two may have arrived in either order.

        A write that fails may stand there, or arrive yet: it counts as lost.
        """
        self._lost.discard(path)
        self._stored.setdefault(path, None)
        self._sent[path] = {key: value for key, value in status.items() if value is not None}
        try:
            yield
        except BaseException:
            self._lost.add(path)
            raise
        finally:
            del self._sent[path]

    def wrote(self, path: str, status: Object, stored: object) -> None:
        self._written[path], self._stored[path] = status, stored

    def found_none(self, path: str) -> None:
        """There is no such queue. One that is seen later is another one, without a status, whether or not the
        end of the first was seen."""
        self._written.pop(path, None)
        self._stored[path] = _NONE
        self._lost.discard(path)

    def lost(self, kind: str, obj: Json) -> bool:
        """Is the status of this object another one than was written last or is being written, or none?

        An event of an earlier write of this process counts too: then the status is written once more.
        """
        metadata = obj["metadata"]
        path = status_path(kind, metadata.get("namespace") or "", metadata["name"])
        if path not in self._stored:
            return False
        stored = self._stored[path]
        if obj.get("status") in (stored, self._sent.get(path, stored)):
            return False
        if not obj.get("status"):
            self._written.pop(path, None)  # of another object: its times are not those of this one
        self._lost.add(path)
        return True
