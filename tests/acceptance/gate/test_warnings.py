"""Warnings for a queue label that has no effect; the object is created all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.gate.site import KINDS, QUEUE, Json, Kind, Site
from tests.integration.sandbox.polling import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 60
ANNOTATION = "queuectl.dev/queue-name is an annotation here, which has no effect"
TEMPLATE = "the label queuectl.dev/queue-name of a pod template has no effect"
LABELS = {QUEUE: "main"}


async def _said(site: Site, body: Json, folder: Path) -> str:
    """What kubectl prints when it creates the object, which nobody stores."""
    (folder / "object.json").write_text(json.dumps(body))
    code, said = await site.kubectl("create", "--dry-run=server", "-f", str(folder / "object.json"))
    assert code == 0, said
    return said


def _body(kind: Kind, *, queue: str | None) -> Json:
    return kind.body("warned", suspend=True, queue=queue)


def _templates(body: Json) -> list[Json]:
    replicas = body["spec"].get("pytorchReplicaSpecs")
    return [one["template"] for one in replicas.values()] if replicas else [body["spec"]["template"]]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("where", ["annotation", "template"])
async def test_a_queue_in_the_wrong_place_is_warned_of(
    site: Site, kind: Kind, where: str, tmp_path: Path
) -> None:
    body = _body(kind, queue=None)
    if where == "annotation":
        body["metadata"]["annotations"] = LABELS
    else:
        body["metadata"]["labels"] = {"app": "x"}  # a Job without labels takes those of its pod template
        _templates(body)[-1].setdefault("metadata", {})["labels"] = LABELS

    async def warned() -> bool:
        return (ANNOTATION if where == "annotation" else TEMPLATE) in await _said(site, body, tmp_path)

    await eventually(warned, "the warning", SECONDS)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("queue", ["main", None])
async def test_an_object_with_the_label_or_without_any_gives_no_warning(
    site: Site, kind: Kind, queue: str | None, tmp_path: Path
) -> None:
    body = _body(kind, queue=queue)
    if queue is not None:
        _templates(body)[-1].setdefault("metadata", {})["labels"] = LABELS
    assert "Warning" not in await _said(site, body, tmp_path)


async def test_what_a_controller_makes_of_a_pod_template_gives_no_warning(site: Site, tmp_path: Path) -> None:
    kind = KINDS[0]
    body = _body(kind, queue=None)
    _templates(body)[-1].setdefault("metadata", {})["labels"] = LABELS
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "1"}
    body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    assert "Warning" not in await _said(site, body, tmp_path)


@pytest.mark.parametrize("plural", ["deployments", "cronjobs"])
async def test_a_kind_that_does_not_queue_is_warned_of(site: Site, plural: str, tmp_path: Path) -> None:
    template: Json = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "web", "image": "web:1"}]},
    }
    metadata = {"name": "warned", "namespace": "default", "labels": LABELS}
    if plural == "deployments":
        template["spec"]["restartPolicy"] = "Always"
        spec: Json = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
        body: Json = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    else:
        job = {"spec": {"template": template}}
        spec = {"schedule": "0 0 * * *", "jobTemplate": job}
        body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}

    hint = "its pod templates" if plural == "deployments" else "spec.jobTemplate.metadata"

    async def warned() -> bool:
        said = await _said(site, body, tmp_path)
        return f"queuectl does not queue {plural}: the label" in said and hint in said

    await eventually(warned, "the warning", SECONDS)
