"""Observing a cluster without a gate: jobs run unchanged, and the report shows what would be decided."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from datetime import datetime
from typing import Any

from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.processes import spawn
from tests.acceptance.e2e import audit
from tests.acceptance.e2e.site import Json, eventually, job, pod_template, pytorchjob
from tests.acceptance.e2e.stand import NAMESPACE, QUEUE, Stand, ended, killed, stand
from tests.integration.ledger.places import reachable_folder

GPUS = 8
FOR_EVER = 86_400
READ = {
    *("jobs", "pytorchjobs", "customresourcedefinitions"),
    *("namespaces", "priorityclasses", "runtimeclasses", "limitranges", "resourcequotas"),
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings", "workloadpriorityclasses"),
    *("budgets", "clusterqueues", "cohorts", "localqueues", "resourceflavors", "usagelimits", "idlepolicies"),
    *("resourceclaims", "resourceclaimtemplates"),
}
"""The rights that an observer needs by docs/operations.md, for the kinds that are installed."""


async def test_jobs_are_unchanged_and_the_report_lists_each_decision(
    control_plane: str, figures: list[str]
) -> None:
    count = 40
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(600):
        with reachable_folder() as folder:
            async with stand(folder, control_plane, gpus=GPUS, gated=False) as site:
                made = await _observed(site, count)
                await _nothing_was_touched(site, made)
                report = await _report(site)
                _everything_is_told(report, made)
                await _its_ledger_is_its_own(site)
    total = report["total"]
    figures.append(
        f"observed on {control_plane}: {total['workloads']} workloads, {len(report['decisions'])} decisions; "
        f"{total['admittedAtOnce']} would have been admitted at once, {total['ranAnyway']} ran although they "
        f"would have waited; {asyncio.get_running_loop().time() - begun:.0f} s in all"
    )


async def test_a_cluster_as_it_is_is_observed_with_a_default_queue(control_plane: str) -> None:
    unlabelled = job("as-it-is", template=pod_template(1, FOR_EVER))
    del unlabelled["metadata"]["labels"]
    async with asyncio.timeout(600):
        with reachable_folder() as folder:
            async with stand(folder, control_plane, gpus=GPUS, gated=False) as site:
                await site.submit([unlabelled, job("labelled", template=pod_template(1, FOR_EVER))])
                observer = await site.controller("--observe")
                await eventually("one is decided", lambda: _decided(site, "labelled", "Admitted"))
                await ended(observer)
                assert (await _report(site))["notLookedAt"] == {"Job": 1}
                shown = await _queuectl(site, "report", "observe")
                assert "Not looked at, without a queue label: 1 Job (" in shown.out
                observer = await site.controller("--observe", "--default-queue", "main")
                await eventually("the other is, too", lambda: _decided(site, "as-it-is", "Admitted"))
                await ended(observer)
                report = await _report(site)
                assert (report["notLookedAt"], report["total"]["workloads"]) == ({}, 2)
                assert audit.writes(site.audit.entries()) == []


async def _observed(site: Stand, count: int) -> list[Json]:
    """Jobs of a day, with an observer that is killed in the middle and absent for a while."""
    made = await site.submit([job("before", template=pod_template(2, FOR_EVER))])
    await eventually("it runs before anybody looks", site.running_pods)
    await asyncio.sleep(1.1)  # times of objects are whole seconds
    observer = await site.controller("--observe")
    await eventually("it has begun", lambda: _decided(site, "before", "Admitted"))
    made += await site.submit(
        [
            job("stays", template=pod_template(GPUS - 2, FOR_EVER)),
            job("large", template=pod_template(GPUS + 1, 0.5)),
            job("lost", queue="nowhere", template=pod_template(1, 0.5)),
            pytorchjob("gang", workers=1, template=pod_template(1, 0.5)),
        ]
    )
    await eventually("the queue is full", lambda: _decided(site, "stays", "Admitted"))
    third = (count - len(made)) // 3
    made += await site.submit([_short(number) for number in range(third)])
    await eventually("one has to wait", lambda: _decided(site, "job-000", "Pending"))
    await killed(observer)
    made += await site.submit([_short(number) for number in range(third, 2 * third)])
    observer = await site.controller("--observe")
    # It is stopped by the rules but keeps running; its quota is free for others.
    await site.api.request(
        "PATCH",
        f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/stays",
        {"metadata": {"annotations": {"queuectl.dev/hold": "true"}}},
        content_type=MERGE_PATCH,
    )
    await eventually("it would have been stopped", lambda: _decided(site, "stays", "Evicted"))
    await eventually("it would wait", lambda: _decided(site, "stays", "Released"))
    rest = count - len(made)
    made += await site.submit([_short(number) for number in range(2 * third, 2 * third + rest)])
    await eventually("all but two are over", lambda: _left(site, 2), 180)
    assert {pod["metadata"]["labels"]["job-name"] for pod in await site.running_pods()} == {"before", "stays"}
    await site.end_pods()
    await site.all_retired()
    await ended(observer)
    assert len(made) == count
    return made


def _short(number: int) -> Json:
    return job(f"job-{number:03}", template=pod_template(1, 0.5))


async def _left(site: Stand, count: int) -> bool:
    jobs, gangs = await site.unfinished(), await site.unfinished("pytorchjobs")
    return len(jobs) + len(gangs) == count


async def _decided(site: Stand, name: str, verdict: str) -> bool:
    query = "SELECT count(*) > 0 FROM queuectl.decision WHERE name = $1 AND verdict = $2"
    return bool(await site.ask(query, name, verdict))


async def _report(site: Stand) -> Json:
    run = await _queuectl(site, "report", "observe", "--decisions", "-o", "json")
    found: Json = run.json
    return found


async def _queuectl(site: Stand, *arguments: str) -> Any:
    run = await site.queuectl(*arguments)
    assert run.code == 0, run.out + run.err
    return run


async def _nothing_was_touched(site: Stand, made: list[Json]) -> None:
    """Check by the API server's own log, and by the objects."""
    entries = site.audit.entries()
    assert audit.writes(entries) == []
    reads = audit.reads(entries)
    assert {resource for verb, resource in reads if verb == "get"} == {"namespaces"}
    assert {resource for verb, resource in reads} == READ
    for kind in ("jobs", "pytorchjobs"):
        for item in await site.items(kind):
            metadata = item["metadata"]
            ours = {key for key in metadata.get("annotations") or {} if key.startswith("queuectl.dev/")}
            assert ours <= {"queuectl.dev/hold"}, metadata["name"]
            assert metadata["generation"] == 1, metadata["name"]
            assert metadata["uid"] in {one["metadata"]["uid"] for one in made}
    if isinstance(site.audit, audit.AuditLog):
        turns = audit.completions(entries)
        assert {uid for uid, times in turns.items() if len(times) == 1} == {
            one["metadata"]["uid"] for one in made if one["kind"] == "Job"
        }


