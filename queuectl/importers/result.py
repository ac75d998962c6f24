"""The result of an import: objects of ours, and a note on everything that was not carried over."""

from __future__ import annotations

from typing import Any, NamedTuple

from queuectl.kinds.policy_objects import API_VERSION


class Note(NamedTuple):
    """Something that was not carried over, or has another meaning now."""

    object: str
    """KIND/NAME with NAMESPACE/ before it if it has one, or the place in a file."""
    field: str
    """What of it; empty: the whole object."""
    text: str
    left_out: bool = True
    """False: everything is carried over, and the note says what to know about it."""


class Imported(NamedTuple):
    objects: tuple[dict[str, Any], ...]
    """Objects to apply, in this order."""
    notes: tuple[Note, ...]

    @property
    def left_out(self) -> int:
        """How many notes are on things that were left out."""
        return sum(note.left_out for note in self.notes)


def policy_object(kind: str, name: str, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}}
    return made if spec is None else made | {"spec": spec}
