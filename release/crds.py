"""CustomResourceDefinitions made from the models: `python -m release.crds DIR` writes them.

A structural schema has no references, no nulls and few keywords of JSON Schema: this module converts
pydantic's schemas to it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from queuectl.kinds.policy import POLICY_KINDS, PolicyKind
from queuectl.kinds.policy_objects import GROUP, VERSION
from queuectl.kubernetes_yaml import dump

Schema = dict[str, Any]

_SHORT_NAMES: Final = {
    "ClusterQueue": ["cq"],
    "Cohort": ["co"],
    "ResourceFlavor": ["rf"],
    "WorkloadPriorityClass": ["wpc"],
    "UsageLimit": ["ul"],
    "IdlePolicy": ["ip"],
    "Budget": ["bud"],
    "LocalQueue": ["lq", "queue", "queues"],
}


class Printed(NamedTuple):
    """A column of `kubectl get`."""

    name: str
    type: str
    path: str
    wide: bool = False
    """With `-o wide` only."""

    def column(self) -> Schema:
        found: Schema = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return found | {"priority": 1} if self.wide else found


_ACTIVE: Final = ".status.conditions[?(@.type=='Active')]"
_QUEUE: Final = (
    Printed("Pending", "integer", ".status.pendingWorkloads"),
    Printed("Admitted", "integer", ".status.admittedWorkloads"),
    Printed("Active", "string", f"{_ACTIVE}.status"),
    Printed("Stop", "string", ".spec.stopPolicy", wide=True),
    Printed("Reason", "string", f"{_ACTIVE}.reason", wide=True),
    Printed("Message", "string", f"{_ACTIVE}.message", wide=True),
)
_COLUMNS: Final[Mapping[str, tuple[Printed, ...]]] = {
    "ClusterQueue": (
        Printed("Cohort", "string", ".spec.cohortName"),
        Printed("Strategy", "string", ".spec.queueingStrategy"),
        *_QUEUE,
    ),
    "Cohort": (
        Printed("Parent", "string", ".spec.parentName"),
        Printed("Weight", "string", ".spec.fairSharing.weight", wide=True),
    ),
    "ResourceFlavor": (
        Printed("Node Labels", "string", ".spec.nodeLabels"),
        Printed("Topology", "string", ".spec.topologyName", wide=True),
    ),
    "WorkloadPriorityClass": (
        Printed("Value", "integer", ".value"),
        Printed("Description", "string", ".description", wide=True),
    ),
    "UsageLimit": (
        Printed("Target", "string", ".spec.target.kind"),
        Printed("Name", "string", ".spec.target.name"),
        Printed("Subject", "string", ".spec.subject.kind"),
        Printed("Who", "string", ".spec.subject.name"),
        Printed("Running", "integer", ".spec.running"),
        Printed("Resources", "string", ".spec.resources"),
    ),
    "IdlePolicy": (
        Printed("Target", "string", ".spec.target.kind"),
        Printed("Name", "string", ".spec.target.name"),
        Printed("Notify", "integer", ".spec.notifyAfterSeconds"),
        Printed("Hold", "integer", ".spec.holdAfterSeconds"),
        Printed("DryRun", "boolean", ".spec.dryRun"),
    ),
    "Budget": (
        Printed("Target", "string", ".spec.target.kind"),
        Printed("Name", "string", ".spec.target.name"),
        Printed("Subject", "string", ".spec.subject.kind"),
        Printed("Who", "string", ".spec.subject.name"),
        Printed("Resource", "string", ".spec.resource"),
        Printed("Hours", "string", ".spec.hours"),
        Printed("Period", "string", ".spec.period.kind"),
        Printed("Mode", "string", ".spec.mode"),
        Printed("Exhausted", "string", ".spec.onExhausted"),
    ),
    "LocalQueue": (Printed("ClusterQueue", "string", ".spec.clusterQueue"), *_QUEUE),
}
_KEPT: Final[tuple[str, ...]] = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "anyOf",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)


def definition(kind: PolicyKind) -> Schema:
    """The CustomResourceDefinition of one kind."""
    raw = kind.model.model_json_schema(by_alias=True, mode="validation")
    schema = _structural(raw, raw.get("$defs", {}))
    properties = schema["properties"]
    schema["properties"] = {
        "apiVersion": {
            "type": "string",
            "description": f"Version of the schema of this object: {GROUP}/{VERSION}.",
        },
        "kind": {"type": "string", "description": f"Kind of this object: {kind.name}."},
        "metadata": {"type": "object"},  # API servers add their own description
        **properties,
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [
            *(printed.column() for printed in _COLUMNS[kind.name]),
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
    if "status" in properties:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": _SHORT_NAMES[kind.name],
                "categories": ["queuectl"],
            },
            "versions": [version],
        },
    }


def files() -> dict[str, str]:
    """The files of manifests/crds: content by file name."""
    header = "# Made from the models by `python -m release.crds manifests/crds`: change those.\n"
    found = {f"{GROUP}_{kind.plural}.yaml": header + dump(definition(kind)) for kind in POLICY_KINDS.values()}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(found),
    }
    found["kustomization.yaml"] = header + dump(kustomization)
    return found


def _structural(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """`node` without references, nulls and titles."""
    node = _resolved(node, definitions)
    result: Schema = {key: node[key] for key in _KEPT if key in node}
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    # Unset fields stay unset; the default of an object is empty, because its fields have defaults.
    if isinstance(default := result.pop("default", None), dict):
        result["default"] = {}
    elif default not in (None, [], ""):
        result["default"] = default
    result |= {key: value for key, value in node.items() if key.startswith("x-kubernetes-")}
    if "properties" in node:
        result["properties"] = {
            name: _structural(child, definitions) for name, child in node["properties"].items()
        }
    for values in node.get("patternProperties", {}).values():
        # Keys have no schema here: their constraints are a rule of the field.
        result["additionalProperties"] = _structural(values, definitions)
    if "items" in node:
        result["items"] = _structural(node["items"], definitions)
    return result


def _resolved(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """`node` with its reference resolved and its null alternative removed; its own keywords win."""
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        node = options[0] | {key: value for key, value in node.items() if key != "anyOf"}
        return _resolved(node, definitions)
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        own = {key: value for key, value in node.items() if key != "$ref"}
        return _resolved(target | own, definitions)
    return node


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m release.crds DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
