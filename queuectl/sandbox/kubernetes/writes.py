"""create, update, patch and delete: what every write goes through, whoever sends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import orjson

from queuectl.sandbox.kubernetes import builtin, schema
from queuectl.sandbox.kubernetes.gate import Gate
from queuectl.sandbox.kubernetes.identities import User
from queuectl.sandbox.kubernetes.resources import CRDS, JOBS, NAMESPACES, PODS, Catalog, Kind
from queuectl.sandbox.kubernetes.store import Key, Store, Stored, as_stored
from queuectl.sandbox.kubernetes.wire import ApiError, Cause, Json, invalid, required

Check = Callable[[Json], Iterable[Cause]]
"""What is wrong with an object, beyond its schema."""
Transform = Callable[[Json], Json]
FOREGROUND = "foregroundDeletion"
_SERVER_OWNED = ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion")
_LEFT_OUT = ("managedFields", "selfLink")
_FULFILLED = "Operation cannot be fulfilled on {}"
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes, and how: `strict` refuses unknown fields, else they are dropped and named in `warnings`."""

    user: User
    dry_run: bool = False
    strict: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Writes:
    store: Store
    catalog: Catalog
    gate: Gate
    clock: Callable[[], datetime]
    check: Check | None = None

    def timestamp(self, after: float = 0) -> str:
        """Now, or `after` seconds later, as Kubernetes writes it."""
        return (self.clock() + timedelta(seconds=after)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def replace(self, kind: Kind, key: Key, body: Json, author: Author, subresource: str = "") -> Stored:
        """PUT: where `body` tells a UID, it must be this object's."""
        uid = (body.get("metadata") or {}).get("uid") or None
        _precondition(kind, self.find(kind, key), "UID", uid, self.find(kind, key).uid)
        return self.update(kind, key, lambda current: body, author, subresource)

    def find(self, kind: Kind, key: Key) -> Stored:
        stored = self.store.collection(kind.collection).get(key)
        if stored is None:
            raise kind.refusal(404, key[1], "{} not found")
        return stored

    # --- create ---

    def create(self, kind: Kind, namespace: str, obj: Json, author: Author) -> Stored:
        obj = self._decode(kind, obj, author)
        metadata = obj["metadata"]
        key = self._place(kind, namespace, metadata)
        for name in (*_SERVER_OWNED, *_LEFT_OUT):
            metadata.pop(name, None)
        metadata["uid"] = self.store.new_uid(kind.collection, key)
        metadata["creationTimestamp"] = self.timestamp()
        metadata.pop("generation", None)
        if kind.generation:
            metadata["generation"] = 1
        self.gate.mutate(kind, None, obj, author.user)
        builtin.prepare_create(kind, obj)
        self._validate(kind, None, obj)
        self.gate.validate(kind, None, obj, author.user)
        if key in self.store.collection(kind.collection):
            raise kind.refusal(409, key[1], "{} already exists", "AlreadyExists")
        if author.dry_run:
            metadata["resourceVersion"] = "0"
            return as_stored(obj, orjson.dumps(obj))
        stored = self.store.put(kind.collection, obj)
        if kind.collection == CRDS:
            self.catalog.define(obj)
        if stored.owners and not any(owner in self.store.uids for owner in stored.owners):
            self.delete(kind, key, {}, author)  # as the garbage collector does with one born an orphan
        return stored

    def _decode(self, kind: Kind, obj: Json, author: Author) -> Json:
        """From the wire to the stored form: the right kind, known fields, defaults. Raises ApiError 400."""
        if obj.setdefault("kind", kind.kind) != kind.kind or (
            obj.setdefault("apiVersion", kind.api_version) != kind.api_version
        ):
            found = f"{obj['apiVersion']}, Kind={obj['kind']}"
            message = (
                f"the object provided is unrecognized: {found} is not {kind.api_version}, Kind={kind.kind}"
            )
            raise ApiError(400, message)
        if not isinstance(obj.setdefault("metadata", {}), dict):
            raise ApiError(400, "metadata: must be an object")
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            values = obj["metadata"].get(name)
            if not values:
                obj["metadata"].pop(name, None)
            elif name in ("finalizers", "ownerReferences"):
                continue
            elif not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
                raise ApiError(400, f"json: cannot unmarshal metadata.{name}: its values must be strings")
        if kind.schema is not None:
            unknown = schema.prune(obj, kind.schema)
            if unknown and author.strict:
                texts = ", ".join(f'unknown field "{path}"' for path in unknown)
                message = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                raise ApiError(400, f"{message}strict decoding error: {texts}")
            author.warnings.extend(f'unknown field "{path}"' for path in unknown)
            schema.default(obj, kind.schema)
        obj = builtin.to_stored(kind, obj)
        builtin.fill_defaults(kind, obj)
        return obj

    def _place(self, kind: Kind, namespace: str, metadata: Json) -> Key:
        """Its key; the namespace must take new objects. Raises ApiError."""
        if kind.namespaced:
            given = metadata.setdefault("namespace", namespace)
            if given != namespace:
                message = (
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
                raise ApiError(400, message)
            self._open_namespace(kind, namespace, metadata)
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                message = "Required value: name or generateName is required"
                raise kind.invalid("", required("metadata.name", message))
            suffix = self.store.new_uid(kind.collection, (namespace, metadata["generateName"]))[:5]
            metadata["name"] = metadata["generateName"] + suffix
        return (namespace if kind.namespaced else "", metadata["name"])

    def _open_namespace(self, kind: Kind, namespace: str, metadata: Json) -> None:
        home = self.store.collection(NAMESPACES).get(("", namespace))
        if home is None:
            raise ApiError(
                404, f'namespaces "{namespace}" not found', details={"name": namespace, "kind": NAMESPACES}
            )
        if home.read()["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise kind.refusal(403, metadata.get("name", ""), f"{{}} is forbidden: {message}")

    def _validate(self, kind: Kind, old: Json | None, new: Json) -> None:
        causes = list(builtin.problems(kind, old, new))
        if kind.schema is not None:
            causes += schema.validate(new, kind.schema)
        if self.check is not None and not causes and kind.custom:
            causes += self.check(new)
        if causes:
            raise kind.invalid(new["metadata"]["name"], *causes)

    # --- update and patch ---

    def update(
        self, kind: Kind, key: Key, transform: Transform, author: Author, subresource: str = ""
    ) -> Stored:
        """`transform` makes the wanted object from the current one."""
        stored = self.find(kind, key)
        old = stored.read()
        wanted = transform(builtin.from_stored(kind, stored.read()))
        self._same_object(kind, stored, wanted)
        new = self._decode(kind, wanted, author)
        metadata = new["metadata"]
        if subresource == "status":
            kept = old["metadata"] if kind.custom else metadata
            new = {**old, "metadata": kept, "status": new.get("status")}
            if new["status"] is None:
                del new["status"]
        elif kind.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        self._carry_metadata(kind, old, new)
        if not subresource:
            self.gate.mutate(kind, old, new, author.user)
        if kind.generation and builtin.spec_changed(old, new, status=not kind.status):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        self._validate(kind, old, new)
        self.gate.validate(kind, old, new, author.user, subresource)
        if new == old:
            return stored
        if author.dry_run:
            return as_stored(new, orjson.dumps(new))
        return self._store_update(kind, key, new)

    def _store_update(self, kind: Kind, key: Key, new: Json) -> Stored:
        metadata = new["metadata"]
        graceful = metadata.get("deletionGracePeriodSeconds")
        waits = metadata.get("finalizers") or graceful or kind.collection in (NAMESPACES, CRDS)
        if metadata.get("deletionTimestamp") and not waits:
            return self._remove(kind, key, new)
        stored = self.store.put(kind.collection, new)
        if kind.collection == CRDS:
            self.catalog.define(new)
        return stored

    def _same_object(self, kind: Kind, stored: Stored, wanted: Json) -> None:
        """Raises ApiError where it speaks of another object or another state of it."""
        metadata = wanted.get("metadata")
        if not isinstance(metadata, dict):
            raise ApiError(400, "metadata: must be an object")
        namespace, name = stored.key
        if metadata.setdefault("name", name) != name:
            message = (
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
            raise ApiError(400, message)
        if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise ApiError(400, message)
        if (uid := metadata.get("uid") or stored.uid) != stored.uid:
            raise kind.invalid(name, Cause("metadata.uid", f'Invalid value: "{uid}": field is immutable'))
        revision = metadata.get("resourceVersion")
        if revision and revision != str(stored.revision):
            raise kind.refusal(409, name, f"{_FULFILLED}: {_MODIFIED}")
        if not revision and not kind.unconditional:
            message = "Invalid value: 0: must be specified for an update"
            raise kind.invalid(name, Cause("metadata.resourceVersion", message))

    def _carry_metadata(self, kind: Kind, old: Json, new: Json) -> None:
        """What a write can't change of the metadata, and what it may not try to."""
        before = old["metadata"]
        after = new["metadata"] = dict(new["metadata"])
        added = set(after.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if added and before.get("deletionTimestamp"):
            message = "Forbidden: no new finalizers can be added if the object is being deleted"
            raise kind.invalid(before["name"], Cause("metadata.finalizers", message, "FieldValueForbidden"))
        for name in ("uid", "creationTimestamp", "generation", *_SERVER_OWNED, *_LEFT_OUT):
            after.pop(name, None)
            if name in before:
                after[name] = before[name]

    def bind(self, key: Key, binding: Json) -> None:
        """A pod gets its node, once."""
        kind = self.catalog.collection(PODS)
        assert kind is not None
        pod = self.find(kind, key).read()
        node = (binding.get("target") or {}).get("name")
        if not node:
            raise invalid("Binding", "", key[1], [required("target.name")])
        if other := pod["spec"].get("nodeName"):
            message = f'pod {key[1]} is already assigned to node "{other}"'
            raise kind.refusal(409, key[1], f"{_FULFILLED}: {message}")
        pod["spec"]["nodeName"] = node
        held = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.timestamp()}
        others = [c for c in pod["status"].get("conditions") or () if c["type"] != "PodScheduled"]
        pod["status"]["conditions"] = [*others, held]
        self.store.put(PODS, pod)

    # --- delete ---

    def delete(self, kind: Kind, key: Key, options: Json, author: Author) -> tuple[Stored, bool]:
        """The object's last state, and whether it is gone."""
        stored = self.find(kind, key)
        wanted = options.get("preconditions") or {}
        _precondition(kind, stored, "UID", wanted.get("uid"), stored.uid)
        _precondition(kind, stored, "ResourceVersion", wanted.get("resourceVersion"), str(stored.revision))
        self.gate.validate_delete(kind, stored.read(), author.user)
        # batch/v1 alone keeps its dependents when nothing is said.
        policy = options.get("propagationPolicy") or ("Orphan" if kind.collection == JOBS else "Background")
        if author.dry_run:
            return stored, True
        obj = stored.read()
        metadata = obj["metadata"]
        if policy == "Orphan":
            self._orphan(stored)
        elif policy == "Foreground" and self.store.dependents.get(stored.uid):
            metadata["finalizers"] = [*(metadata.get("finalizers") or ()), FOREGROUND]
        grace = _grace(kind, obj, options.get("gracePeriodSeconds"))
        lingers = kind.collection in (NAMESPACES, CRDS)
        if not (metadata.get("finalizers") or grace or lingers):
            return self._remove(kind, key, obj), True
        if not metadata.get("deletionTimestamp") or metadata.get("deletionGracePeriodSeconds", 0) > grace:
            metadata["deletionTimestamp"] = self.timestamp(grace)
            metadata["deletionGracePeriodSeconds"] = grace
            if kind.generation:
                metadata["generation"] = metadata.get("generation", 0) + 1
            if kind.collection == NAMESPACES:
                obj["status"]["phase"] = "Terminating"
            stored = self.store.put(kind.collection, obj)
        self._empty(kind, stored)
        return stored, key not in self.store.collection(kind.collection)

    def _remove(self, kind: Kind, key: Key, obj: Json) -> Stored:
        stored = self.store.remove(kind.collection, key, obj)
        if kind.collection == CRDS:
            self.catalog.withdraw(key[1])
            self.store.close_watches(key[1])
        for collection, dependent in sorted(self.store.dependents.pop(stored.uid, ())):
            rest = self.store.collection(collection).get(dependent)
            if rest is not None and not any(owner in self.store.uids for owner in rest.owners):
                self._collect(collection, dependent)
        for owner in stored.owners:
            if owner in self.store.uids and not self.store.dependents.get(owner):
                self._release(*self.store.uids[owner])
        self._finish_container(NAMESPACES, key[0])
        self._finish_container(CRDS, kind.collection)
        return stored

    def _collect(self, collection: str, key: Key) -> None:
        """Delete it in the background, as the server itself."""
        kind = self.catalog.collection(collection)
        if kind is not None:
            system = User("system:serviceaccount:kube-system:generic-garbage-collector", ("system:masters",))
            self.delete(kind, key, {"propagationPolicy": "Background"}, Author(system))

    def _empty(self, kind: Kind, stored: Stored) -> None:
        """Delete what must go before a terminating object can."""
        metadata = stored.read()["metadata"]
        if FOREGROUND in (metadata.get("finalizers") or ()):
            for collection, key in sorted(self.store.dependents.get(stored.uid, ())):
                self._collect(collection, key)
        elif kind.collection == NAMESPACES:
            for collection, objects in self.store.collections():
                for key in [key for key in objects if key[0] == stored.key[1]]:
                    if key in objects:
                        self._collect(collection, key)
            self._finish_container(NAMESPACES, stored.key[1])
        elif kind.collection == CRDS:
            for key in list(self.store.collection(stored.key[1])):
                self._collect(stored.key[1], key)
            self._finish_container(CRDS, stored.key[1])

    def _release(self, collection: str, key: Key) -> None:
        """The last dependent is gone: an owner that waited in the foreground goes too."""
        obj = self.store.collection(collection)[key].read()
        finalizers = obj["metadata"].get("finalizers") or []
        kind = self.catalog.collection(collection)
        if FOREGROUND in finalizers and kind is not None:
            obj["metadata"]["finalizers"] = [name for name in finalizers if name != FOREGROUND]
            obj["metadata"].pop("deletionGracePeriodSeconds", None)
            self._store_update(kind, key, obj)

    def _finish_container(self, collection: str, name: str) -> None:
        """Remove a terminating namespace or definition once it is empty."""
        home = self.store.collection(collection).get(("", name))
        kind = self.catalog.collection(collection)
        if home is None or kind is None or not (obj := home.read())["metadata"].get("deletionTimestamp"):
            return
        if collection == CRDS:
            full = bool(self.store.collection(name))
        else:
            full = any(key[0] == name for _, objects in self.store.collections() for key in objects)
        if not full and not obj["metadata"].get("finalizers"):
            self._remove(kind, home.key, obj)

    def _orphan(self, owner: Stored) -> None:
        for collection, key in sorted(self.store.dependents.get(owner.uid, ())):
            obj = self.store.collection(collection)[key].read()
            references = obj["metadata"].pop("ownerReferences")
            if others := [reference for reference in references if reference["uid"] != owner.uid]:
                obj["metadata"]["ownerReferences"] = others
            self.store.put(collection, obj)


def _precondition(kind: Kind, stored: Stored, name: str, wanted: str | None, found: str) -> None:
    if wanted is not None and wanted != found:
        message = f"Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {found}"
        raise kind.refusal(409, stored.key[1], f"{_FULFILLED}: {message}")


def _grace(kind: Kind, obj: Json, asked: int | None) -> int:
    """Seconds a pod that has a node and still runs gets to end; its kubelet deletes it for good with 0."""
    if kind.collection != PODS or not obj["spec"].get("nodeName"):
        return 0
    if (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)
