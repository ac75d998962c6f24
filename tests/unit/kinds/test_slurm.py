"""What becomes of partitions, nodes, accounts, users and QOS of Slurm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.events import PolicyObserved
from queuectl.importers.result import Imported
from queuectl.importers.slurm import import_slurm
from queuectl.importers.slurm_text import BadSlurm, read
from queuectl.importers.slurm_values import BadValue, SlurmNames, gres_gpus, hosts, mebibytes, ranges_of, tres
from queuectl.kinds.policy import drop_unknown, policy_event
from queuectl.kinds.policy_schema import MAX_TEXT
from tests.unit.kinds.slurm_sites import ASSOCIATIONS, CONDO, DEPARTMENT, PARTITIONS, university

Json = dict[str, Any]
PARTITION = "PartitionName=gpu\n   AllowAccounts=ALL PriorityTier=1 PreemptMode=OFF\n\n"
NODE = "NodeName=n1 Weight=1\n   Partitions=gpu \n   CfgTRES=cpu=8,mem=16G,gres/gpu=4,gres/gpu:a100=4\n\n"
BASE = PARTITION + NODE
ACCOUNTS = "Cluster - 'c'\nAccount - 'ml':Fairshare=2\nParent - 'ml'\nUser - 'ann':Fairshare=1\n"


def imported(*texts: str) -> Imported:
    return import_slurm([record for text in texts for record in read(text.encode(), "slurm.txt")])


def site(paths: tuple[Path, ...]) -> Imported:
    return import_slurm([record for path in paths for record in read(path.read_bytes(), path.name)])


def named(found: Imported, kind: str, name: str, namespace: str | None = None) -> Json:
    (one,) = [
        made
        for made in found.objects
        if (made["kind"], made["metadata"]["name"], made["metadata"].get("namespace"))
        == (kind, name, namespace)
    ]
    return one


def quotas(made: Json, field: str = "nominalQuota") -> dict[str, dict[str, Any]]:
    """By flavor and resource, without zeros."""
    return {
        flavor["name"]: {one["name"]: one[field] for one in flavor["resources"] if one.get(field)}
        for group in made["spec"].get("resourceGroups", ())
        for flavor in group["flavors"]
    }


def notes(found: Imported) -> list[str]:
    return [f"{note.object} {note.field}: {note.text}" for note in found.notes]


@pytest.mark.parametrize("name", ["department", "condo", "university"])
def test_every_object_of_a_site_is_valid_and_has_no_unknown_field(name: str) -> None:
    paths = {"department": DEPARTMENT, "condo": CONDO}.get(name)
    found = imported(university()) if paths is None else site(paths)
    for made in found.objects:
        event = policy_event(made)
        assert isinstance(event, PolicyObserved), event
        assert drop_unknown(made) == []


def test_a_large_site_keeps_all_its_associations() -> None:
    text = university()
    assert (text.count("PartitionName="), text.count("User - 'user")) == (PARTITIONS, ASSOCIATIONS)
    found = imported(text)
    kinds = [made["kind"] for made in found.objects]
    assert kinds.count("LocalQueue") == ASSOCIATIONS
    assert kinds.count("ClusterQueue") == 40
    assert kinds.count("Cohort") == 5
    # The nodes of one type: for all, for each of four faculties that own some, and one group that owns some.
    assert kinds.count("ResourceFlavor") == 3 * 5 + 2 + 1
    total: dict[str, int] = {}
    for made in found.objects:
        if made["kind"] in ("Cohort", "ClusterQueue"):
            for amounts in quotas(made).values():
                total["gpu"] = total.get("gpu", 0) + amounts.get("nvidia.com/gpu", 0)
    assert total == {"gpu": 4 * 20 * 8}, "each GPU is the quota of exactly one object"


# --- nodes and partitions


def test_equal_nodes_in_partitions_for_the_same_accounts_are_one_flavor() -> None:
    found = site(DEPARTMENT)
    flavors = {
        made["metadata"]["name"]: made["metadata"]["annotations"]["queuectl.dev/slurm-nodes"]
        for made in found.objects
        if made["kind"] == "ResourceFlavor"
    }
    # Students may use gpu01, by the partition debug, and no other node with GPUs.
    assert flavors == {"cpu": "cn[01-04]", "a40-debug": "gpu01", "a40-gpu": "gpu[02-03]", "a100": "dgx01"}
    assert named(found, "ResourceFlavor", "a100")["spec"] == {"nodeLabels": {"queuectl.dev/pool": "a100"}}
    assert list(quotas(named(found, "ClusterQueue", "students"))) == ["cpu", "a40-debug"]
    assert list(quotas(named(found, "ClusterQueue", "vision"))) == ["cpu", "a40-debug", "a40-gpu", "a100"]


def test_quota_is_what_nodes_have_and_belongs_to_the_root_where_all_share_it() -> None:
    assert quotas(named(site(DEPARTMENT), "Cohort", "tux")) == {
        "cpu": {"cpu": 256, "memory": "1030000Mi"},
        "a40-debug": {"cpu": 64, "memory": "512000Mi", "nvidia.com/gpu": 4},
        "a40-gpu": {"cpu": 128, "memory": "1024000Mi", "nvidia.com/gpu": 8},
        # Its CfgTRES has no GPUs: the site does not account for them.
        "a100": {"cpu": 128, "memory": "1031000Mi", "nvidia.com/gpu": 8},
    }


def test_nodes_belong_to_the_account_that_their_highest_partition_is_for() -> None:
    found = site(CONDO)
    assert quotas(named(found, "Cohort", "bio")) == {
        "h100-bio": {"cpu": 512, "memory": "8388608Mi", "nvidia.com/gpu": 32}
    }
    assert quotas(named(found, "ClusterQueue", "physics")) == {
        "h100-physics": {"cpu": 256, "memory": "4194304Mi", "nvidia.com/gpu": 16},
        "h100-bio": {},
        "mi300x": {},
    }
    assert quotas(named(found, "Cohort", "condo")) == {
        "mi300x": {"cpu": 256, "memory": "2097152Mi", "amd.com/gpu": 16}
    }
    for owner in ("genomics", "imaging", "physics"):
        assert named(found, "ClusterQueue", owner)["spec"]["preemption"] == {"reclaimWithinCohort": "Any"}
    assert "preemption" not in named(found, "ClusterQueue", "guests")["spec"]


def test_without_preemption_in_the_lower_partition_an_owner_does_not_reclaim() -> None:
    text = CONDO[0].read_text().replace("PreemptMode=REQUEUE", "PreemptMode=OFF")
    assert "preemption" not in named(imported(text), "ClusterQueue", "physics")["spec"]


def test_without_accounts_there_is_one_queue_for_all() -> None:
    found = imported(BASE)
    assert named(found, "LocalQueue", "main", "default")["spec"] == {"clusterQueue": "slurm"}
    assert quotas(named(found, "Cohort", "slurm"))["a100"]["nvidia.com/gpu"] == 4
    assert named(found, "Cohort", "slurm")["spec"].get("fairSharing") is None


# --- accounts, users, QOS


def test_accounts_are_a_tree_with_weights_and_users_are_local_queues_of_their_namespace() -> None:
    found = site(CONDO)
    assert named(found, "Cohort", "condo")["spec"]["fairSharing"] == {"enabled": True}
    assert named(found, "Cohort", "bio")["spec"]["parentName"] == "condo"
    genomics = named(found, "ClusterQueue", "genomics")["spec"]
    assert (genomics["cohortName"], genomics["fairSharing"]) == ("bio", {"weight": 3})
    assert genomics["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "genomics"}}
    assert genomics["admissionScope"] == {"admissionMode": "UsageBasedAdmissionFairSharing"}
    assert named(found, "LocalQueue", "uma", "genomics")["spec"] == {
        "clusterQueue": "genomics",
        "fairSharing": {"weight": 1},
    }


def test_users_that_share_with_their_account_have_no_weights() -> None:
    found = site(CONDO)
    assert "admissionScope" not in named(found, "ClusterQueue", "physics")["spec"]
    assert named(found, "LocalQueue", "xia", "physics")["spec"] == {"clusterQueue": "physics"}


def test_an_account_with_users_and_accounts_below_it_is_a_cohort_and_a_queue_in_it() -> None:
    below = "Account - 'ocr':Fairshare=5:GrpTRES=gres/gpu=2\nUser - 'bea':Fairshare=3\n"
    found = imported(BASE + ACCOUNTS + below)
    assert named(found, "Cohort", "ml")["spec"]["fairSharing"] == {"weight": 2}
    own = named(found, "ClusterQueue", "ml")["spec"]
    assert (own["cohortName"], own["fairSharing"]) == ("ml", {"weight": 4})
    assert named(found, "ClusterQueue", "ocr")["spec"]["cohortName"] == "ml"


def test_group_limits_become_borrowing_limits_of_the_flavors_they_name() -> None:
    found = site(DEPARTMENT)
    assert quotas(named(found, "ClusterQueue", "nlp-lab"), "borrowingLimit") == {
        "cpu": {},
        "a40-debug": {"nvidia.com/gpu": 16},
        "a40-gpu": {"nvidia.com/gpu": 16},
        "a100": {"nvidia.com/gpu": 4},
    }
    told = "department.cfg: lines 9-10: Account GrpTRES (2 times): gres/gpu: limits each flavor by itself"
    assert f"{told}, not their sum" in notes(found)


def test_a_limit_includes_what_the_account_owns() -> None:
    limited = (
        CONDO[0].read_text().replace("condo|physics|root|||1||||", "condo|physics|root|||1|||gres/gpu=20|")
    )
    assert quotas(named(imported(limited), "ClusterQueue", "physics"), "borrowingLimit") == {
        "h100-physics": {"nvidia.com/gpu": 4},
        "h100-bio": {"nvidia.com/gpu": 20},
        "mi300x": {"amd.com/gpu": 20},
    }


def test_qos_are_priority_classes_and_their_preemption_goes_by_priority() -> None:
    found = site(DEPARTMENT)
    assert named(found, "WorkloadPriorityClass", "high")["value"] == 1000
    assert named(found, "ClusterQueue", "vision")["spec"]["preemption"] == {
        "reclaimWithinCohort": "LowerPriority",
        "withinClusterQueue": "LowerPriority",
    }
    equal = "QOS - 'a':Priority=5:Preempt='b'\nQOS - 'b':Priority=5\n"
    assert notes(imported(BASE + equal)) == [
        "slurm.txt: line 8: QOS a Preempt=b: preemption goes by priority, and a is not higher than b"
    ]


@pytest.mark.parametrize(("name", "description"), [("a", "d" * 3000), ("q" * 3000, "")])
def test_a_description_is_cut_where_a_priority_class_takes_no_more(name: str, description: str) -> None:
    found = imported(f"{BASE}QOS - '{name}':Priority=5:Description='{description}'\n")
    (made,) = (one for one in found.objects if one["kind"] == "WorkloadPriorityClass")
    assert len(made["description"]) == MAX_TEXT
    assert isinstance(policy_event(made), PolicyObserved)


def test_names_that_kubernetes_does_not_allow_are_changed_and_stay_unique() -> None:
    below = "User - 'A.B':Fairshare=1\nUser - 'a-b':Fairshare=1\n"
    found = imported(BASE + ACCOUNTS + below)
    assert [made["metadata"]["name"] for made in found.objects if made["kind"] == "LocalQueue"] == [
        *("ann", "a-b", "a-b-2")
    ]
    assert notes(found) == [
        "slurm.txt: line 12: User A.B: other characters than a-z and 0-9 in its name are dashes here",
        "slurm.txt: line 13: User a-b: is called a-b-2 here",
    ]


# --- what is not carried over


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("MaxTime=2-00:00:00", "set spec.maxExecutionTime"),
        (
            "AllowQos=high",
            "any workload may name any WorkloadPriorityClass: restrict it, and give the verb use to those "
            "that may",
        ),
        ("MaxNodes=4", "no queue limits the size of one workload"),
        ("DefMemPerCPU=4000", "a LimitRange of the namespace gives defaults"),
        ("State=DOWN", "a flavor is not stopped"),
        ("SomethingNew=5", "has no counterpart"),
    ],
)
def test_a_setting_without_counterpart_is_noted_with_its_line(setting: str, told: str) -> None:
    (note,) = imported(PARTITION.replace("PreemptMode=OFF", f"PreemptMode=OFF\n   {setting}") + NODE).notes
    assert (note.object, note.field) == ("slurm.txt: line 3:", f"Partition gpu {setting}")
    assert told in note.text


def test_settings_that_ask_for_nothing_are_not_noted() -> None:
    neutral = (
        "MaxTime=UNLIMITED MaxNodes=UNLIMITED QoS=N/A AllowGroups=ALL Hidden=NO JobDefaults=(null) State=UP"
    )
    assert imported(PARTITION.replace("PreemptMode=OFF", neutral) + NODE + ACCOUNTS).notes == ()


def limits(found: Imported) -> dict[str, Json]:
    return {made["metadata"]["name"]: made["spec"] for made in found.objects if made["kind"] == "UsageLimit"}


@pytest.mark.parametrize(
    ("line", "subject", "allowed"),
    [
        ("QOS - 'high':MaxTRESPU=cpu=3,mem=2G", "EachUser", {"resources": {"cpu": 3, "memory": "2048Mi"}}),
        ("QOS - 'high':MaxTRESPerUser=gres/gpu=8", "EachUser", {"resources": {"nvidia.com/gpu": 8}}),
        (
            "QOS - 'high':MaxTRESPU=gres/gpu:a100=2",
            "EachUser",
            {"flavors": [{"name": "a100", "resources": {"nvidia.com/gpu": 2}}]},
        ),
        ("QOS - 'high':MaxJobsPU=3:MaxTRESPU=cpu=4", "EachUser", {"running": 3, "resources": {"cpu": 4}}),
        ("QOS - 'high':MaxSubmitPU=3", "EachUser", {"pending": 3}),
        ("QOS - 'high':GrpTRES=gres/gpu=8", "All", {"resources": {"nvidia.com/gpu": 8}}),
        ("QOS - 'high':GrpJobs=0", "All", {"running": 0}),
        ("QOS - 'high':GrpSubmit=3", "All", {"pending": 3}),
        ("QOS - 'high':MinTRES=gres/gpu=1", "All", {"minRequest": {"nvidia.com/gpu": 1}}),
    ],
)
def test_limits_of_a_qos_are_usage_limits_of_its_class(line: str, subject: str, allowed: Json) -> None:
    found = imported(BASE + ACCOUNTS + line)
    (spec,) = limits(found).values()
    target = {"kind": "WorkloadPriorityClass", "name": "high"}
    assert spec == {"target": target, "subject": {"kind": subject}, **allowed}
    assert found.left_out == 0


def test_a_qos_with_several_limits_has_one_for_each_user_and_one_for_all() -> None:
    found = imported(BASE + ACCOUNTS + "QOS - 'high':GrpJobs=9:MaxJobsPU=3:GrpTRES=cpu=4")
    assert {name: spec["subject"]["kind"] for name, spec in limits(found).items()} == {
        "qos-high": "All",
        "qos-high-each-user": "EachUser",
    }


def test_limits_of_associations_hold_at_their_level_and_are_inherited_by_users() -> None:
    text = (
        "Cluster - 'c':GrpJobs=100:MaxJobs=9\nParent - 'root'\n"
        "Account - 'physics':GrpJobs=50:MaxSubmitJobs=8\nAccount - 'bio'\n"
        "Parent - 'physics'\nAccount - 'lab':MaxJobs=4\n"
        "Parent - 'lab'\nUser - 'ann'\nUser - 'bob':MaxJobs=6:GrpTRES=gres/gpu=2\n"
        "Parent - 'bio'\nUser - 'ann'\n"
    )
    found = limits(imported(BASE + text))
    assert found == {
        "account-c": {"target": {"kind": "Cohort", "name": "c"}, "subject": {"kind": "All"}, "running": 100},
        "account-physics": {
            "target": {"kind": "Cohort", "name": "physics"},
            "subject": {"kind": "All"},
            "running": 50,
        },
        "account-lab-each-user": {
            "target": {"kind": "ClusterQueue", "name": "lab"},
            "subject": {"kind": "EachUser"},
            "running": 4,
            "pending": 8,
        },
        # At one target it replaces that for each user, so it has what it inherits too.
        "account-lab-bob": {
            "target": {"kind": "ClusterQueue", "name": "lab"},
            "subject": {"kind": "User", "name": "bob"},
            "running": 6,
            "pending": 8,
            "resources": {"nvidia.com/gpu": 2},
        },
        "account-bio-each-user": {
            "target": {"kind": "ClusterQueue", "name": "bio"},
            "subject": {"kind": "EachUser"},
            "running": 9,
        },
    }


@pytest.mark.parametrize(
    ("lines", "field", "told"),
    [
        (
            "QOS - 'high':MaxTRESPU=cpu=3,license/matlab=2",
            "MaxTRESPU=cpu=3,license/matlab=2",
            "license/matlab: only cpu, mem and gres/gpu become limits",
        ),
        ("QOS - 'high':MaxJobsPU=3\nUser - 'bob':MaxJobs=5", "MaxJobsPU=3", "here both apply"),
        ("QOS - 'high':GrpJobs=3000000", "GrpJobs=3000000", "make a UsageLimit"),
        ("QOS - 'high':GrpJobs=many", "GrpJobs=many", "make a UsageLimit"),
        ("QOS - 'high':Flags=Relative:GrpTRES=cpu=20", "GrpTRES=cpu=20", "make a UsageLimit"),
        ("QOS - 'high':Flags=DenyOnLimit", "Flags=DenyOnLimit", "set spec.onExhausted of Budgets to Refuse"),
        ("QOS - 'high':MaxTRESPU=gres/gpu:b200=2", "MaxTRESPU=gres/gpu:b200=2", "make a UsageLimit"),
        ("QOS - 'high':MaxJobsPA=3", "MaxJobsPA=3", "subject.kind EachAccount"),
        ("QOS - 'high':MaxSubmitPU=3", "MaxSubmitPU=3", "counts what waits alone"),
        ("QOS - 'normal':MaxJobsPU=3", "QOS normal", "workloads with the label of the class"),
        ("User - 'bob':MaxJobs=3", "User bob", "a limit names users as Slurm does"),
    ],
)
def test_what_a_limit_does_not_say_as_slurm_does_is_noted(lines: str, field: str, told: str) -> None:
    found = imported(BASE + ACCOUNTS + lines)
    assert [note for note in found.notes if note.field.endswith(field) and told in note.text], found.notes


def budgets(found: Imported) -> dict[str, Json]:
    return {made["metadata"]["name"]: made["spec"] for made in found.objects if made["kind"] == "Budget"}


def test_minutes_of_resources_are_budgets_at_the_level_that_has_them() -> None:
    text = (
        "Cluster - 'c':GrpTRESMins=gres/gpu=600000\nParent - 'root'\n"
        "Account - 'physics':GrpTRESMins=cpu=6000,mem=60G\nAccount - 'bio'\n"
        "Parent - 'physics'\nAccount - 'lab':GrpTRESMins=gres/gpu:a100=90\n"
        "Parent - 'lab'\nUser - 'ann':GrpTRESMins=gres/gpu=0\nUser - 'bob':GrpTRESMins=gres/gpu=-1\n"
        "Parent - 'bio'\nUser - 'ann'\nQOS - 'high':GrpTRESMins=gres/gpu=120:GrpJobs=3\n"
    )
    found = imported(BASE + text)
    every = {"period": {"kind": "Month"}, "mode": "Metered"}
    gpu, all_of = "nvidia.com/gpu", {"kind": "All"}

    def spec(kind: str, name: str, subject: Json, resource: str, hours: int | str) -> Json:
        target = {"kind": kind, "name": name}
        return {"target": target, "subject": subject, "resource": resource, "hours": hours, **every}

    assert budgets(found) == {
        "qos-high-gpu": spec("WorkloadPriorityClass", "high", all_of, gpu, 2),
        "account-c-gpu": spec("Cohort", "c", all_of, gpu, 10_000),
        "account-physics-cpu": spec("Cohort", "physics", all_of, "cpu", 100),
        "account-physics-memory": spec("Cohort", "physics", all_of, "memory", "1024Mi"),
        "account-lab-gpu": spec("ClusterQueue", "lab", all_of, gpu, 2),
        "account-lab-ann-gpu": spec("ClusterQueue", "lab", {"kind": "User", "name": "ann"}, gpu, 0),
    }
    told = notes(found)
    assert any("gres/gpu:a100: rounded up to whole hours" in one for one in told)
    assert any("GrpTRESMins (2 times)" in one and "set spec.period" in one for one in told)
    for made in found.objects:
        assert isinstance(policy_event(made), PolicyObserved), made
        assert drop_unknown(made) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("QOS - 'high':GrpTRESMins=billing=60", "make a Budget"),
        ("QOS - 'high':GrpTRESMins=many", "make a Budget"),
        ("QOS - 'high':Flags=Relative:GrpTRESMins=cpu=60", "make a Budget"),
        ("QOS - 'high':GrpTRESMins=cpu=60,billing=60", "billing: only cpu, mem and gres/gpu become Budgets"),
        ("QOS - 'high':GrpTRESMins=cpu=61", "cpu: rounded up to whole hours"),
        ("Account - 'x':GrpTRESMins=cpu=60,gres/gpu:h100=60", "GPUs of all types that are the same"),
        ("Account - 'x':GrpTRESRunMins=cpu=60", "a Budget in mode Safe"),
    ],
)
def test_what_a_budget_does_not_say_as_slurm_does_is_noted(line: str, told: str) -> None:
    other = (
        "NodeName=n2 Weight=1\n   Partitions=gpu \n   CfgTRES=cpu=8,mem=16G,gres/gpu=2,gres/gpu:h100=2\n\n"
    )
    found = imported(BASE + other + ACCOUNTS + line)
    field = line.rpartition(":")[2] if "h100" not in line else "h100=60"
    assert [note for note in found.notes if note.field.endswith(field) and told in note.text], found.notes


LIMITED = {
    "QOS": (
        *("MaxTRESPU", "MaxJobsPU", "MaxSubmitPU", "MaxTRESPA", "MaxJobsPA", "MaxSubmitPA", "MinTRES"),
        *("GrpTRES", "GrpJobs", "GrpSubmit", "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRESMins"),
        *("MaxTRES", "MaxTRESPerNode", "MaxWall"),
    ),
    "Account": (
        "MaxJobs",
        "MaxSubmit",
        "MaxSubmitJobs",
        "GrpJobs",
        "GrpSubmitJobs",
        "GrpTRESMins",
        "MaxTRESPerJob",
    ),
    "User": ("MaxJobs", "MaxSubmit", "MaxSubmitJobs", "GrpJobs", "GrpSubmitJobs", "GrpTRES", "GrpTRESMins"),
}


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in LIMITED for field in LIMITED[kind]])
@pytest.mark.parametrize("value", ["3", "cpu=3", "gres/gpu:a100=2", "node=2", "2000000", "99999999999", "x"])
def test_each_limit_is_carried_over_or_has_a_note(kind: str, field: str, value: str) -> None:
    found = imported(BASE + ACCOUNTS + f"{kind} - 'one':{field}={value}\n")
    carried = any(limits(found).values())
    assert carried or any(f"{field}={value}" in note.field for note in found.notes)
    for made in found.objects:
        assert isinstance(policy_event(made), PolicyObserved), made


def test_equal_notes_are_one_with_all_their_lines() -> None:
    users = "".join(f"User - 'u{number}':GrpWall={number}\n" for number in range(1, 4))
    (note,) = imported(BASE + ACCOUNTS + users).notes
    assert (note.object, note.field) == ("slurm.txt: lines 12-14:", "User GrpWall (3 times)")


@pytest.mark.parametrize(
    ("gres", "total", "resource"),
    [
        ("gpu:a100_1g.5gb:7", 7, "nvidia.com/mig-1g.5gb"),
        ("gpu:mi300x:8", 8, "amd.com/gpu"),
        ("gpu:8", 8, "nvidia.com/gpu"),
    ],
)
def test_types_of_gres_count_where_cfgtres_has_none(gres: str, total: int, resource: str) -> None:
    node = NODE.replace("gres/gpu=4,gres/gpu:a100=4", f"gres/gpu={total}\n   Gres={gres}")
    pools = [made for made in quotas(named(imported(PARTITION + node), "Cohort", "slurm")).values() if made]
    assert [pool[resource] for pool in pools] == [total]


@pytest.mark.parametrize(
    ("gres", "cfgtres"),
    [
        ("gpu:mi300x:8", "gres/gpu=4"),
        ("gpu:8", "gres/gpu=4"),
        ("gpu:mi300x:4", "gres/gpu=4,gres/gpu:a100=4"),
    ],
)
def test_gpus_of_gres_that_cfgtres_does_not_have_are_noted(gres: str, cfgtres: str) -> None:
    node = NODE.replace("gres/gpu=4,gres/gpu:a100=4", f"{cfgtres}\n   Gres={gres}")
    (note,) = imported(PARTITION + node + ACCOUNTS).notes
    assert (note.field, note.text) == (f"Node n1 Gres={gres}", "CfgTRES has other GPUs, and counts")


def test_nodes_that_are_down_or_in_no_partition_are_noted() -> None:
    down = NODE.replace("Weight=1", "State=DOWN+DRAIN").replace("n1", "n2")
    outside = NODE.replace("Partitions=gpu", "Partitions=other").replace("n1", "n3")
    assert notes(imported(BASE + down + outside)) == [
        "slurm.txt: line 8: Node n2 State=DOWN+DRAIN: quota is not compared with nodes: it includes this one",
        "slurm.txt: line 13: Node n3 Partitions=other: the node is in none of these partitions: left out",
    ]


def test_nodes_and_partitions_that_are_not_in_the_input_are_noted() -> None:
    node = NODE.replace("Partitions=gpu", "Partitions=gpu,big")
    partition = PARTITION.replace("PreemptMode=OFF", "PreemptMode=OFF TotalNodes=4")
    assert notes(imported(partition + node)) == [
        "slurm.txt: line 2: Partition gpu TotalNodes=4: nodes in the input: 1",
        "slurm.txt: line 5: Node n1 Partitions=gpu,big: big: no such partition is in the input",
    ]


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("vgpu:4", 0),
        ("shard:gpu:8,gpu:a100:2(S:0,1)", 2),
        ("gpu:a100", 1),
        ("gpu,mps:100", 1),
        ("gpu:a100:2,gpu:v100:3", 5),
    ],
)
def test_of_gres_only_gpus_are_quota(gres: str, gpus: int) -> None:
    node = NODE.replace(",gres/gpu=4,gres/gpu:a100=4", "").replace("Weight=1", f"Gres={gres}")
    (quota,) = quotas(named(imported(PARTITION + node), "Cohort", "slurm")).values()
    assert quota.get("nvidia.com/gpu", 0) == gpus


@pytest.mark.parametrize(
    ("value", "record"),
    [
        ("MaxJobsAccruePU=1", "QOS - 'q':{}"),
        ("MinPrioThresh=0", "QOS - 'q':{}"),
        ("LimitFactor=2.000000", "QOS - 'q':{}"),
        ("NewOption=ALL", "QOS - 'q':{}"),
        ("GraceTime=1", "PartitionName=gpu {}"),
        ("AllowGroups=1", "PartitionName=gpu {}"),
        ("CoreSpecCount=1", "NodeName=n1 {}"),
        ("NewOption=1", "PartitionName=gpu {}"),
    ],
)
def test_a_value_is_neutral_only_for_its_field(value: str, record: str) -> None:
    line = record.format(value)
    text = BASE.replace(line.split()[0], line) if "Name=" in line else f"{BASE}{line}\n"
    (told,) = notes(imported(text))
    assert value in told


def test_descriptions_of_accounts_are_read_from_their_table() -> None:
    accounts = "Account|Descr|Org\nml|it's text|lab\ngone|x|y\nroot|root|root\n"
    found = imported(BASE + ACCOUNTS + accounts)
    assert named(found, "ClusterQueue", "ml")["metadata"]["annotations"] == {
        "queuectl.dev/slurm-description": "it's text",
        "queuectl.dev/slurm-organization": "lab",
    }
    (told,) = notes(found)
    assert told.endswith("Account description gone: no association of the account is in the input: left out")


def test_text_between_quotes_is_as_it_is_printed() -> None:
    found = imported(BASE + "Account - 'x':Description='it's ours':Fairshare=5\n")
    queue = named(found, "ClusterQueue", "x")
    assert queue["metadata"]["annotations"] == {"queuectl.dev/slurm-description": "it's ours"}
    assert queue["spec"]["fairSharing"] == {"weight": 5}


def test_accounts_that_a_partition_names_and_that_do_not_exist_are_noted() -> None:
    text = (BASE + ACCOUNTS).replace("AllowAccounts=ALL", "AllowAccounts=ml,gone DenyAccounts=lost")
    assert notes(imported(text)) == [
        "slurm.txt: line 2: Partition gpu AllowAccounts=ml,gone: gone: no such account is in the input",
        "slurm.txt: line 2: Partition gpu DenyAccounts=lost: lost: no such account is in the input",
    ]


def test_the_root_cohort_has_a_name_of_its_own() -> None:
    below = "Parent - 'root'\nAccount - 'c'\nParent - 'c'\nAccount - 'd'\n"
    found = imported(BASE + ACCOUNTS + below)
    cohorts = [made for made in found.objects if made["kind"] == "Cohort"]
    assert [(made["metadata"]["name"], made["spec"].get("parentName")) for made in cohorts] == [
        ("c-2", None),
        ("c", "c-2"),
    ]


# --- errors


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("slurm_load_partitions: Unable to contact slurm controller\n",
         "line 1: 'slurm_load_partitions: Unable to contact slurm controller': is no line of scontrol"),
        (PARTITION + "NodeName=n1\n   down\n", "line 5: 'down': Node n1: FIELD=VALUE is expected"),
        (BASE.replace("cpu=8,", "cpu=lots,"), "line 6: 'cpu=lots,mem=16G,gres/gpu=4,gres/gpu:a100=4': "
         "Node n1: CfgTRES: 'lots' is not a whole number"),
        (PARTITION + NODE.replace("16G", "16X"), "'16X' is not memory such as 512000M or 1.5T"),
        (PARTITION + PARTITION + NODE, "line 4: 'gpu': Partition gpu is in slurm.txt: line 1 already"),
        (PARTITION.replace("Tier=1", "Tier=high") + NODE, "line 2: 'high': Partition gpu: PriorityTier: "),
        (BASE + "Account - 'x':Fairshare=many\n", "line 8: 'many': Account x: Fairshare: "),
        (BASE + "Account - 'x':Fairshare=1000000000\n", "whole number of at most 999999999"),
        (BASE + "Account - 'x':Description='open\n", "Account x: :OPTION=VALUE is expected"),
        (BASE + "Account - ''\n", "Account has no name"),
        (BASE + "Parent - 'no'\nAccount - 'x'\n", "line 9: 'no': Account x: its parent"),
        (BASE + "Parent - 'no'\nUser - 'u'\n", "line 9: 'no': User u: there is no account"),
        (BASE + "Name|Priority\nhigh|5|x\n", "line 9: 'high|5|x': 3 cells, the head"),
        (BASE + "Name|Priority\nhigh|soon\n", "line 9: 'soon': QOS high: Priority: "),
        (BASE + "Account|User|Share\nx||1\n", "line 8: 'Account|User|Share': has no column"),
        (BASE + "JobID|State\n1|R\n", "line 8: 'JobID|State': is no head of sacctmgr show"),
        ("NodeName=g[1-4] CPUs=4\n", "line 1: 'NodeName=g[1-4] CPUs=4': is a line of slurm.conf"),
        ("NodeName=a,b CPUs=4\n", "is a line of slurm.conf: add the output of `scontrol show node`"),
        ("PartitionName=DEFAULT\n", "is a line of slurm.conf: add the output of `scontrol show partition`"),
        (BASE + "Cluster - 'c'\nCluster - 'd'\n", "line 9: 'd': Cluster d: one cluster is imported"),
        (PARTITION + NODE.replace("16G", "2E"), "'2E' is not memory"),
        (PARTITION + NODE.replace("16G", "9999999P"), "are more than"),
        (PARTITION + NODE.replace("Weight=1", "Gres=gpu:a100:-1"), "Gres: 'gpu:a100:-1' is not GPUs such as"),
        (PARTITION + NODE.replace("Weight=1", "Gres=gpu:4K"), "Gres: 'gpu:4K' is not GPUs such as"),
        (NODE, "there is no partition: add the output of `scontrol show partition`"),
        (PARTITION, "there is no node in a partition: add the output of `scontrol show node`"),
    ],
)  # fmt: skip
def test_a_bad_line_is_an_error_with_its_file_line_and_value(text: str, told: str) -> None:
    with pytest.raises(BadSlurm) as caught:
        imported(text)
    assert told in caught.value.problems[0]


def test_accounts_in_a_circle_are_an_error() -> None:
    circle = "Parent - 'b'\nAccount - 'a'\nParent - 'a'\nAccount - 'b'\n"
    with pytest.raises(BadSlurm, match="its parent is not an account, or is below it"):
        imported(BASE + circle)


def test_all_errors_are_reported_up_to_a_limit() -> None:
    with pytest.raises(BadSlurm) as caught:
        imported("".join(f"bad {number}\n" for number in range(50)))
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == "30 more like these"


def test_a_byte_that_is_not_text_is_an_error() -> None:
    with pytest.raises(BadSlurm, match="line 2: 'ff': this byte is not UTF-8"):
        read(b"\n\xff", "slurm.txt")


# --- values


def test_an_option_ends_at_the_next_option_and_not_at_a_colon() -> None:
    line = "Account - 'x':GrpTRES=gres/gpu:a100=8,cpu=4:MaxWall=1-00:00:00:Description='a:Bc=d':QOS+='normal'"
    (record,) = read(line.encode(), "dump")
    assert {name: field.value for name, field in record.fields.items()} == {
        "GrpTRES": "gres/gpu:a100=8,cpu=4",
        "MaxWall": "1-00:00:00",
        "Description": "a:Bc=d",
        "QOS": "normal",
    }


def test_free_text_of_scontrol_is_no_field() -> None:
    (record,) = read(
        b"NodeName=n1 OS=Linux 5 #1 SMP Weight=3\n   Reason=Ticket=7 State=x [root@now]\n", "nodes"
    )
    assert record.value("OS") == "Linux 5 #1 SMP"
    assert record.value("Weight") == "3"
    assert record.value("Reason") == "Ticket=7 State=x [root@now]"
    assert record.value("State") == ""


def test_values_of_slurm() -> None:
    assert tres("cpu=4,mem=1.5T,gres/gpu=-1,") == {"cpu": 4, "mem": 1572864}
    assert [mebibytes(text) for text in ("1031000M", "2048K", "7", "1P")] == [1031000, 2, 7, 1 << 30]
    assert gres_gpus("gpu:a100:8(S:0-1),gpu:2,shard:32") == {"a100": 8, "": 2}
    assert hosts(["n2", "n1", "n10", "login", "m01", "m02", "m03"]) == "login,m[01-03],n[1-2],n10"
    assert ranges_of([3, 1, 2, 9]) == "1-3,9"
    names = SlurmNames()
    assert [names.of(name) for name in ("A_b", "a-b", "--", "x" * 90)] == ["a-b", "a-b-2", "x", "x" * 60]
    for text in ("4", "cpu=", "=4", "cpu=99999999999"):
        with pytest.raises(BadValue):
            tres(text)


_WORDS = (
    "",
    "-1",
    "0",
    "99999999999",
    "UNLIMITED",
    "\x00",
    "é/_",
    "a=b",
    "gres/gpu:x=3",
    "parent",
    "N/A",
    "|",
    "'",
    "\n",
)


@given(
    st.sampled_from([*DEPARTMENT, *CONDO]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(_WORDS)), min_size=1, max_size=4),
)
def test_a_site_with_any_value_anywhere_is_an_error_or_a_valid_policy(path: Path, changes: Any) -> None:
    text = "".join(one.read_text() for one in (DEPARTMENT if path in DEPARTMENT else CONDO))
    for place, word in changes:
        values = list(re.finditer(r"(?<=[='|])[^='|\s]*", text))
        at = values[int(place * len(values))]
        text = text[: at.start()] + word + text[at.end() :]
    try:
        found = imported(text)
    except BadSlurm:
        return
    keys = [
        (made["kind"], made["metadata"].get("namespace"), made["metadata"]["name"]) for made in found.objects
    ]
    assert len(set(keys)) == len(keys)
    for made in found.objects:
        assert isinstance(policy_event(made), PolicyObserved), made