def _everything_is_told(report: Json, made: list[Json]) -> None:
    total = report["total"]
    told: dict[str, list[str]] = {}
    for one in report["decisions"]:
        told.setdefault(one["uid"], []).append(one["verdict"])
    assert set(told) == {one["metadata"]["uid"] for one in made}
    for one in made:
        verdicts = told[one["metadata"]["uid"]]
        assert verdicts[0] == "Queued"
        assert verdicts[1] in ("Admitted", "Pending"), (one["metadata"]["name"], verdicts)
        assert verdicts[-1] == "Retired"
        assert Counter(verdicts)["Retired"] == 1
    assert total["workloads"] == len(made)
    fates = ("admittedAtOnce", "waited", "waiting", "never", "held", "debt")
    assert sum(total[fate] for fate in fates) == len(made)
    by_name = {one["name"]: one for one in report["queues"]}
    assert by_name[QUEUE]["debt"] == 1
    assert by_name[QUEUE]["never"] == 1
    assert by_name[f"({NAMESPACE}/nowhere)"]["never"] == 1
    # The queue is full during the first third of the short jobs: each of these ran, but would have waited.
    assert total["ranAnyway"] >= len(made) // 4
    assert total["overBeforeItsTurn"] >= 1
    assert total["admittedAtOnce"] >= 1
    assert by_name[QUEUE]["wait"]["max"] > 0
    reasons = {(one["reason"]["code"], one["ranAnyway"]) for one in report["waits"]}
    assert ("ExceedsMaxQuota", 1) in reasons
    assert ("QueueNotFound", 1) in reasons
    short = next(one for one in report["waits"] if one["reason"]["code"] == "WaitingForQuota")
    assert short["reason"]["shortBy"] >= 1
    (stopped,) = report["evictions"]
    assert (stopped["reason"]["code"], stopped["evictions"]) == ("UserHold", 1)
    assert stopped["example"] == f"{NAMESPACE}/Job/stays"
    (peak,) = [one for one in report["exceeded"] if one["resource"] == "nvidia.com/gpu"]
    assert peak["nominal"] == GPUS
    assert peak["peak"] > GPUS
    assert datetime.fromisoformat(peak["at"]) < datetime.fromisoformat(report["until"])
    gone_on = [one for one in report["decisions"] if one["verdict"] == "Evicted"]
    assert [one["difference"] for one in gone_on] == ["runs on"]
    pending = [one["difference"] for one in report["decisions"] if one["verdict"] == "Pending"]
    assert "runs" in pending


