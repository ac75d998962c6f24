"""Requests that can't be satisfied or are out of range: numbers 20 to 25 of the table in test_bad_inputs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuectl.core.model.resources import parse_quantity
from queuectl.kinds.requests import pod_requests
from queuectl.kube.errors import ApiError
from tests.acceptance.e2e.site import (
    GPU,
    Json,
    cluster_queue,
    eventually,
    gpus_only,
    job,
    pod_template,
    pytorchjob,
)
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROMPT = 20.0
"""Seconds in which other jobs are admitted beside a hostile one. Naive parsing of it would take minutes."""
GIB, MIB = 2**30, 2**20
MOST = 2**31 - 1


async def served_promptly(world: World, name: str) -> None:
    """A job that requests the queue's whole quota is admitted at once, and nothing else is charged."""
    await world.submit(job(name, template=gpus_only(8, seconds=60)))

    async def admitted() -> bool:
        return (await world.workload(name)).get("phase") == "Admitted"

    await eventually(f"{name} is admitted beside it", admitted, PROMPT)
    assert await world.used(world.namespace) == {("a100", GPU): 8}


@pytest.mark.parametrize(
    ("kind", "amount"), [("Job", "1e1000000"), ("Job", "9e30"), ("PyTorchJob", "1" + 4000 * "0")]
)
async def test_20_an_exponent_of_a_million_is_out_of_range_and_affects_no_other_job(
    world: World, kind: str, amount: str
) -> None:
    template = pod_template(1)
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = amount
    make = job if kind == "Job" else pytorchjob
    await world.submit(make("poison", template=template))
    reason = await world.reason_is("poison", "QuantityOutOfRange", kind)
    assert reason["resource"] == "cpu"
    assert "template.spec.containers[0].resources.requests.cpu" in reason["detail"]
    spec = (await world.get("poison", kind))["spec"]
    assert (spec if kind == "Job" else spec["runPolicy"])["suspend"] is True
    await served_promptly(world, "other")


async def test_21_a_negative_number_of_gpus_never_credits_quota(world: World) -> None:
    await world.submit(pytorchjob("credit", workers=8, template=pod_template(-1)))
    reason = await world.reason_is("credit", "NegativeRequest", "PyTorchJob")
    assert (reason["resource"], reason["requested"]) == (GPU, -1)
    assert "spec.pytorchReplicaSpecs.Master.template.spec.containers[0]" in reason["detail"]
    assert (await world.get("credit", "PyTorchJob"))["spec"]["runPolicy"]["suspend"] is True
    if world.site.control_plane == "real":
        with pytest.raises(ApiError, match="must be greater than or equal to 0"):
            await world.submit(job("plain", template=pod_template(-1)))
    await served_promptly(world, "all")
    await world.submit(job("more", template=gpus_only(1)))
    short = await world.reason_is("more", "WaitingForQuota")
    assert (short["available"], short["shortBy"]) == (0, 1)


async def test_22_a_parallelism_of_two_billion_is_computed_exactly_and_not_admitted(world: World) -> None:
    await world.submit(job("wide", template=gpus_only(1), parallelism=MOST))
    reason = await world.reason("wide")
    assert reason["code"] == "ExceedsMaxQuota"
    assert (reason["requested"], reason["available"], reason["shortBy"]) == (MOST, 8, MOST - 8)
    await served_promptly(world, "other")


async def test_22_a_sum_of_more_than_64_bits_is_exact_in_every_place(world: World) -> None:
    each = 9 * 10**18
    await world.submit(job("wide", template=gpus_only(each), parallelism=MOST))
    reason = await world.reason("wide")
    total = each * MOST
    assert reason["code"] == "ExceedsMaxQuota"
    assert (reason["requested"], reason["available"], reason["shortBy"]) == (total, 8, total - 8)
    told = await world.site.queuectl("explain", "job/wide", "-n", world.namespace)
    assert str(total) in told.out
    await served_promptly(world, "other")


# --- 24: every field a request can be in -----------------------------------------------------------------


def _pod(main: Json | None = None, init: list[Json] | None = None, /, **spec: Any) -> Json:
    image = "registry.example/none"
    containers = [{"name": "main", "image": image, "resources": main or {}}]
    inits = [{"name": f"init-{n}", "image": image, **one} for n, one in enumerate(init or [])]
    return {"restartPolicy": "Never", "containers": containers, "initContainers": inits, **spec}


def _ask(**requests: str) -> Json:
    return {"resources": {"requests": requests}}


