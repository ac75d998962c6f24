"""manifests/kueue-labels, compared with the code and the objects it patches, and built as the docs say."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from queuectl.cli.commands import main
from queuectl.kinds.gate import GATE_LABEL, expected
from queuectl.kinds.labels import KUEUES_TOO, OWN
from queuectl.kube.kueue import LEASE
from queuectl.sandbox.control_plane import find_assets
from tests.acceptance.manifests.kueue_labels import COMPONENT, changed, patches, selects
from tests.acceptance.manifests.rendered import MANIFESTS, NAMESPACE, WARNINGS, Json, documents, one, rights
from tests.job_kinds import JOB_KINDS

UNQUEUED = ("queuectl-self", "queuectl-default-queue")
"""Apply to the objects that all other policies ignore."""
OTHERS = (
    "queuectl-attribute-cronjobs",
    "queuectl-attribution-of-cronjobs",
    "queuectl-scale",
    "queuectl-use-class",
    "queuectl-use-queue",
    "queuectl-pods",
    "queuectl-policies",
    "queuectl-restricted",
    "queuectl-grants",
    "queuectl-authors",
    *WARNINGS,
)
"""Policies of these folders that do not depend on the label of a queue, or that warn of our own alone."""
FOLDERS = ("gate", "mutating", "webhook", "default-queue")


def _queued(item: Json) -> str:
    """The objects that it applies to."""
    spec = item["webhooks"][0] if "webhooks" in item else item["spec"]
    assert "objectSelector" not in spec
    (found,) = [one["expression"] for one in spec["matchConditions"] if one["name"] == "queued"]
    return str(found)


def test_gate_policy_and_webhook_apply_to_the_same_objects() -> None:
    every = changed([item for name in FOLDERS for item in documents(MANIFESTS / name)])
    found = [item for item in every if any(selects(target, item) for target, _ in patches())]
    names = {item["metadata"]["name"] for item in found}
    bindings = [item for item in found if item["kind"].endswith("Binding")]
    policies = [item for item in every if item["kind"].endswith(("AdmissionPolicy", "WebhookConfiguration"))]
    assert {item["metadata"]["name"] for item in policies} - names == set(OTHERS)
    (looked_at,) = {_queued(item) for item in found if item not in bindings}
    for label in KUEUES_TOO.queue:
        assert f"'{label}'" in looked_at
    for item in bindings:
        selected = item["spec"]["matchResources"].get("objectSelector")
        unqueued = [{"key": label, "operator": "DoesNotExist"} for label in KUEUES_TOO.queue]
        assert selected == ({"matchExpressions": unqueued} if item["metadata"]["name"] in UNQUEUED else None)


def test_the_component_changes_nothing_else_of_the_gate() -> None:
    for name in FOLDERS:
        for before, after in zip(
            documents(MANIFESTS / name), changed(documents(MANIFESTS / name)), strict=True
        ):
            kept = yaml.safe_dump(after)
            for rule in (before.get("spec") or {}).get("validations", ()):
                if "queuectl.dev/queue-name" not in str(rule):
                    assert rule in after["spec"]["validations"], kept


def test_the_controller_expects_the_policies_as_the_component_makes_them() -> None:
    made = {
        (item["kind"], item["metadata"]["name"]): item["spec"]
        for item in changed(documents(MANIFESTS / "gate"))
        if GATE_LABEL in item["metadata"].get("labels", {})
    }
    assert expected(JOB_KINDS, KUEUES_TOO) == made
    assert expected(JOB_KINDS, OWN) != made


def test_the_component_lets_the_controller_read_one_lease_and_nothing_else() -> None:
    role = one("ClusterRole", "queuectl-kueue-labels", COMPONENT)
    assert rights(role) == {("coordination.k8s.io", "leases", LEASE, "list")}
    binding = one("ClusterRoleBinding", "queuectl-kueue-labels", COMPONENT)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "queuectl", "namespace": NAMESPACE}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_labels_that_differ_or_have_no_effect_give_a_warning_and_are_not_refused() -> None:
    bindings = [item for item in documents(COMPONENT) if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {item["metadata"]["name"]: item["spec"]["validationActions"] for item in bindings} == {
        "queuectl-kueue-labels": ["Warn"],
        "queuectl-kueue-ignored": ["Warn"],
    }


@pytest.mark.parametrize("beside", ["mutating", "webhook"])
async def test_the_kustomization_of_the_docs_builds(tmp_path: Path, beside: str) -> None:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: there is no kubectl to build it")
    page = (MANIFESTS.parent / "docs" / "from-kueue.md").read_text()
    (text,) = re.findall(r"^```yaml\n(# kustomization.yaml.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    config = tmp_path / "config.yaml"
    config.write_text("compatibility: {kueueLabels: true}\nkinds: [Pod]\n")
    command = ["manifests", "--config", str(config), str(tmp_path / "manifests")]
    assert CliRunner().invoke(main, command).exit_code == 0
    (tmp_path / "kustomization.yaml").write_text(text.replace("manifests/mutating", f"manifests/{beside}"))
    process = await asyncio.create_subprocess_exec(
        *(str(assets / "kubectl"), "kustomize", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    built = {
        (item["kind"], item["metadata"]["name"]): item
        for item in yaml.load_all(out, yaml.CSafeLoader)
        if item
    }
    folders = [tmp_path / "manifests" / name for name in ("gate", beside)]
    plain = [item for folder in folders for item in documents(folder)]
    for item in changed(plain):
        if item["metadata"]["name"] not in OTHERS and item["kind"].endswith(
            ("Policy", "WebhookConfiguration")
        ):
            assert built[item["kind"], item["metadata"]["name"]] == item
    of_pods = "queuectl-gate-pods-of-kueue" if beside == "mutating" else "queuectl-ungated-pods-of-kueue"
    assert of_pods in {name for _, name in built}
    (stored,) = [
        item["data"] for (kind, name), item in built.items() if name.startswith("queuectl-controller-config")
    ]
    assert "kueueLabels" in stored["config.yaml"]
