"""Tokens for the REST server, and the trust in its certificate.

A token is sent only to a server whose certificate is verified, or to this machine itself. It is read
from a file or from the environment, never from the command line, and never printed or stored.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from queuectl.cli.options import Failure
from queuectl.cli.printing import printable
from queuectl.net.failures import why

AUDIENCE: Final = "queuectl"
VARIABLE: Final = "QUEUECTL_TOKEN"
MAX_TOKEN: Final = 64 << 10
ACCOUNT: Final = "system:serviceaccount:"
"""Beginning of the name of a service account: then its namespace, a colon, its name."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A token, and where it is from."""

    token: str
    source: str


class Grants(Protocol):
    """A cluster that may give tokens for the REST server in it. Every method raises Failure."""

    def own_token(self) -> str | None:
        """The token of the kubeconfig."""

    def granted(self, audience: str, *, subject: object) -> Grant | None:
        """A token of a service account that the caller may use; `subject`: claim `sub` of its own token."""

    def refusals(self) -> str:
        """Why there was none, and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerToken:
    """The source of the caller's token."""

    token_file: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    """Namespace of the caller's service account, if known."""
    cluster: Grants | None = None
    """The cluster that the server was found in: it may give tokens."""

    def given(self, *, secure: bool, local: bool, url: str) -> Grant | None:
        """The given token. Raises Failure if it would be sent without encryption."""
        if self.token_file is not None:
            source = f"--token-file {self.token_file}"
            token = _checked(_read(self.token_file), source)
        elif text := os.environ.get(VARIABLE):
            source = VARIABLE
            token = _checked(text, VARIABLE)
        else:
            return None
        if not secure and not local:
            raise Failure(
                f"the token is not sent to {url}: without TLS it could be read and used on the way.\n"
                "Use its https:// URL, or kubectl port-forward and https://127.0.0.1:8443"
            )
        return Grant(token, f"the token of {source}")

    def found(self, accepted: object, *, secure: bool) -> Grant | None:
        """A token for an audience among `accepted`: the kubeconfig's own, else one that the cluster gives."""
        audiences = _texts(accepted)
        if not secure or not audiences or (self.cluster is None and not _of_cluster(audiences)):
            return None
        token = self._of_kubeconfig()
        claims = claims_of(token) if token else {}
        if token is not None and _sendable(claims, audiences):
            return Grant(token, "the token of the kubeconfig")
        if self.cluster is None:
            return None
        return self.cluster.granted(
            AUDIENCE if AUDIENCE in audiences else audiences[0], subject=claims.get("sub")
        )

    def _of_kubeconfig(self) -> str | None:
        if self.cluster is not None:
            return self.cluster.own_token()
        import asyncio

        from queuectl.kube.connections import bearer_token

        return asyncio.run(bearer_token(self.kubeconfig, self.context))

    def how_to_sign_in(self, url: str, accepted: object, *, refused: bool) -> str:
        if refused:
            problem = (
                f"{url} does not accept this token: it has expired, was revoked or is for another audience"
            )
        else:
            problem = f"{url} requires a token"
        if self.cluster is not None and not refused:
            problem += self.cluster.refusals()
        account = f"SERVICEACCOUNT -n {self.namespace or 'NAMESPACE'}"
        audience = printable(next(iter(_texts(accepted)), AUDIENCE))
        return (
            f"{problem}. To use a token of a service account:\n"
            f"  export {VARIABLE}=$(kubectl create token {account} --audience {audience})\n"
            "or --token-file FILE"
        )


def _sendable(claims: dict[str, Any], audiences: list[str]) -> bool:
    """May the kubeconfig's token be sent to a server that accepts these audiences?

    It is valid for the whole cluster: only a server that accepts the cluster's audience gets it.
    """
    meant = claims.get("aud")
    if meant is None or not str(claims.get("sub")).startswith(ACCOUNT):
        # The API server has accepted it for itself: an OIDC token names its client as the audience.
        return _of_cluster(audiences)
    return bool(set(audiences) & set(_texts([meant] if isinstance(meant, str) else meant)))


def _of_cluster(audiences: list[str]) -> bool:
    """Is the cluster's own audience among them?"""
    return bool(set(audiences) - {AUDIENCE})


def trust(ca: Path | None = None, *, text: str | None = None) -> ssl.SSLContext:
    """The TLS context that verifies the server's certificate by the CA certificates of a file, or of a text.

    Without both: by those of the system. Raises Failure.
    """
    try:
        return ssl.create_default_context(cafile=str(ca) if ca else None, cadata=text)
    except OSError as error:  # ssl.SSLError is one
        source = f"--server-ca {ca}" if text is None else "the CA of REST in its ConfigMap"
        raise Failure(f"{source}: {why(error)}") from None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_TOKEN + 1).decode("utf-8")
    except OSError as error:
        raise Failure(f"--token-file {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Failure(f"--token-file {path}: this is not a token") from None


def _checked(text: str, source: str) -> str:
    """Messages never contain the token."""
    token = text.strip()
    if not token:
        raise Failure(f"{source} is empty")
    if len(token) > MAX_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise Failure(f"{source} is not a token: one line of letters, digits and punctuation is expected")
    return token


def claims_of(token: str) -> dict[str, Any]:
    """The claims of a token, unverified; empty if it has none that can be read."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
