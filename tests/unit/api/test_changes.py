"""Changes that callers make through REST: their bodies, their origin, refusals. Without a cluster."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from queuectl.ports.changes import ChangeRefused, Wanted, WantedSize
from tests.unit.api.canned import two_teams
from tests.unit.api.changing import OWN_PAGE, CannedChanges
from tests.unit.api.conftest import Clock, Rest, Serve, bearer
from tests.unit.api.reviews import CannedReviews

HOLD = "/api/v1/workloads/default/job/large/hold"
FIT = HOLD.replace("hold", "fit")
STOP = "/api/v1/clusterqueues/team-a/stop"


@pytest.fixture
def changes() -> CannedChanges:
    return CannedChanges()


@pytest.fixture
async def rest(serve: Serve, changes: CannedChanges) -> Rest:
    return await serve(two_teams(), changes=changes)


async def test_a_server_without_changes_refuses_each_one_and_says_why(serve: Serve) -> None:
    rest = await serve(two_teams())
    for path in (HOLD, STOP):
        said = await rest.refused(rest.client.post(path, json={}, headers=OWN_PAGE), 403)
        assert "api.changes is none" in said
        assert "command line" in said


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        (HOLD, {}, Wanted(verb="hold", kind="job", namespace="default", name="large")),
        (
            HOLD,
            {"evict": True, "reason": " node 7 is broken "},
            Wanted(
                verb="hold",
                kind="job",
                namespace="default",
                name="large",
                evict=True,
                reason="node 7 is broken",
            ),
        ),
        (
            HOLD.replace("hold", "move"),
            {"queue": "other", "dryRun": True},
            Wanted(verb="move", kind="job", namespace="default", name="large", target="other", dry_run=True),
        ),
        (
            HOLD.replace("hold", "priority"),
            {"priorityClass": None},
            Wanted(verb="priority", kind="job", namespace="default", name="large"),
        ),
        (
            HOLD.replace("hold", "cancel"),
            {"evict": True},
            Wanted(verb="cancel", kind="job", namespace="default", name="large", evict=True),
        ),
        (
            FIT,
            {"gpus": 4, "pods": None},
            Wanted(verb="fit", kind="job", namespace="default", name="large", size=WantedSize(gpus=4)),
        ),
        (
            FIT,
            {"pods": 2, "podSet": "worker", "completions": True},
            Wanted(
                verb="fit",
                kind="job",
                namespace="default",
                name="large",
                size=WantedSize(pods=2, pod_set="worker", completions=True),
            ),
        ),
        (
            STOP,
            {"drain": True},
            Wanted(verb="stop", kind="ClusterQueue", namespace="", name="team-a", evict=True),
        ),
        (
            "/api/v1/localqueues/default/main/resume",
            {},
            Wanted(verb="resume", kind="LocalQueue", namespace="default", name="main"),
        ),
    ],
)
async def test_a_change_is_what_path_and_body_say(
    rest: Rest, changes: CannedChanges, path: str, body: Any, wanted: Wanted
) -> None:
    answer = await rest.client.post(path, json=body, headers=OWN_PAGE)
    assert answer.status == 200, await answer.text()
    found = await answer.json()
    assert changes.made == [(wanted, None)]
    assert found["meaning"] == f"It means {wanted.verb}."
    assert (found["written"], found["dryRun"]) == (not wanted.dry_run, wanted.dry_run)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (HOLD, {"drain": True}, "'drain' is not known here: evict, reason, dryRun"),
        (HOLD.replace("hold", "cancel"), {"reason": "x"}, "'reason' is not known here: evict, dryRun"),
        (HOLD, {"evict": "yes"}, "evict must be true or false"),
        (HOLD, {"reason": "two\nlines"}, "reason must be one line"),
        (HOLD, {"reason": "x" * 201}, "reason must be one line of 1 to 200"),
        (HOLD, [], "one JSON object"),
        (HOLD.replace("hold", "move"), {}, "queue must be the name of an object"),
        (HOLD.replace("hold", "move"), {"queue": "../x"}, "queue must be the name of an object"),
        (HOLD.replace("hold", "priority"), {}, "priorityClass must be the name of an object"),
        (FIT, {}, "gpus, pods or both are required"),
        (FIT, {"gpus": 0}, "gpus must be a whole number from 1 to 2147483647, not 0"),
        (FIT, {"gpus": 2**31}, "gpus must be a whole number from 1 to 2147483647, not 2147483648"),
        (FIT, {"pods": True}, "pods must be a whole number from 1 to 2147483647, not True"),
        (FIT, {"pods": "2"}, "pods must be a whole number from 1 to 2147483647, not '2'"),
        (FIT, {"pods": 2, "podSet": 3}, "podSet must be the name of a podset"),
        (FIT, {"pods": 2, "completions": 4}, "completions must be true or false"),
        (FIT, {"pods": 2, "queue": "main"}, "'queue' is not known here: gpus, pods, podSet, completions"),
    ],
)
async def test_a_bad_body_is_refused_with_its_field(
    rest: Rest, changes: CannedChanges, path: str, body: Any, says: str
) -> None:
    assert says in await rest.refused(rest.client.post(path, json=body, headers=OWN_PAGE), 400)
    assert changes.made == []


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({}, "needs the header `Queuectl-Request: change`"),
        ({"Queuectl-Request": "other"}, "needs the header"),
        ({**OWN_PAGE, "Sec-Fetch-Site": "cross-site"}, "Sec-Fetch-Site: cross-site"),
        ({**OWN_PAGE, "Sec-Fetch-Site": "same-site"}, "Sec-Fetch-Site: same-site"),
        ({**OWN_PAGE, "Origin": "https://evil.example"}, "header Origin"),
        ({**OWN_PAGE, "Origin": "null"}, "header Origin"),
    ],
)
async def test_a_page_of_another_server_changes_nothing(
    rest: Rest, changes: CannedChanges, headers: dict[str, str], says: str
) -> None:
    assert says in await rest.refused(rest.client.post(HOLD, json={}, headers=headers), 403)
    assert changes.made == []


async def test_a_browser_is_not_told_that_another_page_may_send_a_change(rest: Rest) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Headers": "queuectl-request"}
    answer = await rest.client.options(HOLD, headers=asked)
    assert answer.status == 405
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


async def test_the_page_itself_may(rest: Rest, changes: CannedChanges) -> None:
    origin = f"http://{rest.client.host}:{rest.client.port}"
    for more in ({"Sec-Fetch-Site": "same-origin", "Origin": "https://proxy.example"}, {"Origin": origin}):
        assert (await rest.client.post(HOLD, json={}, headers={**OWN_PAGE, **more})).status == 200
    assert len(changes.made) == 2


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 503])
async def test_a_refusal_is_passed_on_in_its_words(rest: Rest, changes: CannedChanges, status: int) -> None:
    changes.refusal = ChangeRefused(status, "an admission policy refuses the change")
    said = await rest.refused(rest.client.post(HOLD, json={}, headers=OWN_PAGE), status)
    assert said.startswith("an admission policy refuses the change")


async def test_a_body_is_small_json_and_a_get_changes_nothing(rest: Rest, changes: CannedChanges) -> None:
    post, as_json = rest.client.post, {**OWN_PAGE, "Content-Type": "application/json"}
    await rest.refused(post(HOLD, data=b" " * 5000, headers=as_json), 413)
    await rest.refused(post(HOLD, data=b"{}", headers={**OWN_PAGE, "Content-Type": "text/plain"}), 415)
    await rest.refused(rest.client.get(HOLD, headers=OWN_PAGE), 405)
    assert changes.made == []


async def test_changes_of_one_caller_are_limited_and_need_a_token(
    serve: Serve, changes: CannedChanges
) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    rest = await serve(two_teams(), reviews, Clock(), changes)
    headers = {**bearer("alice"), **OWN_PAGE}
    found = [(await rest.client.post(HOLD, json={}, headers=headers)).status for _ in range(31)]
    assert found == [200] * 30 + [429]
    await rest.refused(rest.client.post(HOLD, json={}, headers=OWN_PAGE), 401)


async def test_the_log_has_each_change_with_its_caller_and_never_the_token(
    serve: Serve, changes: CannedChanges, caplog: pytest.LogCaptureFixture
) -> None:
    reviews = CannedReviews()
    reviews.add("secret-token", name="alice@example.com")
    reviews.rights["alice@example.com"] = reviews.rights[reviews.tenant("other", "default").name]
    rest = await serve(two_teams(), reviews, Clock(), changes)
    caplog.set_level(logging.INFO, "queuectl.api.change_routes")
    headers = {**bearer("secret-token"), **OWN_PAGE}
    await rest.client.post(HOLD, json={"dryRun": True}, headers=headers)
    await rest.client.post(HOLD, json={}, headers=headers)
    changes.refusal = ChangeRefused(403, "no\nnever")
    await rest.client.post(HOLD, json={}, headers=headers)
    done, refused = caplog.messages
    assert done == 'hold job/default/large by ["alice@example.com", ""]: \'spec.stopPolicy: None -> Hold\''
    assert refused.endswith("'refused: 403 no\\nnever'")
    assert "secret-token" not in caplog.text
