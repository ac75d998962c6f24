"""Which pods of a StatefulSet are of a former revision."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.kube.revisions import Rollout, rollout

Json = dict[str, Any]


def stateful_set(strategy: object, *, current: str = "a", update: str = "b", **spec: Any) -> Json:
    return {
        "metadata": {"namespace": "team-a", "uid": "u"},
        "spec": {"updateStrategy": strategy, **spec},
        "status": {"currentRevision": current, "updateRevision": update},
    }


@pytest.mark.parametrize(
    ("strategy", "spec", "first"),
    [
        ({"type": "RollingUpdate"}, {}, 0),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}, {}, 2),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}, {"ordinals": {"start": 5}}, 7),
    ],
)
def test_a_rollout_concerns_the_pods_from_its_partition_on(strategy: Json, spec: Json, first: int) -> None:
    assert rollout(stateful_set(strategy, **spec)) == Rollout("team-a", "u", "b", first)


@pytest.mark.parametrize(
    "obj",
    [
        stateful_set({"type": "OnDelete"}),
        stateful_set({"type": "RollingUpdate"}, update="a"),
        {"metadata": {"namespace": "team-a", "uid": "u"}},
    ],
)
def test_no_pod_is_replaced_where_nothing_rolls_out_or_the_user_deletes_them(obj: Json) -> None:
    assert rollout(obj) is None
