"""The content of the manifests: rights, entries of the gate, and names that code and docs refer to."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from queuectl import __version__
from queuectl.core.model.events import PolicyObserved
from queuectl.kinds.gate import GATE
from queuectl.kinds.manifests import policy_name
from queuectl.kinds.policy import POLICY_KINDS, PolicyKind, policy_event
from queuectl.kinds.reserved_keys import (
    ADMISSION_ANNOTATION,
    AUTHOR_ANNOTATION,
    BYPASS_ANNOTATION,
    GROUPS_ANNOTATION,
    POD_LABELS,
    REASON_OF_BYPASS,
    RELEASE_ANNOTATION,
    RESERVED,
    SUBMITTER_ANNOTATION,
    USER_ANNOTATION,
)
from queuectl.kube import proxied as reaching
from queuectl.sandbox.control_plane import CONTROLLER_USER
from queuectl.settings import load
from tests.acceptance.manifests.rendered import (
    COMPONENTS,
    MANIFESTS,
    NAMESPACE,
    WARNINGS,
    Json,
    documents,
    everything,
    one,
    parsed,
    pod_specs,
    rights,
)
from tests.job_kinds import JOB_KINDS

READ = ("get", "list", "watch")
CONTROLLER_RIGHTS = {
    *(("queuectl.dev", kind.plural, None, verb) for kind in POLICY_KINDS.values() for verb in READ),
    *(
        ("queuectl.dev", f"{name}/status", None, verb)
        for name in ("clusterqueues", "localqueues")
        for verb in ("get", "patch")
    ),
    *((row.group, row.plural, None, verb) for row in JOB_KINDS for verb in (*READ, "patch")),
    *((row.group, f"{row.plural}/status", None, "patch") for row in JOB_KINDS),
    ("", "pods", None, "list"),
    ("", "pods", None, "watch"),
    *(
        ("", resource, None, verb)
        for resource in ("namespaces", "nodes", "limitranges", "resourcequotas")
        for verb in READ
    ),
    *(("scheduling.k8s.io", "priorityclasses", None, verb) for verb in READ),
    *(("node.k8s.io", "runtimeclasses", None, verb) for verb in READ),
    *(
        ("resource.k8s.io", resource, None, verb)
        for resource in (
            "resourceclaims",
            "resourceclaimtemplates",
            "deviceclasses",
            "resourceslices",
            "devicetaintrules",
        )
        for verb in READ
    ),
    *(("apiextensions.k8s.io", "customresourcedefinitions", None, verb) for verb in ("list", "watch")),
    *(
        ("admissionregistration.k8s.io", f"validatingadmissionpolic{what}", None, verb)
        for what in ("ies", "ybindings")
        for verb in READ
    ),
    ("events.k8s.io", "events", None, "create"),
}


def test_the_controller_has_exactly_these_rights() -> None:
    assert rights(one("ClusterRole", "queuectl-controller")) == CONTROLLER_RIGHTS
    assert rights(one("Role", "queuectl-leader")) == {
        ("coordination.k8s.io", "leases", "queuectl-controller", verb) for verb in ("get", "update")
    }
    assert one("Lease", "queuectl-controller")["metadata"]["namespace"] == "queuectl-system"


def test_rest_has_exactly_these_rights() -> None:
    assert rights(one("ClusterRole", "queuectl-api")) == {
        ("authentication.k8s.io", "tokenreviews", None, "create"),
        ("authorization.k8s.io", "subjectaccessreviews", None, "create"),
    }
    # Its own certificate, and the objects that publish its CA.
    assert rights(one("Role", "queuectl-api")) == {
        *(("", "secrets", "queuectl-api-tls", verb) for verb in ("get", "patch")),
        *(("", "configmaps", "queuectl-api-ca", verb) for verb in ("get", "patch")),
    }


def test_each_identity_is_bound_to_its_own_roles_alone() -> None:
    bound = set()
    for binding in documents(MANIFESTS):
        if "roleRef" in binding:
            (subject,) = binding["subjects"]
            account = subject["name"]
            if subject["kind"] == "ServiceAccount":
                account = f"system:serviceaccount:{subject['namespace']}:{account}"
            bound.add((account, binding["kind"], binding["roleRef"]["kind"], binding["roleRef"]["name"]))
    rest, viewer = (f"system:serviceaccount:queuectl-system:queuectl-{name}" for name in ("api", "viewer"))
    assert bound == {
        (CONTROLLER_USER, "ClusterRoleBinding", "ClusterRole", "queuectl-controller"),
        (CONTROLLER_USER, "RoleBinding", "Role", "queuectl-leader"),
        (rest, "ClusterRoleBinding", "ClusterRole", "queuectl-api"),
        (rest, "RoleBinding", "Role", "queuectl-api"),
        (viewer, "ClusterRoleBinding", "ClusterRole", "queuectl-viewer"),
        ("system:authenticated", "RoleBinding", "Role", "queuectl-api-callers"),
    }
    assert rights(one("Role", "queuectl-api-callers")) == {
        ("", "configmaps", "queuectl-api-ca", "get"),
        ("", "services/proxy", "https:queuectl-api:rest", "get"),
    }


def test_the_command_line_finds_the_objects_of_the_manifests_by_their_names() -> None:
    service, account = one("Service", reaching.SERVICE), one("ServiceAccount", reaching.VIEWER)
    for found in (service, account, one("ConfigMap", reaching.AUTHORITY)):
        assert found["metadata"]["namespace"] == reaching.NAMESPACE
    assert [port["name"] for port in service["spec"]["ports"]] == ["rest"]
    config = yaml.safe_load((MANIFESTS / "api" / "config.yaml").read_text())
    assert reaching.HOST in config["api"]["tls"]["names"]


def test_no_role_of_ours_may_extend_its_own_rights() -> None:
    for role in everything():
        if role["kind"] in ("ClusterRole", "Role"):
            for group, resource, name, verb in rights(role):
                assert "*" not in (group, resource, verb)
                assert verb not in ("impersonate", "escalate", "bind")
                assert resource not in ("pods/exec", "serviceaccounts/token")
                assert resource != "secrets" or (name is not None and role["kind"] == "Role")


def test_of_the_roles_for_people_only_the_bypass_role_grants_bypass() -> None:
    kinds = [kind.plural for kind in POLICY_KINDS.values()]
    seen = {("queuectl.dev", "workloads", None, verb) for verb in ("get", "list")}
    viewer, admin = one("ClusterRole", "queuectl-viewer"), one("ClusterRole", "queuectl-admin")
    assert rights(viewer) == seen | {("queuectl.dev", kind, None, verb) for kind in kinds for verb in READ}
    assert viewer["metadata"]["labels"] == {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    verbs = (*READ, "create", "update", "patch", "delete")
    release = ("queuectl.dev", "workloads", None, "force-release")
    exempt = ("queuectl.dev", "workloads", None, "exempt")
    policy = {("queuectl.dev", kind, None, verb) for kind in kinds for verb in verbs}
    attribute = ("queuectl.dev", "workloads", None, "attribute")
    grant = ("queuectl.dev", "budgets", None, "grant")
    assert rights(admin) == seen | policy | {release, exempt, attribute, grant}
    bypass = ("queuectl.dev", "workloads", None, "bypass")
    assert rights(one("ClusterRole", "queuectl-bypass")) == {bypass}
    others = [role for role in everything() if role["kind"] in ("ClusterRole", "Role")]
    assert [role["metadata"]["name"] for role in others if bypass in rights(role)] == ["queuectl-bypass"]


@pytest.mark.parametrize("row", JOB_KINDS.rows, ids=lambda row: row.name)
def test_every_job_kind_has_its_entries_in_the_gate(row: Any) -> None:
    policies = {
        policy_name(row): {row.plural, f"{row.plural}/*"},
        "queuectl-self": {row.plural, f"{row.plural}/*"},
    }
    for name, resources in policies.items():
        assert _matched(one("ValidatingAdmissionPolicy", name), row.group, row.version) >= resources
    for name in ("queuectl-suspend", "queuectl-bypass"):
        mutating = one("MutatingAdmissionPolicy", name, MANIFESTS / "mutating")
        assert row.plural in _matched(mutating, row.group, row.version)
    assert ".".join(row.suspend) in str(one("ValidatingAdmissionPolicy", policy_name(row)))


def test_the_policies_protect_what_queuectl_writes_on_objects_of_users() -> None:
    """The one list of all labels and annotations is kinds/written."""
    for annotation in (ADMISSION_ANNOTATION, SUBMITTER_ANNOTATION, BYPASS_ANNOTATION, RELEASE_ANNOTATION):
        assert annotation.startswith(RESERVED)
    pods = json.dumps(one("ValidatingAdmissionPolicy", "queuectl-pods"))
    for row in JOB_KINDS:
        own = json.dumps(one("ValidatingAdmissionPolicy", policy_name(row)))
        assert f"startsWith('{RESERVED}')" in own
        for annotation in (
            *(RELEASE_ANNOTATION, SUBMITTER_ANNOTATION, GROUPS_ANNOTATION, BYPASS_ANNOTATION),
            *(REASON_OF_BYPASS, USER_ANNOTATION),
        ):
            assert f"'{annotation}'" in own
        assert all(f"'{label}'" in text for label in POD_LABELS for text in (own, pods))
    mutating = json.dumps(documents(MANIFESTS / "mutating"))
    assert set(re.findall(RESERVED + "[a-z]+", mutating)) == {
        SUBMITTER_ANNOTATION,
        GROUPS_ANNOTATION,
        BYPASS_ANNOTATION,
    }
    for folder in ("authors", "gate"):
        authors = (MANIFESTS / folder / "authors.yaml").read_text()
        assert set(re.findall(RESERVED + "[a-z]+", authors)) == {AUTHOR_ANNOTATION}


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
    bindings = [item for item in items if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert set(policies) == {binding["spec"]["policyName"] for binding in bindings}
    assert GATE in policies
    for binding in bindings:
        name = binding["spec"]["policyName"]
        assert binding["metadata"]["name"] in (name, f"{name}-of-kueue", f"{name}-of-cronjobs")
        if name in WARNINGS:
            assert binding["spec"]["validationActions"] == ["Warn"]
            assert policies[name]["spec"]["failurePolicy"] == "Ignore"
            continue
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert policies[name]["spec"]["failurePolicy"] == "Fail"
        for validation in policies[name]["spec"]["validations"]:
            assert validation["reason"] in ("Forbidden", "Invalid")
            assert "\n" not in validation["message"]


@pytest.mark.parametrize(("name", "key"), [("class", "priority-class"), ("queue", "queue-name")])
def test_what_is_restricted_is_looked_up_only_for_objects_that_name_a_class_or_a_queue(
    name: str, key: str
) -> None:
    """A policy with parameters is evaluated for each of them, at each write that a binding selects."""
    policy = one("ValidatingAdmissionPolicy", f"queuectl-use-{name}")
    found = {}
    for item in documents(MANIFESTS):
        if (
            item["kind"].endswith("Binding")
            and item.get("spec", {}).get("policyName") == f"queuectl-use-{name}"
        ):
            found[item["metadata"]["name"]] = item["spec"]["matchResources"]
    assert found.pop(f"queuectl-use-{name}-of-cronjobs") == {
        "resourceRules": [policy["spec"]["matchConstraints"]["resourceRules"][-1]]
    }
    assert found == {
        f"queuectl-use-{name}{part}": {
            "objectSelector": {"matchExpressions": [{"key": f"{group}/{key}", "operator": "Exists"}]}
        }
        for part, group in (("", "queuectl.dev"), ("-of-kueue", "kueue.x-k8s.io"))
    }


def test_the_gate_applies_only_to_objects_with_our_label() -> None:
    """So that a fault in the gate can't block other objects."""
    selector = {"matchExpressions": [{"key": "queuectl.dev/queue-name", "operator": "Exists"}]}
    for row in JOB_KINDS:
        binding = one("ValidatingAdmissionPolicyBinding", policy_name(row))
        assert binding["spec"]["matchResources"] == {"objectSelector": selector}


