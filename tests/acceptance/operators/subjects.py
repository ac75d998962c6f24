"""An object of a kind, as its users write it: a leader, which ends the run when it ends, and workers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from queuectl.kinds.jobs import QUEUE_LABEL, JobKind
from queuectl.sandbox.players.kubelet import RUN_SECONDS, TERMINATE_SECONDS

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
RUNTIME_CLASS = "sandboxed"
OVERHEAD: Json = {"cpu": "250m", "memory": "120Mi"}
"""Of that RuntimeClass."""
LONG = 3600.0
"""Seconds that no test waits for."""


@dataclass(frozen=True)
class Part:
    """Equal pods of an object."""

    pods: int
    template: Json


Parts = Mapping[str, Part]
"""By replica type or replicated job."""


@dataclass(frozen=True)
class Subject:
    """A kind as these tests use it."""

    row: JobKind
    site: str
    """The site with its operator."""
    sizes: Mapping[str, int]
    """Pods by part; the leader first."""
    make: Callable[[Parts, Json], Json]
    """From parts and the settings of its runs, its spec."""
    container: str = "main"
    """The name that its operator expects of the container that does the work."""
    real: bool = True
    """Its operator is the real one, not a toy."""
    once: Json = field(default_factory=dict)
    """Settings for a run that is not retried."""
    retried: Json = field(default_factory=dict)
    """Settings with which a failed pod is made again."""
    expires: Json = field(default_factory=dict)
    """Settings that delete it one second after its end."""
    leaves: Json = field(default_factory=dict)
    """Settings with which pods are left after its end."""
    labelled_children: Json = field(default_factory=dict)
    """Settings with which its operator makes children that have the queue label."""
    endless: bool = False
    """It ends only when it is deleted."""
    templated: bool = True
    """It has whole pod templates."""
    webhooks: bool = False
    """No object of this kind can be changed while its operator is down."""
    also: tuple[str, ...] = ()
    """Further sites, with other versions of its operator."""
    retries_late: bool = False
    """Its operator may look at it minutes late while parts of a deleted object of its name are left."""
    without: Mapping[str, str] = field(default_factory=dict)
    """Steps that have no meaning for it, with the reason."""

    def __str__(self) -> str:
        return self.row.name

    def on(self, site: str) -> bool:
        """Whether it is tried on this site."""
        return site == self.site or site in self.also

    @property
    def leader(self) -> str:
        return next(iter(self.sizes))

    @property
    def pods(self) -> int:
        return sum(self.sizes.values())

    def body(
        self,
        name: str,
        *,
        suspend: bool | None = True,
        run: float = LONG,
        stop: float = 0.0,
        queue: str | None = "main",
        annotations: Mapping[str, str] = {},
        **settings: Any,
    ) -> Json:
        """Its pods run for `run` seconds, and take `stop` seconds to end when they are deleted."""
        parts = {part: Part(count, self.template(run, stop)) for part, count in self.sizes.items()}
        return self.of(parts, name, suspend=suspend, queue=queue, annotations=annotations, **settings)

    def of(
        self,
        parts: Parts,
        name: str,
        *,
        suspend: bool | None = True,
        queue: str | None = "main",
        annotations: Mapping[str, str] = {},
        **settings: Any,
    ) -> Json:
        metadata: Json = {"name": name, "annotations": dict(annotations)}
        if queue is not None:
            metadata["labels"] = {QUEUE_LABEL: queue}
        spec = self.make(copy.deepcopy(dict(parts)), {**self.once, **settings})
        if suspend is not None:
            put(spec, self.row.suspend[1:], suspend)
        return {
            "apiVersion": self.row.api_version,
            "kind": self.row.kind,
            "metadata": metadata,
            "spec": spec,
        }

    def template(self, run: float = LONG, stop: float = 0.0, **pod: Any) -> Json:
        resources = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {GPU: "1"}}
        container = {"name": self.container, "image": "none", "resources": resources}
        seconds = {RUN_SECONDS: f"{run:g}", TERMINATE_SECONDS: f"{stop:g}"}
        return {
            "metadata": {"annotations": seconds},
            "spec": {"containers": [container], "restartPolicy": "Never", **pod},
        }


def put(obj: Json, path: tuple[str, ...], value: object) -> None:
    for key in path[:-1]:
        obj = obj.setdefault(key, {})
    obj[path[-1]] = value
