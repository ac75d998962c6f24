"""Random arrivals of workloads in virtual time, the same for the same seed.

All numbers are drawn before the simulation starts, for each template from a stream of its own. So different
policies are tried with the same work, and a change of one template leaves the others unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from random import Random
from statistics import NormalDist
from typing import Final

from queuectl.core.model.workload import Workload, WorkloadId

MOST_WORKLOADS: Final = 200_000
_MILLISECONDS: Final = 1000


Distribution = Callable[[float], float]
"""A distribution of seconds: the quantile of a part from 0 to 1."""


def uniform(low: float, high: float) -> Distribution:
    """A value between two bounds, all equally likely."""
    return lambda part: low + part * (high - low)


def exponential(mean: float) -> Distribution:
    """Many short times, few long ones. As time between arrivals: a Poisson process."""
    return lambda part: -mean * math.log1p(-part)


def lognormal(median: float, sigma: float) -> Distribution:
    """Typical of run times of jobs: half are below the median, some are very long.

    `sigma`: standard deviation of the logarithm; 1: one in six runs 2.7 times the median or longer.
    """
    return lambda part: median * math.exp(sigma * NormalDist().inv_cdf(part)) if part > 0 else 0.0


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
    spacing: Distribution | float
    """Seconds from one to the next. If they are random, the first comes that long after `first`."""
    run: Distribution | float | None = None
    first: float = 0.0
    """Seconds."""
    last: float | None = None
    """Seconds; no arrivals after that."""
    count: int | None = None
    seed: int | str = 0


def arrivals(template: Template, start: datetime, *, until: float | None) -> Iterator[Arrival]:
    """Arrivals of one template, in order, without end if it has none; `until`: seconds of the simulation."""
    name = f"{template.shape.ref.namespace}/{template.shape.ref.name}"
    ends = [end for end in (until, template.last) if end is not None]
    between, lengths = (Random(f"{template.seed}/{name}/{what}") for what in ("arrival", "run"))
    at = template.first
    for number in count(1):
        if number > 1 or callable(template.spacing):
            at += _quantile(template.spacing, between.random())
        if (template.count is not None and number > template.count) or any(at >= end for end in ends):
            return
        run = None if template.run is None else milliseconds(_quantile(template.run, lengths.random()))
        came = milliseconds(at)
        workload = _workload(template, number, after(start, came))
        yield Arrival(at=came, workload=workload, run=run)


def _quantile(of: Distribution | float, part: float) -> float:
    return of(part) if callable(of) else of


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
