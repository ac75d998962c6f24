"""Stores stay current through faults of the API; queues never process a key twice at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from queuectl.kube.errors import Conflict
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.kubernetes.store import ObjectStore
from queuectl.sandbox.players.api import Client, Object
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.work_queue import WorkQueue
from tests.doubles.faults import Action, Fault, expire_watches, injected
from tests.integration.sandbox.cluster import WallClock
from tests.integration.sandbox.polling import eventually

CONFIGMAPS = "/api/v1/configmaps"
IN_DEFAULT = "/api/v1/namespaces/default/configmaps"


@asynccontextmanager
async def beside(work: Awaitable[None]) -> AsyncIterator[None]:
    """`work` runs until the block ends."""

    async def run() -> None:
        await work

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run())
        yield
        running.cancel()


@asynccontextmanager
async def followed() -> AsyncIterator[tuple[SmallApi, Client, Informer, list[str]]]:
    """A server, its admin, a store of its ConfigMaps, and the changes from the store."""
    async with (
        SmallApi() as server,
        Client(server.url, server.ssl_context(), server.tokens["admin"]) as api,
    ):
        store = Informer(api, CONFIGMAPS, WallClock(), {"colour": lambda thing: thing["data"].get("colour")})
        told: list[str] = []

        def change(key: str, before: Object | None, after: Object | None) -> None:
            sort = "gone" if after is None else "new" if before is None else "changed"
            told.append(f"{sort} {key}")

        store.subscribe(change)
        async with beside(store.run()):
            await store.synced.wait()
            yield server, api, store, told


async def put(api: Client, name: str, colour: str = "red") -> Object:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"colour": colour}}
    return await api.request("POST", IN_DEFAULT, body)


async def test_listed_objects_in_a_store_have_their_kind() -> None:
    async with (
        SmallApi() as server,
        Client(server.url, server.ssl_context(), server.tokens["admin"]) as api,
    ):
        await put(api, "listed")
        store = Informer(api, CONFIGMAPS, WallClock())
        async with beside(store.run()):
            await store.synced.wait()
            found = store.get("default/listed")
            assert found is not None
            assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap")


async def test_a_store_follows_creation_change_and_deletion_and_keeps_its_index() -> None:
    async with followed() as (_, api, store, told):
        await put(api, "a")
        await put(api, "b")
        await eventually(lambda: len(store.by("colour", "red")) == 2, "two red ones")
        await api.request(
            "PATCH",
            f"{IN_DEFAULT}/a",
            {"data": {"colour": "blue"}},
            content_type="application/merge-patch+json",
        )
        await eventually(lambda: store.by("colour", "blue"), "a blue one")
        assert [thing["metadata"]["name"] for thing in store.by("colour", "red")] == ["b"]
        await api.request("DELETE", f"{IN_DEFAULT}/b")
        await eventually(lambda: store.get("default/b") is None, "the end of b")
        assert store.by("colour", "red") == []
        assert told == ["new default/a", "new default/b", "changed default/a", "gone default/b"]


@pytest.mark.parametrize("end", [ObjectStore.close_watches, expire_watches])
async def test_a_store_misses_no_change_when_its_watch_ends(end: Callable[..., None]) -> None:
    async with followed() as (server, api, store, told):
        with injected(server.api) as faults:
            await put(api, "before")
            await eventually(lambda: store.get("default/before"), "the first")
            faults.add(Fault(Action.REFUSE, verb="watch", resource="configmaps", code=500, count=2))
            end(server.store, "configmaps")
            await put(api, "while-away")
            await api.request("DELETE", f"{IN_DEFAULT}/before")
            await eventually(lambda: store.get("default/while-away"), "what came meanwhile")
            await eventually(lambda: store.get("default/before") is None, "the end of what went meanwhile")
            assert sorted(told) == ["gone default/before", "new default/before", "new default/while-away"]


async def test_an_own_write_is_in_the_store_at_once_and_never_restores_a_deleted_object() -> None:
    async with followed() as (_, api, store, told):
        made = await put(api, "own")
        store.observe(made)
        assert store.get("default/own") == made
        await api.request("DELETE", f"{IN_DEFAULT}/own")
        await eventually(lambda: store.get("default/own") is None, "the end of it")
        store.observe(made)
        assert store.get("default/own") is None
        assert told == ["new default/own", "gone default/own"]


async def test_a_kind_that_is_not_installed_is_empty_and_is_listed_once_installed() -> None:
    async with (
        SmallApi() as server,
        Client(server.url, server.ssl_context(), server.tokens["admin"]) as api,
    ):
        store = Informer(api, "/apis/example.com/v1/things", WallClock())
        async with beside(store.run()):
            async with asyncio.timeout(10):
                await store.synced.wait()
            names = {"plural": "things", "kind": "Thing"}
            version = {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
            crd: Object = {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "things.example.com"},
                "spec": {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]},
            }
            await api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}}
            await api.request("POST", "/apis/example.com/v1/things", thing)
            await eventually(lambda: store.get("one"), "the first thing")


async def test_a_key_is_never_processed_twice_at_once_and_again_if_added_meanwhile() -> None:
    entered = asyncio.Event()
    leave = asyncio.Event()
    calls: list[str] = []
    active = 0

    async def reconcile(key: str) -> None:
        nonlocal active
        active += 1
        assert active == 1
        calls.append(key)
        entered.set()
        await leave.wait()
        active -= 1

    queue = WorkQueue("test", reconcile, WallClock())
    async with beside(queue.run()), asyncio.timeout(10):
        for _ in range(3):
            queue.add("a")
        await entered.wait()
        for _ in range(3):
            queue.add("a")
        leave.set()
        await eventually(lambda: len(calls) == 2, "the second call")
        await asyncio.sleep(0)
    assert calls == ["a", "a"]


@pytest.mark.parametrize("failure", [Conflict("conflict", status=409), KeyError("spec")])
async def test_a_failed_key_is_tried_again_and_others_continue(failure: Exception) -> None:
    calls: list[str] = []

    async def reconcile(key: str) -> None:
        calls.append(key)
        if key == "bad" and calls.count("bad") < 3:
            raise failure

    queue = WorkQueue("test", reconcile, WallClock(), workers=1)
    queue.add("bad")
    queue.add("good")
    async with beside(queue.run()):
        await eventually(lambda: calls.count("bad") == 3, "the third try")
    assert calls[:2] == ["bad", "good"]
