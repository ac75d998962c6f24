"""Certificates made by other tools: good ones, and others with one error each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
DAY = timedelta(days=1)


def new_key(bits: int = 0) -> Any:
    """On a curve; of RSA where `bits` are given."""
    return rsa.generate_private_key(65537, bits) if bits else ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Any, passphrase: bytes | None = None) -> bytes:
    lock = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
    return pem


def issue(
    name: str,
    key: Any,
    issuer: tuple[x509.Certificate, Any] | None = None,
    *,
    begins: datetime = NOW - DAY,
    ends: datetime = NOW + 30 * DAY,
    authority: bool = False,
) -> x509.Certificate:
    """Signed by `issuer`, a certificate and its key, else by itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(issuer[1] if issuer else key, hashes.SHA256())
    )


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


class Mounted:
    """A folder as cert-manager fills it: tls.crt, tls.key, ca.crt."""

    def __init__(self, folder: Path) -> None:
        self.chain, self.key, self.bundle = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self._authority_key = new_key()
        self.authority = issue("authority", self._authority_key, ends=NOW + 365 * DAY, authority=True)
        self.put()

    def put(
        self, *, key: Any = None, begins: datetime = NOW - DAY, ends: datetime = NOW + 30 * DAY
    ) -> x509.Certificate:
        """A new pair under the same authority."""
        key = key or new_key()
        certificate = issue("localhost", key, (self.authority, self._authority_key), begins=begins, ends=ends)
        self.chain.write_bytes(pem(certificate))
        self.key.write_bytes(key_pem(key))
        self.bundle.write_bytes(pem(self.authority))
        return certificate
