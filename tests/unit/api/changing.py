"""Changes that are remembered instead of made."""

from __future__ import annotations

from queuectl.api.http import OWN_PAGE_HEADER, OWN_PAGE_VALUE
from queuectl.ports.changes import ChangedField, ChangeRefused, Made, Wanted

OWN_PAGE = {OWN_PAGE_HEADER: OWN_PAGE_VALUE}


class CannedChanges:
    """Implements Changes. `refusal`: raised instead."""

    def __init__(self) -> None:
        self.made: list[tuple[Wanted, str | None]] = []
        self.refusal: ChangeRefused | None = None
        self.refusals: dict[str, ChangeRefused] = {}
        """By the name of an object."""
        self.loss: str | None = None
        self.fields: tuple[ChangedField, ...] = ()

    async def make(self, wanted: Wanted, token: str | None) -> Made:
        if self.refusal is not None:
            raise self.refusal
        if wanted.name in self.refusals:
            raise self.refusals[wanted.name]
        self.made.append((wanted, token))
        return Made(
            kind=wanted.kind,
            field="spec.stopPolicy",
            before="None",
            after="Hold",
            written=True,
            meaning=f"It means {wanted.verb}.",
            loss=self.loss,
            fields=self.fields,
            reason=wanted.reason and f"{wanted.verb} by local: {wanted.reason}",
        )
