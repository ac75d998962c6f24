"""A reason has a code of a closed set, its numbers, and one sentence that is built from them."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.reasons import (
    FAMILIES,
    Code,
    ExcludedNodes,
    Family,
    Limit,
    NodeFinding,
    PreemptionCause,
    Reason,
    RejectedCandidate,
)
from queuectl.core.model.resources import format_amount

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scheduling.md"
NUMBERS = st.integers(0, 2**63 - 1)


def test_every_code_has_a_family_and_every_family_a_code() -> None:
    assert set(FAMILIES) == set(Code)
    assert set(FAMILIES.values()) == set(Family)


@pytest.mark.parametrize("family", Family)
def test_the_page_of_the_rules_lists_the_codes_of_each_family(family: Family) -> None:
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {family.value}"))
    listed = re.findall(r"`(\w+)`", row.split("|", 2)[2])
    assert listed == [code.value for code in Code if FAMILIES[code] is family]


def test_every_reason_has_a_code() -> None:
    with pytest.raises(TypeError):
        Reason(detail="it just waits")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="JustWaiting"):
        Code("JustWaiting")


@given(
    st.sampled_from([Code.WAITING_FOR_QUOTA, Code.EXCEEDS_MAX_QUOTA, Code.RESOURCE_NOT_COVERED]),
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]),
    NUMBERS,
    NUMBERS,
    NUMBERS,
)
def test_the_message_has_every_number_and_the_limit(
    code: Code, resource: str, requested: int, available: int, short_by: int
) -> None:
    reason = Reason(
        code=code,
        flavor="a100",
        resource=resource,
        requested=requested,
        available=available,
        short_by=short_by,
        limit=Limit.NOMINAL_QUOTA,
        node="ClusterQueue/team-a",
    )
    words = re.split(r"[ ,:()]+", reason.message)
    for amount in (requested, available, short_by):
        assert format_amount(resource, amount) in words
    for part in (code.value, resource, "a100", "nominalQuota", "ClusterQueue/team-a"):
        assert part in words


@pytest.mark.parametrize("code", Code)
def test_a_reason_without_numbers_has_its_object_and_its_cause(code: Code) -> None:
    cause = PreemptionCause.IN_CLUSTER_QUEUE
    reason = Reason(code=code, node="LocalQueue/ns/lq", cause=cause, by="ns/Job/other", detail="so it is")
    for part in (code.value, "LocalQueue/ns/lq", "InClusterQueue", "ns/Job/other", "so it is"):
        assert part in reason.message


def test_a_queue_above_its_quota_has_a_negative_available_amount() -> None:
    reason = Reason(code=Code.WAITING_FOR_QUOTA, resource="memory", requested=1024, available=-2048)
    assert "-2Ki available" in reason.message


FULL = Reason(
    code=Code.WAITING_FOR_QUOTA,
    flavor="a",
    resource="gpu",
    requested=3,
    available=2,
    short_by=1,
    reserved=True,
    awaited=2,
    until=datetime(2030, 1, 1, tzinfo=UTC),
    limit=Limit.NOMINAL_QUOTA,
    node="ClusterQueue/q",
    cause=PreemptionCause.IN_COHORT_RECLAMATION,
    by="ns/Job/preemptor",
    detail="so",
    considered="1 whose priority is not lower",
    victims=(RejectedCandidate("ns/Job/other", "its priority is not lower"),),
    pods=4,
    pods_fit=2,
    nodes=(NodeFinding("n1", 2), ExcludedNodes(3, "cordoned")),
    others=(Reason(code=Code.EXCEEDS_MAX_QUOTA),),
)


@pytest.mark.parametrize("name", [field.name for field in fields(Reason)])
def test_a_reason_is_new_unless_only_its_numbers_and_times_change(name: str) -> None:
    other: object = None
    if name == "code":
        other = Code.EXCEEDS_MAX_QUOTA
    elif name == "nodes":
        other = (NodeFinding("n2", 1), ExcludedNodes(4, "cordoned"))
    elif name in ("others", "victims"):
        other = ()
    elif name == "reserved":
        other = False
    changed = replace(FULL, **{name: other})  # type: ignore[arg-type]
    numbers = name in (
        *("requested", "available", "short_by", "reserved", "awaited", "until"),
        *("others", "considered", "victims", "pods", "pods_fit", "nodes"),
    )
    assert (changed.key == FULL.key) is numbers


def test_a_reason_is_the_same_while_only_the_number_of_excluded_nodes_changes() -> None:
    assert replace(FULL, nodes=(ExcludedNodes(4, "cordoned"),)).key == FULL.key
    assert replace(FULL, nodes=(ExcludedNodes(3, "not ready"),)).key != FULL.key
