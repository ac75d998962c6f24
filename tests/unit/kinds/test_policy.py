"""Policy objects to values of the core, from the API server and from the ledger by the same models."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.core.model.budgets import (
    HOUR,
    Budget,
    BudgetGrant,
    BudgetMode,
    BudgetPeriods,
    OnExhausted,
    Period,
    PeriodKind,
)
from queuectl.core.model.device_use import IdlePolicy
from queuectl.core.model.events import PolicyInvalid, PolicyObserved
from queuectl.core.model.policy import (
    CapacityMode,
    ClusterQueue,
    Cohort,
    FlavorNodes,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    LocalQueueName,
    QueueingStrategy,
    Requirement,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
    Taint,
    Toleration,
    WorkloadPriorityClass,
)
from queuectl.core.model.resources import MAX_AMOUNT
from queuectl.core.model.usage_limits import (
    WORKLOADS,
    Dimension,
    LimitSubject,
    LimitTarget,
    SubjectKind,
    UsageLimit,
)
from queuectl.core.model.workload import ConfigKey
from queuectl.kinds.policy import POLICY_KINDS, parse_policy, policy_event, unknown_fields
from queuectl.kinds.policy_amounts import BadPolicy
from queuectl.kinds.reserved_keys import RESTRICTED_LABEL
from tests.unit.core import profiles
from tests.unit.kinds.policy_cases import ACCEPTED, GPU, REFUSED, REFUSED_NODES, cluster_queue, group, quota

Json = dict[str, Any]


IDLE: Json = {
    "target": {"kind": "ClusterQueue", "name": "q"},
    "notifyAfterSeconds": 3600,
    "holdAfterSeconds": 7200,
}
LIMIT: Json = {
    "target": {"kind": "LocalQueue", "namespace": "ns", "name": "lq"},
    "subject": {"kind": "EachAccount", "key": "project"},
    "running": 2,
    "pending": 5,
    "resources": {"cpu": "500m"},
    "flavors": [{"name": "a100", "resources": {GPU: 4}}],
    "minRequest": {GPU: 1},
}


def _observed(obj: Json) -> PolicyObserved:
    event = policy_event(obj)
    assert isinstance(event, PolicyObserved), event
    return event


def _object(kind: str, *, name: str = "one", namespace: str | None = None, **fields: object) -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "queuectl.dev/v1beta1", "kind": kind, "metadata": metadata, **fields}


def test_a_cluster_queue_is_read_with_amounts_in_base_units() -> None:
    obj = cluster_queue(
        group(["cpu", "memory", GPU], a100={"nominalQuota": 2, "borrowingLimit": 1}),
        cohortName="research",
        queueingStrategy="StrictFIFO",
        stopPolicy="HoldAndDrain",
        namespaceSelector={
            "matchLabels": {"team": "a"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x", "y"]}],
        },
    )
    obj["spec"]["resourceGroups"][0]["flavors"][0]["resources"][1] = {
        "name": "memory",
        "nominalQuota": "1.5Gi",
        "lendingLimit": "1Gi",
    }
    assert _observed(obj).value == ClusterQueue(
        name="tried",
        cohort="research",
        resource_groups=(
            ResourceGroup(
                covered=("cpu", "memory", GPU),
                flavors=(
                    FlavorQuotas(
                        name="a100",
                        resources=(
                            ("cpu", ResourceQuota(nominal=2000, borrowing_limit=1000)),
                            ("memory", ResourceQuota(nominal=3 << 29, lending_limit=1 << 30)),
                            (GPU, ResourceQuota(nominal=2, borrowing_limit=1)),
                        ),
                    ),
                ),
            ),
        ),
        namespace_selector=LabelSelector(
            labels=(("team", "a"),), expressions=(Requirement("tier", "NotIn", ("x", "y")),)
        ),
        queueing_strategy=QueueingStrategy.STRICT_FIFO,
        stop_policy=StopPolicy.HOLD_AND_DRAIN,
    )


@pytest.mark.parametrize(("annotation", "author"), [("ada", "ada"), ("", None), (7, None)])
def test_the_user_that_wrote_a_spec_is_read_and_no_part_of_the_spec(annotation: object, author: str) -> None:
    obj = _object("Cohort", spec={})
    bare = _observed(obj)
    obj["metadata"]["annotations"] = {"queuectl.dev/reserved-author": annotation}
    assert bare.author is None
    assert (_observed(obj).author, _observed(obj).spec) == (author, bare.spec)


def test_no_namespace_selector_selects_no_namespace_and_an_empty_one_all() -> None:
    selects_none = _observed(cluster_queue()).value
    selects_all = _observed(cluster_queue(namespaceSelector={})).value
    assert isinstance(selects_none, ClusterQueue)
    assert isinstance(selects_all, ClusterQueue)
    assert selects_none.namespace_selector is None
    assert selects_all.namespace_selector == LabelSelector()


NODES = {
    "mode": "Elastic",
    "resources": {GPU: "Enforce", "memory": "Observe"},
    "headroom": {GPU: "8"},
}


@pytest.mark.parametrize("what", REFUSED_NODES)
def test_nodes_of_a_flavor_that_the_server_refuses_are_invalid_to_the_reader_too(what: str) -> None:
    nodes, field, _ = REFUSED_NODES[what]
    event = policy_event(_object("ResourceFlavor", spec={"nodes": nodes}))
    assert isinstance(event, PolicyInvalid)
    assert event.detail.startswith(field)


def test_headroom_that_nothing_keeps_names_the_mode_of_its_resource() -> None:
    event = policy_event(_object("ResourceFlavor", spec={"nodes": {"headroom": {"cpu": 1}}}))
    assert isinstance(event, PolicyInvalid)
    assert event.detail == (
        "spec.nodes.headroom.cpu: is kept for resources with mode Enforce only, the mode of cpu is Observe"
    )


def test_the_other_kinds_are_read() -> None:
    flavor = {
        "nodeLabels": {"b": "2", "a": "1"},
        "nodeTaints": [{"key": "spot", "effect": "NoSchedule"}],
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "nodes": NODES,
    }
    assert _observed(_object("ResourceFlavor", spec=flavor)).value == ResourceFlavor(
        name="one",
        node_labels=(("a", "1"), ("b", "2")),
        node_taints=(Taint("spot", "", "NoSchedule"),),
        tolerations=(Toleration("spot", "Exists", None, "NoExecute", 5),),
        nodes=FlavorNodes(
            mode=CapacityMode.ELASTIC,
            modes=(("memory", CapacityMode.OBSERVE), (GPU, CapacityMode.ENFORCE)),
            headroom=((GPU, 8),),
        ),
    )
    queue = _object("LocalQueue", namespace="team-a", spec={"clusterQueue": "gpus", "stopPolicy": "Hold"})
    event = _observed(queue)
    assert event.key == ConfigKey("LocalQueue", "team-a", "one")
    assert event.value == LocalQueue(
        name=LocalQueueName("team-a", "one"), cluster_queue="gpus", stop_policy=StopPolicy.HOLD
    )
    assert _observed(_object("Cohort")).value == Cohort(name="one")
    priority = _object("WorkloadPriorityClass", value=-5, description="last")
    assert _observed(priority).value == WorkloadPriorityClass("one", -5)


@pytest.mark.parametrize("what", ACCEPTED)
def test_a_stored_spec_is_read_back_as_the_object_was(what: str) -> None:
    event = _observed(ACCEPTED[what])
    assert parse_policy(event.key, event.spec) == event.value
    # Canonical: reading what was written writes the same again.
    again = _observed({**ACCEPTED[what], "spec": json.loads(event.spec)})
    assert again.spec == event.spec


def test_stored_specs_of_all_kinds_read_back() -> None:
    for obj in (
        _object("ResourceFlavor", spec={"nodeLabels": {"a": "1"}}),
        _object("ResourceFlavor", spec={"nodes": NODES}),
        _object("LocalQueue", namespace="n", spec={"clusterQueue": "c"}),
        _object("Cohort", spec={"parentName": "all", "fairSharing": {"weight": "0.5"}}),
        _object("WorkloadPriorityClass", value=7),
        _object("UsageLimit", spec=LIMIT),
        _object("IdlePolicy", spec=IDLE),
        _object("Budget", spec=BUDGET),
        _object("ClusterQueue", spec={}),
    ):
        event = _observed(obj)
        assert parse_policy(event.key, event.spec) == event.value
    assert set(POLICY_KINDS) == {
        "ClusterQueue",
        "Cohort",
        "ResourceFlavor",
        "WorkloadPriorityClass",
        "UsageLimit",
        "IdlePolicy",
        "Budget",
        "LocalQueue",
    }


def test_the_order_of_keys_and_unset_fields_do_not_change_the_stored_spec() -> None:
    one = _observed(cluster_queue(group(GPU, a100={"nominalQuota": 1}), cohortName="c"))
    two = _observed(
        cluster_queue(group(GPU, a100={"nominalQuota": 1}), stopPolicy="None", cohortName="c", unknown=5)
    )
    assert one.spec == two.spec


@pytest.mark.parametrize("what", REFUSED)
def test_an_object_that_the_server_refuses_is_invalid_to_the_reader_too(what: str) -> None:
    """An object may be older than the rule, or the server's rules may be missing."""
    obj, _, _ = REFUSED[what]
    event = policy_event(obj)
    assert isinstance(event, PolicyInvalid)
    assert event.key == ConfigKey("ClusterQueue", "", "tried")
    assert event.detail.startswith("spec.")
    assert len(event.detail) <= 500


