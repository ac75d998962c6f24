"""Attacks of tenants on budgets, limits, statements and usage: no use is hidden, none of others is shown."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Final

import pytest

from queuectl.core.decisions import Evict
from queuectl.core.model.events import PodsCounted
from queuectl.core.model.reasons import Code
from tests.acceptance.attacks.test_rest import SLOW, tenants
from tests.builders import World, admitted, observed, queue
from tests.unit.api.canned import CannedReadings, two_teams
from tests.unit.api.conftest import Serve, bearer
from tests.unit.api.test_budgets import with_budgets
from tests.unit.api.test_monthly_statements import PATH as STATEMENTS
from tests.unit.api.test_monthly_statements import held, line
from tests.unit.api.test_usage_limits import with_limits
from tests.unit.core.features.budgets.test_budgets import LQ, H, budget, job, rows

HOSTILE: Final = (
    "\x1b[2J",
    "__class__",
    "user;drop table usage",
    "user,user",
    "user,\u202enamespace",
    ",".join("abcde"),
    "../../etc/passwd",
    "user\x00",
)

MONTHS: Final = ("1000-01", "2999-12", "2026-00", "2026-13", "\u0662026-01", "9999-12", "2026-01 ")


def booked() -> CannedReadings:
    """Alice's namespace is `default`; that of zz-eve is not hers."""
    readings = two_teams()
    readings.booked = [
        held(5, "ada", project="blue"),
        held(11, "zz-eve", "zz-eves", project="zz-secret", zzkey="zz-value"),
    ]
    readings.statements.stored = {"2026-01": [line("2026-01", -600_000, of_month="2025-12", reason="x")]}
    return readings


@pytest.mark.parametrize("by", HOSTILE)
@pytest.mark.parametrize("path", ["/api/v1/usage", f"{STATEMENTS}/2026-01"])
async def test_a_hostile_axis_is_refused_in_words_that_are_printable(
    serve: Serve, path: str, by: str
) -> None:
    rest = await serve(booked(), tenants())
    said = await rest.refused(rest.client.get(path, params={"by": by}, headers=bearer("alice")), 400)
    assert said.isprintable()
    assert "zz-" not in said


@pytest.mark.parametrize("month", MONTHS)
async def test_a_month_at_the_ends_of_the_calendar_is_no_error_of_the_server(
    serve: Serve, month: str
) -> None:
    rest = await serve(booked(), tenants())
    begin = time.process_time()
    for path in (f"{STATEMENTS}/{month}", f"{STATEMENTS}/{month}/focus"):
        answer = await rest.client.get(path, headers=bearer("alice"))
        assert answer.status in (200, 400, 404), await answer.text()
    for zone in ("UTC", "Pacific/Kiritimati", "../../etc/passwd", "/etc/localtime", "", "a" * 64):
        query = {"month": month, "zone": zone}
        answer = await rest.client.get("/api/v1/usage", params=query, headers=bearer("alice"))
        said = await answer.text()
        assert answer.status in (200, 400), said
        assert "zz" not in said
    assert time.process_time() - begin < SLOW


@pytest.mark.parametrize("path", ["/api/v1/usage", f"{STATEMENTS}/2026-01", f"{STATEMENTS}/2026-01/focus"])
async def test_no_division_of_usage_names_what_a_caller_may_not_read(serve: Serve, path: str) -> None:
    rest = await serve(booked(), tenants())
    for caller in ("alice", "mallory"):
        for by in ("user", "submitter,namespace", "project", "zzkey", "project,zzkey", "kind"):
            query = {} if path.endswith("focus") else {"by": by}
            answer = await rest.client.get(path, params=query, headers=bearer(caller))
            said = (await answer.text()).replace(f'"{by}"', "").replace("zzkey", "")
            assert "zz" not in said, (caller, by)


async def test_the_filter_by_user_is_no_oracle_of_who_has_workloads(serve: Serve) -> None:
    readings = two_teams()
    with_limits(readings)
    rest = await serve(readings, tenants())
    said = []
    for user in ("bob", "nobody-of-that-name"):
        found = await rest.get("/api/v1/usagelimits", token="alice", submitter=user)
        said.append(found["items"])
    assert said == [[], []]
    for path in ("/api/v1/usagelimits", "/api/v1/budgets"):
        assert "bob" not in json.dumps((await rest.get(path, token="mallory")).get("items", []))


async def test_the_rows_of_a_budget_name_no_workload_of_others(serve: Serve) -> None:
    readings = two_teams()
    with_budgets(readings)
    rest = await serve(readings, tenants())
    for caller in ("alice", "mallory"):
        for name in ("users", "whole", "none", "../users", "users%00", "*"):
            answer = await rest.client.get("/api/v1/budgets", params={"budget": name}, headers=bearer(caller))
            said = await answer.text()
            assert answer.status in (200, 400), said
            assert "bob" not in said
            assert "other/" not in said
            assert caller == "alice" or "alice" not in said


def test_a_run_time_limit_that_is_removed_while_it_runs_gains_no_time_of_a_budget() -> None:
    world = World(queue("cq", 8), LQ, budget(10))
    one = job("a", gpus=2, hours=2)
    world.submit(one)
    assert admitted(world.run()) == ["a"]
    world.settle()
    world.tell(observed(replace(one, max_run_seconds=None), suspended=False, generation=2))
    world.pass_time(2 * H + 60)
    evicted = [done.reason.code for done in world.run() if isinstance(done, Evict)]
    assert evicted in ([Code.BUDGET_TIME_EXCEEDED], [Code.MAXIMUM_EXECUTION_TIME_EXCEEDED])


def test_holds_and_releases_gain_no_time_of_a_budget() -> None:
    """Each attempt settles what it has used, and the next one reserves for the rest."""
    world = World(queue("cq", 8), LQ, budget(10))
    one, hours = job("a", gpus=2, hours=4), 0
    for turn in range(4):
        world.tell(observed(one, generation=4 * turn + 1))
        if not admitted(world.run()):
            break
        world.settle(generation=4 * turn + 2)
        world.tell(observed(one, suspended=False, generation=4 * turn + 2))
        world.pass_time(2 * H)
        hours += 2
        world.run()
        held = replace(one, hold=True)
        world.tell(observed(held, suspended=False, generation=4 * turn + 2))
        world.run()
        world.settle(generation=4 * turn + 3)
        world.tell(observed(held, generation=4 * turn + 3))
        world.run()
        world.tell(*(PodsCounted(probe.workload, probe.attempt, alive=False) for probe in world.probes))
        world.probes.clear()
        world.run()
    used = sum(change for _, _, _, change in rows(world))
    assert used == hours * 2
    assert used <= 10
