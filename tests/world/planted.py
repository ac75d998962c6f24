"""Bugs of the whole system, to find out what schedules detect: `python -m tests.world --planted`.

Each edits one function while schedules are played: `old` is replaced by `new` in its source. A bug whose text
is not found any more is an error.

Not here, as a second rule holds where the first is left out: that a start tests its queue (the gate refuses it),
that an effect does not replace one of unknown outcome (a start tests the record of a stop), that a start tests
the record of a stop (a start of unknown outcome is sent again, which raises the generation), and that released
quota is noted for the next plan (the plan that releases it nominates again).
"""

# ruff: noqa: E501 (a table with a bug on each line)
# fmt: off
from __future__ import annotations

import inspect
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from types import FunctionType
from typing import Any, Final, NamedTuple

from queuectl.ports.ledger import LedgerUnavailable, PlanFailed


class PlantedBug(NamedTuple):
    name: str
    """One sentence."""
    where: str
    """MODULE:QUALIFIED.NAME of a function."""
    old: str
    new: str
    needs: tuple[str, ...] = ()
    """Verbs or arguments of steps without which it cannot show: schedules have more of them, close together."""
    aimed: int | None = None
    """Number of the schedule by hand that has them, in the place of those of seeds."""


_LOOP: Final = "queuectl.controller.loop:Controller."
_COMMITS: Final = "queuectl.controller.commits:Commits."
_LANES: Final = "queuectl.controller.effects:Lanes."
_CLUSTER: Final = "queuectl.kube.cluster:KubeCluster."
_LEASE: Final = "queuectl.kube.lease:KubeLease."
_REFLECTOR: Final = "queuectl.kube.reflector:Reflector."
_TWIN: Final = "tests.doubles.ledger:MemoryLedger."

