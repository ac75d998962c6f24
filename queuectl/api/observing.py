"""What a server tells of itself while it works."""

from __future__ import annotations

from typing import Final, Literal, Protocol


class Observer(Protocol):
    """Called on the event loop; must not block."""

    def answered(self, endpoint: str, code: int, seconds: float) -> None:
        """`endpoint`: the path with its names in braces, `other` for paths that do not exist. Where `seconds`
        are long, the caller may have asked to wait for news."""

    def reviewed(self, kind: Literal["token", "access"], remembered: bool) -> None:
        """A caller's identity or right was needed. `remembered`: the cluster did not have to be asked."""


class _Silent:
    def answered(self, endpoint: str, code: int, seconds: float) -> None:
        return

    def reviewed(self, kind: Literal["token", "access"], remembered: bool) -> None:
        return


SILENT: Final = _Silent()
