"""Attacks of tenants on the engine and on what reads objects: what holds whatever they write."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from queuectl.api.view import links_of
from queuectl.core.decisions import Admit, Configure, Enqueue, Evict, PodOwnerToRead, Release
from queuectl.core.model.events import PodObserved, PodOwnerRead, PolicyObserved
from queuectl.core.model.pods import Pod, PodOwner
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import MOST_ATTEMPTS, ForcedRelease, ObjectRef, WorkloadId
from queuectl.files import BadFile, documents
from queuectl.importers.slurm import import_slurm
from queuectl.importers.slurm_text import read as read_slurm
from queuectl.kinds.admission import parse as admission_of
from queuectl.kinds.labels import KUEUES_TOO, MAX_RUN_LABEL, OWN
from queuectl.kinds.owners import controlling
from queuectl.kinds.pod_group import POD_GROUP, composed, units
from queuectl.kinds.pod_group_members import member
from queuectl.kinds.pods import pod_event
from queuectl.kinds.policy import parse_policy, policy_event
from queuectl.kinds.stop_annotations import forced_release as release_of
from queuectl.kinds.workloads import observe
from tests.builders import GPU, World, admitted, local_queue, observed, queue, workload
from tests.doubles import engine_state
from tests.job_kinds import JOB_KINDS
from tests.unit.core.features.ownership.test_pod_owners import GANG, bound, evicted, pod, reads, runs, world
from tests.unit.core.test_observed_attempts import A, attempt
from tests.unit.core.test_pod_numbers import Running
from tests.unit.kinds.job_objects import container, job
from tests.unit.kinds.test_pod_group import pod as group_pod
from tests.unit.kinds.test_pod_group import started
from tests.unit.kinds.test_policy import BUDGET, IDLE, LIMIT

Json = dict[str, Any]
VICTIM: Final = "uid-of-the-victim"
LAST: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def running_pod(*, owners: list[Json] | None = None, **spec: Any) -> Json:
    """A pod of a Job with the UID of VICTIM, on a node, with two GPUs."""
    controller = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": VICTIM, "controller": True}
    return {
        "metadata": {
            "uid": "u",
            "namespace": "ns",
            "name": "p",
            "labels": {"queuectl.dev/workload": VICTIM},
            "ownerReferences": owners if owners is not None else [controller],
        },
        "spec": {"nodeName": "n1", "containers": [container()], **spec},
        "status": {"phase": "Running"},
    }


def seen(obj: Json) -> Pod | None:
    event = pod_event(obj)
    return event.pod if event is not None else None


# --- pods that hide, and pods that intrude -----------------------------------------------------------


def test_a_pod_does_not_hide_from_its_node_and_workload_behind_many_owners() -> None:
    """A tenant may add owners to its own pods: ConfigMaps that are there."""
    configs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"c{n}", "uid": f"c{n}"} for n in range(500)]
    obj = running_pod()
    obj["metadata"]["ownerReferences"] = configs + obj["metadata"]["ownerReferences"]
    found = seen(obj)
    assert found is not None
    assert (found.node, found.workload, found.owner) == ("n1", VICTIM, None)
    assert dict(found.requests) == {GPU: 2}


@pytest.mark.parametrize(
    "others",
    [
        {f"example.com/r{n}": "0" for n in range(200)},
        {"example.com/huge": "9223372036854775808"},
        {"example.com/huge": "9E", "example.com/more": "9E", "example.com/other": "1e30"},
    ],
    ids=["many resources", "one out of range", "sums out of range"],
)
def test_a_pod_does_not_hide_its_devices_behind_requests_that_are_not_read(others: Json) -> None:
    """The kubelet leaves out resources that its node does not have, so such a pod runs."""
    found = seen(running_pod(containers=[container({GPU: "2", **others}), container({GPU: "1"})]))
    assert found is not None
    assert dict(found.requests)[GPU] == 3


def test_a_pod_does_not_hide_its_devices_behind_many_containers() -> None:
    many = [container({"cpu": "0"}) for _ in range(1200)]
    found = seen(running_pod(containers=[container(), *many]))
    assert found is not None
    assert dict(found.requests)[GPU] == 2


def test_an_owner_with_the_uid_of_a_job_and_the_kind_of_a_pod_is_not_that_job() -> None:
    """A service account that may create pods alone names a pod as owner: the gate lets the label pass."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": VICTIM, "controller": True}
    found = seen(running_pod(owners=[owner]))
    assert found is not None
    assert found.owner == PodOwner("v1", "Pod", "driver", VICTIM)
    victim = world()
    runs(victim, "gang", "n0")
    forged = replace(found.owner, uid=str(GANG))
    victim.tell(PodObserved(pod("x", "n3", forged)))
    victim.run()
    assert reads(victim) == [forged]
    victim.tell(PodOwnerRead(GANG, forged.uid, belongs=False))
    victim.lose("n3")
    assert (bound(victim), evicted(victim.run())) == (0, [])


