from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from queuectl.kube import account, errors
from queuectl.kube.session import Deadlines, Session, api_path
from queuectl.kube.transport import HttpTransport
from queuectl.ports.cluster import ClusterUnavailable
from tests.integration.kube.scripted import Scripted


async def _answer(script: Scripted, **deadlines: float) -> Session:
    return Session(HttpTransport(script.url), deadlines=Deadlines(**deadlines))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.BadRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.BadRequest),
        (409, errors.Conflict),
        (410, errors.Gone),
        (422, errors.Invalid),
        (429, errors.TooManyRequests),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
        (302, errors.Unavailable),
    ],
)
async def test_each_error_status_has_its_exception(status: int, kind: type[errors.ApiError]) -> None:
    script = Scripted()
    async with script.serve():
        session = await _answer(script)
        script.refuse(status, "because", Retry_After="12")
        with pytest.raises(errors.ApiError) as caught:
            await session.get("/x")
        await session.close()
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.retry_after) == (status, 12)
    assert isinstance(caught.value, ClusterUnavailable) == issubclass(kind, errors.Unavailable)
    assert "GET /x" in str(caught.value)
    assert "because" in str(caught.value)


def test_a_long_message_keeps_its_end_where_what_is_wrong_stands() -> None:
    message = f"spec.template: Invalid value: {'x' * 5000}: field is immutable"
    error = str(errors.from_status("PATCH /x", 422, message))
    assert error.startswith("PATCH /x: 422 spec.template: Invalid value: xxx")
    assert error.endswith("xxx: field is immutable")
    assert len(error) < 600


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"[1]", b"", b"\xff\xfe"])
async def test_an_invalid_answer_counts_as_no_answer(body: bytes) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=body)

    script = Scripted()
    script.handle = handle  # type: ignore[assignment,method-assign]
    async with script.serve():
        session = await _answer(script)
        with pytest.raises(errors.Unavailable):
            await session.get("/x")
        await session.close()


