"""The manifests on a real API server: all are accepted, and each identity has its rights and no others."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.tables import POLICIES
from queuectl.importers.slurm import import_slurm
from queuectl.importers.slurm_text import read
from queuectl.sandbox.control_plane import CONTROLLER_USER
from tests.acceptance.e2e.site import eventually
from tests.acceptance.manifests.applied import Applied
from tests.acceptance.manifests.rendered import (
    COMPONENTS,
    MANIFESTS,
    NAMESPACE,
    Json,
    Right,
    documents,
    one,
    pod_specs,
    rights,
)
from tests.unit.kinds.slurm_sites import CONDO

pytestmark = pytest.mark.asyncio(loop_scope="session")

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
ANYONE = "system:serviceaccount:default:nobody"
OPERATOR_KINDS = ("PodMonitor", "PrometheusRule")


async def test_the_manifests_may_be_applied_again_and_no_deployment_rolls(applied: Applied) -> None:
    async def generations() -> str:
        kinds = "deployments,poddisruptionbudgets,validatingadmissionpolicies,customresourcedefinitions"
        columns = "-o=custom-columns=KIND:.kind,NAME:.metadata.name,GENERATION:.metadata.generation"
        return await applied.kubectl("get", kinds, "--all-namespaces", columns)

    before = await generations()
    await applied.kubectl("apply", "-k", str(MANIFESTS))
    assert await generations() == before


@pytest.mark.parametrize("component", COMPONENTS)
async def test_each_component_is_accepted(applied: Applied, component: str) -> None:
    if component in ("mutating", "authors", "default-queue") and applied.old:
        return  # not served there: the webhook replaces it
    if component.endswith("operator"):
        await _define_operator_kinds(applied)
    folder = MANIFESTS / component
    said = await applied.kubectl("apply", "--server-side", "--dry-run=server", "-k", str(folder))
    assert "Warning" not in said
    assert len(said.splitlines()) >= len(documents(folder))


async def test_the_first_job_of_the_install_page_is_accepted(applied: Applied, tmp_path: Path) -> None:
    page = (MANIFESTS.parent / "docs" / "install.md").read_text()
    (text,) = re.findall(r"^kubectl apply -f - <<'EOF'\n(.*?)^EOF$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "first.yaml").write_text(text)
    said = await applied.kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "first.yaml"))
    assert [line.split()[0].partition("/")[2] for line in said.splitlines() if "Warning" not in line] == [
        *("default", "shared", "main", "hello")
    ]


async def test_the_policies_of_the_example_page_are_accepted(applied: Applied) -> None:
    """With the namespaces of their LocalQueues, which they do not contain."""
    policies = sorted(POLICIES.glob("*/policy.yaml"))
    named = {name for path in policies for name in re.findall(r"namespace: ([a-z-]+)", path.read_text())}
    for name in sorted(named):
        body = {"metadata": {"name": name}}
        await applied.admin.request("POST", "/api/v1/namespaces", body)
    for path in policies:
        said = await applied.kubectl("apply", "--dry-run=server", "-f", str(path))
        assert "Warning" not in said
        assert len(said.splitlines()) == len(list(yaml.safe_load_all(path.read_text())))


async def test_an_imported_slurm_site_is_accepted(applied: Applied, tmp_path: Path) -> None:
    records = [record for path in CONDO for record in read(path.read_bytes(), path.name)]
    made = [obj for obj in import_slurm(records).objects if obj["kind"] != "LocalQueue"]
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump_all(made))
    said = await applied.kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "policy.yaml"))
    assert "Warning" not in said
    assert len(said.splitlines()) == len(made)


async def test_kubectl_explains_each_choice_of_a_policy(applied: Applied) -> None:
    said = " ".join((await applied.kubectl("explain", "clusterqueue.spec.preemption")).split())
    assert "Victims are suspended and pending again" in said
    assert "LowerOrNewerEqualPriority: also those of equal priority that were created later." in said
    assert "reclaimWithinCohort <string>" in said


async def _define_operator_kinds(applied: Applied) -> None:
    """The kinds of the Prometheus Operator, without their fields."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for kind in OPERATOR_KINDS:
        plural = f"{kind.lower()}s"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        spec = {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        }
        await applied.admin.request(
            "POST", path, {"metadata": {"name": f"{plural}.monitoring.coreos.com"}, "spec": spec}
        )
    await applied.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


