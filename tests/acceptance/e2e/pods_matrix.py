"""The matrix of origins of pods and what happens to them: which test tries each cell, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROWS: Final = {
    "S": "single",
    "G": "group, alike pods",
    "R": "group, two roles",
    "D": "Deployment",
    "O": "StatefulSet, OrderedReady",
    "P": "StatefulSet, Parallel",
    "L": "LeaderWorkerSet, LeaderCreated",
    "Y": "LeaderWorkerSet, LeaderReady",
    "J": "Job, template labelled only",
}
"""A Notebook is a StatefulSet of one pod, which its controller makes: the row O."""
FILES: Final = {
    "pods": "tests/acceptance/e2e/test_single_pods.py",
    "others": "tests/acceptance/e2e/test_pods_and_other_controllers.py",
    "groups": "tests/acceptance/e2e/test_pod_groups.py",
    "lws": "tests/acceptance/e2e/test_leader_worker_sets.py",
    "gate": "tests/acceptance/gate/test_gated_pods.py",
    "scheduler": "tests/acceptance/kube/test_scheduler.py",
    "writes": "tests/integration/kube/test_pod_groups.py",
    "killed": "tests/acceptance/e2e/test_killed_controllers.py",
    "kills": "tests/integration/kube/test_pod_group_restarts.py",
    "one": "tests/integration/kube/test_single_pods.py",
    "day": "tests/integration/kube/test_serving_beside_training.py",
    "world": "tests/acceptance/world/test_schedules.py",
    "group": "tests/unit/kinds/test_pod_group.py",
    "leader": "tests/unit/kinds/test_leader_worker_set.py",
    "single": "tests/unit/kinds/test_single_pod.py",
    "stateful": "tests/unit/kinds/test_stateful_set.py",
    "places": "tests/unit/kube/test_places.py",
}
TIERS: Final = {"tests/acceptance": "real", "tests/integration": "small", "tests/unit": "unit"}
"""`small`: on the sandbox's own API server, owners and kubelet played."""
_PLAYED: Final = ("world",)
"""Acceptance tests on the sandbox's own API server."""


class Cells(NamedTuple):
    """Rows of one column that one test tries."""

    column: str
    rows: str
    test: str
    """File and name."""


class Without(NamedTuple):
    """Rows in which a column has no meaning, or that no test tries."""

    column: str
    rows: str
    why: str


