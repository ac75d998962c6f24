"""What annotations of an object say of its start (section V): which workloads come before it, when, how many
of its array at a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from queuectl.core.model.start_conditions import (
    AFTER,
    ARRAY,
    BEGIN,
    MAX_RUNNING,
    MOST_AFTER,
    MOST_RUNNING,
    AfterOutcome,
    AfterWorkload,
    StartConditions,
)
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.json_fields import BadField, Json, shown, timestamp

_LONGEST: Final = 8192
"""Characters of AFTER that are read."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""The name of a group of pods."""
_OUTCOMES: Final = ", ".join(AfterOutcome)


def start_conditions(annotations: Json, labels: Json, kinds: KindRegistry) -> StartConditions | None:
    """Return the conditions of an object; None: it has none. `kinds`: names of kinds become those of this
    registry; an empty one knows none, and checks none. Raises BadField."""
    if not annotations.keys() & {AFTER, BEGIN, MAX_RUNNING}:
        return None
    begin = annotations.get(BEGIN)
    most, array = _max_running(annotations, labels)
    return StartConditions(
        after=after_workloads(annotations.get(AFTER), f"metadata.annotations[{AFTER}]", kinds),
        begin_at=timestamp(begin, f"metadata.annotations[{BEGIN}]") if begin is not None else None,
        max_running=most,
        array=array,
    )


def after_workloads(value: object, path: str, kinds: KindRegistry) -> tuple[AfterWorkload, ...]:
    """Read a list such as `ok:Job/prepare, any:job/load`; None is empty. Raises BadField."""
    if value is None:
        return ()
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise BadField(path, f"{shown(value)} is not a text of at most {_LONGEST} characters")
    parts = [part.strip() for part in value.split(",")]
    if len(parts) > MOST_AFTER:
        raise BadField(path, f"it names {len(parts)} workloads, at most {MOST_AFTER} are allowed")
    return tuple(dict.fromkeys(_after(part, path, kinds) for part in parts))


def _after(part: str, path: str, kinds: KindRegistry) -> AfterWorkload:
    outcome, colon, rest = part.rpartition(":")
    kind, slash, name = rest.partition("/")
    row = kinds.find(kind)
    names = _LABEL if row is not None and row.composed_of else _NAME
    if not slash or not kind or not names.fullmatch(name):
        raise BadField(path, f"{shown(part)} is not [OUTCOME:]KIND/NAME, such as ok:Job/prepare")
    if not colon:
        outcome = AfterOutcome.OK
    elif outcome not in set(AfterOutcome):
        raise BadField(path, f"{shown(part)}: the outcome is none of {_OUTCOMES}")
    if row is None and kinds.rows:
        raise BadField(path, f"{shown(part)}: the kind is none of {kinds.known()}")
    return AfterWorkload(AfterOutcome(outcome), row.name if row is not None else kind[:63], name)


def _max_running(annotations: Json, labels: Json) -> tuple[int | None, str | None]:
    value, array = annotations.get(MAX_RUNNING), labels.get(ARRAY)
    if value is None:
        return None, None
    path = f"metadata.annotations[{MAX_RUNNING}]"
    if not isinstance(value, str) or not re.fullmatch("[1-9][0-9]{0,3}", value) or int(value) > MOST_RUNNING:
        raise BadField(path, f"{shown(value)} is not a whole number, 1 to {MOST_RUNNING}")
    if not isinstance(array, str) or not array:
        raise BadField(path, f"it counts the workloads of an array, and the label {ARRAY} names none")
    return int(value), array[:63]


def begin_text(begin_at: datetime) -> str:
    """Return a time as BEGIN has it: RFC 3339 in UTC, whole seconds."""
    return f"{begin_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
