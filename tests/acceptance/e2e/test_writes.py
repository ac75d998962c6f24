"""The requests that one Job costs its API server: three writes at most, and no read of that Job alone."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.acceptance.e2e import audit
from tests.acceptance.e2e.audit import Entry
from tests.acceptance.e2e.site import Json, eventually, job, pod_template, pytorchjob
from tests.acceptance.e2e.stand import Stand, ended, stand
from tests.integration.ledger.places import reachable_folder

JOBS = 30
GANGS = 4
MOST = 3
"""Event Pending, start patch, Event Admitted."""
LOOKS = 4
"""Lists of the pods of a gang with a master that ends before its workers; the pause doubles each time."""


async def test_a_job_costs_three_writes_and_no_read_of_that_job_alone(
    control_plane: str, figures: list[str]
) -> None:
    async with asyncio.timeout(600):
        with reachable_folder() as folder:
            async with stand(folder, control_plane, gpus=8) as site:
                controller = await site.controller()
                # One job holds the whole quota, so that all others wait for the same reason.
                await site.submit([job("first", template=pod_template(8, 86_400))])
                await eventually("it runs", site.running_pods)
                made = await site.submit(
                    [
                        *(job(f"job-{n:03}", template=pod_template(1, 0.5)) for n in range(JOBS)),
                        *(_gang(n) for n in range(GANGS)),
                    ]
                )
                await eventually("all wait and say so", lambda: _told(site, JOBS + GANGS))
                await site.end_pods()
                await site.all_retired(240)
                await ended(controller)
                entries = site.audit.entries()
                costs = {item["metadata"]["uid"]: (item["kind"], item["metadata"]["name"]) for item in made}
                spent = {uid: Counter[str]() for uid in costs}
                others = Counter[str]()
                for entry in audit.writes(entries):
                    uid, what = _accounted(entry)
                    spent.get(uid, others)[what] += 1
                for uid, writes in spent.items():
                    assert writes == {"Event Pending": 1, "start": 1, "Event Admitted": 1}, costs[uid]
                    assert writes.total() <= MOST
                _no_reads_of_their_own(entries)
                figures += _table(control_plane, entries, spent, others)


def _gang(number: int) -> Json:
    return pytorchjob(f"gang-{number}", workers=1, template=pod_template(1, 1))


def _accounted(entry: Entry) -> tuple[str, str]:
    """The UID that a write was for (or empty), and its kind. An unknown write fails the test."""
    assert entry.code in (200, 201), entry
    if entry.resource == "events":
        return entry.sent["regarding"]["uid"], f"Event {entry.sent['reason']}"
    if entry.resource in audit.JOBS:
        assert entry.verb == "patch", entry
        return entry.answer["metadata"]["uid"], "start"
    assert entry.resource in ("localqueues/status", "clusterqueues/status", "leases"), entry
    return "", entry.resource


def _no_reads_of_their_own(entries: list[Entry]) -> None:
    """Jobs are read by one list and one watch; a gang's pods are listed at its end."""
    reads = audit.reads(entries)
    assert reads["get", "jobs"] == 0
    assert reads["list", "jobs"] == 1
    assert reads["get", "pytorchjobs"] <= LOOKS * GANGS
    assert reads["list", "pods"] <= LOOKS * GANGS
    by_name = [entry for entry in audit.ours(entries) if entry.verb == "get" and entry.name]
    at_start = {"namespaces", "validatingadmissionpolicies"}
    assert {entry.resource for entry in by_name} <= {*at_start, "pytorchjobs"}
    assert sum(entry.resource in at_start for entry in by_name) <= len(at_start)


async def _told(site: Stand, count: int) -> bool:
    """This many workloads have a reported reason."""
    written = [entry for entry in audit.writes(site.audit.entries()) if entry.resource == "events"]
    told = {entry.sent["regarding"]["uid"] for entry in written if entry.sent["reason"] == "Pending"}
    return len(told) == count


def _table(
    plane: str, entries: list[Entry], spent: dict[str, Counter[str]], others: Counter[str]
) -> list[str]:
    """Lines for the report."""
    total = sum(spent.values(), Counter[str]())
    lines = [f"requests by queuectl on {plane} for {JOBS} Jobs and {GANGS} PyTorchJobs that waited and ran:"]
    for what, count in sorted(total.items()):
        lines.append(f"  write  {what:<24} {count:>5}  {count / len(spent):.2f} each")
    lines += [f"  write  {what:<24} {count:>5}  apart" for what, count in sorted(others.items())]
    reads = audit.reads(entries)
    kinds = sorted({kind for _, kind in reads if reads["list", kind] == reads["watch", kind] == 1})
    lines.append(f"  list and watch once each: {', '.join(kinds)}")
    for (verb, resource), count in sorted(reads.items()):
        if resource not in kinds or verb == "get":
            lines.append(f"  {verb:<6} {resource:<24} {count:>5}")
    return lines
