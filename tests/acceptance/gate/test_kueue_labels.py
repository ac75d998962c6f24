"""The gate with Kueue's labels, on real API servers: they count as ours do, and ours take precedence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from queuectl.core.model.events import Result
from queuectl.core.model.workload import Verb
from queuectl.kinds.gate import GATE_LABEL, GateWatch
from queuectl.kinds.labels import KUEUES_TOO, OWN
from queuectl.kube import kueue
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import ApiError
from queuectl.kube.session import Session
from tests.acceptance.gate.site import (
    JOB,
    KINDS,
    MANIFESTS,
    NAMESPACE,
    QUEUE,
    SUBMITTER,
    Json,
    Kind,
    Site,
    nested,
    served,
)
from tests.acceptance.gate.test_in_force import PATHS
from tests.acceptance.manifests.kueue_labels import put_in_force
from tests.integration.kube.sites import effect
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = {"ours": QUEUE, "kueues": "kueue.x-k8s.io/queue-name"}
SECONDS = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    assets: Path, pytorch_crd: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """A site with the component in force, without the mutating policy."""
    folder = tmp_path_factory.mktemp("plane")
    async with served(folder, assets, pytorch_crd, emulated=None, mutating=False) as found:
        await put_in_force(found.admin)
        for kind in KINDS:
            await eventually(partial(_gated, found, kind), f"{kind.policy} on {kind}", SECONDS)
            await found.admin.request("POST", kind.path(), body(kind, "probe", kueues="main"))
            await eventually(partial(_ours_may, found, kind), f"{kind.policy} for the controller", SECONDS)
            await _delete(found, kind, "probe")
        yield found


def body(kind: Kind, name: str, suspend: bool | None = True, **labels: str) -> Json:
    """Labels as `ours` and `kueues`."""
    made = kind.body(name, queue=None, suspend=suspend)
    made["metadata"]["labels"] = {NAMES[key]: value for key, value in labels.items()}
    return made


async def _gated(site: Site, kind: Kind) -> bool:
    made = body(kind, "never", suspend=False, kueues="main")
    try:
        await site.tenant.request("POST", kind.path(), made, query={"dryRun": "All"})
    except ApiError as error:
        return kind.policy in str(error)
    return False


async def _ours_may(site: Site, kind: Kind) -> bool:
    try:
        await site.merge(site.controller, kind, "probe?dryRun=All", nested(kind.suspend, False))
    except ApiError:
        return False
    return True


async def _delete(site: Site, kind: Kind, name: str) -> None:
    await site.admin.request("DELETE", kind.path(name), {"propagationPolicy": "Background"})


async def _refused(site: Site, kind: Kind, name: str, patch: Json) -> str:
    try:
        await site.merge(site.tenant, kind, name, patch)
    except ApiError as error:
        return str(error)
    return ""


def _labels(**labels: str | None) -> Json:
    """A patch of the given labels."""
    return {"metadata": {"labels": {NAMES[key]: value for key, value in labels.items()}}}


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_an_object_with_kueue_s_label_is_not_created_running(site: Site, kind: Kind) -> None:
    with pytest.raises(ApiError, match="queuectl starts it when its queue has quota"):
        await site.tenant.request("POST", kind.path(), body(kind, "eager", suspend=False, kueues="main"))


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_an_object_with_either_label_waits_runs_and_keeps_its_queue(site: Site, kind: Kind) -> None:
    name = "held"
    await site.tenant.request("POST", kind.path(), body(kind, name, kueues="main"))
    assert "queuectl turns it off" in await _refused(site, kind, name, nested(kind.suspend, False))
    assert "can't be taken away" in await _refused(site, kind, name, _labels(kueues=None))
    # While pending it may change its queue, and may change labels as long as one names a queue.
    assert await _refused(site, kind, name, _labels(kueues="other")) == ""
    assert await _refused(site, kind, name, _labels(ours="other", kueues=None)) == ""
    assert await _refused(site, kind, name, _labels(ours=None, kueues="main")) == ""
    await _started(site, kind, name)
    assert "can't be changed while it runs" in await _refused(site, kind, name, _labels(kueues="other"))
    assert "can't be changed while it runs" in await _refused(site, kind, name, _labels(ours="other"))
    refusal = await _refused(site, kind, name, _labels(kueues=None))
    # A Job without labels gets those of its pod template by default: the queue that a start wrote there.
    labels = (await site.get(kind, name))["metadata"]["labels"]
    assert "can't be taken away" in refusal or (kind is JOB and labels[QUEUE] == "main")
    assert "can't grow while it runs" in await _refused(site, kind, name, nested(kind.pods, 9))
    assert "would kill it" in await _refused(site, kind, name, nested(kind.suspend, True))
    assert await _refused(site, kind, name, _labels(ours="main", kueues="other")) == ""
    await _delete(site, kind, name)


async def _started(site: Site, kind: Kind, name: str) -> None:
    """Start, stop and start it with the controller's service account; refused while our label is added."""
    session = await Session.from_kubeconfig(str(site.plane.folder / "kubeconfig"), "controller")
    try:
        cluster = KubeCluster(session, JOB_KINDS, honoured=KUEUES_TOO)
        before = effect(await site.get(kind, name), kind.name, honoured=KUEUES_TOO)
        await site.merge(site.tenant, kind, name, _labels(ours="main"))
        settled, _ = await cluster.start(before)
        assert settled.result is Result.REFUSED
        assert kind.suspended(await site.get(kind, name))
        await site.merge(site.tenant, kind, name, _labels(ours=None))
        settled, _ = await cluster.start(effect(await site.get(kind, name), kind.name, honoured=KUEUES_TOO))
        assert settled.result is Result.DONE
        stopping = effect(await site.get(kind, name), kind.name, verb=Verb.STOP, honoured=KUEUES_TOO)
        assert (await cluster.stop(stopping))[0].result is Result.DONE
        again = effect(await site.get(kind, name), kind.name, attempt=2, honoured=KUEUES_TOO)
        assert (await cluster.start(again))[0].result is Result.DONE
        assert not kind.suspended(await site.get(kind, name))
    finally:
        await session.close()


