"""The manifests that name kinds of jobs, made from a registry: policies, webhook rules, rights.

Each file is a template with `@{NAME}` where something depends on the kinds. A name on a line of its own
stands for several lines. What is between `@if NAME` and `@end` is left out where a kind has no such rule. One
template becomes a file for each kind: the policy of that kind.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from queuectl.kinds.gate_rules import (
    CRON_JOBS,
    OF_PODS,
    AttributedTemplate,
    asked,
    attributed,
    by_controller_of_owner,
    by_controller_of_template,
    by_kind,
    counted,
    deadline_kept,
    ended,
    entries,
    fixed,
    given_by_kueue,
    groups_of_user,
    kept,
    listed,
    loses_its_owner,
    parts,
    queued_later,
    refused,
    submitter_applied,
    suspend,
    suspend_applied,
    template_marks,
    templates,
)
from queuectl.kinds.jobs import JobKind, KindRegistry
from queuectl.kinds.labels import KUEUE_MARKS, KUEUE_QUEUE_LABEL, OWN, QueueLabels
from queuectl.kinds.reserved_keys import POD_LABELS

TEMPLATES: Final = Path(__file__).with_name("templates")
WIDTH: Final = 100
"""Columns of what stands for a name, without its indent."""
_LINES: Final = re.compile(r"^( *)@\{(\w+)\}$", re.MULTILINE)
_NAME: Final = re.compile(r"@\{(\w+)\}")
_BLOCK: Final = re.compile(r"^ *@if (\w+)\n(.*?)^ *@end\n", re.MULTILINE | re.DOTALL)
_NOTHING: Final = frozenset({"(0)", "('')", "(true)"})
"""Expressions of rules that a kind does not have."""
KIND_POLICY: Final = "gate/kinds/kind.yaml"
"""The template of the policy of one kind."""
_OF_PODS: Final = ".pods.yaml"
"""Ends the name of a template that continues the file of the same name where pods queue by themselves."""
_OF_TEMPLATES: Final = frozenset({"gate/attribution.yaml", "mutating/attribution.yaml"})
"""Templates of policies, of which each template of what queues has its own."""
_CRON_JOB: Final = {"batch/v1/CronJob": ("batch", "cronjobs")}
_MAKE_PODS: Final = {
    "apps/v1/ReplicaSet": ("apps", "replicasets"),
    "apps/v1/StatefulSet": ("apps", "statefulsets"),
}
"""Whose templates of pods are checked."""
_QUEUED_PODS: Final[tuple[Mapping[str, str], ...]] = (
    {"webhook_of_pods": "pods", "queued_pods": "- key: queuectl.dev/queue-name\n  operator: Exists"},
    {
        "webhook_of_pods": "pods-of-kueue",
        "queued_pods": "- key: kueue.x-k8s.io/queue-name\n  operator: Exists\n"
        "- key: queuectl.dev/queue-name\n  operator: DoesNotExist",
    },
)
"""The webhook of pods by the label that queues them, ours and Kueue's: a selector has no "or"."""
_HEAD: Final = "# Made from the registry of kinds by `make manifests`: change queuectl/kinds/templates/{}.\n"


def manifests(kinds: KindRegistry, honoured: QueueLabels = OWN) -> dict[str, str]:
    """The text of each file, by its path below `manifests`.

    `honoured`: for pods. Kueue's labels of other kinds count by the patches of manifests/kueue-labels.
    """
    suspended = tuple(row for row in kinds.rows if not row.scheduling_gate)
    values, pods_queue = _values(suspended), suspended != kinds.rows
    labels = _QUEUED_PODS if KUEUE_QUEUE_LABEL in honoured.queue else _QUEUED_PODS[:1]
    values["of_kueue"] = "(true)" if labels == _QUEUED_PODS[:1] else ""
    made: dict[str, str] = {}
    for path in sorted(TEMPLATES.rglob("*.yaml"), key=lambda path: (path.name.endswith(_OF_PODS), path)):
        name = path.relative_to(TEMPLATES).as_posix()
        if name in _OF_TEMPLATES:
            made[name] = _of_templates(name, values, OF_PODS if pods_queue else ())
        elif not name.endswith(_OF_PODS) and name != KIND_POLICY:
            made[name] = _made(name, values)
        elif name.endswith(_OF_PODS) and pods_queue:
            text = path.read_text()
            for chosen in labels if "@{queued_pods}" in text else ({},):
                made[f"{name.removesuffix(_OF_PODS)}.yaml"] += _filled(text, {**values, **chosen})
    folder = KIND_POLICY.rpartition("/")[0]
    of_kinds = {
        f"{folder}/{file_name(rows[0])}": _made(KIND_POLICY, _of_kind(rows) | _by_owner(suspended))
        for rows in resources(suspended)
    }
    return {**made, **of_kinds}


