"""The database is lost while jobs run: its holds are rebuilt from the cluster, and no job is stopped."""

from __future__ import annotations

import asyncio

from tests.acceptance.e2e import audit
from tests.acceptance.e2e.site import eventually, job, pod_template, pytorchjob
from tests.acceptance.e2e.stand import Stand, ended, stand
from tests.integration.ledger.places import reachable_folder

FOR_EVER = 86_400
"""Seconds: until the test ends it."""


async def test_a_lost_database_is_rebuilt_while_jobs_run_and_no_job_is_stopped(
    control_plane: str, figures: list[str]
) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(600):
        with reachable_folder() as folder:
            async with stand(folder, control_plane, gpus=8) as site:
                controller = await site.controller()
                running = await site.submit(
                    [
                        pytorchjob("gang", workers=3, template=pod_template(1, FOR_EVER)),
                        *(job(f"run-{n}", template=pod_template(1, FOR_EVER)) for n in range(4)),
                    ]
                )
                await _all_run(site, 8)
                waiting = await site.submit(job(f"wait-{n}", template=pod_template(1, 0.2)) for n in range(3))
                await eventually("all are in the ledger", lambda: _known(site, 8))
                await ended(controller)
                before = await site.holds()
                assert len(before) == 2 * (2 + 4)
                epoch = await site.ask("SELECT epoch FROM queuectl.leadership")

                lost = loop.time()
                await site.lose_database()
                unmigrated = await site.queuectl("rebuild")
                assert (unmigrated.code, "queuectl migrate" in unmigrated.err) == (2, True)
                for command in ("migrate", "rebuild"):
                    done = await site.queuectl(command)
                    assert done.code == 0, done.err
                back = loop.time() - lost
                assert await site.holds() == before
                assert await site.ask("SELECT epoch FROM queuectl.leadership") > epoch

                quiet = len(site.audit.entries())
                controller = await site.controller()
                await eventually("the waiting are in the ledger again", lambda: _known(site, 8))
                await _refused(site)
                assert controller.returncode is None, controller.tail()
                uids = {item["metadata"]["uid"] for item in running}
                touched = audit.writes_to_jobs(site.audit.entries()[quiet:])
                assert [entry for entry in touched if entry.name in _names(running)] == []
                assert len(await site.running_pods()) == 8

                await site.end_pods()
                await site.all_retired()
                await ended(controller)
                everyone = uids | {item["metadata"]["uid"] for item in waiting}
                assert _codes(site) == {uid: [200] for uid in everyone}
                assert await site.unfinished("jobs") == await site.unfinished("pytorchjobs") == []
                assert len(await site.items("pods")) == 8 + 3
                assert await site.holds() == []
                verified = await site.queuectl("verify")
                assert verified.code == 0, verified.out + verified.err
                figures.append(
                    f"rebuild on {control_plane}: {len(before)} open holds of 5 workloads back and equal "
                    f"{back:.1f} s after the database was dropped; no write to those that ran, one start each"
                )


async def _refused(site: Stand) -> None:
    """With nothing to rebuild, the command says so and leaves the running controller alone."""
    epoch = await site.ask("SELECT epoch FROM queuectl.leadership")
    holds = await site.holds()
    again = await site.queuectl("rebuild")
    assert again.code == 1
    assert "the ledger has 5 open attempts" in again.err
    assert "Traceback" not in again.err
    assert await site.holds() == holds
    assert await site.ask("SELECT epoch FROM queuectl.leadership") == epoch


async def _all_run(site: Stand, pods: int) -> None:
    async def look() -> bool:
        return len(await site.running_pods()) == pods

    await eventually(f"{pods} pods run", look)


async def _known(site: Stand, workloads: int) -> bool:
    """The ledger has this many workloads that are not over, and no effect is due for them."""
    count = await site.ask("SELECT count(*) FROM queuectl.workload WHERE open")
    due = await site.ask("SELECT count(*) FROM queuectl.effect WHERE open")
    return bool(count == workloads and due == 0)


def _codes(site: Stand) -> dict[str, list[int]]:
    """Response codes of all starts, by UID."""
    starts = audit.starts(site.audit.entries())
    return {uid: [entry.code for entry in sent] for uid, sent in starts.items()}


def _names(items: list[dict[str, dict[str, str]]]) -> set[str]:
    return {item["metadata"]["name"] for item in items}
