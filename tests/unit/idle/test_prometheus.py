"""Answers of a Prometheus server that are not whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from queuectl.idle import prometheus
from queuectl.idle.prometheus import Prometheus, PrometheusFailed, Sample

LARGE = {"metric": {}, "value": [1.0, 10**400]}
VECTOR = {"status": "success", "data": {"resultType": "vector", "result": []}}


async def asked(answer: web.Response, tmp_path: Path | None = None) -> tuple[list[Sample], list[web.Request]]:
    seen = []

    async def handle(request: web.Request) -> web.Response:
        form = await request.post()
        assert form["query"] == "up"
        seen.append(request)
        return answer

    app = web.Application()
    app.router.add_post("/prefix/api/v1/query", handle)
    async with TestServer(app) as server:
        token = None
        if tmp_path is not None:
            token = tmp_path / "token"
            token.write_text("secret\n")
        client = Prometheus(str(server.make_url("/prefix/")), token=token)
        return await client.query("up"), seen


def metric(value: str, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [1.0, value]}


async def test_samples_that_are_no_number_are_left_out(tmp_path: Path) -> None:
    result = [metric("0.5", UUID="a"), metric("NaN", UUID="b"), metric("+Inf", UUID="c")]
    answer = {**VECTOR, "data": {"resultType": "vector", "result": result}}
    found, seen = await asked(web.json_response(answer), tmp_path)
    assert found == [Sample({"UUID": "a"}, 0.5)]
    assert seen[0].headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, {"status": "error", "errorType": "bad_data", "error": "parse error"}, "HTTP 400: parse error"),
        (422, {"status": "error", "errorType": "execution", "error": "too many"}, "HTTP 422: too many"),
        (503, {"status": "error"}, "HTTP 503: no reason given"),
        (200, {**VECTOR, "warnings": ["a store is away"]}, "the answer is not whole: a store is away"),
        (200, {"status": "success", "data": {"resultType": "matrix", "result": []}}, "not an answer"),
        (200, {"status": "success"}, "not an answer"),
        (200, {"status": "success", "data": {"resultType": "vector", "result": [7]}}, "not an answer"),
        (200, [], "not an answer"),
        (200, {**VECTOR, "data": {"resultType": "vector", "result": [LARGE]}}, "not an answer"),
    ],
)
async def test_an_answer_that_is_not_whole_is_no_answer(status: int, body: Any, message: str) -> None:
    with pytest.raises(PrometheusFailed, match=message):
        await asked(web.json_response(body, status=status))


async def test_a_page_of_a_proxy_is_no_answer() -> None:
    with pytest.raises(PrometheusFailed, match="HTTP 502: not an answer of Prometheus"):
        await asked(web.Response(status=502, text="<html>bad gateway</html>"))


async def test_a_long_error_is_cut() -> None:
    with pytest.raises(PrometheusFailed) as failure:
        await asked(web.json_response({"status": "error", "error": "x\n" * 5000}, status=400))
    assert len(str(failure.value)) == 300
    assert "\n" not in str(failure.value)


async def test_an_answer_of_too_many_samples_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who exports series must not fill the memory of the controller: they take fifteen times their bytes."""
    answer = {**VECTOR, "data": {"resultType": "vector", "result": [metric("1"), metric("2")]}}
    monkeypatch.setattr(prometheus, "MOST_SAMPLES", 2)
    assert len((await asked(web.json_response(answer)))[0]) == 2
    monkeypatch.setattr(prometheus, "MOST_SAMPLES", 1)
    with pytest.raises(PrometheusFailed, match="an answer has over 1 samples"):
        await asked(web.json_response(answer))


async def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_BYTES", 20)
    with pytest.raises(PrometheusFailed, match="an answer is over"):
        await asked(web.json_response(VECTOR))


async def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(PrometheusFailed, match=r"127\.0\.0\.1"):
        await Prometheus("http://127.0.0.1:1").query("up")


async def test_a_server_that_is_silent_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "DEADLINE", 0.0)
    with pytest.raises(PrometheusFailed, match="no answer within 0 s"):
        await Prometheus("http://127.0.0.1:1").query("up")


async def test_a_token_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PrometheusFailed, match="missing"):
        await Prometheus("http://127.0.0.1:1", token=tmp_path / "missing").query("up")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"two\nlines", b"secret\x00"], ids=["bytes", "lines", "NUL"]
)
async def test_a_token_that_is_none_is_an_error_and_is_not_shown(tmp_path: Path, content: bytes) -> None:
    token = tmp_path / "token"
    token.write_bytes(content)
    with pytest.raises(PrometheusFailed) as failure:
        await Prometheus("http://127.0.0.1:1", token=token).query("up")
    assert str(failure.value) == f"{token} is not a bearer token"
