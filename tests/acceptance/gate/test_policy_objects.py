"""Policy objects that the API server itself refuses, with the field."""

from __future__ import annotations

import re

import pytest
import yaml

from queuectl.core.model.events import PolicyObserved
from queuectl.kinds.policy import policy_event
from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from release.crds import files
from tests.acceptance.gate.site import MANIFESTS, Json, Site
from tests.unit.kinds.policy_cases import ACCEPTED, ACCEPTED_NODES, GPU, REFUSED, REFUSED_NODES, group

pytestmark = pytest.mark.asyncio(loop_scope="session")

API = "/apis/queuectl.dev/v1beta1"


def flavor(spec: Json) -> Json:
    return {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": "tried"},
        "spec": spec,
    }


@pytest.mark.parametrize("what", REFUSED)
async def test_an_invalid_queue_is_refused_and_the_field_is_named(site: Site, what: str) -> None:
    obj, field, words = REFUSED[what]
    with pytest.raises(ApiError) as caught:
        await site.admin.request("POST", f"{API}/clusterqueues", obj)
    assert caught.value.status == 422
    message = str(caught.value)
    assert field in message
    assert words in message


@pytest.mark.parametrize("what", ACCEPTED)
async def test_a_valid_queue_is_stored_completely_and_read_back(site: Site, what: str) -> None:
    obj = ACCEPTED[what]
    made = await site.admin.request("POST", f"{API}/clusterqueues", obj)
    await site.admin.request("DELETE", f"{API}/clusterqueues/tried")
    assert _holds(made["spec"], obj["spec"])
    assert isinstance(policy_event(made), PolicyObserved)


async def test_a_cohort_may_have_a_lending_limit_above_its_quota_but_only_below_a_parent(site: Site) -> None:
    spec = {"resourceGroups": [group(GPU, a100={"nominalQuota": 1, "lendingLimit": 5})]}
    body = {"apiVersion": "queuectl.dev/v1beta1", "kind": "Cohort", "metadata": {"name": "tried"}}
    with pytest.raises(ApiError, match="lendingLimit needs parentName"):
        await site.admin.request("POST", f"{API}/cohorts", body | {"spec": spec})
    await site.admin.request("POST", f"{API}/cohorts", body | {"spec": spec | {"parentName": "all"}})
    await site.admin.request("DELETE", f"{API}/cohorts/tried")


async def test_fair_preemption_strategies_must_be_one_of_three_lists(site: Site) -> None:
    body = {"apiVersion": "queuectl.dev/v1beta1", "kind": "Cohort", "metadata": {"name": "tried"}}
    wrong = {"preemptionStrategies": ["LessThanInitialShare", "LessThanOrEqualToFinalShare"]}
    with pytest.raises(ApiError, match=re.escape("spec.fairSharing.preemptionStrategies")):
        await site.admin.request("POST", f"{API}/cohorts", body | {"spec": {"fairSharing": wrong}})
    right = {"preemptionStrategies": wrong["preemptionStrategies"][::-1], "enabled": True, "weight": 3}
    await site.admin.request("POST", f"{API}/cohorts", body | {"spec": {"fairSharing": right}})
    await site.admin.request("DELETE", f"{API}/cohorts/tried")