async def test_the_controller_may_detect_whether_kueue_runs(site: Site) -> None:
    session = await Session.from_kubeconfig(str(site.plane.folder / "kubeconfig"), "controller")
    try:
        assert await kueue.running(session) is None
        assert await kueue.gated(session) is True
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        now = session.server_time().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "kueue-0", "leaseDurationSeconds": 15, "renewTime": now}
        await site.admin.request("POST", leases, {"metadata": {"name": kueue.LEASE}, "spec": spec})
        assert (await kueue.running(session) or "").startswith(f"Lease {NAMESPACE}/{kueue.LEASE}")
        await site.admin.request("DELETE", f"{leases}/{kueue.LEASE}")
    finally:
        await session.close()


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_sender_of_two_labels_that_differ_is_warned_which_one_holds(
    site: Site, kind: Kind, tmp_path: Path
) -> None:
    (tmp_path / "two.json").write_text(json.dumps(body(kind, "two", ours="main", kueues="other")))

    async def warned() -> bool:
        code, said = await site.kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "two.json"))
        assert code == 0, said
        return "it waits in queue main: the label queuectl.dev/queue-name holds" in said

    await eventually(warned, "the warning", SECONDS)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_sender_is_warned_of_marks_of_kueue_that_have_no_effect(
    site: Site, kind: Kind, tmp_path: Path
) -> None:
    """On the object and on its pod templates; those that have an effect are not named."""
    made = body(kind, "marked", ours="main")
    made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
    made["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "9"}
    for template in _templates(made["spec"]):
        template["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}}
    (tmp_path / "marked.json").write_text(json.dumps(made))

    async def warned() -> bool:
        code, said = await site.kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "marked.json"))
        assert code == 0, said
        assert "priority-class" not in said
        return (
            "queuectl does not read provreq.kueue.x-k8s.io/maxRunDurationSeconds, "
            "kueue.x-k8s.io/podset-preferred-topology: topology-aware placement is not supported yet"
        ) in said

    await eventually(warned, "the warning", SECONDS)


def _templates(spec: Json) -> list[Json]:
    """The pod templates of an object; of several, the first."""
    replicas = spec.get("pytorchReplicaSpecs")
    return [next(iter(replicas.values()))["template"]] if replicas else [spec["template"]]


async def test_an_object_with_neither_label_is_not_managed(site: Site) -> None:
    made = await site.tenant.request("POST", JOB.path(), JOB.body("free", queue=None, suspend=False))
    assert not JOB.suspended(made)
    with pytest.raises(ApiError, match="touches no object without a queue label"):
        await site.merge(site.controller, JOB, "free", nested(JOB.suspend, True))
    await _delete(site, JOB, "free")


async def test_the_mutating_policy_suspends_an_object_with_kueue_s_label_at_its_creation(site: Site) -> None:
    code, output = await site.kubectl("apply", "-k", str(MANIFESTS / "mutating"))
    assert code == 0, output
    await put_in_force(site.admin)
    for kind in KINDS:
        running = body(kind, "eager", suspend=False, kueues="main")

        async def suspended(kind: Kind = kind, running: Json = running) -> bool:
            try:
                made = await site.tenant.request("POST", kind.path(), running, query={"dryRun": "All"})
            except ApiError:
                return False
            return kind.suspended(made) and made["metadata"]["annotations"][SUBMITTER] == "tenant"

        await eventually(suspended, f"queuectl-suspend on {kind}", SECONDS)


async def test_the_gate_with_both_labels_is_in_force_for_a_controller_that_honours_both(site: Site) -> None:
    both, own = GateWatch(JOB_KINDS, KUEUES_TOO), GateWatch(JOB_KINDS, OWN)
    for kind, path in PATHS.items():
        found = await site.admin.request("GET", path, query={"labelSelector": GATE_LABEL})
        for obj in found["items"]:
            both.observe(kind, obj)
            own.observe(kind, obj)
    assert both.missing() == []
    assert own.missing()


@pytest.mark.parametrize("label", NAMES)
async def test_an_empty_label_is_no_label_whichever_it_is(site: Site, label: str) -> None:
    with pytest.raises(ApiError, match="its queue label is empty"):
        await site.tenant.request("POST", JOB.path(), body(JOB, "empty", True, **{label: ""}))
    await site.tenant.request("POST", JOB.path(), body(JOB, f"emptied-{label}", True, **{label: "main"}))
    empty: Json = {"metadata": {"labels": {NAMES[label]: ""}}}
    with pytest.raises(ApiError, match="its queue label is empty"):
        await site.merge(site.tenant, JOB, f"emptied-{label}", empty)
