"""Authentication: the cluster reviews tokens, its results are cached for a while, and apply to requests."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from types import FunctionType

import pytest

from queuectl.api.authorization import MOST_TOKENS, Reviewer, _Reviewed
from queuectl.api.limits import STRANGERS_BURST
from queuectl.api.review_cache import BESIDE, LATELY, MOST_LATE, Lifetimes, Remembered
from queuectl.ports.cluster import ClusterUnavailable
from queuectl.ports.reviews import Access
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


async def test_reviews_in_use_are_refreshed_in_the_background_before_they_expire(
    asked: Rest, reviews: CannedReviews, clock: Clock
) -> None:
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(asked.reviewer.run())
        assert await asked.status(ONE, token="alice") == 200
        reviews.asked.clear()
        for _ in range(6):
            clock.now += 23
            assert await asked.status(ONE, token="alice") == 200
            # Both were cached, and both are refreshed soon after.
            while reviews.count(str) == 0 or reviews.count(Access) == 0:
                await asyncio.sleep(0)
            reviews.asked.clear()
        del reviews.users["alice"]
        clock.now += 23
        assert await asked.status(ONE, token="alice") == 200
        while await asked.status(ONE, token="alice") == 200:
            await asyncio.sleep(0.001)
        running.cancel()


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
    kept: Remembered[int, int] = Remembered(Lifetimes(), clock, most=3, together=asyncio.Semaphore(1))
    asked: list[int] = []

    async def get(key: int) -> int:
        async def ask() -> int:
            asked.append(key)
            return key + 1

        return await kept.get(key, ask)

    for key in (0, 1, 2, 0, 3, 0, 1):
        assert await get(key) == key + 1
    assert asked == [0, 1, 2, 3, 1]


async def test_a_refusal_is_asked_again_in_lists_after_ninety_seconds_and_alone_after_five() -> None:
    clock, asked = Clock(), []
    kept: Remembered[str, bool] = Remembered(Lifetimes(), clock, most=9, together=asyncio.Semaphore(1))

    async def refuse() -> bool:
        asked.append(clock.now)
        return False

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(kept.keep_fresh())
        for _ in range(110):
            assert await kept.get("right", refuse, in_list=True) is False
            for _ in range(5):
                await asyncio.sleep(0)  # what was asked beside is answered
            clock.now += 1
        running.cancel()
    assert [at - asked[0] for at in asked] == [0, 90]
    await kept.get("right", refuse)
    assert len(asked) == 3


async def test_a_right_that_was_used_lately_is_reviewed_before_it_expires_and_others_are_not() -> None:
    clock, asked, good = Clock(), list[float](), Lifetimes().good
    kept: Remembered[str, bool] = Remembered(
        Lifetimes(), clock, most=9, together=asyncio.Semaphore(1), ahead=True
    )

    async def grant() -> bool:
        asked.append(clock.now)
        return True

    async def pass_by(seconds: int) -> None:
        for _ in range(seconds):
            clock.now += 1
            for _ in range(9):
                await asyncio.sleep(0)  # it is looked for, asked beside and answered

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(kept.keep_fresh(look_seconds=0))
        assert await kept.get("right", grant)
        for _ in range(4):
            await pass_by(50)
            assert kept.known("right", grant) is True, "no request waits for a review"
        last_use = clock.now
        await pass_by(400)
        assert kept.known("right", grant) is None
        running.cancel()
    assert all(after - before >= good / 2 for before, after in itertools.pairwise(asked))
    assert last_use + (LATELY - 1) * good < asked[-1] < last_use + LATELY * good


async def test_few_rights_of_a_caller_that_has_left_are_reviewed_at_a_time() -> None:
    clock, asked = Clock(), list[int]()
    kept: Remembered[int, bool] = Remembered(
        Lifetimes(), clock, most=999, together=asyncio.Semaphore(1), ahead=True
    )

    def grant(number: int) -> Callable[[], Awaitable[bool]]:
        async def ask() -> bool:
            asked.append(number)
            return True

        return ask

    for number in range(5 * MOST_LATE):
        await kept.get(number, grant(number))
    clock.now += Lifetimes().good - 1
    asked.clear()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(kept.keep_fresh(look_seconds=30))
        kept._refresh_late()
        while len(asked) < MOST_LATE:
            await asyncio.sleep(0)
        clock.now += 1
        kept._refresh_late()
        for _ in range(99):
            await asyncio.sleep(0)
        running.cancel()
    assert asked == list(range(MOST_LATE)), "the others have expired"


async def test_the_token_of_a_caller_is_not_kept(serve: Serve, reviews: CannedReviews) -> None:
    token = os.urandom(8).hex()
    reviews.add(token, Access("get", "workloads", "default"), name="ada")
    rest = await serve(two_teams(), reviews, Clock())
    assert await rest.status(ONE, token=token) == 200
    assert rest.reviewer is not None
    todo: list[object] = [rest.reviewer.tokens._entries, rest.reviewer.tokens._late]
    known: dict[int, object] = {}
    while todo:
        one = todo.pop()
        if id(one) not in known and not isinstance(one, type):
            known[id(one)] = one
            todo += [one.__closure__] if isinstance(one, FunctionType) else gc.get_referents(one)
    assert "ada" in known.values(), "the user is known"
    assert token not in known.values()


async def test_rights_are_reviewed_again_before_the_refusals_of_a_page() -> None:
    clock, asked = Clock(), list[str]()
    kept: Remembered[str, bool] = Remembered(
        Lifetimes(), clock, most=9_999, together=asyncio.Semaphore(1), ahead=True
    )

    def ask(name: str) -> Callable[[], Awaitable[bool]]:
        async def answer() -> bool:
            asked.append(name)
            await asyncio.sleep(0)
            return name == "good"

        return answer

    for number in range(900):
        await kept.get(f"bad-{number}", ask(f"bad-{number}"), in_list=True)
    clock.now += 95
    assert await kept.get("good", ask("good"))
    asked.clear()
    for number in range(900):
        assert kept.known(f"bad-{number}", ask(f"bad-{number}"), in_list=True) is False
    clock.now += Lifetimes().good - 1
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(kept.keep_fresh(look_seconds=0))
        while "good" not in asked:
            await asyncio.sleep(0)
        running.cancel()
    assert asked.index("good") <= BESIDE, "it waits for those that are under way, and for no other one"


async def test_expected_answers_come_after_rights_in_use_and_before_refusals() -> None:
    clock, asked = Clock(), list[str]()
    kept: Remembered[str, bool] = Remembered(Lifetimes(), clock, most=99, together=asyncio.Semaphore(1))

    def ask(name: str) -> Callable[[], Awaitable[bool]]:
        async def answer() -> bool:
            asked.append(name)
            return name != "bad"

        return answer

    await kept.get("bad", ask("bad"), in_list=True)
    clock.now += 100
    await kept.get("used", ask("used"))
    clock.now += Lifetimes().good - 1
    asked.clear()
    kept.known("bad", ask("bad"), in_list=True)
    for name in ("soon", "soon", "meanwhile", "bad"):
        kept.expect(name, ask(name))
    kept.known("used", ask("used"))
    assert kept.last("soon") is None, "it is asked for in the background"
    await kept.get("meanwhile", ask("meanwhile"))
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(kept.keep_fresh())
        while "bad" not in asked:
            await asyncio.sleep(0)
        running.cancel()
    assert asked == ["meanwhile", "used", "soon", "bad"], "each one once"
    assert kept.known("soon", ask("soon")) is True


@pytest.mark.parametrize("token", ["alice", "admin"])
async def test_only_of_a_caller_without_the_right_everywhere_expected_rights_are_reviewed_one_by_one(
    token: str, reviews: CannedReviews, clock: Clock
) -> None:
    reviewer = Reviewer(reviews, ["queuectl"], clock)
    caller = _Reviewed(reviewer, reviews.users[token], token.encode())
    everywhere = Access("get", "workloads")
    found = list[object]()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reviewer.run())
        for _ in range(2):
            await caller.namespaces("get", "workloads", ["default"], soon=["team-a", "team-b"])
            for _ in range(99):
                await asyncio.sleep(0)
            found.append(sorted(map(str, reviews.asked)))
            reviews.asked.clear()
        running.cancel()
    each = [everywhere._replace(namespace=name) for name in ("team-a", "team-b")]
    first = [everywhere, everywhere._replace(namespace="default")]
    assert found == [sorted(map(str, first)), sorted(map(str, each)) if token == "alice" else []]


async def test_without_a_later_question_no_right_but_the_one_asked_about_is_reviewed(
    reviews: CannedReviews, clock: Clock
) -> None:
    reviewer = Reviewer(reviews, ["queuectl"], clock)
    caller = _Reviewed(reviewer, reviews.users["alice"], b"alice")
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reviewer.run())
        assert "default" in await caller.namespaces("get", "workloads", ["default"])
        for _ in range(99):
            await asyncio.sleep(0)
        running.cancel()
    assert reviews.asked == [Access("get", "workloads", "default")]


async def test_a_refusal_serves_lists_for_five_minutes() -> None:
    clock = Clock()
    kept: Remembered[str, bool] = Remembered(Lifetimes(), clock, most=9, together=asyncio.Semaphore(1))

    async def refuse() -> bool:
        return False

    await kept.get("right", refuse, in_list=True)
    clock.now += 299
    assert kept.known("right", refuse, in_list=True) is False
    clock.now += 1
    assert kept.known("right", refuse, in_list=True) is None


async def test_rights_in_many_namespaces_are_looked_up_once_a_second_and_end_with_their_reviews() -> None:
    clock, reviews, hits = Clock(), CannedReviews(), list[str]()

    class Hits:
        def reviewed(self, kind: str, remembered: bool) -> None:
            hits.append(kind)

    spaces = [f"team-{number}" for number in range(40)]
    tenant = reviews.tenant("alice", "team-3", "team-4")
    reviewer = Reviewer(reviews, ["queuectl"], clock, observer=Hits())  # type: ignore[arg-type]
    caller = _Reviewed(reviewer, tenant, b"alice")

    async def readable() -> list[str]:
        found = await caller.namespaces("list", "workloads", spaces)
        return [name for name in spaces if name in found]

    assert await readable() == ["team-3", "team-4"]
    hits.clear()
    assert await readable() == ["team-3", "team-4"]
    assert len(hits) == 1, "the right in all namespaces alone is looked up"
    clock.now += 29.5
    assert await readable() == ["team-3", "team-4"]
    reviews.rights["alice"].remove(Access("list", "workloads", "team-3"))
    clock.now += 0.5
    assert await readable() == ["team-4"], "the reviews are 30 s old"
    named = await caller.names("workloads", spaces)
    assert not any(name in named for name in spaces), "these are not names of namespaces"
    assert "team-4" in await caller.namespaces("get", "workloads", spaces)


async def test_if_the_request_that_reviews_is_cancelled_a_waiting_one_reviews_instead() -> None:
    kept: Remembered[str, int] = Remembered(Lifetimes(), Clock(), most=9, together=asyncio.Semaphore(9))
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


async def test_a_failure_reaches_all_waiting_requests_and_is_not_cached() -> None:
    kept: Remembered[str, int] = Remembered(Lifetimes(), Clock(), most=9, together=asyncio.Semaphore(9))
    answers: list[int] = []

    async def ask() -> int:
        await asyncio.sleep(0)
        if not answers:
            raise ClusterUnavailable("away")
        return answers[0]

    found = await asyncio.gather(*(kept.get("key", ask) for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in found] == ["away"] * 3
    answers.append(5)
    assert await kept.get("key", ask) == 5


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
