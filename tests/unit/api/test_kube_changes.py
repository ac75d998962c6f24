"""Changes for callers of REST as patches of Kubernetes objects, with a small API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queuectl.app.kinds import built_in
from queuectl.changes.callers import KubeChanges, changes_to
from queuectl.ports.changes import ChangedField, ChangeRefused, Made, Wanted, WantedSize
from tests.unit.cli.clusters import Cluster, kubeconfig, merged
from tests.unit.cli.servers import answering
from tests.unit.cli.test_changing import HELD, JOB, LABELS, LOCAL, QUEUE

GPU = "nvidia.com/gpu"
FITS = "/apis/batch/v1/namespaces/default/jobs/large"
PRIORITY = "/apis/queuectl.dev/v1beta1/workloadpriorityclasses"
RUNS = {"spec": {"suspend": False}}
OVER = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.add(JOB, metadata={"labels": LABELS}, spec={"suspend": True})
    found.add(QUEUE, spec={"stopPolicy": "None"}, status={"pendingWorkloads": 12, "admittedWorkloads": 1})
    found.add(LOCAL, spec={"clusterQueue": "team-a"})
    container = {"name": "main", "resources": {"limits": {GPU: "2"}}}
    found.add(
        FITS,
        metadata={"labels": LABELS, "namespace": "default", "resourceVersion": "7"},
        spec={
            "suspend": True,
            "parallelism": 4,
            "completions": 8,
            "template": {"spec": {"containers": [container]}},
        },
    )
    found.add(f"{PRIORITY}/high", value=5)
    return found


@pytest.fixture
async def changes(cluster: Cluster, tmp_path: Path) -> AsyncIterator[KubeChanges]:
    with answering(cluster.answer) as url:
        config = kubeconfig(tmp_path, url, token="of-the-server")
        async with changes_to(config, None, built_in(), as_itself=False, answered=None) as found:
            yield found


def wanted(verb: Any, **more: Any) -> Wanted:
    of = {"kind": "job", "namespace": "default", "name": "train"}
    return Wanted(verb=verb, **{**of, **more})


def fit(name: str = "large", **size: Any) -> Wanted:
    return wanted("fit", name=name, size=WantedSize(**size))


def queue(verb: Any, **more: Any) -> Wanted:
    return wanted(verb, kind="ClusterQueue", namespace="", name="team-a", **more)


async def test_each_request_has_the_token_of_the_caller_and_nothing_of_the_server(
    changes: KubeChanges, cluster: Cluster
) -> None:
    made = await changes.make(wanted("hold"), "of-alice")
    assert cluster.authorizations == {"Bearer of-alice"}
    assert cluster.writes == [(JOB, {"metadata": {"uid": "uid-train", "annotations": HELD}})]
    assert (made.before, made.after, made.written) == (None, "true", True)
    assert made.meaning.startswith("It is pending: it leaves the pending queue.")
    with pytest.raises(ChangeRefused, match="needs the token of its caller"):
        await changes.make(wanted("release"), None)
    assert cluster.authorizations == {"Bearer of-alice"}


async def test_where_it_is_configured_the_rights_of_the_kubeconfig_count(
    cluster: Cluster, tmp_path: Path
) -> None:
    with answering(cluster.answer) as url:
        config = kubeconfig(tmp_path, url, token="of-the-server")
        async with changes_to(config, None, built_in(), as_itself=True, answered=None) as changes:
            await changes.make(wanted("hold"), "of-alice")
    assert cluster.authorizations == {"Bearer of-the-server"}


@pytest.mark.parametrize(
    ("change", "path", "patch", "meaning"),
    [
        (queue("stop"), QUEUE, {"stopPolicy": "Hold"}, "Workloads that wait: 12; that continue: 1."),
        (queue("stop", evict=True), QUEUE, {"stopPolicy": "HoldAndDrain"}, "are evicted and queue again"),
        (
            wanted("stop", kind="LocalQueue", name="main"),
            LOCAL,
            {"stopPolicy": "Hold"},
            "It admits no more",
        ),
    ],
)
async def test_a_queue_is_stopped_by_its_field(
    changes: KubeChanges, cluster: Cluster, change: Wanted, path: str, patch: Any, meaning: str
) -> None:
    made = await changes.make(change, "t")
    assert [(where, content["spec"]) for where, content in cluster.writes] == [(path, patch)]
    assert meaning in made.meaning


async def test_a_move_and_a_priority_are_labels_of_what_exists(
    changes: KubeChanges, cluster: Cluster
) -> None:
    cluster.add(LOCAL.replace("main", "other"), spec={"clusterQueue": "team-a"})
    await changes.make(wanted("move", target="other"), "t")
    await changes.make(wanted("priority", target="high"), "t")
    labels = cluster.objects[JOB]["metadata"]["labels"]
    assert labels == {"queuectl.dev/queue-name": "other", "queuectl.dev/priority-class": "high"}
    with pytest.raises(ChangeRefused, match="has no LocalQueue nowhere\nThere are: main, other") as refused:
        await changes.make(wanted("move", target="nowhere"), "t")
    assert refused.value.status == 422


async def test_another_size_is_the_patch_of_the_command_line(changes: KubeChanges, cluster: Cluster) -> None:
    cluster.says_user = "alice"
    made = await changes.make(replace(fit(gpus=4), reason="deadline"), "of-alice")
    assert cluster.authorizations == {"Bearer of-alice"}
    annotations = {"queuectl.dev/reason": "fit by alice: deadline"}
    metadata = {"uid": "uid-large", "resourceVersion": "7", "annotations": annotations}
    assert cluster.writes == [(FITS, {"spec": {"parallelism": 2}, "metadata": metadata})]
    assert made == Made(
        kind="Job",
        field="podset main",
        before=f"4 pods with 2 {GPU} each",
        after=f"2 pods with 2 {GPU} each",
        written=True,
        meaning="It keeps its place: its priority and creation time, which stay, order it. "
        "It still completes 8 times, at most 2 pods at a time.",
        reason="fit by alice: deadline",
        fields=(ChangedField("spec.parallelism", "4", "2"),),
    )


async def test_another_size_is_tried_without_a_write(changes: KubeChanges, cluster: Cluster) -> None:
    made = await changes.make(replace(fit(gpus=4, pods=4, completions=False), dry_run=True), "t")
    field = f"spec.template.spec.containers[0].resources.limits[{GPU}]"
    assert made.fields == (ChangedField(field, "2", "1"),)
    assert ("PATCH", FITS) in cluster.asked
    assert cluster.writes == []


async def test_a_dry_run_is_checked_by_the_api_server_and_writes_nothing(
    changes: KubeChanges, cluster: Cluster
) -> None:
    before = dict(cluster.objects)
    made = await changes.make(queue("stop", evict=True, dry_run=True), "t")
    assert made.after == "HoldAndDrain"
    assert ("PATCH", QUEUE) in cluster.asked
    assert (cluster.objects, cluster.writes) == (before, [])


async def test_a_hold_of_what_runs_says_what_is_lost_and_needs_a_confirmation(
    changes: KubeChanges, cluster: Cluster
) -> None:
    cluster.objects[JOB] = merged(cluster.objects[JOB], RUNS)
    lost = "Job default/train runs, and a hold evicts it: what it has not saved is lost"
    assert (await changes.make(wanted("hold", dry_run=True), "t")).loss == lost
    with pytest.raises(ChangeRefused) as refused:
        await changes.make(wanted("hold"), "t")
    assert refused.value.status == 409
    assert str(refused.value).startswith(lost)
    assert cluster.writes == []
    made = await changes.make(wanted("hold", evict=True), "t")
    assert made.meaning.startswith("It runs: it is evicted")
    assert len(cluster.writes) == 1


async def test_a_workload_that_waits_is_deleted_with_its_pods(changes: KubeChanges, cluster: Cluster) -> None:
    tried = await changes.make(wanted("cancel", dry_run=True), "of-alice")
    assert (tried.before, tried.after, cluster.writes) == ("exists", "deleted", [])
    made = await changes.make(wanted("cancel"), "of-alice")
    (path, options) = cluster.writes[0]
    assert (path, options["preconditions"]) == (JOB, {"uid": "uid-train"})
    assert options["propagationPolicy"] == "Background"
    assert JOB not in cluster.objects
    assert (made.meaning, made.loss) == ("It leaves its pending queue.", None)
    assert cluster.authorizations == {"Bearer of-alice"}


async def test_a_deletion_of_what_runs_says_what_is_lost_and_needs_a_confirmation(
    changes: KubeChanges, cluster: Cluster
) -> None:
    cluster.objects[JOB] = merged(cluster.objects[JOB], RUNS)
    lost = "Job default/train runs: its pods end, and what it has not saved is lost"
    assert (await changes.make(wanted("cancel", dry_run=True), "t")).loss == lost
    with pytest.raises(ChangeRefused, match="`evict: true` confirms it") as refused:
        await changes.make(wanted("cancel"), "t")
    assert (refused.value.status, cluster.writes) == (409, [])
    made = await changes.make(wanted("cancel", evict=True), "t")
    assert made.meaning == "Its quota is released once its pods are gone."
    assert JOB not in cluster.objects


async def test_a_reason_is_kept_with_the_name_of_the_caller(changes: KubeChanges, cluster: Cluster) -> None:
    cluster.says_user = "alice"
    made = await changes.make(queue("stop", reason="node 7 is broken"), "t")
    assert made.reason == "stop by alice: node 7 is broken"
    annotations = cluster.writes[0][1]["metadata"]["annotations"]
    assert annotations == {"queuectl.dev/reason": "stop by alice: node 7 is broken"}


DENIED = 'admission webhook "x" denied request: no changes on Friday'


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (
            ("PATCH", 403, 'User "alice" cannot patch resource'),
            403,
            "you may not patch jobs.batch in namespace",
        ),
        (("PATCH", 403, DENIED), 403, "an admission policy refuses the change of Job default/train"),
        (("GET", 401, "Unauthorized"), 403, "does not accept this token"),
        (("GET", 404, "gone"), 404, "not found: Job default/train"),
        (("PATCH", 409, "UID"), 409, "was changed or replaced meanwhile"),
        (("PATCH", 422, "spec.x: invalid"), 422, "spec.x: invalid"),
        (("PATCH", 500, "etcd"), 503, "etcd"),
    ],
)
async def test_refusals_of_the_api_server_say_what_to_do(
    changes: KubeChanges, cluster: Cluster, answer: tuple[str, int, str], status: int, says: str
) -> None:
    method, code, message = answer
    cluster.refusals[method, JOB] = (code, message)
    with pytest.raises(ChangeRefused) as refused:
        await changes.make(wanted("hold"), "t")
    assert refused.value.status == status
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        (wanted("hold", kind="pod"), 400, "kind 'pod' is none of"),
        (wanted("hold", name="../x"), 400, "is not a name of a Kubernetes object"),
        (wanted("hold", name="alone"), 409, "has no label queuectl.dev/queue-name"),
        (wanted("hold", name="ended"), 409, "is over: a hold would change nothing any more"),
        (wanted("cancel", name="ended"), 409, "is over: there is nothing to cancel"),
        (wanted("cancel", name="alone"), 409, "so does this command"),
        (wanted("move", name="busy", target="main"), 409, "only a workload that waits can be moved"),
        (fit("busy", pods=1), 409, "only a workload that waits can get another size"),
        (fit("ended", pods=1), 409, "is over: another size would change nothing any more"),
        (fit("alone", pods=1), 409, "another size would have no effect"),
        (fit(gpus=3), 422, f"Job default/large: each of its 4 pods requests 2 {GPU}, and 3 is no multiple"),
        (fit(pods=9), 422, "it would have 8 pods, not 9: another field limits them; nothing is written"),
        (fit(pods=1, pod_set="tail"), 422, "it has no podset 'tail', only main; nothing is written"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_a_write(
    changes: KubeChanges, cluster: Cluster, change: Wanted, status: int, says: str
) -> None:
    jobs = JOB.rpartition("/")[0]
    cluster.add(f"{jobs}/alone", spec={"suspend": True})
    cluster.add(f"{jobs}/ended", metadata={"labels": LABELS}, **RUNS, **OVER)
    cluster.add(f"{jobs}/busy", metadata={"labels": {"queuectl.dev/queue-name": "small"}}, **RUNS)
    with pytest.raises(ChangeRefused) as refused:
        await changes.make(change, "t")
    assert refused.value.status == status
    assert says in str(refused.value)
    assert cluster.writes == []


async def test_requests_that_the_api_server_keeps_are_refused_with_the_release_that_permits_them(
    changes: KubeChanges, cluster: Cluster
) -> None:
    cluster.refusals["PATCH", FITS] = (422, 'spec.template: Invalid value: {"dump": 1}: field is immutable')
    with pytest.raises(ChangeRefused) as refused:
        await changes.make(replace(fit(gpus=4, pods=4), dry_run=True), "t")
    assert refused.value.status == 422
    told, hint = str(refused.value).splitlines()
    assert told.startswith("the API server does not permit it: ")
    assert told.endswith("422 spec.template: Invalid value")
    assert "from Kubernetes 1.36 on" in hint


async def test_a_field_that_is_so_already_is_not_written(changes: KubeChanges, cluster: Cluster) -> None:
    made: Made = await changes.make(queue("resume"), "t")
    assert (made.written, made.meaning) == (False, "It was so already: nothing is written.")
    made = await changes.make(fit(gpus=8), "t")
    assert (made.written, made.meaning) == (False, "It is so large already: nothing is written.")
    assert (made.before, made.fields) == (made.after, ())
    assert cluster.writes == []
