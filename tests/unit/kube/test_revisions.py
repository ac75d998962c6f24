"""Which pods of a StatefulSet are of a former revision."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from queuectl.kube.errors import ApiError
from queuectl.kube.revisions import FormerRevisions, Rollout, rollout
from queuectl.kube.session import Session

Json = dict[str, Any]


def stateful_set(strategy: object, *, current: str = "a", update: str = "b", **spec: Any) -> Json:
    return {
        "metadata": {"namespace": "team-a", "name": "server", "uid": "u"},
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
    assert rollout(stateful_set(strategy, **spec)) == Rollout("team-a", "server", "u", "b", first)


@pytest.mark.parametrize(
    "obj",
    [
        stateful_set({"type": "OnDelete"}),
        stateful_set({"type": "RollingUpdate"}, update="a"),
        {"metadata": {"namespace": "team-a", "name": "server", "uid": "u"}},
    ],
)
def test_no_pod_is_replaced_where_nothing_rolls_out_or_the_user_deletes_them(obj: Json) -> None:
    assert rollout(obj) is None


class Refusing:
    """An API server that lists the pods of one namespace only."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def pages(self, path: str, *, query: dict[str, str]) -> AsyncIterator[Json]:
        self.asked.append((path.rsplit("/", 2)[1], query["labelSelector"].rpartition("=")[2]))
        if "team-a" in path:
            raise ApiError("no")
        yield {"items": []}


async def test_a_rollout_that_fails_holds_up_no_other_and_gives_way_to_the_next_revision() -> None:
    session = Refusing()
    revisions = FormerRevisions(cast("Session", session))
    revisions._take([Rollout("team-a", "server", "u", "b", 0), Rollout("team-b", "server", "v", "b", 0)])
    await revisions._replace_all()
    revisions._take([Rollout("team-a", "server", "u", "c", 0)])
    await revisions._replace_all()
    revisions._over(("team-a", "server"), "9")
    await revisions._replace_all()
    assert session.asked == [("team-a", "b"), ("team-b", "b"), ("team-a", "c")]
