"""Certificates of an own authority, renewed by a rule on their validity and the current time.

Every replica may apply the rule at any time; the result is stored in one place under compare-and-set, so
that all replicas use the same. A new authority is published some time before a certificate signed by it is
used, and the former one stays published some time after: no client meets a certificate it does not trust yet.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from queuectl.certificates.material import belongs, certificates, current, private_key, signed_by

BACKDATED: Final = timedelta(hours=1)
"""A new certificate is valid from this long ago, because clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    authority: timedelta = timedelta(days=730)
    serving: timedelta = timedelta(days=90)
    overlap: timedelta = timedelta(days=1)
    """Between publishing a new authority and using it, and before removing one that is no longer used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Everything that is stored, in PEM. If it is empty or unreadable, it is made again."""

    authorities: bytes = b""
    """Trusted authorities, the newest last."""
    authority_key: bytes = b""
    """The private key of the newest authority."""
    chain: bytes = b""
    key: bytes = b""


def renewed(kept: Kept, now: datetime, names: Sequence[str], lifetimes: Lifetimes | None = None) -> Kept:
    """What is to be stored from now on; `kept` itself if nothing is due.

    `names`: DNS names and IP addresses of the certificate.
    """
    times = lifetimes or Lifetimes()
    names = [_normal(name) for name in names]
    authorities = _authorities(kept, now)
    if not authorities or _due(authorities[-1], now) or not _usable(kept.authority_key, authorities[-1]):
        certificate, key = _new_authority(now, times.authority)
        authorities.append(certificate)
        kept = replace(kept, authority_key=_pem(key))
    kept = replace(kept, authorities=_joined(authorities))
    leaf = _leaf(kept, authorities, now)
    if leaf is None or _to_be_signed(leaf, authorities[-1], now, names, times):
        wanted = _all_names(leaf, now, names)
        kept = _signed(kept, authorities[-1], now, wanted, times.serving)
        leaf = certificates(kept.chain)[0]
    if signed_by(leaf, authorities[-1]) and _age(leaf, now) >= times.overlap:
        kept = replace(kept, authorities=_joined(authorities[-1:]))
    return kept


def _authorities(kept: Kept, now: datetime) -> list[x509.Certificate]:
    try:
        return [authority for authority in certificates(kept.authorities) if current(authority, now)]
    except ValueError:
        return []


def _usable(key: bytes, certificate: x509.Certificate) -> bool:
    try:
        return belongs(private_key(key), certificate)
    except ValueError:
        return False


def _leaf(kept: Kept, authorities: list[x509.Certificate], now: datetime) -> x509.Certificate | None:
    """The certificate in use, if a client can accept it now."""
    try:
        leaf = certificates(kept.chain)[0]
    except ValueError:
        return None
    trusted = any(signed_by(leaf, authority) for authority in authorities)
    return leaf if trusted and current(leaf, now) and _usable(kept.key, leaf) else None


def _to_be_signed(
    leaf: x509.Certificate,
    newest: x509.Certificate,
    now: datetime,
    names: Sequence[str],
    times: Lifetimes,
) -> bool:
    """Is a new certificate due? By an authority that is not yet trusted by all only if names are missing."""
    if not set(names) <= _names(leaf):
        return True
    if signed_by(leaf, newest):
        return _due(leaf, now)
    return _age(newest, now) >= times.overlap


def _all_names(leaf: x509.Certificate | None, now: datetime, names: Sequence[str]) -> list[str]:
    """If only names were missing, the former ones stay: replicas with different names must not alternate."""
    return sorted({*names, *(_names(leaf) if leaf is not None and not _due(leaf, now) else ())})


def _due(certificate: x509.Certificate, now: datetime) -> bool:
    """Is it in the last third of its validity?"""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_after_utc - life / 3


def _age(certificate: x509.Certificate, now: datetime) -> timedelta:
    return now - certificate.not_valid_before_utc - BACKDATED


def _names(leaf: x509.Certificate) -> set[str]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    addresses = {str(address) for address in found.get_values_for_type(x509.IPAddress)}
    return addresses | set(found.get_values_for_type(x509.DNSName))


def _normal(name: str) -> str:
    """As a certificate has it."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _new_authority(now: datetime, life: timedelta) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Clients differ in what they do with two authorities of one name.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"queuectl CA {serial:x}"[:40])])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _begun(subject, key, serial, now, life)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _signed(
    kept: Kept, authority: x509.Certificate, now: datetime, names: Sequence[str], life: timedelta
) -> Kept:
    signing = private_key(kept.authority_key)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "queuectl")])
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    life = min(life, authority.not_valid_after_utc - now)
    certificate = (
        _begun(subject, key, x509.random_serial_number(), now, life)
        .issuer_name(authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(signing, hashes.SHA256())
    )
    return replace(kept, chain=certificate.public_bytes(Encoding.PEM), key=_pem(key))


def _begun(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, serial: int, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _joined(authorities: Iterable[x509.Certificate]) -> bytes:
    return b"".join(authority.public_bytes(Encoding.PEM) for authority in authorities)
