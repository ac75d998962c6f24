"""SparkApplication on sample objects: what its pods request, how it is steered, what its status says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds import patches
from queuectl.kinds.reserved_keys import POD_LABELS
from queuectl.kinds.workloads import observe
from tests.integration.kube.sites import SPOT, effect
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.computed_objects import spark_application, spark_state
from tests.unit.kinds.json_patches import applied, with_its_stop

SPARK = JOB_KINDS["SparkApplication"]
GPU = "nvidia.com/gpu"
MIB = 1 << 20


def charged(obj: dict[str, Any]) -> dict[str, tuple[int, dict[str, int]]]:
    """Count and requests of one pod, by podset; memory in MiB."""
    event = observe(SPARK, obj)
    assert event is not None
    assert event.workload.problem is None
    found = {}
    for pod_set in event.workload.pod_sets:
        requests = dict(pod_set.requests)
        assert requests["memory"] % MIB == 0
        found[pod_set.name] = pod_set.count, requests | {"memory": requests["memory"] // MIB}
    return found


def problem(obj: dict[str, Any]) -> str:
    event = observe(SPARK, obj)
    assert event is not None
    assert event.workload.problem is not None
    assert event.workload.problem.code is Code.MISCONFIGURED
    return str(event.workload.problem.detail)


def test_driver_and_executors_are_charged_with_the_overhead_beside_the_jvm() -> None:
    assert charged(spark_application()) == {
        "driver": (1, {"cpu": 1000, "memory": 1024 + 384}),
        "executor": (2, {"cpu": 2000, "memory": 4096 + 409}),
    }


@pytest.mark.parametrize(
    ("executor", "spec", "memory"),
    [
        ({}, {"type": "Python"}, 4096 + 1638),
        ({}, {"type": "R"}, 4096 + 1638),
        ({"memory": "1g"}, {"type": "Python"}, 1024 + 409),
        ({"memory": "900m"}, {"type": "Python"}, 900 + 384),
        ({"memory": "1024"}, {}, 1024 + 384),
        ({"memory": "2048K"}, {}, 2 + 384),
        ({"memory": "1TB"}, {}, (1 << 20) + 104857),
        ({"memory": None}, {}, 1024 + 384),
        ({"memory": None}, {"sparkConf": {"spark.executor.memory": "2g"}}, 2048 + 384),
        ({"memory": "8g"}, {"sparkConf": {"spark.executor.memory": "2g"}}, 8192 + 819),
        ({"memoryOverhead": "512m"}, {"type": "Python"}, 4096 + 512),
        ({"memoryOverhead": "100"}, {}, 4096 + 100),
        ({}, {"sparkConf": {"spark.executor.memoryOverhead": "1g"}}, 4096 + 1024),
        ({}, {"memoryOverheadFactor": "0.5"}, 4096 + 2048),
        ({}, {"memoryOverheadFactor": "0.5", "type": "Python"}, 4096 + 2048),
        (
            {},
            {"memoryOverheadFactor": "0.5", "sparkConf": {"spark.kubernetes.memoryOverheadFactor": "0.2"}},
            4096 + 819,
        ),
        ({}, {"sparkConf": {"spark.executor.memoryOverheadFactor": "0.3"}}, 4096 + 1228),
        ({}, {"sparkConf": {"spark.executor.minMemoryOverhead": "1g"}}, 4096 + 1024),
        ({}, {"type": "Python", "sparkConf": {"spark.executor.pyspark.memory": "1g"}}, 4096 + 1638 + 1024),
        ({}, {"sparkConf": {"spark.executor.pyspark.memory": "1g"}}, 4096 + 409),
        (
            {},
            {"sparkConf": {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1g"}},
            4096 + 409 + 1024,
        ),
        ({}, {"sparkConf": {"spark.memory.offHeap.size": "1g"}}, 4096 + 409),
        (
            {},
            {"sparkConf": {"spark.memory.offHeap.enabled": "TRUE", "spark.memory.offHeap.size": "1048576"}},
            4096 + 409 + 1,
        ),
    ],
)
def test_the_memory_of_an_executor_follows_sparks_rules(
    executor: dict[str, Any], spec: dict[str, Any], memory: int
) -> None:
    assert charged(spark_application(executor=executor, **spec))["executor"][1]["memory"] == memory


@pytest.mark.parametrize(
    ("driver", "conf", "cpu"),
    [
        ({"cores": 3}, {}, 3000),
        ({"cores": 3, "coreRequest": "500m"}, {}, 500),
        ({"cores": None}, {}, 1000),
        ({"cores": None}, {"spark.driver.cores": "4"}, 4000),
        ({"cores": 3}, {"spark.driver.cores": "4"}, 3000),
        ({"cores": 3}, {"spark.kubernetes.driver.request.cores": "1.5"}, 1500),
        ({"cores": 3, "coreLimit": "4000m"}, {}, 3000),
    ],
)
def test_the_cpu_of_a_driver_is_that_of_field_property_or_default(
    driver: dict[str, Any], conf: dict[str, str], cpu: int
) -> None:
    assert charged(spark_application(driver=driver, sparkConf=conf))["driver"][1]["cpu"] == cpu


@pytest.mark.parametrize(
    ("executor", "conf", "gpus"),
    [
        ({"gpu": {"name": GPU, "quantity": 2}}, {}, 2),
        ({"gpu": {"name": GPU, "quantity": 0}}, {}, None),
        (
            {},
            {"spark.executor.resource.gpu.amount": "1", "spark.executor.resource.gpu.vendor": "nvidia.com"},
            1,
        ),
        (
            {"gpu": {"name": GPU, "quantity": 2}},
            {"spark.executor.resource.gpu.amount": "1", "spark.executor.resource.gpu.vendor": "nvidia.com"},
            2,
        ),
        (
            {
                "template": {
                    "spec": {
                        "containers": [
                            {"name": "side"},
                            {"name": "spark-kubernetes-executor", "resources": {"limits": {GPU: 4}}},
                        ]
                    }
                }
            },
            {},
            4,
        ),
    ],
)
def test_devices_come_from_the_field_the_properties_or_the_pod_template(
    executor: dict[str, Any], conf: dict[str, str], gpus: int | None
) -> None:
    assert charged(spark_application(executor=executor, sparkConf=conf))["executor"][1].get(GPU) == gpus


def test_containers_beside_sparks_own_are_charged() -> None:
    asks = {"resources": {"requests": {"cpu": "250m", "memory": "100Mi"}}}
    first = {"name": "wait", "resources": {"requests": {"cpu": "8"}}}
    driver = {
        "sidecars": [{"name": "logs", **asks}],
        "template": {
            "spec": {"containers": [{"name": "spark-kubernetes-driver"}, {"name": "proxy", **asks}]}
        },
        "initContainers": [first],
    }
    assert charged(spark_application(driver=driver))["driver"][1] == {"cpu": 8000, "memory": 1408 + 200}


@pytest.mark.parametrize(
    ("executor", "conf", "count"),
    [
        ({"instances": 7}, {"spark.executor.instances": "3"}, 7),
        ({"instances": None}, {"spark.executor.instances": "3"}, 3),
        ({"instances": None}, {}, 2),
    ],
)
def test_the_number_of_executors_is_that_of_field_property_or_default(
    executor: dict[str, Any], conf: dict[str, str], count: int
) -> None:
    assert charged(spark_application(executor=executor, sparkConf=conf))["executor"][0] == count


@pytest.mark.parametrize(
    ("driver", "spec", "words"),
    [
        ({"memory": "1.5g"}, {}, "spec.driver.memory: '1.5g' is not a size such as 512m or 2g"),
        ({"memory": "1x"}, {}, "spec.driver.memory: '1x' is not a size"),
        ({"memory": "999999999999999999p"}, {}, "spec.driver.memory: '999999999999999999p' is more than"),
        ({"coreRequest": "many"}, {}, "spec.driver.coreRequest: "),
        (
            {},
            {"executor": {}, "sparkConf": {"spark.executor.instances": "two"}},
            "spec.sparkConf[spark.executor.instances]: 'two' is not a whole number",
        ),
        (
            {},
            {"sparkConf": {"spark.driver.memoryOverhead": ""}},
            "spec.sparkConf[spark.driver.memoryOverhead]: ''",
        ),
        ({}, {"memoryOverheadFactor": "much"}, "spec.memoryOverheadFactor: 'much' is not a factor"),
        ({}, {"memoryOverheadFactor": "nan"}, "spec.memoryOverheadFactor: 'nan' is not a factor"),
        (
            {},
            {"sparkConf": {"spark.driver.resource.gpu.amount": "1"}},
            "its vendor is missing, spark.driver.resource.gpu.vendor",
        ),
        ({}, {"sparkConf": ["x"]}, "spec.sparkConf: a list is not an object"),
        ({}, {"driver": 7}, "spec.driver: 7 is not an object"),
    ],
)
def test_what_cannot_be_read_is_named(driver: dict[str, Any], spec: dict[str, Any], words: str) -> None:
    assert words in problem({**(found := spark_application(driver=driver)), "spec": found["spec"] | spec})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["cores", "memory", "gpu", "template", "spec", "containers", "name", "quantity"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_driver_is_too_strange_to_be_read(driver: Any) -> None:
    obj = spark_application()
    obj["spec"]["driver"] = driver
    event = observe(SPARK, obj)
    assert event is not None
    assert (event.workload.problem is None) == bool(event.workload.pod_sets)


def test_a_start_steers_driver_and_executors_by_their_fields() -> None:
    obj = spark_application(driver={"labels": {"a": "b"}, "nodeSelector": {"disk": "ssd"}})
    started = applied(obj, patches.start(SPARK, effect(obj, "SparkApplication")))
    spec = started["spec"]
    assert spec["suspend"] is False
    assert spec["driver"]["nodeSelector"] == {"disk": "ssd"} | dict(SPOT.node_labels)
    assert spec["executor"]["nodeSelector"] == dict(SPOT.node_labels)
    assert [one["key"] for one in spec["executor"]["tolerations"]] == ["spot"]
    assert set(spec["executor"]["labels"]) == set(POD_LABELS)
    assert set(spec["driver"]["labels"]) == {"a", *POD_LABELS}


def test_fields_of_a_pod_template_stay_the_users_own_from_start_to_start() -> None:
    own = {"key": "gpu", "operator": "Exists"}
    template = {
        "spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [own], "containers": [{"name": "c"}]}
    }
    obj = spark_application(driver={"template": template})
    for generation in (1, 2, 3):
        obj["metadata"]["generation"] = generation
        before = effect(obj, "SparkApplication")
        driver = before.workload.pod_sets[0]
        assert (driver.node_selector, [one.key for one in driver.tolerations]) == (
            (("disk", "ssd"),),
            ["gpu"],
        )
        obj = applied(obj, patches.start(SPARK, before))
        obj["spec"]["suspend"] = True


@pytest.mark.parametrize(
    ("status", "ready", "pods", "outcome"),
    [
        ({}, None, None, None),
        (spark_state("SUBMITTED"), False, 0, None),
        (spark_state("RUNNING", a="RUNNING"), False, 2, None),
        (spark_state("RUNNING", a="RUNNING", b="FAILED", c="RUNNING"), True, 3, None),
        (spark_state("PENDING_RERUN"), False, 0, None),
        (spark_state("FAILING"), False, 0, None),
        (spark_state("SUBMISSION_FAILED"), False, 0, None),
        (spark_state("COMPLETED"), False, 0, WorkloadOutcome.SUCCEEDED),
        (spark_state("FAILED"), False, 0, WorkloadOutcome.FAILED),
    ],
)
def test_the_state_says_whether_it_is_ready_or_over(
    status: dict[str, Any], ready: bool | None, pods: int | None, outcome: WorkloadOutcome | None
) -> None:
    obj = spark_application() | status
    found = SPARK.status(obj)
    assert (found.ready, found.pods_ready, found.quiet, found.reclaimable) == (ready, pods, None, ())
    assert SPARK.outcome(obj) is outcome


def test_a_stop_waits_until_its_operator_says_suspended_once_more() -> None:
    obj = spark_application() | spark_state("SUSPENDED")
    assert SPARK.says_suspended(obj)
    stop = effect(obj, "SparkApplication")
    obj = with_its_stop(SPARK, stop, obj)
    asked = patches.next_stop(SPARK, stop, obj)
    assert asked is not None
    assert asked.subresource == "status"
    told = applied(obj, asked.body)
    assert told["status"]["applicationState"]["state"] == "SUSPENDING"
    assert patches.next_stop(SPARK, effect(told, "SparkApplication"), told) is None
