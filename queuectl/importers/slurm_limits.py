"""UsageLimits and Budgets of a Slurm site: what QOS and associations allow users, accounts or all to use.

A QOS is a WorkloadPriorityClass. An association of an account is a limit of its Cohort or ClusterQueue, and
one of a user a limit of this user at the ClusterQueue of the account. `Grp*` counts at its own level; `Max*`
of an account is the value of each association below that has none of its own (resource_limits in Slurm's
documentation). What makes no object keeps its note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from queuectl.importers.result import policy_object
from queuectl.importers.slurm_budgets import SlurmBudgets
from queuectl.importers.slurm_notes import Notes
from queuectl.importers.slurm_site import ROOT, SlurmAccount, SlurmSite
from queuectl.importers.slurm_text import Record, SlurmKind
from queuectl.importers.slurm_values import (
    MOST_MEBIBYTES,
    BadValue,
    SlurmNames,
    limited,
    quantity,
    tres,
    unset,
    whole,
)
from queuectl.kinds.subject_policy_objects import MAX_WORKLOADS

Json = dict[str, Any]
_EACH_USER: Final = "EachUser"
_ALL: Final = "All"


class _Field(NamedTuple):
    """What a field of a QOS becomes."""

    subject: str
    part: str
    """Field of the spec of a UsageLimit."""


_OF_QOS: Final[Mapping[str, _Field]] = {
    "MaxTRESPU": _Field(_EACH_USER, "resources"),
    "MaxTRESPerUser": _Field(_EACH_USER, "resources"),
    "MaxJobsPU": _Field(_EACH_USER, "running"),
    "MaxJobsPerUser": _Field(_EACH_USER, "running"),
    "MaxSubmitPU": _Field(_EACH_USER, "pending"),
    "MaxSubmitJobsPerUser": _Field(_EACH_USER, "pending"),
    "GrpTRES": _Field(_ALL, "resources"),
    "GrpJobs": _Field(_ALL, "running"),
    "GrpSubmit": _Field(_ALL, "pending"),
    "GrpSubmitJobs": _Field(_ALL, "pending"),
    "MinTRES": _Field(_ALL, "minRequest"),
}
_GROUP: Final[Mapping[str, str]] = {"GrpJobs": "running", "GrpSubmit": "pending", "GrpSubmitJobs": "pending"}
_INHERITED: Final[Mapping[str, str]] = {
    "MaxJobs": "running",
    "MaxSubmit": "pending",
    "MaxSubmitJobs": "pending",
}
_REPLACED: Final[Mapping[str, tuple[str, ...]]] = {
    "MaxTRESPU": ("GrpTRES",),
    "MaxTRESPerUser": ("GrpTRES",),
    "MaxJobsPU": ("MaxJobs",),
    "MaxJobsPerUser": ("MaxJobs",),
    "MaxSubmitPU": ("MaxSubmit", "MaxSubmitJobs"),
    "MaxSubmitJobsPerUser": ("MaxSubmit", "MaxSubmitJobs"),
    "GrpTRES": ("GrpTRES",),
    "GrpJobs": ("GrpJobs",),
    "GrpSubmit": ("GrpSubmit", "GrpSubmitJobs"),
    "GrpSubmitJobs": ("GrpSubmit", "GrpSubmitJobs"),
}
"""By field of a QOS, the fields of associations that it replaces in Slurm."""

_PENDING: Final = "counts what waits alone, and nothing is refused: what arrives above it waits outside"
_BOTH: Final = "in Slurm it replaces the limit of the association: here both apply"
_EACH_FLAVOR: Final = "limits each flavor by itself, not their sum"
_EACH_RESOURCE: Final = "limits each kind of GPU by itself, not their sum"
_ALL_TYPES: Final = "GPUs of other types in the same flavor count too"
_UNLABELLED: Final = "its limits count workloads with the label of the class: `default` is that of all others"
_USERS: Final = "a limit names users as Slurm does: change names that differ in Kubernetes"


class SlurmLimits:
    """The UsageLimits and Budgets of a site; `flavors`: the name of each pool by its `id`."""

    def __init__(
        self, site: SlurmSite, notes: Notes, records: Sequence[Record], flavors: Mapping[int, str]
    ) -> None:
        self._site = site
        self._notes = notes
        self._flavors = flavors
        self._names = SlurmNames()
        self._budgets = SlurmBudgets(site, notes)
        self._root = next((one for one in records if one.kind is SlurmKind.CLUSTER), None)
        self._set = {
            name
            for record in records
            if record.kind in (SlurmKind.CLUSTER, SlurmKind.ACCOUNT, SlurmKind.USER)
            for name, value in record.fields.items()
            if not unset(value.value)
        }
        """Fields that any association has."""
        self._usual = {record.value("DefaultQOS") for record in records} | {"normal"}
        self._known: dict[tuple[str, int, str, str], Json] = {}
        """What was read."""

    def of_qos(self, record: Record, name: str) -> Iterator[Json]:
        """`name`: of its WorkloadPriorityClass."""
        target = {"kind": "WorkloadPriorityClass", "name": name}
        relative = "relative" in record.value("Flags").lower()  # percentages of the cluster
        found: dict[str, Json] = {}
        for field, (subject, part) in _OF_QOS.items():
            if relative and field.startswith("Grp"):
                continue
            made = self._read(record, field, part)
            if made:
                _join(found.setdefault(subject, {}), made)
                if self._set.intersection(_REPLACED.get(field, ())):
                    self._notes.add(record, field, _BOTH)
        budgets = [] if relative else [*self._budgets.of(record, f"qos-{name}", target, {"kind": _ALL})]
        if (found or budgets) and record.name in self._usual:
            self._notes.add(record, "", _UNLABELLED, left_out=False)
        yield from budgets
        for subject, spec in found.items():
            yield self._limit(f"qos-{name}", "WorkloadPriorityClass", name, {"kind": subject}, spec)

    def of_account(self, account: SlurmAccount, kind: str, name: str) -> Iterator[Json]:
        """What all below an account use together; `kind`, `name`: of its Cohort or ClusterQueue."""
        record = self._root if account.name == ROOT else account.record
        if record is None:
            return
        spec: Json = {}
        for field, part in _GROUP.items():
            _join(spec, self._read(record, field, part))
        if spec:
            yield self._limit(f"account-{name}", kind, name, {"kind": _ALL}, spec)
        target = {"kind": kind, "name": name}
        yield from self._budgets.of(record, f"account-{name}", target, {"kind": _ALL})

    def of_users(self, account: SlurmAccount, name: str) -> Iterator[Json]:
        """What each user of an account may use; `name`: of its ClusterQueue."""
        each: Json = {}
        for field, part in _INHERITED.items():
            for record in self._above(account):
                if not unset(record.value(field)):
                    each |= self._read(record, field, part)
                    break
        if each:
            yield self._limit(f"account-{name}", "ClusterQueue", name, {"kind": _EACH_USER}, each)
        for user, record in account.users.items():
            own: Json = {}
            for field, part in {**_INHERITED, **_GROUP, "GrpTRES": "resources"}.items():
                _join(own, self._read(record, field, part))
            subject = {"kind": "User", "name": user}
            target = {"kind": "ClusterQueue", "name": name}
            budgets = [*self._budgets.of(record, f"account-{name}-{user}", target, subject)]
            if own or budgets:
                self._notes.add(record, "", _USERS, left_out=False)
            yield from budgets
            if own:
                # At one target, a limit of a user replaces those of each user (X2).
                yield self._limit(f"account-{name}-{user}", "ClusterQueue", name, subject, {**each, **own})

    def _above(self, account: SlurmAccount) -> Iterator[Record]:
        """The associations of an account and of those above it, nearest first."""
        for one in account.path:
            record = self._root if one.name == ROOT else one.record
            if record is not None:
                yield record

    def _limit(self, base: str, kind: str, name: str, subject: Json, spec: Json) -> Json:
        suffix = "-each-user" if subject["kind"] == _EACH_USER else ""
        target = {"kind": kind, "name": name}
        whole_spec = {"target": target, "subject": subject, **spec}
        return policy_object("UsageLimit", self._names.of(base[:50] + suffix), whole_spec)

    def _read(self, record: Record, field: str, part: str) -> Json:
        """The part of a spec that a field becomes; empty: it becomes none, and its note says what to do."""
        key = (record.file, record.line, record.name, field)
        if key not in self._known:
            self._known[key] = self._made(record, field, part)
        return self._known[key]

    def _made(self, record: Record, field: str, part: str) -> Json:
        if unset(record.value(field)):
            return {}
        try:
            if part in ("running", "pending"):
                made = self._workloads(record.value(field), part)
            else:
                made = self._amounts(record, field, part)
        except BadValue:
            return {}
        if made:
            self._notes.carried(record, field)
        if made and part == "pending":
            self._notes.add(record, field, _PENDING, left_out=False)
        return made

    def _workloads(self, text: str, part: str) -> Json:
        number = whole(text)
        return {part: number} if number <= MAX_WORKLOADS else {}

    def _amounts(self, record: Record, field: str, part: str) -> Json:
        """Raises BadValue."""
        resources: dict[str, int] = {}
        flavors: dict[str, dict[str, int]] = {}
        missing: list[str] = []
        told: list[str] = []
        for name, most in tres(record.value(field)).items():
            pools = [(pool, found) for pool in self._site.pools if (found := limited(name, pool.types))]
            if most > MOST_MEBIBYTES or not pools or (":" in name and part == "minRequest"):
                missing.append(name)
            elif ":" not in name:
                kinds = {resource for _, found in pools for resource in found}
                resources |= dict.fromkeys(kinds, most)
                told += [f"{name}: {_EACH_RESOURCE}"] if len(kinds) > 1 else []
            else:
                for pool, found in pools:
                    flavors.setdefault(self._flavors[id(pool)], {}).update(dict.fromkeys(found, most))
                told += [f"{name}: {_EACH_FLAVOR}"] if len(pools) > 1 else []
                told += (
                    [f"{name}: {_ALL_TYPES}"]
                    if any(pool.has_others(name, found) for pool, found in pools)
                    else []
                )
        if missing and (resources or flavors):
            told.append(f"{', '.join(missing)}: only cpu, mem and gres/gpu become limits")
        for text in told:
            self._notes.add(record, field, text)
        made: Json = {part: _quantities(resources)} if resources else {}
        if flavors:
            made["flavors"] = [
                {"name": name, "resources": _quantities(amounts)} for name, amounts in sorted(flavors.items())
            ]
        return made


def _quantities(amounts: Mapping[str, int]) -> Json:
    return {resource: quantity(resource, amount) for resource, amount in sorted(amounts.items())}


def _join(spec: Json, more: Json) -> None:
    """Of two limits of the same, the lower one counts."""
    for part, value in more.items():
        if isinstance(value, int):
            spec[part] = min(value, spec.get(part, value))
        elif isinstance(value, dict):
            spec[part] = {**value, **spec.get(part, {})}
        else:
            spec.setdefault(part, value)
