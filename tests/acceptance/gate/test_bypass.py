"""Break-glass is an intent: the right to bypass, and a reason that the same request writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from queuectl.kube.session import JSON_PATCH
from tests.acceptance.gate.site import (
    ADMISSION,
    APPLY_PATCH,
    BYPASS,
    KINDS,
    QUEUE,
    REASON,
    SUBMITTER,
    Json,
    Kind,
    Site,
    by_hand,
    look,
    nested,
    pointer,
)
from tests.acceptance.gate.test_ways import RUNNING, name_of, tried

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("kind", KINDS, ids=str),
]
SAYS_HOW: Final = "sets the annotation queuectl.dev/bypass to a new reason in the same request"


async def test_a_user_with_the_right_starts_a_job_by_a_reason_and_is_recorded_by_the_mutating_policy(
    site: Site, kind: Kind
) -> None:
    await site.create(kind, "bypassed")
    await site.merge(site.admin, kind, "bypassed", by_hand(kind.suspend, "the demo is at noon"))
    started = await site.get(kind, "bypassed")
    assert not kind.suspended(started)
    annotations = started["metadata"]["annotations"]
    assert annotations[REASON] == "the demo is at noon"
    assert annotations.get(BYPASS) == ("admin" if site.mutating else None)


async def test_the_right_alone_starts_nothing(site: Site, kind: Kind) -> None:
    before = kind.facts(await site.create(kind, "by-right-alone"))
    for patch in (
        nested(kind.suspend, False),
        by_hand(kind.suspend, ""),
        by_hand(kind.suspend, "  "),
    ):
        refusal = await tried(site.merge(site.admin, kind, "by-right-alone", patch))
        assert kind.policy in refusal
        assert SAYS_HOW in refusal
    assert kind.facts(await site.get(kind, "by-right-alone")) == before


async def test_a_reason_alone_starts_nothing_and_is_not_written(site: Site, kind: Kind) -> None:
    before = await site.create(kind, "by-reason-alone")
    for patch in (by_hand(kind.suspend), {"metadata": {"annotations": {REASON: "later"}}}):
        refusal = await tried(site.merge(site.tenant, kind, "by-reason-alone", patch))
        assert kind.policy in refusal
    assert (await site.get(kind, "by-reason-alone"))["metadata"].get("annotations") == before["metadata"].get(
        "annotations"
    )
    body = kind.body("made-with-a-reason")
    body["metadata"]["annotations"] = {REASON: "later"}
    assert "only such users write it" in await tried(site.tenant.request("POST", kind.path(), body))


async def test_a_reason_that_the_object_has_already_starts_nothing_again(site: Site, kind: Kind) -> None:
    """So a manifest that carries the reason for good starts the object once, however often it is applied."""
    await site.create(kind, "applied-again")
    manifest = by_hand(kind.suspend, "for the demo")
    await site.merge(site.admin, kind, "applied-again", manifest)
    await site.merge(site.controller, kind, "applied-again", nested(kind.suspend, True))
    assert SAYS_HOW in await tried(site.merge(site.admin, kind, "applied-again", manifest))
    assert kind.suspended(await site.get(kind, "applied-again"))
    await site.merge(site.admin, kind, "applied-again", by_hand(kind.suspend, "for the second demo"))
    assert not kind.suspended(await site.get(kind, "applied-again"))


async def test_only_users_that_may_bypass_change_the_reason(site: Site, kind: Kind) -> None:
    """Else a tenant could change it, and an admin's manifest that is applied again would count as new."""
    await site.create(kind, "reasoned")
    await site.merge(site.admin, kind, "reasoned", by_hand(kind.suspend, "for the demo"))
    for other in ("another", "", None):
        patch: Json = {"metadata": {"annotations": {REASON: other}}}
        assert "only such users write it" in await tried(site.merge(site.tenant, kind, "reasoned", patch))
    labelled = await site.merge(site.tenant, kind, "reasoned", {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["annotations"][REASON] == "for the demo"


async def test_a_reason_from_before_the_label_counts_as_new(site: Site, kind: Kind) -> None:
    body = kind.body("reasoned-before", queue=None)
    body["metadata"]["annotations"] = {REASON: "for the demo"}
    await site.tenant.request("POST", kind.path(), body)
    label: Json = {"metadata": {"labels": {QUEUE: "main"}}}
    assert "only such users write it" in await tried(site.merge(site.tenant, kind, "reasoned-before", label))


async def test_an_object_is_created_suspended_whatever_the_rights_and_the_reason(
    site: Site, kind: Kind
) -> None:
    body = kind.body("made-by-admin", suspend=False)
    body["metadata"]["annotations"] = {REASON: "for the demo"}
    refusal = await tried(site.admin.request("POST", kind.path(), body))
    if site.mutating:
        made = await site.get(kind, "made-by-admin")
        assert kind.suspended(made)
        assert made["metadata"]["annotations"][SUBMITTER] == "admin"
    else:
        assert "queuectl starts it when its queue has quota" in refusal


@pytest.mark.parametrize("reason", [False, True], ids=["by right", "with a reason"])
@pytest.mark.parametrize("way", RUNNING)
async def test_a_running_object_keeps_what_it_was_charged_for_whatever_the_rights(
    site: Site, kind: Kind, way: str, reason: bool
) -> None:
    """Suspension, growth, another queue: a user that may bypass does them as everyone does, by hold."""
    name = name_of("runs-" + ("said" if reason else "wide"), way)
    before = kind.facts(await site.running(kind, name))
    more: Json = {REASON: "for the demo"} if reason else {}
    if way == "other pods":
        refusal = await tried(_other_pods(site, kind, name, more))
    else:
        refusal = await tried(_merged(site, kind, name, _PATCHES[way](kind), more))
    assert kind.facts(await site.get(kind, name)) == before
    assert "field is immutable" in refusal or (kind.policy in refusal and RUNNING[way][1] in refusal)


async def _merged(site: Site, kind: Kind, name: str, patch: Json, more: Json) -> None:
    metadata = patch.setdefault("metadata", {})
    metadata.setdefault("annotations", {}).update(more)
    await site.merge(site.admin, kind, name, patch)


async def _other_pods(site: Site, kind: Kind, name: str, more: Json) -> None:
    place = (*kind.template, "containers", "0", "resources", "limits", "nvidia.com/gpu")
    patch: list[Json] = [
        {"op": "add", "path": pointer(place), "value": "8"},
        *(
            {"op": "add", "path": pointer(("metadata", "annotations", k)), "value": v}
            for k, v in more.items()
        ),
    ]
    await site.admin.request("PATCH", kind.path(name), patch, content_type=JSON_PATCH)


_Change = Callable[[Kind], Json]
_PATCHES: Final[dict[str, _Change]] = {
    "growth": lambda kind: nested(kind.pods, 4),
    "suspension": lambda kind: nested(kind.suspend, True),
    "another queue": lambda _: {"metadata": {"labels": {QUEUE: "richer"}}},
    "label removal": lambda _: {"metadata": {"labels": {QUEUE: None}}},
    "forged annotation": lambda _: {"metadata": {"annotations": {ADMISSION: '{"attempt":9}'}}},
    "removed annotation": lambda _: {"metadata": {"annotations": {ADMISSION: None}}},
}


async def test_a_user_with_the_right_names_no_other_user_as_the_one_that_started_it(
    site: Site, kind: Kind
) -> None:
    await site.create(kind, "in-another-name")
    patch = by_hand(kind.suspend)
    patch["metadata"]["annotations"][BYPASS] = "ada"
    refusal = await tried(site.merge(site.admin, kind, "in-another-name", patch))
    if site.mutating:
        found = await site.get(kind, "in-another-name")
        assert look(found, ("metadata", "annotations", BYPASS)) == "admin"
    else:
        assert "annotations queuectl.dev/reserved-*" in refusal


MANIFEST: Final = """\
apiVersion: batch/v1
kind: Job
metadata: {name: gitops, namespace: team-a, labels: {queuectl.dev/queue-name: main}}
spec:
  suspend: true
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: app, image: busybox, command: [sleep, "600"], resources: {requests: {cpu: "1"}}}]
"""


async def test_a_manifest_with_suspend_true_that_is_applied_again_by_a_wide_role_does_not_evict(
    site: Site, kind: Kind, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not hasattr(site.plane, "kubectl") or kind.name != "Job":
        return
    path = tmp_path_factory.mktemp("gitops") / "job.yaml"
    path.write_text(MANIFEST)
    code, output = await site.kubectl("apply", "-f", str(path))
    assert code == 0, output
    await site.start(kind, "gitops")
    for server_side in ([], ["--server-side", "--force-conflicts"]):
        code, output = await site.kubectl("apply", *server_side, "-f", str(path))
        assert (code, not kind.suspended(await site.get(kind, "gitops"))) == (1, True), output
        assert 'to stop it set the annotation queuectl.dev/hold to "true"' in output
    path.write_text(MANIFEST.replace("  suspend: true\n", ""))
    code, output = await site.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
    assert (code, kind.suspended(await site.get(kind, "gitops"))) == (0, False), output


async def test_a_manifest_with_suspend_false_that_is_applied_again_by_a_wide_role_starts_nothing(
    site: Site, kind: Kind
) -> None:
    await site.create(kind, "gitops-waits")
    body = kind.body("gitops-waits", suspend=False)
    query = {"fieldManager": "argocd-controller", "force": "true"}
    applied = site.admin.request(
        "PATCH", kind.path("gitops-waits"), body, query=query, content_type=APPLY_PATCH
    )
    refusal = await tried(applied)
    assert kind.policy in refusal or "415" in refusal  # the small API has no server-side apply
    assert kind.suspended(await site.get(kind, "gitops-waits"))
