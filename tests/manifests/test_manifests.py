"""What the manifests say, compared with what must be so: rights, gate rows, names others rely on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.core.events import PolicyObserved
from queuectl.kinds.context import GATE
from queuectl.kinds.jobs import JOB_KINDS
from queuectl.kinds.policy import POLICY_KINDS, PolicyKind, policy_event
from queuectl.sandbox.control_plane import CONTROLLER_USER
from queuectl.settings import load

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
Json = dict[str, Any]


def documents(folder: Path) -> list[Json]:
    """All that `kubectl apply -k` of this folder would send, but for generators."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    found: list[Json] = []
    for entry in kustomization["resources"]:
        path = folder / entry
        found += documents(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    return found


def one(kind: str, name: str, folder: Path = MANIFESTS) -> Json:
    (found,) = [
        item for item in documents(folder) if item["kind"] == kind and item["metadata"]["name"] == name
    ]
    return found


READ = ("get", "list", "watch")
CONTROLLER_RIGHTS = {
    *(("queuectl.dev", kind.plural, None, verb) for kind in POLICY_KINDS.values() for verb in READ),
    *(
        ("queuectl.dev", f"{name}/status", None, verb)
        for name in ("clusterqueues", "localqueues")
        for verb in ("get", "patch")
    ),
    *(("batch", "jobs", None, verb) for verb in (*READ, "patch")),
    ("batch", "jobs/status", None, "patch"),
    *(("kubeflow.org", "pytorchjobs", None, verb) for verb in (*READ, "patch")),
    ("", "pods", None, "list"),
    *(("", resource, None, verb) for resource in ("namespaces", "nodes") for verb in READ),
    *(("scheduling.k8s.io", "priorityclasses", None, verb) for verb in READ),
    *(("node.k8s.io", "runtimeclasses", None, verb) for verb in READ),
    *(("admissionregistration.k8s.io", "validatingadmissionpolicies", GATE, verb) for verb in READ),
    ("events.k8s.io", "events", None, "create"),
}


def rights(role: Json) -> set[tuple[str, str, str | None, str]]:
    found = set()
    for rule in role["rules"]:
        assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [None]):
                    found |= {(group, resource, name, verb) for verb in rule["verbs"]}
    return found


def test_the_controller_has_exactly_these_rights() -> None:
    assert rights(one("ClusterRole", "queuectl-controller")) == CONTROLLER_RIGHTS
    assert rights(one("Role", "queuectl-leader")) == {
        ("coordination.k8s.io", "leases", "queuectl-controller", verb) for verb in ("get", "update")
    }
    assert one("Lease", "queuectl-controller")["metadata"]["namespace"] == "queuectl-system"


def test_nobody_else_is_bound_to_anything() -> None:
    bindings = [
        item for item in documents(MANIFESTS) if item["kind"].endswith("Binding") and "roleRef" in item
    ]
    assert {(item["kind"], item["roleRef"]["name"]) for item in bindings} == {
        ("ClusterRoleBinding", "queuectl-controller"),
        ("RoleBinding", "queuectl-leader"),
    }
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert f"system:serviceaccount:{subject['namespace']}:{subject['name']}" == CONTROLLER_USER


def test_roles_for_people_grant_no_bypass() -> None:
    viewer = rights(one("ClusterRole", "queuectl-viewer"))
    admin = rights(one("ClusterRole", "queuectl-queue-admin"))
    assert viewer == {("queuectl.dev", "localqueues", None, verb) for verb in READ}
    verbs = (*READ, "create", "update", "patch", "delete")
    assert admin == {
        ("queuectl.dev", kind.plural, None, verb) for kind in POLICY_KINDS.values() for verb in verbs
    }


@pytest.mark.parametrize("row", JOB_KINDS.values(), ids=lambda row: row.name)
def test_every_job_kind_has_its_rows_in_the_gate(row: Any) -> None:
    policies = {
        "queuectl-jobs": {row.plural, f"{row.plural}/status"},
        "queuectl-self": {row.plural, f"{row.plural}/*"},
    }
    for name, resources in policies.items():
        assert _matched(one("ValidatingAdmissionPolicy", name), row.group, row.version) >= resources
    suspend = one("MutatingAdmissionPolicy", "queuectl-suspend", MANIFESTS / "mutating")
    assert row.plural in _matched(suspend, row.group, row.version)
    nested = row.suspend == ("spec", "runPolicy", "suspend")
    assert nested == (row.group == "kubeflow.org")
    assert nested or row.suspend == ("spec", "suspend")


def _matched(policy: Json, group: str, version: str) -> set[str]:
    found: set[str] = set()
    for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
        if group in rule["apiGroups"] and version in rule["apiVersions"]:
            found |= set(rule["resources"])
    return found


def test_every_policy_is_bound_denies_and_fails_closed() -> None:
    items = documents(MANIFESTS)
    policies = {
        item["metadata"]["name"]: item for item in items if item["kind"] == "ValidatingAdmissionPolicy"
    }
    bindings = {
        item["spec"]["policyName"]: item
        for item in items
        if item["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert set(policies) == set(bindings)
    assert GATE in policies
    for name, binding in bindings.items():
        assert binding["metadata"]["name"] == name
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert policies[name]["spec"]["failurePolicy"] == "Fail"
        for validation in policies[name]["spec"]["validations"]:
            assert validation["reason"] in ("Forbidden", "Invalid")
            assert "\n" not in validation["message"]


def test_the_gate_looks_at_nothing_but_our_label() -> None:
    """So that a fault in it can't stop anybody else's work."""
    gate = one("ValidatingAdmissionPolicy", GATE)
    selector = {"matchExpressions": [{"key": "queuectl.dev/queue-name", "operator": "Exists"}]}
    assert gate["spec"]["matchConstraints"]["objectSelector"] == selector


def test_the_deployment_is_restricted_and_alone() -> None:
    deployment = one("Deployment", "queuectl")["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    pod = deployment["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["serviceAccountName"] == "queuectl"
    for container in pod["initContainers"] + pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert "limits" in container["resources"]


def test_the_shipped_configuration_is_valid() -> None:
    settings = load(MANIFESTS / "controller" / "config.yaml", database_url="postgresql://u@h/d", environ={})
    probes = one("Deployment", "queuectl")["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert [port["containerPort"] for port in probes] == [settings.controller.listen.port]
    assert settings.controller.listen.host == "0.0.0.0"


@pytest.mark.parametrize("kind", POLICY_KINDS.values(), ids=lambda kind: kind.name)
def test_the_example_is_read_by_the_controller(kind: PolicyKind) -> None:
    found = [item for item in documents(MANIFESTS / "examples") if item["kind"] == kind.name]
    assert found
    for item in found:
        assert isinstance(policy_event(item), PolicyObserved)