_NO_GROUP: Final = "it is no group"
_SAME_GATE: Final = "the policy reads the labels of the pod, whoever made it: the row single"
_NO_OWNER: Final = "no controller makes its pods"
_NO_REVISION: Final = "it has no revisions"
_AS_SINGLE: Final = "to queuectl its pods are single ones: the row single"
_ROLES: Final = "no rule reads the roles: the row of alike pods"
_BY_OWNER: Final = "a place is kept by the owner, whatever its kind: the rows D, O and L"
_UNQUEUED: Final = "its pods run without a queue, of which a warning tells"
_AS_GROUP: Final = "to queuectl a replica is a group: the rows of groups"
_TRIED_SINGLY: Final = {
    "own selector against the flavor": "",
    "flavor with keys of its own": "",
    "member deleted: waits": "",
    "member deleted: in its start": "",
    "member deleted: runs": "",
    "killed after k of N patches": "",
    "killed after k of N deletes": "",
    "evicted, ends slowly": "",
    "ResourceQuota full": "D",
    "succeeded, collected before the look": "",
    "succeeded, collected, after a restart": "",
    "ends by a failure": "D",
    "API server away, Postgres away": "",
}
_TRIED_AS_GROUP: Final = {
    "own selector against the flavor": "",
    "flavor with keys of its own": "",
    "member deleted: in its start": "",
    "killed after k of N patches": "",
    "killed after k of N deletes": "",
    "evicted, ends slowly": "LY",
    "ResourceQuota full": "",
    "succeeded, collected before the look": "",
    "succeeded, collected, after a restart": "",
    "ends by a failure": "",
    "API server away, Postgres away": "",
}
_TRIED: Final[tuple[Cells | Without, ...]] = (
    Cells("gated at creation by a tenant", "S", "pods test_a_pod_waits_gated_starts_on_its_flavor_and_ends"),
    Cells("gated at creation by a tenant", "GR", "groups test_a_group_starts_when_all_of_its_pods_are_there"),
    Without("gated at creation by a tenant", "DOPLY", "its controller creates the pods"),
    Cells("gated at creation by a controller", "D", "pods test_the_pods_of_a_deployment_queue_one_by_one"),
    Cells("gated at creation by a controller", "O", "pods test_a_pod_of_a_statefulset_comes_again"),
    Cells("gated at creation by a controller", "P", "others test_a_pod_that_waits_counts_as_disrupted"),
    Cells("gated at creation by a controller", "L", "lws test_each_replica_of_the_page_on_serving"),
    Cells("gated at creation by a controller", "Y", "lws test_workers_that_are_created_after_the_start"),
    Without("gated at creation by a controller", "SGR", _NO_OWNER),
    Cells(
        "not gated: child, workload label", "S", "gate test_pods_without_a_queue_label_and_those_of_a_queued"
    ),
    Cells("not gated: child, workload label", "J", "others test_a_job_with_the_label_on_its_template_alone"),
    Without("not gated: child, workload label", "GRDOPLY", _SAME_GATE),
    Cells("without a label", "S", "pods test_a_pod_without_a_queue_label_runs_at_once"),
    Without("without a label", "GRDOPLY", _SAME_GATE),
    Cells("nodeName", "S", "gate test_a_pod_that_could_not_be_held_back_is_not_created"),
    Without("nodeName", "GRDOPLY", _SAME_GATE),
    Cells("DaemonSet", "S", "pods test_no_pod_of_a_labelled_daemonset_is_made"),
    Without("DaemonSet", "GRDOPLY", "it is another owner"),
    Cells("mirror of a static pod", "S", "gate test_the_mirror_of_a_static_pod_is_not_refused"),
    Without("mirror of a static pod", "GRDOPLY", "the kubelet makes single pods"),
    Cells("gate removed by a tenant", "S", "gate test_no_request_of_a_tenant_lets_a_waiting_pod_go"),
    Cells("gate removed by bypass", "S", "gate test_only_who_may_bypass_lets_a_pod_go_and_is_recorded"),
    Cells("gate removed by bypass", "GR", "kills test_pods_that_a_user_lets_past_the_gate_are_charged"),
    Cells(
        "label changed: pods, status, binding", "S", "gate test_a_started_pod_keeps_what_it_was_charged_for"
    ),
    Cells("label changed: pods, status, binding", "GR", "gate test_a_pod_stays_in_its_group"),
    Cells("resize while gated", "S", "gate test_a_pod_that_grows_while_it_waits_is_read_again"),
    Cells("resize while gated", "GR", "gate test_a_pod_of_a_group_that_grows_while_it_waits_is_not_started"),
    Cells("resize after the start", "S", "gate test_a_started_pod_keeps_what_it_was_charged_for"),
    *(
        Without(
            column,
            "DOPLY" if column.startswith(("gate removed by bypass", "label", "resize while")) else "GRDOPLY",
            _SAME_GATE,
        )
        for column in (
            "gate removed by a tenant",
            "gate removed by bypass",
            "label changed: pods, status, binding",
            "resize while gated",
            "resize after the start",
        )
    ),
    Cells("flavor with keys of its own", "S", "single test_a_start_removes_our_gate_alone_and_adds_to"),
    Cells("flavor with keys of its own", "GR", "group test_each_role_gets_the_keys_of_its_own_flavor"),
    Cells("own selector against the flavor", "SR", "groups test_pods_whose_own_node_selector_contradicts"),
    Without("own selector against the flavor", "G", "a pod with another selector is of another role"),
    Cells("foreign gate first, last", "S", "others test_a_gate_of_another_controller_stays"),
    Without("foreign gate first, last", "GRDOPLY", _SAME_GATE),
    Cells("group short", "G", "groups test_a_group_starts_when_all_of_its_pods_are_there"),
    Cells("group short", "L", "leader test_a_replica_of_which_no_worker_comes_later_waits_for_its_pods"),
    Cells("group short", "Y", "lws test_workers_that_are_created_after_the_start"),
    Cells("group short", "OP", "others test_a_statefulset_with_the_label_of_a_group_starts_as_one"),
    Cells("group exact", "OP", "others test_a_statefulset_with_the_label_of_a_group_starts_as_one"),
    Cells("group excess", "OP", "stateful test_more_pods_than_replicas_wait_until_they_are_deleted"),
    Cells("forged role or size", "OP", "gate test_a_pod_of_a_statefulset_may_lack_the_size_of_its_group"),
    Cells("group exact", "GR", "groups test_a_group_starts_when_all_of_its_pods_are_there"),
    Cells("group exact", "L", "lws test_each_replica_of_the_page_on_serving"),
    Cells("group excess", "G", "gate test_the_controller_starts_all_pods_of_a_group_and_deletes"),
    Cells("group excess", "R", "group test_pods_beyond_the_size_wait_and_are_named"),
    Cells("mixed queues, mixed counts", "G", "group test_pods_that_differ_in_what_all_have_in_common_are"),
    Cells("mixed queues, mixed counts", "L", "leader test_a_worker_of_another_queue_is_named"),
    Cells("forged role or size", "GR", "group test_a_shape_that_the_admission_does_not_have_is_not_started"),
    Cells("forged role or size", "L", "lws test_a_pod_that_names_a_set_that_is_not_there_is_charged"),
    *(
        Without(column, "SD" if column != "mixed queues, mixed counts" else "SDOP", _NO_GROUP)
        for column in (
            "group short",
            "group exact",
            "group excess",
            "mixed queues, mixed counts",
            "forged role or size",
        )
    ),
    Without("group exact", "Y", "its workers come after the start"),
    *(
        Without(column, "R", _ROLES)
        for column in (
            "group short",
            "member deleted: waits",
            "member deleted: in its start",
            "evicted, created again, same place",
            "on 1.33, 1.36 and 1.37",
            "ResourceQuota full",
            "API server away, Postgres away",
        )
    ),
    Without("group excess", "LY", "its controller makes no more than its size"),
    Without("mixed queues, mixed counts", "RY", "the row of alike pods"),
    Without("forged role or size", "Y", "the row of LeaderCreated"),
    Cells("member deleted: waits", "S", "pods test_in_a_full_queue_a_pod_says_why_it_waits_and_leaves"),
    Cells("member deleted: waits", "L", "lws test_a_waiting_pod_that_is_deleted_comes_again"),
    Without("member deleted: waits", "Y", "its leader alone waits: the row L"),
    Cells("member deleted: waits", "G", "writes test_a_group_that_misses_a_pod_is_not_started"),
    Cells(
        "member deleted: in its start",
        "S",
        "one test_a_start_of_a_pod_that_is_gone_or_another",
    ),
    Cells("member deleted: in its start", "G", "writes test_a_start_that_has_nothing_to_do_is_later_than"),
    Cells("member deleted: runs", "S", "pods test_in_a_full_queue_a_pod_says_why_it_waits_and_leaves"),
    Cells("member deleted: runs", "GR", "kills test_a_replacement_is_started_by_the_controller_without"),
    Cells("member deleted: runs", "LY", "lws test_a_replica_of_which_a_worker_is_lost_is_made_again"),
    Cells("killed after k of N patches", "S", "one test_a_start_whose_answer_is_lost_is_made_once"),
    Cells("killed after k of N patches", "G", "killed test_a_controller_killed_at_a_write_of_a_group"),
    Cells(
        "killed after k of N patches",
        "R",
        "kills test_a_controller_that_is_killed_between_the_writes_of_a_start",
    ),
    Cells("killed after k of N deletes", "S", "one test_a_stop_that_is_interrupted_is_completed_by_the_next"),
    Cells("killed after k of N deletes", "G", "killed test_a_controller_killed_at_a_write_of_a_group"),
    Cells(
        "killed after k of N deletes",
        "R",
        "kills test_a_controller_that_is_killed_between_the_writes_of_a_stop",
    ),
    Cells("evicted, ends slowly", "S", "pods test_a_pod_of_lower_priority_is_deleted_with_the_reason"),
    Cells("evicted, ends slowly", "GR", "groups test_a_preempted_group_goes_as_a_whole_and_its_quota_waits"),
    Cells("evicted, ends slowly", "LY", "lws test_a_replica_whose_pods_end_slowly_comes_again"),
    Cells("evicted, created again, same place", "D", "pods test_the_pods_of_a_deployment_queue_one_by_one"),
    Cells("evicted, created again, same place", "O", "pods test_a_pod_of_a_statefulset_comes_again"),
    Cells(
        "evicted, created again, same place", "G", "day test_servers_and_trainings_share_a_queue_for_a_day"
    ),
    Cells(
        "evicted, created again, same place", "LY", "lws test_a_preempted_replica_goes_as_a_whole_and_comes"
    ),
    Without("evicted, created again, same place", "P", _BY_OWNER),
    Without("evicted, created again, same place", "S", _NO_OWNER),
    Cells("preemptor holds its room", "D", "pods test_the_pods_of_a_deployment_queue_one_by_one"),
    Cells("preemptor holds its room", "O", "pods test_a_pod_of_a_statefulset_comes_again"),
    Cells("preemptor holds its room", "LY", "lws test_a_preempted_replica_goes_as_a_whole_and_comes"),
    Cells("preemptor holds its room", "P", "others test_a_pod_that_waits_counts_as_disrupted"),
    Without("preemptor holds its room", "SGR", "nothing creates its pods again"),
    Cells("rollout with surge, without", "D", "pods test_a_rollout_in_a_full_queue_waits_with_a_surge_pod"),
    Cells("rollout with surge, without", "OP", "others test_a_rollout_of_a_statefulset_ends_within"),
    Cells("rollout with surge, without", "LY", "lws test_a_rollout_ends_within_the_quota"),
    Cells("edit while it waits", "D", "pods test_a_rollout_in_a_full_queue_waits_with_a_surge_pod"),
    Cells("edit while it waits", "OP", "others test_pods_of_a_statefulset_that_wait_are_made_anew_with"),
    Cells("edit while it waits", "LY", "lws test_a_replica_whose_pods_end_slowly_comes_again"),
    Cells("stale revision", "D", "pods test_a_rollout_in_a_full_queue_waits_with_a_surge_pod"),
    Cells("stale revision", "LY", "lws test_a_replica_whose_pods_end_slowly_comes_again"),
    Cells("stale revision", "OP", "others test_pods_of_a_statefulset_that_wait_are_made_anew_with"),
    *(
        Without(column, "SGR", _NO_REVISION)
        for column in ("rollout with surge, without", "edit while it waits", "stale revision")
    ),
    Cells("scale up, down, to 0, back", "DOP", "others test_the_scale_subresource_which_an_auto"),
    Cells("scale up, down, to 0, back", "L", "lws test_each_replica_of_the_page_on_serving"),
    Cells("scale up, down, to 0, back", "Y", "lws test_workers_that_are_created_after_the_start"),
    Without("scale up, down, to 0, back", "SGR", "nothing scales it"),
    Cells("PodDisruptionBudget and drain", "DOP", "others test_a_pod_that_waits_counts_as_disrupted"),
    Without("PodDisruptionBudget and drain", "LY", "its pods are those of StatefulSets: the rows O and P"),
    Without("PodDisruptionBudget and drain", "SGR", "a budget counts pods of a controller with a scale"),
    Cells("ResourceQuota full", "D", "others test_a_pod_that_waits_counts_in_a_full_resource_quota"),
    Cells("ResourceQuota full", "S", "others test_a_pod_that_waits_counts_in_a_full_resource_quota"),
    Cells("ResourceQuota full", "G", "others test_a_group_that_a_full_resource_quota_keeps_short"),
    Cells(
        "succeeded, collected before the look",
        "S",
        "kills test_a_pod_that_succeeded_and_is_gone",
    ),
    Cells(
        "succeeded, collected before the look", "GR", "group test_success_counts_after_the_pods_are_deleted"
    ),
    Cells("succeeded, collected, after a restart", "S", "kills test_a_pod_that_succeeded_and_is_gone"),
    Cells(
        "succeeded, collected, after a restart",
        "GR",
        "kills test_a_group_whose_pods_succeeded_before_and_after",
    ),
    Cells("ends by a failure", "S", "single test_it_ends_by_its_phase"),
    Cells("ends by a failure", "GR", "group test_a_group_of_which_nothing_runs_has_failed_if_a_pod_has"),
    Cells("ends by a failure", "D", "pods test_a_failed_pod_of_a_replicaset_gives_its_quota"),
    Cells("API server away, Postgres away", "G", "world test_schedules_break_no_rule"),
    Cells("API server away, Postgres away", "S", "world test_schedules_break_no_rule"),
    *(
        Without(column, "".join(row for row in "DOP" if row not in tried), _AS_SINGLE)
        for column, tried in _TRIED_SINGLY.items()
    ),
    *(
        Without(column, "".join(row for row in "LY" if row not in tried), _AS_GROUP)
        for column, tried in _TRIED_AS_GROUP.items()
    ),
    Cells("on 1.33, 1.36 and 1.37", "S", "gate test_a_labelled_pod_is_gated_at_its_creation_and_other"),
    Cells("on 1.33, 1.36 and 1.37", "G", "gate test_the_controller_starts_all_pods_of_a_group_and_deletes"),
    Without("on 1.33, 1.36 and 1.37", "DOPLY", _SAME_GATE),
    Cells("uninstall", "S", "gate test_gated_pods_stay_gated_after_an_uninstall"),
    Without("uninstall", "GRDOPLY", _SAME_GATE),
)
CELLS: Final = (
    *_TRIED,
    *(
        Without(column, "J", _UNQUEUED)
        for column in dict.fromkeys(cell.column for cell in _TRIED)
        if column != "not gated: child, workload label"
    ),
)


