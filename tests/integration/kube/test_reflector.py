from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from queuectl.core.model.devices import ResourceSlice
from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    Event,
    Listed,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.policy import PriorityClass
from queuectl.core.model.workload import WorkloadId
from queuectl.kube.errors import NotFound, TooManyRequests
from queuectl.kube.reflector import OTHERS_AT_ONCE
from queuectl.kube.reflectors import reflectors
from queuectl.kube.session import Deadlines, Session, api_path
from queuectl.kube.sources import device_sources, events_of, sources
from queuectl.kube.transport import HttpTransport
from tests.integration.kube.scripted import (
    QUICK,
    Scripted,
    bookmark,
    gone,
    job,
    line,
    source,
    told,
    watching,
)
from tests.integration.kube.sites import CRDS, PYTORCH_CRD, SITES, Site, pytorch_job, pytorch_jobs
from tests.job_kinds import JOB_KINDS


async def test_a_list_in_pages_then_a_watch_from_its_version() -> None:
    script = Scripted()
    script.listing(5, job("a", 1), more="token")
    script.listing(5, job("b", 2))
    script.watch(
        line("MODIFIED", job("a", 6)), line("ADDED", job("c", 7)), line("DELETED", job("b", 8)), stay=True
    )
    async with watching(script) as seen:
        await seen.until(lambda: "-b" in told(seen))
        assert told(seen) == ["a@1", "b@2", "[a b]", "a@6", "c@7", "-b"]
    assert script.asked[0]["labelSelector"] == "queuectl.dev/queue-name"
    assert "resourceVersion" not in script.asked[0]
    assert script.asked[1]["continue"] == "token"
    assert script.watched == ["5"]
    assert script.asked[2]["allowWatchBookmarks"] == "true"


async def test_a_new_watch_continues_from_the_last_version_without_a_list() -> None:
    script = Scripted()
    script.listing(5)
    script.watch(line("ADDED", job("a", 6)))
    script.watch(bookmark(9))
    async with watching(script) as seen:
        await seen.until(lambda: len(script.watched) == 3)
    assert script.watched == ["5", "6", "9"]
    assert script.listed == 1


