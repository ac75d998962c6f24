"""Loans between queues: tables and random trees."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.answers.queue_states import quota_tree
from queuectl.answers.statements import (
    QueueAccount,
    Statement,
    TooLong,
    TooManySteps,
    account,
    equal_steps,
    fair_amount,
    of_cohort,
    statements,
    total,
    totals,
)
from queuectl.core.model.policy import ClusterQueue, Cohort
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import ConfigKey
from queuectl.core.quota.tree import QuotaTree
from queuectl.kinds.policy import parse_policy
from queuectl.ports.reader import Held, PastHolds, Revision
from tests.unit.api.canned import EPOCH_START, GPU, queue_spec
from tests.unit.api.conftest import Rest
from tests.unit.core import profiles

CELL = FlavorResource("a100", GPU)


def statement(name: str, past: PastHolds, since: datetime, until: datetime) -> Statement:
    """Of ClusterQueue `name` over a whole time."""
    return total(statements(name, past, (since, until), parse_policy))


def quota(gpus: int, lending: int | None = None) -> list[dict[str, Any]]:
    resource: dict[str, Any] = {"name": GPU, "nominalQuota": str(gpus)}
    if lending is not None:
        resource["lendingLimit"] = str(min(lending, gpus))
    return [{"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": [resource]}]}]


def tree(*nodes: tuple[str, str, str | None, int, int | None]) -> QuotaTree:
    """Kind, name, cohort, GPUs, lending limit."""
    found: dict[ConfigKey, ClusterQueue | Cohort | str] = {}
    for kind, name, above, gpus, lending in nodes:
        spec: dict[str, Any] = {"resourceGroups": quota(gpus, lending)}
        if kind == "ClusterQueue":
            spec["namespaceSelector"] = {}
        if above is not None:
            spec["cohortName" if kind == "ClusterQueue" else "parentName"] = above
        key = ConfigKey(kind, "", name)
        policy = parse_policy(key, json.dumps(spec))
        assert isinstance(policy, ClusterQueue | Cohort)
        found[key] = policy
    return quota_tree(found, {})


def of(made: QuotaTree, name: str, **used: int) -> QueueAccount:
    return account(made.queue(name), made.cell(CELL), used)


def test_a_queue_within_its_quota_borrows_nothing_and_the_rest_is_idle() -> None:
    made = tree(("ClusterQueue", "a", "all", 8, None), ("ClusterQueue", "b", "all", 8, None))
    assert of(made, "a", a=5, b=8) == QueueAccount(guaranteed=8, used=5, idle=3)


def test_what_is_borrowed_comes_from_each_lender_in_proportion_to_what_it_leaves() -> None:
    made = tree(
        ("ClusterQueue", "a", "all", 0, None),
        ("ClusterQueue", "b", "all", 6, None),
        ("ClusterQueue", "c", "all", 12, None),
    )
    found = of(made, "a", a=6, c=0, b=0)
    assert found.borrowed_from == {"ClusterQueue/b": 2, "ClusterQueue/c": 4}
    assert of(made, "c", a=6) == QueueAccount(guaranteed=12, lent=4, idle=8, lent_to={"a": 4})


def test_the_nearest_cohort_lends_first_and_its_own_quota_too() -> None:
    made = tree(
        ("Cohort", "all", None, 4, None),
        ("Cohort", "north", "all", 0, None),
        ("ClusterQueue", "a", "north", 2, None),
        ("ClusterQueue", "b", "north", 2, None),
        ("ClusterQueue", "c", "all", 0, None),
    )
    found = of(made, "a", a=6, c=2)
    assert found.borrowed_from == {"ClusterQueue/b": 2, "Cohort/all": 2}
    assert of(made, "c", a=6, c=2).borrowed_from == {"Cohort/all": 2}


def test_a_lending_limit_bounds_what_a_node_lends() -> None:
    made = tree(
        ("ClusterQueue", "a", "all", 0, None),
        ("ClusterQueue", "b", "all", 9, 1),
        ("ClusterQueue", "c", "all", 9, None),
    )
    assert of(made, "a", a=10).borrowed_from == {"ClusterQueue/b": 1, "ClusterQueue/c": 9}


def test_usage_that_no_node_can_lend_is_beyond_the_quota_of_the_tree() -> None:
    made = tree(("ClusterQueue", "a", "all", 2, None), ("ClusterQueue", "b", "all", 3, None))
    found = of(made, "a", a=9, b=1)
    assert (found.borrowed, found.beyond, found.borrowed_from) == (7, 5, {"ClusterQueue/b": 2})


NAMES = "abcdef"


@st.composite
def lives(draw: st.DrawFn) -> tuple[QuotaTree, dict[str, int]]:
    amount, limit = st.integers(0, 9), st.none() | st.integers(0, 9)
    cohorts: list[tuple[str, str, str | None, int, int | None]]
    cohorts = [("Cohort", "all", None, draw(amount), None)]
    for n in range(draw(st.integers(0, 2))):
        above = draw(st.sampled_from([name for _, name, *_ in cohorts]))
        cohorts.append(("Cohort", f"k{n}", above, draw(amount), draw(limit)))
    above_queues = st.sampled_from([name for _, name, *_ in cohorts])
    queues = [
        ("ClusterQueue", name, draw(above_queues), draw(amount), draw(limit))
        for name in NAMES[: draw(st.integers(1, 6))]
    ]
    return tree(*cohorts, *queues), {name: draw(st.integers(0, 20)) for _, name, *_ in queues}


@given(lives(), st.sampled_from([1, 7, 3_600_000_000]))
@settings(max_examples=profiles.examples(150), deadline=None)
def test_what_is_borrowed_is_what_is_lent(life: tuple[QuotaTree, dict[str, int]], times: int) -> None:
    made, used = life
    found = {name: account(made.queue(name), made.cell(CELL), used, times) for name in used}
    for name, one in found.items():
        assert one.borrowed == one.beyond + sum(one.borrowed_from.values())
        assert one.borrowed == max(0, one.used - one.guaranteed)
        assert one.guaranteed == min(one.used, one.guaranteed) + one.lent + one.idle
        assert one.idle >= 0
        assert not one.lent or not one.borrowed
        limit = made.queue(name).lending[made.cell(CELL)]
        assert limit is None or one.lent <= limit * times
        assert one.lent == sum(one.lent_to.values())
        for borrower, amount in one.lent_to.items():
            assert found[borrower].borrowed_from[f"ClusterQueue/{name}"] == amount
        for lender, amount in one.borrowed_from.items():
            kind, _, lends = lender.partition("/")
            assert kind == "Cohort" or found[lends].lent_to[name] == amount


# --- over a time


def past(*holds: Held, revisions: tuple[Revision, ...]) -> PastHolds:
    return PastHolds(list(holds), list(revisions), EPOCH_START)


def minutes(number: float) -> Any:
    return EPOCH_START + timedelta(minutes=number)


def revision(name: str, gpus: int, since: float = 0, until: float | None = None) -> Revision:
    spec = queue_spec(gpus, cohort="all")
    end = None if until is None else minutes(until)
    return Revision(ConfigKey("ClusterQueue", "", name), spec, minutes(since), end)


def hours(found: Statement) -> dict[str, float]:
    one = found[CELL]
    names = ("guaranteed", "used", "borrowed", "beyond", "lent", "idle")
    return {name: getattr(one, name) / 3_600_000_000 for name in names if getattr(one, name)}


def test_a_change_of_quota_counts_from_its_time() -> None:
    held = Held("a", *CELL, 6, minutes(-60), minutes(90))
    found = past(
        held,
        revisions=(revision("a", 2, -100, 60), revision("a", 4, 60), revision("b", 8, -100)),
    )
    statement_of_a = statement("a", found, minutes(0), minutes(120))
    assert hours(statement_of_a) == {"guaranteed": 6, "used": 9, "borrowed": 5, "idle": 2}
    assert statement_of_a[CELL].borrowed_from == {"ClusterQueue/b": 5 * 3_600_000_000}
    statement_of_b = statement("b", found, minutes(0), minutes(120))
    assert hours(statement_of_b) == {"guaranteed": 16, "lent": 5, "idle": 11}


def test_a_time_with_too_many_changes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuectl.answers.statements.MOST_STEPS", 20)
    holds = [Held("a", *CELL, 1, minutes(n), minutes(n + 0.5)) for n in range(20)]
    with pytest.raises(TooLong):
        statement("a", past(*holds, revisions=(revision("a", 2),)), minutes(0), minutes(60))


def test_a_time_with_too_many_loans_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten queues that lend, and as many that borrow, in one cohort."""
    names = [f"q{number}" for number in range(20)]
    holds = [Held(name, *CELL, 4, minutes(0), minutes(60)) for name in names[::2]]
    found = past(*holds, revisions=tuple(revision(name, 2) for name in names))
    told = statement("q1", found, minutes(0), minutes(60))
    assert len(told[CELL].lent_to) == 10
    monkeypatch.setattr("queuectl.answers.statements.MOST_PAIRS", 99)
    with pytest.raises(TooLong):
        statement("q1", found, minutes(0), minutes(60))


