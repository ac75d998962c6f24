"""The three kinds of patch."""

from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer
import orjson

from queuectl.sandbox.kubernetes.wire import Json, StatusError

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

# Lists of objects that merge by a key, in the built-in kinds. Every other list is replaced as a whole.
_MERGE_KEYS = {
    field: key
    for key, fields in {
        "name": "containers env ephemeralContainers imagePullSecrets initContainers volumes matchConditions "
        "resourceClaims schedulingGates secrets variables webhooks",
        "type": "addresses conditions",
        "ip": "hostAliases",
        "uid": "ownerReferences",
        "containerPort": "ports",
        "topologyKey": "topologySpreadConstraints",
        "devicePath": "volumeDevices",
        "mountPath": "volumeMounts",
    }.items()
    for field in fields.split()
}
_MERGED_VALUES = ("finalizers", "podCIDRs", "podIPs", "hostIPs")
"""Lists of plain values that merge as sets."""
_DIRECTIVE = "$patch"
_DELETE_VALUES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"


class Patch:
    """One request's patch. Raises StatusError 400 or 415."""

    def __init__(self, media: str, body: bytes, *, custom: bool) -> None:
        self._media = media
        accepted = [JSON_PATCH, MERGE_PATCH] + ([] if custom else [STRATEGIC_PATCH])
        if self._media not in accepted:
            message = "the body of the request was in an unknown format - accepted media types include: "
            raise StatusError(415, message + ", ".join(accepted))
        try:
            self._patch = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise StatusError(400, f"error decoding patch: {error}") from None
        if not isinstance(self._patch, list if self._media == JSON_PATCH else dict):
            raise StatusError(400, "error decoding patch: a JSON patch is a list, any other an object")

    def apply(self, obj: Json) -> Json:
        """The patched object; `obj` and the patch are changed. Raises StatusError 400 or 422."""
        if self._media == JSON_PATCH:
            return _json_patch(obj, self._patch)
        return merge(obj, self._patch, strategic=self._media == STRATEGIC_PATCH)


def _json_patch(obj: Json, operations: list[Any]) -> Json:
    try:
        for operation in operations:
            if operation["op"] == "replace":
                parent, _ = jsonpointer.JsonPointer(operation["path"]).to_last(obj)
                # Kubernetes lets a replace add what an object lacks.
                operation = {**operation, "op": "add"} if isinstance(parent, dict) else operation
            if operation["op"] == "test" and operation.get("value", 0) is None:
                # Kubernetes treats an absent value as null.
                parent, key = jsonpointer.JsonPointer(operation["path"]).to_last(obj)
                if isinstance(parent, dict) and key not in parent:
                    continue
            obj = jsonpatch.JsonPatch([operation]).apply(obj, in_place=True)
    except (jsonpatch.JsonPatchConflict, jsonpatch.JsonPatchTestFailed, jsonpointer.JsonPointerException):
        message = "the server rejected our request due to an error in our request"
        raise StatusError(422, message) from None
    except (jsonpatch.InvalidJsonPatch, TypeError, KeyError) as error:
        raise StatusError(400, f"error decoding patch: {error}") from None
    if not isinstance(obj, dict):
        raise StatusError(400, "the patched object is not a JSON object")
    return obj


def merge(target: Any, patch: Json, *, strategic: bool = False) -> Json:
    """`target` with a merge patch or a strategic one; both are changed. Raises StatusError 400."""
    directive = patch.pop(_DIRECTIVE, None) if strategic else None
    retained = patch.pop(_RETAIN, None) if strategic else None
    result: Json = target if isinstance(target, dict) and directive not in ("replace", "delete") else {}
    for name, value in patch.items() if directive != "delete" else ():
        if strategic and name.startswith(_DELETE_VALUES):
            field = name.removeprefix(_DELETE_VALUES)
            result[field] = [item for item in result.get(field) or () if item not in value]
        elif strategic and name.startswith(_ORDER):
            continue
        elif value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merge(result.get(name), value, strategic=strategic)
        elif isinstance(value, list) and strategic:
            result[name] = _merge_list(name, result.get(name) or [], value)
        else:
            result[name] = value
    if retained is not None:
        result = {name: value for name, value in result.items() if name in retained}
    return result


def merge_key(name: str, items: list[Any]) -> str | None:
    """The field by which the items of this list of a built-in kind merge; None: they do not."""
    if name == "ports" and any(isinstance(item, dict) and "port" in item for item in items):
        return "port"
    return _MERGE_KEYS.get(name)


def _merge_list(name: str, current: list[Any], patch: list[Any]) -> list[Any]:
    if name in _MERGED_VALUES:
        return current + [item for item in patch if item not in current]
    key = merge_key(name, patch + current)
    if key is None or not all(isinstance(item, dict) for item in patch):
        return patch
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if _DIRECTIVE not in item]
    result = list(current)
    for item in patch:
        if key not in item:
            raise StatusError(400, f"map: {item} does not contain declared merge key: {key}")
        found = next((i for i, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            result = [old for old in result if old.get(key) != item[key]]
        elif found is None:
            result.append(merge({}, item, strategic=True))
        else:
            result[found] = merge(result[found], item, strategic=True)
    return result
