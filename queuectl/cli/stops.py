"""What the last eviction of a workload cost it, from its history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from queuectl.cli.decisions import why
from queuectl.cli.printing import amount
from queuectl.cli.rest import Document
from queuectl.screen.text import age

_CHARGED: Final = ("Admitted", "Shrunk")
_HOUR: Final = timedelta(hours=1)
_MINUTE: Final = timedelta(minutes=1)


def last_stop(history: Sequence[Document]) -> tuple[str, str] | None:
    """Time and text of the last eviction, with the run time and the device hours that were lost with it.

    `history`: decisions, oldest first. None: none of them is an eviction. Without the admission of that
    attempt its cost is not known.
    """
    stop = next((row for row in reversed(history) if row["verdict"] == "Evicted"), None)
    if stop is None:
        return None
    attempt = [row for row in history if row["attempt"] == stop["attempt"]]
    text = why(stop) or stop["verdict"]
    admitted = next((row for row in attempt if row["verdict"] == "Admitted"), None)
    if admitted is None:
        return stop["time"], text
    ran = datetime.fromisoformat(stop["time"]) - datetime.fromisoformat(admitted["time"])
    held = [row["details"].get("podSets") for row in attempt if row["verdict"] in _CHARGED]
    text += f"; attempt {stop['attempt']} ran {age(ran.total_seconds())}"
    return stop["time"], text + "".join(f", {found}" for found in _hours(held[-1] or (), ran))


def _hours(pod_sets: Sequence[Document], ran: timedelta) -> list[str]:
    """Such as `8.0 hours of nvidia.com/gpu`, for extended resources."""
    held: dict[str, int] = {}
    for pods in pod_sets:
        for resource, each in pods["requests"].items():
            if "/" in resource:
                held[resource] = held.get(resource, 0) + int(each) * int(pods["count"])
    return [f"{_long(ran * count)} of {resource}" for resource, count in sorted(held.items())]


def _long(time: timedelta) -> str:
    return f"{time / _HOUR:.1f} hours" if time >= _HOUR else f"{time / _MINUTE:.1f} minutes"


def requested(pods: Document) -> str | None:
    """What a podset requests that may start with fewer pods; None: it starts with all of them."""
    if (pods.get("minCount") or pods["count"]) >= pods["count"]:
        return None
    each = ", ".join(f"{amount(name, value)} {name}" for name, value in sorted(pods["requests"].items()))
    return f"{pods['name']}: {pods['count']} x ({each}), at least {pods['minCount']}"
