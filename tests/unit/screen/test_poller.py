"""The poller's requests, and its handling of answers and failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from queuectl.cli.watching import client
from queuectl.screen.facts import facts
from queuectl.screen.poller import Answer, Away, RequestRefused, look, only_queue, plain
from tests.unit.screen.documents import NOW, answers, busy, capacity, decision, page, queue, running, waiting


class Server:
    """Answers lists by name, and remembers what it was asked."""

    def __init__(self, **lists: Any) -> None:
        self.lists = {
            "clusterqueues": page([queue("team-a", pending=20_000), queue("team-b")]),
            "workloads Admitted": page([running("train")]),
            "workloads Evicting": page(),
            "workloads Pending": page([waiting("a"), waiting("b", queue="team-b")], more=True),
            "decisions": page([decision(7)]),
            "capacity": page([capacity("a100")]),
            **lists,
        }
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def __call__(self, path: tuple[str, ...], parameters: Mapping[str, str]) -> Answer:
        name = " ".join([*path, *filter(None, [parameters.get("phase")])])
        self.asked.append((name, dict(parameters)))
        found = self.lists[name]
        if isinstance(found, Exception):
            raise found
        return Answer(found, NOW)


async def test_20_000_waiting_cost_a_page() -> None:
    server = Server()
    seen = await look(server, None, None)
    assert len(server.asked) == 6
    assert all("next" not in parameters and "limit" in parameters for _, parameters in server.asked)
    assert seen.facts.more_waiting
    assert seen.date == NOW


async def test_without_a_new_decision_only_the_queues_are_requested() -> None:
    server = Server()
    seen = await look(server, None, None)
    server.asked.clear()
    server.lists["clusterqueues"] = page([queue("team-a")], ageSeconds=9.0)
    again = await look(server, None, seen)
    assert [name for name, _ in server.asked] == ["clusterqueues", "capacity"]
    assert again.facts.age_seconds == 9.0
    assert again.facts.waiting == seen.facts.waiting
    server.lists["clusterqueues"] = page([queue("team-a")], sequence=8)
    await look(server, None, again)
    assert len(server.asked) == 8


async def test_a_filter_that_matches_one_queue_is_sent_to_the_server() -> None:
    server = Server()
    seen = await look(server, None, None)
    assert only_queue("team", seen.facts) is None
    assert only_queue("m-b", seen.facts) == "team-b"
    server.asked.clear()
    await look(server, "team-b", seen)
    asked = [parameters for name, parameters in server.asked if name.startswith("workloads")]
    assert len(asked) == 3
    assert all(parameters["clusterqueue"] == "team-b" for parameters in asked)


async def test_what_is_free_on_nodes_is_read_each_time() -> None:
    server = Server()
    seen = await look(server, None, None)
    assert [(room.free, room.there, room.unmanaged) for room in seen.facts.rooms] == [(2, 8, 1)]
    server.lists["capacity"] = page([capacity("a100", free=5)])
    again = await look(server, None, seen)
    assert [room.free for room in again.facts.rooms] == [5]
    server.lists["capacity"] = RequestRefused("404")
    assert (await look(server, None, again)).facts.rooms == ()


async def test_a_caller_that_may_not_read_decisions_sees_the_rest() -> None:
    seen = await look(Server(decisions=RequestRefused("403")), None, None)
    assert seen.facts.decisions is None
    assert seen.facts.waiting
    with pytest.raises(Away):
        await look(Server(decisions=Away("no answer")), None, None)


@pytest.mark.parametrize("strange", [{}, {"items": 3}, page([{}]), {**page(), "ageSeconds": "old"}])
async def test_an_answer_of_another_server_is_reported(strange: dict[str, Any]) -> None:
    with pytest.raises(Away, match="not an answer of queuectl's REST server"):
        await look(Server(clusterqueues=strange), None, None)


async def test_programs_get_the_documents_as_they_came() -> None:
    seen = await look(Server(), None, None)
    found = plain(seen, "team-b")
    assert [item["name"] for item in found["clusterQueues"]] == ["team-b"]
    assert [item["name"] for item in found["waiting"]] == ["b"]
    assert found["running"] == []
    assert found["more"] == {"clusterQueues": False, "running": False, "waiting": True}
    assert len(plain(seen)["waiting"]) == 2
    assert facts(busy()).running[0].title == "team-a/job/train"
    assert answers().decisions is not None


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (200, b'{"items": [], "sequence": 1}', None, ""),
        (404, b'{"detail": "no such list"}', RequestRefused, "not found: no such list"),
        (503, b'{"detail": "not yet"}', Away, "answers 503: not yet"),
        (200, b"[]", Away, "does not answer like queuectl"),
        (200, b"\xff\x00", Away, "does not answer like queuectl"),
        (302, b"", Away, "answers 302"),
    ],
)
async def test_over_http_every_answer_is_a_document_or_a_reason(
    status: int, body: bytes, error: type[Exception] | None, message: str
) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, body=body, headers={"Location": "/elsewhere"})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ask = client(url)
        if error is None:
            found = await ask(("clusterqueues",), {})
            assert found.document == {"items": [], "sequence": 1}
            assert found.date.tzinfo is not None
        else:
            with pytest.raises(error, match=message):
                await ask(("clusterqueues",), {})
    finally:
        await runner.cleanup()
    with pytest.raises(Away, match="no answer"):
        await client(url)(("clusterqueues",), {})
