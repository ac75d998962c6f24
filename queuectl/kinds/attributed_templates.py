"""Templates of what queues: they name the user that gave them their queue, for its usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class AttributedTemplate(NamedTuple):
    """A template in the spec of some resources, which have a policy for it."""

    name: str
    """Of what is made of it: ends the name of its policies."""
    made: str
    """What is made of it, for messages."""
    group: str
    resources: tuple[str, ...]
    path: tuple[str, ...]
    """Fields below `spec`."""
    makers: Mapping[str, tuple[str, str]] = {}
    """Group and plural of what has a template that names the user, by API version and kind of the owner of
    what its controller makes of that."""

    def applied(self) -> str:
        """Return the apply configuration with the name of its user, and its groups."""
        user = '"queuectl.dev/user": variables.user'
        text = (
            f"{{annotations: variables.groups == '' ? {{{user}}}"
            f' : {{{user}, "queuectl.dev/reserved-groups": variables.groups}}}}'
        )
        fields = ("spec", *self.path, "metadata")
        for depth in range(len(fields), 0, -1):
            text = f"{{{fields[depth - 1]}: {'.'.join(('Object', *fields[:depth]))}{text}}}"
        return f"Object{text}"


_LEADER_WORKER_SETS: Final = ("leaderworkerset.x-k8s.io", "leaderworkersets")
CRON_JOBS: Final = AttributedTemplate("cronjobs", "Jobs", "batch", ("cronjobs",), ("jobTemplate",))
OF_PODS: Final = (
    AttributedTemplate(
        "pods",
        "pods",
        "apps",
        ("deployments", "replicasets", "statefulsets"),
        ("template",),
        {
            "apps/v1/Deployment": ("apps", "deployments"),
            "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet": _LEADER_WORKER_SETS,
            "v1/Pod": _LEADER_WORKER_SETS,
        },
    ),
    *(
        AttributedTemplate(f"{role}s", "pods", group, (plural,), ("leaderWorkerTemplate", f"{role}Template"))
        for group, plural in (_LEADER_WORKER_SETS,)
        for role in ("leader", "worker")
    ),
)
"""Those of pods. The StatefulSet with the workers of a LeaderWorkerSet is owned by their leader, a pod."""
