"""Scenario documents of kind `simulation`: work with run times, templates of many (docs/simulation.md)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from queuectl.scenarios import arrivals as random
from queuectl.scenarios.documents import Config, ScenarioDocument, ScenarioPodSet, ScenarioWorkload
from queuectl.scenarios.fields import Name, Positive, Priority, ScenarioPart, Seconds, Time
from queuectl.scenarios.nodes import (
    MOST_NODE_EVENTS,
    MOST_NODES,
    MOST_PODS,
    NodeEventModel,
    SimulatedNode,
    SimulatedPod,
)

MOST_TEMPLATES: Final = 1_000

Seed = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]


class LognormalModel(ScenarioPart):
    median: Positive
    sigma: Annotated[float, Field(strict=True, ge=0, le=5, allow_inf_nan=False)]


class DistributionModel(ScenarioPart):
    """A distribution of seconds: exactly one of these. A number alone is a constant."""

    constant: Seconds | None = None
    uniform: tuple[Seconds, Seconds] | None = None
    exponential: Positive | None = None
    """The mean."""
    lognormal: LognormalModel | None = None

    @model_validator(mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"constant": value}
        if not isinstance(value, dict):
            raise ValueError("must be seconds, or one of uniform, exponential, lognormal")
        return value

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = (self.constant, self.uniform, self.exponential, self.lognormal)
        if sum(value is not None for value in given) != 1:
            raise ValueError("give one of uniform, exponential, lognormal")
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            raise ValueError(f"uniform: {self.uniform[0]:g} is more than {self.uniform[1]:g}")
        return self

    def value(self) -> random.Distribution | float:
        if self.uniform is not None:
            return random.uniform(*self.uniform)
        if self.exponential is not None:
            return random.exponential(self.exponential)
        if self.lognormal is not None:
            return random.lognormal(self.lognormal.median, self.lognormal.sigma)
        return self.constant or 0.0


class Poisson(ScenarioPart):
    """Independent arrivals."""

    per_hour: Annotated[float, Field(strict=True, gt=0, le=1e7, allow_inf_nan=False)]
    """The average."""


class ArrivalsModel(ScenarioPart):
    """Many workloads of one shape."""

    name: Name
    """Their names are NAME-1, NAME-2 and so on."""
    namespace: Name = "default"
    queue: Name
    priority: Priority = 0
    pod_sets: Annotated[tuple[ScenarioPodSet, ...], Field(min_length=1)]
    every: Positive | None = None
    """Seconds from one to the next, the first at `from`."""
    poisson: Poisson | None = None
    from_: Annotated[Seconds, Field(alias="from")] = 0.0
    to: Seconds | None = None
    """Seconds: no arrivals from then on."""
    count: Annotated[int, Field(strict=True, ge=1, le=random.MOST_WORKLOADS)] | None = None
    run_seconds: DistributionModel | None = None
    """None: they never end by themselves."""
    seed: Seed | None = None
    """None: the seed of the document."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.every is None) == (self.poisson is None):
            raise ValueError("give one of every, poisson")
        return self

    @property
    def shape(self) -> ScenarioWorkload:
        return ScenarioWorkload(
            name=self.name,
            namespace=self.namespace,
            queue=self.queue,
            priority=self.priority,
            pod_sets=self.pod_sets,
            state="pending",
        )

    def spacing(self) -> random.Distribution | float:
        if self.poisson is not None:
            return random.exponential(3600 / self.poisson.per_hour)
        assert self.every is not None
        return self.every


class SimulatedWorkload(ScenarioWorkload):
    state: Literal["pending", "quotaReserved", "admitted"] = "pending"
    created_at: Time | None = None
    """None: when it arrives."""
    arrival: Seconds | None = None
    """None: at `createdAt` if that is after the start, else at the start."""
    run_seconds: Seconds | None = None
    """From its start, or from that of the simulation if it runs then. None: it never ends by itself."""


class Simulation(ScenarioDocument):
    kind: Literal["simulation"]
    config: Config = Config()
    workloads: tuple[SimulatedWorkload, ...] = ()
    nodes: Annotated[tuple[SimulatedNode, ...], Field(max_length=MOST_NODES)] = ()
    node_events: Annotated[tuple[NodeEventModel, ...], Field(max_length=MOST_NODE_EVENTS)] = ()
    """In any order; those of one time, in this one."""
    pods: Annotated[tuple[SimulatedPod, ...], Field(max_length=MOST_PODS)] = ()
    arrivals: Annotated[tuple[ArrivalsModel, ...], Field(max_length=MOST_TEMPLATES)] = ()
    until: Positive | None = None
    """Seconds. None: to the end of all work."""
    eviction_seconds: Seconds = 0.0
    """Time that the pods of a victim take to end. Its work so far is lost."""
    seed: Seed = 0