def test_a_queue_counts_while_it_is_in_the_cohort() -> None:
    def at(cohort: str, since: float, until: float | None = None) -> Revision:
        end = None if until is None else minutes(until)
        key = ConfigKey("ClusterQueue", "", "a")
        return Revision(key, queue_spec(2, cohort=cohort), minutes(since), end)

    holds = past(
        Held("a", "a100", GPU, 3, minutes(0), None),
        revisions=(at("all", 0, 30), at("apart", 30), revision("b", 4)),
    )
    bounds = minutes(0), minutes(90)
    [whole] = of_cohort("all", holds, bounds, parse_policy)
    assert hours(whole["a"]) == {"guaranteed": 1, "used": 1.5, "borrowed": 0.5}
    assert hours(whole["b"]) == {"guaranteed": 6, "lent": 0.5, "idle": 5.5}
    [apart] = of_cohort("apart", holds, bounds, parse_policy)
    assert {name: hours(one) for name, one in apart.items()} == {
        "a": {"guaranteed": 2, "used": 3, "borrowed": 1, "beyond": 1}
    }
    assert of_cohort("none", holds, bounds, parse_policy) == [{}]
    halves = minutes(0), minutes(45), minutes(90)
    first, second = of_cohort("all", holds, halves, parse_policy)
    assert hours(first["a"]) == {"guaranteed": 1, "used": 1.5, "borrowed": 0.5}
    assert hours(second["a"]) == {}
    assert totals([first, second]) == whole
    assert totals(of_cohort("none", holds, halves, parse_policy)) == {}


