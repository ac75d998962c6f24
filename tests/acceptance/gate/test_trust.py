"""The table of who may write what the controller reads (docs/threats.md): every kind, row and phase.

One control plane with all definitions. A request of the tenant is a dry run: the API server and the gate
answer as for any other, and nothing is stored, so that all cells of a phase start from one object.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import pytest

from queuectl.core.model.workload import Effect
from queuectl.kinds import patches
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.podsets import Templates
from queuectl.kinds.reserved_keys import POD_LABELS
from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH, MERGE_PATCH
from tests.acceptance.gate.kinds import Objects
from tests.acceptance.gate.site import APPLY_PATCH, QUEUE, STRATEGIC_PATCH, Json, Site, look, nested, pointer
from tests.acceptance.gate.trust import CHANGES, PHASES, Change, FieldPath, users_may
from tests.integration.kube.sites import effect
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.computed_objects import its_job_set

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("site", ["mutating"], ids=["site=mutating"], indirect=True),
    pytest.mark.parametrize("row", JOB_KINDS.rows, ids=lambda row: row.name),
]
DRY: Final = {"dryRun": "All"}
AT: Final = "2030-01-01T00:00:00Z"
NUMBER: Final = "number of pods"
Fields = Mapping[FieldPath, object]
"""What a request writes: values by path."""
NONE: Final[Mapping[str, str]] = {}
NO_FIELDS: Final[Fields] = {}


class _Places(NamedTuple):
    suspend: FieldPath
    pods: FieldPath
    template: FieldPath


TEMPLATES: Final[dict[str, FieldPath]] = {
    "SparkApplication": ("spec", "driver"),
    "AppWrapper": ("spec", "components", "0", "template", "spec", "template", "spec"),
}
"""Where computed kinds have what others have in the spec of a pod template."""
OWN: Final[dict[tuple[str, str], Change | None]] = {
    ("TrainJob", "pod template: spec"): Change(lambda _: ("spec", "trainer", "image"), "mine:1"),
    **{("TrainJob", f"pod template: label `{label}`"): None for label in POD_LABELS},
}
"""Rows for which a kind has another field; None: it has none."""


def _changes(objects: Objects) -> Iterable[tuple[str, FieldPath, object]]:
    """By row, the field that it is about and the value that the tenant writes."""
    row = objects.row
    if isinstance(row.podsets, Templates):
        template = (*objects.template, "spec") if objects.template[-1] == "template" else objects.template
    else:
        template = TEMPLATES.get(row.name, ())
    places = _Places(row.suspend, objects.count, template)
    for name, change in CHANGES.items():
        own = OWN.get((row.name, name), change)
        if own is not None:
            path = own.path(places)
            if row.name == "SparkApplication" and "label" in name and path[0] == "spec":
                path = ("spec", "driver", "labels", path[-1])
            yield name, path, own.value


# --- verbs ------------------------------------------------------------------------------------------------


def _changed(obj: Json, values: Fields) -> Json:
    found = copy.deepcopy(obj)
    for path, value in values.items():
        holder: Any = found
        for key in path[:-1]:
            holder = holder[int(key)] if isinstance(holder, list) else holder.setdefault(key, {})
        holder[path[-1]] = value
    return found


def _partial(obj: Json, values: Fields) -> Json:
    """The fields alone; of a list, all of it."""
    changed, body = _changed(obj, values), dict[str, Any]()
    for path in values:
        holder, part = changed, body
        for key in path[:-1]:
            if isinstance(holder[key], list):
                part[key] = holder[key]
                break
            holder, part = holder[key], part.setdefault(key, {})
        else:
            part[path[-1]] = holder[path[-1]]
    return body


async def _put(objects: Objects, obj: Json, values: Fields) -> Json:
    path = f"{objects.path()}/{obj['metadata']['name']}"
    return await _sent(objects, "PUT", path, _changed(obj, values))


async def _merge(objects: Objects, obj: Json, values: Fields) -> Json:
    return await _patched(objects, obj, _partial(obj, values), MERGE_PATCH)


async def _json(objects: Objects, obj: Json, values: Fields) -> Json:
    patch: list[Json] = []
    for path, value in values.items():
        depth = 1
        while depth < len(path) and _present(obj, path[:depth]):
            depth += 1
        inner = nested(path[depth:], value) if path[depth:] else value
        patch.append({"op": "add", "path": pointer(path[:depth]), "value": inner})
        obj = _changed(obj, {path: value})
    return await _patched(objects, obj, patch, JSON_PATCH)


async def _strategic(objects: Objects, obj: Json, values: Fields) -> Json:
    return await _patched(objects, obj, _partial(obj, values), STRATEGIC_PATCH)


async def _apply(objects: Objects, obj: Json, values: Fields) -> Json:
    kind = {"apiVersion": objects.row.api_version, "kind": objects.row.kind}
    body = _partial(obj, {**values, ("metadata", "name"): obj["metadata"]["name"]})
    query = {"fieldManager": "tenant", "force": "true"}
    return await _patched(objects, obj, kind | body, APPLY_PATCH, query=query)


async def _status(objects: Objects, obj: Json, values: Fields) -> Json:
    return await _patched(objects, obj, _partial(obj, values), MERGE_PATCH, "status")


async def _scale(objects: Objects, obj: Json, values: Fields) -> Json:
    """Writes a number of pods: a Scale has nothing else that is stored."""
    (value,) = values.values()
    found = await _patched(objects, obj, {"spec": {"replicas": value}}, MERGE_PATCH, "scale")
    return _changed(obj, {objects.count: found["spec"]["replicas"]})


async def _patched(
    objects: Objects,
    obj: Json,
    body: object,
    content_type: str,
    part: str = "",
    query: Mapping[str, str] = NONE,
) -> Json:
    path = "/".join((objects.path(), obj["metadata"]["name"], *([part] if part else [])))
    return await _sent(objects, "PATCH", path, body, query=query, content_type=content_type)


async def _sent(
    objects: Objects, verb: str, path: str, body: object, query: Mapping[str, str] = NONE, **how: Any
) -> Json:
    found: Json = await objects.site.tenant.request(verb, path, body, query={**DRY, **query}, **how)
    return found


Way = Callable[[Objects, Json, Fields], Awaitable[Json]]
SERVED: Final[dict[str, Way]] = {
    "PUT": _put,
    "merge patch": _merge,
    "JSON patch": _json,
    "server-side apply": _apply,
}
"""Verbs that write any field of any object."""
BY_EACH_VERB: Final = ("Job", "PyTorchJob")
"""A built-in resource and a custom one. A policy does not see the verb: of others a row has one."""
OTHERS: Final[dict[str, Way]] = {"strategic merge patch": _strategic, "status": _status}
"""Those that not every kind has, or that write some fields only: the status of a Job writes its metadata."""


def _present(obj: Any, path: FieldPath) -> bool:
    for key in path:
        if isinstance(obj, list):
            obj = obj[int(key)]
        elif key in obj:
            obj = obj[key]
        else:
            return False
    return True


def _at(obj: Json, path: FieldPath) -> Any:
    """The value at a path of which some keys are places in lists."""
    return look(obj, tuple(int(key) if key.isdigit() else key for key in path))


def _verbs(row: JobKind, opened: bool, place: int) -> Iterable[str]:
    if row.name in BY_EACH_VERB and not opened:
        return SERVED
    return (list(SERVED)[place % len(SERVED)],)


# --- the walk ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "is added"])
async def test_a_tenant_writes_what_the_table_says_and_nothing_else(
    defined: Site, row: JobKind, phase: str
) -> None:
    if phase == "over" and not row.ends:
        return  # it never ends
    objects = Objects(defined, row)
    obj = await _made(objects, f"walk-{PHASES.index(phase)}", phase)
    wrong: list[tuple[object, ...]] = []
    for place, (name, path, value) in enumerate(_changes(objects)):
        opened, before = users_may(name, phase), _at(obj, path)
        value = not before if path == row.suspend else value
        assert before != value, f"{name}: nothing is to change"
        scaled = {"scale": _scale} if row.scale and name == NUMBER else {}
        ways = {verb: SERVED[verb] for verb in _verbs(row, opened, place)} | OTHERS | scaled
        for verb, way in ways.items():
            refusal, after = await _tried(way(objects, obj, {path: value}))
            found = _at(after, path) if after is not None else before
            if opened and verb in SERVED and (refusal, found) != ("", value):
                wrong.append((name, verb, "users may, and it was refused", refusal, found))
            kept = not opened or verb == "scale" or (verb == "status" and path[0] == "spec")
            if kept and found != before:
                wrong.append((name, verb, "no user may, and it was written", found))
    assert wrong == []


async def test_nothing_is_taken_away_while_it_waits(defined: Site, row: JobKind) -> None:
    objects = Objects(defined, row)
    obj = await _made(objects, "keeps", "waits")
    for path in (row.suspend, ("metadata", "labels", QUEUE)):
        for body, content_type in (
            (nested(path, None), MERGE_PATCH),
            ([{"op": "remove", "path": pointer(path)}], JSON_PATCH),
        ):
            refusal, _ = await _tried(_patched(objects, obj, body, content_type))
            assert objects.policy in refusal, path


async def test_what_is_created_with_the_label_is_what_the_table_says(defined: Site, row: JobKind) -> None:
    objects, wrong = Objects(defined, row), []
    for labelled, phase in ((True, "is added"), (False, "no queue label")):
        body = objects.body("created-in-walk")
        if not labelled:
            del body["metadata"]["labels"]
        for name, path, value in _changes(objects):
            if path[-1] == QUEUE and path[0] == "metadata":
                continue
            refusal, made = await _tried(
                _sent(objects, "POST", objects.path(), _changed(body, {path: value}))
            )
            taken = made is not None and _at(made, path) == value
            if taken is not users_may(name, phase):
                wrong.append((name, phase, refusal))
    assert wrong == []


async def test_what_the_label_finds_is_what_the_table_says(defined: Site, row: JobKind) -> None:
    objects, wrong = Objects(defined, row), []
    label: dict[FieldPath, object] = {("metadata", "labels", QUEUE): "main"}
    plain = await _made(objects, "joins", "no queue label")
    for place, (name, path, value) in enumerate(_changes(objects)):
        if path in label:
            continue
        found = await _made(objects, f"joins-{place}", "no queue label", {path: value})
        opened = users_may(name, "is added")
        for verb in _verbs(row, opened, place):
            way = SERVED[verb]
            before, _ = await _tried(way(objects, found, label))
            together, _ = await _tried(way(objects, plain, {path: value} | label))
            if (before == "", together == "") != (opened, opened):
                wrong.append((name, verb, before, together))
    assert wrong == []


async def _made(objects: Objects, name: str, phase: str, values: Fields = NO_FIELDS) -> Json:
    """An object in a phase, as the controller and its operator bring it there."""
    body = _changed(objects.body(name), values)
    if phase == "no queue label":
        body["metadata"].pop("labels")
        body = _changed(body, values)
    found: Json = await objects.site.tenant.request("POST", objects.path(), body)
    if phase in ("runs", "over"):
        found = await objects.patch("controller", name, patches.start(objects.row, _start(objects, found)))
        assert not objects.row.suspended(found)
    if phase == "over":
        found = await objects.merge("admin", name, {"status": _ended(objects.row)}, "status")
        assert objects.row.outcome(found) is not None
    return found


def _start(objects: Objects, found: Json) -> Effect:
    child: Json | None = None
    if objects.row.name == "TrainJob":
        child = its_job_set()
        child["metadata"]["ownerReferences"][0]["uid"] = found["metadata"]["uid"]
    return effect(found, objects.row.name, child=child)


def _ended(row: JobKind) -> Json:
    """A status that shows its end."""
    sign = row.ends[0].sign
    if not isinstance(sign.of, str):
        status: Json = nested(sign.of, sign.value)["status"]
        return status
    types = ("SuccessCriteriaMet", sign.of) if row.name == "Job" else (sign.of,)
    times = {"lastTransitionTime": AT} | ({"lastProbeTime": AT} if row.name == "Job" else {})
    shown = {"status": sign.value, "reason": "Test", "message": "", **times}
    status = {"conditions": [{"type": one, **shown} for one in types]}
    if row.name == "Job":
        status |= {"startTime": AT, "completionTime": AT, "succeeded": 2}
    if row.group == "kubeflow.org":
        status |= {"replicaStatuses": {}}
    return status


async def _tried(attempt: Awaitable[Json]) -> tuple[str, Json | None]:
    """The server's message if it refused, and the object as it would be; None if refused."""
    try:
        return "", await attempt
    except ApiError as error:
        if error.status not in (403, 404, 415, 422):
            raise
        return str(error), None
