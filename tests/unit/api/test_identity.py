"""Authentication: the cluster reviews tokens, its results are cached for a while, and apply to requests."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from types import FunctionType

import pytest

from queuectl.api.authorization import MOST_TOKENS, ReviewCache, Reviewer, _Reviewed
from queuectl.api.limits import STRANGERS_BURST
from queuectl.ports.changes import Access
from queuectl.ports.cluster import ClusterUnavailable
from tests.unit.api.canned import AWAY, two_teams
from tests.unit.api.conftest import Clock, Rest, Serve, bearer
from tests.unit.api.reviews import CannedReviews

WORKLOADS = "/api/v1/workloads"
ONE = "/api/v1/workloads/default/job/waits"


@pytest.fixture
def reviews() -> CannedReviews:
    found = CannedReviews()
    found.tenant("alice", "default")
    found.admin("admin")
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def asked(serve: Serve, reviews: CannedReviews, clock: Clock) -> Rest:
    return await serve(two_teams(), reviews, clock)


async def test_without_a_token_only_probes_and_descriptions_are_served(asked: Rest) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        assert await asked.status(path) == 200, path
    for path in (WORKLOADS, ONE, "/api/v1/clusterqueues", "/api/v1/nowhere/at/all"):
        assert await asked.status(path) == (401 if "nowhere" not in path else 404), path
    answer = await asked.client.get(WORKLOADS)
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert (await answer.json(content_type=None))["audiences"] == ["queuectl"]
    assert "kubectl create token" in await asked.refused(asked.client.get(WORKLOADS), 401)


async def test_48_a_token_that_the_cluster_rejects_is_refused(asked: Rest) -> None:
    for header in (
        "Bearer expired",
        "Basic YTpi",
        "Bearer",
        "Bearer a b",
        "bearer \u00fc",
        "Bearer " + "x" * 8001,
    ):
        headers = {"Authorization": header}
        detail = await asked.refused(asked.client.get(WORKLOADS, headers=headers), 401)
        assert "expired" not in detail
    assert await asked.status(WORKLOADS, token="alice") == 200


async def test_48_two_authorization_headers_are_refused(asked: Rest) -> None:
    headers = [("Authorization", "Bearer alice"), ("Authorization", "Bearer admin")]
    detail = await asked.refused(asked.client.get(WORKLOADS, headers=headers), 400)
    assert "Authorization is given twice" in detail


async def test_reviews_are_cached_for_30_seconds_and_then_repeated(
    asked: Rest, reviews: CannedReviews, clock: Clock
) -> None:
    assert await asked.status(ONE, token="alice") == 200
    count = len(reviews.asked)
    clock.now += 14
    assert await asked.status(ONE, token="alice") == 200
    assert len(reviews.asked) == count
    del reviews.users["alice"]
    assert await asked.status(ONE, token="alice") == 200
    clock.now += 16
    assert await asked.status(ONE, token="alice") == 401


async def test_a_revoked_right_ends_within_30_seconds_and_a_granted_one_applies_after_5(
    asked: Rest, reviews: CannedReviews, clock: Clock
) -> None:
    other = "/api/v1/workloads/other/PyTorchJob/stuck"
    assert await asked.status(ONE, token="alice") == 200
    assert await asked.status(other, token="alice") == 404
    reviews.rights["alice"] = {Access("get", "workloads", "other")}
    assert await asked.status(other, token="alice") == 404
    clock.now += 5
    assert await asked.status(other, token="alice") == 200
    assert await asked.status(ONE, token="alice") == 200
    clock.now += 25
    assert await asked.status(ONE, token="alice") == 404


async def test_many_concurrent_requests_cost_one_review(asked: Rest, reviews: CannedReviews) -> None:
    reviews.hold = asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        many = [tasks.create_task(asked.status(ONE, token="alice")) for _ in range(20)]
        while not reviews.asked:
            await asyncio.sleep(0.001)
        reviews.hold.set()
    assert {task.result() for task in many} == {200}
    assert (reviews.count(str), reviews.count(Access)) == (1, 1)


async def test_while_the_api_server_is_down_only_cached_reviews_are_used(
    asked: Rest, reviews: CannedReviews, clock: Clock
) -> None:
    assert await asked.status(ONE, token="alice") == 200
    reviews.down = "connection refused to 10.0.0.1"
    assert await asked.status(ONE, token="alice") == 200
    detail = await asked.refused(asked.client.get(ONE, headers=bearer("admin")), 503)
    assert "10.0.0.1" not in detail
    assert await asked.status(WORKLOADS, token="alice") == 503
    clock.now += 31
    answer = await asked.client.get(ONE, headers=bearer("alice"))
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    reviews.down = None
    assert await asked.status(ONE, token="alice") == 200


async def test_a_flood_of_tokens_costs_few_reviews_and_blocks_no_known_caller(
    asked: Rest, reviews: CannedReviews, clock: Clock
) -> None:
    assert await asked.status(ONE, token="alice") == 200
    reviews.asked.clear()
    found = [await asked.status(ONE, token=f"stranger-{number}") for number in range(300)]
    assert found.count(401) == reviews.count(str) == STRANGERS_BURST
    assert found.count(429) == 300 - STRANGERS_BURST
    clock.now += 31
    reviews.asked.clear()
    for number in range(200):
        await asked.status(ONE, token=f"another-{number}")
    # Reviewed again although unknown callers from its address have used up their limit.
    assert await asked.status(ONE, token="alice") == 200


async def test_ten_thousand_tokens_in_a_minute_cost_two_hundred_reviews() -> None:
    clock, reviews = Clock(), CannedReviews()
    reviewer = Reviewer(reviews, ["queuectl"], clock)

    class Request:
        remote = "10.0.0.9"

        def __init__(self, token: str) -> None:
            from multidict import CIMultiDict

            self.headers = CIMultiDict(bearer(token))

    for number in range(10_000):
        clock.now += 60 / 10_000
        with pytest.raises(Exception, match=r"token|too many"):
            await reviewer(Request(f"t{number}"))  # type: ignore[arg-type]
    assert reviews.count(str) <= 200
    assert len(reviewer.tokens._entries) <= MOST_TOKENS


async def test_only_the_most_recently_used_are_remembered() -> None:
    clock = Clock()
    kept: ReviewCache[int, int] = ReviewCache(clock, 30, most=3, together=asyncio.Semaphore(1))
    asked: list[int] = []

    async def get(key: int) -> int:
        async def ask() -> int:
            asked.append(key)
            return key + 1

        return await kept.get(key, ask)

    for key in (0, 1, 2, 0, 3, 0, 1):
        assert await get(key) == key + 1
    assert asked == [0, 1, 2, 3, 1]


async def test_the_token_of_a_caller_is_not_kept(serve: Serve, reviews: CannedReviews) -> None:
    token = os.urandom(8).hex()
    reviews.add(token, Access("get", "workloads", "default"), name="ada")
    rest = await serve(two_teams(), reviews, Clock())
    assert await rest.status(ONE, token=token) == 200
    assert rest.reviewer is not None
    todo: list[object] = [vars(rest.reviewer.tokens)]
    known: dict[int, object] = {}
    while todo:
        one = todo.pop()
        if id(one) not in known and not isinstance(one, type):
            known[id(one)] = one
            todo += [one.__closure__] if isinstance(one, FunctionType) else gc.get_referents(one)
    assert "ada" in known.values(), "the user is known"
    assert token not in known.values()


async def test_a_refusal_is_requested_again_after_five_seconds_and_in_lists_after_five_minutes() -> None:
    clock, asked = Clock(), list[float]()
    kept: ReviewCache[str, bool] = ReviewCache(clock, 30, most=9, together=asyncio.Semaphore(1))

    async def refuse() -> bool:
        asked.append(clock.now)
        return False

    for seconds, in_list in ((0, True), (4, False), (1, False), (299, True), (1, True)):
        clock.now += seconds
        assert await kept.get("right", refuse, in_list=in_list) is False
    assert [at - asked[0] for at in asked] == [0, 5, 305]


async def test_a_right_in_one_of_many_namespaces_ends_with_its_review(reviews: CannedReviews) -> None:
    clock = Clock()
    spaces = [f"team-{number}" for number in range(40)]
    tenant = reviews.tenant("carol", "team-3", "team-4")
    caller = _Reviewed(Reviewer(reviews, ["queuectl"], clock), tenant, b"carol")

    async def readable() -> list[str]:
        allowed = await caller.namespaces("list", "workloads", spaces)
        return [name for name in spaces if name in allowed]

    assert await readable() == ["team-3", "team-4"]
    reviews.asked.clear()
    reviews.rights["carol"].remove(Access("list", "workloads", "team-3"))
    clock.now += 29.5
    assert await readable() == ["team-3", "team-4"]
    assert reviews.asked == []
    clock.now += 0.5
    assert await readable() == ["team-4"], "the reviews are 30 s old"
    assert len(reviews.asked) == 2, "those that were refused are not requested again"
    named = await caller.names("workloads", spaces)
    assert not any(name in named for name in spaces), "these are not names of namespaces"
    assert "team-4" in await caller.namespaces("get", "workloads", spaces)


async def test_after_a_failure_each_waiting_request_reviews_itself_and_nothing_is_cached() -> None:
    kept: ReviewCache[str, int] = ReviewCache(Clock(), 30, most=9, together=asyncio.Semaphore(9))
    answers: list[int] = []

    async def ask() -> int:
        await asyncio.sleep(0)
        if not answers:
            raise ClusterUnavailable("away")
        return answers[0]

    results = await asyncio.gather(*(kept.get("key", ask) for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in results] == ["away"] * 3
    answers.append(5)
    assert await kept.get("key", ask) == 5


async def test_if_the_request_that_reviews_is_cancelled_a_waiting_one_reviews_instead() -> None:
    kept: ReviewCache[str, int] = ReviewCache(Clock(), 30, most=9, together=asyncio.Semaphore(9))
    asked, go = [], asyncio.Event()

    async def ask() -> int:
        asked.append(1)
        await go.wait()
        return 7

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(kept.get("key", ask))
        others = [tasks.create_task(kept.get("key", ask)) for _ in range(3)]
        while not asked:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        while len(asked) < 2:
            await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*others) == [7, 7, 7]
    assert len(asked) == 2


async def test_59_a_step_of_the_wall_clock_changes_no_access(
    asked: Rest, reviews: CannedReviews, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ages are measured by monotonic clocks; the wall clock may be set."""
    wall, steps = 1.8e9, itertools.cycle((3600.0, -3600.0, 86_400.0, -86_400.0))
    monkeypatch.setattr(time, "time", lambda: wall + next(steps))
    monkeypatch.setattr(time, "time_ns", lambda: int((wall + next(steps)) * 1e9))
    assert await asked.status(ONE, token="alice") == 200
    count = len(reviews.asked)
    for _ in range(4):
        assert await asked.status(ONE, token="alice") == 200
        await asked.view.refresh()
        found = await asked.get(ONE, token="alice")
        assert 0 <= found["ageSeconds"] < 30
        assert "stale" not in found
    assert len(reviews.asked) == count
    del reviews.users["alice"]
    clock.now += 31
    assert await asked.status(ONE, token="alice") == 401


async def test_tokens_are_not_stored(asked: Rest, reviews: CannedReviews) -> None:
    reviews.tenant("a-secret-token", "default")
    reviews.users["a-secret-token"] = reviews.users["alice"]
    assert await asked.status(ONE, token="a-secret-token") == 200
    assert b"a-secret-token" not in b"".join(asked.reviewer.tokens._entries)
    assert "a-secret-token" not in repr(vars(asked.reviewer.tokens))


async def test_internal_errors_are_not_shown_to_clients(asked: Rest) -> None:
    asked.readings.down = AWAY
    await asked.view.refresh()
    detail = await asked.refused(asked.client.get(f"{ONE}/history", headers=bearer("alice")), 503)
    assert "connection refused" not in detail
    assert "connection refused" not in await (await asked.client.get("/readyz")).text()


def test_a_reviewer_without_an_audience_is_refused() -> None:
    with pytest.raises(ValueError, match="audience"):
        Reviewer(CannedReviews(), [], Clock())