def test_the_second_path_of_a_duplicate_is_named_with_the_first() -> None:
    event = policy_event(REFUSED["flavor in two groups"][0])
    assert isinstance(event, PolicyInvalid)
    assert event.detail == (
        "spec.resourceGroups[2].flavors[1]: flavor a100 is at spec.resourceGroups[0].flavors[0] already"
    )


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("nominalquota", " (nominalquota is given: did you mean nominalQuota?)"),
        ("nominal-quota", " (nominal-quota is given: did you mean nominalQuota?)"),
        ("nominalQuot\x00", " (nominalQuot\ufffd is given: did you mean nominalQuota?)"),
        ("quota", ""),
        (f"nominalQuota{'x' * 5000}", ""),
    ],
)
def test_a_field_that_is_missing_is_sought_among_those_that_are_given(typed: str, hint: str) -> None:
    resource = {"name": "cpu", typed: "4"}
    flavors = [{"name": "main", "resources": [resource]}]
    spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}
    with pytest.raises(BadPolicy) as problem:
        parse_policy(ConfigKey("ClusterQueue", "", "one"), json.dumps(spec))
    path = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    assert str(problem.value) == f"{path}: is missing{hint}"


def test_an_amount_above_the_limit_is_refused_with_the_limit() -> None:
    event = policy_event(quota(str(MAX_AMOUNT + 1)))
    assert isinstance(event, PolicyInvalid)
    assert str(MAX_AMOUNT) in event.detail