async def test_a_request_to_a_server_that_never_answers_times_out() -> None:
    async def handle(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    script = Scripted()
    script.handle = handle  # type: ignore[assignment,method-assign]
    async with asyncio.timeout(10), script.serve():
        session = await _answer(script, unary=0.05)
        with pytest.raises(errors.Unavailable, match="no answer in time"):
            await session.get("/x")
        with pytest.raises(errors.Unavailable, match="no answer in time"):
            async with session.watch("/x", query={}):
                raise AssertionError
        assert session.requests == {("GET", 0): 2}
        await session.close()


async def test_a_refused_connection_is_unavailable() -> None:
    session = Session(HttpTransport("http://127.0.0.1:1"))
    with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.1:1"):
        await session.get("/x")
    await session.close()


async def test_watches_do_not_take_the_connections_of_other_requests() -> None:
    script = Scripted()
    async with asyncio.timeout(10), script.serve() as url:
        session = Session(HttpTransport(url, watches=4, connections=1))
        async with asyncio.TaskGroup() as group:

            async def hold() -> None:
                async with session.watch("/x", query={"resourceVersion": "1"}) as events:
                    async for _ in events:
                        pass

            tasks = [group.create_task(hold()) for _ in range(4)]
            while len(script.asked) < 4:
                await asyncio.sleep(0.002)
            assert await session.get("/x")
            for task in tasks:
                task.cancel()
        await session.close()


async def test_the_servers_clock_is_known_from_its_answers() -> None:
    script = Scripted()
    async with script.serve():
        session = await _answer(script)
        assert session.server_time() == datetime(1970, 1, 1, tzinfo=UTC)
        await session.get("/x")
        assert session.server_time().year >= 2024
        await session.close()


def test_paths_name_group_namespace_and_subresource() -> None:
    assert api_path("", "v1", "pods", "ns", "p", "status") == "/api/v1/namespaces/ns/pods/p/status"
    assert api_path("batch", "v1", "jobs") == "/apis/batch/v1/jobs"
    assert api_path("batch", "v1", "jobs", "ns", "a/../b") == "/apis/batch/v1/namespaces/ns/jobs/a%2F..%2Fb"


# --- credentials ----------------------------------------------------------------------------------------


def _kubeconfig(folder: Path, url: str, user: dict[str, Any]) -> Path:
    path = folder / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


async def test_a_rotated_token_file_is_read_again_when_the_old_token_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    script = Scripted()
    async with script.serve() as url:
        session = await Session.from_kubeconfig(
            str(_kubeconfig(tmp_path, url, {"tokenFile": str(token)})), "here"
        )
        await session.get("/x")
        token.write_text("new")
        script.refuse(401)
        script.listing(1)
        await session.get("/x")
        await session.close()
    assert script.tokens == ["Bearer old", "Bearer old", "Bearer new"]


async def test_unreadable_credentials_count_as_no_answer_and_are_read_again() -> None:
    class Replaced:
        """A token file that is being replaced."""

        missing = True

        async def authorization(self) -> str | None:
            if self.missing:
                raise errors.BadKubeconfig("no credentials: no such file")
            return "Bearer new"

        async def refresh(self, refused: str | None) -> None:
            raise AssertionError("there was no refusal")

    script, identity = Scripted(), Replaced()
    async with script.serve() as url:
        session = Session(HttpTransport(url), identity)
        with pytest.raises(errors.Unavailable, match="no such file"):
            await session.get("/x")
        identity.missing = False
        await session.get("/x")
        await session.close()
    assert script.tokens == ["Bearer new"]


async def test_a_failing_credential_hook_is_reported_as_no_credentials(tmp_path: Path) -> None:
    def fails(configuration: Any) -> None:
        raise OSError("Service token file does not exist.")

    async with Scripted().serve() as url:
        path = _kubeconfig(tmp_path, url, {"token": "t"})
        identity = await account.from_kubeconfig(str(path), None)
        identity._configuration.refresh_api_key_hook = fails
        with pytest.raises(errors.BadKubeconfig, match="token file does not exist"):
            await identity.authorization()


async def test_a_token_that_stays_refused_is_tried_twice_and_no_more(tmp_path: Path) -> None:
    script = Scripted()
    async with script.serve() as url:
        session = await Session.from_kubeconfig(str(_kubeconfig(tmp_path, url, {"token": "t"})))
        script.refuse(401)
        with pytest.raises(errors.Unauthorized):
            await session.get("/x")
        await session.close()
    assert script.tokens == ["Bearer t", "Bearer t"]


async def test_a_kubeconfig_that_cant_be_used_is_named(tmp_path: Path) -> None:
    good = _kubeconfig(tmp_path, "http://127.0.0.1:1", {})
    broken = tmp_path / "broken"
    broken.write_text("{")
    for path, context in ((tmp_path / "none", None), (good, "nowhere"), (broken, None)):
        with pytest.raises(errors.BadKubeconfig, match=str(path)):
            await Session.from_kubeconfig(str(path), context)


async def test_outside_a_cluster_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.BadKubeconfig, match="service account of this pod"):
        await Session.in_cluster()


async def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority, other = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    app = web.Application()
    app.router.add_get("/x", _hello)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        for vouching, good in ((authority, True), (other, False)):
            tls = ssl.create_default_context()
            vouching.configure_trust(tls)
            session = Session(HttpTransport(url, tls=tls))
            if good:
                assert await session.get("/x") == {"hello": "you"}
            else:
                with pytest.raises(errors.Unavailable, match="certificate verify failed"):
                    await session.get("/x")
            await session.close()
    finally:
        await runner.cleanup()


async def _hello(_: web.Request) -> web.Response:
    return web.json_response({"hello": "you"})


async def test_a_watch_that_ends_inside_an_event_is_an_error() -> None:
    script = Scripted()
    script.watch(b'{"type":"BOOKMARK","object":{}}\n{"type":')
    async with script.serve():
        session = await _answer(script)
        async with session.watch("/x", query={"resourceVersion": "1"}) as batches:
            assert await anext(batches) == [{"type": "BOOKMARK", "object": {}}]
            with pytest.raises(errors.Unavailable, match="ended inside an event"):
                await anext(batches)
        await session.close()
