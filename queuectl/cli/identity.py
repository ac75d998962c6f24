"""Tokens for the REST server, and the trust in its certificate.

A token is sent only to a server whose certificate is verified, or to this machine itself. It is read
from a file or from the environment, never from the command line, and never printed.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from queuectl.cli.options import Failure
from queuectl.cli.printing import printable

AUDIENCE: Final = "queuectl"
VARIABLE: Final = "QUEUECTL_TOKEN"
MAX_TOKEN: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The source of the caller's token."""

    token_file: Path | None = None
    ca: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    """Namespace of the caller's service account, if known."""

    def token(self, *, secure: bool, local: bool, url: str) -> str | None:
        """The given token. Raises Failure if it would be sent without encryption."""
        if self.token_file is not None:
            token = _checked(_read(self.token_file), f"--token-file {self.token_file}")
        elif text := os.environ.get(VARIABLE):
            token = _checked(text, VARIABLE)
        else:
            return None
        if not secure and not local:
            raise Failure(
                f"the token is not sent to {url}: without TLS anyone on the way could read and use it.\n"
                "Use its https:// URL, or kubectl port-forward and https://127.0.0.1:8443"
            )
        return token

    def of_kubeconfig(self, accepted: object, *, secure: bool) -> str | None:
        """The kubeconfig's own token, if the server accepts tokens of the cluster's audience.

        It is valid for the whole cluster: it is sent over TLS only, never to a local port without TLS.
        """
        audiences = set(_texts(accepted))
        if not secure or not audiences - {AUDIENCE}:
            return None
        import asyncio

        from queuectl.app.connecting import bearer_token

        token = asyncio.run(bearer_token(self.kubeconfig, self.context))
        meant = _audiences(token) if token else None
        return None if meant is not None and not meant & audiences else token

    def how_to_sign_in(self, url: str, accepted: object, *, refused: bool) -> str:
        if refused:
            problem = (
                f"{url} does not accept this token: it has expired, was revoked or is for another audience"
            )
        else:
            problem = f"{url} requires a token"
        account = f"SERVICEACCOUNT -n {self.namespace or 'NAMESPACE'}"
        audience = printable(next(iter(_texts(accepted)), AUDIENCE))
        return (
            f"{problem}. To use a token of a service account:\n"
            f"  export {VARIABLE}=$(kubectl create token {account} --audience {audience})\n"
            "or --token-file FILE"
        )


def trust(ca: Path | None) -> ssl.SSLContext:
    """The TLS context that verifies the server's certificate. Raises Failure."""
    try:
        return ssl.create_default_context(cafile=str(ca) if ca else None)
    except OSError as error:  # ssl.SSLError is one
        raise Failure(f"--server-ca {ca}: {error.strerror or error}") from None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


def _audiences(token: str) -> set[str] | None:
    """The audiences of a token, by its own claims; None if it has no readable claims."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    meant = claims.get("aud") if isinstance(claims, dict) else None
    if isinstance(meant, str):
        return {meant}
    return set(_texts(meant)) if isinstance(meant, list) else None


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