def named_tests(root: Path) -> dict[str, str]:
    """The whole name of each test of the matrix, by its entry. Raises KeyError where no test begins so."""
    found = {}
    for entry in {cell.test for cell in CELLS if isinstance(cell, Cells)}:
        file, _, name = entry.partition(" ")
        text = (root / FILES[file]).read_text()
        whole = [
            line.partition("def ")[2].partition("(")[0] for line in text.splitlines() if f"def {name}" in line
        ]
        if len(whole) != 1:
            raise KeyError(entry)
        found[entry] = f"{FILES[file]}::{whole[0]}"
    return found


def table(outcomes: Mapping[str, str]) -> list[str]:
    """The results as lines; `outcomes`: pytest's word by file and name of a test.

    Empty if no test of the real controllers has run.
    """
    names = named_tests(Path(__file__).parents[3])
    if not any(name in outcomes for name in names.values() if name.startswith("tests/acceptance/e2e/")):
        return []
    words: dict[tuple[str, str], str] = {}
    reasons: dict[str, list[str]] = {}
    for cell in CELLS:
        for row in cell.rows:
            if isinstance(cell, Cells):
                words[cell.column, row] = _word(cell.test, outcomes.get(names[cell.test]))
            else:
                words[cell.column, row] = "n/a"
        if isinstance(cell, Without):
            reasons.setdefault(cell.why, []).append(f"{cell.column} ({cell.rows})")
    columns = list(dict.fromkeys(cell.column for cell in CELLS))
    width = max(map(len, columns))
    lines = [f"{letter} {name}" for letter, name in ROWS.items()]
    lines.append(f"{'':{width}} " + " ".join(f"{row:>7}" for row in ROWS))
    lines += [
        f"{column:{width}} " + " ".join(f"{words.get((column, row), '-'):>5}" for row in ROWS)
        for column in columns
    ]
    lines.append(
        "real: on real controllers; small: owners and kubelet are played; (in brackets): not run now"
    )
    return [*lines, *(f"n/a: {why}: {'; '.join(where)}" for why, where in reasons.items())]


def _word(test: str, outcome: str | None) -> str:
    file = test.partition(" ")[0]
    found = next(word for folder, word in TIERS.items() if FILES[file].startswith(folder))
    tier = "small" if file in _PLAYED else found
    if outcome is None:
        return f"({tier})"
    return {"passed": tier, "failed": "FAIL", "error": "FAIL"}.get(outcome, "-")