def test_bindings_select_objects_and_policies_do_not() -> None:
    """The API server parses the selector of each policy at each write, before it looks at resource rules."""
    for item in documents(MANIFESTS):
        assert "objectSelector" not in (item.get("spec") or {}).get("matchConstraints", {}), item["metadata"]


PODS = dict(pod_specs())


@pytest.mark.parametrize("name", PODS)
def test_each_pod_is_restricted_and_bounded(name: str) -> None:
    pod = PODS[name]["spec"]
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"].startswith("queuectl")
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        # A digest would be better, and is added when the image is built; `latest` is not a version.
        assert re.fullmatch(r"[a-z0-9./-]+:[a-z0-9.]*\d[a-z0-9.-]*", container["image"]), container["image"]
        for volume in pod["volumes"]:
            assert "hostPath" not in volume
            assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"]


def test_images_of_ours_are_of_this_version() -> None:
    ours = {
        container["image"]
        for template in PODS.values()
        for container in [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]
        if "queuectl/" in container["image"]
    }
    assert ours == {f"ghcr.io/queuectl/queuectl:{__version__}"}


SERVERS = ("queuectl-controller", "queuectl-api")


@pytest.mark.parametrize("name", SERVERS)
def test_servers_have_two_replicas_spread_over_nodes_and_a_disruption_budget(name: str) -> None:
    deployment = one("Deployment", name)["spec"]
    labels = deployment["selector"]["matchLabels"]
    assert deployment["replicas"] == 2
    assert deployment["template"]["metadata"]["labels"] == labels
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels
    budget = one("PodDisruptionBudget", name)["spec"]
    assert (budget["minAvailable"], budget["selector"]["matchLabels"]) == (1, labels)
    (container,) = deployment["template"]["spec"]["containers"]
    probes = {probe: container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
    assert {probe["port"] for probe in probes.values()} == {"metrics"}
    assert probes["liveness"]["path"] != probes["readiness"]["path"]


def test_the_service_of_rest_selects_its_pods_and_port() -> None:
    service = one("Service", "queuectl-api")["spec"]
    pod = one("Deployment", "queuectl-api")["spec"]["template"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    (port,) = service["ports"]
    assert port["targetPort"] in {port["name"] for port in pod["spec"]["containers"][0]["ports"]}


def test_only_the_controller_migrates_the_schema_and_does_so_without_a_token() -> None:
    pod = one("Deployment", "queuectl-controller")["spec"]["template"]["spec"]
    (migrate,) = pod["initContainers"]
    assert migrate["args"] == ["migrate"]
    assert "account" not in {mount["name"] for mount in migrate["volumeMounts"]}
    assert "initContainers" not in one("Deployment", "queuectl-api")["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", SERVERS)
def test_the_shipped_configuration_is_valid_and_listens_on_the_ports_of_the_probes(name: str) -> None:
    section = name.removeprefix("queuectl-")
    settings = load(MANIFESTS / section / "config.yaml", database_url="postgresql://u@h/d", environ={})
    (container,) = one("Deployment", name)["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    if section == "controller":
        listens = {"metrics": settings.controller.listen}
        assert settings.controller.lease == f"{NAMESPACE}/{one('Lease', name)['metadata']['name']}"
    else:
        assert settings.api.probes is not None
        listens = {"rest": settings.api.listen, "metrics": settings.api.probes}
        tls = settings.api.tls
        assert tls is not None
        assert tls.secret == f"{NAMESPACE}/{one('Secret', 'queuectl-api-tls')['metadata']['name']}"
        assert tls.config_map == f"{NAMESPACE}/{one('ConfigMap', 'queuectl-api-ca')['metadata']['name']}"
        assert f"queuectl-api.{NAMESPACE}.svc" in tls.names
    assert {name: address.port for name, address in listens.items()} == ports
    assert {address.host for address in listens.values()} == {"0.0.0.0"}


def test_the_shipped_notifier_finds_its_secret_and_has_no_rights() -> None:
    folder = MANIFESTS / "notifier"
    settings = load(folder / "config.yaml", database_url="postgresql://u@h/d", environ={})
    pod = one("Deployment", "queuectl-notifier", folder)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [port["containerPort"] for port in container["ports"]] == [settings.notifier.listen.port]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    secrets = {volume["name"] for volume in pod["volumes"] if "secret" in volume}
    (sink,) = settings.notifications
    assert sink.slack is not None
    file = sink.slack.url_from.file
    assert file is not None
    assert mounts[str(file.parent)] in secrets
    assert {item["kind"] for item in documents(folder)} == {"ServiceAccount", "Deployment"}


def test_network_policies_allow_only_the_documented_traffic() -> None:
    policies = {
        item["metadata"]["name"]: item["spec"] for item in everything() if item["kind"] == "NetworkPolicy"
    }
    assert policies["queuectl-default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    rest = policies["queuectl-rest"]
    assert rest["ingress"] == [{"ports": [{"protocol": "TCP", "port": "rest"}]}]
    assert rest["podSelector"]["matchLabels"] == one("Service", "queuectl-api")["spec"]["selector"]
    (scraped,) = policies["queuectl-metrics"]["ingress"]
    assert scraped["from"] == [
        {"namespaceSelector": {"matchLabels": {"queuectl.dev/metrics": "allowed"}}},
    ]
    # Every pod of ours is selected by a policy with egress, and the named ports exist.
    for name, template in PODS.items():
        labels = template["metadata"]["labels"]
        out = [
            policy
            for policy in policies.values()
            if "egress" in policy and policy["podSelector"].get("matchLabels", {}).items() <= labels.items()
        ]
        assert out or name == "StatefulSet/queuectl-postgres", name


def test_the_namespace_accepts_only_restricted_pods() -> None:
    labels = one("Namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("component", COMPONENTS)
def test_components_add_objects_only_to_our_own_namespace(component: str) -> None:
    base = {(item["kind"], item["metadata"]["name"]) for item in documents(MANIFESTS)}
    for item in documents(MANIFESTS / component):
        assert item["metadata"].get("namespace", NAMESPACE) == NAMESPACE
        assert (item["kind"], item["metadata"]["name"]) not in base
        assert item["metadata"]["name"].startswith("queuectl")


@pytest.mark.parametrize("kind", POLICY_KINDS.values(), ids=lambda kind: kind.name)
def test_the_controller_can_read_the_example(kind: PolicyKind) -> None:
    of_docs = MANIFESTS.parent / "docs" / "examples"
    examples = [*documents(MANIFESTS / "examples")]
    of_kinds = ("usage-limit.yaml", "budget.yaml", "idle-policy.yaml")
    examples += [one for name in of_kinds for one in parsed(of_docs / name)]
    of_kind = [item for item in examples if item["kind"] == kind.name]
    assert of_kind
    for item in of_kind:
        assert isinstance(policy_event(item), PolicyObserved)


@pytest.mark.parametrize("page", ["install.md", "metrics.md", "operations.md"])
def test_manifests_and_objects_named_in_docs_exist(page: str) -> None:
    text = (MANIFESTS.parent / "docs" / page).read_text()
    for folder in re.findall(r"-k (manifests[a-z/-]*)", text):
        assert (MANIFESTS.parent / folder / "kustomization.yaml").is_file(), folder
    known = {(item["kind"].lower(), item["metadata"]["name"]) for item in everything()}
    for kind, name in re.findall(r"\b(deployment|cronjob|service)/(queuectl[a-z-]*)", text):
        assert (kind, name) in known, f"{kind}/{name}"
