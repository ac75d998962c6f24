"""Hooks by which the REST server reports its work to metrics."""

from __future__ import annotations

from typing import Final, Literal, Protocol


class Observer(Protocol):
    """Called on the event loop; must not block."""

    def answered(self, endpoint: str, code: int, seconds: float) -> None:
        """`endpoint`: the path with its parameters in braces, `other` for paths that do not exist. A long
        `seconds` may be a request that waited for changes as it was asked to."""

    def reviewed(self, kind: Literal["token", "access"], remembered: bool) -> None:
        """An identity or a right was looked up. `remembered`: without a request to the API server."""


class _Silent:
    def answered(self, endpoint: str, code: int, seconds: float) -> None:
        return

    def reviewed(self, kind: Literal["token", "access"], remembered: bool) -> None:
        return


SILENT: Final = _Silent()