async def test_the_cluster_queue_of_a_local_queue_is_immutable(site: Site) -> None:
    path = f"{API}/namespaces/team-a/localqueues/main"
    with pytest.raises(ApiError, match=re.escape("spec.clusterQueue: Invalid value")) as caught:
        await site.admin.request(
            "PATCH", path, {"spec": {"clusterQueue": "team-b"}}, content_type=MERGE_PATCH
        )
    assert "cannot be changed" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"topologyName": "rack"}, "spec.topologyName: Invalid value: needs at least one of nodeLabels"),
        ({"nodeLabels": {"bad key": "x"}}, "keys must be label names"),
        ({"nodeTaints": [{"key": "a", "effect": "Sometimes"}]}, "spec.nodeTaints[0].effect"),
        ({"nodeTaints": 2 * [{"key": "a", "effect": "NoSchedule"}]}, "spec.nodeTaints[1]: Duplicate value"),
        ({"tolerations": [{"operator": "Equal"}]}, "must be Exists where key is empty"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "spec.tolerations[0].value"),
        ({"tolerations": [{"key": "a", "tolerationSeconds": 5}]}, "needs effect NoExecute"),
    ],
)
async def test_an_invalid_flavor_is_refused(site: Site, spec: Json, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        await site.admin.request("POST", f"{API}/resourceflavors", flavor(spec))
    assert caught.value.status == 422
    assert words in str(caught.value)


@pytest.mark.parametrize("what", REFUSED_NODES)
async def test_invalid_nodes_of_a_flavor_are_refused_and_the_field_is_named(site: Site, what: str) -> None:
    nodes, field, words = REFUSED_NODES[what]
    with pytest.raises(ApiError) as caught:
        await site.admin.request("POST", f"{API}/resourceflavors", flavor({"nodes": nodes}))
    assert caught.value.status == 422
    assert field in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("what", ACCEPTED_NODES)
async def test_valid_nodes_of_a_flavor_are_stored_completely_and_read_back(site: Site, what: str) -> None:
    nodes = ACCEPTED_NODES[what]
    made = await site.admin.request("POST", f"{API}/resourceflavors", flavor({"nodes": nodes}))
    await site.admin.request("DELETE", f"{API}/resourceflavors/tried")
    assert made["spec"]["nodes"] == nodes
    assert isinstance(policy_event(made), PolicyObserved)


async def test_the_rules_cost_little_where_the_length_of_a_quantity_is_unbounded(site: Site) -> None:
    """Before Kubernetes 1.34 a rule's cost is estimated as if a quantity could be as long as a request."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for name in ("clusterqueues", "cohorts", "localqueues", "resourceflavors"):
        text, count = re.subn(r"\n *maxLength: 32(?=\n)", "", files()[f"queuectl.dev_{name}.yaml"])
        assert count
        stored = await site.admin.request("GET", f"{definitions}/{name}.queuectl.dev")
        body = yaml.safe_load(text)
        body["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        await site.admin.request("PUT", f"{definitions}/{name}.queuectl.dev", body, query={"dryRun": "All"})


async def test_the_status_a_controller_writes_is_not_pruned(site: Site) -> None:
    path = f"{API}/namespaces/team-b/localqueues/main/status"
    waiting = {
        "kind": "Job",
        "name": "train",
        "uid": "u",
        "position": 1,
        "reason": {"code": "WaitingForQuota", "message": "short by 2"},
    }
    condition = {
        "type": "Active",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    status: Json = {
        "pendingWorkloads": 1,
        "reservingWorkloads": 0,
        "admittedWorkloads": 0,
        "waiting": [waiting],
        "conditions": [condition],
    }
    made = await site.admin.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)
    assert made["status"] == status


async def test_applying_everything_again_is_accepted(site: Site) -> None:
    for folder in (".", "mutating", "examples") if site.mutating else (".", "examples"):
        code, output = await site.kubectl("apply", "-k", str(MANIFESTS / folder))
        assert code == 0, output


def _holds(made: object, asked: object) -> bool:
    """`found` has everything in `wanted`; the server may have added defaults."""
    if isinstance(asked, dict):
        return isinstance(made, dict) and all(
            key in made and _holds(made[key], value) for key, value in asked.items()
        )
    return made == asked


async def test_the_label_that_restricts_is_true_or_false_and_stands_where_it_has_an_effect(
    site: Site,
) -> None:
    paths: dict[str, Json] = {
        "workloadpriorityclasses": {"kind": "WorkloadPriorityClass", "value": 1},
        "namespaces/default/localqueues": {"kind": "LocalQueue", "spec": {"clusterQueue": "research"}},
        "clusterqueues": {"kind": "ClusterQueue", "spec": {}},
    }
    for path, fields in paths.items():
        for value in ("true", "false", "yes", "True", ""):
            metadata = {"name": "labelled", "labels": {"queuectl.dev/restricted": value}}
            body = {"apiVersion": "queuectl.dev/v1beta1", "metadata": metadata, **fields}
            asked = site.admin.request("POST", f"{API}/{path}", body, query={"dryRun": "All"})
            if value in ("true", "false") and path != "clusterqueues":
                await asked
                continue
            with pytest.raises(ApiError, match="stands on a LocalQueue or WorkloadPriorityClass"):
                await asked