def resources(rows: Sequence[JobKind]) -> list[tuple[JobKind, ...]]:
    """The rows of each resource: those of several versions are one."""
    found: dict[str, list[JobKind]] = {}
    for row in rows:
        found.setdefault(row.resource, []).append(row)
    return [tuple(same) for same in found.values()]


def policy_name(row: JobKind) -> str:
    """The name of the policy of a kind, and of its binding: a group without a dot is Kubernetes' own."""
    return f"queuectl-{row.plural}.{row.group}" if "." in row.group else f"queuectl-{row.plural}"


def file_name(row: JobKind) -> str:
    """The file with the policy of a kind."""
    return policy_name(row).removeprefix("queuectl-") + ".yaml"


def _made(name: str, values: Mapping[str, str]) -> str:
    return _HEAD.format(name) + _filled((TEMPLATES / name).read_text(), values)


def _of_templates(name: str, values: Mapping[str, str], more: Sequence[AttributedTemplate]) -> str:
    comment, policy = re.split(r"(?m)^(?!#)", (TEMPLATES / name).read_text(), maxsplit=1)
    policies = [_filled(policy, {**values, **_of_template(one)}) for one in (CRON_JOBS, *more)]
    return _HEAD.format(name) + comment + "---\n".join(policies)


def _of_template(one: AttributedTemplate) -> dict[str, str]:
    return {
        "name": one.name,
        "made": one.made,
        "group": one.group,
        "resources": ", ".join(one.resources),
        "path": ".".join(one.path),
        "metadata": ".".join(f"?{field}" for field in (*one.path, "metadata")),
        "applied": _expression(one.applied()),
        "by_its_controller": _expression(
            f"({by_controller_of_template(one.makers)})" if one.makers else "(true)"
        ),
    }


def _filled(text: str, values: Mapping[str, str]) -> str:
    def lines(found: re.Match[str]) -> str:
        return "\n".join(f"{found[1]}{line}" for line in values[found[2]].splitlines())

    text = _BLOCK.sub(lambda found: "" if values[found[1]] in _NOTHING else found[2], text)
    return _NAME.sub(lambda found: values[found[1]], _LINES.sub(lines, text))


def _values(rows: tuple[JobKind, ...]) -> dict[str, str]:
    """What stands for each name in the files about all kinds with a field that suspends."""
    files = (f"- {file_name(same[0])}" for same in resources(rows))
    return {
        "changed_below": _rules(rows, ("", "/*"), "UPDATE"),
        "scales": _rules(tuple(row for row in rows if row.scale), ("/scale",), "UPDATE"),
        "created": _rules(rows, ("",), "CREATE"),
        "updated": _rules(rows, ("",), "UPDATE"),
        "written": _rules(rows, ("",), "CREATE, UPDATE"),
        "sent_to_webhook": _rules(rows, ("",), "CREATE, UPDATE", "scope: Namespaced"),
        "rights": _rights(rows, "", "get, list, watch, patch"),
        "rights_on_status": _rights(rows, "/status", "patch"),
        "policy_files": "\n".join(files),
        "pod_labels": _expression(str(list(POD_LABELS))),
        "let_go": _expression(
            f"{by_kind(rows, lambda row: suspend(row, 'oldObject'))} == optional.of(true)"
            f" && {by_kind(rows, lambda row: suspend(row, 'object'))} != optional.of(true)"
        ),
        "queued_later": _expression(queued_later()),
        "suspend_applied": _expression(by_kind(rows, lambda row: suspend_applied(row))),
        "template_annotations": _expression(
            by_kind(rows, lambda row: template_marks(row, "object", "annotations"))
        ),
        "template_labels": _expression(by_kind(rows, lambda row: template_marks(row, "object", "labels"))),
        "marks_of_kueue": _expression(str(sorted(KUEUE_MARKS))),
        "submitter_applied": _expression(submitter_applied()),
        "groups_of_user": _expression(groups_of_user()),
        "labels_of_kueue": _expression(given_by_kueue("labels")),
        "annotations_of_kueue": _expression(given_by_kueue("annotations")),
        **_by_owner(rows),
    }


