"""The gate counts as in force while each policy and binding is as this version makes it, and no longer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from queuectl.core.model.events import ContextGone, ContextObserved, Event
from queuectl.core.model.policy import Gate
from queuectl.kinds.gate import BINDING, GATE, GATE_LABEL, POLICY, GateWatch, expected
from queuectl.kinds.labels import OWN
from tests.acceptance.manifests.rendered import MANIFESTS, documents
from tests.builders import T0
from tests.job_kinds import JOB_KINDS

Json = dict[str, Any]
Key = tuple[str, str]
EXPECTED: Final = expected(JOB_KINDS, OWN)
LATER: Final = (T0 + timedelta(days=3)).isoformat()


def stored(created: str = T0.isoformat()) -> dict[Key, Json]:
    """The policies and bindings of the gate as an API server has them, with its defaults."""
    found = {}
    for obj in documents(MANIFESTS / "gate"):
        if GATE_LABEL in obj["metadata"].get("labels", {}):
            obj = copy.deepcopy(obj)
            obj["metadata"]["creationTimestamp"] = created
            constraints = obj["spec"].get("matchConstraints")
            if constraints is not None:
                constraints |= {"matchPolicy": "Equivalent", "namespaceSelector": {}}
                constraints.setdefault("objectSelector", {})
                for rule in constraints["resourceRules"]:
                    rule["scope"] = "*"
            found[obj["kind"], obj["metadata"]["name"]] = obj
    return found


def watched(objects: dict[Key, Json]) -> tuple[GateWatch, list[Event]]:
    watch = GateWatch(JOB_KINDS, OWN)
    return watch, [event for (kind, _), obj in objects.items() for event in watch.observe(kind, obj)]


def test_the_policy_of_a_kind_has_as_many_lines_as_docs_say() -> None:
    texts = [path.read_text() for path in (MANIFESTS / "gate" / "kinds").glob("*.yaml")]
    lines = sorted(
        len(text.partition("\n---\n")[0].splitlines()) for text in texts if f"kind: {POLICY}\n" in text
    )
    page = MANIFESTS.parent / "docs/decisions/0022-the-gate-is-in-the-api-server.md"
    assert f"reads {lines[0]} to {lines[-1]} lines" in page.read_text()


def test_with_all_policies_and_bindings_the_gate_is_in_force_since_the_first_was_made() -> None:
    objects = stored()
    objects[POLICY, "queuectl-scale"]["metadata"]["creationTimestamp"] = LATER
    watch, events = watched(objects)
    assert events == [ContextObserved(Gate(GATE, T0))]
    assert watch.missing() == []
    policies = len(JOB_KINDS.rows) - 1 + len(("self", "pods", "scale", "use-class", "use-queue"))
    more = len(("use-class", "use-queue")) * len(("of-kueue", "of-cronjobs")) + 2 * len(("attribution",))
    assert len(objects) == 2 * policies + more


@pytest.mark.parametrize("key", EXPECTED, ids=lambda key: "-".join(key))
def test_without_one_of_them_there_is_no_gate(key: Key) -> None:
    objects = stored()
    watch, _ = watched(objects)
    assert watch.gone(*key) == [ContextGone(Gate, GATE)]
    assert watch.gone(*key) == []
    assert watch.observe(key[0], objects[key]) == [ContextObserved(Gate(GATE, T0))]
    assert watched({other: obj for other, obj in objects.items() if other != key})[1] == []


def _set(path: str, value: object) -> Callable[[Json], None]:
    def change(spec: Json) -> None:
        *parents, last = path.split("/")
        holder: Any = spec
        for step in parents:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        holder[last] = value

    return change


CHANGES: Final[dict[str, tuple[Key, Callable[[Json], None], str]]] = {
    "a binding that only audits": (
        (BINDING, "queuectl-jobs"),
        _set("validationActions", ["Audit"]),
        "spec.validationActions",
    ),
    "a binding that warns": (
        (BINDING, "queuectl-jobs"),
        _set("validationActions", ["Warn", "Audit"]),
        "spec.validationActions",
    ),
    "a binding of another policy": (
        (BINDING, "queuectl-jobs"),
        _set("policyName", "queuectl-scale"),
        "spec.policyName",
    ),
    "a binding for some namespaces": (
        (BINDING, "queuectl-jobs"),
        _set("matchResources", {"namespaceSelector": {"matchLabels": {"a": "b"}}}),
        "spec.matchResources",
    ),
    "a binding with parameters": (
        (BINDING, "queuectl-scale"),
        _set("paramRef/parameterNotFoundAction", "Deny"),
        "spec.paramRef",
    ),
    "a policy that fails open": (
        (POLICY, "queuectl-jobs"),
        _set("failurePolicy", "Ignore"),
        "spec.failurePolicy",
    ),
    "a policy for some namespaces": (
        (POLICY, "queuectl-jobs"),
        _set("matchConstraints/namespaceSelector", {"matchLabels": {"a": "b"}}),
        "spec.matchConstraints.namespaceSelector",
    ),
    "a policy that leaves resources out": (
        (POLICY, "queuectl-jobs"),
        _set("matchConstraints/excludeResourceRules", [{"resources": ["jobs"]}]),
        "spec.matchConstraints.excludeResourceRules",
    ),
    "a policy with a further condition": (
        (POLICY, "queuectl-jobs"),
        lambda spec: spec["matchConditions"].append({"name": "never", "expression": "false"}),
        "spec.matchConditions",
    ),
    "a policy with another condition": (
        (POLICY, "queuectl-jobs"),
        _set("matchConditions/1/expression", "request.userInfo.username != 'bob'"),
        "spec.matchConditions[1].expression",
    ),
    "a policy of another version": (
        (POLICY, "queuectl-jobs"),
        _set("validations/2/expression", "true"),
        "spec.validations[2].expression",
    ),
    "a policy with fewer rules": (
        (POLICY, "queuectl-jobs"),
        lambda spec: spec["validations"].pop(),
        "spec.validations",
    ),
    "a policy of fewer operations": (
        (POLICY, "queuectl-pods"),
        _set("matchConstraints/resourceRules/0/operations", ["UPDATE"]),
        "spec.matchConstraints.resourceRules[0].operations",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_policy_or_binding_that_was_changed_is_no_gate_and_its_field_is_named(what: str) -> None:
    key, change, field = CHANGES[what]
    objects = stored()
    watch, _ = watched(objects)
    changed = copy.deepcopy(objects[key])
    change(changed["spec"])
    assert watch.observe(key[0], changed) == [ContextGone(Gate, GATE)]
    problem = watch.problem(key[0], changed)
    assert problem is not None
    assert problem.startswith(field)
    assert watch.missing() == [key]
    assert watched(objects | {key: changed})[1] == []
    assert watch.observe(key[0], objects[key]) == [ContextObserved(Gate(GATE, T0))]


def test_a_binding_that_denies_and_audits_is_in_force() -> None:
    objects = stored()
    objects[BINDING, "queuectl-jobs"]["spec"]["validationActions"] = ["Audit", "Deny"]
    assert watched(objects)[1] == [ContextObserved(Gate(GATE, T0))]


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"name": "queuectl-jobs"}, "spec": 3}])
def test_a_malformed_policy_is_no_gate(obj: Json) -> None:
    watch, _ = watched(stored())
    events = watch.observe(POLICY, obj)
    assert events == ([ContextGone(Gate, GATE)] if obj.get("metadata") else [])


def test_policies_of_others_do_not_matter() -> None:
    watch, _ = watched(stored())
    other = {"metadata": {"name": "others", "creationTimestamp": LATER}, "spec": {}}
    assert watch.observe(POLICY, other) == []
    assert watch.problem(POLICY, other) is None
    assert watch.gone(POLICY, "others") == []
