"""Checks of a server's certificate: everything that would make clients refuse it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

MIN_RSA_BITS: Final = 2048
MIN_CURVE_BITS: Final = 224
MAX_CHAIN: Final = 16
"""Certificates that are read from one file."""

_WEAK: Final = (hashes.MD5, hashes.SHA1)


class CertificateError(Exception):
    """It cannot be used. The message names the file or Secret, the field, and the problem."""


@dataclass(frozen=True, slots=True)
class Material:
    """PEM texts as they were read."""

    chain: bytes
    """The server's own certificate first."""
    key: bytes
    """Without a passphrase."""
    bundle: bytes | None
    """Authorities that clients must trust. None: they are configured elsewhere."""
    names: tuple[str, str, str] = ("certificate", "key", "CA")
    """The names of the three sources, for messages."""


def certificates(pem: bytes) -> list[x509.Certificate]:
    """The certificates of a PEM text, in order. Raises ValueError if there is none or one is malformed."""
    found = x509.load_pem_x509_certificates(pem)
    if len(found) > MAX_CHAIN:
        raise ValueError(f"holds {len(found)} certificates, at most {MAX_CHAIN} are read")
    return found


def check(material: Material, now: datetime) -> datetime:
    """When it expires. Raises CertificateError with the first reason not to use it."""
    where, key_where, bundle_where = material.names
    chain = _read(material.chain, where)
    leaf = chain[0]
    _check_key(leaf, material.key, key_where, where)
    for certificate in chain:
        _check_strength(certificate, where)
        _check_time(certificate, now, where)
    if material.bundle is not None:
        authorities = _read(material.bundle, bundle_where)
        if not _leads_to(chain, authorities, now):
            raise CertificateError(
                f"{where}: no valid certificate in {bundle_where} has signed it: "
                "clients that trust only those would refuse it"
            )
    return min(certificate.not_valid_after_utc for certificate in chain)


def _read(pem: bytes, where: str) -> list[x509.Certificate]:
    try:
        return certificates(pem)
    except ValueError as error:
        raise CertificateError(f"{where}: no readable certificate in PEM: {error}") from None


def private_key(pem: bytes) -> PrivateKeyTypes:
    """Raises ValueError without a key, for one with a passphrase, and for an unknown kind."""
    try:
        return load_pem_private_key(pem, password=None)
    except TypeError as error:  # it has a passphrase
        raise ValueError(str(error)) from None
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None


def belongs(key: PrivateKeyTypes, certificate: x509.Certificate) -> bool:
    """Is it the key of this certificate?"""
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def current(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _check_key(leaf: x509.Certificate, pem: bytes, key_where: str, where: str) -> None:
    try:
        key = private_key(pem)
    except ValueError as error:
        raise CertificateError(f"{key_where}: no readable private key in PEM: {error}") from None
    if not belongs(key, leaf):
        raise CertificateError(f"{key_where}: is not the key of the certificate in {where}")


def _check_strength(certificate: x509.Certificate, where: str) -> None:
    try:
        problem = _weakness(certificate.public_key())
        digest = certificate.signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm) as error:
        problem, digest = str(error), None
    if problem is None and isinstance(digest, _WEAK):
        problem = f"is signed over {digest.name}"
    if problem is not None:
        raise CertificateError(f"{where}: too weak: {problem}")


def _weakness(key: PublicKeyTypes) -> str | None:
    if isinstance(key, rsa.RSAPublicKey):
        short = key.key_size < MIN_RSA_BITS
        return f"an RSA key of {key.key_size} bits, at least {MIN_RSA_BITS} are required" if short else None
    if isinstance(key, ec.EllipticCurvePublicKey):
        short = key.curve.key_size < MIN_CURVE_BITS
        return f"curve {key.curve.name}, at least {MIN_CURVE_BITS} bits are required" if short else None
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return None
    return f"a key of kind {type(key).__name__.removesuffix('PublicKey')}"


def _check_time(certificate: x509.Certificate, now: datetime, where: str) -> None:
    if now < certificate.not_valid_before_utc:
        wait = certificate.not_valid_before_utc - now
        at = certificate.not_valid_before_utc
        raise CertificateError(f"{where}: not valid before {at:%Y-%m-%d %H:%M:%S} UTC, in {_span(wait)}")
    if now >= certificate.not_valid_after_utc:
        past = now - certificate.not_valid_after_utc
        at = certificate.not_valid_after_utc
        raise CertificateError(f"{where}: expired at {at:%Y-%m-%d %H:%M:%S} UTC, {_span(past)} ago")


def _span(length: timedelta) -> str:
    return f"{length.days} days" if length.days else f"{length.seconds} s"


def _leads_to(chain: list[x509.Certificate], authorities: list[x509.Certificate], now: datetime) -> bool:
    """Do signatures lead from the first certificate of `chain` through the others to a valid authority?"""
    trusted = [authority for authority in authorities if current(authority, now)]
    at, between = chain[0], chain[1:]
    while not any(at == authority or signed_by(at, authority) for authority in trusted):
        following = next((issuer for issuer in between if signed_by(at, issuer)), None)
        if following is None:
            return False
        between = [issuer for issuer in between if issuer != following]
        at = following
    return True
