"""What is charged, beside what the pods of a workload really request.

The requests of a pod are added up as the documentation of the Kubernetes scheduler says, apart from queuectl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from queuectl.core.model.resources import parse_quantity
from tests.acceptance.operators.cells import Work

Json = dict[str, Any]


def charged(work: Work) -> Counter[str]:
    """What the ledger holds for it, by resource."""
    return +work.held()


def requested(pods: Iterable[Json], resources: Iterable[str]) -> Counter[str]:
    """What these pods request together of some resources."""
    total: Counter[str] = Counter()
    for pod in pods:
        total.update(of_pod(pod["spec"]))
    return +Counter({name: total[name] for name in resources})


def of_pod(spec: Json) -> Counter[str]:
    """Containers run together; init containers one after another, beside the sidecars started before them."""
    running: Counter[str] = Counter()
    for container in spec["containers"]:
        running.update(_asked(container))
    sidecars: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars.update(_asked(container))
            most |= sidecars
        else:
            most |= sidecars + _asked(container)
    total = most | (running + sidecars)
    for name, amount in _asked(spec).items():
        total[name] = amount  # resources of the pod itself replace those of its containers
    for name, quantity in (spec.get("overhead") or {}).items():
        total[name] += parse_quantity(quantity, name)
    return total


def _asked(container: Json) -> Counter[str]:
    """The API server has set requests where only a limit was given."""
    requests = (container.get("resources") or {}).get("requests") or {}
    return Counter({name: parse_quantity(value, name) for name, value in requests.items()})
