"""Kueue's own configuration: what of it becomes policy, and where each other setting is in queuectl's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from queuectl.core.model.events import PolicyInvalid
from queuectl.importers.kueue_marks import KUEUE, ONLY_PODS
from queuectl.importers.result import Note, policy_object
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.json_fields import clean
from queuectl.kinds.policy import policy_event
from queuectl.kubernetes_yaml import BadYaml, load

_GROUP: Final = f"config.{KUEUE}"
_SECONDS: Final[Mapping[str, int | Fraction]] = {"h": 3600, "m": 60, "s": 1, "ms": Fraction(1, 1000)}
_DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|h|m|s))+")
_DURATION_PART: Final = re.compile(r"([0-9.]+)(ms|h|m|s)")
_OPERATIONS: Final = "docs/operations.md describes queuectl's own configuration"
_PROCESS: Final = "it is about Kueue's own process; " + _OPERATIONS
_PODS_READY: Final = "scheduling.waitForPodsReady"
_USAGE: Final = "scheduling.admissionFairSharing"
_RESOURCES: Final = "scheduling.resources"
# By path: the setting of the same meaning, with a value of the same form.
_SAME: Final = {
    "waitForPodsReady.timeout": f"{_PODS_READY}.timeoutSeconds",
    "waitForPodsReady.requeuingStrategy.timestamp": f"{_PODS_READY}.requeuingTimestamp",
    "waitForPodsReady.requeuingStrategy.backoffLimitCount": f"{_PODS_READY}.requeuingBackoffLimitCount",
    "waitForPodsReady.requeuingStrategy.backoffBaseSeconds": f"{_PODS_READY}.requeuingBackoffBaseSeconds",
    "waitForPodsReady.requeuingStrategy.backoffMaxSeconds": f"{_PODS_READY}.requeuingBackoffMaxSeconds",
    "admissionFairSharing.usageHalfLifeTime": f"{_USAGE}.usageHalfLifeSeconds",
    "admissionFairSharing.usageSamplingInterval": f"{_USAGE}.usageSamplingIntervalSeconds",
    "admissionFairSharing.resourceWeights": f"{_USAGE}.resourceWeights",
    "resources.excludeResourcePrefixes": f"{_RESOURCES}.excludeResourcePrefixes",
    "resources.transformations": f"{_RESOURCES}.transformations",
    "resources.deviceClassMappings": f"{_RESOURCES}.deviceClassMappings",
    "resources.quotaCheckStrategy": f"{_RESOURCES}.uncovered",
}
_WORDS: Final = {
    "resources.quotaCheckStrategy": {"BlockUndeclared": "Refuse", "IgnoreUndeclared": "Ignore"},
}
"""By path, values that have another name here."""
_OTHERWISE: Final = {
    "waitForPodsReady.enable": f"it is on where `{_PODS_READY}.timeoutSeconds` is set",
    "waitForPodsReady.recoveryTimeout": "set spec.waitForPodsReady.recoveryTimeoutSeconds of ClusterQueues",
    "waitForPodsReady.blockAdmission": "other workloads are admitted while the pods of one start",
    "integrations.externalFrameworks": "add a row to `kinds` of the configuration for each (docs/kinds.md)",
    "integrations.labelKeysToCopy": "there are no Workload objects that labels are copied to",
    "integrations.podOptions": "there is no selector of pods: with `kinds: [Pod]` in queuectl's "
    "configuration those with a queue label queue (docs/kinds.md)",
    "manageJobsWithoutQueueName": "apply manifests/default-queue: where a namespace has a LocalQueue named "
    "default, work without a queue label queues there (docs/install.md)",
    "managedJobsNamespaceSelector": "set it as namespaceSelector of the policies of manifests/default-queue "
    "(docs/install.md)",
    "featureGates": "they are Kueue's: docs/from-kueue.md says which features are here",
    "tls.minVersion": "set `api.tls.minVersion` and `webhook.tls.minVersion`",
    "multiKueue": "queuectl manages one cluster",
    "objectRetentionPolicies": "set `database.keepMonths` for the ledger; there are no Workload objects, and "
    "queuectl deletes no object of a user: set ttlSecondsAfterFinished on jobs",
}
_NOT_IT: Final = "is not Kueue's Configuration: left out"
_FRAMEWORKS: Final = "integrations.frameworks"
_WITH_ENABLE: Final = ("fairSharing", "waitForPodsReady")
_PODS: Final = frozenset({"pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"})
"""Frameworks whose pods queue here each by itself."""


def configurations(
    document: Mapping[str, Any], name: str
) -> tuple[list[tuple[str, Mapping[str, Any]]], list[Note]]:
    """Each Configuration in the object with its name: the object itself, or in the data of a ConfigMap.

    With notes on what else is in that ConfigMap, and on a Configuration that cannot be read. Both are empty
    where there is none.
    """
    if _is_configuration(document):
        return [("Configuration", document)], []
    data = document.get("data")
    if document["kind"] != "ConfigMap" or document["apiVersion"] != "v1" or not isinstance(data, Mapping):
        return [], []
    found: list[tuple[str, Mapping[str, Any]]] = []
    notes: list[Note] = []
    others: list[Note] = []
    for key, text in data.items():
        place = clean(f"data.{key}", 200)
        try:
            inner = list(_inside(text))
        except BadYaml as bad:
            notes.append(Note(name, place, clean(f"cannot be read: line {bad.line}: {bad}", 300)))
            continue
        found += (("Configuration", content) for content in inner)
        if not inner:
            others.append(Note(name, place, _NOT_IT))
    binary = document.get("binaryData")
    if isinstance(binary, Mapping):
        others += [Note(name, clean(f"binaryData.{key}", 200), _NOT_IT) for key in binary]
    return found, [*notes, *others] if found or notes else []


def _inside(text: Any) -> Iterator[Mapping[str, Any]]:
    """Raises BadYaml."""
    if isinstance(text, str) and _GROUP in text:
        for content, _ in load(text.encode("utf-8", "replace")):
            if _is_configuration(content):
                yield content


def _is_configuration(content: Any) -> bool:
    if not isinstance(content, Mapping) or content.get("kind") != "Configuration":
        return False
    return str(content.get("apiVersion")).partition("/")[0] == _GROUP


def fair_sharing(name: str, document: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[Note]]:
    """Fair sharing as a root Cohort says it, None where it is off; with a note on strategies that are not."""
    sharing = document.get("fairSharing")
    if not isinstance(sharing, Mapping) or not _is_on(document, sharing):
        return None, []
    fair: dict[str, Any] = {"enabled": True}
    notes: list[Note] = []
    if strategies := sharing.get("preemptionStrategies"):
        spec = {"fairSharing": {**fair, "preemptionStrategies": strategies}}
        made = policy_event(policy_object("Cohort", "root", spec))
        if isinstance(made, PolicyInvalid):
            told = made.detail.removeprefix("spec.fairSharing.preemptionStrategies")
            text = clean(f"left out{told}", 300)
            notes.append(Note(name, "fairSharing.preemptionStrategies", text))
        else:
            fair["preemptionStrategies"] = strategies
    return fair, notes


def _is_on(document: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    """Whether a part of the Configuration applies: in v1beta1 it is off unless `enable` is true."""
    if "enable" in setting:
        return setting["enable"] is True
    return document.get("apiVersion") != f"{_GROUP}/v1beta1"


def notes_of(name: str, document: Mapping[str, Any], kinds: KindRegistry) -> Iterator[Note]:
    """A note on each setting, with the one of queuectl that does the same."""
    for field in sorted(map(str, document.keys() - {"apiVersion", "kind", "metadata"})):
        value = document[field]
        if field in _WITH_ENABLE and isinstance(value, Mapping):
            enable = value.get("enable", False)
            if not isinstance(enable, bool):
                yield Note(name, f"{field}.enable", f"{_shown(enable)} is not true or false: it is off")
            if not _is_on(document, value):
                yield Note(name, field, "it is off with Kueue: nothing is set here", left_out=False)
                continue
        if field == "fairSharing":
            yield from _sharing(name, value)
            continue
        for path, inner in _settings(field, value):
            if path == _FRAMEWORKS:
                yield from _frameworks(name, inner, kinds)
            else:
                yield Note(name, clean(path, 200), _where(path, inner))


def _sharing(name: str, value: Any) -> Iterator[Note]:
    known = {"enable", "preemptionStrategies"}
    text = "converted to Cohort.spec.fairSharing of each root cohort"
    if not isinstance(value, Mapping):
        yield Note(name, "fairSharing", "is not an object: fair sharing is off")
        return
    yield Note(name, "fairSharing", text, left_out=False)
    for field in sorted(map(str, value.keys() - known)):
        yield Note(name, clean(f"fairSharing.{field}", 200), "there is no such setting here")


def _shown(value: Any) -> str:
    return clean(json.dumps(value, ensure_ascii=False), 60)


def _settings(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The settings below a path: those that are named above, else the first level."""
    deeper = any(known.startswith(f"{path}.") for known in (*_SAME, *_OTHERWISE, _FRAMEWORKS))
    if deeper and isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _settings(f"{path}.{key}", inner)
    else:
        yield path, value