async def test_others_that_an_object_changes_are_told_some_at_a_time_between_turns_of_the_loop() -> None:
    """Slices of devices: to read thousands of them again at once would keep all else waiting."""
    classes, slices, *_ = device_sources([("gpu.nvidia.com", "nvidia.com/gpu")])
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "n"}, "devices": [{"name": "a"}]}
    names = [f"s{number}" for number in range(OTHERS_AT_ONCE * 2 + 1)]
    for name in names:
        events_of(slices, {"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec}, {})
    changed = {"metadata": {"name": "gpu.nvidia.com", "resourceVersion": "2"}, "spec": {}}
    script = Scripted()
    script.listing(5, changed)
    script.watch(line("DELETED", changed), stay=True)
    turns = 0
    told: list[tuple[int, int, bool]] = []

    def note(events: Sequence[Event]) -> None:
        found = [one.value for one in events if isinstance(one, ContextObserved)]
        assert all(isinstance(one, ResourceSlice) for one in found)
        told.append((turns, len(events), any(isinstance(one, Listed) for one in events)))

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with script.serve() as url:
        session = Session(HttpTransport(url), None, deadlines=Deadlines(unary=2, page=2))
        watched = reflectors(session, note, [classes], random=Random(1), timings=QUICK)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            tasks = [group.create_task(count()), group.create_task(watched.run())]
            while len(told) < 7:
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
        await session.close()
    each = [OTHERS_AT_ONCE, OTHERS_AT_ONCE, 1]
    assert [(number, listed) for _, number, listed in told] == [
        *((number, False) for number in each),
        (1, True),
        *((number, False) for number in each),
    ]
    of_others = [turn for turn, _, listed in told if not listed]
    assert len(set(of_others)) == len(of_others)


async def test_410_inside_a_watch_lists_again_and_finds_a_lost_delete() -> None:
    script = Scripted()
    script.listing(5, job("a", 1), job("b", 2))
    script.watch(line("MODIFIED", job("a", 6)), gone())
    script.listing(9, job("a", 6), job("c", 8))
    async with watching(script) as seen:
        await seen.until(lambda: script.watched == ["5", "9"])
        assert told(seen) == ["a@1", "b@2", "[a b]", "a@6", "c@8", "-b", "[a c]"]


async def test_410_as_the_answer_to_a_watch_lists_again() -> None:
    script = Scripted()
    script.listing(5)
    script.watches.append(410)
    script.listing(8)
    async with watching(script) as seen:
        await seen.until(lambda: script.watched == ["5", "8"])


async def test_a_page_token_that_expired_starts_the_list_again() -> None:
    script = Scripted()
    script.listing(5, job("a", 1), more="token")
    script.refuse(410)
    script.listing(6, job("a", 1), job("b", 2))
    async with watching(script) as seen:
        await seen.until(lambda: script.watched == ["6"])
        assert told(seen) == ["a@1", "b@2", "[a b]"]


async def test_an_empty_list_is_sent_as_it_is() -> None:
    script = Scripted()
    script.listing(5, job("a", 1))
    script.watch(gone())
    script.listing(6)
    async with watching(script) as seen:
        await seen.until(lambda: "[]" in told(seen))
        assert told(seen) == ["a@1", "[a]", "-a", "[]"]


async def test_a_line_cut_off_by_the_end_is_requested_again() -> None:
    script = Scripted()
    script.listing(5)
    script.watch(line("ADDED", job("a", 6)) + line("ADDED", job("b", 7))[:40])
    script.watch(line("ADDED", job("b", 7)), stay=True)
    async with watching(script) as seen:
        await seen.until(lambda: "b@7" in told(seen))
        assert told(seen) == ["[]", "a@6", "b@7"]
    assert script.watched == ["5", "6"]
    assert script.listed == 1


async def test_events_split_over_chunks_are_joined() -> None:
    script = Scripted()
    script.listing(5)
    text = b"".join(line("ADDED", job(name, 6)) for name in "abc") + b"\n"
    script.watch(*(text[i : i + 7] for i in range(0, len(text), 7)), stay=True)
    async with watching(script) as seen:
        await seen.until(lambda: "c@6" in told(seen))
        assert told(seen) == ["[]", "a@6", "b@6", "c@6"]


async def test_an_object_that_triggers_a_bug_does_not_stop_the_watch() -> None:
    def broken(obj: Any) -> Any:
        if obj["metadata"]["name"] == "a":
            raise KeyError("a bug")
        return of_jobs.seen(obj)

    of_jobs = source("Job")
    script = Scripted()
    script.listing(5, job("a", 1), job("b", 2))
    script.watch(line("MODIFIED", job("a", 6)), line("MODIFIED", job("b", 7)), stay=True)
    async with watching(script, replace(of_jobs, seen=broken)) as seen:
        await seen.until(lambda: "b@7" in told(seen))
        # It exists, whatever its content: no event says that it is gone.
        assert told(seen) == ["b@2", "[a b]", "b@7"]


async def test_an_event_of_five_megabytes_is_one_event() -> None:
    script = Scripted()
    script.listing(5)
    large = job("large", 6)
    large["metadata"]["annotations"] = {"notes": "x" * 5_000_000}
    script.watch(line("ADDED", large), stay=True)
    async with watching(script) as seen:
        await seen.until(lambda: "large@6" in told(seen))


async def test_invalid_events_are_dropped() -> None:
    script = Scripted()
    script.listing(5)
    for broken in (b"<html>\n", b'{"type":"ADDED"}\n', b'{"type":"NEWS","object":{}}\n', b"[]\n"):
        script.watch(line("ADDED", job("a", 6)) + broken)
    async with watching(script) as seen:
        await seen.until(lambda: len(script.watched) >= 5)
        assert {told for told in told(seen) if "@" in told} == {"a@6"}


async def test_a_silent_watch_counts_as_dead() -> None:
    script = Scripted()
    script.listing(5)
    script.watch(bookmark(7), stay=True)
    async with watching(script, timings=replace(QUICK, silence=0.03)) as seen:
        await seen.until(lambda: len(script.watched) >= 2)
    assert script.watched[:2] == ["5", "7"]


async def test_a_watch_that_keeps_failing_is_listed_again() -> None:
    script = Scripted()
    script.listing(5)
    script.watches.extend([500] * 6)
    async with watching(script) as seen:
        await seen.until(lambda: script.listed == 2)
    assert 3 <= len(script.watched) <= 6


async def test_watches_that_close_at_once_are_retried_with_backoff() -> None:
    script = Scripted()
    script.listing(5)
    script.watches.extend([_close_at_once] * 1000)
    slow = replace(QUICK, backoff=0.05, backoff_limit=0.4)
    async with watching(script, timings=slow):
        await asyncio.sleep(0.5)
    assert 2 <= len(script.asked) <= 12


async def _close_at_once(response: object) -> None:
    return None


async def test_retry_after_is_respected() -> None:
    script = Scripted()
    script.refuse(429, Retry_After="1")
    script.listing(5)
    loop = asyncio.get_running_loop()
    async with watching(script) as seen:
        await seen.until(lambda: script.listed == 1)
        begun = loop.time()
        await seen.until(lambda: script.listed == 2)
        assert loop.time() - begun > 0.9


async def test_a_kind_that_is_not_installed_is_logged_once_and_watched_when_it_appears() -> None:
    script = Scripted()
    for _ in range(3):
        script.refuse(404)
    script.listing(5, job("a", 1))
    async with watching(script) as seen:
        await seen.until(lambda: bool(script.watched))
        assert told(seen) == ["absent", "a@1", "[a]"]


async def test_a_removed_kind_is_no_deletion_of_its_objects() -> None:
    script = Scripted()
    script.listing(5, job("a", 1))
    script.watches.append(404)
    script.refuse(404)
    async with watching(script) as seen:
        await seen.until(lambda: "absent" in told(seen))
        assert told(seen) == ["a@1", "[a]", "absent"]
        script.listing(7)
        await seen.until(lambda: "[]" in told(seen))
        assert told(seen)[3:] == ["-a", "[]"]


async def test_a_lost_delete_is_found_by_the_periodic_list() -> None:
    script = Scripted()
    script.listing(5, job("a", 1))
    script.watch(bookmark(6))
    script.listing(7)
    async with watching(script, timings=replace(QUICK, relist=0.0)) as seen:
        await seen.until(lambda: "-a" in told(seen))
        (gone,) = (event for event in seen.events if isinstance(event, WorkloadGone))
        assert gone.resource_version == "7"  # at the latest


async def test_the_age_of_each_source_is_known() -> None:
    script = Scripted()
    script.listing(5)
    async with watching(script) as seen:
        await seen.until(lambda: bool(script.watched))
        working = seen.reflectors
        assert working is not None
        assert working.sources == {"Job"}
        age = working.ages()["Job"]
        assert age is not None
        await seen.until(lambda: (working.ages()["Job"] or 0) > age)


class _Rotating:
    """A token that expires once."""

    def __init__(self) -> None:
        self.current = "Bearer old"
        self.refused: list[str | None] = []

    async def authorization(self) -> str | None:
        return self.current

    async def refresh(self, refused: str | None) -> None:
        self.refused.append(refused)
        self.current = "Bearer new"


async def test_an_expired_token_is_read_again_and_the_request_repeated() -> None:
    script, identity = Scripted(), _Rotating()
    script.refuse(401)
    script.listing(5)
    async with watching(script, identity=identity) as seen:
        await seen.until(lambda: bool(script.watched))
    assert identity.refused == ["Bearer old"]
    assert script.tokens == ["Bearer old", "Bearer new", "Bearer new"]


# --- on servers that keep objects ----------------------------------------------------------------------


@pytest.mark.parametrize("server", ["in_process", "small"])
async def test_all_sources_are_listed_and_a_kind_installed_later_is_watched(
    server: str, tmp_path: Path
) -> None:
    seen: list[object] = []
    async with asyncio.timeout(30), SITES[server](tmp_path) as site:
        all_of_them = reflectors(site.session, seen.extend, sources(JOB_KINDS), timings=QUICK)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(all_of_them.run())
            await _until(lambda: {e.source for e in seen if isinstance(e, Listed)} == all_of_them.sources)
            await _until(lambda: Listed("PyTorchJob", frozenset()) in seen)
            await site.create(CRDS, PYTORCH_CRD)
            created = await _created(site, pytorch_jobs(), pytorch_job("torch"))
            uid = WorkloadId(created["metadata"]["uid"])
            await _until(lambda: any(isinstance(e, WorkloadObserved) and e.workload.id == uid for e in seen))
            labels = {"labels": {"queuectl.dev/queue-name": None}}
            await site.session.patch(pytorch_jobs("torch"), {"metadata": labels})
            await _until(lambda: any(isinstance(e, WorkloadGone) and e.workload == uid for e in seen))
            classes = api_path("scheduling.k8s.io", "v1", "priorityclasses")
            await site.create(classes, {"metadata": {"name": "late"}, "value": 7})
            late = PriorityClass("late", 7)
            await _until(lambda: any(isinstance(e, ContextObserved) and e.value == late for e in seen))
            await site.session.delete(f"{classes}/late")
            await _until(lambda: ContextGone(PriorityClass, "late") in seen)
            task.cancel()


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def _created(site: Site, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create an object of a kind that is possibly not served yet."""
    while True:
        try:
            return await site.create(path, body)
        except (NotFound, TooManyRequests):
            await asyncio.sleep(0.02)