def test_a_value_of_a_newer_version_is_invalid_and_raises_nothing() -> None:
    event = policy_event(cluster_queue(stopPolicy="Pause"))
    assert isinstance(event, PolicyInvalid)
    assert event.detail.startswith("spec.stopPolicy: 'Pause'")


def test_a_spec_contains_no_character_that_postgres_refuses() -> None:
    event = _observed(_object("WorkloadPriorityClass", value=1, description="a\x00b\ud800c\x1b[31m"))
    assert "\\u0000" not in event.spec
    assert "\\ud800" not in event.spec
    assert "\\u001b" not in event.spec


def test_a_broken_stored_spec_is_reported() -> None:
    key = ConfigKey("ClusterQueue", "", "gpus")
    for spec in ("", "[]", '{"stopPolicy":"Pause"}'):
        with pytest.raises(BadPolicy):
            parse_policy(key, spec)
    with pytest.raises(BadPolicy, match="none of ClusterQueue"):
        parse_policy(ConfigKey("Pod", "", "x"), "{}")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
_FIELDS = st.sampled_from(
    ["resourceGroups", "cohortName", "namespaceSelector", "preemption", "fairSharing", "nodeLabels", "value"]
)


@settings(max_examples=profiles.examples(200), deadline=None)
@given(st.sampled_from(sorted(POLICY_KINDS)), st.dictionaries(_FIELDS, _JSON, max_size=4) | _JSON)
def test_any_object_is_either_read_or_invalid(kind: str, spec: Any) -> None:
    obj = _object(kind, spec=spec, value=spec)
    event = policy_event(obj)
    if isinstance(event, PolicyObserved):
        assert parse_policy(event.key, event.spec) == event.value


def test_the_usage_limit_of_the_docs_is_read() -> None:
    text = (Path(__file__).parents[3] / "docs" / "examples" / "usage-limit.yaml").read_text()
    value = _observed(yaml.safe_load(text)).value
    assert isinstance(value, UsageLimit)
    assert value.most == ((Dimension(None, WORKLOADS), 20), (Dimension(None, GPU), 16))


