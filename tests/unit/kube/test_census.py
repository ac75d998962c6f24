"""What an observer could look at: counted from metadata alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

from queuectl.kube.census import topmost
from queuectl.kube.errors import NotFound
from queuectl.kube.session import Session
from tests.job_kinds import JOB_KINDS

Json = dict[str, Any]


def _object(uid: str, owner: Json | None = None) -> Json:
    owners = [{"controller": True, "name": "o", "uid": "o", **owner}] if owner else []
    return {"metadata": {"uid": uid, "ownerReferences": owners}}


class _Lists:
    async def pages(self, path: str, *, accept: str) -> AsyncIterator[Json]:
        assert "PartialObjectMetadataList" in accept
        if path == "/apis/batch/v1/jobs":
            cron = {"apiVersion": "batch/v1", "kind": "CronJob"}
            job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
            yield {"items": [_object("own"), _object("of-cron", cron), _object("of-set", job_set)]}
        elif "jobsets" in path:
            yield {"items": None}
        else:
            raise NotFound("not installed", status=404)


async def test_objects_that_a_queued_kind_controls_and_pods_are_not_counted() -> None:
    found = await topmost(cast(Session, _Lists()), JOB_KINDS)
    assert found == {"own": "Job", "of-cron": "Job"}
