"""manifests/webhook agrees with the code, with manifests/mutating and within itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from queuectl.kinds.admission import CONTROLLER_USER
from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.settings import load
from queuectl.webhook.server import PATH
from tests.job_kinds import JOB_KINDS

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
WEBHOOK = MANIFESTS / "webhook"
Json = dict[str, Any]


def documents(folder: Path) -> list[Json]:
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [item for name in listed for item in yaml.safe_load_all((folder / name).read_text())]


def one(kind: str, folder: Path = WEBHOOK) -> Json:
    (found,) = [item for item in documents(folder) if item["kind"] == kind]
    return found


def hook() -> Json:
    (found,) = one("MutatingWebhookConfiguration")["webhooks"]
    return dict(found)


def test_the_webhook_may_write_one_secret_and_one_configuration_and_nothing_else() -> None:
    configuration = one("MutatingWebhookConfiguration")["metadata"]["name"]
    secret = one("Secret")
    assert set(secret) == {"apiVersion", "kind", "metadata"}
    assert one("Role")["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [secret["metadata"]["name"]],
            "verbs": ["get", "patch"],
        }
    ]
    assert one("ClusterRole")["rules"] == [
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": [configuration],
            "verbs": ["get", "patch"],
        }
    ]
    for binding in (one("RoleBinding"), one("ClusterRoleBinding")):
        account = one("ServiceAccount")["metadata"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]


def test_the_webhook_is_called_for_the_objects_of_the_mutating_policies() -> None:
    items = documents(MANIFESTS / "mutating")
    mutating = {(item["kind"], item["metadata"]["name"]): item for item in items}
    # Not those of templates: before 1.36 no template gets the name of a user.
    created, updated = (
        mutating["MutatingAdmissionPolicy", name]["spec"]["matchConstraints"]
        | mutating["MutatingAdmissionPolicyBinding", name]["spec"]["matchResources"]
        for name in ("queuectl-suspend", "queuectl-bypass")
    )
    rules = [{key: value for key, value in rule.items() if key != "scope"} for rule in hook()["rules"]]
    assert rules == [
        {**one, "operations": one["operations"] + two["operations"]}
        for one, two in zip(created["resourceRules"], updated["resourceRules"], strict=True)
    ]
    assert {rule["scope"] for rule in hook()["rules"]} == {"Namespaced"}
    assert hook()["objectSelector"] == created["objectSelector"] == updated["objectSelector"]
    assert hook()["objectSelector"]["matchExpressions"][0]["key"] == QUEUE_LABEL
    called = {
        (group, version, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for resource in rule["resources"]
    }
    assert called == {(row.group, row.version, row.plural) for row in JOB_KINDS}
    assert CONTROLLER_USER in hook()["matchConditions"][0]["expression"]


def test_the_webhook_fails_open_after_a_short_timeout_and_excludes_system_namespaces() -> None:
    assert (hook()["failurePolicy"], hook()["timeoutSeconds"], hook()["sideEffects"]) == ("Ignore", 2, "None")
    (expression,) = hook()["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("NotIn", ["queuectl-system", "kube-system"])


def test_configuration_service_and_ports_agree() -> None:
    settings = load(WEBHOOK / "config.yaml", environ={}).webhook
    service, client = one("Service"), hook()["clientConfig"]["service"]
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"webhook": settings.listen.port, "metrics": settings.probes.port}
    assert (client["namespace"], client["name"]) == (
        service["metadata"]["namespace"],
        service["metadata"]["name"],
    )
    assert (client["path"], client["port"]) == (PATH, service["spec"]["ports"][0]["port"])
    assert settings.tls is not None
    assert settings.tls.names == (f"{client['name']}.{client['namespace']}.svc",)
    assert settings.tls.secret == "/".join(one("Secret")["metadata"][part] for part in ("namespace", "name"))
    assert settings.configuration == one("MutatingWebhookConfiguration")["metadata"]["name"]
    selector = service["spec"]["selector"]
    assert selector.items() <= one("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        spec = one(kind)["spec"]
        assert (spec.get("selector") or spec["podSelector"])["matchLabels"] == selector