PLACES: dict[str, tuple[Json, dict[str, int]]] = {
    "init-only": (
        _pod(None, [{"resources": {"requests": {"cpu": "2"}, "limits": {GPU: "1"}}}, _ask(cpu="500m")]),
        {"cpu": 2000, GPU: 1},
    ),
    "init-smaller": (_pod({"requests": {"cpu": "1"}}, [_ask(cpu="900m")]), {"cpu": 1000}),
    "sidecar": (
        _pod(
            {"requests": {"cpu": "1"}},
            [{"restartPolicy": "Always", **_ask(cpu="500m", memory="1Gi")}, _ask(cpu="2")],
        ),
        {"cpu": 2500, "memory": GIB},
    ),
    "sidecar-late": (
        _pod({"requests": {"cpu": "1"}}, [_ask(cpu="2"), {"restartPolicy": "Always", **_ask(cpu="500m")}]),
        {"cpu": 2000},
    ),
    "pod-level": (
        _pod(
            {"requests": {"cpu": "1"}, "limits": {GPU: "1"}},
            resources={"requests": {"cpu": "3", "memory": "2Gi"}},
        ),
        {"cpu": 3000, "memory": 2 * GIB, GPU: 1},
    ),
    "pod-level-limits": (
        _pod({"requests": {"cpu": "1"}}, resources={"limits": {"cpu": "3", "memory": "1Gi"}}),
        {"cpu": 1000, "memory": GIB},
    ),
    "limits-only": (
        _pod({"limits": {"cpu": "1500m", "memory": "256Mi", GPU: "2"}}),
        {"cpu": 1500, "memory": 256 * MIB, GPU: 2},
    ),
    "fractions": (_pod({"requests": {"cpu": "0.0001", "memory": "100m"}}), {"cpu": 1, "memory": 1}),
    "overhead": (
        _pod({"requests": {"cpu": "1"}}, runtimeClassName="NAMESPACE"),
        {"cpu": 1250, "memory": 64 * MIB},
    ),
}


async def test_24_a_request_is_charged_as_kubernetes_counts_it_in_every_field(world: World) -> None:
    overhead = {"podFixed": {"cpu": "250m", "memory": "64Mi"}}
    await world.api.request(
        "POST",
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": world.namespace},
            "handler": "none",
            "overhead": overhead,
        },
    )
    queue = cluster_queue(world.namespace, 64)
    group = queue["spec"]["resourceGroups"][0]
    group["coveredResources"].append("memory")
    group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "64Gi"})
    await world.policy(queue)
    specs = {
        name: json.loads(json.dumps(spec).replace("NAMESPACE", world.namespace))
        for name, (spec, _) in PLACES.items()
    }
    for name, spec in specs.items():
        template = {"metadata": {"annotations": {"sandbox.queuectl.dev/run-seconds": "60"}}, "spec": spec}
        await world.submit(job(name, template=template, parallelism=2, completions=2))
    charged = {}
    for name in specs:
        (pods,) = (await world.phase(name, "Admitted"))["admission"]["podSets"]
        assert pods["count"] == 2
        charged[name] = pods["requests"]
    assert charged == {name: expected for name, (_, expected) in PLACES.items()}
    if world.site.control_plane == "real":
        counted = {name: await _as_defaulted(world, spec) for name, spec in specs.items()}
        assert counted == charged


async def _as_defaulted(world: World, spec: Json) -> dict[str, int]:
    """Requests of the pod as the API server would store it: defaults filled in, overhead added."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"}, "spec": spec}
    pods = f"/api/v1/namespaces/{world.namespace}/pods"
    made = await world.api.request("POST", pods, body, query={"dryRun": "All"})
    for container in made["spec"]["containers"]:
        # Requests that default to a limit are filled in, so that queuectl has nothing to derive.
        asked = container["resources"]
        assert asked.get("requests", {}).keys() >= asked.get("limits", {}).keys()
        assert all(
            parse_quantity(asked["requests"][resource], resource) <= parse_quantity(limit, resource)
            for resource, limit in asked.get("limits", {}).items()
        )
        asked.pop("limits", None)
    level = made["spec"].get("resources", {})
    assert level.get("requests", {}).keys() >= level.get("limits", {}).keys()
    level.pop("limits", None)
    return dict(pod_requests(made["spec"], "spec"))


async def test_25_a_resource_that_no_queue_covers_keeps_the_job_pending_and_is_named(world: World) -> None:
    template = pod_template(1)
    template["spec"]["containers"][0]["resources"]["limits"]["foo.com/x"] = "3"
    await world.submit(job("strange", template=template))
    reason = await world.reason("strange")
    assert (reason["code"], reason["resource"], reason["requested"]) == ("ResourceNotCovered", "foo.com/x", 3)
    assert (reason["limit"], reason["node"]) == ("coveredResources", f"ClusterQueue/{world.namespace}")
    assert "foo.com/x" in (await world.site.queuectl("explain", "job/strange", "-n", world.namespace)).out
    await served_promptly(world, "other")


async def test_a_resource_claim_keeps_the_job_pending_and_is_named(world: World) -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    await world.submit(job("claims", template=pod_template(1, resourceClaims=claims)))
    reason = await world.reason_is("claims", "ResourceNotCovered")
    assert "spec.template.spec.resourceClaims[0]" in reason["detail"]
