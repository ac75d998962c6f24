"""The kinds that are served: built in, and by CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from queuectl.sandbox.kubernetes.wire import ApiError, Cause, Json, invalid, refusal

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
EVENTS = "events"
JOBS = "jobs.batch"
NAMESPACES = "namespaces"
PODS = "pods"


class Column(NamedTuple):
    """A printer column of a CustomResourceDefinition."""

    name: str
    type: str
    path: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind at one version. Kinds with the same `collection` are the same objects."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    collection: str
    singular: str
    list_kind: str
    status: bool = False
    """Has a status subresource."""
    generation: bool = False
    unconditional: bool = False
    """Its PUT may leave out the resourceVersion."""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Field selectors besides metadata.name and metadata.namespace."""
    schema: Json | None = None
    """OpenAPI schema; a custom kind has one."""
    columns: tuple[Column, ...] = ()

    @property
    def custom(self) -> bool:
        return self.schema is not None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def refusal(self, code: int, name: str, message: str, reason: str = "") -> ApiError:
        """`{}` in the message stands for this kind's resource and the name."""
        return refusal(code, self.plural, self.group, name, message, reason)

    def invalid(self, name: str, *causes: Cause) -> ApiError:
        return invalid(self.kind, self.group, name, causes)


_ABOUT = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"]
_FIELDS: dict[str, Sequence[str]] = {
    "pods": ["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"],
    "jobs": ["status.successful"],
    "nodes": ["spec.unschedulable"],
    "namespaces": ["status.phase"],
    "events": [
        *["reason", "type", "source", "reportingComponent", "reportingController"],
        *(f"{object}.{name}" for object in ("involvedObject", "regarding") for name in _ABOUT),
    ],
}

# plural, kind, short names; flags: n namespaced, s status subresource, g generation, u unconditional PUT,
# a in category "all"
_BUILT_IN = """
v1: namespaces Namespace su ns, nodes Node su no, pods Pod nsgua po, events Event nu ev,
  services Service nsua svc, serviceaccounts ServiceAccount nu sa, secrets Secret nu,
  configmaps ConfigMap nu cm,
  limitranges LimitRange nu limits, resourcequotas ResourceQuota nsu quota
events.k8s.io/v1: events Event nu ev
batch/v1: jobs Job nsgua, cronjobs CronJob nsgua cj
apps/v1: deployments Deployment nsgua deploy, statefulsets StatefulSet nsgua sts
coordination.k8s.io/v1: leases Lease n
networking.k8s.io/v1: networkpolicies NetworkPolicy ngu netpol
policy/v1: poddisruptionbudgets PodDisruptionBudget nsg pdb
rbac.authorization.k8s.io/v1: roles Role nu, rolebindings RoleBinding nu,
  clusterroles ClusterRole u, clusterrolebindings ClusterRoleBinding u
scheduling.k8s.io/v1: priorityclasses PriorityClass gu pc
node.k8s.io/v1: runtimeclasses RuntimeClass -
admissionregistration.k8s.io/v1: validatingadmissionpolicies ValidatingAdmissionPolicy sg,
  validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding g,
  mutatingadmissionpolicies MutatingAdmissionPolicy g,
  mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding g
apiextensions.k8s.io/v1: customresourcedefinitions CustomResourceDefinition sg crd
"""


def _built_in() -> Iterator[Kind]:
    for line in _BUILT_IN.replace(",\n", ",").strip().splitlines():
        served, _, rows = line.partition(": ")
        group, _, version = served.rpartition("/")
        for entry in rows.split(","):
            plural, kind, flags, *short = entry.split()
            collection = EVENTS if plural == EVENTS else f"{plural}.{group}" if group else plural
            own = (group, version, plural, kind, "n" in flags, collection, kind.lower(), f"{kind}List")
            categories = ("all",) if "a" in flags else ()
            fields = tuple(_FIELDS.get(plural, ()))
            behaviour = ("s" in flags, "g" in flags, "u" in flags)
            yield Kind(*own, *behaviour, tuple(short), categories, fields)


class Catalog:
    """Kinds by group, version and plural."""

    def __init__(self) -> None:
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in _built_in()}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def of_version(self, group: str, version: str) -> list[Kind]:
        return [k for k in self._kinds.values() if (k.group, k.version) == (group, version)]

    def versions(self) -> dict[str, list[str]]:
        """Served versions by group, the preferred one first."""
        groups: dict[str, set[str]] = {}
        for kind in self._kinds.values():
            groups.setdefault(kind.group, set()).add(kind.version)
        return {group: sorted(found, key=lambda v: ("a" in v, v)) for group, found in groups.items()}

    def collection(self, name: str) -> Kind | None:
        """Any kind that serves this collection."""
        return next((kind for kind in self._kinds.values() if kind.collection == name), None)

    def define(self, crd: Json) -> None:
        """Serve what a CustomResourceDefinition defines, instead of what it defined before."""
        self.withdraw(crd["metadata"]["name"])
        for kind in _custom_kinds(crd):
            self._kinds[kind.group, kind.version, kind.plural] = kind

    def withdraw(self, name: str) -> None:
        """`name` of the definition, which is the name of its collection."""
        self._kinds = {
            k: kind for k, kind in self._kinds.items() if not kind.custom or kind.collection != name
        }


def _custom_kinds(crd: Json) -> Iterable[Kind]:
    spec, names = crd["spec"], crd["spec"]["names"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        shown = version.get("additionalPrinterColumns") or [
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
        ]
        yield Kind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            collection=crd["metadata"]["name"],
            singular=names["singular"],
            list_kind=names["listKind"],
            status="status" in (version.get("subresources") or {}),
            generation=True,
            short=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            fields=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
            columns=tuple(Column(c["name"], c["type"], c["jsonPath"], c.get("priority", 0)) for c in shown),
        )
