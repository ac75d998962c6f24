"""An authority and its certificates, over years of an injected clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.certificates.material import Material, certificates, check, signed_by
from queuectl.certificates.renewal import Kept, Lifetimes, renewed
from tests.unit.certificates.issuing import DAY, NOW, key_pem, new_key

NAMES = ["queuectl-webhook.queuectl-system.svc", "127.0.0.1", "::1"]
TIMES = Lifetimes()


def material(kept: Kept) -> Material:
    return Material(chain=kept.chain, key=kept.key, bundle=kept.authorities)


def leaf(kept: Kept) -> x509.Certificate:
    return certificates(kept.chain)[0]


def authorities(kept: Kept) -> list[x509.Certificate]:
    return certificates(kept.authorities)


def test_nothing_becomes_a_pair_that_its_own_authority_vouches_for() -> None:
    made = renewed(Kept(), NOW, NAMES)
    assert check(material(made), NOW) == NOW + TIMES.serving
    names = leaf(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAMES[0]]
    assert {str(address) for address in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "::1"}
    assert renewed(made, NOW, NAMES) == made
    assert renewed(made, NOW + 59 * DAY, ["0:0:0:0:0:0:0:1"]) == made


def test_a_clock_an_hour_behind_accepts_what_is_made_now() -> None:
    check(material(renewed(Kept(), NOW, NAMES)), NOW - timedelta(minutes=59))


def test_the_certificate_is_renewed_when_its_last_third_begins() -> None:
    made = renewed(Kept(), NOW, NAMES)
    again = renewed(made, NOW + 61 * DAY, NAMES)
    assert again.authorities == made.authorities
    assert leaf(again) != leaf(made)
    assert check(material(again), NOW + 61 * DAY) == NOW + 61 * DAY + TIMES.serving


def test_a_new_authority_is_known_for_a_day_before_it_is_used_and_the_old_one_for_a_day_after() -> None:
    made = renewed(Kept(), NOW, NAMES)
    due = NOW + 488 * DAY
    before = renewed(made, due - 2 * DAY, NAMES)
    introduced = renewed(before, due, NAMES)
    old, new = authorities(introduced)
    assert old == authorities(before)[0]
    assert leaf(introduced) == leaf(before)
    assert renewed(introduced, due + 0.9 * DAY, NAMES) == introduced
    used = renewed(introduced, due + DAY, NAMES)
    assert authorities(used) == [old, new]
    assert signed_by(leaf(used), new)
    assert authorities(renewed(used, due + 1.9 * DAY, NAMES)) == [old, new]
    assert authorities(renewed(used, due + 2 * DAY, NAMES)) == [new]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=24 * 40), min_size=5, max_size=40))
def test_at_every_time_a_certificate_of_a_day_ago_is_trusted_and_the_other_way_round(
    hours: list[int],
) -> None:
    """A caller's bundle and a replica's certificate may each be up to a day old."""
    now, kept = NOW, renewed(Kept(), NOW, NAMES)
    seen: list[tuple[datetime, Kept]] = [(now, kept)]
    for pause in hours:
        now += timedelta(hours=pause)
        kept = renewed(kept, now, NAMES)
        check(material(kept), now)
        seen.append((now, kept))
        for at, earlier in seen:
            if now - at <= TIMES.overlap:
                check(replace(material(earlier), bundle=kept.authorities), now)
                check(replace(material(kept), bundle=earlier.authorities), now)


def test_after_a_long_sleep_all_is_made_anew() -> None:
    made = renewed(Kept(), NOW, NAMES)
    later = NOW + 5000 * DAY
    again = renewed(made, later, NAMES)
    check(material(again), later)
    assert len(authorities(again)) == 1


@pytest.mark.parametrize("field", ["authorities", "authority_key", "chain", "key"])
@pytest.mark.parametrize(
    "garbage", [b"", b"\xff\x00", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_can_t_be_read_is_made_anew(field: str, garbage: bytes) -> None:
    made = renewed(Kept(), NOW, NAMES)
    mended = renewed(replace(made, **{field: garbage}), NOW, NAMES)
    check(material(mended), NOW)
    assert renewed(mended, NOW, NAMES) == mended


def test_a_foreign_key_leads_to_a_new_authority_while_the_old_pair_stays_in_use() -> None:
    made = renewed(Kept(), NOW, NAMES)
    mended = renewed(replace(made, authority_key=key_pem(new_key())), NOW, NAMES)
    assert len(authorities(mended)) == 2
    assert mended.chain == made.chain


def test_a_name_that_is_missing_brings_a_new_certificate_with_the_old_names_too() -> None:
    made = renewed(Kept(), NOW, NAMES)
    more = renewed(made, NOW, ["other.example"])
    assert leaf(more) != leaf(made)
    assert renewed(more, NOW, NAMES) == more
    assert renewed(more, NOW, ["other.example"]) == more
