"""A read-only ledger of constructed values."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from queuectl.core.model.capacity import NO_FLAVOR, ClusterQueueDemand, FlavorCapacity, NodeFacts
from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    ConfigKey,
    ForReaders,
    LedgerSnapshot,
    ObjectRef,
    PendingLine,
    Phase,
    PodSet,
    PodSetAssignment,
    PodsReady,
    StoredWorkload,
    WorkloadId,
)
from queuectl.ports.ledger import LedgerUnavailable, NotStored
from queuectl.ports.periods import Piece
from queuectl.ports.reader import (
    Calibration,
    CapacitySum,
    DecisionRow,
    EffectRow,
    EvictionTimes,
    Held,
    PastHolds,
    PreemptionRow,
    Reading,
    Revision,
    StartForecast,
    StartsSpan,
    StoryRows,
    UsageOfTime,
    UsageSumOf,
    WorkloadStarts,
)
from tests.doubles import readers as answers
from tests.unit.api.canned_budgets import CannedBudgets
from tests.unit.api.canned_use import CannedDeviceUse
from tests.unit.api.charges import CannedStatements

EPOCH_START = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def queue_spec(nominal: int, *, flavor: str = "a100", cohort: str | None = None, **more: object) -> str:
    spec: dict[str, object] = {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": [GPU],
                "flavors": [{"name": flavor, "resources": [{"name": GPU, "nominalQuota": str(nominal)}]}],
            }
        ],
        **more,
    }
    if cohort:
        spec["cohortName"] = cohort
    return json.dumps(spec)


def local_spec(cluster_queue: str, **more: object) -> str:
    return json.dumps({"clusterQueue": cluster_queue, **more})


WAITS = Reason(
    code=Code.WAITING_FOR_QUOTA,
    flavor="a100",
    resource=GPU,
    requested=6,
    available=2,
    short_by=4,
    limit=Limit.NOMINAL_QUOTA,
    node="ClusterQueue/team-a",
)


def workload(
    name: str,
    arrival: int,
    *,
    namespace: str = "default",
    kind: str = "Job",
    queue: str = "main",
    cluster_queue: str | None = "team-a",
    priority: int = 0,
    phase: Phase = Phase.PENDING,
    gpus: int | None = None,
    reason: Reason | None = None,
) -> StoredWorkload:
    """A workload; with `gpus` it holds that many of flavor a100."""
    uid = f"uid-{arrival}"
    attempt = None
    if gpus is not None and cluster_queue is not None:
        pods = PodSetAssignment(name="main", count=gpus, requests=((GPU, 1),), flavors=((GPU, "a100"),))
        attempt = Attempt(
            workload=WorkloadId(uid),
            number=1,
            state=AttemptState.EVICTING if phase is Phase.EVICTING else AttemptState.ADMITTED,
            assignment=Assignment(cluster_queue=cluster_queue, pod_sets=(pods,)),
            admitted_at=EPOCH_START + timedelta(minutes=arrival),
            sequence=arrival,
        )
    return StoredWorkload(
        id=WorkloadId(uid),
        ref=ObjectRef(namespace, kind, name, uid),
        queue=queue,
        cluster_queue=cluster_queue,
        priority=priority,
        created_at=EPOCH_START + timedelta(seconds=arrival),
        arrival=arrival,
        phase=phase,
        attempts=1 if attempt else 0,
        attempt=attempt,
        reason=reason,
        pod_sets=(PodSet(name="main", count=gpus or 1, min_count=1, requests=((GPU, 1),)),),
        submitter="alice",
    )


def decision(sequence: int, of: StoredWorkload, verdict: str, reason: Reason | None = None) -> DecisionRow:
    return DecisionRow(
        sequence=sequence,
        cycle=1,
        now=EPOCH_START + timedelta(seconds=sequence),
        epoch=1,
        verdict=verdict,
        workload=of.id,
        ref=of.ref,
        attempt=None,
        reason=reason,
        payload={"queue": of.queue},
    )


class CannedReadings:
    """Implements Readings. `commit` advances it; while `down` is set every read raises it."""

    def __init__(self) -> None:
        self.sequence = 0
        self.epoch = 1
        self.down: Exception | None = None
        self.silence = timedelta()
        """Since a controller last committed."""
        self.reads: list[int] = []
        self.rows: list[DecisionRow] = []
        self.effects: list[EffectRow] = []
        self.held: list[Held] = []
        self.booked: list[UsageSumOf] = []
        self.links: dict[str, str] = {}
        """Of the configuration: templates of URLs by title."""
        self.had: list[CapacitySum] = []
        self.had_since = datetime.min.replace(tzinfo=UTC)
        self.statements = CannedStatements(self)
        self.device_use = CannedDeviceUse()
        self.budgets = CannedBudgets()
        self.evicted: dict[WorkloadId, EvictionTimes] = {}
        self._workloads: dict[WorkloadId, tuple[int, StoredWorkload]] = {}
        self._configs: dict[ConfigKey, tuple[int, str | None]] = {}
        self.batch = 0
        self._pods_ready: dict[WorkloadId, tuple[int, PodsReady]] = {}
        self._lines: dict[str, tuple[int, PendingLine]] = {}
        self._capacities: dict[str, tuple[int, FlavorCapacity]] = {}
        self._demands: dict[str, tuple[int, ClusterQueueDemand]] = {}
        self._nodes: dict[str, tuple[int, NodeFacts]] = {}
        self.pasts: dict[datetime, LedgerSnapshot] = {}
        """Earlier states, by the time of their last decision."""
        self.looks: list[datetime] = []
        """Times of which the state was read."""

    def stored(self, name: str) -> StoredWorkload:
        """The workload of that name."""
        return next(one for _, one in self._workloads.values() if one.ref.name == name)

    def spec(self, kind: str, name: str) -> str:
        """Of the cluster-scoped policy object of that kind and name."""
        spec = self._configs[ConfigKey(kind, "", name)][1]
        assert spec is not None
        return spec

    def keep(self, when: datetime) -> None:
        """The state is as it is now from that time on."""
        over = (Phase.FINISHED, Phase.DELETED)
        self.pasts[when] = LedgerSnapshot(
            sequence=self.sequence,
            now=when,
            workloads=tuple(one for _, one in self._workloads.values() if one.phase not in over),
            configs=tuple((key, spec) for key, (_, spec) in self._configs.items() if spec is not None),
            capacities=tuple(one for _, one in self._capacities.values()),
        )

    async def at(self, when: datetime | None) -> LedgerSnapshot:
        self._answer()
        when = when or max(self.pasts)
        self.looks.append(when)
        known = [time for time in self.pasts if time <= when]
        if not known:
            raise NotStored(when, min(self.pasts, default=when))
        return self.pasts[max(known)]

    async def first_capacity(self) -> datetime | None:
        self._answer()
        known = (when for when, one in self.pasts.items() if NO_FLAVOR in {c.flavor for c in one.capacities})
        return min(known, default=None)

    async def usage_zone(self) -> str:
        self._answer()
        return "Asia/Kathmandu"

    async def usage(self, *, since: datetime, until: datetime) -> UsageOfTime:
        """`booked` and `had`, whatever is asked for."""
        self._answer()
        self.looks.append(since)
        return UsageOfTime(since, until, self.booked, self.had)

    async def capacity_trend(self, *, flavor: str, steps: Sequence[Piece]) -> list[tuple[Piece, CapacitySum]]:
        """`had` of that flavor, in each step but the first; in the second from `had_since` on."""
        self._answer()
        self.looks += [steps[0].begins, steps[-1].ends]
        return [
            (Piece(max(step.begins, self.had_since), step.ends), one)
            for step in steps[1:]
            for one in self.had
            if one.flavor == flavor
        ]

    async def decayed_usage(self, *, until: datetime, half_life: int) -> UsageOfTime:
        self._answer()
        return UsageOfTime(until, until, self.booked, [])

    def commit(self, *workloads: StoredWorkload, configs: dict[ConfigKey, str | None] | None = None) -> None:
        number = self.sequence + 1
        self._workloads = {**self._workloads, **{one.id: (number, one) for one in workloads}}
        self._configs = {**self._configs, **{key: (number, spec) for key, spec in (configs or {}).items()}}
        self.sequence = number  # last: a server in another thread may read meanwhile

    def ready(self, one: PodsReady) -> None:
        """A batch without decisions."""
        self.batch += 1
        self._pods_ready[one.workload] = (self.batch, one)

    def line(self, one: PendingLine) -> None:
        """The same."""
        self.batch += 1
        self._lines[one.cluster_queue] = (self.batch, one)

    def capacity(self, one: FlavorCapacity) -> None:
        """The same."""
        self.batch += 1
        self._capacities[one.flavor] = (self.batch, one)

    def demand(self, one: ClusterQueueDemand) -> None:
        """The same."""
        self.batch += 1
        self._demands[one.cluster_queue] = (self.batch, one)

    def node(self, one: NodeFacts) -> None:
        """The same."""
        self.batch += 1
        self._nodes[one.name] = (self.batch, one)

    def end(self, one: StoredWorkload, phase: Phase = Phase.FINISHED) -> None:
        self.commit(replace(one, phase=phase, attempt=None, reason=None))

    def _answer(self) -> None:
        if self.down is not None:
            raise self.down

    async def since(self, sequence: int, batch: int = 0) -> Reading:
        self._answer()
        self.reads.append(sequence)
        return Reading(
            sequence=self.sequence,
            committed_at=EPOCH_START,
            read_at=EPOCH_START + self.silence,
            epoch=self.epoch,
            workloads=tuple(
                one
                for at, one in self._workloads.values()
                if at > sequence and (sequence or one.phase not in (Phase.FINISHED, Phase.DELETED))
            ),
            configs=tuple(
                (key, spec)
                for key, (at, spec) in self._configs.items()
                if at > sequence and (sequence or spec is not None)
            ),
            batch=self.batch,
            for_readers=ForReaders(
                tuple(one for at, one in self._pods_ready.values() if at > batch),
                tuple(one for at, one in self._lines.values() if at > batch),
                tuple(one for at, one in self._capacities.values() if at > batch),
                tuple(one for at, one in self._demands.values() if at > batch),
                tuple(one for at, one in self._nodes.values() if at > batch),
            ),
        )

    async def find(
        self, namespace: str, kind: str, name: str, *, ended_by: int | None = None
    ) -> StoredWorkload | None:
        self._answer()
        found = [
            one
            for at, one in self._workloads.values()
            if one.ref[:3] == (namespace, kind, name)
            and (ended_by is None or (one.phase in (Phase.FINISHED, Phase.DELETED) and at <= ended_by))
        ]
        return max(found, key=lambda one: one.arrival, default=None)

    async def finished(
        self, *, before: int | None, since: datetime | None, limit: int
    ) -> list[tuple[int, StoredWorkload]]:
        """Each ends at the time of its sequence: seconds after EPOCH_START."""
        self._answer()
        over = [
            (at, one)
            for at, one in self._workloads.values()
            if one.phase in (Phase.FINISHED, Phase.DELETED)
            and (before is None or at < before)
            and (since is None or EPOCH_START + timedelta(seconds=at) >= since)
        ]
        return sorted(over, key=lambda item: -item[0])[:limit]

    async def history(self, workload: WorkloadId, *, after: int, limit: int) -> list[DecisionRow]:
        self._answer()
        return [row for row in self.rows if row.workload == workload and row.sequence > after][:limit]

    async def lives(
        self, workloads: Collection[WorkloadId], *, until: int
    ) -> dict[WorkloadId, list[DecisionRow]]:
        self._answer()
        return answers.lives(self.rows, workloads, until)

    async def held_by_attempts(
        self, workloads: Collection[WorkloadId], *, until: int
    ) -> dict[int, dict[str, int]]:
        self._answer()
        return answers.held_by_attempts(self.rows, workloads, until)

    async def story(self, workload: WorkloadId, *, until: int, limit: int) -> StoryRows:
        self._answer()
        rows = [row for row in self.rows if row.workload == workload and row.sequence <= until][-limit:]
        requested = {row.sequence for row in rows}
        return StoryRows(rows, [one for one in self.effects if one.sequence in requested])

    async def decisions(self, *, after: int, limit: int) -> list[DecisionRow]:
        self._answer()
        return [row for row in self.rows if row.sequence > after][:limit]

    async def last_of(self, epoch: int) -> int:
        self._answer()
        return max((row.sequence for row in self.rows if row.epoch <= epoch), default=0)

    async def starts(self, spans: Sequence[StartsSpan]) -> list[WorkloadStarts]:
        self._answer()
        return [answers.starts(self.rows, span) for span in spans]

    async def preemptions(
        self, *, before: int | None, since: datetime | None, until: datetime | None, limit: int
    ) -> list[PreemptionRow]:
        self._answer()
        return answers.preemptions(self.rows, before, since, until, limit)

    async def eviction_times(self, sequence: int, since: datetime) -> dict[WorkloadId, EvictionTimes]:
        self._answer()
        return self.evicted

    async def past_holds(self, *, since: datetime, until: datetime) -> PastHolds:
        """The policy was never changed; `held` is what was held."""
        self._answer()
        begin = EPOCH_START - timedelta(days=30)
        revisions = [
            Revision(key, spec, begin, None)
            for key, (_, spec) in self._configs.items()
            if spec is not None and key.kind in ("ClusterQueue", "Cohort")
        ]
        return PastHolds(self.held, revisions, begin)

    # --- ports.reader.Forecasts

    async def start_of(self, workload: WorkloadId, now: datetime) -> StartForecast:
        """The same for all workloads that are pending."""
        assert self._workloads[workload][1].phase is Phase.PENDING
        checked = Calibration(45, 37, EPOCH_START - timedelta(days=14), EPOCH_START - timedelta(hours=6))
        return StartForecast(EPOCH_START, self.sequence, None, 2463, 7512, None, 22_960, 19, checked)

    async def queues_of(self, workloads: Collection[WorkloadId], *, until: int) -> dict[WorkloadId, str]:
        self._answer()
        return {id: self._workloads[id][1].queue for id in workloads if id in self._workloads}


AWAY = LedgerUnavailable("connection refused")


def two_teams() -> CannedReadings:
    """team-a: 8 GPUs, 6 in use, two pending workloads. team-b: its flavor is missing."""
    readings = CannedReadings()
    readings.commit(
        configs={
            ConfigKey("ResourceFlavor", "", "a100"): json.dumps({}),
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(8, cohort="all"),
            ConfigKey("ClusterQueue", "", "team-b"): queue_spec(8, flavor="h100"),
            ConfigKey("LocalQueue", "default", "main"): local_spec("team-a"),
            ConfigKey("LocalQueue", "other", "main"): local_spec("team-b"),
        }
    )
    readings.commit(
        small := workload("small", 1, gpus=2, phase=Phase.ADMITTED),
        workload("large", 2, gpus=4, phase=Phase.EVICTING),
        workload("waits", 3, reason=WAITS),
        workload("urgent", 4, priority=10, reason=WAITS),
        workload(
            "stuck",
            5,
            namespace="other",
            cluster_queue="team-b",
            kind="PyTorchJob",
            reason=Reason(code=Code.MISCONFIGURED, node="ClusterQueue/team-b", detail="FlavorNotFound"),
        ),
    )
    readings.ready(PodsReady(small.id, 1, 1, "train-1"))
    return readings
