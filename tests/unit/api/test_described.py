"""Schemathesis on the OpenAPI document: no 500, and no body that differs from its schema."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation

from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.authorization import Reviewer
from queuectl.api.server import serve
from queuectl.app.api import rate_card
from tests.job_kinds import JOB_KINDS
from tests.unit.api.changing import CannedChanges
from tests.unit.api.conftest import KEY
from tests.unit.api.reviews import CannedReviews
from tests.unit.api.test_tenants import BOBS, ledger
from tests.unit.core import profiles

Operation = APIOperation[Any, Any, Any, Any]
KNOWN = {
    "namespace": ("default", "other", BOBS),
    "kind": tuple(row.name.lower() for row in JOB_KINDS),
    "name": ("main", "waits", "mine", "zz-urgent", "team-a", "all", "a100", "zz-ended"),
    "month": ("2026-01", "2025-12", "2026-13", "0000-01"),
}
EXAMPLES = 2 + profiles.examples(10)
"""For each operation, by default and in CI."""
TOO_LARGE = 431
# By its schema a cursor is any text, but only those that the server issued are valid.
NOT_PROMISED = ("positive_data_acceptance",)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server on its own thread, with identity and without rate limits."""
    reviews = CannedReviews()
    reviews.admin("admin")
    url: Future[str] = Future()
    stop: list[Callable[[], object]] = []

    async def work() -> None:
        reviewer = Reviewer(reviews, ["queuectl"], time.monotonic)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        stop.append(lambda: loop.call_soon_threadsafe(task.cancel))
        with contextlib.suppress(asyncio.CancelledError):
            readings = ledger()
            await serve(
                readings,
                kinds=JOB_KINDS,
                what_ifs=TriedWhatIfs(),
                address=("127.0.0.1", 0),
                cursor_key=KEY,
                reviewer=reviewer,
                started=url.set_result,
                forecasts=readings,
                changes=CannedChanges(),
                statements=readings.statements,
                card_of=rate_card,
                device_use=readings.device_use,
                budgets=readings.budgets,
            )

    with pytest.MonkeyPatch.context() as patch:
        for name in ("limits.BURST", "authorization.STRANGERS_BURST"):
            patch.setattr(f"queuectl.api.{name}", 1e9)
        thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
        thread.start()
        yield url.result(30)
        stop[0]()
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def operations(server: str) -> list[Operation]:
    load_all_checks()
    schema = schemathesis.openapi.from_url(f"{server}/openapi.json")
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    assert len(found) == 51
    return found


@pytest.mark.acceptance
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_response_is_as_described(operations: list[Operation], mode: GenerationMode) -> None:
    excluded: list[Any] = [CHECKS.get_one(name) for name in NOT_PROMISED]
    for operation in operations:

        @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def answers(case: schemathesis.Case[Any], data: st.DataObject) -> None:
            if mode is GenerationMode.POSITIVE and data.draw(st.booleans()):
                for name in case.path_parameters or {}:
                    case.path_parameters[name] = data.draw(st.sampled_from(KNOWN[name]))
            case.query.pop("wait", None)
            headers = {"Authorization": "Bearer admin"}
            response = case.call(headers=headers, timeout=30)
            # The check of invalid data does not know that a long one may be refused before it is read.
            if response.status_code != TOO_LARGE:
                case.validate_response(response, excluded_checks=excluded)

        if mode is GenerationMode.POSITIVE or operation.query or operation.path_parameters or operation.body:
            answers()