@given(steps=st.integers(1, 96))
@settings(max_examples=10, deadline=None)
def test_the_steps_of_a_statement_add_up_to_it(steps: int) -> None:
    found = past(
        Held("a", "a100", GPU, 6, minutes(10), minutes(55)),
        Held("b", "a100", GPU, 5, minutes(20), None),
        revisions=(revision("a", 2, until=40), revision("a", 4, since=40), revision("b", 4)),
    )
    bounds = equal_steps(minutes(0), minutes(90), steps)
    assert (bounds[0], bounds[-1], len(bounds)) == (minutes(0), minutes(90), steps + 1)
    parts = statements("a", found, bounds, parse_policy)
    assert total(parts) == statement("a", found, minutes(0), minutes(90))
    each = [statement("a", found, *pair).get(CELL) for pair in pairwise(bounds)]
    assert [one for one in (part[CELL] for part in parts) if one.used] == [
        one for one in each if one and one.used
    ]


@given(steps=st.integers(1, 96))
@settings(max_examples=10, deadline=None)
def test_the_steps_of_a_cohort_are_those_of_each_of_its_queues(steps: int) -> None:
    found = past(
        Held("a", "a100", GPU, 6, minutes(10), minutes(55)),
        Held("b", "a100", GPU, 5, minutes(20), None),
        revisions=(revision("a", 2, until=40), revision("a", 4, since=40), revision("b", 4)),
    )
    bounds = equal_steps(minutes(0), minutes(90), steps)
    parts = of_cohort("all", found, bounds, parse_policy)
    each = {name: statements(name, found, bounds, parse_policy) for name in "ab"}
    assert parts == [{name: each[name][step] for name in "ab"} for step in range(steps)]
    assert totals(parts) == {name: total(each[name]) for name in "ab"}


