"""Invalid queues, with the field and the message of the refusal, and valid ones."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"


def cluster_queue(*groups: Json, **spec: object) -> Json:
    return {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "tried"},
        "spec": {"resourceGroups": list(groups), **spec},
    }


def group(resources: str | list[str], **flavors: Json) -> Json:
    """Each flavor gives the quota of all `resources`."""
    covered = [resources] if isinstance(resources, str) else resources
    return {
        "coveredResources": covered,
        "flavors": [
            {"name": name, "resources": [{"name": one, **quota} for one in covered]}
            for name, quota in flavors.items()
        ],
    }


def quota(amount: object, resource: str = GPU, **limits: object) -> Json:
    cohort = {"cohortName": "research"} if limits else {}
    return cluster_queue(group(resource, a100={"nominalQuota": amount, **limits}), **cohort)


ONE = {"nominalQuota": 1}
NOT_WHOLE = "must be a whole number"
REFUSED = {
    "negative text": (quota("-5"), f"{QUOTA}.nominalQuota", "must be at least 0"),
    "negative number": (quota(-5), f"{QUOTA}.nominalQuota", "must be at least 0"),
    "negative borrowing limit": (
        quota(1, borrowingLimit="-1"),
        f"{QUOTA}.borrowingLimit",
        "must be at least 0",
    ),
    "default above the ceiling": (
        cluster_queue(maxExecutionTime={"default": 61, "ceiling": 60}),
        "spec.maxExecutionTime.default",
        "must not be more than ceiling",
    ),
    "backoff above its limit": (
        cluster_queue(waitForPodsReady={"requeuing": {"backoffBaseSeconds": 61, "backoffLimitSeconds": 60}}),
        "spec.waitForPodsReady.requeuing.backoffBaseSeconds",
        "must not be more than backoffLimitSeconds",
    ),
    "more jitter than the pause": (
        cluster_queue(waitForPodsReady={"requeuing": {"jitterPercent": 101}}),
        "spec.waitForPodsReady.requeuing.jitterPercent",
        "should be less than or equal to 100",
    ),
    "no time to start": (
        cluster_queue(waitForPodsReady={"startupTimeoutSeconds": 0}),
        "spec.waitForPodsReady.startupTimeoutSeconds",
        "should be greater than or equal to 1",
    ),
    "no run time": (
        cluster_queue(maxExecutionTime={"ceiling": 0}),
        "spec.maxExecutionTime.ceiling",
        "should be greater than or equal to 1",
    ),
    "huge exponent": (quota("1e999999999"), f"{QUOTA}.nominalQuota", "should match"),
    "4000 digits": (quota("9" * 4000), f"{QUOTA}.nominalQuota", "may not be more than 32"),
    "no number": (quota("NaN"), f"{QUOTA}.nominalQuota", "should match"),
    "half a GPU": (quota("0.5"), f"{QUOTA}.nominalQuota", NOT_WHOLE),
    "500m of a GPU": (quota("500m"), f"{QUOTA}.nominalQuota", NOT_WHOLE),
    "a GPU and a bit": (quota("1.0625Ki"), f"{QUOTA}.nominalQuota", NOT_WHOLE),
    "half a GPU lent": (quota(1, lendingLimit=".5"), f"{QUOTA}.lendingLimit", NOT_WHOLE),
    "half a pod": (quota("1.5", "pods"), f"{QUOTA}.nominalQuota", NOT_WHOLE),
    "more than a bigint": (
        quota("9223372036854775808"),
        f"flavor a100, resource {GPU}",
        "at most 9223372036854775807 base units",
    ),
    "more milli-cpu than a bigint": (
        quota("9223372036854775808m", "cpu"),
        "flavor a100, resource cpu",
        "at most 9223372036854775807 base units",
    ),
    "borrowing limit without cohort": (
        cluster_queue(group(GPU, a100={"nominalQuota": 1, "borrowingLimit": 2})),
        "spec.resourceGroups",
        "borrowingLimit needs cohortName",
    ),
    "lending limit without cohort": (
        cluster_queue(group(GPU, a100={"nominalQuota": 1, "lendingLimit": 1})),
        "spec.resourceGroups",
        "lendingLimit needs cohortName",
    ),
    "lends more than it has": (
        quota("1k", lendingLimit=1001),
        f"flavor a100, resource {GPU}",
        "lendingLimit must be at most nominalQuota",
    ),
    "flavor twice in a group": (
        cluster_queue(
            {"coveredResources": [GPU], "flavors": 2 * group(GPU, a100=ONE)["flavors"]},
        ),
        "spec.resourceGroups[0].flavors[1]",
        "Duplicate value",
    ),
    "flavor in two groups": (
        cluster_queue(group("cpu", a100=ONE), group("memory", spot=ONE), group(GPU, h100=ONE, a100=ONE)),
        "resourceGroups[2].flavors",
        "in an earlier group already",
    ),
    "resource twice in a group": (
        cluster_queue(group([GPU, GPU], a100=ONE)),
        "spec.resourceGroups[0].coveredResources[1]",
        "Duplicate value",
    ),
    "resource in two groups": (
        cluster_queue(group(["cpu", GPU], a100=ONE), group(["memory", GPU], spot=ONE)),
        "resourceGroups[1].coveredResources",
        "in an earlier group already",
    ),
    "other resources than covered": (
        cluster_queue({**group(GPU, a100=ONE), "coveredResources": [GPU, "cpu"]}),
        "spec.resourceGroups[0].flavors",
        "exactly the coveredResources, in the same order",
    ),
    "covered resources in another order": (
        cluster_queue({**group(["cpu", GPU], a100=ONE), "coveredResources": [GPU, "cpu"]}),
        "spec.resourceGroups[0].flavors",
        "exactly the coveredResources, in the same order",
    ),
    "borrowing without reclaiming": (
        cluster_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "spec.preemption.borrowWithinCohort.policy",
        "must be Never while reclaimWithinCohort is Never",
    ),
    "a preference without a choice": (
        cluster_queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
        "spec.flavorFungibility.preference",
        "needs TryNextFlavor",
    ),
    "65 flavors": (
        cluster_queue(group(GPU, **{f"f{number}": ONE for number in range(65)})),
        "spec.resourceGroups[0].flavors",
        "must have at most 64 items",
    ),
    "17 groups": (
        cluster_queue(*(group(f"example.com/r{n}", **{f"f{n}": ONE}) for n in range(17))),
        "spec.resourceGroups",
        "must have at most 16 items",
    ),
    "negative weight": (
        cluster_queue(fairSharing={"weight": -1}),
        "spec.fairSharing.weight",
        "must be at least 0",
    ),
    "weight that is no number": (
        cluster_queue(fairSharing={"weight": "NaN"}),
        "spec.fairSharing.weight",
        "should match",
    ),
    "tiny weight": (
        cluster_queue(fairSharing={"weight": "1e-300"}),
        "spec.fairSharing.weight",
        "should match",
    ),
    "unknown strategy": (
        cluster_queue(queueingStrategy="Lottery"),
        "spec.queueingStrategy",
        '"StrictFIFO", "BestEffortFIFO"',
    ),
    "selector without values": (
        cluster_queue(namespaceSelector={"matchExpressions": [{"key": "team", "operator": "In"}]}),
        "spec.namespaceSelector.matchExpressions[0].values",
        "In and NotIn need values",
    ),
}

"""Objects, each with the field and the words of its refusal."""

REFUSED_NODES: dict[str, tuple[Json, str, str]] = {
    "unknown mode": ({"mode": "Sometimes"}, "spec.nodes.mode", '"Static", "Observe", "Enforce", "Elastic"'),
    "unknown mode of a resource": (
        {"resources": {GPU: "Sometimes"}},
        "spec.nodes.resources",
        '"Static", "Observe", "Enforce", "Elastic"',
    ),
    "17 resources": (
        {"resources": {f"example.com/r{number}": "Static" for number in range(17)}},
        "spec.nodes.resources",
        "must have at most 16 items",
    ),
    "negative headroom": ({"headroom": {GPU: -1}}, "spec.nodes.headroom", "must be at least 0"),
    "negative headroom as text": ({"headroom": {GPU: "-1"}}, "spec.nodes.headroom", "must be at least 0"),
    "headroom of half a GPU": ({"headroom": {GPU: "0.5"}}, "spec.nodes.headroom", NOT_WHOLE),
    "headroom that is no number": ({"headroom": {GPU: "some"}}, "spec.nodes.headroom", "should match"),
    "headroom that nothing keeps": (
        {"headroom": {"memory": "1Gi"}},
        "spec.nodes.headroom",
        "is kept for resources with mode Enforce only",
    ),
    "headroom of static devices": (
        {"mode": "Enforce", "resources": {GPU: "Static"}, "headroom": {GPU: 1}},
        "spec.nodes.headroom",
        "is kept for resources with mode Enforce only",
    ),
}
"""`spec.nodes` of ResourceFlavors, each with the field and the words of its refusal."""

ACCEPTED_NODES: dict[str, Json] = {
    "nothing": {},
    "headroom of devices": {"headroom": {GPU: "1k"}},
    "headroom of a part of a core": {"mode": "Enforce", "headroom": {"cpu": "500m"}},
    "all fields": {
        "mode": "Elastic",
        "resources": {GPU: "Enforce", "memory": "Enforce", "cpu": "Static"},
        "headroom": {GPU: 8, "memory": "1.5Gi"},
    },
}

ACCEPTED = {
    "whole amounts": quota(9),
    "amounts as text": quota("9"),
    "the largest amount": quota(2**63 - 1),
    "several largest amounts": cluster_queue(
        group(
            ["cpu", GPU], a100={"nominalQuota": "9223372036854775"}, spot={"nominalQuota": "9223372036854775"}
        )
    ),
    "part of a core": quota("1500m", "cpu"),
    "memory": quota("1.5Gi", "memory"),
    "hugepages": quota("0.5Gi", "hugepages-1Gi"),
    "pods": quota("1k", "pods"),
    "limits": quota(8, borrowingLimit=0, lendingLimit=8),
    "no groups": cluster_queue(),
    "waiting as configured, without limits": cluster_queue(waitForPodsReady={}),
    "weight 0": cluster_queue(fairSharing={"weight": "0"}),
    "weight in parts": cluster_queue(fairSharing={"weight": "0.75"}),
    "all of Kueue's fields": cluster_queue(
        group(
            GPU, a100={"nominalQuota": 8, "borrowingLimit": 4, "lendingLimit": 2}, spot={"nominalQuota": 0}
        ),
        cohortName="research",
        queueingStrategy="StrictFIFO",
        namespaceSelector={
            "matchLabels": {"team": "a"},
            "matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}],
        },
        flavorFungibility={
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "TryNextFlavor",
            "preference": "PreemptionOverBorrowing",
        },
        preemption={
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100},
            "withinClusterQueue": "LowerOrNewerEqualPriority",
            "minRunTime": {"InClusterQueue": 600, "InCohortReclamation": 60},
        },
        admissionChecksStrategy={"admissionChecks": [{"name": "check", "onFlavors": ["a100"]}]},
        stopPolicy="Hold",
        maxExecutionTime={"default": 3600, "ceiling": 86400},
        fairSharing={"weight": 2},
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
        concurrentAdmissionPolicy={
            "migration": {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "spot"}}
        },
    ),
    "the largest queue": cluster_queue(
        *(
            group([f"example.com/r{g}-{r}" for r in range(8)], **{f"f{g}-{f}": ONE for f in range(64)})
            for g in range(16)
        )
    ),
}
