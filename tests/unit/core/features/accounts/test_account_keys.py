"""Whom an admission is booked on: queues, users and account keys, as they were at that time (B1, B2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.decisions import Admit
from queuectl.core.model.events import ContextObserved
from queuectl.core.model.policy import AccountKey, AccountSource, Namespace, SchedulingConfiguration
from queuectl.core.model.workload import AccountValue, Attribution, Workload
from tests.builders import GPU, World, group, local_queue, observed, pod_set, queue, workload

COST_CENTER = AccountKey(name="cost-center", label="example.com/cost-center")
PROJECT = AccountKey(name="project", label="project", allowed=frozenset({"blue", "red"}))


def job(name: str, created: float = 0, **labels: str) -> Workload:
    made = workload(name, pods=[pod_set(1, {GPU: 1})], created=created)
    named = {"cost_center": "example.com/cost-center"}
    pairs = sorted((named.get(key, key), value) for key, value in labels.items())
    return replace(made, submitter="ada", labels=tuple(pairs))


def world(*keys: AccountKey, **labels: str) -> World:
    settings = SchedulingConfiguration(account_keys=keys)
    made = World(
        local_queue("lq", "cq"), queue("cq", groups=[group({"default": {GPU: 4}})]), settings=settings
    )
    made.tell(ContextObserved(Namespace("ns", tuple(labels.items()))))
    return made


def booked(made: World) -> list[Attribution]:
    return [one.attribution for one in made.run() if isinstance(one, Admit) and one.attribution is not None]


def account(*values: AccountValue) -> Attribution:
    return Attribution(namespace="ns", queue="lq", submitter="ada", user="ada", account=values)


def test_without_account_keys_an_admission_is_booked_on_its_queue_and_its_user() -> None:
    made = world()
    made.submit(job("one", cost_center="42"))
    assert booked(made) == [account()]


def test_the_label_of_a_workload_counts_before_that_of_its_namespace() -> None:
    made = world(COST_CENTER, **{"example.com/cost-center": "7"})
    made.submit(job("one", cost_center="42"), job("two", created=1))
    assert booked(made) == [
        account(AccountValue("cost-center", "42", AccountSource.WORKLOAD)),
        account(AccountValue("cost-center", "7", AccountSource.NAMESPACE)),
    ]


def test_a_value_that_is_not_allowed_does_not_count() -> None:
    made = world(PROJECT, project="red")
    made.submit(job("one", project="green"), job("two", created=1, project="blue"))
    assert [one.account for one in booked(made)] == [
        (AccountValue("project", "red", AccountSource.NAMESPACE),),
        (AccountValue("project", "blue", AccountSource.WORKLOAD),),
    ]


def test_where_only_the_namespace_counts_users_choose_nothing() -> None:
    made = world(replace(COST_CENTER, sources=(AccountSource.NAMESPACE,)))
    made.submit(job("one", cost_center="42"))
    assert booked(made) == [account(AccountValue("cost-center", None, None))]


def test_labels_count_as_they_are_at_the_admission() -> None:
    made = world(COST_CENTER)
    first = job("one", cost_center="1")
    made.submit(replace(first, hold=True))
    assert booked(made) == []
    made.submit(replace(first, labels=job("one", cost_center="2").labels))
    assert booked(made) == [account(AccountValue("cost-center", "2", AccountSource.WORKLOAD))]
    made.submit(replace(first, labels=job("one", cost_center="3").labels))
    assert booked(made) == []


def test_what_was_found_running_is_booked_too() -> None:
    made = world(COST_CENTER)
    made.tell(observed(job("one", cost_center="1"), suspended=False))
    assert booked(made) == [account(AccountValue("cost-center", "1", AccountSource.WORKLOAD))]


def test_a_fork_reads_the_labels_of_namespaces_in_its_own_state() -> None:
    made = world(COST_CENTER, **{"example.com/cost-center": "7"})
    fork = made.engine.fork()
    made.tell(ContextObserved(Namespace("ns", (("example.com/cost-center", "8"),))))
    fork.handle([observed(job("one"))])
    (admission,) = [one for one in fork.decide(made.now, 100).decisions if isinstance(one, Admit)]
    assert admission.attribution == account(AccountValue("cost-center", "7", AccountSource.NAMESPACE))


def test_a_group_counts_if_it_is_allowed_and_the_creator_beside_the_user() -> None:
    team = AccountKey(
        name="team",
        label="team",
        sources=(AccountSource.GROUP, AccountSource.NAMESPACE),
        allowed=frozenset({"ml", "vision"}),
    )
    made = world(team, team="vision")
    groups = replace(job("one"), groups=("all", "ml", "vision"), creator="portal")
    made.submit(groups, replace(job("two", created=1), groups=("all",)))
    assert booked(made) == [
        replace(account(AccountValue("team", "ml", AccountSource.GROUP)), submitter="portal"),
        account(AccountValue("team", "vision", AccountSource.NAMESPACE)),
    ]


def required(*sources: AccountSource, allowed: bool = False) -> AccountKey:
    values = frozenset({"blue"}) if allowed or AccountSource.GROUP in sources else None
    label = "" if sources == (AccountSource.GROUP,) else "project"
    return AccountKey(name="project", label=label, sources=sources, allowed=values, required=True)


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        (
            required(AccountSource.WORKLOAD, AccountSource.NAMESPACE),
            "set label project of the workload, or ask for label project of Namespace/ns",
        ),
        (
            required(AccountSource.NAMESPACE, allowed=True),
            "ask for label project of Namespace/ns, with a value that is allowed",
        ),
        (required(AccountSource.GROUP), "submit it as a user in a group that is allowed"),
    ],
)
def test_without_a_required_key_a_workload_waits_and_its_reason_says_where_to_set_it(
    key: AccountKey, remedy: str
) -> None:
    made = world(COST_CENTER, key)
    made.submit(job("one", cost_center="42"))
    assert booked(made) == []
    found = made.reason("one")
    assert found is not None
    assert found.message == f"Misconfigured: account key project is required: {remedy}"


def test_a_required_key_that_a_workload_or_its_namespace_gets_later_ends_the_wait() -> None:
    made = world(required(AccountSource.WORKLOAD, AccountSource.NAMESPACE))
    made.submit(job("one"), job("two", created=1))
    assert booked(made) == []
    made.submit(job("one", project="blue"))
    assert booked(made) == [account(AccountValue("project", "blue", AccountSource.WORKLOAD))]
    made.tell(ContextObserved(Namespace("ns", (("project", "red"),))))
    assert booked(made) == [account(AccountValue("project", "red", AccountSource.NAMESPACE))]


def test_a_required_key_that_is_removed_bars_the_next_start_and_stops_nothing() -> None:
    made = world(required(AccountSource.WORKLOAD))
    held = job("one", project="blue")
    made.submit(replace(held, hold=True), job("two", created=1, project="red"))
    assert len(booked(made)) == 1
    made.submit(job("one"))
    assert booked(made) == []
    made.tell(observed(job("two", created=1), suspended=False))
    assert made.run() == []


def test_what_was_found_running_without_a_required_key_is_booked_on_none() -> None:
    made = world(required(AccountSource.WORKLOAD))
    made.tell(observed(job("one"), suspended=False))
    assert booked(made) == [account(AccountValue("project", None, None))]


def test_what_controls_a_workload_counts_as_its_owner() -> None:
    key = AccountKey(name="flow", label="", sources=(AccountSource.OWNER,))
    made = world(key)
    made.submit(replace(job("one"), controller="CronJob/nightly"), job("two", created=1))
    assert booked(made) == [
        account(AccountValue("flow", "CronJob/nightly", AccountSource.OWNER)),
        account(AccountValue("flow", None, None)),
    ]
