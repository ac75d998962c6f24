"""What must hold after each write and each commit, whatever happens: each violation is one sentence."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import AttemptState, EffectKey, StoredWorkload, Verb, WorkloadId
from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.kinds.pod_group import POD_GROUP
from queuectl.kinds.reserved_keys import GATED_LABEL, GROUP_LABEL, STOPPED_ANNOTATION, WORKLOAD_LABEL
from queuectl.kinds.single_pod import POD
from queuectl.kinds.stop_annotations import recorded_stop
from queuectl.kinds.workloads import finished
from queuectl.ledger.history.replay import Replay
from queuectl.ports.reader import DecisionRow
from queuectl.sandbox.kubernetes.store import ObjectStore, Stored
from queuectl.sandbox.players.api import Object
from queuectl.sandbox.players.kubelet import has_failed
from queuectl.sandbox.players.pods import controller_uid, ended, node_of
from tests.acceptance.chaos.witness import attempt as attempt_on
from tests.acceptance.e2e.site import GPU
from tests.doubles.ledger import MemoryStore
from tests.job_kinds import JOB_KINDS
from tests.world.devices import DeviceMetrics
from tests.world.limit_oracles import Limits
from tests.world.objects import gpus_of
from tests.world.schedule import FAMILIES, OPERATORS, REPLICAS

WORKLOADS: Final = {JOB_KINDS[kind].resource: kind for kind in ("Job", *sum(FAMILIES, ()))}
"""Kinds by their collection. What has an owner is no workload, and belongs to one."""
PODS: Final = "pods"


@dataclass(frozen=True)
class _Row:
    """A decision as `Replay` reads it."""

    row: DecisionRow

    def __getattr__(self, name: str) -> Any:
        if name in ("namespace", "kind", "name"):
            return getattr(self.row.ref, name, None)
        return getattr(self.row, name)


class Safety:
    """Told of each write of the API server and of each transaction of the ledger, at their moment."""

    def __init__(
        self, ledger: MemoryStore, objects: ObjectStore, metrics: DeviceMetrics, say: Callable[[str], None]
    ) -> None:
        self.violations: list[str] = []
        self.replay = Replay()
        self.starts: Counter[tuple[str, int]] = Counter()
        self._ledger = ledger
        self._limits = Limits(ledger, self.violated)
        self._objects = objects
        self._metrics = metrics
        self._say = say
        self._evicted: set[tuple[str, int]] = set()
        self._edited: set[str] = set()
        """UIDs of workloads that others than the controllers have started, stopped or given reserved
        annotations."""
        self._closed: set[tuple[str, int]] = set()
        self._lost: set[tuple[str, int]] = set()
        """Attempts that may run although the ledger has them not, or not open, until they are found."""
        self.lost_rows: list[DecisionRow] = []
        self.denied = False
        """A fault has denied a write."""
        self._before: dict[str, Object] = {}
        """Objects of workloads and pods as last seen, by UID."""
        self._above: dict[str, str] = {}
        """What made an object, by UIDs."""
        self._beside: set[str] = set()
        """UIDs of what others than its operator have made objects for: of two of one second either counts."""
        self._heard: dict[str, int] = {}
        """The epoch in which the controller of a kind last said whether an object is suspended."""
        self._pods: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """GPUs of live pods by the UID of their workload and their own."""
        self._failed: set[str] = set()
        """Nodes that have failed or were gone."""

    def violated(self, text: str) -> None:
        self.violations.append(text)
        self._say(f"VIOLATION: {text}")

    # --- the API server

    def stored(self, collection: str, stored: Stored, sender: str | None, *, gone: bool) -> None:
        if collection in WORKLOADS:
            self._workload(JOB_KINDS[WORKLOADS[collection]], stored.read(), sender or "", gone=gone)
        elif collection == PODS:
            self._pod(stored.read(), sender or "", gone=gone)
        elif collection == "nodes" and (gone or has_failed(stored.read())):
            self._failed.add(str(stored.read()["metadata"]["name"]))

    def _workload(self, kind: Any, obj: Object, sender: str, *, gone: bool) -> None:
        uid = obj["metadata"]["uid"]
        if (owner := controller_uid(obj)) is not None:
            made_by_operator = sender.startswith(OPERATORS) and uid not in self._edited
            if made_by_operator or uid in self._above:
                self._above[uid] = owner
            else:
                self._edited.add(uid)
                self._beside.add(owner)
            return
        before = self._before.get(uid)
        if gone:
            self._before.pop(uid, None)
            return
        self._before[uid] = obj
        if kind.speaks(obj):
            self._heard[kind.name] = self._ledger.epoch
        if (
            before is not None
            and not sender.startswith(REPLICAS)
            and _marks(kind, before) != _marks(kind, obj)
        ):
            self._edited.add(uid)
        was, now = before is None or kind.suspended(before), kind.suspended(obj)
        if was and not now:
            self._started(uid, obj, sender)
        elif now and not was and before is not None and sender.startswith(("one", "two")):
            self._stopped(uid, before)

    def _started(self, uid: str, obj: Object, sender: str) -> None:
        name, number = _named(obj), attempt_on(obj)
        if number is None or not sender.startswith(("one", "two")):
            self.violated(f"{name} was started by {sender or 'the API server'}, attempt {number}")
            return
        self.starts[uid, number] += 1
        if self.starts[uid, number] > 1:
            self.violated(f"{name} was started {self.starts[uid, number]} times by attempt {number}")
        stored = self._ledger.workloads.get(WorkloadId(uid))
        open_attempt = stored.attempt if stored is not None else None
        if (uid, number) in self._lost:
            return
        if open_attempt is None or open_attempt.number != number:
            is_open = None if open_attempt is None else open_attempt.number
            self.violated(f"{name} runs by attempt {number}, and the ledger has {is_open} open")
        elif stored is not None and (queue := _queue(obj)) != stored.queue:
            self.violated(f"{name} was started in {queue}, and was admitted in {stored.queue}")
        elif obj["kind"] == "Job":
            lines = self._ledger.holds[WorkloadId(uid), number]
            held = sum(line.pods * line.amount for line in lines if line.resource == GPU)
            if (asked := _pods(obj) * gpus_of(obj["spec"]["template"])) > held:
                self.violated(f"{name} was started with {asked} GPUs, and holds {held}")

    def _stopped(self, uid: str, before: Object) -> None:
        number = attempt_on(before)
        if number is None or (uid, number) in self._evicted | self._closed:
            return
        self.violated(f"{_named(before)} was suspended, and no eviction of attempt {number} is recorded")

    def _pod(self, pod: Object, sender: str, *, gone: bool) -> None:
        owner, uid = self._topmost(controller_uid(pod) or ""), pod["metadata"]["uid"]
        if GATED_LABEL in (pod["metadata"].get("labels") or {}):
            owner = self._member(pod, sender, gone=gone)
        if not owner or gone or ended(pod) or POD.suspended(pod):
            self._pods[owner].pop(uid, None)
            return
        new = uid not in self._pods[owner]
        self._pods[owner][uid] = gpus_of(pod)
        stored = self._ledger.workloads.get(WorkloadId(owner))
        made = self._before.get(owner)
        if (
            new
            and (stored is None or stored.attempt is None)
            and made is not None
            and (owner, attempt_on(made)) not in self._lost
            and controller_uid(pod) in self._objects.uids  # else it is garbage, which a controller made late
            and self._hears(made["kind"])
        ):
            self.violated(f"pod {pod['metadata']['name']} was made, and its workload holds no quota")

    def _topmost(self, uid: str) -> str:
        while uid in self._above:
            uid = self._above[uid]
        return uid

    def _member(self, pod: Object, sender: str, *, gone: bool) -> str:
        """A pod that queues, by itself or in a group. Returns the id of its workload; empty: it was not
        started."""
        uid, name = pod["metadata"]["uid"], f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
        before = self._before.get(uid)
        self._before[uid] = pod
        if POD.suspended(pod):
            return ""
        id, number = WorkloadId(pod["metadata"]["labels"].get(WORKLOAD_LABEL, "")), attempt_on(pod)
        ours = sender.startswith(REPLICAS)
        if before is None or POD.suspended(before):
            stored = self._ledger.workloads.get(id)
            attempt = stored.attempt if stored is not None else None
            if not ours or number is None:
                self.violated(f"{name} was started by {sender or 'the API server'}, attempt {number}")
            elif (id, number) in self._lost:
                pass
            elif attempt is None or attempt.number != number:
                self.violated(f"{name} runs by attempt {number}, the ledger has {attempt and attempt.number}")
            else:
                lines = self._ledger.holds[id, number]
                held = sum(line.pods * line.amount for line in lines if line.resource == GPU)
                if (used := sum(self._alive(id).values()) + gpus_of(pod)) > held:
                    self.violated(f"{name} was started, with {used} GPUs of its workload, which holds {held}")
        elif (
            ours
            and not ended(pod)
            and (gone or is_deleted(pod) > is_deleted(before))
            and (id, number) not in self._evicted | self._closed
        ):
            self.violated(f"{name} was deleted, and no eviction of attempt {number} is recorded")
        return id

    def _hears(self, name: str) -> bool:
        """Whether the leader has heard of a controller of this kind: else it waits for none."""
        kind = JOB_KINDS[name]
        return self._heard.get(name) == self._ledger.epoch or any(
            kind.speaks(obj) for obj in self._before.values() if obj["kind"] == name
        )

    # --- the ledger

    def committed(self, rows: Sequence[DecisionRow]) -> None:
        found = len(self.replay.findings)
        for row in rows:
            if row.epoch != self._ledger.epoch:
                self.violated(
                    f"decision {row.sequence} has epoch {row.epoch}, after {self._ledger.epoch} began"
                )
            self.replay.apply(_Row(row))
            self.replay.forget(_Row(row))
            self._decided(row, {one.workload for one in rows if one.payload.get("debt")})
        for finding in self.replay.findings[found:]:
            self.violated(f"ledger: {finding}")
        self._within_quota(rows)
        self._limits.committed(rows)

    def lost(self, rows: Sequence[DecisionRow]) -> None:
        """The ledger has lost these decisions: what was done for them is as if others had done it."""
        self.lost_rows += rows
        self.replay = Replay()
        for row in self._ledger.decisions:
            self.replay.apply(_Row(row))
            self.replay.forget(_Row(row))
        self._limits = Limits(self._ledger, self.violated)
        for row in rows:
            uid, attempt = str(row.workload), row.attempt or 0
            self._edited.add(uid)
            if row.verdict == Verdict.ADMITTED:
                self._lost.add((uid, attempt))
            elif row.verdict == Verdict.EVICTED:  # it is admitted still, and may be started again
                self.starts.pop((uid, attempt), None)

    def acknowledged(self, done: Sequence[EffectKey]) -> None:
        """A start is acknowledged when it was made, and a stop when what it stops does not run any more."""
        for workload, number, verb in done:
            obj = self._before.get(workload)
            if obj is None or obj["kind"] not in WORKLOADS.values() or workload in self._edited:
                continue
            if verb is Verb.START and not self.starts[workload, number]:
                self.violated(f"the start of {_named(obj)} by attempt {number} is acknowledged, and not made")
            kind = JOB_KINDS[obj["kind"]]
            runs = not kind.suspended(obj) and finished(kind, obj) is None
            if verb is Verb.STOP and runs and attempt_on(obj) == number:
                self.violated(f"the stop of attempt {number} is acknowledged, and {_named(obj)} runs")

    def _decided(self, row: DecisionRow, adopted: Set[WorkloadId | None]) -> None:
        """`adopted`: what is charged as debt with the same transaction: it runs by another attempt (L30)."""
        if row.workload is None or row.attempt is None:
            return
        key = (str(row.workload), row.attempt)
        if row.verdict == Verdict.EVICTED:
            self._evicted.add(key)
            edited = key[0] in self._edited or self._above.get(key[0]) in self._beside
            # A read found that it was deleted, and a watch that lags shows it as it ran before that.
            edited = edited or (
                key[0] not in self._before and row.ref is not None and row.ref.kind != POD_GROUP.name
            )
            if row.reason is not None and row.reason.code == Code.BYPASS and not edited:
                self.violated(
                    f"{row.ref} was evicted for {Code.BYPASS}, and no other client had started or stopped it"
                )
            if row.reason is not None and row.reason.code == Code.NODE_FAILURES and not self._failed:
                self.violated(f"{row.ref} was evicted for the failure of a node, and no node has failed")
            if row.reason is not None and row.reason.code in (Code.IDLE_DEVICES, Code.IDLE_CANCELLED):
                works = self._metrics.contradict(row.ref.namespace if row.ref else "", row.now)
                if works is not None:
                    self.violated(f"{row.ref} was evicted as idle, and its GPUs {works}")
        elif row.verdict in (Verdict.RELEASED, Verdict.RETIRED):
            self._closed.add(key)
            given_up = str(row.payload.get("detail") or "").startswith("its start was denied")
            if given_up and self.denied and not self._is_recorded(key):
                self._lost.add(key)  # so was the record: a former leader's start may come when none is denied
            held = row.payload.get("forced") is not None or row.workload in adopted
            if (alive := len(self._alive(key[0]))) and not held:
                self.violated(f"quota of {row.ref} was released while {alive} of its pods were alive")

    def _is_recorded(self, key: tuple[str, int]) -> bool:
        """Whether the end of an attempt is on its object, which refuses a start of it from then on."""
        annotations = (self._before.get(key[0]) or {}).get("metadata", {}).get("annotations") or {}
        recorded = recorded_stop(annotations.get(STOPPED_ANNOTATION), WorkloadId(key[0]))
        return recorded is not None and recorded.attempt >= key[1]

    def _alive(self, owner: str) -> dict[str, int]:
        """GPUs of its live pods: those that are being deleted on a node that failed count as gone (M13)."""
        alive = self._pods.get(owner) or {}
        if alive and self._failed:
            pods = (stored.read() for stored in self._objects.collection(PODS).values())
            gone = {
                pod["metadata"]["uid"] for pod in pods if is_deleted(pod) and node_of(pod) in self._failed
            }
            alive = {uid: gpus for uid, gpus in alive.items() if uid not in gone}
        return alive

    def _within_quota(self, rows: Iterable[DecisionRow]) -> None:
        """After an admission, all that is held within the cohort is within what its queues have together."""
        admitted = [row for row in rows if row.verdict == Verdict.ADMITTED and not row.payload.get("debt")]
        if not admitted:
            return
        nominal, cohorts = quotas(self._ledger)
        used: Counter[str] = Counter()
        for stored in self._ledger.workloads.values():
            if stored.attempt is not None:
                queue = stored.attempt.assignment.cluster_queue
                lines = self._ledger.holds[stored.id, stored.attempt.number]
                used[queue] += sum(line.pods * line.amount for line in lines if line.resource == GPU)
        for row in admitted:
            queue = str(row.payload["clusterQueue"])
            cohort = cohorts.get(queue)
            names = {**used, **nominal}
            inside = [name for name in names if name == queue or (cohort and cohorts.get(name) == cohort)]
            most = sum(nominal.get(name, 0) for name in inside)
            # What a queue holds beyond its own quota is debt of a quota that was cut since.
            held = sum(used[name] for name in inside)
            if held > most:
                self.violated(f"decision {row.sequence}: {held} GPUs are held, and {queue} can have {most}")


def quotas(ledger: MemoryStore) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """GPUs of each ClusterQueue, and its cohort, by the configuration that the ledger has in force."""
    nominal: dict[str, int] = {}
    cohorts: dict[str, str] = {}
    for key, (_, spec) in ledger.configs.items():
        if key.kind != "ClusterQueue" or spec is None:
            continue
        content = json.loads(spec)
        if cohort := content.get("cohortName"):
            cohorts[key.name] = cohort
        nominal[key.name] = sum(
            int(resource["nominalQuota"])
            for group in content.get("resourceGroups", ())
            for one in group["flavors"]
            for resource in one["resources"]
            if resource["name"] == GPU
        )
    return nominal, cohorts


def phases(ledger: MemoryStore, objects: ObjectStore, of: tuple[str, str] | None = None) -> Iterable[str]:
    """The phase of the life of each workload, or of one by its namespace and name: what a fault may meet."""
    for stored in ledger.workloads.values():
        if of is not None and of != (stored.ref.namespace, stored.ref.name):
            continue
        yield _phase(stored, objects)


def _phase(stored: StoredWorkload, objects: ObjectStore) -> str:
    attempt, ref = stored.attempt, stored.ref
    pods = members(objects, ref.namespace, ref.name) if ref.kind == POD_GROUP.name else []
    place = objects.uids.get(str(stored.id))
    obj = objects.collection(place[0])[place[1]].read() if place else None
    if not pods and (obj is None or ref.kind == POD_GROUP.name):
        return "gone"
    if attempt is None:
        return "pending"
    if attempt.state is AttemptState.EVICTING:
        return "evicting"
    if pods:
        return _phase_of_group(pods)
    assert obj is not None
    if ref.kind == POD.name:
        return _phase_of_group([obj])
    if JOB_KINDS[ref.kind].suspended(obj):
        return "admitted"
    return "running" if _runs(obj.get("status") or {}) else "started"


def _runs(status: Object) -> bool:
    if status.get("active") or status.get("replicaStatuses"):
        return True
    if any(one["active"] for one in (status.get("replicatedJobsStatus") or status.get("jobsStatus") or ())):
        return True
    service = (status.get("activeServiceStatus") or {}).get("rayClusterStatus") or {}
    return status.get("jobDeploymentStatus") == "Running" or service.get("state") == "ready"


def members(objects: ObjectStore, namespace: str, group: str) -> list[Object]:
    """The pods of a group."""
    pods = (stored.read() for key, stored in objects.collection(PODS).items() if key[0] == namespace)
    return [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(GROUP_LABEL) == group]


def _phase_of_group(pods: Sequence[Object]) -> str:
    """Of one with an open attempt."""
    started = [pod for pod in pods if not POD.suspended(pod)]
    if not started:
        return "admitted"
    return "running" if any(pod["status"].get("phase") == "Running" for pod in started) else "started"


def single_pods(objects: ObjectStore) -> Iterator[Stored]:
    """Pods that queue by themselves."""
    for stored in objects.collection(PODS).values():
        labels = stored.read()["metadata"].get("labels") or {}
        if GATED_LABEL in labels and GROUP_LABEL not in labels:
            yield stored


def is_deleted(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _marks(kind: Any, obj: Object) -> object:
    annotations: Mapping[str, str] = obj["metadata"].get("annotations") or {}
    reserved = {key: text for key, text in annotations.items() if key.startswith("queuectl.dev/reserved-")}
    return kind.suspended(obj), reserved


def _pods(job: Object) -> int:
    """How many pods a Job has at once: no more than its completions that are left."""
    spec, status = job["spec"], job.get("status") or {}
    left = spec.get("completions", spec["parallelism"]) - (status.get("succeeded") or 0)
    return int(min(spec["parallelism"], left))


def _queue(obj: Object) -> str | None:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels.get(QUEUE_LABEL)


def _named(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"
