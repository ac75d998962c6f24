"""What happens to the workloads of a scenario document in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from queuectl.simulation import stage as staging
from queuectl.simulation.history import History, Life
from queuectl.simulation.usage import QuotaTable
from tests.doubles.invariants import checked_commits

Json = dict[str, Any]


def lives_of(
    patch: pytest.MonkeyPatch, objects: Sequence[Json], workloads: Sequence[Json]
) -> dict[str, Life]:
    """By the name of the workload. The pods of a stopped one take a second to end."""
    document = {
        "format": "scenario/v1",
        "kind": "simulation",
        "name": "of a test",
        "until": 600,
        "evictionSeconds": 1,
        "objects": list(objects),
        "workloads": list(workloads),
    }
    found: list[History] = []

    def measures(history: History, site: QuotaTable) -> Json:
        found.append(history)
        return {}

    patch.setattr(staging, "measures", measures)
    with checked_commits():
        staging.play(staging.read_simulation(yaml.safe_dump(document).encode(), "test"))
    return {life.id.rpartition("/")[2]: life for life in found[0].lives}
