"""Own certificates in a Secret of the small API and of a real one: shared, renewed, published."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from queuectl.certificates.renewal import Lifetimes
from queuectl.certificates.tls_context import SelfMade, Serving, serving_tls
from queuectl.kube.secrets import BundleConfigMap, SecretVault, WebhookConfiguration
from queuectl.kube.session import api_path
from queuectl.ports.cluster import ClusterUnavailable
from queuectl.settings import TlsSettings
from tests.integration.kube.sites import SITES, Site
from tests.unit.certificates.issuing import DAY, NOW

SYSTEM = "queuectl-system"
SECRET = api_path("", "v1", "secrets", SYSTEM, "tls")
CONFIG_MAP = api_path("", "v1", "configmaps", SYSTEM, "queuectl-ca")
CONFIGURATIONS = api_path("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")


class Clock:
    def __init__(self) -> None:
        self.at: datetime = NOW

    def __call__(self) -> datetime:
        return self.at


def thing(kind: str, name: str, api: str = "v1") -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}}


@pytest_asyncio.fixture(params=["in_process"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    async with SITES[request.param](tmp_path) as site:
        await site.create(api_path("", "v1", "secrets", SYSTEM), thing("Secret", "tls"))
        await site.create(api_path("", "v1", "configmaps", SYSTEM), thing("ConfigMap", "queuectl-ca"))
        yield site


both = pytest.mark.parametrize("cluster", ["in_process", "real"], indirect=True)


def replica(site: Site, clock: Clock, name: str = "localhost") -> Serving:
    vault = SecretVault(site.session, SYSTEM, "tls")
    source = SelfMade(vault, server_names=[name], now=clock, lifetimes=Lifetimes())
    return Serving(source, now=clock, publish=[BundleConfigMap(site.session, SYSTEM, "queuectl-ca").publish])


async def bundle(site: Site) -> str:
    found: str = (await site.session.get(CONFIG_MAP))["data"]["ca.crt"]
    return found


@both
async def test_replicas_that_start_together_show_one_certificate_and_make_its_authority_known(
    cluster: Site,
) -> None:
    clock = Clock()
    replicas = [replica(cluster, clock) for _ in range(4)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for one in replicas:
            tasks.create_task(one.start())
    assert {one.bundle for one in replicas} == {await bundle(cluster)}
    assert {one.not_after for one in replicas} == {replicas[0].not_after}
    kept = (await cluster.session.get(SECRET))["data"]
    assert set(kept) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    clock.at = NOW + 61 * DAY
    for one in replicas:
        await one.refresh()
        assert one.problem is None
    assert {one.not_after for one in replicas} == {NOW + 151 * DAY}


async def test_nothing_is_written_while_nothing_is_due(cluster: Site) -> None:
    one = replica(cluster, Clock())
    await one.start()
    before = (await cluster.session.get(SECRET))["metadata"]["resourceVersion"]
    writes = cluster.session.requests["PATCH", 200]
    for _ in range(3):
        await one.refresh()
    assert (await cluster.session.get(SECRET))["metadata"]["resourceVersion"] == before
    assert cluster.session.requests["PATCH", 200] == writes


async def test_a_deleted_or_spoilt_secret_is_a_problem_or_made_anew_while_the_old_one_is_shown(
    cluster: Site,
) -> None:
    one = replica(cluster, Clock())
    await one.start()
    await cluster.session.patch(SECRET, {"data": {"tls.crt": base64.b64encode(b"rubbish").decode()}})
    await one.refresh()
    assert one.problem is None
    await cluster.session.delete(SECRET)
    await one.refresh()
    assert "is not there" in (one.problem or "")
    await cluster.create(api_path("", "v1", "secrets", SYSTEM), thing("Secret", "tls"))
    await one.refresh()
    assert one.problem is None
    assert await bundle(cluster) == one.bundle


async def test_a_start_without_the_secret_says_what_to_apply(cluster: Site) -> None:
    await cluster.session.delete(SECRET)
    with pytest.raises(ClusterUnavailable, match=r"Secret queuectl-system/tls is not there.*apply"):
        await replica(cluster, Clock()).start()


@pytest.mark.acceptance
async def test_the_webhook_configuration_gets_old_and_new_authority_while_they_overlap(
    tmp_path: Path,
) -> None:
    async with SITES["real"](tmp_path) as site:
        await site.create(api_path("", "v1", "secrets", SYSTEM), thing("Secret", "tls"))
        body = thing("MutatingWebhookConfiguration", "queuectl", "admissionregistration.k8s.io/v1")
        body["webhooks"] = [
            {
                "name": f"{name}.queuectl.dev",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
            }
            for name in ("one", "two")
        ]
        await site.create(CONFIGURATIONS, body)
        clock = Clock()
        vault = SecretVault(site.session, SYSTEM, "tls")
        source = SelfMade(vault, server_names=["localhost"], now=clock)
        publish = WebhookConfiguration(site.session, "queuectl").publish
        one = Serving(source, now=clock, publish=[publish])

        async def counts() -> list[int]:
            found = (await site.session.get(f"{CONFIGURATIONS}/queuectl"))["webhooks"]
            texts = [base64.b64decode(hook["clientConfig"]["caBundle"]) for hook in found]
            return [text.count(b"BEGIN CERTIFICATE") for text in texts]

        await one.start()
        assert await counts() == [1, 1]
        for days, known in ((470, 1), (488, 2)):
            clock.at = NOW + days * DAY
            await one.refresh()
            assert await counts() == [known, known]
        clock.at += DAY
        await one.refresh()
        assert await counts() == [2, 2]
        clock.at += DAY
        await one.refresh()
        assert await counts() == [1, 1]


async def test_the_context_manager_renews_while_its_block_lasts(cluster: Site) -> None:
    clock = Clock()
    settings = TlsSettings(
        secret=f"{SYSTEM}/tls", names=("localhost",), config_map=f"{SYSTEM}/queuectl-ca", check_seconds=0.1
    )
    async with asyncio.timeout(60), serving_tls(settings, cluster.session, now=clock) as serving:
        assert await bundle(cluster) == serving.bundle
        clock.at = NOW + 61 * DAY
        while serving.not_after != NOW + 151 * DAY:
            await asyncio.sleep(0.02)
