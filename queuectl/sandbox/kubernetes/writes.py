"""The verbs create, update, patch and delete, for requests of clients and of the server itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from queuectl.sandbox.kubernetes import builtin, schema
from queuectl.sandbox.kubernetes.admission import AdmissionPolicies, AdmissionRequest
from queuectl.sandbox.kubernetes.identities import SYSTEM, UserInfo
from queuectl.sandbox.kubernetes.resources import CRDS, JOBS, NAMESPACES, PODS, Catalog, ServedKind
from queuectl.sandbox.kubernetes.store import Key, ObjectStore, Stored, as_stored
from queuectl.sandbox.kubernetes.wire import Json, StatusCause, StatusError, required

Check = Callable[[Json], Iterable[StatusCause]]
"""Problems of an object beyond its schema."""
_CONTAINERS = (NAMESPACES, CRDS)
"""Collections with objects that are removed only when they are empty."""
_SERVER_OWNED = (
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
    "selfLink",
)
_FULFILLED = "Operation cannot be fulfilled on {}: "
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_ELSEWHERE = "the namespace of the provided object does not match the namespace sent on the request"


@dataclass(frozen=True, slots=True)
class Author:
    """The client of a write and its options: `strict` refuses unknown fields, else they are dropped."""

    user: UserInfo
    dry_run: bool = False
    strict: bool = False


@dataclass(slots=True)
class Writes:
    store: ObjectStore
    catalog: Catalog
    admission: AdmissionPolicies
    clock: Callable[[], datetime]
    check: Check | None = None

    def timestamp(self, after: float = 0) -> str:
        """Now, or `after` seconds later, in the form of Kubernetes."""
        return (self.clock() + timedelta(seconds=after)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def find(self, kind: ServedKind, key: Key) -> Stored:
        stored = self.store.collection(kind.collection).get(key)
        if stored is None:
            raise kind.refusal(404, key[1], "{} not found")
        return stored

    # --- create ---

    def create(self, kind: ServedKind, namespace: str, obj: Json, author: Author) -> Stored:
        obj = self._decode(kind, obj, author)
        metadata = obj["metadata"]
        key = self._place(kind, namespace, metadata)
        for name in (*_SERVER_OWNED, "generation"):
            metadata.pop(name, None)
        metadata.update(uid=self.store.new_uid(kind.collection, key), creationTimestamp=self.timestamp())
        if kind.generation:
            metadata["generation"] = 1
        request = AdmissionRequest(kind, None, obj, author.user)
        self.admission.mutate(request)
        builtin.prepare_create(kind, obj)
        self._validate(kind, None, obj)
        self.admission.validate(request)
        if key in self.store.collection(kind.collection):
            raise kind.refusal(409, key[1], "{} already exists", "AlreadyExists")
        if author.dry_run:
            metadata["resourceVersion"] = "0"
            return as_stored(obj)
        stored = self._put(kind, obj)
        if stored.owners and not any(owner in self.store.uids for owner in stored.owners):
            self._collect(kind.collection, key)  # its owner is gone already
        return stored

    def _put(self, kind: ServedKind, obj: Json) -> Stored:
        stored = self.store.put(kind.collection, obj)
        if kind.collection == CRDS:
            self.catalog.define(obj)
        return stored

    def _decode(self, kind: ServedKind, obj: Json, author: Author, old: Json | None = None) -> Json:
        """From the request to the stored form: check kind and fields, set defaults. `old`: what is stored.

        Raises StatusError 400.
        """
        found = (obj.setdefault("apiVersion", kind.api_version), obj.setdefault("kind", kind.kind))
        if found != (kind.api_version, kind.kind):
            raise StatusError(
                400, f"the object provided is unrecognized: {found} is not {kind.api_version} {kind.kind}"
            )
        metadata = obj.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise StatusError(400, "metadata: must be an object")
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            if not (values := metadata.get(name)):
                metadata.pop(name, None)
            elif name in ("labels", "annotations") and not _texts(values):
                raise StatusError(400, f"json: cannot unmarshal metadata.{name}: its values must be strings")
        if kind.schema is not None:
            self._fit(kind, kind.schema, obj, author, old)
        return builtin.to_stored(kind, obj)

    def _fit(self, kind: ServedKind, known: Json, obj: Json, author: Author, old: Json | None) -> None:
        """Drop unknown fields, set defaults. Validates a built-in kind; a custom one is validated later."""
        unknown = schema.prune(obj, known) if kind.custom else []
        if unknown and author.strict:
            texts = ", ".join(f'unknown field "{path}"' for path in unknown)
            message = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            raise StatusError(400, f"{message}strict decoding error: {texts}")
        schema.default(obj, known)
        if kind.custom:
            return
        causes = list(schema.validate(obj, known, old=old))
        if misfit := next((cause for cause in causes if cause.reason == "FieldValueTypeInvalid"), None):
            raise StatusError(400, f"{kind.kind} cannot be handled as a {kind.kind}: {misfit.message}")
        if causes:
            raise kind.invalid(obj["metadata"].get("name", ""), *causes)
        builtin.fill_defaults(kind, obj)

    def _place(self, kind: ServedKind, namespace: str, metadata: Json) -> Key:
        """Its key; the namespace must exist and not be terminating. Raises StatusError."""
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise StatusError(400, _ELSEWHERE)
            home = self.store.collection(NAMESPACES).get(("", namespace))
            if home is None:
                raise StatusError(404, f'namespaces "{namespace}" not found', details={"name": namespace})
            if home.read()["metadata"].get("deletionTimestamp"):
                message = (
                    f"unable to create new content in namespace {namespace} because it is being terminated"
                )
                raise kind.refusal(403, metadata.get("name", ""), f"{{}} is forbidden: {message}")
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name"):
            if not (prefix := metadata.get("generateName")):
                raise kind.invalid(
                    "", required("metadata.name", "Required value: name or generateName is required")
                )
            metadata["name"] = prefix + self.store.new_uid(kind.collection, (namespace, prefix))[:5]
        return (namespace if kind.namespaced else "", metadata["name"])

    def _validate(self, kind: ServedKind, old: Json | None, new: Json) -> None:
        causes = list(builtin.problems(kind, old, new))
        if kind.custom:
            causes += schema.validate(new, kind.schema or {}, old=old)
            if self.check is not None and not causes:
                causes += self.check(new)
        if causes:
            raise kind.invalid(new["metadata"]["name"], *causes)

    # --- update and patch ---

    def replace(
        self, kind: ServedKind, key: Key, body: Json, author: Author, subresource: str = ""
    ) -> Stored:
        """PUT: if `body` has a UID, it must be the object's."""
        stored = self.find(kind, key)
        _precondition(kind, stored, "UID", (body.get("metadata") or {}).get("uid") or None, stored.uid)
        return self.update(kind, key, lambda current: body, author, subresource)

    def update(
        self,
        kind: ServedKind,
        key: Key,
        transform: Callable[[Json], Json],
        author: Author,
        subresource: str = "",
    ) -> Stored:
        """`transform` makes the new object from the current one."""
        stored = self.find(kind, key)
        old = stored.read()
        wanted = transform(builtin.from_stored(kind, stored.read()))
        _same_object(kind, stored, wanted)
        new = self._decode(kind, wanted, author, old)
        written = new if subresource == "status" else old
        if subresource == "status":
            new = {**old, "metadata": (old if kind.custom else new)["metadata"]}
        if kind.status:
            new.pop("status", None)
            new |= {"status": written["status"]} if written.get("status") is not None else {}
        _carry_metadata(kind, old, new)
        request = AdmissionRequest(kind, old, new, author.user, subresource)
        if not subresource:
            self.admission.mutate(request)
        if kind.generation and builtin.spec_changed(old, new, status=not kind.status):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        self._validate(kind, old, new)
        self.admission.validate(request)
        if new == old:
            return stored
        return as_stored(new) if author.dry_run else self._store_update(kind, key, new)

    def _store_update(self, kind: ServedKind, key: Key, new: Json) -> Stored:
        metadata = new["metadata"]
        waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and not waits and kind.collection not in _CONTAINERS:
            return self._remove(kind, key, new)
        return self._put(kind, new)

    def bind(self, kind: ServedKind, key: Key, binding: Json) -> None:
        """Bind a pod to its node, once."""
        pod = self.find(kind, key).read()
        node = (binding.get("target") or {}).get("name")
        if not node:
            raise kind.invalid(key[1], required("target.name"))
        if other := pod["spec"].get("nodeName"):
            message = f'pod {key[1]} is already assigned to node "{other}"'
            raise kind.refusal(409, key[1], _FULFILLED + message)
        pod["spec"]["nodeName"] = node
        held = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.timestamp()}
        others = [c for c in pod["status"].get("conditions") or () if c["type"] != "PodScheduled"]
        pod["status"]["conditions"] = [*others, held]
        self.store.put(PODS, pod)

    # --- delete ---

    def delete(self, kind: ServedKind, key: Key, options: Json, author: Author) -> tuple[Stored, bool]:
        """The object's last state, and whether it is gone."""
        stored = self.find(kind, key)
        wanted = options.get("preconditions") or {}
        _precondition(kind, stored, "UID", wanted.get("uid"), stored.uid)
        _precondition(kind, stored, "ResourceVersion", wanted.get("resourceVersion"), str(stored.revision))
        obj = stored.read()
        metadata = obj["metadata"]
        self.admission.validate(AdmissionRequest(kind, obj, None, author.user))
        if author.dry_run:
            return stored, True
        # Only batch/v1 orphans its dependents by default.
        policy = options.get("propagationPolicy") or ("Orphan" if kind.collection == JOBS else "Background")
        if policy == "Orphan":
            self._orphan(stored)
        grace = _grace(kind, obj, options.get("gracePeriodSeconds"))
        if not (metadata.get("finalizers") or grace or kind.collection in _CONTAINERS):
            return self._remove(kind, key, obj), True
        if not metadata.get("deletionTimestamp") or metadata.get("deletionGracePeriodSeconds", 0) > grace:
            metadata.update(deletionTimestamp=self.timestamp(grace), deletionGracePeriodSeconds=grace)
            if kind.generation:
                metadata["generation"] = metadata.get("generation", 0) + 1
            if kind.collection == NAMESPACES:
                obj["status"]["phase"] = "Terminating"
            stored = self.store.put(kind.collection, obj)
        if kind.collection in _CONTAINERS:
            for content in self._contents(kind.collection, key[1]):
                self._collect(*content)
            self._finish(kind.collection, key[1])
        return stored, key not in self.store.collection(kind.collection)

    def _remove(self, kind: ServedKind, key: Key, obj: Json) -> Stored:
        stored = self.store.remove(kind.collection, obj)
        if kind.collection == CRDS:
            self.catalog.withdraw(key[1])
            self.store.close_watches(key[1])
        for collection, dependent in sorted(self.store.dependents.pop(stored.uid, ())):
            rest = self.store.collection(collection).get(dependent)
            if rest is not None and not any(owner in self.store.uids for owner in rest.owners):
                self._collect(collection, dependent)
        self._finish(NAMESPACES, key[0])
        self._finish(CRDS, kind.collection)
        return stored

    def _collect(self, collection: str, key: Key) -> None:
        """Delete it in the background, as a write of the server itself."""
        kind = self.catalog.collection(collection)
        if kind is not None and key in self.store.collection(collection):
            self.delete(kind, key, {"propagationPolicy": "Background"}, Author(SYSTEM))

    def _contents(self, collection: str, name: str) -> list[tuple[str, Key]]:
        """The objects in a namespace or of a definition."""
        if collection == CRDS:
            return [(name, key) for key in self.store.collection(name)]
        return [(c, key) for c, objects in self.store.collections() for key in objects if key[0] == name]

    def _finish(self, collection: str, name: str) -> None:
        """Remove a terminating namespace or definition once it is empty."""
        kind, home = self.catalog.collection(collection), self.store.collection(collection).get(("", name))
        if kind is None or home is None:
            return
        obj = home.read()
        waits = not obj["metadata"].get("deletionTimestamp") or obj["metadata"].get("finalizers")
        if not waits and not self._contents(collection, name):
            self._remove(kind, home.key, obj)

    def _orphan(self, owner: Stored) -> None:
        for collection, key in sorted(self.store.dependents.get(owner.uid, ())):
            obj = self.store.collection(collection)[key].read()
            references = obj["metadata"].pop("ownerReferences")
            if others := [reference for reference in references if reference["uid"] != owner.uid]:
                obj["metadata"]["ownerReferences"] = others
            self.store.put(collection, obj)