def test_steps_with_too_many_accounts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queues with one cell each: so many in each step."""
    monkeypatch.setattr("queuectl.answers.statements.MOST_ACCOUNTS", 6)
    found = past(revisions=(revision("a", 2), revision("b", 4)))
    assert len(of_cohort("all", found, equal_steps(minutes(0), minutes(90), 3), parse_policy)) == 3
    with pytest.raises(TooManySteps):
        of_cohort("all", found, equal_steps(minutes(0), minutes(90), 4), parse_policy)
    monkeypatch.setattr("queuectl.answers.statements.MOST_ACCOUNTS", 1)
    assert len(of_cohort("all", found, (minutes(0), minutes(90)), parse_policy)) == 1


def test_steps_with_too_many_loans_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queue b lends to queue a in each step: one loan in each of the two accounts."""
    monkeypatch.setattr("queuectl.answers.statements.MOST_LOANS", 6)
    found = past(Held("a", "a100", GPU, 3, minutes(0), None), revisions=(revision("a", 2), revision("b", 4)))
    assert len(of_cohort("all", found, equal_steps(minutes(0), minutes(90), 3), parse_policy)) == 3
    with pytest.raises(TooManySteps):
        of_cohort("all", found, equal_steps(minutes(0), minutes(90), 4), parse_policy)


# --- fair amounts


@pytest.mark.parametrize(
    ("used", "waiting", "fair"),
    [
        ({}, "", {"a": 24, "b": 24, "c": 24}),
        ({}, "ab", {"a": 12, "b": 12, "c": 8}),
        ({"a": 20}, "", {"a": 24, "b": 12, "c": 12}),
        ({"a": 16, "c": 6}, "ab", {"a": 9, "b": 9, "c": 8}),
    ],
)
def test_a_queue_s_fair_amount_is_its_quota_and_its_part_of_what_those_that_do_not_want_it_leave(
    used: dict[str, int], waiting: str, fair: dict[str, int]
) -> None:
    """The fair amount of a queue that neither borrows nor waits is as if it did."""
    made = tree(*(("ClusterQueue", name, "all", 8, None) for name in "abc"))
    cell = made.cell(CELL)
    for name, amount in used.items():
        made.add(made.queue(name), [(cell, amount)])
    assert {name: fair_amount(made.queue(name), cell, lambda one: one in waiting) for name in "abc"} == fair


# --- REST

SHARE = "/api/v1/clusterqueues/team-a/share"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("since=yesterday", "parameter since must be a time with its zone, such as 2030-01-31T08:00:00Z"),
        ("since=2026-01-01T00:00:00", "parameter since must be a time with its zone"),
        ("until=2026-01-01T00:00:00Z", "parameter until goes with since"),
        ("steps=2", "parameter steps goes with since"),
        ("since=2026-01-01T00:00:00Z&steps=97", "parameter steps must be a whole number from 1 to 96"),
        (
            "since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
            "parameter since must be before 2026-01-01",
        ),
        ("since=2999-01-02T00:00:00Z", "parameter since must be before 2026-01-05"),
    ],
)
async def test_a_time_that_cannot_be_told_of_is_refused(rest: Rest, asked: str, says: str) -> None:
    assert says in await rest.refused(rest.client.get(f"{SHARE}?{asked}"), 400)