def test_a_pod_whose_label_flaps_between_two_workloads_leaves_nothing_at_the_first() -> None:
    found = world()
    runs(found, "gang", "n0")
    for turn in range(6):
        label = GANG if turn % 2 == 0 else WorkloadId("uid-other")
        found.tell(PodObserved(pod("x", "n3", None, workload=label)))
        assert bound(found) == (turn % 2 == 0)
    found.lose("n3")
    assert evicted(found.run()) == []


def test_a_node_name_that_does_not_exist_evicts_no_other_workload() -> None:
    found = world()
    runs(found, "gang", "n0", "n1")
    for number in range(50):
        owner = PodOwner("apps/v1", "ReplicaSet", "evil", f"uid-{number}")
        found.tell(PodObserved(pod(f"x{number}", f"no-such-node-{number}", owner, namespace="evil")))
    found.pass_time(3600)
    assert evicted(found.run()) == []
    assert not [check for check in found.checks if isinstance(check, PodOwnerToRead)], "no read for them"


# --- what a tenant wrote before the gate was installed --------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2**31 - 1])
@pytest.mark.parametrize("suspended", [False, True])
def test_an_admission_at_the_end_of_time_ends_no_plan(suspended: bool, limit: int) -> None:
    found = World(queue("cq", 4), local_queue("lq", "cq"))
    forged = replace(attempt(3), admitted_at=LAST)
    found.tell(observed(replace(A, max_run_seconds=limit), suspended=suspended, admission=forged))
    found.submit(workload("other", created=9))
    made = found.run()
    assert [d.attempt.number for d in made if isinstance(d, Admit) and d.ref == A.ref] == [3 + suspended]
    decided = {d.ref.name for d in made if not isinstance(d, Configure | Enqueue)}
    assert decided >= {"a", "other"}, "the workloads of others are decided"


def test_the_highest_number_of_an_attempt_leaves_numbers_that_are_read_again() -> None:
    found = World(queue("cq", 4), local_queue("lq", "cq"))
    found.tell(observed(A, suspended=True, generation=4, admission=attempt(MOST_ATTEMPTS)))
    (number,) = [d.attempt.number for d in found.run() if isinstance(d, Admit)]
    assert number == MOST_ATTEMPTS + 1
    assert release_of(f"u/{number} by admin: its node is gone", WorkloadId("u")) is not None


def test_a_suspended_object_with_a_stolen_admission_of_another_is_charged_nothing() -> None:
    """The annotation of another workload, copied with its UID."""
    stolen = {
        "workload": "another",
        "attempt": 9,
        "sequence": 1,
        "queue": "main",
        "clusterQueue": "cq",
        "admittedAt": "2026-11-21T10:00:00Z",
        "podSets": [],
    }
    assert admission_of(json.dumps(stolen), WorkloadId("another")) is not None
    obj = job()
    obj["metadata"]["annotations"] = {"queuectl.dev/reserved-admission": json.dumps(stolen)}
    event = observe(JOB_KINDS["Job"], obj)
    assert event is not None
    assert event.observation.admission is None


@pytest.mark.parametrize("blank", ["\x01", "\n", "\u00a0", "\u200b", "\u2003", "\x85", "\ufeff"])
def test_a_release_names_the_user_that_the_gate_checked_whatever_blanks_it_has(blank: str) -> None:
    """The gate reads the name after the first ` by `: what it does not take for one must not be one here."""
    forged = f"uid/1{blank}by admin: scrap by eve: scrap"
    checked = forged.split(" by ", 1)[1]
    assert checked.startswith("eve: "), "the gate lets eve write it"
    found = release_of(forged, WorkloadId("uid"))
    assert found is None or found == ForcedRelease(1, "eve", "scrap")


# --- numbers of pods, holds and objects that flap -----------------------------------------------------


def test_pods_that_shrink_and_grow_while_they_are_counted_keep_their_charge() -> None:
    life = Running(4, 2)
    for _ in range(5):
        life.resize(1, 2)
        life.resize(4, 2)
        assert life.count(3) == []
    assert life.held == [4, 2]
    life.world.submit(workload("next", gpus=1, created=1))
    assert admitted(life.run()) == []


def test_a_pod_set_of_no_pods_grows_by_none_without_quota() -> None:
    life = Running(2, 2)
    life.resize(0, 2)
    life.count(2)
    assert life.held == [0, 2]
    made = life.resize(2, 2)
    assert [d.reason.code for d in made if isinstance(d, Evict)] == [Code.BYPASS]