def _where(path: str, value: Any) -> str:
    if path in _SAME:
        words = _WORDS.get(path)
        if words is not None and value not in list(words):
            return f"left out: it is none of {', '.join(words)}"
        shown = json.dumps(words[value] if words else _converted(value), ensure_ascii=False)
        return clean(f"set `{_SAME[path]}`: {shown} in queuectl's configuration", 500)
    if path in _OTHERWISE:
        return _OTHERWISE[path]
    section = path.partition(".")[0]
    return (
        f"there is no such setting here: {_OPERATIONS}" if "." in path else _OTHERWISE.get(section, _PROCESS)
    )


def _converted(value: Any) -> Any:
    """A duration in seconds; anything else as it is."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        return value
    parts = _DURATION_PART.findall(value)
    return round(sum(Fraction(number) * _SECONDS[unit] for number, unit in parts))


def _frameworks(name: str, value: Any, kinds: KindRegistry) -> Iterator[Note]:
    """A note on each kind that Kueue manages and queuectl does not queue without another setting."""
    if not isinstance(value, list):
        yield Note(name, _FRAMEWORKS, "is not a list: left out")
        return
    queued = {f"{row.group or 'core'}/{row.kind}".lower() for row in kinds}
    for framework in value:
        what = clean(str(framework), 100)
        if str(framework).lower() in _PODS:
            yield Note(name, _FRAMEWORKS, f"{what}: {ONLY_PODS}")
        elif str(framework).lower() not in queued:
            text = f"{what} is not queued here: such work runs without waiting (docs/kinds.md)"
            yield Note(name, _FRAMEWORKS, text)
