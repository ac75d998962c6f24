"""The served kinds: built-in ones, and those of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from queuectl.kubernetes_yaml import load
from queuectl.sandbox.kubernetes.wire import Json, StatusCause, StatusError, invalid, refusal

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
EVENTS = "events"
JOBS = "jobs.batch"
NAMESPACES = "namespaces"
PODS = "pods"

_NAME = {"name": "Name", "type": "string", "format": "name", "jsonPath": ".metadata.name"}
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
_BUILT_IN = Path(__file__).with_name("builtin.yaml")


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One kind at one version. Kinds with the same `collection` are the same objects."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    list_kind: str
    namespaced: bool = True
    custom: bool = False
    status: bool = False
    """Whether it has a status subresource."""
    generation: bool = False
    verbs: Sequence[str] = _VERBS
    unconditional: bool = False
    """Whether its PUT may omit the resourceVersion."""
    short: Sequence[str] = ()
    categories: Sequence[str] = ()
    fields: Sequence[str] = ()
    """Field selectors besides metadata.name and metadata.namespace."""
    columns: Sequence[Json] = (_NAME, _AGE)
    """As in a CustomResourceDefinition; a column without `jsonPath` is computed."""
    schema: Json | None = None
    """OpenAPI schema of a custom kind; unknown fields are dropped."""

    @property
    def collection(self) -> str:
        return f"{self.plural}.{self.group}" if self.group not in ("", "events.k8s.io") else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def refusal(self, code: int, name: str, message: str, reason: str = "") -> StatusError:
        """`{}` in the message stands for this kind's resource and the name."""
        return refusal(code, self.plural, self.group, name, message, reason)

    def invalid(self, name: str, *causes: StatusCause) -> StatusError:
        return invalid(self.kind, self.group, name, causes)


@cache
def _built_in() -> Sequence[ServedKind]:
    ((served, _),) = load(_BUILT_IN.read_bytes())
    del served["definitions"]
    kinds: list[ServedKind] = []
    for api_version, fields in ((key, one) for key, listed in served.items() for one in listed):
        group, _, version = api_version.rpartition("/")
        kind = fields["kind"]
        kinds.append(ServedKind(group, version, singular=kind.lower(), list_kind=f"{kind}List", **fields))
    return kinds


class Catalog:
    """Kinds by group, version and plural."""

    def __init__(self) -> None:
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in _built_in()}

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        return self._kinds.get((group, version, plural))

    def of_version(self, group: str, version: str) -> list[ServedKind]:
        return [k for k in self._kinds.values() if (k.group, k.version) == (group, version)]

    def versions(self) -> dict[str, list[str]]:
        """Served versions by group, the preferred one first."""
        groups: dict[str, set[str]] = {}
        for kind in self._kinds.values():
            groups.setdefault(kind.group, set()).add(kind.version)
        return {group: sorted(found, key=lambda v: ("a" in v, v)) for group, found in groups.items()}

    def collection(self, name: str) -> ServedKind | None:
        """Any kind that serves this collection."""
        return next((kind for kind in self._kinds.values() if kind.collection == name), None)

    def define(self, crd: Json) -> None:
        """Serve the kinds of a CustomResourceDefinition, instead of those it defined before."""
        self.withdraw(crd["metadata"]["name"])
        for kind in _custom_kinds(crd["spec"]):
            self._kinds[kind.group, kind.version, kind.plural] = kind

    def withdraw(self, name: str) -> None:
        """`name` is that of the definition and of its collection."""
        self._kinds = {
            k: kind for k, kind in self._kinds.items() if not kind.custom or kind.collection != name
        }


def _custom_kinds(spec: Json) -> Iterable[ServedKind]:
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        yield ServedKind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            singular=names.get("singular") or names["kind"].lower(),
            list_kind=names.get("listKind") or f"{names['kind']}List",
            namespaced=spec["scope"] == "Namespaced",
            custom=True,
            status="status" in (version.get("subresources") or {}),
            generation=True,
            short=names.get("shortNames") or (),
            categories=names.get("categories") or (),
            fields=[field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()],
            columns=[_NAME, *(version.get("additionalPrinterColumns") or [_AGE])],
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
        )
