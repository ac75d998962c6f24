"""RayCluster, RayJob and RayService. No Ray runs in their pods: KubeRay gets no answer of a Ray dashboard."""

from __future__ import annotations

from typing import Any, Final

from tests.acceptance.operators.subjects import Json, Parts, Subject
from tests.job_kinds import JOB_KINDS

_NO_END: Final = "it has no end of its own"
_NO_DASHBOARD: Final = "its operator learns of the end of a Ray job from the Ray dashboard in the head"
_TAKES_ITS_JOB: Final = "KubeRay takes the submitter's Job of a deleted RayJob of that name for its own"
_ENDS: Final = ("finished with pods left behind", "TTL while suspended")


def _cluster(parts: Parts, settings: Json) -> Json:
    head, workers = parts["head"], parts["small"]
    sizes = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), workers.pods)
    group = {"groupName": "small", **sizes, "rayStartParams": {}, "template": workers.template}
    return {
        "rayVersion": "2.52.0",
        "headGroupSpec": {"rayStartParams": {}, "template": head.template},
        "workerGroupSpecs": [group],
        **settings,
    }


def _job(parts: Parts, settings: Json) -> Json:
    return {
        "entrypoint": "none",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": _cluster(parts, {}),
        "submitterPodTemplate": parts["submitter"].template,
        **settings,
    }


def _service(parts: Parts, settings: Json) -> Json:
    return {"serveConfigV2": "applications: []", "rayClusterConfig": _cluster(parts, {}), **settings}


def ray_cluster(**without: Any) -> Subject:
    """`without`: as in Subject."""
    return Subject(
        row=JOB_KINDS["RayCluster"],
        site="all",
        sizes={"head": 1, "small": 2},
        make=_cluster,
        endless=True,
        without={**dict.fromkeys(_ENDS, _NO_END), **without},
    )


def ray_job(**without: Any) -> Subject:
    """`without`: as in Subject."""
    return Subject(
        row=JOB_KINDS["RayJob"],
        site="all",
        sizes={"head": 1, "small": 2, "submitter": 1},
        make=_job,
        endless=True,
        without={
            **dict.fromkeys((*_ENDS, "retried by its own policy"), _NO_DASHBOARD),
            "same name again": _TAKES_ITS_JOB,
            **without,
        },
    )


def ray_service(**without: Any) -> Subject:
    """`without`: as in Subject."""
    return Subject(
        row=JOB_KINDS["RayService"],
        site="all",
        sizes={"head": 1, "small": 2},
        make=_service,
        endless=True,
        without={**dict.fromkeys(_ENDS, _NO_END), **without},
    )
