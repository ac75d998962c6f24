"""A Slurm site as values: partitions, pools of equal nodes, the tree of accounts, QOS.

Everything that a value must be is checked here; errors name file, line and value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from queuectl.importers import slurm_values as values
from queuectl.importers.slurm_notes import Notes
from queuectl.importers.slurm_text import BadSlurm, Record, SlurmKind, problem
from queuectl.importers.slurm_values import CPU, MEMORY, BadValue

ROOT: Final = "root"
_QUOTA: Final = frozenset(("cpu", "mem", "billing", "node", "gres/gpu"))
"""TRES that become quota, or that Slurm computes from those."""
_HIGHEST: Final = 2**31 - 1
_ABSENT_STATES: Final = ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING")

_TIERS: Final = "partitions have no order here: make a WorkloadPriorityClass for each, in the order of tiers"
_PREEMPTED: Final = (
    "jobs of a partition with a higher PriorityTier do not preempt its jobs here: make a "
    "WorkloadPriorityClass for each partition, and set spec.preemption of the ClusterQueues "
    "(withinClusterQueue, reclaimWithinCohort and borrowWithinCohort.policy: LowerPriority)"
)
_NOT_PREEMPTED: Final = "no partition with a higher PriorityTier is on its nodes: nothing preempts its jobs"

T = TypeVar("T")


@dataclass(slots=True)
class Partition:
    record: Record
    tier: int
    """PriorityTier: workloads of a higher one come first on shared nodes."""
    allowed: tuple[str, ...] | None
    """Accounts, each with those below it; None: all."""
    denied: tuple[str, ...]
    default: bool
    preempted: bool
    """Whether its jobs are preempted for those of partitions with a higher tier."""

    @property
    def name(self) -> str:
        return self.record.name


@dataclass(slots=True, eq=False)
class SlurmAccount:
    name: str
    record: Record | None
    """None: the root."""
    parent: SlurmAccount | None = None
    children: list[SlurmAccount] = field(default_factory=list)
    users: dict[str, Record] = field(default_factory=dict)
    share: int | None = None
    limits: dict[str, int] = field(default_factory=dict)
    """Of GrpTRES, by the names of Slurm; memory in MiB."""

    @property
    def path(self) -> Iterator[SlurmAccount]:
        """Itself and the accounts above it."""
        at: SlurmAccount | None = self
        while at is not None:
            yield at
            at = at.parent

    @property
    def queued(self) -> bool:
        """Whether it becomes a ClusterQueue."""
        return self.parent is not None and (bool(self.users) or not self.children)


@dataclass(slots=True)
class Pool:
    """Nodes with GPUs of one type that the same accounts may use. It becomes a flavor."""

    gpu: str
    """Types of GPU, such as `a100`; empty: none."""
    partitions: frozenset[str]
    owner: SlurmAccount
    """The account that all which may use its highest partitions are in: its nodes are theirs."""
    users: frozenset[str]
    """Accounts with a queue that may use it."""
    lent: bool
    """Whether jobs of lower partitions are preempted on it."""
    amounts: Counter[str] = field(default_factory=Counter)
    """By resource; memory in MiB."""
    types: Counter[str] = field(default_factory=Counter)
    """GPUs by type."""
    nodes: list[str] = field(default_factory=list)
    weight: int = _HIGHEST
    """The least Weight of its nodes."""

    @property
    def shared(self) -> bool:
        """Whether it belongs to no account."""
        return self.owner.parent is None

    def has_others(self, limit: str, resources: Iterable[str]) -> bool:
        """Whether GPUs of another type than the limit names, as `gres/gpu:a100`, are one of its resources."""
        names = {f"gres/gpu:{one}" for one in self.types} - {limit} if ":" in limit else ()
        others = {resource for name in names for resource in values.limited(name, self.types)}
        return not others.isdisjoint(resources)


class SlurmSite:
    """Raises BadSlurm with all errors."""

    def __init__(self, records: list[Record], notes: Notes) -> None:
        self.notes = notes
        self._problems: list[str] = []
        self._records = records
        self.cluster = self._cluster()
        self.partitions = self._partitions()
        self.accounts = self._accounts()
        self.queues = [account for account in self.accounts.values() if account.queued]
        self.pools = self._pools()
        self.qos = self._qos()
        if self._problems:
            raise BadSlurm(self._problems)

    def _of(self, kind: SlurmKind) -> Iterator[Record]:
        return (record for record in self._records if record.kind is kind)

    def _once(self, kind: SlurmKind) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for record in self._of(kind):
            if not record.name:
                self._problems.append(problem(record.file, record.line, "", f"a {kind} without a name"))
            elif (first := found.setdefault(record.name, record)) is not record:
                what = f"{kind} {record.name} is in {first.file}: line {first.line} already"
                self._problems.append(problem(record.file, record.line, record.name, what))
        return found

    def _read(self, record: Record, name: str, convert: Callable[[str], T], default: T) -> T:
        text = record.value(name)
        if values.unset(text):
            return default
        try:
            return convert(text)
        except BadValue as bad:
            self._problems.append(record.problem(name, str(bad)))
            return default

    # --- partitions and nodes

    def _cluster(self) -> str:
        given = list(self._once(SlurmKind.CLUSTER).values())
        for record in given[1:]:
            what = f"Cluster {record.name}: one cluster is imported at a time"
            self._problems.append(problem(record.file, record.line, record.name, what))
        return given[0].name if given else "slurm"

    def _partitions(self) -> dict[str, Partition]:
        return {name: self._partition(record) for name, record in self._once(SlurmKind.PARTITION).items()}

    def _partition(self, record: Record) -> Partition:
        allowed = _list(record.value("AllowAccounts"))
        return Partition(
            record,
            tier=self._read(record, "PriorityTier", values.whole, 1),
            allowed=None if allowed in ((), ("ALL",)) else allowed,
            denied=_list(record.value("DenyAccounts")),
            default=record.value("Default") == "YES",
            preempted=_preempted(record.value("PreemptMode")),
        )

    def _pools(self) -> list[Pool]:
        found: dict[tuple[object, ...], Pool] = {}
        used: Counter[str] = Counter()
        for record in self._once(SlurmKind.NODE).values():
            given = _list(record.value("Partitions"))
            inside = frozenset(name for name in given if name in self.partitions)
            if not inside:
                self.notes.add(record, "Partitions", "the node is in none of these partitions: left out")
                continue
            if others := [name for name in given if name not in inside]:
                text = f"{', '.join(others)}: no such partition is in the input"
                self.notes.add(record, "Partitions", text)
            used.update(inside)
            self._add(record, inside, found)
        for name, partition in self.partitions.items():
            total = self._read(partition.record, "TotalNodes", values.whole, used[name])
            if name not in used:
                self.notes.add(partition.record, "", "no node is in the partition: left out")
            elif total != used[name]:
                self.notes.add(partition.record, "TotalNodes", f"nodes in the input: {used[name]}")
            self._unknown(partition)
            self._order(partition, found.values())
            self._shared(partition, found.values())
        return list(found.values())

    def _unknown(self, partition: Partition) -> None:
        for setting, names in (
            ("AllowAccounts", partition.allowed or ()),
            ("DenyAccounts", partition.denied),
        ):
            if unknown := [name for name in names if name not in self.accounts]:
                text = f"{', '.join(unknown)}: no such account is in the input"
                self.notes.add(partition.record, setting, text)

    def _shared(self, partition: Partition, pools: Iterable[Pool]) -> None:
        """Notes on accounts that a partition excludes and that may use its nodes by another one."""
        field = "AllowAccounts" if partition.allowed is not None else "DenyAccounts"
        others = {
            one.name
            for pool in pools
            if partition.name in pool.partitions
            for one in self.queues
            if one.name in pool.users and not _admits(partition, one)
        }
        if others:
            text = f"{', '.join(sorted(others))} may use its nodes, by another partition of the same nodes"
            self.notes.add(partition.record, field, text)

    def _order(self, partition: Partition, pools: Iterable[Pool]) -> None:
        """Notes on tiers and preemption among partitions that the pools do not express."""
        mine = [pool for pool in pools if partition.name in pool.partitions]
        tiers = {self.partitions[name].tier for pool in mine for name in pool.partitions}
        owned = bool(mine) and all(self._lends(pool) for pool in mine)
        given = not values.unset(partition.record.value("PriorityTier"))
        if given and not owned and (len(tiers) > 1 or partition.tier != 1):
            self.notes.add(partition.record, "PriorityTier", _TIERS)
        if not partition.preempted:
            return
        lower = any(tier > partition.tier for tier in tiers)
        if not (owned and lower):
            self.notes.add(partition.record, "PreemptMode", _PREEMPTED if lower else _NOT_PREEMPTED)
        elif "REQUEUE" not in partition.record.value("PreemptMode").upper():
            self.notes.add(partition.record, "PreemptMode", "victims are suspended and pending again")

    def _lends(self, pool: Pool) -> bool:
        """Whether the pool is one account's, and others may use it by partitions of a lower tier."""
        others = (one for one in self.queues if one.name in pool.users and pool.owner not in one.path)
        return not pool.shared and any(others)

    def _add(self, record: Record, inside: frozenset[str], found: dict[tuple[object, ...], Pool]) -> None:
        amounts, types = self._node(record)
        gpu = "-".join(sorted(name or "gpu" for name in types))
        highest, lower = self._tiers(inside)
        users = frozenset(one.name for one in self.queues if any(_admits(p, one) for p in highest + lower))
        owner = _common(one for one in self.queues if any(_admits(p, one) for p in highest))
        lent = any(one.preempted for one in lower)
        key = (gpu, users, id(owner), lent)
        if key not in found:
            found[key] = Pool(gpu, frozenset(), owner or self.accounts[ROOT], users, lent)
        pool = found[key]
        pool.partitions |= inside
        weight = self._read(record, "Weight", values.whole, 1)
        if pool.nodes and weight != pool.weight:
            field = "" if values.unset(record.value("Weight")) else "Weight"
            self.notes.add(record, field, "nodes of one flavor have no order: the least Weight counts")
        pool.nodes.append(record.name)
        pool.weight = min(pool.weight, weight)
        pool.amounts.update(amounts)
        pool.types.update(types)

    def _tiers(self, names: frozenset[str]) -> tuple[list[Partition], list[Partition]]:
        """The partitions of the highest tier, and the others."""
        used = [self.partitions[name] for name in sorted(names)]
        tier = max(one.tier for one in used)
        return [one for one in used if one.tier == tier], [one for one in used if one.tier < tier]

    def _node(self, record: Record) -> tuple[dict[str, int], dict[str, int]]:
        """Amounts by resource, and GPUs by type."""
        nothing: dict[str, int] = {}
        configured = self._read(record, "CfgTRES", values.quota, nothing)
        types = self._gpus(record, configured)
        amounts = {
            CPU: configured.get("cpu") or self._read(record, "CPUTot", values.whole, 0),
            MEMORY: configured.get("mem") or self._read(record, "RealMemory", _memory, 0),
        }
        for name, amount in types.items():
            resource = values.resource_of(name)
            amounts[resource] = amounts.get(resource, 0) + amount
            if resource.startswith(values.MIG):
                text = f"MIG devices are counted as {resource}: the device plugin needs the strategy mixed"
                self.notes.add(record, "Gres" if record.value("Gres") else "CfgTRES", text, left_out=False)
        state = record.value("State")
        if any(word in state for word in _ABSENT_STATES):
            self.notes.add(record, "State", "quota is not compared with nodes: it includes this one")
        others = {name for name in configured if name.partition(":")[0] not in _QUOTA}
        if others:
            text = f"{', '.join(sorted(others))}: only cpu, memory and GPUs become quota"
            self.notes.add(record, "CfgTRES", text)
        gres = values.gres(record.value("Gres")).keys()
        if more := gres - {"gpu"} - {name.removeprefix("gres/") for name in others}:
            self.notes.add(record, "Gres", f"{', '.join(sorted(more))}: only GPUs become quota")
        return amounts, types

    def _gpus(self, record: Record, configured: dict[str, int]) -> dict[str, int]:
        """GPUs by type: those of CfgTRES, with the types of Gres where CfgTRES has none."""
        nothing: dict[str, int] = {}
        types, gres = values.gpu_types(configured), self._read(record, "Gres", values.gres_gpus, nothing)
        same_number = sum(types.values()) == sum(gres.values())
        if not types or (same_number and types.keys() == {""}):
            return gres or types
        if gres and gres != types and not (same_number and gres.keys() == {""}):
            self.notes.add(record, "Gres", "CfgTRES has other GPUs, and counts")
        return types

    # --- accounts

    def _accounts(self) -> dict[str, SlurmAccount]:
        found = {ROOT: SlurmAccount(ROOT, None)}
        for name, record in self._once(SlurmKind.ACCOUNT).items():
            if name == ROOT:
                continue
            found[name] = SlurmAccount(
                name,
                record,
                share=self._share(record),
                limits=self._read(record, "GrpTRES", values.quota, {}),
            )
        for account in list(found.values()):
            if account.record is None:
                continue
            above = found.get(account.record.parent)
            if above is None or account in above.path:
                what = f"Account {account.name}: its parent is not an account, or is below it"
                self._problems.append(
                    problem(account.record.file, account.record.line, account.record.parent, what)
                )
                continue
            account.parent = above
            above.children.append(account)
        for record in self._of(SlurmKind.USER):
            self._user(record, found)
        for record in self._of(SlurmKind.DESCRIPTION):
            described = found[record.name].record if record.name in found else None
            if described is not None:
                described.fields.update({**record.fields, **described.fields})
            elif record.name != ROOT:
                self.notes.add(record, "", "no association of the account is in the input: left out")
        return found

    def _user(self, record: Record, accounts: dict[str, SlurmAccount]) -> None:
        account = accounts.get(record.parent)
        if account is None:
            what = f"User {record.name}: there is no account of this name"
            self._problems.append(problem(record.file, record.line, record.parent, what))
        elif account.record is None:
            if record.name != ROOT:
                self.notes.add(record, "", "the user has no account but root: left out")
        else:
            self._share(record)
            # One for each partition of an association: the first counts.
            first = account.users.setdefault(record.name, record)
            if first is not record:
                text = f"one LocalQueue for all partitions: the association in line {first.line} counts"
                self.notes.add(record, "", text)

    def _share(self, record: Record) -> int | None:
        """None: that of the account above, or not given."""
        if record.value("Fairshare") in values.PARENT:
            if record.kind is SlurmKind.ACCOUNT:
                self.notes.add(record, "Fairshare", "a queue has a weight of its own: it is 1")
            return None
        return self._read(record, "Fairshare", values.share, None)

    def _qos(self) -> dict[str, tuple[Record, int]]:
        """With their priorities."""
        return {
            name: (record, self._read(record, "Priority", values.whole, 0))
            for name, record in self._once(SlurmKind.QOS).items()
        }


def _memory(text: str) -> int:
    return values.quota_memory(values.mebibytes(text))


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if not values.unset(part))


def _preempted(mode: str) -> bool:
    return not values.unset(mode) and not set(mode.upper().split(",")) & {"OFF"}


def _admits(partition: Partition, account: SlurmAccount) -> bool:
    """A list of accounts includes those below them."""
    names = {one.name for one in account.path}
    if names & set(partition.denied):
        return False
    return partition.allowed is None or bool(names & set(partition.allowed))


def _common(accounts: Iterable[SlurmAccount]) -> SlurmAccount | None:
    """The lowest account that all are in."""
    paths = [list(account.path)[::-1] for account in accounts]
    if not paths:
        return None
    found = None
    for level in zip(*paths, strict=False):
        if any(one is not level[0] for one in level):
            break
        found = level[0]
    return found