BUGS: Final = (
    # --- leadership
    PlantedBug(
        "the fence is left out: a deposed leader commits",
        _TWIN + "commit",
        "if epoch != store.epoch:",
        "if False:",
        needs=("pause", "commit late", "submit"),
    ),
    PlantedBug(
        "a Lease that is renewed is taken",
        _LEASE + "_free",
        "return self._clock() -",
        "return True or self._clock() -",
    ),
    PlantedBug(
        "a standby leads with what it has read, however little that is",
        _REFLECTOR + "_has_read",
        ">= version",
        ">= 0",
        needs=("watches", "submit", "terminate"),
    ),
    PlantedBug(
        "what was over before a standby knew it from the ledger is forgotten",
        _REFLECTOR + "run",
        "key in unobserved",
        "False",
        needs=("submit", "database", "kill"),
    ),
    PlantedBug(
        "a standby keeps the attempts that the leader has retired",
        "queuectl.core.committed_plans:follow",
        "changed |= known.keys() - {one.id for one in after.workloads}",
        "pass",
        needs=("submit", "kill"),
    ),
    # --- ledger
    PlantedBug(
        "a leader goes on where the database has lost its decisions",
        "queuectl.ports.ledger:LedgerPosition.check",
        "self.decision < known.decision or self.transactions < known.transactions",
        "False",
        aimed=11,
    ),
    PlantedBug(
        "a leader goes on where the database has lost its acknowledgements",
        "queuectl.ports.ledger:LedgerPosition.check",
        " or self.transactions < known.transactions",
        "",
        aimed=12,
    ),
    PlantedBug(
        "each try of a commit is another batch",
        _COMMITS + "commit",
        "batch=batch",
        'batch=f"{batch}-{asyncio.get_running_loop().time()}"',
        needs=("commit lost", "submit"),
    ),
    PlantedBug(
        "a commit of unknown outcome counts as done",
        _COMMITS + "commit",
        "lambda: self._ledger.commit(",
        "lambda: __import__('tests.world.planted', fromlist=['x']).done_whatever(self._ledger.commit, ",
        needs=("database",),
    ),
    PlantedBug(
        "a lost answer to a commit counts as a refusal",
        _COMMITS + "commit",
        "lambda: self._ledger.commit(",
        "lambda: __import__('tests.world.planted', fromlist=['x']).refused_whatever(self._ledger.commit, ",
        needs=("commit lost", "submit"),
    ),
    PlantedBug(
        "the next leader does not learn what was not sent",
        _TWIN + "load",
        "effects=tuple(sorted(store.effects, key=lambda key: store.effects[key])),",
        "effects=(),",
        needs=("submit", "kill when admitted"),
    ),
    PlantedBug(
        "acknowledgements of a refused commit are lost",
        _COMMITS + "commit",
        "self._acknowledged = done + self._acknowledged",
        "pass",
        needs=("submit", "statement fails when admitted"),
    ),
    PlantedBug(
        "acknowledgements wait for the next decision",
        _COMMITS + "acknowledge",
        "self._alone is None",
        "False",
    ),
    PlantedBug(
        "what was refused is acknowledged",
        _LOOP + "_drain",
        "Result.DONE | Result.GONE",
        "Result.DONE | Result.GONE | Result.REFUSED",
        needs=("slow", "submit", "annotate pods when admitted"),
    ),
    PlantedBug(
        "a restart forgets evictions",
        "queuectl.core.committed_plans:restore_workload",
        "Phase.EVICTING if attempt.state is AttemptState.EVICTING else Phase.ADMITTED",
        "Phase.ADMITTED",
        needs=("kill",),
    ),
    PlantedBug(
        "a restart sends no write that was not acknowledged",
        "queuectl.core.committed_plans:restore_workload",
        "if EffectKey(entry.id, attempt.number, verb) in unacknowledged",
        "if False",
        needs=("submit", "kill when admitted"),
    ),
    # --- wake-ups and time
    PlantedBug("events do not wake the loop", _LOOP + "emit", "self._wake.set()", "pass"),
    PlantedBug(
        "an event that comes during a decision is not looked at",
        _LOOP + "_decide_until_stopped",
        "await self._set_alarm()",
        "await self._set_alarm()\n        self._wake.clear()",
    ),
    PlantedBug("nothing wakes the loop when time comes", _LOOP + "_ring", "self._wake.set()", "pass"),
    PlantedBug(
        "inadmissible workloads are not nominated when quota returns",
        "queuectl.core.queues.inadmissible:helped_by",
        "for queue in queues_below(root, pending):",
        "for queue in ():",
    ),
    PlantedBug(
        "inadmissible workloads are not nominated when a queue changes",
        "queuectl.core.queues.inadmissible:Requeuer.renominate",
        "queue.activate_all()",
        "pass",
        aimed=6,
    ),
    # --- effects
    PlantedBug(
        "a write that failed is not tried again",
        _LANES + "_retry_in",
        "if isinstance(job, Notice) and lane.tries + 1 >= _NOTICE_TRIES",
        "if True",
        needs=("error",),
    ),
    PlantedBug(
        "what is started again is stopped without a pause",
        _LANES + "_do",
        "(times := self._stops.get(job.key, 0))",
        "(times := 0)",
        aimed=10,
    ),
    PlantedBug(
        "a start that is denied is forgotten",
        _LANES + "_denied",
        "self._emit([settled])",
        "pass",
        aimed=0,
    ),
    PlantedBug(
        "a controller of a kind that is slow counts as gone",
        _CLUSTER + "anything_alive",
        "SILENT_SECONDS if kind.name in self._heard else UNHEARD_SECONDS",
        "UNHEARD_SECONDS",
        needs=("submit", "operators slow when started", "hold when started"),
    ),
    PlantedBug(
        "a start without an answer counts as done",
        _CLUSTER + "_doubted",
        "if self._started(kind, effect, obj):",
        "if True:",
        needs=("away", "submit", "submit", "submit"),
    ),
    PlantedBug(
        "a start without an answer counts as refused",
        _CLUSTER + "_doubted",
        "raise _again(doubt) from doubt",
        "return EffectSettled(effect.key, Result.GONE), WorkloadGone(effect.workload.id)",
        needs=("away", "submit", "submit", "submit"),
    ),
    PlantedBug(
        "a refused start counts as done",
        _CLUSTER + "_refused",
        "if self._started(kind, effect, obj):",
        "if True:",
        aimed=2,
    ),
    PlantedBug(
        "a stop without an answer counts as done",
        _CLUSTER + "stop",
        "if write is None:",
        "if write is None or doubt is not None:",
        needs=("submit", "hold when running", "away when evicting"),
    ),
    PlantedBug(
        "a conflict ends a stop",
        _CLUSTER + "_written",
        "except (Invalid, Conflict):\n            pass",
        "except (Invalid, Conflict):\n            return None, None",
        needs=("conflict",),
    ),
    PlantedBug(
        "a start does not test the generation",
        "queuectl.kinds.patches:start",
        "_test_version(seen),",
        "",
        needs=("slow", "submit", "resize when admitted"),
    ),
    # --- quota and pods
    PlantedBug(
        "quota returns with the stop, not with the pods",
        _CLUSTER + "anything_alive",
        "kind = self._kinds[ref.kind]",
        "return False",
    ),
    PlantedBug(
        "a suspended object makes no pods",
        "queuectl.kube.liveness:_may",
        "return not silent",
        "return False and not silent",
        needs=("submit", "operators slow when started", "hold when started"),
    ),
    PlantedBug(
        "pods are not counted of what is gone",
        "queuectl.kube.liveness:Liveness.pods_alive",
        "parents: dict[str, Object | None] = {}",
        "parents: dict[str, Object | None] = {}\n    if obj is None:\n        return 0",
    ),
    PlantedBug(
        "pods of the Jobs of a JobSet are not counted",
        "queuectl.kube.liveness:Liveness._belongs",
        "if row is not None and row in between]",
        "if False]",
        aimed=7,
    ),
    PlantedBug(
        "a Job of a JobSet that was suspended before the start tells of the stop",
        "queuectl.kube.liveness:_says_so_now",
        "return said is not None and said > started",
        "return said is not None",
        aimed=9,
    ),
    # --- watches and kinds
    PlantedBug(
        "a watch goes on where its history has expired",
        _REFLECTOR + "run",
        "except Gone as error:\n            self._version = None\n",
        "except Gone as error:\n            pass\n",
        needs=("jobs.batch", "submit"),
    ),
    PlantedBug(
        "a list does not find out what is gone", _REFLECTOR + "_list", "if key not in found]", "if False]",
        needs=("submit", "silent when running", "priority", "delete", "jobs.batch"),
    ),
    PlantedBug(
        "a silent watch is waited for",
        "queuectl.kube.session:_heard",
        "asyncio.timeout(silence)",
        "asyncio.timeout(None)",
        needs=("silent",),
    ),
    PlantedBug(
        "objects of a kind that can't be read are gone",
        _REFLECTOR + "_tell_unreadable",
        "Listed(self.source.name, None)",
        "Listed(self.source.name, frozenset() if self.source.workloads else None)",
        needs=("forbidden",),
    ),
    PlantedBug(
        "objects of a kind without discovery are gone",
        "queuectl.kube.definitions:Definitions._settled",
        "if name not in self._there:",
        "if True:",
        aimed=5,
    ),
    PlantedBug(
        "a kind that comes back is not listed",
        "queuectl.kube.reflector:Definition.settle",
        "self._moved.set()",
        "pass",
        needs=("definition gone", "PyTorchJob"),
    ),
    PlantedBug(
        "the last event of a watch is dropped",
        _REFLECTOR + "_take",
        "self._tell(events)",
        "self._tell(events[:-1] if len(events) > 1 else events)",
        aimed=5,
    ),
    # --- statuses
    PlantedBug(
        "a status that a late write replaced is not written again",
        _CLUSTER + "_publish",
        "if stamped == before and not self._statuses.is_lost(path):",
        "if stamped == before:",
        needs=("hang",),
    ),
    PlantedBug(
        "a status counts as written before it is",
        _CLUSTER + "_publish",
        "with self._statuses.writing(path, stamped):",
        "self._statuses.wrote(path, stamped, None)\n        with contextlib.nullcontext():",
        aimed=5,
    ),
    PlantedBug(
        "a status that was refused is not written again",
        "queuectl.controller.reports:Statuses._write_some",
        "self._late.setdefault(name, report)",
        "pass",
        needs=("statuses fail", "submit"),
    ),
    PlantedBug(
        "a node that has failed is lost only when something else happens",
        "queuectl.core.features.nodes.room:NodeRoom.due_at",
        "(self.inventory.settles_at(), self.losses.due_at())",
        "(self.inventory.settles_at(),)",
        needs=("nodes", "submit", "node fails when running"),
    ),
    PlantedBug(
        "statuses of unchanged conditions starve",
        "queuectl.controller.reports:Statuses.write",
        "(turned, others[: self._most], refused)",
        "(turned, refused)",
    ),
    PlantedBug(
        "reports of one batch are lost",
        "queuectl.controller.reports:Statuses.changed",
        "self._late[report.name] = report",
        "self._late.setdefault(report.name, report)",
        needs=("statuses fail", "submit", "submit after 6"),
    ),
)


