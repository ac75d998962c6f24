"""The commands that run or repair an installation. Each calls one function of queuectl.app."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import click

from queuectl.cli import printing
from queuectl.cli.options import Failure, NotGood, Options, command, with_options

Found = TypeVar("Found")


def call(
    work: Coroutine[Any, Any, Found],
    *,
    log_level: int | None = logging.WARNING,
    event_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Found:
    """Run it to its end. Errors that the user can correct become a Failure; others are defects.

    `log_level`: least level of the log on stderr; None: it configures its log itself.
    `event_loop`: creates the event loop; None: that of asyncio.
    """
    if log_level is not None:
        form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        logging.basicConfig(stream=sys.stderr, level=log_level, format=form)
        logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        with asyncio.Runner(loop_factory=event_loop) as runner:
            return runner.run(work)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BaseExceptionGroup as group:
        failures = [_failure(error) for error in _leaves(group)]
        known = [failure for failure in failures if failure is not None]
        if len(known) < len(failures):
            raise
        raise known[0] from None
    except Exception as error:
        failure = _failure(error)
        if failure is None:
            raise
        raise failure from None


def serve(work: Coroutine[Any, Any, None]) -> None:
    """Run a server process."""
    from queuectl.net.event_loop import new_event_loop

    call(work, log_level=logging.INFO, event_loop=new_event_loop)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf
        for error in group.exceptions
        for leaf in (_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]


def _failure(error: BaseException) -> Failure | None:
    from queuectl.certificates.material import CertificateError
    from queuectl.kube.errors import ApiError, BadKubeconfig
    from queuectl.ports.cluster import ClusterUnavailable
    from queuectl.ports.ledger import LedgerRefused, LedgerUnavailable, LostLeadership, SchemaMismatch
    from queuectl.settings import ConfigurationError

    if isinstance(error, Failure):
        return error
    if isinstance(error, ConfigurationError):
        return Failure("the configuration is not valid:\n  " + "\n  ".join(error.problems))
    if isinstance(error, LostLeadership):
        return NotGood(f"another controller has taken over: {error}")
    if isinstance(error, SchemaMismatch):
        return Failure(str(error))
    if isinstance(error, LedgerUnavailable):
        return Failure(f"the ledger cannot be reached: {error}\nCheck --database-url and Postgres itself")
    if isinstance(error, LedgerRefused):
        return NotGood(f"the ledger refuses: {error}")
    if isinstance(error, ClusterUnavailable):
        return Failure(f"the API server cannot be reached: {error}\nCheck --kubeconfig and --context")
    if isinstance(error, ApiError):
        return Failure(f"the API server refuses: {error}\nCheck --context and its rights")
    if isinstance(error, OSError | BadKubeconfig | CertificateError):
        return Failure(str(error))
    return None


@command("controller")
@click.option("--observe", is_flag=True, help="Decide and record only: write nothing to the cluster.")
@click.option(
    "--default-queue",
    metavar="LOCALQUEUE",
    help="With --observe: LocalQueue of objects without a queue label, in each namespace; not of pods.",
)
@with_options
def controller(options: Options, *, observe: bool, default_queue: str | None) -> None:
    """Run the controller, the process that admits workloads: it decides, records and acts."""
    if default_queue is not None and not observe:
        raise click.UsageError("--default-queue goes with --observe: manifests/default-queue labels objects")
    settings, kubeconfig, context = options.connected(cluster=True)
    from queuectl.app import controller as leading

    if observe:
        serve(leading.run_observer(settings, kubeconfig, context, default_queue))
    else:
        serve(leading.run_controller(settings, kubeconfig, context))


@command("api")
@with_options
def api(options: Options) -> None:
    """Serve queues, workloads and reasons over REST, and the web page. Changes need `api.changes`."""
    settings, kubeconfig, context = options.connected(cluster=True)
    from queuectl.app import api as reading

    serve(reading.run_api(settings, kubeconfig, context))


@command("webhook")
@with_options
def webhook(options: Options) -> None:
    """Suspend labelled workloads at creation, for clusters without mutating policies (before 1.36)."""
    settings = options.settings()
    from queuectl.app import webhook as app

    serve(app.run_webhook(settings, options.kubeconfig, options.context))


@command("migrate")
@with_options
def migrate(options: Options) -> None:
    """Create the ledger's tables, or update them to this version."""
    settings, _, _ = options.connected(cluster=False)
    from queuectl.app import upkeep

    call(upkeep.migrate(settings))
    if not printing.as_document({"migrated": True}, options.output):
        click.echo("the ledger is at this version's schema")


