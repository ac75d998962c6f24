"""watch."""

from __future__ import annotations

import pytest

from tests.integration.kube_api.client import TABLE, Client, Json, configmap

EOF: tuple[str, Json] = ("EOF", {})

pytestmark = pytest.mark.asyncio(loop_scope="session")


def revision(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def now(api: Client) -> str:
    return str((await api.get(api.configmaps))["metadata"]["resourceVersion"])


async def test_events_after_a_resource_version_come_in_order(api: Client) -> None:
    start = await now(api)
    await api.create(api.configmaps, configmap("a"))
    patched = await api.patch(f"{api.configmaps}/a", {"data": {"k": "v"}})
    await api.call("DELETE", f"{api.configmaps}/a")
    await api.create(api.configmaps, configmap("b"))
    async with api.watch(api.configmaps, resourceVersion=start) as events:
        seen = [await events.next() for _ in range(4)]
    assert [kind for kind, _ in seen] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    assert seen[1][1] == patched
    assert seen[2][1]["data"] == {"k": "v"}
    revisions = [revision(obj) for _, obj in seen]
    assert revisions == sorted(set(revisions))


async def test_without_a_resource_version_existing_objects_come_first(api: Client) -> None:
    await api.create(api.configmaps, configmap("a"))
    async with api.watch(api.configmaps) as events:
        assert await events.names(1) == [("ADDED", "a")]
        await api.create(api.configmaps, configmap("b"))
        assert await events.names(1) == [("ADDED", "b")]


async def test_an_event_arrives_while_the_watch_is_open(api: Client) -> None:
    async with api.watch(api.configmaps, resourceVersion=await now(api)) as events:
        created = await api.create(api.configmaps, configmap("a"))
        assert await events.next() == ("ADDED", created)


async def test_objects_enter_and_leave_a_selection(api: Client) -> None:
    path = f"{api.configmaps}/a"
    await api.create(api.configmaps, configmap("a"))
    start = await now(api)
    await api.patch(path, {"metadata": {"labels": {"in": "yes"}}})
    await api.patch(path, {"data": {"k": "v"}})
    left = await api.patch(path, {"metadata": {"labels": {"in": None}}})
    await api.call("DELETE", path)
    await api.create(api.configmaps, configmap("end", labels={"in": "yes"}))
    async with api.watch(api.configmaps, resourceVersion=start, labelSelector="in=yes") as events:
        seen = [await events.next() for _ in range(4)]
    shown = [(kind, obj["metadata"]["name"]) for kind, obj in seen]
    assert shown == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "end")]
    assert revision(seen[2][1]) == revision(left)


async def test_one_object_is_watched_by_its_name(api: Client) -> None:
    start = await now(api)
    for name in ("a", "b"):
        await api.create(api.configmaps, configmap(name))
    query = {"resourceVersion": start, "fieldSelector": "metadata.name=b"}
    async with api.watch(api.configmaps, **query) as events:
        assert await events.names(1) == [("ADDED", "b")]


async def test_a_resource_version_that_is_too_old_gives_an_error_event(api: Client, pytorch: None) -> None:
    async with api.watch(api.pytorchjobs, resourceVersion=1) as events:
        kind, status = await events.next()
        assert (kind, status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")
        with pytest.raises(EOFError):
            await events.next()


async def test_a_watch_ends_after_its_timeout_and_a_bookmark_has_the_version_to_continue_from(
    api: Client,
) -> None:
    start = await now(api)
    query: dict[str, str | int] = {"allowWatchBookmarks": "true", "timeoutSeconds": 5}
    async with api.watch(api.configmaps, resourceVersion=start, **query) as events:
        last = await api.create(api.configmaps, configmap("a"))
        assert await events.names(1) == [("ADDED", "a")]
        kind, obj = await events.next()
        assert kind == "BOOKMARK"
        assert obj["kind"] == "ConfigMap"
        assert revision(obj) >= revision(last)
        while kind == "BOOKMARK":
            kind, _ = await events.next(EOF)
        assert kind == EOF[0]
    created = await api.create(api.configmaps, configmap("b"))
    async with api.watch(api.configmaps, resourceVersion=revision(obj)) as events:
        assert await events.next() == ("ADDED", created)


async def test_initial_events_end_with_a_marked_bookmark(api: Client) -> None:
    for name in ("a", "b"):
        await api.create(api.configmaps, configmap(name))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(api.configmaps, **query) as events:
        assert await events.names(2) == [("ADDED", "a"), ("ADDED", "b")]
        kind, obj = await events.next()
        assert kind == "BOOKMARK"
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await api.create(api.configmaps, configmap("c"))
        assert await events.names(1) == [("ADDED", "c")]


async def test_a_watch_of_another_namespace_gets_no_events(api: Client) -> None:
    start = await now(api)
    await api.create("/api/v1/namespaces/default/configmaps", configmap(f"of-{api.namespace}"))
    await api.create(api.configmaps, configmap("mine"))
    async with api.watch(api.configmaps, resourceVersion=start) as events:
        assert await events.names(1) == [("ADDED", "mine")]


async def test_a_watch_can_show_tables(api: Client) -> None:
    start = await now(api)
    await api.create(api.configmaps, configmap("a", {"k": "v"}))
    params = {"watch": "1", "resourceVersion": start}
    async with api.session.get(api.configmaps, params=params, headers={"Accept": TABLE}) as response:
        assert b'"kind":"Table"' in await response.content.readline()
