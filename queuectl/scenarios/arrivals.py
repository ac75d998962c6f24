"""Random arrivals of workloads in virtual time, the same for the same seed.

All numbers are drawn before the simulation starts, for each template from a stream of its own. So different
policies are tried with the same work, and a change of one template leaves the others unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from random import Random
from statistics import NormalDist
from typing import Final

from queuectl.core.model.workload import Workload, WorkloadId

MOST_WORKLOADS: Final = 200_000
_MILLISECONDS: Final = 1000


class NeverStops(ValueError):
    """A template's arrivals have no end."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same value."""

    seconds: float

    def at(self, _: float) -> float:
        return self.seconds


@dataclass(frozen=True, slots=True)
class Uniform:
    """A value between two bounds, all equally likely."""

    low: float
    high: float

    def at(self, part: float) -> float:
        return self.low + part * (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Many short times, few long ones. As time between arrivals: a Poisson process."""

    mean: float

    def at(self, part: float) -> float:
        return -self.mean * math.log1p(-part)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Typical of run times of jobs: half are below the median, some are very long."""

    median: float
    sigma: float
    """Standard deviation of the logarithm; 1: one in six runs 2.7 times the median or longer."""

    def at(self, part: float) -> float:
        return self.median * math.exp(self.sigma * NormalDist().inv_cdf(part)) if part > 0 else 0.0


Distribution = Constant | Uniform | Exponential | Lognormal
"""A distribution of seconds. `at` returns the quantile of a part from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One workload of the simulation. Times in milliseconds from its start."""

    at: int
    workload: Workload
    run: int | None = None
    """Run time without interruption; None: it never ends by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Many workloads like `shape`. Their names are its name with `-1`, `-2` and so on."""

    shape: Workload
    spacing: Distribution
    """Seconds from one to the next. If they are random, the first comes that long after `first`."""
    run: Distribution | None = None
    first: float = 0.0
    """Seconds."""
    last: float | None = None
    """Seconds; no arrivals after that."""
    count: int | None = None
    seed: int | str = 0


def arrivals(template: Template, start: datetime, *, until: float | None) -> Iterator[Arrival]:
    """Arrivals of one template, in order; `until`: seconds of the simulation. Raises NeverStops."""
    name = f"{template.shape.ref.namespace}/{template.shape.ref.name}"
    ends = [end for end in (until, template.last) if end is not None]
    if not ends and template.count is None:
        raise NeverStops(f"arrivals of {name} never stop: give their count, or until")
    between, lengths = (Random(f"{template.seed}/{name}/{what}") for what in ("arrival", "run"))
    at = template.first
    for number in count(1):
        if number > 1 or not isinstance(template.spacing, Constant):
            at += template.spacing.at(between.random())
        if (template.count is not None and number > template.count) or any(at >= end for end in ends):
            return
        run = None if template.run is None else milliseconds(template.run.at(lengths.random()))
        came = milliseconds(at)
        workload = _workload(template, number, after(start, came))
        yield Arrival(at=came, workload=workload, run=run)


def after(start: datetime, at: int) -> datetime:
    """So many milliseconds after the start."""
    return start + timedelta(milliseconds=at)


def milliseconds(seconds: float) -> int:
    return round(seconds * _MILLISECONDS)


def _workload(template: Template, number: int, created: datetime) -> Workload:
    shape = template.shape
    identity = WorkloadId(f"{shape.id}-{number}")
    ref = shape.ref._replace(name=f"{shape.ref.name}-{number}", uid=identity)
    return replace(shape, id=identity, ref=ref, created_at=created)
