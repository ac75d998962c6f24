"""Conversion of a Slurm site to policy objects.

Nodes of one GPU type that are in the same partitions become a ResourceFlavor, accounts become Cohorts and
ClusterQueues, users LocalQueues in the namespace of their account, QOS WorkloadPriorityClasses. Nodes whose
partitions of the highest tier only one account may use are quota of that account; all other quota belongs to
the root Cohort and is shared by weight.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from queuectl.importers.result import Imported, policy_object
from queuectl.importers.slurm_limits import SlurmLimits
from queuectl.importers.slurm_notes import Notes
from queuectl.importers.slurm_site import ROOT, Pool, SlurmAccount, SlurmSite
from queuectl.importers.slurm_text import BadSlurm, Record
from queuectl.importers.slurm_values import (
    AMD,
    CPU,
    MEMORY,
    MOST_SHARES,
    NVIDIA,
    PARENT,
    SlurmNames,
    hosts,
    limited,
    quantity,
    unset,
)
from queuectl.kinds.policy_schema import MAX_FLAVORS, MAX_TEXT

Json = dict[str, Any]

POOL_LABEL: Final = "queuectl.dev/pool"
"""Label of the nodes of a flavor."""
NODES_ANNOTATION: Final = "queuectl.dev/slurm-nodes"
_NAMESPACE: Final = "kubernetes.io/metadata.name"
_ORDER: Final = (CPU, MEMORY, NVIDIA, AMD)


def import_slurm(records: list[Record]) -> Imported:
    """Raises BadSlurm with all errors."""
    notes = Notes()
    site = SlurmSite(records, notes)
    if not site.partitions:
        raise BadSlurm(["there is no partition: add the output of `scontrol show partition`"])
    if not site.pools:
        raise BadSlurm(["there is no node in a partition: add the output of `scontrol show node`"])
    objects = _Objects(site, notes, records)
    made = [*objects.flavors(), *objects.priorities(), *objects.cohorts(), *objects.queues()]
    made += objects.limits
    notes.settings(records)
    return Imported(tuple(made), notes.all())


class _Objects:
    def __init__(self, site: SlurmSite, notes: Notes, records: list[Record]) -> None:
        self._site = site
        self._notes = notes
        self._pools = sorted(site.pools, key=self._first)
        names = SlurmNames()
        self._flavor = {id(pool): names.of(self._pool_name(pool)) for pool in self._pools}
        if len(self._pools) > MAX_FLAVORS:
            raise BadSlurm([f"{len(self._pools)} pools of equal nodes, at most {MAX_FLAVORS} can be flavors"])
        present = {resource for pool in self._pools for resource in pool.amounts}
        self._resources = sorted(present, key=lambda resource: (_rank(resource), resource))
        self._reached = {
            id(pool): {above for one in site.queues if one.name in pool.users for above in one.path}
            for pool in self._pools
        }
        """By pool, the accounts that may use it, and those above them."""
        namespaces = SlurmNames()
        self._named = {
            name: self._renamed(account.record, namespaces)
            for name, account in site.accounts.items()
            if account.record is not None
        }
        self._root = namespaces.of(site.cluster)  # an account may have the same name
        self._weighted = any(
            account.share is not None or any(_share(user) is not None for user in account.users.values())
            for account in site.accounts.values()
        )
        self._preempts = self._preempting_qos()
        self._limited = SlurmLimits(site, notes, records, self._flavor)
        self.limits: list[Json] = []
        """UsageLimits and Budgets of the objects that were made."""

    def _renamed(self, record: Record, names: SlurmNames) -> str:
        made = names.of(record.name)
        if made == re.sub("[^a-z0-9]", "-", record.name.lower()) != record.name:
            text = "other characters than a-z and 0-9 in its name are dashes here"
            self._notes.add(record, "", text, left_out=False)
        elif made != record.name:
            self._notes.add(record, "", f"is called {made} here", left_out=False)
        return made

    # --- flavors

    def _first(self, pool: Pool) -> tuple[bool, int, int, str]:
        """The order in which flavors are tried: the default partition first, then by Weight of the nodes."""
        partitions = list(self._site.partitions.values())
        places = [n for n, one in enumerate(partitions) if one.name in pool.partitions]
        default = any(partitions[place].default for place in places)
        return not default, pool.weight, places[0], pool.nodes[0]

    def _pool_name(self, pool: Pool) -> str:
        base = pool.gpu or "cpu"
        alike = [one for one in self._pools if one.gpu == pool.gpu]
        if len(alike) == 1:
            return base
        own = min(
            pool.partitions,
            key=lambda name: (
                sum(name in one.partitions for one in alike),
                -self._site.partitions[name].tier,
                name,
            ),
        )
        return own if base in own else f"{base}-{own}"

    def flavors(self) -> Iterator[Json]:
        for pool in self._pools:
            name = self._flavor[id(pool)]
            made = policy_object("ResourceFlavor", name, {"nodeLabels": {POOL_LABEL: name}})
            made["metadata"]["annotations"] = {NODES_ANNOTATION: hosts(pool.nodes)}
            yield made

    # --- priorities

    def priorities(self) -> Iterator[Json]:
        names = SlurmNames()
        for name, (record, value) in self._site.qos.items():
            made = policy_object("WorkloadPriorityClass", self._renamed(record, names))
            described = record.value("Description") or record.value("Descr")
            text = f"QOS {name} of Slurm" + ("" if unset(described) else f": {described}")
            self.limits += self._limited.of_qos(record, made["metadata"]["name"])
            yield {**made, "value": value, "description": text[:MAX_TEXT]}

    def _preempting_qos(self) -> bool:
        found = False
        for name, (record, value) in self._site.qos.items():
            victims = [one for one in record.value("Preempt").split(",") if not unset(one)]
            found = found or any(one in self._site.qos for one in victims)
            for victim in victims:
                known = self._site.qos.get(victim)
                if known is None:
                    self._notes.add(record, "Preempt", f"{victim}: no such QOS is in the input")
                elif known[1] >= value:
                    text = f"preemption goes by priority, and {name} is not higher than {victim}"
                    self._notes.add(record, "Preempt", text)
        return found

    # --- cohorts

    def cohorts(self) -> Iterator[Json]:
        accounts = self._site.accounts.values()
        for account in accounts:
            if account.parent is None:
                spec: Json = {"fairSharing": {"enabled": True}} if self._weighted else {}
                self.limits += self._limited.of_account(account, "Cohort", self._root)
                yield policy_object(
                    "Cohort", self._root, spec | self._groups(self._concerned(account), account)
                )
            elif account.children:
                spec = {"parentName": self._cohort(account.parent)} | self._weight(account.share)
                groups = self._groups(self._concerned(account), account)
                self.limits += self._limited.of_account(account, "Cohort", self._named[account.name])
                yield _described(policy_object("Cohort", self._named[account.name], spec | groups), account)

    def _concerned(self, account: SlurmAccount) -> list[Pool]:
        """The pools that it owns or limits."""
        return [
            pool
            for pool in self._usable(account)
            if pool.owner is account or any(limited(name, pool.types) for name in account.limits)
        ]

    def _cohort(self, account: SlurmAccount) -> str:
        return self._root if account.name == ROOT else self._named[account.name]

    def _weight(self, share: int | None) -> Json:
        return {} if share is None or not self._weighted else {"fairSharing": {"weight": share}}

    # --- queues

    def queues(self) -> Iterator[Json]:
        for account in self._site.queues:
            yield from self._queue(account)
        if not self._site.queues:
            spec = {"cohortName": self._root, "namespaceSelector": {}}
            yield policy_object("ClusterQueue", self._root, spec | self._groups(self._pools, None))
            yield _local("main", "default", self._root, {})

    def _queue(self, account: SlurmAccount) -> Iterator[Json]:
        name = self._named[account.name]
        pools = self._usable(account)
        assert account.record is not None
        assert account.parent is not None
        if not pools:
            self._notes.add(account.record, "", "the account may use no partition: its queue has no quota")
        above = account if account.children else account.parent
        shares = [share for user in account.users.values() if (share := _share(user)) is not None]
        weight = min(sum(shares), MOST_SHARES) or None if account.children else account.share
        spec: Json = {
            "cohortName": self._cohort(above),
            "namespaceSelector": {"matchLabels": {_NAMESPACE: name}},
            **self._weight(weight),
            **self._preemption(account),
            **({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if shares else {}),
            **self._groups(pools, None if account.children else account),
        }
        queue = policy_object("ClusterQueue", name, spec)
        if not account.children:
            self.limits += self._limited.of_account(account, "ClusterQueue", name)
        self.limits += self._limited.of_users(account, name)
        yield queue if account.children else _described(queue, account)
        users = SlurmNames()
        for record in account.users.values():
            yield _local(self._renamed(record, users), name, name, self._weight(_share(record)))

    def _usable(self, account: SlurmAccount) -> list[Pool]:
        """The pools that the account, or one below it, may use: first those that it owns."""
        if account.name == ROOT:
            return self._pools
        found = [pool for pool in self._pools if account in self._reached[id(pool)]]
        return sorted(found, key=lambda pool: not _owns(account, pool))

    def _preemption(self, account: SlurmAccount) -> Json:
        lent = any(pool.lent for pool in self._pools if _owns(account, pool))
        found: Json = {}
        if lent or self._preempts:
            found["reclaimWithinCohort"] = "Any" if lent else "LowerPriority"
        if self._preempts:
            found["withinClusterQueue"] = "LowerPriority"
        return {"preemption": found} if found else {}

    # --- quota

    def _groups(self, pools: Iterable[Pool], account: SlurmAccount | None) -> Json:
        """The quota of these pools; `account` owns some of it, and its limits apply."""
        pools = list(pools)
        if not pools:
            return {}
        limits = self._borrowing_limits(account, pools) if account is not None else {}
        flavors = []
        for pool in pools:
            most = limits.get(id(pool), {})
            quotas = [self._quota(resource, pool, account, most) for resource in self._resources]
            flavors.append({"name": self._flavor[id(pool)], "resources": quotas})
        return {"resourceGroups": [{"coveredResources": list(self._resources), "flavors": flavors}]}

    def _quota(
        self, resource: str, pool: Pool, account: SlurmAccount | None, limits: Mapping[str, int]
    ) -> Json:
        owns = account is not None and pool.owner is account
        nominal = pool.amounts.get(resource, 0) if owns else 0
        found: Json = {"name": resource, "nominalQuota": quantity(resource, nominal)}
        if resource in limits:
            found["borrowingLimit"] = quantity(resource, max(0, limits[resource] - nominal))
        return found

    def _borrowing_limits(self, account: SlurmAccount, pools: list[Pool]) -> dict[int, dict[str, int]]:
        """Limits of GrpTRES by pool and resource."""
        found: dict[int, dict[str, int]] = {}
        record = account.record
        if record is None:
            return found
        for name, most in account.limits.items():
            concerned = [(pool, resource) for pool in pools for resource in limited(name, pool.types)]
            if not concerned:
                self._notes.add(
                    record, "GrpTRES", f"{name}: only cpu, mem and gres/gpu become limits of quota"
                )
            elif len(concerned) > 1:
                self._notes.add(record, "GrpTRES", f"{name}: limits each flavor by itself, not their sum")
            for pool, resource in concerned:
                limits = found.setdefault(id(pool), {})
                limits[resource] = min(most, limits.get(resource, most))
        return found


def _rank(resource: str) -> int:
    return _ORDER.index(resource) if resource in _ORDER else len(_ORDER)


def _owns(account: SlurmAccount, pool: Pool) -> bool:
    """Whether the pool belongs to the account or to one above it, and not to all."""
    return not pool.shared and pool.owner in account.path


def _share(user: Record) -> int | None:
    text = user.value("Fairshare")
    return int(text) if text.isdecimal() and text not in PARENT and not unset(text) else None


def _described(made: Json, account: SlurmAccount) -> Json:
    """The object with what Slurm says about the account, in annotations."""
    record = account.record
    words = {} if record is None else {word: record.value(word) for word in ("Description", "Organization")}
    notes = {f"queuectl.dev/slurm-{word.lower()}": text for word, text in words.items() if not unset(text)}
    if notes:
        made["metadata"]["annotations"] = notes
    return made


def _local(name: str, namespace: str, cluster_queue: str, more: Json) -> Json:
    made = policy_object("LocalQueue", name, {"clusterQueue": cluster_queue, **more})
    made["metadata"]["namespace"] = namespace
    return made
