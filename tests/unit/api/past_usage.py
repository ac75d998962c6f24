"""A site with past usage: the case of Slurm's fair tree with five users of four accounts."""

from __future__ import annotations

import json
from typing import Final

import pytest

from queuectl.api.view import View
from queuectl.core.model.policy import AdmissionFairSharing, SchedulingConfiguration
from queuectl.core.model.workload import ConfigKey
from queuectl.ports.reader import BookedOn, UsageSumOf
from tests.unit.api.canned import GPU, CannedReadings, local_spec, queue_spec

HALF_LIFE: Final = 86_400
_LN_2: Final = 0.6931471805599453


def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that are started from now on have this half-life."""
    sharing = AdmissionFairSharing(half_life=HALF_LIFE)
    defaults = View.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "configure", lambda spec: SchedulingConfiguration(usage_sharing=sharing))


def held(user: str | None, queue: str, units: float) -> UsageSumOf:
    """A row that counts as so many GPUs."""
    booked = BookedOn(f"ns-{queue}", "main", user, user, None, {})
    return UsageSumOf(booked, queue, "a100", GPU, round(units * HALF_LIFE * 1_000_000 / _LN_2))


def fair_tree() -> CannedReadings:
    """Cohorts a 40 (b 30: u1, c 10: u2 and u3) and d 60 (e 25: u4, f 35: u5) below `root`."""
    readings = CannedReadings()
    users = {"userOrder": "PastUsage", "admissionMode": "UsageBasedAdmissionFairSharing"}

    def queue(parent: str, weight: int) -> str:
        spec = json.loads(queue_spec(0, cohort=parent))
        return json.dumps({**spec, "fairSharing": {"weight": weight}, "admissionScope": users})

    def cohort(weight: int) -> str:
        return json.dumps({"parentName": "root", "fairSharing": {"weight": weight}})

    queues = {"b": ("a", 30), "c": ("a", 10), "e": ("d", 25), "f": ("d", 35)}
    readings.commit(
        configs={
            ConfigKey("Configuration", "", "queuectl"): "{}",
            ConfigKey("ResourceFlavor", "", "a100"): "{}",
            ConfigKey("Cohort", "", "root"): json.dumps({"fairSharing": {"admissionOrder": "PastUsage"}}),
            ConfigKey("Cohort", "", "a"): cohort(40),
            ConfigKey("Cohort", "", "d"): cohort(60),
            **{ConfigKey("ClusterQueue", "", name): queue(*of) for name, of in queues.items()},
            **{ConfigKey("LocalQueue", f"ns-{name}", "main"): local_spec(name) for name in queues},
        }
    )
    readings.booked = [
        held("u1", "b", 0.2),
        held("u2", "c", 0.25),
        held("u3", "c", 0),
        held("u4", "e", 0.25),
        held("u5", "f", 0),
    ]
    return readings
