"""Quantities are parsed exactly, and hostile input has bounded cost."""

from __future__ import annotations

import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.resources import (
    MAX_AMOUNT,
    MAX_QUANTITY_LENGTH,
    BadQuantity,
    QuantityOutOfRange,
    amounts,
    format_amount,
    parse_quantity,
)

SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}
DIGITS = st.text("0123456789", max_size=18)
SCALES = st.sampled_from(list(SUFFIXES)) | st.builds(
    lambda letter, power: f"{letter}{power}", st.sampled_from("eE"), st.integers(-45, 45)
)


def exact(whole: str, fraction: str, scale: str) -> Fraction:
    value = Fraction(int(whole + fraction or "0"), 10 ** len(fraction))
    power = SUFFIXES.get(scale)
    return value * (power if power is not None else Fraction(10) ** int(scale[1:]))


@given(
    st.sampled_from(["", "+", "-"]), DIGITS, st.none() | DIGITS, SCALES, st.sampled_from(["cpu", "memory"])
)
def test_a_quantity_is_its_exact_value_in_base_units_rounded_up(
    sign: str, whole: str, fraction: str | None, scale: str, resource: str
) -> None:
    text = f"{sign}{whole}{'' if fraction is None else f'.{fraction}'}{scale}"
    if not whole + (fraction or ""):
        with pytest.raises(BadQuantity):
            parse_quantity(text, resource)
        return
    value = exact(whole, fraction or "", scale) * (1000 if resource == "cpu" else 1)
    amount = -(-value.numerator // value.denominator)
    if amount > MAX_AMOUNT:
        with pytest.raises(QuantityOutOfRange, match=str(MAX_AMOUNT)):
            parse_quantity(text, resource)
    else:
        assert parse_quantity(text, resource) == (-amount if sign == "-" else amount)


@given(st.text(max_size=80) | st.text("0123456789.eEinumkMGTP+-_ ", max_size=80))
def test_every_text_is_a_number_or_an_error_that_quotes_it(text: str) -> None:
    try:
        amount = parse_quantity(text, "memory")
    except BadQuantity as refusal:
        assert str(refusal)  # noqa: PT017
    else:
        assert abs(amount) <= MAX_AMOUNT


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "+",
        "-",
        "e5",
        "1e",
        "1ee5",
        "1 ",
        " 1",
        "1\n",
        "1_000",
        "0x10",
        "٣",
        "1Kii",
        "1ki",
        "NaN",
        "inf",
    ],
)
def test_text_that_kubernetes_does_not_accept_is_not_a_quantity(text: str) -> None:
    with pytest.raises(BadQuantity, match="not a quantity"):
        parse_quantity(text, "cpu")


@pytest.mark.parametrize(
    "text",
    [
        "1e1000000",
        "1e999999999",
        "9" * 4000,
        "1" + "0" * 63,
        "9" * 50 + "Ei",
        "1e" + "9" * 60,
        "9223372036854775808",
        "0." + "0" * 61 + "1e99",
        pytest.param(10**5000, id="a one and five thousand zeros"),
        1e300,
    ],
)
def test_an_amount_above_the_limit_is_rejected(text: str | int | float) -> None:
    with pytest.raises(QuantityOutOfRange, match=f"{MAX_AMOUNT}|{MAX_QUANTITY_LENGTH}"):
        parse_quantity(text, "nvidia.com/gpu")


def test_a_hostile_quantity_costs_at_most_a_hundred_usual_ones() -> None:
    def cost(text: str | int) -> float:
        started = time.process_time()
        for _ in range(200):
            try:
                parse_quantity(text, "cpu")
            except BadQuantity:
                continue
        return time.process_time() - started

    honest = max(cost("1500m") for _ in range(5))
    hostile: list[str | int] = [
        "1e1000000",
        "1e-1000000",
        "9" * 100_000,
        "1e" + "9" * 61,
        "0." + "0" * 61 + "E",
        10**100_000,
    ]
    for text in hostile:
        assert min(cost(text) for _ in range(5)) < 100 * honest, text


def test_a_tiny_fraction_counts_as_one_unit() -> None:
    assert parse_quantity("1e-1000000000", "memory") == 1
    assert parse_quantity("1n", "cpu") == 1
    assert parse_quantity("0e-1000000000", "memory") == 0


@given(st.integers(0, MAX_AMOUNT), st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]))
def test_a_formatted_amount_parses_to_the_same_amount(amount: int, resource: str) -> None:
    assert parse_quantity(format_amount(resource, amount), resource) == amount


@given(st.floats(0, 2**53, allow_nan=False))
def test_a_number_from_json_is_read_by_its_digits(number: float) -> None:
    value = Fraction(Decimal(str(number)))
    assert parse_quantity(number, "memory") == -(-value.numerator // value.denominator)


def test_amounts_are_sorted_and_have_no_zeros() -> None:
    assert amounts({"b": 2, "a": 1, "c": 0}) == (("a", 1), ("b", 2))