def test_the_idle_policy_of_the_docs_is_read() -> None:
    text = (Path(__file__).parents[3] / "docs" / "examples" / "idle-policy.yaml").read_text()
    target = LimitTarget("Cohort", "research")
    expected = IdlePolicy(name="research", target=target, notify_after=3600, hold_after=7200, dry_run=True)
    value, cancels = (_observed(one).value for one in yaml.safe_load_all(text))
    assert value == expected
    assert isinstance(cancels, IdlePolicy)
    assert (cancels.hold_after, cancels.cancels, cancels.dry_run) == (14_400, True, True)


def test_an_idle_policy_does_nothing_and_holds_nothing_unless_it_says_so() -> None:
    value = _observed(_object("IdlePolicy", spec={"target": IDLE["target"]})).value
    assert value == IdlePolicy(name="one", target=LimitTarget("ClusterQueue", "q"), notify_after=3600)
    assert value.dry_run


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"target": {"kind": "LocalQueue", "name": "q"}}, "spec.target.namespace: is required"),
        ({"notifyAfterSeconds": 599}, "spec.notifyAfterSeconds: 599: must be at least 600"),
        (
            {"notifyAfterSeconds": 3600, "holdAfterSeconds": 3899},
            "spec.holdAfterSeconds: 3899, must be at least 300 more than notifyAfterSeconds, which is 3600",
        ),
        (
            {"cancelAfterSeconds": 3899},
            "spec.cancelAfterSeconds: 3899, must be at least 300 more than notifyAfterSeconds",
        ),
        (
            {"holdAfterSeconds": 7200, "cancelAfterSeconds": 7200},
            "spec.cancelAfterSeconds: is not allowed with holdAfterSeconds",
        ),
        (
            {"lowerAfterSeconds": 7200},
            "spec.lowerClass: is required with lowerAfterSeconds, and not allowed without",
        ),
        ({"dryRun": "no"}, "spec.dryRun"),
    ],
)
def test_an_idle_policy_that_cannot_be_obeyed_is_refused_with_its_field(change: Json, says: str) -> None:
    event = policy_event(_object("IdlePolicy", spec=IDLE | change))
    assert isinstance(event, PolicyInvalid)
    assert says in event.detail


@pytest.mark.parametrize("kind", ["LocalQueue", "WorkloadPriorityClass"])
def test_a_label_restricts_and_stays_in_what_the_ledger_stores(kind: str) -> None:
    every: dict[str, Json] = {
        "LocalQueue": {"spec": {"clusterQueue": "research"}},
        "WorkloadPriorityClass": {"value": 7},
    }
    plain = every[kind]
    found = []
    for value in ("true", "false"):
        obj = _object(kind, **plain)
        obj["metadata"]["labels"] = {RESTRICTED_LABEL: value, "restricted": "true"}
        event = _observed(obj)
        assert parse_policy(event.key, event.spec) == event.value
        assert list(unknown_fields(obj)) == []
        found.append(event.value)
    assert [one.restricted for one in found] == [True, False]  # type: ignore[union-attr]
    assert found[1] == _observed(_object(kind, **plain)).value


@pytest.mark.parametrize("value", ["yes", "TRUE", True, 1, None, {}])
def test_a_label_that_is_neither_true_nor_false_makes_the_object_invalid(value: object) -> None:
    obj = _object("WorkloadPriorityClass", value=7)
    obj["metadata"]["labels"] = {RESTRICTED_LABEL: value}
    event = policy_event(obj)
    assert isinstance(event, PolicyInvalid)
    assert event.detail.startswith(f"metadata.labels.{RESTRICTED_LABEL}: ")
    assert event.detail.endswith("must be 'true' or 'false'")


@pytest.mark.parametrize("value", ["7", True, 7.5, 10**30, None, [7]], ids=repr)
def test_a_number_is_a_number_as_in_the_schema_of_the_api_server(value: object) -> None:
    for obj, path in (
        (_object("WorkloadPriorityClass", value=value), "value"),
        (
            _object("ClusterQueue", spec={"maxExecutionTime": {"default": value}}),
            "spec.maxExecutionTime.default",
        ),
    ):
        event = policy_event(obj)
        if value is None and path != "value":
            continue  # unset
        assert isinstance(event, PolicyInvalid)
        assert event.detail.startswith(f"{path}: ")


