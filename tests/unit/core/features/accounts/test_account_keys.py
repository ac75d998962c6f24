"""Whom an admission is booked on: queues, users and account keys, as they were at that time (B1, B2)."""

from __future__ import annotations

from dataclasses import replace

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