def _by_owner(rows: tuple[JobKind, ...]) -> dict[str, str]:
    return {
        "by_controller_of_owner": _expression(by_controller_of_owner(rows)),
        "loses_its_owner": _expression(loses_its_owner(rows)),
        "attributed": _expression(attributed()),
        "by_controller_of_cronjob": _expression(by_controller_of_template(_CRON_JOB)),
        "by_controller_of_pods": _expression(by_controller_of_template(_MAKE_PODS)),
    }


def _of_kind(rows: tuple[JobKind, ...]) -> dict[str, str]:
    """What stands for each name in the policy of one kind: `rows` are its versions, which have one form."""
    row = rows[0]
    texts = {
        "suspend": suspend(row, "object"),
        "suspend_before": suspend(row, "oldObject"),
        "ended_before": ended(row, "oldObject"),
        "parts": parts(row, "o"),
        "entries": entries(row, "object"),
        "entries_of_each": entries(row, "o"),
        "listed": listed(row, "object"),
        "listed_of_each": listed(row, "o"),
        "fixed": fixed(row, "object", "oldObject"),
        "refused": refused(row),
        "kept": kept(row, "o[0].spec", "o[1].spec"),
        "counted": counted(row),
        "deadline_kept": deadline_kept(row),
        "templates": templates(row),
        "asked": asked(row),
    }
    return {
        "policy": policy_name(row),
        "plural": row.plural,
        "resource": row.resource,
        "suspend_path": ".".join(row.suspend),
        "pod_labels": _expression(str(list(POD_LABELS))),
        "everything_below": _rules(rows, ("", "/*"), "CREATE, UPDATE"),
        **{name: _expression(f"({text})") for name, text in texts.items()},
    }


def _expression(text: str) -> str:
    """On several lines, which YAML joins by spaces."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _rules(rows: tuple[JobKind, ...], parts: tuple[str, ...], operations: str, *more: str) -> str:
    """Rules of a policy or webhook: one for each group and version."""
    plurals: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        plurals.setdefault((row.group, row.version), []).append(row.plural)
    lines = []
    for (group, version), names in plurals.items():
        resources = ", ".join(f"{name}{part}" for name in names for part in parts)
        lines += [
            f"- apiGroups: [{group}]",
            f"  apiVersions: [{version}]",
            *_folded(f"  resources: [{resources}]"),
        ]
        lines += [f"  {line}" for line in (f"operations: [{operations}]", *more)]
    return "\n".join(lines)


def _rights(rows: tuple[JobKind, ...], part: str, verbs: str) -> str:
    """Rules of a role: one for each group."""
    plurals: dict[str, dict[str, None]] = {}
    for row in rows:
        plurals.setdefault(row.group, {})[f"{row.plural}{part}"] = None
    lines = []
    for group, resources in plurals.items():
        lines += [f"- apiGroups: [{group}]", *_folded(f"  resources: [{', '.join(resources)}]")]
        lines.append(f"  verbs: [{verbs}]")
    return "\n".join(lines)


def _folded(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_long_words=False)
