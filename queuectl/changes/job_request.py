"""A Job of one pod, an array of such Jobs, or a pod to work in, as flags or a batch script describe it."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any, Final

from queuectl.changes.submit import BadManifest
from queuectl.core.model.resources import BadQuantity, parse_quantity
from queuectl.core.model.start_conditions import MAX_RUNNING, MOST_RUNNING
from queuectl.importers.slurm import POOL_LABEL
from queuectl.kinds.labels import ARRAY_LABEL, MAX_RUN_LABEL

INDEX_VARIABLE: Final = "QUEUECTL_ARRAY_INDEX"
SLURM_INDEX_VARIABLE: Final = "SLURM_ARRAY_TASK_ID"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,49}[a-z0-9])?")
_NOT_IN_NAME: Final = re.compile(r"[^a-z0-9]+")
_LONGEST_STEM: Final = 40
_MOST_SCRIPT: Final = 65_536
"""Bytes of a script: it becomes one argument, of which Linux takes 128 KiB."""
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated suffixes, as those of the API server: no words come out of them."""
_UNTIL_DELETED: Final = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done")
_INTERPRETERS: Final = re.compile(r"(?:sh|ash|bash|dash|ksh|zsh|python[0-9.]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What one Job, or each Job of an array, is to run and request."""

    image: str
    command: tuple[str, ...] = ()
    """Empty: that of the image."""
    name: str | None = None
    """Of the Job, or of the array; None: generated from `stem`."""
    stem: str = "job"
    gpus: tuple[str, int] | None = None
    """Resource and number of devices."""
    cpus: str | None = None
    memory: str | None = None
    """CPU and memory as Kubernetes quantities."""
    seconds: int | None = None
    """The longest run time."""
    tasks: tuple[int, ...] | None = None
    """Indices of an array; None: a single Job."""
    max_running: int | None = None
    """Most Jobs of the array that queue or run at a time; None: all."""
    pool: str | None = None
    """Value of the node label `queuectl.dev/pool`; None: any flavor."""
    interactive: bool = False
    """A pod to work in with `queuectl exec`; without a command it waits until it is deleted."""
    slurm: bool = False
    """Whether the command expects the environment of Slurm."""


def manifests(request: JobRequest) -> list[dict[str, Any]]:
    """The objects, without queue and namespace. Raises BadManifest, which names the flag and the value."""
    for flag, resource, text in (("cpus", "cpu", request.cpus), ("memory", "memory", request.memory)):
        try:
            if text is not None and parse_quantity(text, resource) <= 0:
                raise BadQuantity("it is not above 0")
        except BadQuantity as problem:
            raise BadManifest(f"--{flag}: {text!r}: {problem}") from None
    if request.name is not None and not _NAME.fullmatch(request.name):
        raise BadManifest(
            f"--name: {request.name!r} is not 1 to 51 lower-case letters, digits and -, the ends without -"
        )
    if request.interactive and request.tasks is not None:
        raise BadManifest("--interactive: it does not go with --array: an array is of Jobs")
    if request.max_running is not None and request.tasks is None:
        raise BadManifest("--max-running: it counts the Jobs of an array: --array has their indices")
    if request.max_running is not None and not 1 <= request.max_running <= MOST_RUNNING:
        raise BadManifest(f"--max-running: {request.max_running} is not 1 to {MOST_RUNNING}")
    stem = _NOT_IN_NAME.sub("-", request.stem.lower()).strip("-")[:_LONGEST_STEM].strip("-") or "job"
    if request.tasks is None:
        named = {"name": request.name} if request.name else {"generateName": f"{stem}-"}
        return [_job(request, named, None, None)]
    array = request.name or f"{stem}-{''.join(secrets.choice(_SUFFIX) for _ in range(5))}"
    # Jobs created within a second are listed and admitted in the order of their names (O2).
    width = len(str(max(request.tasks)))
    return [_job(request, {"name": f"{array}-{index:0{width}}"}, array, index) for index in request.tasks]


def _job(request: JobRequest, named: dict[str, str], array: str | None, index: int | None) -> dict[str, Any]:
    labels = {}
    if array is not None:
        labels[ARRAY_LABEL] = array
    if request.seconds is not None:
        labels[MAX_RUN_LABEL] = str(request.seconds)
    requests = {"cpu": request.cpus, "memory": request.memory}
    limits: dict[str, Any] = {"memory": request.memory}
    if request.gpus is not None:
        limits[request.gpus[0]] = request.gpus[1]
    resources = {"requests": _given(requests), "limits": _given(limits)}
    container: dict[str, Any] = {
        "name": "main",
        "image": request.image,
        "command": list(request.command or (_UNTIL_DELETED if request.interactive else ())),
        "resources": _given(resources),
    }
    if index is not None:
        names = (INDEX_VARIABLE, *((SLURM_INDEX_VARIABLE,) if request.slurm else ()))
        container["env"] = [{"name": name, "value": str(index)} for name in names]
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [_given(container)]}
    if request.pool is not None:
        pod["nodeSelector"] = {POOL_LABEL: request.pool}
    annotations = {} if request.max_running is None else {MAX_RUNNING: str(request.max_running)}
    metadata = _given({**named, "labels": labels, "annotations": annotations})
    if request.interactive:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def script_command(text: bytes, name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The command that runs a script with the interpreter of its first line. Raises BadManifest."""
    if len(text) > _MOST_SCRIPT:
        raise BadManifest(f"{name}: {len(text)} bytes are more than the {_MOST_SCRIPT} of a script")
    try:
        script = text.decode()
    except UnicodeDecodeError:
        raise BadManifest(f"{name}: it is not UTF-8 text") from None
    words = script.splitlines()[0].removeprefix("#!").split()
    program = next((word for word in words if word.rpartition("/")[2] != "env"), "")
    if not _INTERPRETERS.fullmatch(program.rpartition("/")[2]):
        raise BadManifest(
            f"{name}: line 1: {program!r} is not a shell or Python: put the script in the image"
        )
    return (*words, "-c", script, *((name,) if "python" not in program else ()), *arguments)