async def _rest_says_so(site: Stand) -> None:
    """If the ledger has only observed decisions, REST serves those, and each answer is marked."""
    config = site.folder / "api.yaml"
    config.write_text("api: {listen: '127.0.0.1:0', identity: local}\n")
    flags = ["--config", str(config), "--database-url", site.postgres.url]
    argv = [sys.executable, "-m", "queuectl", "api", *flags]
    child = await spawn(argv, name="queuectl api", log=site.folder / "api.log")
    try:

        async def base() -> str | None:
            assert child.returncode is None, child.tail()
            found = re.search(r"REST at (\S+)", child.log.read_text())
            return found[1] if found else None

        url = await eventually("REST answers", base)
        shown = await _queuectl(
            site, "get", "workloads", "-n", NAMESPACE, "--phase", "Finished", "--server", url
        )
        assert "job-000" in shown.out
        assert "observed" in shown.err
    finally:
        await child.stop()


async def _its_ledger_is_its_own(site: Stand) -> None:
    """No observed hold counts as a real one, neither for verify nor for a controller started later."""
    clusters = await site.ask("SELECT array_agg(DISTINCT cluster_id) FROM queuectl.decision")
    uid = (await site.api.request("GET", "/api/v1/namespaces/kube-system"))["metadata"]["uid"]
    assert clusters == [f"{uid}/observe"]
    await _queuectl(site, "verify")
    shown = await _queuectl(site, "report", "observe", "--since", "1h")
    assert "What queuectl would have done" in shown.out
    none = await _queuectl(site, "report", "observe", "--since", "2999-01-01", "-o", "json")
    assert none.json["total"]["workloads"] == 0
    if isinstance(site.audit, audit.AuditLog):
        await _rest_says_so(site)
    acting = await site.controller()
    await eventually(
        "a controller that acts starts clean",
        lambda: site.ask("SELECT sequence > 0 FROM queuectl.leadership WHERE cluster_id = $1", uid),
    )
    await ended(acting)
    verdicts = await site.ask(
        "SELECT array_agg(DISTINCT verdict) FROM queuectl.decision WHERE cluster_id = $1", uid
    )
    assert verdicts == ["Configured"]