def test_a_text_is_neither_true_nor_false() -> None:
    event = policy_event(_object("Cohort", spec={"fairSharing": {"enabled": "no"}}))
    assert isinstance(event, PolicyInvalid)
    assert event.detail == "spec.fairSharing.enabled: 'no': must be true or false"


def test_the_restricted_class_of_the_docs_is_read_and_is_the_one_that_its_role_lets_use() -> None:
    text = (Path(__file__).parents[3] / "docs" / "examples" / "restricted.yaml").read_text()
    of_class, role, binding = yaml.safe_load_all(text)
    assert _observed(of_class).value == WorkloadPriorityClass("urgent", 10000, restricted=True)
    ((rule,), name) = role["rules"], role["metadata"]["name"]
    assert (rule["resourceNames"], rule["verbs"]) == (["urgent"], ["use"])
    assert rule["resources"] == [POLICY_KINDS["WorkloadPriorityClass"].plural]
    assert binding["roleRef"]["name"] == name


def test_a_usage_limit_is_read_with_all_its_fields() -> None:
    event = _observed(_object("UsageLimit", spec=LIMIT))
    assert event.value == UsageLimit(
        name="one",
        target=LimitTarget("LocalQueue", "lq", "ns"),
        subject=LimitSubject(SubjectKind.EACH_ACCOUNT, key="project"),
        most=(
            (Dimension(None, WORKLOADS), 2),
            (Dimension(None, "cpu"), 500),
            (Dimension("a100", GPU), 4),
        ),
        pending=5,
        min_request=((GPU, 1),),
    )


BUDGET: Json = {
    "target": {"kind": "ClusterQueue", "name": "q"},
    "subject": {"kind": "EachUser"},
    "resource": "cpu",
    "hours": "1500m",
    "period": {"kind": "Dates", "begins": "2026-11-01T00:00:00+01:00", "ends": "2026-12-01T00:00:00Z"},
    "mode": "Metered",
}