def test_pods_that_move_from_one_pod_set_to_another_are_not_free() -> None:
    life = Running(3, 1)
    made = life.resize(1, 3)
    assert [d.reason.code for d in made if isinstance(d, Evict)] == [Code.BYPASS]


def test_a_hold_that_flaps_during_the_eviction_releases_no_quota_before_the_pods_are_counted() -> None:
    life = Running(4)
    life.world.submit(workload("next", gpus=4, created=1))
    original = life.one
    for turn in range(7):
        life.one = replace(original, hold=turn % 2 == 0)
        life.generation += 1
        made = life.see()
        assert not [d for d in made if isinstance(d, Release)]
        assert admitted(made) == []
    entry = engine_state.entry(life.world.engine, "a")
    assert str(entry.phase) == "Evicting"


# --- what is read of objects ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["-1", "0", "1e9", "٣٣", "9" * 60, "2147483648", " 1", "0x10", "1.0", ""])
def test_a_run_time_that_is_no_number_is_named_and_no_limit(value: str) -> None:
    obj = job()
    obj["metadata"]["labels"][MAX_RUN_LABEL] = value
    event = observe(JOB_KINDS["Job"], obj)
    assert event is not None
    assert event.workload.max_run_seconds is None
    assert event.workload.problem is not None
    assert MAX_RUN_LABEL in event.workload.problem.message
    assert len(event.workload.problem.message) < 400


@pytest.mark.parametrize("honoured", [False, True])
def test_kueues_label_beside_ours_moves_nothing_to_another_queue(honoured: bool) -> None:
    obj = job()
    obj["metadata"]["labels"] |= {
        "kueue.x-k8s.io/queue-name": "richer",
        "kueue.x-k8s.io/priority-class": "highest",
        "queuectl.dev/priority-class": "low",
    }
    event = observe(JOB_KINDS["Job"], obj, KUEUES_TOO if honoured else OWN)
    assert event is not None
    assert (event.workload.queue, event.workload.priority_class) == ("main", "low")


@pytest.mark.parametrize("count", [2**31, -1, 1e300, "9", True, [], 2**4000])
def test_a_number_of_pods_that_is_none_requests_no_quota(count: object) -> None:
    event = observe(JOB_KINDS["Job"], job(parallelism=count, completions=count))
    assert event is not None
    assert event.workload.problem is not None
    assert event.workload.pod_sets == ()


def test_names_with_escapes_of_a_terminal_reach_no_reader() -> None:
    obj = job()
    evil = "\x1b]0;pwned\x07\x1b[2J\u202e"
    obj["metadata"]["labels"]["queuectl.dev/queue-name"] = f"main{evil}"
    obj["metadata"]["annotations"] = {
        "queuectl.dev/hold": "true",
        "queuectl.dev/reason": f"hold by ada{evil}: x",
        "queuectl.dev/reserved-submitter": evil,
    }
    event = observe(JOB_KINDS["Job"], obj)
    assert event is not None
    one = event.workload
    told = f"{one.queue}{one.hold_reason}{one.submitter}{dict(one.labels)}"
    assert one.hold_reason is not None
    assert not {"\x1b", "\x07", "\u202e"} & set(told), ascii(told)


def test_a_child_with_many_owners_is_still_the_child_of_its_controller() -> None:
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "js",
        "uid": VICTIM,
        "controller": True,
    }
    configs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"c{n}", "uid": f"c{n}"} for n in range(500)]
    obj = job()
    obj["metadata"]["ownerReferences"] = [*configs, owner]
    found = controlling(JOB_KINDS, obj)
    assert found is not None
    assert (found.kind.kind, found.uid) == ("JobSet", VICTIM)


# --- files of imports ----------------------------------------------------------------------------------

