"""Faults under load on a real control plane: `make test-long`.

Tenants submit more than has room, admins hold, edit and delete, and meanwhile faults of one kind happen to
two controllers with a lease and to what they need. Then all is healed, and all work must end. A witness
watches the API server: no workload is started twice by one attempt, live pods never have more GPUs than there
is quota. The ledger must agree with its history, and have nothing left to do. Exit status 1: it was not so.

Needs KUBEBUILDER_ASSETS. One kind takes its seconds, and about as many again for the rest of the work.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

from rich.console import Console

from queuectl.sandbox import tenancy
from queuectl.sandbox.control_plane import ASSETS_VARIABLE, ControlPlane, find_assets, write_kubeconfig
from queuectl.sandbox.example import pytorchjob_crd
from queuectl.sandbox.install import Installer
from queuectl.sandbox.processes import end_with_make
from tests.acceptance.chaos.faults import KINDS, Controllers, Faults
from tests.acceptance.chaos.proxy import Proxy
from tests.acceptance.chaos.run import Chaos, Outcome
from tests.acceptance.chaos.traffic import GPUS, QUOTAS, Traffic, policy
from tests.acceptance.chaos.witness import Witness
from tests.acceptance.e2e.plant import plant
from tests.doubles.processes import interrupt_on_sigterm
from tests.integration.ledger.places import reachable_folder
from tests.integration.sandbox.cluster import WallClock

_PAUSE: Final = 1.2
"""Seconds between two workloads: about as many as 16 GPUs can run without faults."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.acceptance.chaos", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=300, help="of faults of each kind (default: 300)")
    parser.add_argument(
        "--seed", type=int, action="append", help="of what happens; may be repeated (default: 1)"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(KINDS)}")
    if find_assets() is None:
        parser.error(f"{ASSETS_VARIABLE} is not set: it needs a real kube-apiserver")
    end_with_make()
    interrupt_on_sigterm()
    logging.getLogger("queuectl").setLevel(logging.ERROR)  # players complain of servers that are away
    console = Console(soft_wrap=True)
    wrong = 0
    for seed in options.seed or [1]:
        for kind in options.kinds or KINDS:
            wrong += len(asyncio.run(_run(console, kind, seed, options.seconds)).wrong)
    return 1 if wrong else 0


async def _run(console: Console, kind: str, seed: int, seconds: float) -> Outcome:
    outcome = Outcome(kind, seed)
    with reachable_folder() as folder:
        async with _chaos(folder, kind, seed, console) as run:
            await run.disturbed(outcome, seconds)
            await run.healed(outcome)
            await run.judged(outcome)
    for one in outcome.wrong:
        console.print(f"[red]WRONG[/] {one}", highlight=False)
    return outcome


@asynccontextmanager
async def _chaos(folder: Path, kind: str, seed: int, console: Console) -> AsyncIterator[Chaos]:
    async with AsyncExitStack() as stack:
        site, world = await stack.enter_async_context(plant(folder, "real"))
        tenant = await stack.enter_async_context(site.client("tenant"))
        await Installer(world.api).apply([pytorchjob_crd(), *policy(), *tenancy.rights(QUOTAS)])
        await tenancy.wait_for_gate(tenant, mutating=True)
        proxy, kubeconfig = None, None
        if kind == "network":
            assert isinstance(site.plane, ControlPlane)
            proxy = await stack.enter_async_context(Proxy(site.plane.url, site.plane.ssl_context()))
            kubeconfig = folder / "through-the-proxy"
            token = {"controller": site.plane.tokens["controller"]}
            write_kubeconfig(kubeconfig, proxy.url, site.plane.ca_file, token, current="controller")
        witness = Witness(world.api, WallClock(), GPUS)
        controllers = Controllers(site, world.api, kubeconfig)
        faults = Faults(site, controllers, Random(f"{seed} faults"), proxy)
        traffic = Traffic(world.api, tenant, Random(f"{seed} traffic"), _PAUSE)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(witness.run())
            await witness.ready()
            yield Chaos(site, witness, controllers, faults, traffic, console)
            watching.cancel()


if __name__ == "__main__":
    sys.exit(main())
