"""Policy objects to values of the core: from objects of the API server, and from specs in the ledger.

Both use the same models, so that a stored spec is read as it was when it was in force.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from queuectl.core.features.nodes.inventory import mode_of
from queuectl.core.model.events import PolicyInvalid, PolicyObserved
from queuectl.core.model.policy import (
    ANY_NODES,
    NO_MAX_EXECUTION_TIME,
    NORMAL_WEIGHT,
    BorrowWithinCohort,
    CapacityMode,
    CapacityShortage,
    ClusterQueue,
    Cohort,
    FairSharing,
    FlavorFungibility,
    FlavorNodes,
    FlavorQuotas,
    HeadCanNeverRun,
    LabelSelector,
    LocalQueue,
    LocalQueueName,
    MaxExecutionTime,
    MinRunTime,
    OnExceeded,
    Policy,
    Preemption,
    PreemptionPolicy,
    PreemptionStrategy,
    QueueingStrategy,
    Requirement,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
    Taint,
    Toleration,
    WaitForPodsReady,
    WorkloadPriorityClass,
)
from queuectl.core.model.resources import BadQuantity, parse_quantity
from queuectl.core.model.workload import ConfigKey
from queuectl.kinds import policy_objects as objects
from queuectl.kinds import policy_schema as schema
from queuectl.kinds.field_support import unsupported
from queuectl.kinds.invalid import dotted, problems_of
from queuectl.kinds.json_fields import Json, clean
from queuectl.kinds.policy_amounts import BadPolicy, amount_of, listed_once
from queuectl.kinds.policy_schema import FlavorNodesModel
from queuectl.kinds.reserved_keys import AUTHOR_ANNOTATION, RESTRICTED_LABEL
from queuectl.kinds.subject_policies import budget, idle_policy, usage_limit
from queuectl.kinds.subject_policy_objects import (
    BudgetObject,
    IdlePolicyObject,
    UsageLimitObject,
)
from queuectl.kinds.workloads import MAX_NAME

_ESCAPED: Final = re.compile(r"\\[bfnrtu]|\x7f")
"""In ASCII JSON text: what may stand for a character that is not printable."""
_DETAIL: Final = 500


class PolicyKind(NamedTuple):
    """One kind of policy object."""

    name: str
    plural: str
    namespaced: bool
    model: type[schema.ObjectPart]
    """Model of the whole object, without metadata."""
    value: Callable[[ConfigKey, Any], Policy]
    """From the model to the value of the core. Raises BadPolicy."""

    @property
    def resource(self) -> str:
        return f"{self.plural}.{objects.GROUP}"


def policy_event(obj: Json) -> PolicyObserved | PolicyInvalid:
    """The event for an object of one of POLICY_KINDS; `kind` and `metadata.name` are required."""
    metadata = obj["metadata"]
    key = ConfigKey(obj["kind"], metadata.get("namespace") or "", metadata["name"])
    try:
        model = _validated(key, _policy_of(obj))
        return PolicyObserved(key, _kind(key).value(key, model), _canonical(model), _author(metadata))
    except BadPolicy as problem:
        return PolicyInvalid(key, clean(str(problem), _DETAIL))


def _policy_of(obj: Json) -> Json:
    """Return the fields of an object that are policy, and the label that is."""
    fields = {name: obj[name] for name in ("spec", "value", "description") if name in obj}
    labels = obj["metadata"].get("labels")
    if isinstance(labels, Mapping) and RESTRICTED_LABEL in labels:
        fields["metadata"] = {"labels": {RESTRICTED_LABEL: labels[RESTRICTED_LABEL]}}
    return fields


def _author(metadata: Json) -> str | None:
    annotations = metadata.get("annotations")
    author = annotations.get(AUTHOR_ANNOTATION) if isinstance(annotations, Mapping) else None
    return clean(author, MAX_NAME) if isinstance(author, str) and author else None


def drop_unknown(obj: dict[str, Any]) -> list[str]:
    """Remove unknown fields from a valid policy object, as the API server does.

    Returns the paths.
    """
    return list(_unknown(obj, drop=True))


def unknown_fields(obj: Json) -> Iterator[str]:
    """The paths of unknown fields of a valid policy object, which the API server drops."""
    return _unknown(obj, drop=False)


def _unknown(obj: Json, *, drop: bool) -> Iterator[str]:
    model = POLICY_KINDS[obj["kind"]].model
    known = model.model_validate(_printable({**_policy_of(obj), "status": obj.get("status")}))
    fields = known.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return _prune(obj, fields, drop, kept=("apiVersion", "kind", "metadata", "status"))


def similar_field(kind: str, path: str) -> str | None:
    """The field of a policy object that has a similar name in the place of an unknown one, at this path.

    None: there is none.
    """
    *above, name = _STEP.split(path)
    schema = _schema(kind)
    node: Json = schema
    for step in filter(None, above):
        inner: Json | None = node.get("items") if step.isdecimal() else node.get("properties", {}).get(step)
        node = _resolved(inner or {}, schema)
    fields = {field.lower(): field for field in node.get("properties", {})}
    near = get_close_matches(name[:_LONGEST].lower(), fields, n=1, cutoff=_SIMILAR)
    return fields[near[0]] if near else None


_STEP: Final = re.compile(r"[.\[\]]")
_SIMILAR: Final = 0.6
_LONGEST: Final = 60
"""Characters of a name that are compared."""


@cache
def _schema(kind: str) -> Json:
    return POLICY_KINDS[kind].model.model_json_schema(by_alias=True)


def _resolved(node: Json, schema: Json) -> Json:
    """The object of a JSON schema that a reference, or a choice beside null, stands for."""
    while "$ref" in node or "anyOf" in node:
        if "anyOf" in node:
            node = next(one for one in node["anyOf"] if one.get("type") != "null")
        else:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return node


def _prune(content: Any, known: Any, drop: bool, kept: Iterable[str] = (), path: str = "") -> Iterator[str]:
    """Yield the paths in `content` of what is not in `known`, except `kept`; `drop`: and remove it."""
    if isinstance(content, dict) and isinstance(known, dict):
        for key in list(content):
            if key in kept:
                continue
            inner = f"{path}.{key}" if path else key
            if key in known:
                yield from _prune(content[key], known[key], drop, path=inner)
            else:
                if drop:
                    del content[key]
                yield inner
    elif isinstance(content, list) and isinstance(known, list):
        for number, (item, other) in enumerate(zip(content, known, strict=True)):
            yield from _prune(item, other, drop, path=f"{path}[{number}]")


def parse_policy(key: ConfigKey, spec: str) -> Policy:
    """The policy of `spec`, as `policy_event` made it. Raises BadPolicy."""
    try:
        content = json.loads(spec)
    except ValueError as problem:
        raise BadPolicy(f"{key}: stored spec is not JSON: {problem}") from None
    if not isinstance(content, dict):
        raise BadPolicy(f"{key}: stored spec is not an object")
    return _kind(key).value(key, _validated(key, stored_object(key, content)))


def with_defaults(key: ConfigKey, spec: str) -> Any:
    """The object of a spec of the ledger, with the defaults of this version; as it is, if not valid."""
    content = stored_object(key, json.loads(spec))
    try:
        return stored_object(key, json.loads(_canonical(_validated(key, content))))
    except BadPolicy:
        return content


def _kind(key: ConfigKey) -> PolicyKind:
    kind = POLICY_KINDS.get(key.kind)
    if kind is None:
        raise BadPolicy(f"{key}: kind {key.kind!r} is none of {', '.join(POLICY_KINDS)}")
    return kind


def stored_object(key: ConfigKey, spec: dict[str, Any]) -> dict[str, Any]:
    """The object around a spec of the ledger.

    A WorkloadPriorityClass has its fields at the top. An object with a label that is policy is stored whole.
    """
    is_spec = "spec" in _kind(key).model.model_fields and "metadata" not in spec
    return {"spec": spec} if is_spec else spec


def _validated(key: ConfigKey, content: Mapping[str, Any]) -> schema.ObjectPart:
    try:
        # Strict, as the schema in the API server: there "7" is no number, and "no" neither true nor false.
        text = json.dumps(content)
        if _ESCAPED.search(text):
            text = json.dumps(_printable(content))
        return _kind(key).model.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = problems_of(error)[0]
        raise BadPolicy(f"{dotted(first.path)}: {first.text}") from None


def _canonical(model: schema.ObjectPart) -> str:
    """The spec as JSON text, with metadata the object: sorted keys, no unset fields, explicit defaults."""
    content = model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"})
    stored = content if "metadata" in content else content.get("spec", content)
    return json.dumps(stored, sort_keys=True, separators=(",", ":"))


def _printable(value: Any) -> Any:
    """The same JSON without NUL and lone surrogates in its texts: Postgres refuses them."""
    if isinstance(value, str):
        return clean(value, len(value))
    if isinstance(value, Mapping):
        return {clean(key, len(key)): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value


# --- one function per kind ------------------------------------------------------------------------------


def _cluster_queue(key: ConfigKey, model: objects.ClusterQueueObject) -> ClusterQueue:
    spec = model.spec
    _consistent(spec)
    return ClusterQueue(
        name=key.name,
        cohort=spec.cohort_name,
        resource_groups=_groups(spec.resource_groups, spec.cohort_name, "cohortName", bounded=True),
        namespace_selector=_selector(spec.namespace_selector),
        queueing_strategy=QueueingStrategy(spec.queueing_strategy),
        head_can_never_run=HeadCanNeverRun(spec.head_can_never_run),
        stop_policy=StopPolicy(spec.stop_policy),
        stop_reason=spec.stop_reason,
        preemption=_preemption(spec.preemption),
        fungibility=FlavorFungibility(
            try_next_before_borrowing=spec.flavor_fungibility.when_can_borrow == "TryNextFlavor",
            try_next_before_preempting=spec.flavor_fungibility.when_can_preempt == "TryNextFlavor",
            preemption_over_borrowing=spec.flavor_fungibility.preference == "PreemptionOverBorrowing",
        ),
        weight=_weight(spec.fair_sharing),
        max_execution_time=_max_execution_time(spec.max_execution_time),
        wait_for_pods_ready=_wait_for_pods_ready(spec.wait_for_pods_ready),
        usage_based=spec.admission_scope is not None
        and spec.admission_scope.admission_mode == "UsageBasedAdmissionFairSharing",
        users_by_usage=spec.admission_scope is not None and spec.admission_scope.user_order == "PastUsage",
        unsupported=_unsupported(key, model),
    )


def _unsupported(key: ConfigKey, model: schema.ObjectPart) -> tuple[str, ...]:
    return unsupported(key.kind, model.model_dump(mode="json", by_alias=True, exclude_none=True))


def _preemption(model: objects.PreemptionSpec) -> Preemption:
    borrowing, protected = model.borrow_within_cohort, model.min_run_time or objects.MinRunTimeSpec()
    return Preemption(
        within_cluster_queue=PreemptionPolicy(model.within_cluster_queue),
        reclaim_within_cohort=PreemptionPolicy(model.reclaim_within_cohort),
        borrow_within_cohort=BorrowWithinCohort(borrowing.max_priority_threshold)
        if borrowing is not None and borrowing.policy != "Never"
        else None,
        min_run_time=MinRunTime(**dict(protected)),
    )


def _max_execution_time(model: objects.MaxExecutionTimeSpec | None) -> MaxExecutionTime:
    if model is None:
        return NO_MAX_EXECUTION_TIME
    if model.default is not None and model.ceiling is not None and model.default > model.ceiling:
        raise BadPolicy("spec.maxExecutionTime.default: must not be more than ceiling")
    action = OnExceeded(model.on_exceeded) if model.on_exceeded else None
    return MaxExecutionTime(default=model.default, ceiling=model.ceiling, on_exceeded=action)


def _wait_for_pods_ready(model: objects.WaitForPodsReadySpec | None) -> WaitForPodsReady | None:
    if model is None:
        return None
    again = model.requeuing
    base, most = again.backoff_base_seconds, again.backoff_limit_seconds
    if base is not None and most is not None and base > most:
        raise BadPolicy(
            "spec.waitForPodsReady.requeuing.backoffBaseSeconds: must not be more than backoffLimitSeconds"
        )
    return WaitForPodsReady(
        scheduling=model.scheduling_timeout_seconds,
        startup=model.startup_timeout_seconds,
        recovery=model.recovery_timeout_seconds,
        base_seconds=base,
        most_seconds=most,
        limit=again.backoff_limit_count,
        jitter_percent=again.jitter_percent,
    )


def _weight(model: objects.FairSharingSpec | None) -> int:
    """In thousandths, rounded up: a weight above 0 stays above 0."""
    if model is None:
        return NORMAL_WEIGHT
    try:
        return parse_quantity(model.weight, "cpu")
    except BadQuantity as problem:
        raise BadPolicy(f"spec.fairSharing.weight: {problem}") from None


def _consistent(spec: objects.ClusterQueueSpec) -> None:
    """Rules on several fields. Raises BadPolicy."""
    preemption, fungibility = spec.preemption, spec.flavor_fungibility
    borrowing = preemption.borrow_within_cohort
    if borrowing and borrowing.policy != "Never" and preemption.reclaim_within_cohort == "Never":
        raise BadPolicy(
            "spec.preemption.borrowWithinCohort.policy: must be Never while reclaimWithinCohort is"
        )
    choices = (fungibility.when_can_borrow, fungibility.when_can_preempt)
    if fungibility.preference and choices != ("TryNextFlavor", "TryNextFlavor"):
        raise BadPolicy(
            "spec.flavorFungibility.preference: needs TryNextFlavor for both whenCanBorrow and whenCanPreempt"
        )


def _cohort(key: ConfigKey, model: objects.CohortObject) -> Cohort:
    spec = model.spec
    groups = _groups(spec.resource_groups, spec.parent_name, "parentName", bounded=False)
    sharing = spec.fair_sharing
    return Cohort(
        name=key.name,
        parent=spec.parent_name,
        resource_groups=groups,
        weight=_weight(sharing),
        sharing=FairSharing(
            enabled=sharing.enabled if sharing else None,
            strategies=tuple(PreemptionStrategy(name) for name in sharing.preemption_strategies)
            if sharing and sharing.preemption_strategies
            else None,
            by_past_usage=sharing is not None and sharing.admission_order == "PastUsage",
        ),
        shortage=CapacityShortage(spec.capacity_shortage or CapacityShortage.BY_PRIORITY),
        unsupported=_unsupported(key, model),
    )


def _resource_flavor(key: ConfigKey, model: objects.ResourceFlavorObject) -> ResourceFlavor:
    spec = model.spec
    return ResourceFlavor(
        name=key.name,
        node_labels=tuple(sorted(spec.node_labels.items())),
        node_taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.node_taints),
        tolerations=tuple(
            Toleration(
                key=one.key or None,
                operator=one.operator,
                value=one.value or None,
                effect=one.effect or None,
                seconds=one.toleration_seconds,
            )
            for one in spec.tolerations
        ),
        topology=spec.topology_name,
        nodes=_nodes(spec.nodes),
        unsupported=_unsupported(key, model),
    )


def _nodes(model: FlavorNodesModel | None) -> FlavorNodes:
    """Raises BadPolicy."""
    if model is None:
        return ANY_NODES
    found = FlavorNodes(
        mode=CapacityMode(model.mode) if model.mode is not None else None,
        modes=tuple((name, CapacityMode(mode)) for name, mode in sorted(model.resources.items())),
        headroom=tuple(
            (name, amount_of(kept, name, f"spec.nodes.headroom.{name}"))
            for name, kept in sorted(model.headroom.items())
        ),
    )
    for name, _ in found.headroom:
        mode = mode_of(found, name, offered=True)
        if mode is not CapacityMode.ENFORCE:
            raise BadPolicy(
                f"spec.nodes.headroom.{name}: is kept for resources with mode Enforce only, "
                f"the mode of {name} is {mode}"
            )
    return found


def _local_queue(key: ConfigKey, model: objects.LocalQueueObject) -> LocalQueue:
    return LocalQueue(
        name=LocalQueueName(key.namespace, key.name),
        cluster_queue=model.spec.cluster_queue,
        stop_policy=StopPolicy(model.spec.stop_policy),
        stop_reason=model.spec.stop_reason,
        max_execution_time=_max_execution_time(model.spec.max_execution_time),
        weight=_weight(model.spec.fair_sharing),
        restricted=_is_restricted(model.metadata),
    )


def _is_restricted(metadata: objects.PolicyMetadata | None) -> bool:
    return metadata is not None and metadata.labels.restricted == "true"


def _priority_class(key: ConfigKey, model: objects.WorkloadPriorityClassObject) -> WorkloadPriorityClass:
    return WorkloadPriorityClass(key.name, model.value, _is_restricted(model.metadata))


def _selector(model: objects.LabelSelectorModel | None) -> LabelSelector | None:
    if model is None:
        return None
    for index, one in enumerate(model.match_expressions):
        if (one.operator in ("In", "NotIn")) != bool(one.values):
            raise BadPolicy(
                f"spec.namespaceSelector.matchExpressions[{index}].values: In and NotIn need values, "
                "Exists and DoesNotExist have none"
            )
    return LabelSelector(
        labels=tuple(sorted(model.match_labels.items())),
        expressions=tuple(Requirement(one.key, one.operator, one.values) for one in model.match_expressions),
    )


# --- quota ------------------------------------------------------------------------------------------


def _groups(
    models: tuple[schema.ResourceGroupSpec, ...], cohort: str | None, cohort_field: str, *, bounded: bool
) -> tuple[ResourceGroup, ...]:
    """`bounded`: a lendingLimit is at most the nominalQuota, as on a queue. Raises BadPolicy."""
    seen: dict[tuple[str, str], str] = {}
    groups = []
    for index, model in enumerate(models):
        path = f"spec.resourceGroups[{index}]"
        for position, resource in enumerate(model.covered_resources):
            listed_once(seen, ("resource", resource), f"{path}.coveredResources[{position}]")
        flavors = []
        for position, flavor in enumerate(model.flavors):
            where = f"{path}.flavors[{position}]"
            listed_once(seen, ("flavor", flavor.name), where)
            if tuple(quota.name for quota in flavor.resources) != model.covered_resources:
                raise BadPolicy(
                    f"{where}.resources: flavor {flavor.name} must list exactly the coveredResources "
                    f"{', '.join(model.covered_resources)}, in the same order"
                )
            quotas = []
            for number, quota in enumerate(flavor.resources):
                at = f"{where}.resources[{number}]"
                quotas.append((quota.name, _quota(quota, at, cohort, cohort_field, bounded=bounded)))
            wait = flavor.wait_before_next_seconds if isinstance(flavor, schema.OrderedFlavorQuotas) else None
            flavors.append(FlavorQuotas(name=flavor.name, resources=tuple(quotas), wait=wait or 0))
        groups.append(ResourceGroup(covered=model.covered_resources, flavors=tuple(flavors)))
    return tuple(groups)


def _quota(
    model: schema.ResourceQuotaSpec, path: str, cohort: str | None, cohort_field: str, *, bounded: bool
) -> ResourceQuota:
    nominal = amount_of(model.nominal_quota, model.name, f"{path}.nominalQuota")
    limits: list[int | None] = []
    for value, field in ((model.borrowing_limit, "borrowingLimit"), (model.lending_limit, "lendingLimit")):
        if value is not None and cohort is None:
            raise BadPolicy(f"{path}.{field}: {value} needs {cohort_field}")
        limits.append(None if value is None else amount_of(value, model.name, f"{path}.{field}"))
    borrowing, lending = limits
    if bounded and lending is not None and lending > nominal:
        raise BadPolicy(
            f"{path}.lendingLimit: {model.lending_limit} is more than the nominalQuota {model.nominal_quota}"
        )
    return ResourceQuota(nominal=nominal, borrowing_limit=borrowing, lending_limit=lending)


POLICY_KINDS: Final[Mapping[str, PolicyKind]] = {
    kind.name: kind
    for kind in (
        PolicyKind("ClusterQueue", "clusterqueues", False, objects.ClusterQueueObject, _cluster_queue),
        PolicyKind("Cohort", "cohorts", False, objects.CohortObject, _cohort),
        PolicyKind(
            "ResourceFlavor", "resourceflavors", False, objects.ResourceFlavorObject, _resource_flavor
        ),
        PolicyKind(
            "WorkloadPriorityClass",
            "workloadpriorityclasses",
            False,
            objects.WorkloadPriorityClassObject,
            _priority_class,
        ),
        PolicyKind("UsageLimit", "usagelimits", False, UsageLimitObject, usage_limit),
        PolicyKind("IdlePolicy", "idlepolicies", False, IdlePolicyObject, idle_policy),
        PolicyKind("Budget", "budgets", False, BudgetObject, budget),
        PolicyKind("LocalQueue", "localqueues", True, objects.LocalQueueObject, _local_queue),
    )
}
"""All kinds, by name."""