LAUGHS: Final = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)
DOUBLED: Final = "k0: &k0 {x: 1}\n" + "".join(
    f"k{n}: &k{n} {{<<: [*k{n - 1}], y{n}: *k{n - 1}}}\n" for n in range(1, 64)
)
FILES: Final[dict[str, tuple[str, str]]] = {
    "a billion laughs": (LAUGHS, "alias"),
    "merge keys that double": (DOUBLED, "aliases stand for more than"),
    "a tag of an application": ("!!python/object/apply:os.system ['true']", "tag"),
    "an escape of a terminal in a key": ('"\\e[2J\\e]0;x\\a": 1\n"\\e[2J\\e]0;x\\a": 2', "twice"),
    "an anchor that contains itself": ("a: &a {b: *a}", "alias"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_of_an_import_is_an_error_of_one_line_at_a_bounded_cost(name: str) -> None:
    text, words = FILES[name]
    begin = time.process_time()
    with pytest.raises(BadFile) as refused:
        documents(text.encode(), "policy.yaml")
    refusal = str(refused.value)
    assert words in refusal
    assert refusal.isprintable()
    assert refusal.startswith("policy.yaml: line ")
    assert time.process_time() - begin < 30


def test_a_site_of_many_accounts_costs_no_more_than_their_number() -> None:
    """A university has thousands, and who names them is not who runs the import."""
    site = (
        "PartitionName=gpu\n   AllowGroups=ALL Nodes=n1 State=UP\n\n"
        "NodeName=n1 CPUTot=8 RealMemory=8000 Gres=gpu:a100:8 State=IDLE Partitions=gpu\n\n"
        "Cluster - 'c'\nParent - 'root'\n"
    )
    wide = "".join(f"Account - 'w{n}':Fairshare=1\n" for n in range(6_000))
    deep = "".join(f"Parent - '{f'd{n - 1}' if n else 'root'}'\nAccount - 'd{n}'\n" for n in range(1_000))
    begin = time.process_time()
    made = import_slurm(read_slurm(f"{site}{wide}{deep}".encode(), "site.txt"))
    assert len(made.objects) > 7_000
    assert time.process_time() - begin < 20


# --- policy, groups and links --------------------------------------------------------------------------

ANY: Final[tuple[Any, ...]] = (
    *(None, True, -1, 2**70, float("nan"), "", "x" * 2_000, "\x1b[2J", "\ud800", "1e999999999", "NaN"),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "../../etc/passwd"),
    *([], {}, [None], [{}], {"a": "b"}, "(a+)+$", "UTC\x00", "\u0663"),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _places(item, (*path, key))


BUDGET_OF_ALL: Final = BUDGET | {
    "refunds": {"preempted": 1},
    "grants": [
        {"hours": 1, "at": "2026-11-02T00:00:00Z", "subject": "a", "workload": "a/b/c", "reason": "r"}
    ],
}
POLICIES: Final[dict[str, Json]] = {"Budget": BUDGET_OF_ALL, "UsageLimit": LIMIT, "IdlePolicy": IDLE}


@pytest.mark.parametrize("kind", POLICIES)
def test_no_value_of_a_field_of_a_policy_raises(kind: str) -> None:
    for path in list(_places(POLICIES[kind]))[1:]:
        for value in ANY:
            spec = copy.deepcopy(POLICIES[kind])
            at: Any = spec
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
            metadata = {"name": "one", "uid": "u", "generation": 1}
            event = policy_event({"kind": kind, "metadata": metadata, "spec": spec})
            if isinstance(event, PolicyObserved):
                assert parse_policy(event.key, event.spec) == event.value
            else:
                assert event.detail.isprintable()
                assert len(event.detail) <= 500


@pytest.mark.parametrize("index", ["0", "007", "999999999", "9" * 63, "-1", "1e9", "\u0663", "x", ""])
def test_members_of_a_group_that_are_missing_are_named_in_a_bounded_line(index: str) -> None:
    """The indices and names of the others are their tenant's."""
    size = 1_000
    label = {"queuectl.dev/pod-group-pod-index": index}
    pods = [group_pod(f"{'n' * 200}-{n}", size=size, labels=label) for n in range(size)]
    running = started(pods)[:600]
    begin = time.process_time()
    (unit,) = units(member(one) for one in running)
    assert unit.missing.isprintable()
    assert 0 < len(unit.missing) < 2_000
    event = observe(POD_GROUP, composed(unit, 9))
    assert event is not None
    assert event.observation.pods_missing == unit.missing
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "name",
    [
        "javascript:alert(1)",
        "a\r\nLocation: x",
        "../..",
        "evil.example/",
        "@evil.example",
        "#",
        "?",
        "{uid}",
        "%2e",
    ],
)
def test_a_link_leads_where_its_template_does_whatever_a_workload_is_called(name: str) -> None:
    ref = ObjectRef(name, name, name, name)
    templates = {
        "path": "https://logs.example.com/{namespace}/{kind}/{name}/end",
        "query": "https://logs.example.com/?name={name}&uid={uid}&more=1",
    }
    for title, url in links_of(templates, ref).items():
        parts = urlsplit(url)
        assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "logs.example.com", "")
        assert url.isascii()
        assert url.isprintable()
        assert " " not in url
        if title == "path":
            assert [unquote(part) for part in parts.path.split("/")[1:]] == [name] * 3 + ["end"]
        else:
            assert parse_qs(parts.query) == {"name": [name], "uid": [name], "more": ["1"]}
