"""A dump names each object as it is named, and without names no user of the ledger."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from queuectl.answers import trial_snapshot
from queuectl.answers.state import CommittedState
from queuectl.core.model.policy import DEFAULT_CONFIGURATION
from queuectl.core.model.workload import ConfigKey, UsageSum
from queuectl.kinds.policy import parse_policy, policy_event
from queuectl.kinds.reserved_keys import RESTRICTED_LABEL
from queuectl.scenarios.anonymous import anonymous
from queuectl.scenarios.dump import dump
from tests.unit.api.canned import EPOCH_START
from tests.unit.api.test_what_ifs import ledger
from tests.unit.core.driver import wait_for

LABELS = {"labels": {RESTRICTED_LABEL: "true"}}


def dumped(*past: UsageSum, configs: dict[ConfigKey, str | None] | None = None) -> dict[str, Any]:
    readings = ledger()
    readings.commit(configs=configs or {})
    state = CommittedState().advance(wait_for(readings.since(0)), parse_policy)
    found = replace(trial_snapshot.everything(state, EPOCH_START).snapshot(), past_usage=past)
    return json.loads(json.dumps(dump(found, DEFAULT_CONFIGURATION, now=EPOCH_START)))  # type: ignore[no-any-return]


def test_what_is_restricted_has_its_name_and_its_label() -> None:
    of_class, of_queue = (
        ConfigKey("WorkloadPriorityClass", "", "urgent"),
        ConfigKey("LocalQueue", "ns", "vip"),
    )
    found = dumped(
        configs={
            of_class: json.dumps({"metadata": LABELS, "value": 9}),
            of_queue: json.dumps({"metadata": LABELS, "spec": {"clusterQueue": "team-a"}}),
        }
    )
    by_name = {one["metadata"]["name"]: one for one in found["objects"]}
    for key in (of_class, of_queue):
        event = policy_event(by_name[key.name])
        assert event.key == key
        assert event.value.restricted  # type: ignore[union-attr]


def test_a_dump_without_names_has_no_user_of_past_usage() -> None:
    """The user has left, and has no workload."""
    document = dumped(UsageSum(("ns", "lq", "zoe@example.com"), 1, 2**70))
    assert "zoe@example.com" in json.dumps(document)
    found = anonymous(document)
    assert "zoe@example.com" not in json.dumps(found)
    (account, *_), *_ = found["config"]["ledger"]["pastUsage"]
    assert len(account) == 3
