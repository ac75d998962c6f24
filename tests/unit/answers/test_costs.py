"""What usage costs: rates, rounding, who pays for free and lost capacity, corrections (B7 to B12)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.answers.costs import charges, computable, cost_by, differences, unpriced
from queuectl.core.model.resources import CPU
from queuectl.core.model.workload import ConfigKey
from queuectl.ports.periods import Piece
from queuectl.ports.rates import (
    FreePayer,
    LostPayer,
    Rate,
    RateCard,
    cost_of,
    decimal,
    hour_unit,
    in_units,
    money,
    rounded,
    shares_of,
)
from queuectl.ports.reader import BookedOn, CapacitySum, Revision, UsageOfTime, UsageSumOf
from queuectl.ports.statements import BillableMonth, ChargeKind, LostHold, StatementLine

GPU = "nvidia.com/gpu"
HOUR = 3_600_000_000
BEGINS = datetime(2026, 11, 1, tzinfo=UTC)
NOVEMBER = Piece(BEGINS, datetime(2026, 12, 1, tzinfo=UTC))
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def rate(
    price: str,
    flavor: str | None = None,
    priority_class: str | None = None,
    begins: datetime = LONG_AGO,
    resource: str = GPU,
) -> Rate:
    return Rate(resource, flavor, priority_class, begins, decimal(price), decimal(price))


def card(*rates: Rate, free: FreePayer = FreePayer.NOBODY, lost: LostPayer = LostPayer.HOLDER) -> RateCard:
    return RateCard("EUR", 2, None, free, lost, rates)


def booked(user: str, priority_class: str | None = None, **account: str) -> BookedOn:
    return BookedOn(f"ns-{user}", "main", None, user, priority_class, account)


def held(hours: int, user: str = "ada", flavor: str = "a100", resource: str = GPU, **of: str) -> UsageSumOf:
    return UsageSumOf(booked(user, **of), f"queue-{user}", flavor, resource, hours * HOUR)


def month(*rows: UsageSumOf, free: int = 0, lost: list[LostHold] | None = None) -> BillableMonth:
    capacity = CapacitySum("a100", GPU, 0, 0, 0, 0, free * HOUR, 0)
    return BillableMonth([UsageOfTime(*NOVEMBER, list(rows), [capacity])], lost or [], [])


def all_of(found: list[StatementLine], kind: ChargeKind) -> list[tuple[str | None, int, str]]:
    """Users, hours, costs."""
    return [
        (line.booked.user if line.booked else line.cluster_queue, line.amount // HOUR, money(line.cost, 6))
        for line in found
        if line.kind is kind
    ]


@pytest.mark.parametrize(
    ("cores", "gib", "billing"),
    [(1, 60, "16.000000"), (16, 1, "16.250000"), (16, 60, "31.000000")],
)
def test_the_billing_weights_of_slurm_are_rates(cores: int, gib: int, billing: str) -> None:
    """TRESBillingWeights=CPU=1.0,Mem=0.25G: Slurm bills 16, 16 (it truncates 16.25) and 31. It can also bill
    the largest alone (MAX_TRES: 15, 16 and 16), which rates cannot."""
    rates = card(rate("1", resource=CPU), rate("0.25", resource="memory"))
    rows = held(1000 * cores, resource=CPU), held(gib << 30, resource="memory")
    found = charges(month(*rows), rates.pieces(NOVEMBER), rates)
    assert money(sum(line.cost for line in found), 6) == billing


@pytest.mark.parametrize(
    ("flavor", "priority_class", "day", "price"),
    [
        ("a100", None, 10, "2.000000"),
        ("a100", "low", 10, "1.500000"),
        ("h100", "low", 10, "0.500000"),
        ("h100", None, 10, "1.000000"),
        ("a100", None, 15, "3.000000"),
        ("a100", "low", 15, "1.500000"),
    ],
)
def test_the_rate_that_names_most_counts_and_of_these_the_last(
    flavor: str, priority_class: str | None, day: int, price: str
) -> None:
    rates = card(
        rate("3", "a100", begins=BEGINS + timedelta(days=14)),
        rate("1"),
        rate("0.50", None, "low"),
        rate("2", "a100"),
        rate("1.5", "a100", "low"),
        rate("9", "a100", begins=BEGINS + timedelta(days=200)),
        rate("7", resource=CPU),
    )
    found = rates.rate(flavor, GPU, priority_class, datetime(2026, 11, day, tzinfo=UTC))
    assert found is not None
    assert money(found.price, 6) == price
    assert rates.rate(flavor, GPU, priority_class, LONG_AGO - timedelta(seconds=1)) is None


def test_hours_on_both_sides_of_a_new_rate_are_charged_by_its_date() -> None:
    middle = BEGINS + timedelta(days=10, hours=7)
    rates = card(rate("2"), rate("3", begins=middle))
    pieces = rates.pieces(NOVEMBER)
    assert pieces == [Piece(BEGINS, middle), Piece(middle, NOVEMBER.ends)]
    times = [UsageOfTime(*pieces[0], [held(5)], []), UsageOfTime(*pieces[1], [held(7)], [])]
    found = charges(BillableMonth(times, [], []), pieces, rates)
    assert [(line.begins, money(line.cost, 2)) for line in found] == [(BEGINS, "10.00"), (middle, "21.00")]


def test_units_are_devices_cores_and_gibibytes() -> None:
    rates = card(rate("2"), rate("0.04", resource=CPU), rate("0.005", resource="memory"))
    rows = (held(3), held(2500, resource=CPU), held(8 << 30, resource="memory"), held(1, resource="pods"))
    found = charges(month(*rows), [NOVEMBER], rates)
    assert [money(line.cost, 6) for line in found] == ["6.000000", "0.100000", "0.040000", "0.000000"]
    assert unpriced(found) == [("a100", "pods")]


def test_free_capacity_is_paid_by_nobody_by_use_or_by_quota() -> None:
    rows = (held(30), held(10, "bob"), held(99, "eve", "spot"))
    spec = json.dumps(
        {
            "resourceGroups": [
                {
                    "coveredResources": [GPU],
                    "flavors": [{"name": "a100", "resources": [{"name": GPU, "nominalQuota": "6"}]}],
                }
            ]
        }
    )

    def queue(name: str, since: datetime, until: datetime | None = None) -> Revision:
        return Revision(ConfigKey("ClusterQueue", "", name), spec, since, until)

    policies = [
        queue("queue-b", LONG_AGO),
        queue("queue-a", LONG_AGO, BEGINS + timedelta(days=15)),
        Revision(ConfigKey("ClusterQueue", "", "broken"), "{", LONG_AGO, None),
    ]
    found = {
        payer: all_of(
            charges(
                month(*rows, free=90)._replace(policies=policies), [NOVEMBER], card(rate("2"), free=payer)
            ),
            ChargeKind.FREE,
        )
        for payer in FreePayer
    }
    assert found == {
        FreePayer.NOBODY: [],
        # 30 and 10 of 40 hours.
        FreePayer.BY_USE: [("ada", 67, "135.000000"), ("bob", 22, "45.000000")],
        # Half of the month against the whole.
        FreePayer.BY_QUOTA: [("queue-a", 30, "60.000000"), ("queue-b", 60, "120.000000")],
    }


def test_what_was_lost_is_credited_at_the_rates_of_its_time() -> None:
    middle = BEGINS + timedelta(days=10)
    evicted = middle + timedelta(hours=3)
    rates = card(rate("2"), rate("3", begins=middle))
    hold = LostHold(booked("ada"), "q", "a100", GPU, 4, middle - timedelta(hours=2), evicted, evicted)
    billable = month(held(100), lost=[hold])
    billable = billable._replace(times=[*billable.times, UsageOfTime(middle, NOVEMBER.ends, [], [])])
    pieces = rates.pieces(NOVEMBER)
    assert all_of(charges(billable, pieces, rates), ChargeKind.LOST) == []
    credited = charges(billable, pieces, replace(rates, lost=LostPayer.NOBODY))
    assert all_of(credited, ChargeKind.LOST) == [("ada", 8, "-16.000000"), ("ada", 12, "-36.000000")]
    # It is in the time of the eviction, also what was held before that.
    assert {line.begins for line in credited if line.kind is ChargeKind.LOST} == {middle}


def test_what_history_lacks_is_said() -> None:
    gone = month(held(1))._replace(lost=None, policies=None)
    assert computable(month(), card(free=FreePayer.BY_QUOTA)) == {
        ChargeKind.USAGE,
        ChargeKind.FREE,
        ChargeKind.LOST,
    }
    nobody = LostPayer.NOBODY
    assert computable(gone, card(free=FreePayer.BY_QUOTA, lost=nobody)) == {ChargeKind.USAGE}
    assert computable(gone, card(free=FreePayer.BY_USE, lost=nobody)) == {ChargeKind.USAGE, ChargeKind.FREE}
    assert computable(gone, card()) == set(ChargeKind)


def test_a_correction_is_what_is_missing_and_a_second_one_is_empty() -> None:
    before = charges(month(held(10), held(4, "bob")), [NOVEMBER], card(rate("2")))
    now = charges(month(held(10), held(5, "bob")), [NOVEMBER], card(rate("2")))
    found = differences(now, before, "2026-11", "late")
    assert [(line.amount // HOUR, money(line.cost, 2), line.of_month, line.reason) for line in found] == [
        (1, "2.00", "2026-11", "late")
    ]
    assert differences(now, [*before, *found], "2026-11", "again") == []


def test_a_new_rate_is_a_reversal_and_a_new_line() -> None:
    before = charges(month(held(10)), [NOVEMBER], card(rate("2")))
    now = charges(month(held(10)), [NOVEMBER], card(rate("2.5")))
    found = differences(now, before, "2026-11", "discount was missing")
    assert sorted((line.amount // HOUR, money(line.cost, 2)) for line in found) == [
        (-10, "-20.00"),
        (10, "25.00"),
    ]


def everything(namespace: str | None) -> bool:
    return True


def test_thirds_of_a_cent_add_up_to_the_total() -> None:
    rows = (held(1), held(1, "bob"), held(1, "eve"))
    found = charges(month(*rows), [NOVEMBER], card(rate("0.333333")))
    lines = cost_by(found, ("user",), everything, 2)
    assert [(line.keys, line.cost) for line in lines] == [
        ({"user": "ada"}, "0.34"),
        ({"user": "bob"}, "0.33"),
        ({"user": "eve"}, "0.33"),
    ]


def test_costs_are_divided_by_kinds_resources_and_account_keys() -> None:
    rows = (held(2, project="blue"), held(3, "bob", project="red"), held(1000, resource=CPU, project="blue"))
    found = charges(month(*rows), [NOVEMBER], card(rate("2"), rate("0.5", resource=CPU)))
    found += [line._replace(of_month="2026-10", cost=-line.cost) for line in found[:1]]
    assert [
        (*line.keys.values(), line.cost, line.amount)
        for line in cost_by(found, ("project", "kind"), everything, 2)
    ] == [
        ("red", "Usage", "6.00", None),
        ("blue", "Usage", "4.50", None),
        ("blue", "Correction of 2026-10", "-4.00", None),
    ]
    by_resource = cost_by(found, ("resource",), everything, 2)
    assert {line.keys["resource"]: line.amount for line in by_resource} == {
        GPU: str(7 * HOUR),
        CPU: str(1000 * HOUR),
    }


def test_a_tenant_sees_one_line_of_others() -> None:
    found = charges(month(held(2), held(3, "bob"), held(4, "eve")), [NOVEMBER], card(rate("1")))
    lines = cost_by(found, ("user",), lambda namespace: namespace == "ns-ada", 2)
    assert [(line.keys, line.others, line.cost) for line in lines] == [
        ({"user": "ada"}, False, "2.00"),
        ({"user": None}, True, "7.00"),
    ]


AMOUNTS = st.integers(-(10**18), 10**18)


@given(st.lists(AMOUNTS, max_size=30), st.sampled_from([1, 100, 10_000, 10**6]))
def test_rounded_parts_add_up_to_the_rounded_total_and_each_is_off_by_less_than_a_unit(
    values: list[int], unit: int
) -> None:
    found = in_units(values, unit)
    assert sum(found) == rounded(sum(values), unit)
    assert all(abs(part * unit - value) < unit for part, value in zip(found, values, strict=True))


@given(st.integers(0, 10**30), st.lists(st.integers(0, 10**20), min_size=1, max_size=20).filter(any))
def test_shares_add_up_and_each_is_off_by_less_than_one(total: int, weights: list[int]) -> None:
    found = shares_of(total, weights)
    assert sum(found) == total
    for part, weight in zip(found, weights, strict=True):
        assert abs(part - Fraction(total * weight, sum(weights))) < 1


@given(AMOUNTS, st.integers(0, 10**12), st.sampled_from([GPU, CPU, "memory"]))
def test_a_cost_is_the_exact_product_rounded_half_to_even(amount: int, price: int, resource: str) -> None:
    exact = Fraction(amount * price, hour_unit(resource)[1] * HOUR)
    assert cost_of(resource, amount, price) == round(exact)


@given(AMOUNTS)
def test_money_reads_as_it_is_written(value: int) -> None:
    assert decimal(money(value, 6)) == value


@given(
    st.lists(
        st.tuples(st.integers(1, 10**15), st.sampled_from(["ada", "bob", "eve"]), st.sampled_from("ab")),
        max_size=20,
    ),
    st.integers(0, 10**9),
    st.sampled_from([0, 2, 4]),
)
def test_lines_add_up_to_the_total_by_any_axes(
    rows: list[tuple[int, str, str]], price: int, decimals: int
) -> None:
    usage = [UsageSumOf(booked(user), "q", flavor, GPU, amount) for amount, user, flavor in rows]
    found = charges(month(*usage), [NOVEMBER], card(Rate(GPU, None, None, LONG_AGO, price, price)))
    total = sum(line.cost for line in found)
    unit = 10 ** (6 - decimals)
    for by in (("user",), ("flavor",), ("user", "flavor", "kind")):
        lines = cost_by(found, by, everything, decimals)
        assert sum(decimal(line.exact) for line in lines) == total
        assert sum(decimal(line.cost) for line in lines) == rounded(total, unit) * unit


MONTHS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(1, 10**15), st.sampled_from(["ada", "bob"]), st.sampled_from("ab")),
            max_size=5,
        ),
        st.integers(0, 10**9),
    ),
    min_size=2,
    max_size=5,
)


@given(MONTHS)
def test_a_month_and_its_corrections_are_what_was_computed_last(
    computed: list[tuple[list[tuple[int, str, str]], int]],
) -> None:
    stored: list[StatementLine] = []
    for rows, price in computed:
        usage = [UsageSumOf(booked(user), "q", flavor, GPU, amount) for amount, user, flavor in rows]
        now = charges(month(*usage), [NOVEMBER], card(Rate(GPU, None, None, LONG_AGO, price, price)))
        stored += differences(now, stored, "2026-11", "a law")
        assert sum(line.cost for line in stored) == sum(line.cost for line in now)
        assert sum(line.amount for line in stored) == sum(line.amount for line in now)
        assert differences(now, stored, "2026-11", "again") == []


@pytest.mark.parametrize("text", ["", "2,50", "1e3", "2.5000001", "+1", ".5", "5.", "--1", "٣", "1" * 16])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r'must be a decimal number such as "2.50"'):
        decimal(text)