@pytest.mark.parametrize("name", [name for name, _ in pod_specs()])
async def test_each_pod_is_admitted_to_the_restricted_namespace(applied: Applied, name: str) -> None:
    template = dict(pod_specs())[name]
    pod: Json = {"metadata": {"name": "probe", **template["metadata"]}, "spec": template["spec"]}
    for claim in ("data",) if name.startswith("StatefulSet") else ():
        pod["spec"]["volumes"].append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    made = await applied.admin.request("POST", path, pod, query={"dryRun": "All"})
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True


IDENTITIES = {
    CONTROLLER_USER: ("ClusterRole/queuectl-controller", "Role/queuectl-leader"),
    f"system:serviceaccount:{NAMESPACE}:queuectl-api": ("ClusterRole/queuectl-api", "Role/queuectl-api"),
    f"system:serviceaccount:{NAMESPACE}:queuectl-webhook": (
        "ClusterRole/queuectl-webhook",
        "Role/queuectl-webhook",
    ),
}


@pytest.mark.parametrize("user", IDENTITIES, ids=lambda user: user.rpartition(":")[2])
async def test_each_identity_has_the_rights_of_its_roles_and_no_others(applied: Applied, user: str) -> None:
    """Every verb on every resource that this server has, by its access review."""
    webhook = "webhook" in user
    if webhook:
        await applied.kubectl("apply", "-f", str(MANIFESTS / "webhook" / "account.yaml"))
    granted: set[Right] = set()
    for role in IDENTITIES[user]:
        kind, _, name = role.partition("/")
        granted |= rights(one(kind, name, MANIFESTS / "webhook" if webhook else MANIFESTS))
    asked = granted | {("kubeflow.org", "pytorchjobs", None, verb) for verb in VERBS}
    asked |= {
        (group, resource, None, verb) for group, resource in await _resources(applied) for verb in VERBS
    }
    answers: dict[Right, bool] = {}

    async def ask(right: Right) -> None:
        async with together:
            answers[right] = await applied.may(user, right)
            if answers[right] and right not in granted:
                # A right that every authenticated user has does not count as one of this identity.
                answers[right] = not await applied.may(ANYONE, right)

    together = asyncio.Semaphore(16)
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for right in asked:
            tasks.create_task(ask(right))
    assert {right for right, yes in answers.items() if yes} == granted
    assert len(answers) > 300


async def _resources(applied: Applied) -> set[tuple[str, str]]:
    """Group and name of each resource, subresources too."""
    groups = await applied.admin.request("GET", "/apis")
    versions = [("", "/api/v1")]
    versions += [
        (group["name"], f"/apis/{group['preferredVersion']['groupVersion']}") for group in groups["groups"]
    ]
    found: set[tuple[str, str]] = set()
    for group, path in versions:
        listed = await applied.admin.request("GET", path)
        found |= {(group, resource["name"]) for resource in listed["resources"]}
    return found


async def test_a_user_with_the_view_role_in_a_namespace_sees_its_workloads_and_no_others(
    applied: Applied,
) -> None:
    rbac = "rbac.authorization.k8s.io"
    for role, user in (("view", "viewer"), ("edit", "editor"), ("admin", "owner")):
        body: dict[str, Any] = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        }
        await applied.admin.request("POST", f"/apis/{rbac}/v1/namespaces/default/rolebindings", body)
    for user in ("viewer", "editor", "owner"):

        async def sees(user: str = user) -> bool:
            return await applied.may(user, ("queuectl.dev", "workloads", None, "list"), "default")

        # A controller of the cluster aggregates our role into the built-in ones.
        await eventually(f"{user} sees the workloads of its namespace", sees)
        assert await applied.may(user, ("queuectl.dev", "localqueues", None, "get"), "default")
        assert not await applied.may(user, ("queuectl.dev", "workloads", None, "list"), "kube-system")
        assert not await applied.may(user, ("queuectl.dev", "workloads", None, "bypass"), "default")
        assert not await applied.may(user, ("queuectl.dev", "clusterqueues", None, "update"), "")
