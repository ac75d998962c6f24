"""The flags of `submit` that describe a Job, and the #SBATCH lines of a script, which are their defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from queuectl.cli.arguments import BeginTime
from queuectl.cli.importing import texts
from queuectl.cli.options import Command, Failure, Options, parse_ago
from queuectl.cli.printing import printable
from queuectl.core.model.start_conditions import AFTER, BEGIN

if TYPE_CHECKING:
    from queuectl.changes.job_request import JobRequest

PROGRAM: Final = "queuectl.cli.program"
"""Key of the words after `--` in the context of a command."""
_GPUS: Final = re.compile(r"(?:([a-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63})=)?([0-9]{1,5})")
_SCRIPT: Final = b"#!"


class CommandWithProgram(Command):
    """A command after whose `--` another command line comes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[PROGRAM] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


class _Gpus(click.ParamType[tuple[str, int]]):
    name = "gpus"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        from queuectl.importers.slurm_values import NVIDIA

        found = _GPUS.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is neither a number nor RESOURCE=NUMBER, such as amd.com/gpu=4")
        return found[1] or NVIDIA, int(found[2])


class _RunTime(click.ParamType[int]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from queuectl.importers.slurm_script import seconds
        from queuectl.importers.slurm_values import BadValue

        ago = parse_ago(str(value))
        if ago:
            return int(ago / timedelta(seconds=1))
        with suppress(BadValue):
            if re.search("[:-]", str(value)):  # without a unit it would be minutes in Slurm alone
                return seconds(str(value))
        self.fail(f"{value!r} is not a run time such as 90m, 12h, 12:00:00 or 2-12:00")


class _Tasks(click.ParamType[tuple[int, ...]]):
    name = "array"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        from queuectl.importers.slurm_script import tasks
        from queuectl.importers.slurm_values import BadValue

        text = str(value)
        if re.fullmatch(r"[1-9][0-9]{0,6}", text):
            text = f"0-{int(text) - 1}"
        try:
            return tasks(text)
        except BadValue as problem:
            self.fail(str(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFlags:
    """The flags as given; None: not given."""

    image: str | None
    name: str | None
    gpus: tuple[str, int] | None
    cpus: str | None
    memory: str | None
    seconds: int | None
    tasks: tuple[int, ...] | None
    max_running: int | None
    interactive: bool | None
    after: tuple[str, ...]
    begin: datetime | None

    def given(self) -> dict[str, Any]:
        """Those that describe a Job: `after` and `begin` go with any object."""
        names = [field.name for field in fields(self) if field.name not in ("after", "begin")]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


_FLAGS: Final = (
    click.option("--image", help="Image of the container.  [default: #SBATCH --container-image]"),
    click.option("--name", help="Name of the Job, or of the array.  [default: one that is generated]"),
    click.option(
        "--gpus", type=_Gpus(), metavar="NUMBER", help="GPUs of nvidia.com/gpu, or RESOURCE=NUMBER."
    ),
    click.option("--cpus", metavar="QUANTITY", help="CPU that is requested, such as 4 or 500m."),
    click.option("--memory", metavar="QUANTITY", help="Memory, such as 64Gi: its request and limit."),
    click.option(
        "--time", "seconds", type=_RunTime(), metavar="TIME", help="Longest run time: 90m, 12h, 2-12:00."
    ),
    click.option(
        "--array",
        "tasks",
        type=_Tasks(),
        metavar="NUMBER|INDICES",
        help="A Job for each index (30, 0-29, 1,3,7), which it has as QUEUECTL_ARRAY_INDEX.",
    ),
    click.option(
        "--max-running",
        type=int,
        metavar="NUMBER",
        help="Of an array, the most Jobs that queue or run at a time.  [default: all]",
    ),
    click.option(
        "--interactive",
        is_flag=True,
        default=None,
        help="A pod to work in, in the place of a Job: it waits for `queuectl exec`.",
    ),
    click.option(
        "--after",
        multiple=True,
        metavar="[OUTCOME:]KIND/NAME",
        help="Start once this workload of the namespace has succeeded; with failed: or any: before it, once "
        "it has failed, or ended. More than one: once each has.",
    ),
    click.option(
        "--begin",
        type=BeginTime(),
        metavar="TIME",
        help="Start not before it: 2026-12-01T06:00:00Z, or from now on 90s, 15m, 2h, 7d or now+2hours.",
    ),
)


def job_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that describe a Job; the command gets them as `flags`."""
    names = [field.name for field in fields(JobFlags)]

    @wraps(command)
    def run(*arguments: Any, **values: Any) -> Any:
        flags = JobFlags(**{name: values.pop(name) for name in names})
        return command(*arguments, flags=flags, **values)

    for option in reversed(_FLAGS):
        run = option(run)
    return run


def start_annotations(flags: JobFlags, options: Options) -> dict[str, str]:
    """Return the annotations of --after and --begin. Raises Failure."""
    from queuectl.kinds.json_fields import BadField
    from queuectl.kinds.start_conditions import after_workloads, begin_text

    found = {}
    if flags.after:
        try:
            named = after_workloads(",".join(flags.after), "--after", options.kinds())
        except BadField as problem:
            raise Failure(str(problem)) from None
        found[AFTER] = ",".join(map(str, named))
    if flags.begin is not None:
        found[BEGIN] = begin_text(flags.begin)
    return found


class RequestedJobs(NamedTuple):
    """Manifests of Jobs, and the priority class that the script names."""

    source: tuple[str, bytes]
    priority: str | None


def requested(file: str | None, flags: JobFlags) -> RequestedJobs | None:
    """The Jobs of flags and script; None: FILE has objects. Raises Failure and UsageError."""
    from queuectl.changes.job_request import JobRequest
    from queuectl.changes.submit import BadManifest
    from queuectl.files import BadFile
    from queuectl.importers.slurm_values import BadValue

    program = click.get_current_context().meta.get(PROGRAM, ())
    given = flags.given()
    if flags.interactive and file is not None:
        raise click.UsageError(f"--interactive does not go with {file}: flags describe the pod")
    try:
        script = next(texts(file)) if file is not None and Path(file).is_file() else None
        if script is not None and script[1].startswith(_SCRIPT):
            return _scripted(script, program, given)
        if file is not None:
            if given or program:
                named = f"--{next(iter(given)).replace('_', '-')}" if given else "--"
                raise click.UsageError(f"{named} does not go with {file}, which is not a script")
            return None
        if flags.image is None:
            raise click.UsageError("FILE is missing, or --image and other flags that describe a Job")
        stem = "pod" if flags.interactive else "job"
        return _manifests(JobRequest(command=program, stem=stem, **given), None)
    except (BadFile, BadManifest, BadValue) as problem:
        raise Failure(str(problem)) from None


def _scripted(script: tuple[str, bytes], arguments: tuple[str, ...], given: dict[str, Any]) -> RequestedJobs:
    from queuectl.changes.job_request import JobRequest, script_command
    from queuectl.importers.slurm_script import batch_script

    name, text = script
    command = script_command(text, Path(name).name, arguments)
    found = batch_script(text.decode(), name)
    for note in found.notes:
        click.echo(printable(note), err=True)
    values: dict[str, Any] = dict(found.values)
    stem = str(values.pop("name", Path(name).stem))
    priority = values.pop("priority", None)
    values |= given
    if "image" not in values:
        raise Failure(f"{name}: no image: --image or #SBATCH --container-image names one")
    request = JobRequest(command=command, stem=stem, slurm=True, **values)
    return _manifests(request, None if priority is None else str(priority))


def _manifests(request: JobRequest, priority: str | None) -> RequestedJobs:
    from queuectl.changes.job_request import manifests

    text = "\n".join(map(json.dumps, manifests(request)))
    return RequestedJobs(("the Job of the flags", text.encode()), priority)
