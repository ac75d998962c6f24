"""`dump`: a state of the ledger as a test case."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from queuectl.cli import printing
from queuectl.cli.arguments import Since
from queuectl.cli.operating import call
from queuectl.cli.options import Failure, Options, with_options


@click.command("dump")
@click.argument("tree", required=False)
@click.option(
    "--as-of",
    type=Since(),
    metavar="TIME",
    help="The state at an earlier time: 90m, 12h, 3d ago, or a time (UTC).",
)
@click.option("--anonymous", is_flag=True, help="Replace names and UIDs, leave out free text and labels.")
@click.option(
    "--run-seconds",
    type=click.FloatRange(min=0),
    metavar="N",
    help="For `queuectl simulate`: each workload runs N seconds more.",
)
@click.option("--cluster", help="UID of its namespace kube-system, if the ledger has several clusters.")
@with_options
def dump(
    options: Options,
    tree: str | None,
    *,
    as_of: datetime | timedelta | None,
    anonymous: bool,
    run_seconds: float | None,
    cluster: str | None,
) -> None:
    """Print a state of the ledger as a document for `queuectl test`, or `queuectl simulate`.

    TREE is a Cohort or a ClusterQueue: only what is in its tree is printed. The document has the policy as
    manifests, to be edited, the workloads with all that the ledger has of them, and of now the nodes;
    add `expect` to make it a test (docs/policy-tests.md). Reads the ledger, not REST.
    """
    settings, _, _ = options.connected(cluster=False)
    from queuectl.app import dump as dumping
    from queuectl.ports.ledger import NotStored
    from queuectl.scenarios.dump import NoSuchTree

    try:
        found = call(
            dumping.dumped(
                settings,
                cluster=cluster,
                as_of=as_of,
                tree=tree,
                run_seconds=run_seconds,
                without_names=anonymous,
            )
        )
    except (NotStored, NoSuchTree) as problem:
        raise Failure(str(problem)) from None
    printing.document(found, "json" if options.output == "json" else "yaml")