@command("verify")
@click.option(
    "--from-checkpoint",
    is_flag=True,
    help="Do not read the decisions that the controller's last checkpoint covers.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Compare also with the objects in the cluster, each by its own annotation and pod counts.",
)
@with_options
def verify(options: Options, *, from_checkpoint: bool, cluster: bool) -> None:
    """Recompute the ledger from its own history and compare. Exit code 1 if they differ."""
    settings, kubeconfig, context = options.connected(cluster=cluster)
    from queuectl.app import upkeep

    findings = list(call(upkeep.verify(settings, from_checkpoint=from_checkpoint)))
    if cluster:
        findings += call(upkeep.compare(settings, kubeconfig, context))
    if options.output != "table":
        printing.document({"findings": [_plain(finding) for finding in findings]}, options.output)
    for finding in findings if options.output == "table" else ():
        click.echo(printing.printable(finding))
    if findings:
        raise NotGood(f"{len(findings)} difference{'s' if len(findings) > 1 else ''} found")
    if options.output == "table":
        click.echo(f"clean: the ledger agrees with its history{' and with the cluster' * cluster}")


def _plain(finding: object) -> object:
    if dataclasses.is_dataclass(finding) and not isinstance(finding, type):
        return {name: _plain(value) for name, value in dataclasses.asdict(finding).items()}
    return finding if finding is None or isinstance(finding, bool | int | float) else str(finding)


@command("rebuild")
@with_options
def rebuild(options: Options) -> None:
    """Restore the open holds of a lost ledger from the workloads in the cluster. Stops none of them."""
    settings, kubeconfig, context = options.connected(cluster=True)
    from queuectl.app import upkeep

    found = call(upkeep.rebuild(settings, kubeconfig, context))
    if not printing.as_document({"rebuilt": _plain(found)}, options.output):
        click.echo(
            "the ledger has the holds of all that runs" if found is None else printing.printable(found)
        )


_PORT = click.IntRange(0, 65535)
_NODES: Final = re.compile("([1-9][0-9]{0,2})x([0-9]{1,3})")


class _NodesAndGpus(click.ParamType[tuple[int, int]]):
    """Such as 3x8."""

    name = "NxG"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        if (found := _NODES.fullmatch(value)) is None:
            self.fail(f"{value!r} is not N nodes with G GPUs, as 3x8: N from 1 to 999, G from 0 to 999")
        return int(found[1]), int(found[2])


_PORT_HELP: Final = "0: the port of the last run, or a free one."


@command("sandbox")
@click.option("--empty", is_flag=True, help="Load no example, and make no nodes.")
@click.option(
    "--nodes",
    type=_NodesAndGpus(),
    default=(0, 0),
    help="Load no example; make N nodes with G GPUs each, as 3x8.",
)
@click.option("--reset", is_flag=True, help="Start from empty data: delete that of earlier runs.")
@click.option("--headless", is_flag=True, help="Print plain lines, for scripts.")
@click.option(
    "--control-plane",
    type=click.Choice(["small", "real"]),
    default="small",
    show_default=True,
    help="The small API, or the binaries in KUBEBUILDER_ASSETS.",
)
@click.option(
    "--kubernetes-version",
    metavar="1.N",
    help="The older release that the binaries emulate.  [default: their own]",
)
@click.option("--no-controller", is_flag=True, help="Do not start the controller.")
@click.option("--kubernetes-port", type=_PORT, default=0, help=_PORT_HELP, show_default=True)
@click.option("--rest-port", type=_PORT, default=0, help=_PORT_HELP, show_default=True)
@click.option("--metrics-port", type=_PORT, default=0, help=_PORT_HELP, show_default=True)
@with_options
def sandbox(
    options: Options, *, no_controller: bool, empty: bool, nodes: tuple[int, int], **values: Any
) -> None:
    """Run queuectl and all it needs here: Postgres, Kubernetes API, controller, REST, nodes of an example.

    Nodes with the label `sandbox.queuectl.dev/fake-node` are ready, and run pods for the seconds of their
    annotation `sandbox.queuectl.dev/run-seconds` (10), to end with `sandbox.queuectl.dev/exit-code` (0).

    Of a configuration file, only `controller`, `scheduling`, `accounting`, `idle` and `kinds` are used;
    everything else, and the address of the controller, is set by the sandbox.
    """
    click.echo(f"starting Postgres, the Kubernetes API and queuectl, with data in {options.folder}")
    try:  # the imports take seconds
        from queuectl.sandbox.run import SandboxOptions as Wanted
    except ModuleNotFoundError as error:
        raise Failure(
            f"the sandbox needs {error.name}, which is not installed: pip install 'queuectl[sandbox]'"
        ) from None
    from queuectl.app import sandbox as app
    from queuectl.cli.watching import client

    settings: dict[str, Any] = {}
    if options.config is not None:  # imported here: it is slow
        settings = options.settings().model_dump(
            mode="json",
            by_alias=True,
            exclude_unset=True,
            include={"controller", "scheduling", "accounting", "idle", "kinds"},
        )
    places: dict[str, Any] = {"empty": empty or nodes != (0, 0), "nodes": nodes}
    wanted = Wanted(data=options.folder, controller=not no_controller, settings=settings, **places, **values)
    # It prints its progress too, and writes its log to its folder.
    code = call(app.run_sandbox(wanted, client), log_level=None)
    if code:
        raise SystemExit(code)
