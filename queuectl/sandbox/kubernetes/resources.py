"""The kinds that are served: built in, and by CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from queuectl.sandbox.kubernetes.wire import Json

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
    description: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind at one version. Kinds with the same `collection` are the same objects."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    status: bool = False
    """Has a status subresource."""
    generation: bool = False
    unconditional: bool = False
    """Its PUT may leave out the resourceVersion."""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Field selectors besides metadata.name and metadata.namespace."""
    collection: str = ""
    schema: Json | None = None
    """OpenAPI schema of a CustomResourceDefinition's version."""
    columns: tuple[Column, ...] = ()
    custom: bool = False
    singular: str = ""
    list_kind: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


_EVENT_FIELDS = (
    "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
    "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason type source "
    "reportingComponent "
)
_FIELDS = {
    "pods": "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
    "status.phase status.podIP status.nominatedNodeName",
    "jobs": "status.successful",
    "nodes": "spec.unschedulable",
    "namespaces": "status.phase",
    "secrets": "type",
    "events": _EVENT_FIELDS
    + "reportingController regarding.kind regarding.namespace regarding.name regarding.uid",
}

# plural, kind, short names; flags: n namespaced, s status subresource, g generation, u unconditional PUT,
# a in category "all"
_BUILT_IN = """
v1
  namespaces Namespace su ns
  nodes Node su no
  pods Pod nsgua po
  events Event nu ev
  services Service nsua svc
  serviceaccounts ServiceAccount nu sa
  secrets Secret nu
  configmaps ConfigMap nu cm
  endpoints Endpoints nu ep
  persistentvolumeclaims PersistentVolumeClaim nsu pvc
  resourcequotas ResourceQuota nsu quota
  limitranges LimitRange nu limits
events.k8s.io/v1
  events Event nu ev
batch/v1
  jobs Job nsgua
  cronjobs CronJob nsgua cj
apps/v1
  deployments Deployment nsgua deploy
  replicasets ReplicaSet nsgua rs
  statefulsets StatefulSet nsgua sts
  daemonsets DaemonSet nsgua ds
coordination.k8s.io/v1
  leases Lease n
networking.k8s.io/v1
  networkpolicies NetworkPolicy ngu netpol
policy/v1
  poddisruptionbudgets PodDisruptionBudget nsg pdb
rbac.authorization.k8s.io/v1
  roles Role nu
  rolebindings RoleBinding nu
  clusterroles ClusterRole u
  clusterrolebindings ClusterRoleBinding u
scheduling.k8s.io/v1
  priorityclasses PriorityClass gu pc
node.k8s.io/v1
  runtimeclasses RuntimeClass -
storage.k8s.io/v1
  storageclasses StorageClass u sc
admissionregistration.k8s.io/v1
  validatingadmissionpolicies ValidatingAdmissionPolicy sg
  validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding g
  mutatingadmissionpolicies MutatingAdmissionPolicy g
  mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding g
  validatingwebhookconfigurations ValidatingWebhookConfiguration g
  mutatingwebhookconfigurations MutatingWebhookConfiguration g
apiextensions.k8s.io/v1
  customresourcedefinitions CustomResourceDefinition sg crd,crds
"""


def _built_in() -> Iterator[Kind]:
    group = version = ""
    for line in _BUILT_IN.strip().splitlines():
        words = line.split()
        if len(words) == 1:
            group, _, version = words[0].rpartition("/")
            continue
        plural, kind, flags, *short = words
        yield Kind(
            group=group,
            version=version,
            plural=plural,
            kind=kind,
            namespaced="n" in flags,
            status="s" in flags,
            generation="g" in flags,
            unconditional="u" in flags,
            short=tuple(short[0].split(",")) if short else (),
            categories=("all",) if "a" in flags else (),
            fields=tuple(_FIELDS.get(plural, "").split()),
            collection=EVENTS if plural == "events" else f"{plural}.{group}" if group else plural,
            singular=kind.lower(),
            list_kind=f"{kind}List",
        )


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
        groups: dict[str, list[str]] = {}
        for kind in self._kinds.values():
            versions = groups.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        return {group: sorted(versions, key=_preference) for group, versions in groups.items()}

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
        gone = [key for key, kind in self._kinds.items() if kind.custom and kind.collection == name]
        for key in gone:
            del self._kinds[key]


def _preference(version: str) -> tuple[int, str]:
    return (0 if "alpha" not in version and "beta" not in version else 1 if "beta" in version else 2, version)


def _custom_kinds(crd: Json) -> Iterable[Kind]:
    spec = crd["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        has_status = "status" in (version.get("subresources") or {})
        selectable = [f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()]
        yield Kind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            status=has_status,
            generation=True,
            short=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            fields=tuple(selectable),
            collection=crd["metadata"]["name"],
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
            columns=tuple(
                Column(c["name"], c["type"], c["jsonPath"], c.get("priority", 0), c.get("description", ""))
                for c in version.get("additionalPrinterColumns")
                or [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
            ),
            custom=True,
            singular=names.get("singular") or names["kind"].lower(),
            list_kind=names.get("listKind") or f"{names['kind']}List",
        )