async def done_whatever(commit: Callable[..., Awaitable[int]], *args: Any, **given: Any) -> int:
    """For bugs: a commit that ends without an answer counts as done."""
    try:
        return await commit(*args, **given)
    except LedgerUnavailable:
        return 0


async def refused_whatever(commit: Callable[..., Awaitable[int]], *args: Any, **given: Any) -> int:
    """For bugs: a commit that ends without an answer counts as refused."""
    try:
        return await commit(*args, **given)
    except LedgerUnavailable as error:
        raise PlanFailed(str(error), "XX000") from error


@contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """Functions have the bug in this context. Raises LookupError if its text is not there, or several times."""
    function = _function(bug.where)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(bug.old) != 1:
        raise LookupError(f"{bug.name}: {bug.where} has its text {source.count(bug.old)} times")
    names = dict(function.__globals__)
    text = "from __future__ import annotations\n" + source.replace(bug.old, bug.new)
    exec(compile(text, f"<{bug.name}>", "exec"), names)
    edited = names[function.__name__]
    before = function.__code__
    function.__code__ = getattr(edited, "fget", edited).__code__
    try:
        yield
    finally:
        function.__code__ = before


def _function(where: str) -> FunctionType:
    module, _, path = where.partition(":")
    owner, _, name = path.rpartition(".")
    holder = reduce(getattr, owner.split("."), import_module(module)) if owner else import_module(module)
    found = inspect.getattr_static(holder, name)
    found = getattr(found, "fget", found)
    assert isinstance(found, FunctionType), where
    return found
