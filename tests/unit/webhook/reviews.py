"""Admission reviews as an API server sends them, and the objects after the patch."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch

from queuectl.webhook.mutation import answered
from tests.integration.kube.sites import job, pytorch_job
from tests.job_kinds import JOB_KINDS

Json = dict[str, Any]
CONTROLLER = "system:serviceaccount:queuectl-system:queuectl"
RESOURCES = {
    "Job": {"group": "batch", "version": "v1", "resource": "jobs"},
    "PyTorchJob": {"group": "kubeflow.org", "version": "v1", "resource": "pytorchjobs"},
}
MAKERS = {"Job": job, "PyTorchJob": pytorch_job}
SUSPEND = {"Job": ("spec", "suspend"), "PyTorchJob": ("spec", "runPolicy", "suspend")}


def review(obj: Json | None, old: Json | None = None, *, user: str = "ada", **request: Any) -> Json:
    """Of an object that is created, or updated from `old`."""
    kind = (obj or old or {}).get("kind", "Job")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "resource": RESOURCES[kind],
            "operation": "CREATE" if old is None else "UPDATE",
            "userInfo": {"username": user, "groups": ["system:authenticated"]},
            "object": obj,
            "oldObject": old,
            "dryRun": False,
            **request,
        },
    }


def answer(body: Json) -> Json:
    content, changed = answered(json.dumps(body).encode(), JOB_KINDS)
    response: Json = json.loads(content)["response"]
    assert response["uid"] == body["request"]["uid"]
    assert response["allowed"] is True
    assert changed == ("patch" in response)
    return response


def outcome(body: Json) -> Json:
    """The object after what the webhook does to it."""
    response = answer(body)
    patch = json.loads(base64.b64decode(response.get("patch", "W10=")))
    changed: Json = jsonpatch.apply_patch(body["request"]["object"], patch)
    return changed


def set_suspend(obj: Json, value: object) -> Json:
    *parents, last = SUSPEND[obj["kind"]]
    at = obj
    for key in parents:
        at = at.setdefault(key, {})
    at[last] = value
    return obj
