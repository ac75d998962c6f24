"""Reasons of failed connections have no words of a library."""

from __future__ import annotations

import ssl

import aiohttp
import pytest

from queuectl.net.failures import MOST, why


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(111, "Connect call failed ('127.0.0.1', 9)"), "Connection refused (127.0.0.1:9)"),
        ("[Errno 111] Connect call failed ('::1', 9, 0, 0)", "Connection refused ([::1]:9)"),
        ("Connect call failed ('127.0.0.1', 9)", "no connection (127.0.0.1:9)"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (
            "Cannot connect to host a.example:443 ssl:default [Name or service not known]",
            "a.example:443: Name or service not known",
        ),
        (
            ssl.SSLError(1, "[X509: NO_CERTIFICATE_OR_CRL_FOUND] no certificate or crl found (_ssl.c:4154)"),
            "it has no certificate (PEM)",
        ),
        (
            ssl.SSLError(
                1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: expired (_ssl.c:100)"
            ),
            "certificate verify failed: expired",
        ),
        (
            "Cannot connect to host a:1 ssl:True [SSLCertVerificationError: "
            "(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: expired (_ssl.c:100)')]",
            "a:1: certificate verify failed: expired",
        ),
        (aiohttp.InvalidURL("foo/bar"), "the URL is not valid"),
        (aiohttp.ServerDisconnectedError(), "Server disconnected"),
        (
            aiohttp.ClientPayloadError("Response payload is not completed: <TransferEncodingError: 400>"),
            "the answer is not complete",
        ),
        (OSError(), "the connection ended"),
        (OSError("x" * 1000), "x" * MOST),
    ],
)
def test_a_reason_has_no_words_of_a_library(error: object, told: str) -> None:
    assert why(error) == told
