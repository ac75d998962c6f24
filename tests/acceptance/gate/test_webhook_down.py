"""An older API server with its webhook down: it fails open, and the gate says what to set by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from queuectl.kube.errors import ApiError
from tests.acceptance.gate.site import KINDS, MANIFESTS, OLDEST, SUBMITTER, Json, Kind, Site, put
from tests.integration.sandbox.polling import eventually

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("site", [f"as-{OLDEST}"], indirect=True, ids=[f"site={OLDEST}"]),
]
PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@contextlib.asynccontextmanager
async def silent() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A server that accepts connections and never answers, and an event set at the first connection."""
    called, over = asyncio.Event(), asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        await over.wait()
        writer.transport.abort()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mutate", called
    finally:
        over.set()
        server.close()


@contextlib.asynccontextmanager
async def configured(site: Site, client: Json) -> AsyncIterator[Json]:
    """The shipped configuration with another address."""
    body: Json = yaml.safe_load((MANIFESTS / "webhook" / "configuration.yaml").read_text())
    for webhook in body["webhooks"]:
        webhook["clientConfig"] = client or webhook["clientConfig"]
    await site.admin.request("POST", PATH, body)
    try:
        yield body
    finally:
        await site.admin.request("DELETE", f"{PATH}/{body['metadata']['name']}")


async def attempt(site: Site, kind: Kind, **how: Any) -> tuple[int, str, float]:
    """Status, message and seconds of a dry run by the tenant."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    body = kind.body("sent")
    put(body, kind.suspend, how["suspend"])
    try:
        made = await site.tenant.request("POST", kind.path(), body, query={"dryRun": "All"})
        return 201, str(made["metadata"].get("annotations", {}).get(SUBMITTER)), loop.time() - begun
    except ApiError as error:
        return error.status, str(error), loop.time() - begun


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_without_a_webhook_the_message_to_the_user_says_what_to_set(site: Site, kind: Kind) -> None:
    status, message, _ = await attempt(site, kind, suspend=False)
    assert status == 403
    assert f"set {'.'.join(kind.suspend)} to true: queuectl starts it when its queue has quota" in message
    assert (await attempt(site, kind, suspend=True))[:2] == (201, "None")


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_webhook_that_never_answers_costs_two_seconds_and_blocks_no_request(
    site: Site, kind: Kind
) -> None:
    async with silent() as (url, called), configured(site, {"url": url}):

        async def asked() -> bool:
            await attempt(site, kind, suspend=True)
            return called.is_set()

        await eventually(asked, "the API server calls the webhook", 60)
        status, message, seconds = await attempt(site, kind, suspend=False)
        assert status == 403
        assert f"set {'.'.join(kind.suspend)} to true" in message
        assert seconds > 1.5  # it was called, and waited for
        assert (await attempt(site, kind, suspend=True))[:2] == (201, "None")


async def test_a_webhook_that_does_not_run_blocks_no_request(site: Site) -> None:
    """The shipped configuration without its Deployment."""
    async with configured(site, {}):
        for kind in KINDS:
            assert (await attempt(site, kind, suspend=False))[0] == 403
            assert (await attempt(site, kind, suspend=True))[0] == 201


async def test_only_labelled_objects_of_users_are_sent_to_the_webhook(site: Site) -> None:
    async with silent() as (url, called), configured(site, {"url": url}):
        kind = KINDS[0]

        async def asked() -> bool:
            await attempt(site, kind, suspend=True)
            return called.is_set()

        await eventually(asked, "the API server calls the webhook", 60)
        called.clear()
        await site.tenant.request(
            "POST", kind.path(), kind.body("plain", queue=None), query={"dryRun": "All"}
        )
        secrets = "/api/v1/namespaces/team-a/configmaps"
        await site.admin.request("POST", secrets, {"metadata": {"name": "x"}}, query={"dryRun": "All"})
        jobs = "/apis/batch/v1/namespaces/queuectl-system/jobs"
        body = kind.body("ours", suspend=True)
        del body["metadata"]["namespace"]
        await site.admin.request("POST", jobs, body, query={"dryRun": "All"})
        # The controller's own requests, and updates that start nothing, are not sent either.
        with contextlib.suppress(ApiError):
            await site.controller.request("POST", kind.path(), kind.body("c"), query={"dryRun": "All"})
        assert not called.is_set()
