"""Past usage (U1 to U5): exact for every history, close to the formula, and totally ordered."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.core.model import PastUse, WorkloadId
from queuectl.core.policy import HALF_LIVES, AdmissionFairSharing, LocalQueueName
from queuectl.core.queues.usage_history import LAST, PastUsage, UsageValue, factor

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
    """A hold: microseconds since START. Without an end it is open."""

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


def tell(past: PastUsage, history: list[Span]) -> PastUsage:
    for number, span in enumerate(history):
        past.opened(A, key(number), {GPU: span.amount}, moment(span.start))
        if span.end is not None:
            past.closed(key(number), moment(span.end))
    return past


def usage(history: list[Span], now: datetime = NOW, sharing: AdmissionFairSharing = SHARING) -> UsageValue:
    return tell(PastUsage(sharing), history).of(A, 1000, now)


def units(value: UsageValue) -> Decimal:
    """Cores, bytes or devices."""
    return Decimal(value.amount) / (2**32 * 1_000_000)


# --- exact for every history


@given(spans(), st.data())
def test_an_interval_that_is_cut_anywhere_counts_the_same(whole: Span, data: st.DataObject) -> None:
    cut = data.draw(st.integers(whole.start, whole.end if whole.end is not None else FAR))
    pieces = [Span(whole.start, cut, whole.amount), Span(cut, whole.end, whole.amount)]
    # The last part of an open hold is younger than the whole hold: by then both exceed the sampling interval.
    now = NOW + timedelta(seconds=SHARING.sampling_interval)
    assert usage([whole], now) == usage(pieces, now)


@given(st.lists(spans(), max_size=6), st.randoms(use_true_random=False))
def test_events_may_come_in_any_order(history: list[Span], order: random.Random) -> None:
    shuffled = order.sample(history, len(history))
    assert usage(history) == usage(shuffled)


@given(st.lists(spans(), max_size=6), st.integers(0, FAR))
def test_closed_holds_can_be_restored_from_sums_and_open_ones_from_spans(
    history: list[Span], restored_at: int
) -> None:
    """Therefore a restart continues with the same values, however old the sums are."""
    went_on = tell(PastUsage(SHARING), history)
    ledger, restarted = PastUsage(SHARING), PastUsage(SHARING)
    then = NOW + timedelta(microseconds=restored_at)
    for span in history:
        if span.end is not None and moment(span.end) >= ledger.horizon(NOW):
            ledger.used(A, {GPU: span.amount}, moment(span.start), moment(span.end))
    restarted.restore(ledger.past(NOW))
    for number, span in enumerate(history):
        if span.end is None:
            restarted.opened(A, key(number), {GPU: span.amount}, moment(span.start))
    assert restarted.of(A, 1000, then) == went_on.of(A, 1000, then)
    assert restarted.decayed(A, then) == went_on.decayed(A, then)


@given(st.lists(spans(), max_size=4), st.lists(MOMENTS, max_size=4))
def test_reading_usage_changes_nothing(history: list[Span], questions: list[int]) -> None:
    asked = tell(PastUsage(SHARING), history)
    for later in questions:
        asked.of(A, 1000, NOW + timedelta(microseconds=later), {GPU: 5})
    assert asked.of(A, 1000, NOW) == usage(history)


@given(spans(), st.data())
def test_a_smaller_hold_counts_as_two_holds_of_which_one_ended(whole: Span, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, whole.amount))
    cut = data.draw(st.integers(whole.start, whole.end if whole.end is not None else FAR))
    shrunk = PastUsage(SHARING)
    shrunk.opened(A, key(0), {GPU: whole.amount}, moment(whole.start))
    shrunk.resized(key(0), {GPU: whole.amount - part}, moment(cut))
    if whole.end is not None:
        shrunk.closed(key(0), moment(whole.end))
    pieces = [Span(whole.start, cut, part), Span(whole.start, whole.end, whole.amount - part)]
    assert shrunk.of(A, 1000, NOW) == usage(pieces)


# --- close to the formula


def by_formula(span: Span, now_us: int, half_life: int) -> Decimal:
    """Return the usage of one interval by the formula, with 60 digits."""
    half = Decimal(half_life) * 1_000_000
    end = now_us if span.end is None else span.end
    return span.amount * (2 ** (-(now_us - end) / half) - 2 ** (-(now_us - span.start) / half))


@settings(max_examples=60)
@given(st.lists(spans(), max_size=5), st.sampled_from([1, 7, HALF_LIFE, WEEK, 10 * 365 * 86_400]))
def test_usage_equals_the_formula_within_the_stated_error(history: list[Span], half_life: int) -> None:
    sharing = AdmissionFairSharing(half_life=half_life, sampling_interval=0)
    found = units(usage(history, sharing=sharing))
    with localcontext() as context:
        context.prec = 60
        expected = sum((by_formula(span, FAR + 1, half_life) for span in history), Decimal())
        # Holds that are too old do not count; each factor has limited digits; the result is rounded down.
        total = sum(span.amount for span in history)
        error = Decimal(total) * (Decimal(2) ** -HALF_LIVES + Decimal(2) ** -61) + Decimal(10) ** -15
    assert abs(found - expected) <= error


@given(st.integers(1, 2**60), st.data())
def test_factors_are_below_the_power_by_less_than_their_last_digit_and_a_bit(
    whole: int, data: st.DataObject
) -> None:
    part = data.draw(st.integers(0, whole - 1))
    with localcontext() as context:
        context.prec = 80
        exact = Decimal(2) ** (Decimal(part) / whole) * 2**64
        assert Decimal(0) <= exact - factor(part, whole) < 1 + Decimal(2) ** -15


@given(st.integers(1, 10 * 365 * 86_400), st.data())
def test_terms_grow_from_each_microsecond_to_the_next(half_life: int, data: st.DataObject) -> None:
    whole = half_life * 1_000_000
    part = data.draw(st.integers(0, whole - 1))
    following = factor(part + 1, whole) if part + 1 < whole else 2 << 64
    assert 1 << 64 <= factor(part, whole) < following


def test_usage_halves_in_a_half_life() -> None:
    past = PastUsage(SHARING)
    past.given(A, {"cpu": 8_000, "memory": 2**30}, START)
    assert past.decayed(A, START) == (("cpu", 8_000), ("memory", 2**30))
    assert past.decayed(A, at(HALF_LIFE)) == (("cpu", 4_000), ("memory", 2**29))
    assert past.decayed(A, at((HALF_LIVES + 1) * HALF_LIFE)) == ()
    assert past.past(at((HALF_LIVES + 1) * HALF_LIFE)) == ()


def test_usage_of_a_running_workload_approaches_its_hold() -> None:
    past = PastUsage(SHARING)
    past.opened(A, key(1), {GPU: 1_024}, START)
    assert past.decayed(A, at(HALF_LIFE)) == ((GPU, 512),)
    assert past.decayed(A, at(2 * HALF_LIFE)) == ((GPU, 768),)
    assert past.decayed(A, at(50 * HALF_LIFE)) == ((GPU, 1_024),)


# --- new holds


def test_a_burst_counts_as_if_it_had_run_for_a_sampling_interval() -> None:
    old, young = PastUsage(SHARING), PastUsage(SHARING)
    old.opened(A, key(1), {GPU: 8}, at(0))
    young.opened(A, key(1), {GPU: 8}, at(300))
    assert young.of(A, 1000, at(300)) == old.of(A, 1000, at(300)) > UsageValue(False, 0)
    assert young.of(A, 1000, at(599)) == PastUsage(SHARING).of(A, 1000, at(599), {GPU: 8})
    assert young.of(A, 1000, at(600)) == old.of(A, 1000, at(300))
    assert young.of(A, 1000, at(601)) > young.of(A, 1000, at(600))


def test_usage_with_an_assumed_admission_equals_usage_after_it() -> None:
    past = PastUsage(SHARING)
    past.opened(A, key(1), {GPU: 3}, at(0))
    tried = past.of(A, 2000, at(1_000), {GPU: 8, "cpu": 500})
    assert past.of(A, 2000, at(1_000)) < tried
    past.opened(A, key(2), {GPU: 8, "cpu": 500}, at(1_000))
    assert past.of(A, 2000, at(1_000)) == tried


def test_a_hold_that_ended_early_counts_only_for_its_duration() -> None:
    past = PastUsage(SHARING)
    past.opened(A, key(1), {GPU: 8}, at(0))
    burst = past.of(A, 1000, at(10))
    past.closed(key(1), at(10))
    assert UsageValue(False, 0) < past.of(A, 1000, at(10)) < burst


# --- order


@given(st.lists(spans(), max_size=4), spans())
def test_more_usage_never_precedes_less(history: list[Span], more: Span) -> None:
    assert usage(history) <= usage([*history, more])
    assert usage([more]) <= usage([more._replace(amount=more.amount + 1)])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=2, max_size=8))
def test_usage_is_divided_by_the_weight_and_weight_zero_is_last(queues: list[tuple[int, int]]) -> None:
    past = PastUsage(SHARING)
    for number, (_, amount) in enumerate(queues):
        past.given(LocalQueueName("ns", str(number)), {GPU: amount}, START)
    by_value = sorted(
        queues, key=lambda one: past.of(LocalQueueName("ns", str(queues.index(one))), one[0] * 1000, START)
    )

    def fraction(weight: int, amount: int) -> tuple[bool, float]:
        return (weight == 0, amount / weight if weight else 0)

    assert [fraction(*one) for one in by_value] == sorted(fraction(*one) for one in queues)


@pytest.mark.parametrize("half_life", [0, HALF_LIFE])
def test_a_weight_of_zero_follows_all_others(half_life: int) -> None:
    past = PastUsage(AdmissionFairSharing(half_life=half_life))
    past.given(B, {"memory": 2**63 - 1}, START)
    assert past.of(A, 0, START) == LAST > past.of(B, 1, START)


def test_without_a_half_life_past_usage_does_not_count() -> None:
    past = PastUsage(AdmissionFairSharing(half_life=0))
    past.opened(A, key(1), {GPU: 8}, START)
    past.closed(key(1), at(5))
    past.opened(A, key(2), {GPU: 8}, at(5))
    assert past.of(A, 1000, at(6), {GPU: 100}) == past.of(B, 1000, at(6)) == UsageValue(False, 0)
    assert past.past(at(6)) == ()
    assert past.decayed(A, at(6)) == ()
    assert past.horizon(at(6)) == at(6)


@pytest.mark.parametrize(
    ("weights", "less", "more"),
    [
        ((), {"cpu": 2_000}, {GPU: 3}),  # a core counts as much as a device
        ((), {GPU: 2**20}, {"memory": 2**30}),  # and as much as a byte, without resource weights
        ((("memory", 0),), {"memory": 2**40}, {GPU: 1}),
        (((GPU, 10_000),), {"cpu": 9_000}, {GPU: 1}),
        ((("cpu", 500),), {"cpu": 1_999}, {GPU: 1}),
    ],
)
def test_resources_count_by_their_weights(
    weights: tuple[tuple[str, int], ...], less: Mapping[str, int], more: Mapping[str, int]
) -> None:
    past = PastUsage(AdmissionFairSharing(half_life=HALF_LIFE, weights=weights))
    past.given(A, less, START)
    past.given(B, more, START)
    assert past.of(A, 1000, START) < past.of(B, 1000, START)


# --- storage


def test_queues_without_counted_usage_are_removed() -> None:
    past = PastUsage(AdmissionFairSharing(half_life=1, sampling_interval=1))
    for number in range(1_000):
        name = LocalQueueName("ns", str(number))
        past.opened(name, key(number), {GPU: 1}, at(number))
        past.closed(key(number), at(number + 1))
    assert len(past._accounts) <= 2 * HALF_LIVES + 2


def test_sums_from_the_ledger_add_up_with_later_holds() -> None:
    first, then = PastUsage(SHARING), PastUsage(SHARING)
    first.used(A, {GPU: 8}, at(0), at(60))
    [stored] = first.past(at(60))
    assert isinstance(stored, PastUse)
    then.restore([stored])
    then.used(A, {GPU: 8}, at(60), at(120))
    first.used(A, {GPU: 8}, at(60), at(120))
    assert then.past(at(120)) == first.past(at(120))
