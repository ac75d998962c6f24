"""Nodes in scenario documents, what happens to them, and pods of no queue that run on them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StrictBool

from queuectl.core.model.policy import Node, Taint
from queuectl.core.model.resources import amounts
from queuectl.scenarios.fields import Amounts, Name, Positive, Reference, ScenarioPart, Seconds, Time

MOST_NODES: Final = 5_000
"""Of one document, all templates together."""
MOST_PODS: Final = 50_000
"""Of no queue, all templates together; and of one workload, where there are nodes."""
MOST_NODE_EVENTS: Final = 10_000
_MOST_LABELS: Final = 1024

Label = Annotated[str, Field(max_length=317)]
Labels = Annotated[dict[Label, Label], Field(max_length=_MOST_LABELS)]


NodeChange = Literal["failNodes", "returnNodes", "cordonNodes", "uncordonNodes", "removeNodes"]
LONG: Final = timedelta(days=1)
"""Since when a node that a step changes has been ready or not: longer than any rule waits."""


class TaintModel(ScenarioPart):
    key: Annotated[str, Field(min_length=1, max_length=317)]
    value: Label = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class NodeModel(ScenarioPart):
    """One node, or `count` equal ones."""

    name: Name
    count: Annotated[int, Field(strict=True, ge=1, le=MOST_NODES)] | None = None
    """With it their names are NAME-1, NAME-2 and so on."""
    labels: Labels = Field(default_factory=dict)
    allocatable: Amounts
    taints: Annotated[tuple[TaintModel, ...], Field(max_length=_MOST_LABELS)] = ()
    ready: StrictBool = True
    cordoned: StrictBool = False
    conditions: dict[Label, Literal["True", "False", "Unknown"]] = Field(
        default_factory=dict, max_length=_MOST_LABELS
    )
    """Status by type, of other conditions than Ready."""
    ready_since: Time | None = None
    """When `ready` last changed; None: unknown."""
    created_at: Time | None = None
    avoided_until: Time | None = None
    """It does not count before, because it failed repeatedly (M14)."""

    def named(self, name: str) -> list[Node]:
        """The nodes that this name means: all of them, one, or none."""
        return [node for node in self.values() if name in (self.name, node.name)]

    @property
    def names(self) -> Iterator[str]:
        if self.count is None:
            yield self.name
        else:
            yield from (f"{self.name}-{number}" for number in range(1, self.count + 1))

    def values(self) -> Iterator[Node]:
        for name in self.names:
            yield Node(
                name,
                tuple(sorted(self.labels.items())),
                amounts(self.allocatable),
                ready=self.ready,
                ready_since=self.ready_since,
                created_at=self.created_at,
                cordoned=self.cordoned,
                taints=tuple(Taint(one.key, one.value, one.effect) for one in self.taints),
                conditions=tuple(sorted(self.conditions.items())),
            )


class PodModel(ScenarioPart):
    """One pod, or `count` equal ones."""

    name: Name
    """Their names are NAME-1, NAME-2 and so on."""
    namespace: Name = "default"
    count: Annotated[int, Field(strict=True, ge=1, le=MOST_PODS)] = 1
    requests: Amounts
    node: Name | None = None
    """On which all of them run, whether they fit or not. None, in virtual time only: where the scheduler
    places them."""
    workload: Reference | None = None
    """Whose pods they are, beside those at its admission; None: of no queue."""
    terminating: StrictBool = False
    """They are being deleted."""


# --- in virtual time ---------------------------------------------------------------------------------


class SimulatedNode(NodeModel):
    added_at: Seconds | None = None
    """None: it is there from the start."""


class NodeEventModel(ScenarioPart):
    at: Seconds
    node: Name
    """Name of a node, or of several (`nodes[].name` with a count): all of them."""
    do: Literal["fail", "return", "cordon", "uncordon", "remove"]


class SimulatedPod(PodModel):
    node_selector: Labels = Field(default_factory=dict)
    tolerations: Annotated[tuple[dict[str, Any], ...], Field(max_length=_MOST_LABELS)] = ()
    at: Seconds = 0.0
    run_seconds: Positive | None = None
    """From its binding. None: it never ends."""