def _texts(values: object) -> bool:
    return isinstance(values, dict) and all(isinstance(value, str) for value in values.values())


def _same_object(kind: ServedKind, stored: Stored, wanted: Json) -> None:
    """Raises StatusError if it names another object or another version of it."""
    metadata = wanted.get("metadata")
    if not isinstance(metadata, dict):
        raise StatusError(400, "metadata: must be an object")
    namespace, name = stored.key
    if (other := metadata.setdefault("name", name)) != name:
        raise StatusError(
            400, f"the name of the object ({other}) does not match the name on the URL ({name})"
        )
    if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
        raise StatusError(400, _ELSEWHERE)
    if (uid := metadata.get("uid") or stored.uid) != stored.uid:
        raise kind.invalid(name, StatusCause("metadata.uid", f'Invalid value: "{uid}": field is immutable'))
    revision = metadata.get("resourceVersion")
    if revision and revision != str(stored.revision):
        raise kind.refusal(409, name, _FULFILLED + _MODIFIED)
    if not revision and not kind.unconditional:
        message = "Invalid value: 0: must be specified for an update"
        raise kind.invalid(name, StatusCause("metadata.resourceVersion", message))


def _carry_metadata(kind: ServedKind, old: Json, new: Json) -> None:
    """Keep the metadata that a write can't change; refuse changes that are not allowed."""
    before = old["metadata"]
    after = new["metadata"] = dict(new["metadata"])
    added = set(after.get("finalizers") or ()) - set(before.get("finalizers") or ())
    if added and before.get("deletionTimestamp"):
        message = "Forbidden: no new finalizers can be added if the object is being deleted"
        raise kind.invalid(before["name"], StatusCause("metadata.finalizers", message, "FieldValueForbidden"))
    if "managedFields" in before:
        after.setdefault("managedFields", before["managedFields"])
    for name in ("uid", "creationTimestamp", "generation", *_SERVER_OWNED):
        after.pop(name, None)
        if name in before:
            after[name] = before[name]


def _precondition(kind: ServedKind, stored: Stored, name: str, wanted: str | None, found: str) -> None:
    if wanted is not None and wanted != found:
        message = f"Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {found}"
        raise kind.refusal(409, stored.key[1], _FULFILLED + message)


def _grace(kind: ServedKind, obj: Json, asked: int | None) -> int:
    """Grace period in seconds of a pod that has a node and still runs; 0, by its kubelet, deletes it."""
    if kind.collection != PODS or not obj["spec"].get("nodeName"):
        return 0
    if (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)
