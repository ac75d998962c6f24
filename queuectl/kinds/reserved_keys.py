"""Every label and annotation that queuectl, its policies and its command line reserve, on objects and pods.

The policies of manifests/gate confine queuectl's own service account to the annotations with this prefix and
to the labels of pods; tests/acceptance/manifests compares them with this list.
"""

from __future__ import annotations

from typing import Final

from queuectl.kinds.jobs import QUEUE_LABEL

RESERVED: Final = "queuectl.dev/reserved-"
"""Prefix of annotations that users may not write."""

ADMISSION_ANNOTATION: Final = RESERVED + "admission"
"""On an admitted object, written by the controller: kinds/admission."""
STOPPED_ANNOTATION: Final = RESERVED + "stopped"
"""On an object that queuectl stopped, until its next start, written by the controller: kinds/stopped."""
SUBMITTER_ANNOTATION: Final = RESERVED + "submitter"
"""On an object, written at its creation by the mutating policy or the webhook: the user that created it."""
GROUPS_ANNOTATION: Final = RESERVED + "groups"
"""The same of its groups, with commas; those of Kubernetes, `system:*`, left out."""
USER_ANNOTATION: Final = "queuectl.dev/user"
"""On an object, or the template that a controller makes it of: the user whose usage it is."""
RELEASE_ANNOTATION: Final = RESERVED + "release"
"""On an object, written by an admin that the gate lets do so: kinds/released."""
BYPASS_ANNOTATION: Final = RESERVED + "bypass"
"""On an object, written by the mutating policy or the webhook: the user that started it past the queue."""
REASON_OF_BYPASS: Final = "queuectl.dev/bypass"
"""On an object, written by a user that may bypass, in the request that starts it past the queue: why."""

IDLE_EXEMPT: Final = "queuectl.dev/idle-exempt"
"""On an object, written by a user that may exempt: why its devices are not judged."""

RESTRICTED_LABEL: Final = "queuectl.dev/restricted"
"""On a WorkloadPriorityClass or LocalQueue, written by an admin: only users that may use it may name it."""
AUTHOR_ANNOTATION: Final = RESERVED + "author"
"""On a policy object, written by the mutating policy whenever its spec changes: the user that wrote it."""

WORKLOAD_LABEL: Final = "queuectl.dev/workload"
"""On pod templates, and so on pods, written at each start: the id of the workload."""
GATED_LABEL: Final = "queuectl.dev/gated"
"""On a pod that queues by itself, written at its creation by the mutating policy or the webhook."""
SCHEDULING_GATE: Final = "queuectl.dev/admission"
"""The scheduling gate of such a pod, written with that label; the controller removes it at the start."""
GROUP_LABEL: Final = "queuectl.dev/pod-group-name"
"""On a pod, written by its user: it starts together with all pods of its namespace that have this value."""
GROUP_SIZE: Final = "queuectl.dev/pod-group-total-count"
"""On such a pod, an annotation of its user: the number of pods of its group."""
GROUP_INDEX: Final = "queuectl.dev/pod-group-pod-index"
"""On such a pod, a label of its user: its place in the group, from 0."""
CLUSTER_QUEUE_LABEL: Final = "queuectl.dev/cluster-queue"
"""On pods, the name of the ClusterQueue that admitted them; empty where that is too long for a label."""
PODSET_LABEL: Final = "queuectl.dev/podset"
"""On pods, the name of their podset."""
FLAVOR_LABEL: Final = "queuectl.dev/flavor"
"""On pods, the names of their ResourceFlavors, joined by `_`; empty where that is too long for a label."""
POD_LABELS: Final = (QUEUE_LABEL, WORKLOAD_LABEL, CLUSTER_QUEUE_LABEL, PODSET_LABEL, FLAVOR_LABEL)
"""Labels on pod templates, written at each start. On an object itself its user writes the first."""