async def test_a_time_with_too_much_history_is_refused(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuectl.answers.statements.MOST_STEPS", 0)
    found = await rest.refused(rest.client.get(f"{SHARE}?since=2026-01-01T00:00:00Z"), 400)
    assert "ask for a shorter time" in found


async def test_without_a_time_there_is_no_statement(rest: Rest) -> None:
    found = await rest.get(SHARE)
    assert found["statement"] is None
    [one] = found["accounts"]
    assert (one["guaranteed"], one["used"], one["idle"], one["fair"]) == (8, 6, 2, None)


async def test_with_steps_a_statement_has_each_equal_part_of_its_time(rest: Rest) -> None:
    rest.readings.held = [Held("team-a", "a100", GPU, 6, EPOCH_START - timedelta(hours=1), None)]
    found = await rest.get(SHARE, since="2026-01-05T08:00:00Z", until="2026-01-05T10:00:00Z", steps="4")
    steps = found["statement"]["steps"]
    assert [one["since"] for one in steps] == [
        f"2026-01-05T{at}:00Z" for at in ("08:00", "08:30", "09:00", "09:30")
    ]
    assert [one["accounts"][0]["used"] for one in steps] == [0, 0, 3, 3]
    assert (await rest.get(SHARE, since="2026-01-05T08:00:00Z"))["statement"]["steps"] == []


async def test_with_steps_the_statement_of_a_cohort_has_each_of_its_queues_in_each_step(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest.readings.commit(configs={ConfigKey("ClusterQueue", "", "guest"): queue_spec(1, cohort="all")})
    rest.readings.held = [
        Held("team-a", "a100", GPU, 6, EPOCH_START - timedelta(hours=1), None),
        Held("guest", "a100", GPU, 2, EPOCH_START - timedelta(hours=1), None),
    ]
    await rest.view.refresh()
    times = {"since": "2026-01-05T08:00:00Z", "until": "2026-01-05T10:00:00Z", "steps": "4"}
    steps = (await rest.get("/api/v1/cohorts/all/share", **times))["statement"]["steps"]
    for name in ("guest", "team-a"):
        alone = (await rest.get(f"/api/v1/clusterqueues/{name}/share", **times))["statement"]["steps"]
        assert any(one["accounts"][0]["used"] for one in alone)
        for step, own in zip(steps, alone, strict=True):
            assert (step["since"], step["until"]) == (own["since"], own["until"])
            mine = [dict(one) for one in step["accounts"] if one["clusterQueue"] == name]
            assert [one for one in mine if one.pop("clusterQueue")] == own["accounts"]
    assert "parameter steps goes with since" in await rest.refused(
        rest.client.get("/api/v1/cohorts/all/share?steps=2"), 400
    )
    monkeypatch.setattr("queuectl.answers.statements.MOST_ACCOUNTS", 7)
    refused = await rest.refused(rest.client.get("/api/v1/cohorts/all/share", params=times), 400)
    assert "parameter steps: 4 steps have more than" in refused


async def test_the_share_of_a_cohort_has_each_of_its_queues(rest: Rest) -> None:
    rest.readings.commit(configs={ConfigKey("ClusterQueue", "", "guest"): queue_spec(1, cohort="all")})
    rest.readings.held = [
        Held("team-a", "a100", GPU, 6, EPOCH_START - timedelta(hours=1), None),
        Held("guest", "a100", GPU, 2, EPOCH_START - timedelta(hours=1), None),
    ]
    await rest.view.refresh()
    times = {"since": "2026-01-05T08:00:00Z", "until": "2026-01-05T10:00:00Z"}
    found = await rest.get("/api/v1/cohorts/all/share", **times)
    assert [(one["clusterQueue"], one["used"]) for one in found["accounts"]] == [("guest", 0), ("team-a", 6)]
    for one in found["statement"]["accounts"]:
        alone = await rest.get(f"/api/v1/clusterqueues/{one.pop('clusterQueue')}/share", **times)
        assert [one] == alone["statement"]["accounts"]
    guest, team = found["statement"]["accounts"]
    assert guest["borrowedFrom"] == [{"node": "ClusterQueue/team-a", "amount": 1}]
    assert team["lentTo"] == [{"node": "ClusterQueue/guest", "amount": 1}]
    assert found["statement"]["steps"] == []
    assert (await rest.get("/api/v1/cohorts/all/share"))["statement"] is None
    await rest.refused(rest.client.get("/api/v1/cohorts/nothing/share"), 404)
