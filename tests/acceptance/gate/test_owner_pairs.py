"""Each kind of child that an operator makes passes the gate, with the definitions of their projects."""

from __future__ import annotations

import pytest

from queuectl.kinds.jobs import JobKind
from queuectl.sandbox.players.api import Client
from tests.acceptance.gate.kinds import COMPUTED, SIZES, Objects
from tests.acceptance.gate.site import SUBMITTER, Json, Site
from tests.job_kinds import JOB_KINDS

COPIED = {SUBMITTER: "ada"}
PAIRS = [
    (owner, JOB_KINDS[name])
    for owner in JOB_KINDS
    for name in owner.children
    if name != "Job" and (name in SIZES or name in COMPUTED)
]
"""A Job as a child is in test_owners.py."""

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("site", ["mutating"], ids=["site=mutating"], indirect=True),
    pytest.mark.parametrize(
        ("owner", "row"), PAIRS, ids=[f"{owner.name}-{row.name}" for owner, row in PAIRS]
    ),
]


def child(objects: Objects, owner: JobKind) -> Json:
    """A running object of `owner`, with the annotation that Ray's operator copies from its own objects."""
    body = objects.body(f"of-{owner.plural}", suspend=False)
    reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": "owner", "uid": "0-0-0-0"}
    body["metadata"] |= {
        "ownerReferences": [reference | {"controller": True}],
        "annotations": COPIED if owner.group == "ray.io" else {},
    }
    return body


async def test_a_child_runs_if_the_controller_of_its_owner_makes_it_and_for_no_other_user(
    defined: Site, operator: Client, owner: JobKind, row: JobKind
) -> None:
    objects = Objects(defined, row)
    body = child(objects, owner)
    made = await operator.request("POST", objects.path(), body, query={"dryRun": "All"})
    assert not row.suspended(made)
    assert made["metadata"].get("annotations", {}) == body["metadata"]["annotations"]
    forged = await defined.tenant.request("POST", objects.path(), body, query={"dryRun": "All"})
    assert row.suspended(forged)
    assert forged["metadata"]["annotations"] == {SUBMITTER: "tenant"}
