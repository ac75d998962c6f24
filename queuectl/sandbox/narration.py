"""Output of the sandbox: one line per decision, and commands to try."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from queuectl.core.decisions import Verdict
from queuectl.core.model.resources import format_amount
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.reader import DecisionRow, Readings
from queuectl.sandbox.endpoints import Endpoints

if TYPE_CHECKING:
    from rich.console import Console

_POLL_SECONDS: Final = 0.1
_PAGE: Final = 500
_COLOURS: Final = {
    Verdict.ADMITTED: "green",
    Verdict.PENDING: "yellow",
    Verdict.EVICTED: "red",
    Verdict.RETIRED: "dim",
}


class Teller:
    """Prints whole lines without buffering; in colour only at a terminal."""

    def __init__(self, *, plain: bool) -> None:
        self._plain = plain
        self._console: Console | None = None
        self._held: list[tuple[str, str]] | None = None

    def prepare(self) -> None:
        """Import modules that take a tenth of a second, while other parts start."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(
                highlight=False, no_color=self._plain or None, soft_wrap=True, markup=False, emoji=False
            )

    def say(self, line: str = "", style: str = "") -> None:
        """Raises OSError when the reader of the output is gone."""
        if self._held is not None:
            self._held.append((line, style))
            return
        self.prepare()
        assert self._console is not None
        from rich.text import Text

        self._console.print(Text(line, style=style))
        sys.stdout.flush()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The screen uses the terminal during the block: lines are printed after it."""
        self._held = []
        try:
            yield
        finally:
            said, self._held = self._held, None
            with contextlib.suppress(OSError):
                for line, style in said:
                    self.say(line, style)


async def tell_decisions(
    readings: Readings, after: int, say: Callable[[str, str], None], admitted: Callable[[], None]
) -> None:
    """One line for every decision above `after`, until cancelled; `admitted` is called at each admission."""
    while True:
        try:
            rows = await readings.decisions(after=after, limit=_PAGE)
        except LedgerUnavailable:
            rows = []
        for row in rows:
            after = row.sequence
            say(describe(row), _COLOURS.get(Verdict(row.verdict), ""))
            if row.verdict == Verdict.ADMITTED:
                admitted()
        if len(rows) < _PAGE:
            await asyncio.sleep(_POLL_SECONDS)


def describe(row: DecisionRow) -> str:
    """Time, sequence, verdict, workload or policy object, and reason or details."""
    what = str(row.ref) if row.ref else _policy_object(row.payload)
    parts = [f"{row.now:%H:%M:%S}", f"#{row.sequence:<5}", f"{row.verdict:<10}", what]
    detail = row.reason.message if row.reason else _detail(row)
    if detail:
        parts.append(f"- {detail}")
    return " ".join(parts)


def _policy_object(payload: dict[str, Any]) -> str:
    return "/".join(str(part) for name in ("kind", "namespace", "name") if (part := payload.get(name)))


def _detail(row: DecisionRow) -> str:
    payload = row.payload
    match row.verdict:
        case Verdict.ADMITTED:
            return _charge(payload)
        case Verdict.QUEUED:
            queue = payload.get("clusterQueue") or payload.get("queue")
            return f"in {queue}, priority {payload.get('priority')}"
        case Verdict.CONFIGURED:
            return "" if payload.get("spec") is not None else "deleted"
        case _:
            return str(payload.get("detail") or payload.get("outcome") or "")


def _charge(payload: dict[str, Any]) -> str:
    """Such as `team-a: 4 nvidia.com/gpu of a100, 16 cpu of a100`."""
    totals: dict[tuple[str, str], int] = {}
    for pod_set in payload.get("podSets") or ():
        for resource, amount in pod_set["requests"].items():
            cell = (resource, pod_set["flavors"].get(resource, ""))
            totals[cell] = totals.get(cell, 0) + amount * pod_set["count"]
    # Scarce resources come first.
    ordered = sorted(totals.items(), key=lambda item: ("/" not in item[0][0], item[0]))
    charges = ", ".join(
        f"{format_amount(resource, amount)} {resource} of {flavor}" for (resource, flavor), amount in ordered
    )
    queue = payload.get("clusterQueue")
    return f"{queue}: {charges}" if queue else charges


def what_to_try(folder: Path, endpoints: Endpoints, *, example: bool) -> list[str]:
    """Commands to copy into a shell."""
    kubectl = f"kubectl --kubeconfig {shlex.quote(str(folder / 'kubeconfig'))}"
    ours = own_command()
    namespace, name = ("team-a", "too-large") if example else ("default", "NAME")
    lines = [
        f"{kubectl} get jobs,pytorchjobs,localqueues -A",
        f"{kubectl} -n {namespace} describe job {name}",
        f"{ours} get workloads --server {endpoints.rest}",
        f"{ours} explain job/{name} -n {namespace} --server {endpoints.rest}",
        f"curl -s {endpoints.rest}/api/v1/clusterqueues",
    ]
    if shutil.which("kubectl") is None:
        lines.append("# kubectl is not on your PATH: any kubectl works with this kubeconfig")
    return lines


def controller_command(folder: Path, config: Path, endpoints: Endpoints) -> str:
    """The command that runs the controller apart."""
    quoted = [shlex.quote(str(part)) for part in (config, folder / "kubeconfig", endpoints.postgres)]
    return (
        f"{own_command()} controller --config {quoted[0]} --kubeconfig {quoted[1]} --context controller "
        f"--database-url {quoted[2]}"
    )


def own_command() -> str:
    """`queuectl`, if that runs this installation; else this interpreter with the module."""
    found = shutil.which("queuectl")
    if found and Path(found).parent == Path(sys.executable).parent:
        return "queuectl"
    return f"{shlex.quote(sys.executable)} -m queuectl"
