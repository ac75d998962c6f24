"""`idle`: what admitted workloads do with their GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from queuectl.cli import printing, rest
from queuectl.cli.options import Options, command, with_options
from queuectl.cli.printing import NOTHING, field, local, printable, shown, table_of
from queuectl.cli.rest import Document
from queuectl.core.model.device_use import UseVerdict


def _wasted(item: Document) -> str:
    return f"{item['wastedSeconds'] / 3600:.1f}"


def _fraction(name: str) -> Callable[[Document], str]:
    return lambda item: NOTHING if item[name] is None else f"{item[name]:.4f}"


def _policy(item: Document) -> str:
    """The IdlePolicy that told its user, or would have."""
    notice = item["notice"]
    return NOTHING if notice is None else f"{notice['policy']}{' (dry run)' if notice['dryRun'] else ''}"


def _hold(item: Document) -> str:
    """When it is held, or would be."""
    notice = item["notice"] or {}
    when = notice.get("heldAt") or notice.get("holdAt")
    return NOTHING if not when else f"{local(when)}{' (cancel)' if notice.get('cancels') else ''}"


_FIELDS: Final = (
    field("NAMESPACE", "namespace"),
    field("WORKLOAD", lambda item: f"{item['kind']}/{item['name']}"),
    field("USER", "submitter", drop=1),
    field("VERDICT", "verdict"),
    field("SINCE", shown(local, "since"), drop=2),
    field("GPUS>", "devices"),
    field("IDLE>", "idleDevices"),
    field("GPU-HOURS LOST>", _wasted),
    field("POLICY", _policy, wide=True),
    field("TOLD", shown(local, "notice.at"), wide=True),
    field("HOLD", _hold, wide=True),
    field("CLUSTERQUEUE", "clusterQueue", wide=True),
    field("ENGINE>", _fraction("engine"), wide=True),
    field("SM>", _fraction("multiprocessors"), wide=True),
    field("COVERAGE>", lambda item: f"{100 * item['coverage']:.0f}%", wide=True),
)


@command("idle")
@click.option("-n", "--namespace", help="Only there.")
@click.option(
    "--verdict",
    type=click.Choice([one.value for one in UseVerdict], case_sensitive=False),
    help="Only workloads of this verdict.  [default: all]",
)
@with_options
def idle(options: Options, namespace: str | None, verdict: str | None) -> None:
    """Show which admitted workloads leave their GPUs idle, the most wasteful first.

    Verdicts are made from the metrics of dcgm-exporter in Prometheus, over half an hour unless configured
    otherwise. Missing samples are Unknown, never Idle. IdlePolicies say what is done about it.
    """
    server = rest.connect(options)
    found = server.get(("idle",), {"verdict": verdict} if verdict else {})
    if namespace is not None:
        found["items"] = [item for item in found["items"] if item["namespace"] == namespace]
    if printing.as_document(found, options.output):
        return
    table_of(_FIELDS, found["items"], wide=options.wide, none="no verdicts found")
    if found["others"]:
        click.echo(f"{found['others']} more GPUs are idle where you may not list workloads")
    click.echo(_last_check(found))


def _last_check(found: Document) -> str:
    if found["checkedAt"] is None:
        return "no check yet: checks need idle.prometheus.url in the configuration of the controller"
    when = local(found["checkedAt"])
    return f"checked {when}: {printable(found['problem'])}" if found["problem"] else f"checked {when}"