def test_a_budget_is_read_with_all_its_fields() -> None:
    dates = Period(datetime(2026, 10, 31, 23, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    more = {"refunds": {"preempted": 30}, "onExhausted": "LowerClass", "lowerClass": "scavenge"}
    assert _observed(_object("Budget", spec=BUDGET | more)).value == Budget(
        name="one",
        target=LimitTarget("ClusterQueue", "q"),
        subject=LimitSubject(SubjectKind.EACH_USER),
        resource="cpu",
        amount=1500 * HOUR,
        periods=BudgetPeriods(PeriodKind.DATES, dates=dates),
        mode=BudgetMode.METERED,
        refund_preempted=30,
        refund_node_failures=100,
        on_exhausted=OnExhausted.LOWER_CLASS,
        lower_class="scavenge",
    )


@pytest.mark.parametrize(("resource", "milli"), [("cpu", 1000), (GPU, 1)])
def test_grants_of_a_budget_are_read_in_thousandths_of_an_hour(resource: str, milli: int) -> None:
    grants = [
        {"hours": "12.5", "at": "2026-11-30T00:30:00+01:00", "subject": "ann", "reason": "a deadline"},
        {"hours": 3, "at": "2026-11-02T00:00:00Z", "workload": "ns/Job/train", "reason": "a broken disk"},
    ]
    value = _observed(
        _object("Budget", spec=BUDGET | {"resource": resource, "hours": 1, "grants": grants})
    ).value
    assert isinstance(value, Budget)
    first, second = value.grants
    when = datetime(2026, 11, 29, 23, 30, tzinfo=UTC)
    assert first == BudgetGrant(
        amount=25 * HOUR * milli // 2, at=when, subject="ann", workload=None, reason="a deadline"
    )
    assert (second.amount, second.subject, second.workload) == (3 * HOUR * milli, None, "ns/Job/train")
    dates = value.periods.at(when)
    assert dates is not None
    assert value.granted("ann", dates) == first.amount + second.amount
    assert value.granted("bob", dates) == second.amount
    later = Period(dates.ends, datetime(2027, 1, 1, tzinfo=UTC))
    assert (value.granted("ann", later), value.allowed("ann", later)) == (0, value.amount)


def test_the_budget_of_the_docs_is_read() -> None:
    text = (Path(__file__).parents[3] / "docs" / "examples" / "budget.yaml").read_text()
    value, lowers, refuses = (_observed(one).value for one in yaml.safe_load_all(text))
    assert isinstance(value, Budget)
    assert (value.amount, value.periods.zone) == (5000 * HOUR, "Europe/Berlin")
    assert isinstance(lowers, Budget)
    assert (lowers.on_exhausted, lowers.lower_class) == (OnExhausted.LOWER_CLASS, "scavenge")
    assert isinstance(refuses, Budget)
    assert refuses.on_exhausted is OnExhausted.REFUSE


FAR = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59Z")
YEARS = "must be in the years 1970 to 9000"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"resource": GPU, "hours": "0.5"}, "spec.hours: 0.5 must be a whole number"),
        ({"hours": -1}, "spec.hours: -1 must be at least 0"),
        (
            {"period": {"kind": "Month", "timeZone": "Mars/Olympus"}},
            "spec.period.timeZone: Mars/Olympus is not",
        ),
        ({"period": {"kind": "Month", "timeZone": "../../etc"}}, "spec.period.timeZone: ../../etc is not"),
        ({"period": {"kind": "Week", "timeZone": "localtime"}}, "spec.period.timeZone: localtime is"),
        ({"period": {"kind": "Dates"}}, "spec.period.begins: is required for Dates"),
        ({"period": BUDGET["period"] | {"kind": "Week"}}, "spec.period.begins: is required for Dates"),
        (
            {"period": BUDGET["period"] | {"timeZone": "UTC"}},
            "spec.period.timeZone: is not allowed for Dates",
        ),
        ({"period": BUDGET["period"] | {"ends": "2020-01-01T00:00:00Z"}}, "spec.period.ends: must be later"),
        ({"mode": "Free"}, "spec.mode"),
        (
            {"grants": [{"hours": -1, "at": "2026-11-02T00:00:00Z", "reason": "x"}]},
            "spec.grants[0].hours: -1",
        ),
        ({"grants": [{"hours": 1, "at": "2026-11-02", "reason": "x"}]}, "spec.grants[0].at"),
        *(({"grants": [{"hours": 1, "at": at, "reason": "x"}]}, f"grants[0].at: {YEARS}") for at in FAR),
        *(({"period": BUDGET["period"] | {"begins": at}}, f"spec.period.begins: {YEARS}") for at in FAR),
        *(({"period": BUDGET["period"] | {"ends": at}}, f"spec.period.ends: {YEARS}") for at in FAR),
        ({"grants": [{"hours": 1, "at": "2026-11-02T00:00:00Z"}]}, "spec.grants[0].reason"),
        ({"refunds": {"preempted": 101}}, "spec.refunds.preempted"),
        ({"onExhausted": "LowerClass"}, "spec.lowerClass: is required for onExhausted LowerClass"),
        ({"onExhausted": "Refuse", "lowerClass": "scavenge"}, "spec.lowerClass: is required for onExhausted"),
        ({"subject": {"kind": "User"}}, "spec.subject.name: is required for User and Account"),
    ],
)
def test_a_budget_that_cannot_be_obeyed_is_refused_with_its_field(change: Json, says: str) -> None:
    event = policy_event(_object("Budget", spec=BUDGET | change))
    assert isinstance(event, PolicyInvalid)
    assert says in event.detail


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"target": {"kind": "ClusterQueue", "namespace": "ns", "name": "q"}}, "spec.target.namespace: "),
        ({"target": {"kind": "LocalQueue", "name": "q"}}, "spec.target.namespace: is required"),
        ({"subject": {"kind": "User"}}, "spec.subject.name: is required for User and Account"),
        ({"subject": {"kind": "All", "key": "project"}}, "spec.subject.key: is required for Account"),
        ({"resources": {GPU: "-1"}}, "spec.resources.nvidia.com/gpu: -1 must be at least 0"),
        ({"minRequest": {GPU: "0.5"}}, "spec.minRequest.nvidia.com/gpu: 0.5 must be a whole number"),
    ],
)
def test_a_usage_limit_that_cannot_be_obeyed_is_refused_with_its_field(change: Json, says: str) -> None:
    event = policy_event(_object("UsageLimit", spec=LIMIT | change))
    assert isinstance(event, PolicyInvalid)
    assert says in event.detail
