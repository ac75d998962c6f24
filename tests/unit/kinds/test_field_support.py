"""Each field of the CRDs is obeyed by a rule, or makes the queues that it concerns inactive (Q1)."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from docs.tables import unsupported_fields
from queuectl.answers.queue_states import cluster_queue_condition, cohort_condition
from queuectl.core.directory import AffectedObjects, Directory
from queuectl.core.model.events import PolicyObserved
from queuectl.core.model.policy import ClusterQueue, Cohort, Condition, Policy, ResourceFlavor
from queuectl.core.model.workload import ConfigKey
from queuectl.core.quota.cohort_trees import CohortTrees
from queuectl.importers.kueue import import_kueue
from queuectl.kinds.field_support import UNSUPPORTED, leave_out
from queuectl.kinds.policy import POLICY_KINDS, policy_event
from release.crds import definition
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.field_rules import FOR_READERS, RULES

Json = dict[str, Any]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "scheduling.md"
GPU = "nvidia.com/gpu"


@cache
def schema(kind: str) -> Json:
    found: Json = definition(POLICY_KINDS[kind])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def steps(path: str) -> list[str]:
    return re.findall(r"[^.\[\]{}]+|\[\]|\{\}", path)


def node_at(kind: str, path: str) -> Json:
    """The schema of the field at `path`."""
    node = schema(kind)
    marks = {"[]": "items", "{}": "additionalProperties"}
    for step in steps(path):
        node = node[marks[step]] if step in marks else node["properties"][step]
    return node


def leaves(kind: str) -> Iterator[str]:
    """The paths of all fields that users set and that have no fields of their own."""
    for name, node in schema(kind)["properties"].items():
        if name not in ("apiVersion", "kind", "metadata", "status"):
            yield from _leaves(node, name)


def _leaves(node: Json, path: str) -> Iterator[str]:
    inner = [(f"{path}.{name}", child) for name, child in node.get("properties", {}).items()]
    inner += [(path + mark, node[key]) for key, mark in _INNER if key in node]
    if not inner:
        yield path
    for below, child in inner:
        yield from _leaves(child, below)


_INNER = (("items", "[]"), ("additionalProperties", "{}"))
FIELDS = [(kind, path) for kind in POLICY_KINDS for path in leaves(kind)]


def covering(kind: str, path: str) -> str | None:
    """The field in UNSUPPORTED that is `path` or above it."""
    found = UNSUPPORTED.get(kind, {})
    return next((one for one in found if path == one or path.startswith((f"{one}.", f"{one}["))), None)


@pytest.mark.parametrize(("kind", "path"), FIELDS)
def test_each_field_has_a_rule_or_is_unsupported(kind: str, path: str) -> None:
    refused = covering(kind, path)
    obeyed = path in RULES[kind] or path in FOR_READERS.get(kind, ())
    sometimes = refused is not None and UNSUPPORTED[kind][refused].beside is not None
    assert obeyed is (refused is None or sometimes), (
        "a field is obeyed or makes its queues inactive: add it to RULES or to UNSUPPORTED"
    )


def test_the_table_has_no_other_fields_and_no_other_rules() -> None:
    rules = set(re.findall(r"^\*\*([A-Z]\d+)\.\*\*", PAGE.read_text(), re.MULTILINE))
    for kind in POLICY_KINDS:
        assert {*RULES[kind], *FOR_READERS.get(kind, ())} <= set(leaves(kind))
        assert set(RULES[kind].values()) <= rules
        for path in UNSUPPORTED.get(kind, {}):
            assert any(covering(kind, leaf) == path for leaf in leaves(kind))


def test_the_page_of_the_rules_has_the_table_of_unsupported_fields() -> None:
    assert "\n".join(unsupported_fields()) in PAGE.read_text(), "run: make manifests"


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind in UNSUPPORTED for path in UNSUPPORTED[kind]]
)
def test_the_crd_says_that_a_field_is_not_supported(kind: str, path: str) -> None:
    assert "Not supported" in node_at(kind, path)["description"]


# --- what obeying means: the core gets another value -----------------------------------------------------


def quotas(**more: object) -> Json:
    quota = {"name": GPU, "nominalQuota": 8, "borrowingLimit": 4, "lendingLimit": 4, **more}
    flavor = {"name": "a100", "resources": [quota], "waitBeforeNextSeconds": 60}
    return {"coveredResources": [quota["name"]], "flavors": [flavor]}


SELECTOR = {
    "matchLabels": {"team": "a"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x"]}],
}
SAMPLES: dict[str, Json] = {
    "ClusterQueue": {
        "spec": {
            "resourceGroups": [quotas()],
            "cohortName": "all",
            "queueingStrategy": "StrictFIFO",
            "headCanNeverRun": "PassOver",
            "namespaceSelector": SELECTOR,
            "flavorFungibility": {
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "TryNextFlavor",
                "preference": "PreemptionOverBorrowing",
            },
            "preemption": {
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5},
                "withinClusterQueue": "LowerPriority",
                "minRunTime": {
                    "InClusterQueue": 1,
                    "InCohortReclamation": 1,
                    "InCohortFairSharing": 1,
                    "InCohortReclaimWhileBorrowing": 1,
                },
            },
            "stopPolicy": "None",
            "stopReason": "by ada: node 7",
            "maxExecutionTime": {"default": 60, "ceiling": 3600, "onExceeded": "Fail"},
            "waitForPodsReady": {
                "schedulingTimeoutSeconds": 60,
                "startupTimeoutSeconds": 600,
                "recoveryTimeoutSeconds": 60,
                "requeuing": {
                    "backoffBaseSeconds": 10,
                    "backoffLimitSeconds": 60,
                    "backoffLimitCount": 3,
                    "jitterPercent": 20,
                },
            },
            "fairSharing": {"weight": 2},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing", "userOrder": "PastUsage"},
        }
    },
    "Cohort": {
        "spec": {
            "parentName": "all",
            "resourceGroups": [quotas()],
            "fairSharing": {
                "weight": 2,
                "enabled": True,
                "preemptionStrategies": ["LessThanOrEqualToFinalShare"],
                "admissionOrder": "PastUsage",
            },
            "capacityShortage": "ByPriority",
        }
    },
    "ResourceFlavor": {
        "spec": {
            "nodeLabels": {"gpu": "a100"},
            "nodeTaints": [{"key": "spot", "value": "yes", "effect": "NoSchedule"}],
            "tolerations": [
                {
                    "key": "spot",
                    "operator": "Equal",
                    "value": "yes",
                    "effect": "NoExecute",
                    "tolerationSeconds": 5,
                }
            ],
            "nodes": {"mode": "Enforce", "resources": {GPU: "Enforce"}, "headroom": {GPU: 8}},
        }
    },
    "LocalQueue": {
        "spec": {
            "clusterQueue": "one",
            "stopPolicy": "None",
            "stopReason": "by ada: node 7",
            "maxExecutionTime": {"default": 60, "ceiling": 3600, "onExceeded": "Fail"},
            "fairSharing": {"weight": 2},
        }
    },
    "WorkloadPriorityClass": {"value": 5, "description": "first"},
    "UsageLimit": {
        "spec": {
            "target": {"kind": "LocalQueue", "namespace": "ns", "name": "one"},
            "subject": {"kind": "Account", "key": "project", "name": "ml"},
            "running": 4,
            "pending": 10,
            "resources": {GPU: 8},
            "flavors": [{"name": "a100", "resources": {GPU: 4}}],
            "minRequest": {GPU: 1},
        }
    },
    "IdlePolicy": {
        "spec": {
            "target": {"kind": "LocalQueue", "namespace": "ns", "name": "one"},
            "notifyAfterSeconds": 3600,
            "holdAfterSeconds": 7200,
            "lowerAfterSeconds": 7200,
            "lowerClass": "idle",
            "dryRun": False,
        }
    },
    "Budget": {
        "spec": {
            "target": {"kind": "LocalQueue", "namespace": "ns", "name": "one"},
            "subject": {"kind": "Account", "key": "project", "name": "ml"},
            "resource": GPU,
            "hours": 100,
            "period": {"kind": "Month", "timeZone": "Europe/Berlin"},
            "mode": "Safe",
            "refunds": {"preempted": 50, "nodeFailures": 50},
            "grants": [{"hours": 5, "at": "2026-11-01T00:00:00Z", "subject": "ml", "reason": "a deadline"}],
            "onExhausted": "Refuse",
        }
    },
}
"""Objects with all fields that are obeyed."""
_GROUP = "spec.resourceGroups[]"
TOGETHER: dict[str, Json] = {
    "spec.grants[].at": {"spec.grants[].at": "2026-11-02T00:00:00Z"},
    f"{_GROUP}.coveredResources[]": {_GROUP: quotas(name="cpu")},
    f"{_GROUP}.flavors[].resources[].name": {_GROUP: quotas(name="cpu")},
    "spec.flavorFungibility.whenCanBorrow": {
        "spec.flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
    },
    "spec.flavorFungibility.whenCanPreempt": {
        "spec.flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"}
    },
    "spec.preemption.reclaimWithinCohort": {"spec.preemption.reclaimWithinCohort": "LowerPriority"},
    "spec.namespaceSelector.matchExpressions[].operator": {
        "spec.namespaceSelector.matchExpressions[].operator": "NotIn"
    },
    "spec.target.kind": {"spec.target": {"kind": "ClusterQueue", "name": "one"}},
    "spec.subject.kind": {"spec.subject": {"kind": "User", "name": "ml"}},
    "spec.period.kind": {"spec.period.kind": "Week"},
    "spec.period.timeZone": {"spec.period.timeZone": "Asia/Kathmandu"},
    **{
        f"spec.period.{name}": {
            "spec.period": {"kind": "Dates", "begins": begins, "ends": "2026-12-01T00:00:00Z"}
        }
        for name, begins in (("begins", "2026-11-01T00:00:00Z"), ("ends", "2026-11-02T00:00:00Z"))
    },
    "spec.cancelAfterSeconds": {
        "spec": {"target": {"kind": "Cohort", "name": "one"}, "cancelAfterSeconds": 7200, "dryRun": False}
    },
    "spec.onExhausted": {"spec.onExhausted": "Wait"},
    "spec.lowerClass": {"spec.onExhausted": "LowerClass", "spec.lowerClass": "scavenge"},
    "spec.nodes.resources{}": {"spec.nodes": {"mode": "Enforce", "resources": {GPU: "Static"}}},
    "spec.tolerations[].effect": {"spec.tolerations[]": {"key": "spot", "effect": "NoSchedule"}},
}
"""Fields that change together with others only, or to one other value, with what is set then."""


def whole(kind: str, content: Json, name: str = "one") -> Json:
    metadata = {"name": name} | ({"namespace": "ns"} if POLICY_KINDS[kind].namespaced else {})
    return {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": kind,
        "metadata": metadata,
        **copy.deepcopy(content),
    }


def value(obj: Json) -> Policy:
    event = policy_event(obj)
    assert isinstance(event, PolicyObserved), event
    return event.value


def put(obj: Json, path: str, new: Any) -> None:
    """Set the field at `path`, in the first item of each list and under the only key of each map."""
    *above, last = steps(path)
    at: Any = obj
    for step in above:
        at = at[0] if step == "[]" else at.setdefault(step, {})
    at[0 if last == "[]" else next(iter(at)) if last == "{}" else last] = new


def get(obj: Any, path: str) -> Any:
    for step in steps(path):
        obj = obj[0] if step == "[]" else next(iter(obj.values())) if step == "{}" else obj[step]
    return obj


def other(kind: str, path: str, now: Any) -> Any:
    """Another valid value of the field."""
    node = node_at(kind, path)
    if "enum" in node:
        return next(one for one in node["enum"] if one != now)
    return not now if isinstance(now, bool) else now + 1 if isinstance(now, int) else f"{now}x"


@pytest.mark.parametrize(("kind", "path"), [(kind, path) for kind in RULES for path in RULES[kind]])
def test_a_change_of_an_obeyed_field_changes_the_value_that_the_core_gets(kind: str, path: str) -> None:
    before = whole(kind, SAMPLES[kind])
    after = copy.deepcopy(before)
    for where, new in TOGETHER.get(path, {path: None}).items():
        put(after, where, new if new is not None else other(kind, path, get(before, path)))
    assert value(after) != value(before)


# --- what not obeying means ------------------------------------------------------------------------------


OBJECTS = (
    whole("Cohort", {"spec": {"parentName": "all"}}, "research"),
    whole("Cohort", {"spec": {}}, "all"),
    whole("ResourceFlavor", {"spec": {"nodeLabels": {"gpu": "a100"}}}, "a100"),
    whole("ClusterQueue", {"spec": {"resourceGroups": [quotas()], "cohortName": "research"}}, "concerned"),
    whole("ClusterQueue", {"spec": {}}, "other"),
)
CONCERNED = {"ClusterQueue": "concerned", "Cohort": "research", "ResourceFlavor": "a100"}
"""By kind, the object that gets the field."""


def sample(node: Json) -> Any:
    """A small value of this schema."""
    if "properties" in node:
        return {name: sample(child) for name, child in node["properties"].items()}
    if "items" in node:
        return [sample(node["items"])]
    return True if node["type"] == "boolean" else node.get("enum", ["a"])[0]


def conditions(objects: list[Json]) -> dict[str, Condition]:
    """Of the ClusterQueues; those of the controller and of REST are equal."""
    directory, values = Directory(), [value(obj) for obj in objects]
    for one in values:
        directory.observe(one, AffectedObjects())
    found = {name: directory.condition(name) for name in directory.queues}
    flavors = {one.name: one for one in values if isinstance(one, ResourceFlavor)}
    cohorts = {one.name: one for one in values if isinstance(one, Cohort)}
    for one in values:
        if isinstance(one, ClusterQueue):
            assert cluster_queue_condition(one, flavors, cohorts) == found[one.name]
    return found


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind in UNSUPPORTED for path in UNSUPPORTED[kind]]
)
def test_a_queue_with_an_unsupported_field_is_inactive_and_names_the_field(kind: str, path: str) -> None:
    objects = [copy.deepcopy(obj) for obj in OBJECTS]
    assert all(condition.active for condition in conditions(objects).values())
    obj = next(obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) == (kind, CONCERNED[kind]))
    put(obj, path, sample(node_at(kind, path)))
    found = conditions(objects)
    assert found["other"].active
    where = "" if kind == "ClusterQueue" else f"{kind}/{CONCERNED[kind]} "
    why = UNSUPPORTED[kind][path].why
    assert found["concerned"] == Condition(False, "Unsupported", f"{where}{path}: {why}")


def test_a_condition_is_active_again_without_the_field() -> None:
    directory, affected = Directory(), AffectedObjects()
    for obj in OBJECTS:
        directory.observe(value(obj), affected)
    racks = whole(
        "ResourceFlavor", {"spec": {"nodeLabels": {"gpu": "a100"}, "topologyName": "racks"}}, "a100"
    )
    directory.observe(value(racks), affected)
    assert directory.condition("concerned").reason == "Unsupported"
    directory.observe(value(OBJECTS[2]), affected := AffectedObjects())
    assert directory.condition("concerned").active
    assert affected.cluster_queues == {"concerned"}


def test_fair_sharing_is_decided_by_a_root_and_not_ignored_below_one() -> None:
    sharing = {"fairSharing": {"enabled": False}}
    root = whole("Cohort", {"spec": sharing}, "all")
    assert conditions([OBJECTS[0], root, *OBJECTS[2:]])["concerned"].active
    below = whole("Cohort", {"spec": {**sharing, "parentName": "all"}}, "research")
    assert conditions([below, *OBJECTS[1:]])["concerned"].reason == "Unsupported"
    keys = {
        ConfigKey("Cohort", "", "research"): value(below),
        ConfigKey("Cohort", "", "all"): value(OBJECTS[1]),
    }
    trees = CohortTrees(keys.values())
    assert cohort_condition("research", keys, trees).reason == "Unsupported"
    assert cohort_condition("all", keys, trees).active


def test_an_import_leaves_out_what_makes_a_queue_inactive_and_says_so() -> None:
    for kind, fields in UNSUPPORTED.items():
        for path, field in fields.items():
            if field.beside is not None:
                continue
            obj = whole(
                kind, {"spec": {"nodeLabels": {"gpu": "a100"}}} if kind == "ResourceFlavor" else {"spec": {}}
            )
            put(obj, path, sample(node_at(kind, path)))
            found = import_kueue([("", {**obj, "apiVersion": "kueue.x-k8s.io/v1beta2"})], JOB_KINDS)
            assert [(note.field, note.text) for note in found.notes if note.left_out] == [
                (path, f"{field.why}: {field.without}")
            ]
            (made,) = found.objects
            assert value(made).unsupported == ()  # type: ignore[union-attr]
            assert leave_out(kind, made) == {}
