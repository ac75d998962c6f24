"""Rows of FOCUS of a closed month and of its corrections, read by FinOps' own validator (B15)."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from queuectl.answers.focus import VERSION, Bill, focus_rows
from queuectl.ledger.history.usage_hours import roll_up
from queuectl.ports.periods import Piece
from queuectl.ports.statements import ChargeKind
from tests.integration.ledger.accounting import HOUR, booked, capacity
from tests.integration.ledger.plans import PREEMPTED, configure, enqueue, evict, retire
from tests.integration.ledger.test_statements import FEBRUARY, START, Books, books, rates

__all__ = ["books"]

VARIABLE: Final = "QUEUECTL_FOCUS_VALIDATOR"
SUPPORTED: Final = (
    "ACCOUNT_NAMING",
    "BILLING_BASED_ON_PROVISIONED_RESOURCES",
    "MULTIPLE_BILLING_ACCOUNT_TYPES",
    "MULTIPLE_PRICING_CATEGORIES",
    "MULTIPLE_SUB_ACCOUNT_TYPES",
    "NEGOTIATED_PRICING",
    "RESOURCE_TYPE_ASSIGNMENT",
    "SUB_ACCOUNT",
    "TAGGING",
    "UNIT_PRICING",
    "USAGE_MEASUREMENT",
)
"""What is supported. With PUBLIC_PRICE_LIST the validator asks for prices in virtual currencies."""
CONTRADICTED: Final = {"InvoiceId-C-005-C"}
"""InvoiceId-C-004-C wants it to be null in each row, and this one in none. FOCUS asks for one of both."""


@pytest.fixture
def validator() -> Path:
    if not (named := os.environ.get(VARIABLE)):
        pytest.skip(f"{VARIABLE} is not set: no rows of FOCUS are validated")
    return Path(named)


async def closed_and_corrected(books: Books) -> None:
    """A month with lines of each kind, and with another price later."""
    cpu = {"resource": "cpu", "from": "2020-01-01", "price": "0.01", "listPrice": "0.02"}
    card = {"free": "ByQuota", "lost": "Nobody"}
    flavor = configure("a100", 0, kind="ResourceFlavor")
    await books.commit(
        START, rates("2.50", cpu, **card), flavor, configure("team-a", 1000), for_readers=capacity(16)
    )
    for name, user in (("x", "ada"), ("y", "bob"), ("z", None)):
        await books.commit(START + HOUR, enqueue(name), booked(name, 1, START + HOUR, user))
    await books.commit(START + 5 * HOUR, evict("x", reason=PREEMPTED))
    await books.commit(START + 6 * HOUR, *(retire(name, 1) for name in "xyz"), for_readers=capacity(0))
    await books.commit(FEBRUARY + HOUR, enqueue("later"))
    await roll_up(books.pool, books.cluster, "UTC")
    await books.close("2027-01")
    await books.commit(FEBRUARY + 2 * HOUR, rates("2.25", cpu, **card))
    await books.correct("2027-01")


def failed(report: str) -> Iterator[str]:
    yield from re.findall(r"^- (\S+): violations", report, re.MULTILINE)


@pytest.mark.acceptance
async def test_the_rows_of_a_month_and_of_its_corrections_are_valid(
    books: Books, tmp_path: Path, validator: Path, figures: list[str]
) -> None:
    await closed_and_corrected(books)
    (month,) = await books.statements.statements()
    bill = Bill(Piece(month.begins, month.ends), "EUR", None)
    closed = await books.statements.lines("2027-01")
    corrections = await books.statements.corrections("2027-01")
    assert {line.kind for line in closed} == set(ChargeKind)
    assert corrections
    rows = list(focus_rows([*closed, *corrections], bill))
    with (file := tmp_path / "focus.csv").open("w", newline="") as stream:
        table = csv.DictWriter(stream, rows[0])
        table.writeheader()
        table.writerows(rows)
    criteria = ",".join(f"{name}_SUPPORTED" for name in SUPPORTED)
    (packages,) = validator.parents[1].glob("lib/python*/site-packages")
    done = subprocess.run(  # noqa: ASYNC221
        [
            *(str(validator), "--data-file", str(file), "--validate-version", VERSION, "--block-download"),
            *("--focus-dataset", "CostAndUsage", "--applicability-criteria", criteria, "--show-violations"),
        ],
        cwd=packages,  # it reads a file of its own there
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    total = re.search(r"Total: (\d+) \| Pass: (\d+) \| Fail: (\d+)", done.stdout)
    assert total is not None, done.stderr
    assert set(failed(done.stdout)) == CONTRADICTED, done.stdout[-4000:]
    assert int(total[2]) > 200
    figures.append(
        f"FOCUS {VERSION}: {len(rows)} rows, {total[2]} rules pass, {total[3]} fails: InvoiceId-C-005"
    )
