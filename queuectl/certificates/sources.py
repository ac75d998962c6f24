"""Sources of a server's certificate: mounted files, or certificates of an own authority."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from queuectl import files
from queuectl.certificates.checking import CertificateError, Material
from queuectl.certificates.renewal import Kept, Lifetimes, renewed

MAX_FILE_BYTES: Final = 1 << 20
_TRIES: Final = 8
"""Attempts to write while other replicas write too."""

_FIELDS: Final = {
    "authorities": "ca.crt",
    "authority_key": "ca.key",
    "chain": "tls.crt",
    "key": "tls.key",
}
"""Names in the Secret, by field of Kept."""


class CertificateSource(Protocol):
    async def fetch(self) -> Material:
        """The current material. Raises CertificateError; ClusterUnavailable."""


class FromFiles:
    """Mounted files, read again at each check."""

    def __init__(self, chain: Path, key: Path, bundle: Path | None) -> None:
        self._chain = chain
        self._key = key
        self._bundle = bundle

    async def fetch(self) -> Material:
        return Material(
            chain=_read(self._chain),
            key=_read(self._key),
            bundle=_read(self._bundle) if self._bundle else None,
            names=(str(self._chain), str(self._key), str(self._bundle)),
        )


def _read(path: Path) -> bytes:
    try:
        return files.read(path, MAX_FILE_BYTES)
    except files.BadFile as error:
        raise CertificateError(str(error)) from None


class Vault(Protocol):
    """Storage of a few small texts, shared by all replicas."""

    async def read(self) -> tuple[Mapping[str, bytes], str]:
        """The texts by name, and their version. Raises ClusterUnavailable."""

    async def write(self, texts: Mapping[str, bytes], version: str) -> bool:
        """Replace the texts of `version`; False: another replica did so first. Raises ClusterUnavailable."""


class SelfMade:
    """Made if missing and renewed when due, by the first replica that checks."""

    def __init__(
        self,
        vault: Vault,
        *,
        where: str,
        server_names: Sequence[str],
        now: Callable[[], datetime],
        lifetimes: Lifetimes | None = None,
    ) -> None:
        """`where`: the name of the vault in messages."""
        self._vault = vault
        self._where = where
        self._server_names = tuple(server_names)
        self._now = now
        self._lifetimes = lifetimes

    async def fetch(self) -> Material:
        for _ in range(_TRIES):
            texts, version = await self._vault.read()
            kept = Kept(**{field: texts.get(name, b"") for field, name in _FIELDS.items()})
            wanted = renewed(kept, self._now(), self._server_names, self._lifetimes)
            if wanted == kept or await self._vault.write(_texts(wanted), version):
                return self._material(wanted)
        raise CertificateError(f"{self._where}: other clients keep changing it: nothing can be stored")

    def _material(self, kept: Kept) -> Material:
        names = (f"{self._where} tls.crt", f"{self._where} tls.key", f"{self._where} ca.crt")
        return Material(chain=kept.chain, key=kept.key, bundle=kept.authorities, names=names)


def _texts(kept: Kept) -> dict[str, bytes]:
    return {name: getattr(kept, field) for field, name in _FIELDS.items()}
