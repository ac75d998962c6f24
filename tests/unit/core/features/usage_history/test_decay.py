"""Past usage (U1 to U5): the exact result for any order of events, its error bounds, its order."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.core.features.usage_history.decay import UsageHistory, UsageValue, power_of_2
from queuectl.core.model.policy import HALF_LIVES, AdmissionFairSharing, LocalQueueName
from queuectl.core.model.workload import UsageSum, WorkloadId

START = datetime(2026, 1, 1, tzinfo=UTC)
A, B = LocalQueueName("ns", "a"), LocalQueueName("ns", "b")
WEEK = 7 * 86_400
GPU = "nvidia.com/gpu"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def moment(microseconds: int) -> datetime:
    return START + timedelta(microseconds=microseconds)


def key(number: int) -> tuple[WorkloadId, int]:
    return WorkloadId(f"w-{number}"), 1


class Span(NamedTuple):
    """What an attempt holds, in microseconds since START. Without an end: it is open."""

    start: int
    end: int | None
    amount: int


HALF_LIFE = 3_600
SHARING = AdmissionFairSharing(half_life=HALF_LIFE, sampling_interval=300)
FAR = 30 * HALF_LIFE * 1_000_000
MOMENTS = st.integers(0, FAR)
AMOUNTS = st.integers(0, 2**63 - 1)
NOW = moment(FAR + 1)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(MOMENTS)
    end = draw(st.none() | st.integers(start, FAR))
    return Span(start, end, draw(AMOUNTS))


def record(history: UsageHistory, spans: list[Span]) -> UsageHistory:
    for number, span in enumerate(spans):
        history.opened((A,), key(number), {GPU: span.amount}, moment(span.start))
        if span.end is not None:
            history.closed(key(number), moment(span.end))
    return history


def usage(spans: list[Span], now: datetime = NOW, sharing: AdmissionFairSharing = SHARING) -> UsageValue:
    return record(UsageHistory(sharing), spans).usage(A, 1000, now)


def units(value: UsageValue) -> Decimal:
    """Cores, bytes or devices."""
    return Decimal(value) / (2**32 * 1_000_000)


# --- the exact result for any order of events


@given(spans(), st.data())
def test_an_interval_that_is_cut_anywhere_counts_the_same(whole: Span, data: st.DataObject) -> None:
    cut = data.draw(st.integers(whole.start, whole.end if whole.end is not None else FAR))
    pieces = [Span(whole.start, cut, whole.amount), Span(cut, whole.end, whole.amount)]
    # The last piece of an open one is younger than the whole: both are old enough by then.
    now = NOW + timedelta(seconds=SHARING.sampling_interval)
    assert usage([whole], now) == usage(pieces, now)


@given(st.lists(spans(), max_size=6), st.randoms(use_true_random=False))
def test_events_may_come_in_any_order(history: list[Span], order: random.Random) -> None:
    shuffled = order.sample(history, len(history))
    assert usage(history) == usage(shuffled)


@given(st.lists(spans(), max_size=6), st.integers(0, FAR))
def test_a_history_restored_from_sums_of_closed_attempts_has_the_same_usage(
    history: list[Span], microseconds: int
) -> None:
    """Also long after the sums were made. Open attempts are opened again, as after a restart."""
    uninterrupted = record(UsageHistory(SHARING), history)
    ledger, restarted = UsageHistory(SHARING), UsageHistory(SHARING)
    then = NOW + timedelta(microseconds=microseconds)
    for span in history:
        if span.end is not None and moment(span.end) >= ledger.horizon(NOW):
            ledger.add_interval((A,), {GPU: span.amount}, moment(span.start), moment(span.end))
    restarted.restore(ledger.sums(NOW))
    for number, span in enumerate(history):
        if span.end is None:
            restarted.opened((A,), key(number), {GPU: span.amount}, moment(span.start))
    assert restarted.usage(A, 1000, then) == uninterrupted.usage(A, 1000, then)


@given(st.lists(spans(), max_size=4), st.lists(MOMENTS, max_size=4))
def test_queries_change_nothing(history: list[Span], queries: list[int]) -> None:
    queried = record(UsageHistory(SHARING), history)
    for later in queries:
        queried.usage(A, 1000, NOW + timedelta(microseconds=later), {GPU: 5})
    assert queried.usage(A, 1000, NOW) == usage(history)


@given(spans(), st.data())
def test_a_shrunk_attempt_counts_as_two_attempts_of_which_one_was_closed(
    whole: Span, data: st.DataObject
) -> None:
    part = data.draw(st.integers(0, whole.amount))
    cut = data.draw(st.integers(whole.start, whole.end if whole.end is not None else FAR))
    shrunk = UsageHistory(SHARING)
    shrunk.opened((A,), key(0), {GPU: whole.amount}, moment(whole.start))
    shrunk.resized(key(0), {GPU: whole.amount - part}, moment(cut))
    if whole.end is not None:
        shrunk.closed(key(0), moment(whole.end))
    pieces = [Span(whole.start, cut, part), Span(whole.start, whole.end, whole.amount - part)]
    assert shrunk.usage(A, 1000, NOW) == usage(pieces)


# --- the formula, and the error bounds


def by_formula(span: Span, now_us: int, half_life: int) -> Decimal:
    """Usage of one interval, in 60 digits."""
    half = Decimal(half_life) * 1_000_000
    end = now_us if span.end is None else span.end
    return span.amount * (2 ** (-(now_us - end) / half) - 2 ** (-(now_us - span.start) / half))


@settings(max_examples=60)
@given(st.lists(spans(), max_size=5), st.sampled_from([1, 7, HALF_LIFE, WEEK, 10 * 365 * 86_400]))
def test_usage_differs_from_the_formula_by_the_stated_error_at_most(
    history: list[Span], half_life: int
) -> None:
    sharing = AdmissionFairSharing(half_life=half_life, sampling_interval=0)
    found = units(usage(history, sharing=sharing))
    with localcontext() as context:
        context.prec = 60
        expected = sum((by_formula(span, FAR + 1, half_life) for span in history), Decimal())
        # What is older than HALF_LIVES does not count; the digits of each term; rounding down at the end.
        total = sum(span.amount for span in history)
        error = Decimal(total) * (Decimal(2) ** -HALF_LIVES + Decimal(2) ** -61) + Decimal(10) ** -15
    assert abs(found - expected) <= error


@given(st.integers(1, 2**60), st.data())
def test_powers_of_2_are_rounded_down_by_less_than_one_digit_and_2_to_the_minus_15(
    whole: int, data: st.DataObject
) -> None:
    part = data.draw(st.integers(0, whole - 1))
    with localcontext() as context:
        context.prec = 80
        exact = Decimal(2) ** (Decimal(part) / whole) * 2**64
        assert Decimal(0) <= exact - power_of_2(part, whole) < 1 + Decimal(2) ** -15


@given(st.integers(1, 64), st.data())
def test_powers_of_2_are_exactly_the_integer_part(whole: int, data: st.DataObject) -> None:
    """Checked with integers only, so the result is the same on every machine."""
    part = data.draw(st.integers(0, whole - 1))
    power = power_of_2(part, whole)
    assert power**whole <= 2 ** (part + 64 * whole) < (power + 1) ** whole


@given(st.integers(1, 10 * 365 * 86_400), st.data())
def test_terms_grow_from_each_microsecond_to_the_next(half_life: int, data: st.DataObject) -> None:
    whole = half_life * 1_000_000
    part = data.draw(st.integers(0, whole - 1))
    following = power_of_2(part + 1, whole) if part + 1 < whole else 2 << 64
    assert 1 << 64 <= power_of_2(part, whole) < following


def test_usage_is_halved_in_a_half_life_and_dropped_after_the_last_that_counts() -> None:
    history = UsageHistory(SHARING)
    history.add_decayed(A, {"cpu": 8_000}, START)
    history.add_decayed(B, {"memory": 2**30}, START)
    assert [units(history.usage(name, 1000, START)) for name in (A, B)] == [8, 2**30]
    assert [units(history.usage(name, 1000, at(HALF_LIFE))) for name in (A, B)] == [4, 2**29]
    long_after = at((HALF_LIVES + 1) * HALF_LIFE)
    assert [history.usage(name, 1000, long_after) for name in (A, B)] == [0, 0]
    assert history.sums(long_after) == ()


def test_the_usage_of_an_open_attempt_approaches_what_it_holds() -> None:
    history = UsageHistory(SHARING)
    history.opened((A,), key(1), {GPU: 1_024}, START)
    assert units(history.usage(A, 1000, at(HALF_LIFE))) == 512
    assert units(history.usage(A, 1000, at(2 * HALF_LIFE))) == 768
    assert units(history.usage(A, 1000, at(50 * HALF_LIFE))) == 1_024


# --- the sampling interval


def test_a_new_attempt_counts_as_if_it_had_run_for_a_sampling_interval() -> None:
    old, recent = UsageHistory(SHARING), UsageHistory(SHARING)
    old.opened((A,), key(1), {GPU: 8}, at(0))
    recent.opened((A,), key(1), {GPU: 8}, at(300))
    assert recent.usage(A, 1000, at(300)) == old.usage(A, 1000, at(300)) > 0
    assert recent.usage(A, 1000, at(599)) == UsageHistory(SHARING).usage(A, 1000, at(599), {GPU: 8})
    assert recent.usage(A, 1000, at(600)) == old.usage(A, 1000, at(300))
    assert recent.usage(A, 1000, at(601)) > recent.usage(A, 1000, at(600))


def test_usage_with_an_addition_equals_usage_after_its_admission() -> None:
    history = UsageHistory(SHARING)
    history.opened((A,), key(1), {GPU: 3}, at(0))
    expected = history.usage(A, 2000, at(1_000), {GPU: 8, "cpu": 500})
    assert history.usage(A, 2000, at(1_000)) < expected
    history.opened((A,), key(2), {GPU: 8, "cpu": 500}, at(1_000))
    assert history.usage(A, 2000, at(1_000)) == expected


def test_an_attempt_closed_within_the_sampling_interval_counts_for_the_time_it_ran() -> None:
    history = UsageHistory(SHARING)
    history.opened((A,), key(1), {GPU: 8}, at(0))
    before = history.usage(A, 1000, at(10))
    history.closed(key(1), at(10))
    assert 0 < history.usage(A, 1000, at(10)) < before


# --- order


@given(st.lists(spans(), max_size=4), spans())
def test_more_usage_never_comes_first(history: list[Span], more: Span) -> None:
    assert usage(history) <= usage([*history, more])
    assert usage([more]) <= usage([more._replace(amount=more.amount + 1)])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=2, max_size=8))
def test_usage_is_divided_by_the_weight_and_weight_zero_comes_last(queues: list[tuple[int, int]]) -> None:
    history = UsageHistory(SHARING)
    for number, (_, amount) in enumerate(queues):
        history.add_decayed(LocalQueueName("ns", str(number)), {GPU: amount}, START)
    by_value = sorted(
        queues,
        key=lambda one: history.usage(LocalQueueName("ns", str(queues.index(one))), one[0] * 1000, START),
    )

    def fraction(weight: int, amount: int) -> tuple[bool, float]:
        return (weight == 0, amount / weight if weight else 0)

    assert [fraction(*one) for one in by_value] == sorted(fraction(*one) for one in queues)


@pytest.mark.parametrize("half_life", [0, HALF_LIFE])
def test_usage_at_weight_zero_is_larger_than_any_other(half_life: int) -> None:
    history = UsageHistory(AdmissionFairSharing(half_life=half_life))
    history.add_decayed(B, {"memory": 2**2000}, START)
    assert history.usage(A, 0, START) == math.inf > history.usage(B, 1, START)


def test_without_a_half_life_the_past_does_not_count() -> None:
    history = UsageHistory(AdmissionFairSharing(half_life=0))
    history.opened((A,), key(1), {GPU: 8}, START)
    history.closed(key(1), at(5))
    history.opened((A,), key(2), {GPU: 8}, at(5))
    assert history.usage(A, 1000, at(6), {GPU: 100}) == history.usage(B, 1000, at(6)) == 0
    assert history.sums(at(6)) == ()
    assert history.horizon(at(6)) == at(6)


@pytest.mark.parametrize(
    ("weights", "less", "more"),
    [
        ((), {"cpu": 2_000}, {GPU: 3}),  # a core counts as much as a device
        ((), {GPU: 2**20}, {"memory": 2**30}),  # and so does a byte, by default
        ((("memory", 0),), {"memory": 2**40}, {GPU: 1}),
        (((GPU, 10_000),), {"cpu": 9_000}, {GPU: 1}),
        ((("cpu", 500),), {"cpu": 1_999}, {GPU: 1}),
    ],
)
def test_resources_count_by_their_weights(
    weights: tuple[tuple[str, int], ...], less: Mapping[str, int], more: Mapping[str, int]
) -> None:
    history = UsageHistory(AdmissionFairSharing(half_life=HALF_LIFE, weights=weights))
    history.add_decayed(A, less, START)
    history.add_decayed(B, more, START)
    assert history.usage(A, 1000, START) < history.usage(B, 1000, START)


# --- what is kept


def test_local_queues_without_usage_that_counts_are_dropped() -> None:
    history = UsageHistory(AdmissionFairSharing(half_life=1, sampling_interval=1))
    for number in range(1_000):
        name = LocalQueueName("ns", str(number))
        history.opened((name,), key(number), {GPU: 1}, at(number))
        history.closed(key(number), at(number + 1))
    assert len(history._used) <= 2 * HALF_LIVES + 2


def test_later_intervals_add_to_restored_sums() -> None:
    first, then = UsageHistory(SHARING), UsageHistory(SHARING)
    first.add_interval((A,), {GPU: 8}, at(0), at(60))
    [kept] = first.sums(at(60))
    assert isinstance(kept, UsageSum)
    then.restore([kept])
    then.add_interval((A,), {GPU: 8}, at(60), at(120))
    first.add_interval((A,), {GPU: 8}, at(60), at(120))
    assert then.sums(at(120)) == first.sums(at(120))
