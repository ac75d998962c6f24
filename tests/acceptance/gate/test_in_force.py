"""What an API server stores of the gate is what the controller takes for one in force, on each version."""

from __future__ import annotations

from typing import Any, Final

import pytest

from queuectl.core.model.events import ContextGone, ContextObserved
from queuectl.core.model.policy import Gate
from queuectl.kinds.gate import BINDING, GATE, GATE_LABEL, POLICY, GateWatch
from queuectl.kinds.labels import OWN
from queuectl.kube.session import JSON_PATCH
from tests.acceptance.gate.site import Site
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT: Final = "/apis/admissionregistration.k8s.io/v1"
PATHS: Final = {
    POLICY: f"{ROOT}/validatingadmissionpolicies",
    BINDING: f"{ROOT}/validatingadmissionpolicybindings",
}


async def watched(site: Site) -> tuple[GateWatch, list[Any]]:
    watch, events = GateWatch(JOB_KINDS, OWN), []
    for kind, path in PATHS.items():
        found = await site.admin.request("GET", path, query={"labelSelector": GATE_LABEL})
        for obj in found["items"]:
            events += watch.observe(kind, obj)
    return watch, events


async def test_as_it_is_stored_it_is_in_force(site: Site) -> None:
    watch, events = await watched(site)
    assert watch.missing() == []
    (event,) = events
    assert isinstance(event, ContextObserved)
    assert isinstance(event.value, Gate)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (BINDING, {"op": "replace", "path": "/spec/validationActions", "value": ["Audit"]}),
        (
            BINDING,
            {
                "op": "add",
                "path": "/spec/matchResources",
                "value": {"namespaceSelector": {"matchLabels": {"a": "b"}}},
            },
        ),
        (POLICY, {"op": "replace", "path": "/spec/failurePolicy", "value": "Ignore"}),
        (
            POLICY,
            {
                "op": "add",
                "path": "/spec/matchConditions/-",
                "value": {"name": "never", "expression": "false"},
            },
        ),
        (POLICY, {"op": "remove", "path": "/spec/validations/2"}),
    ],
    ids=lambda value: value if isinstance(value, str) else value["path"].rpartition("/")[2],
)
async def test_as_it_is_stored_after_a_change_it_is_not(
    site: Site, kind: str, change: dict[str, Any]
) -> None:
    watch, _ = await watched(site)
    path = f"{PATHS[kind]}/queuectl-jobs"
    changed = await site.admin.request(
        "PATCH", path, [change], query={"dryRun": "All"}, content_type=JSON_PATCH
    )
    assert watch.observe(kind, changed) == [ContextGone(Gate, GATE)]
    assert watch.problem(kind, changed)
