"""Rows of the registry from the configuration: kinds with a suspend field and pod templates."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds import cel
from queuectl.kinds.invalid import Section, problems_of
from queuectl.kinds.jobs import (
    BY_CONDITION,
    Ending,
    JobKind,
    KindRefusal,
    PodLabel,
    Sign,
    Status,
    SuspensionSeen,
    conditions,
    value_at,
)
from queuectl.kinds.json_fields import MAX_COUNT, BadField, Json, clean, kind_of
from queuectl.kinds.podsets import Count, Each, PodSetGroup, Templates
from queuectl.kinds.start_patch import LABELLED

_STEP: Final = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_-]*)|\['([^'\]\x00-\x1f]{1,253})'\]")
MAX_STEPS: Final = 12

Path = tuple[str, ...]
Place = tuple[int | str, ...]
"""Keys and indexes in a row."""


def parse_path(value: object) -> Path:
    """`spec.runPolicy.suspend`; a key of other characters in brackets: `spec.tasks['a.b']`.

    Raises ValueError.
    """
    text, steps, at = value if isinstance(value, str) else "", [], 0
    while found := _STEP.match(text, at):
        if found[0].startswith(".") == (at == 0) and found[1] is not None:
            break
        steps.append(found[1] or found[2])
        at = found.end()
    if at != len(text) or not 0 < len(steps) <= MAX_STEPS:
        raise ValueError(f"must be a path such as spec.suspend of at most {MAX_STEPS} keys, not {value!r}")
    return tuple(steps)


def shown_path(path: Path) -> str:
    """As `parse_path` reads it."""
    steps = (f".{key}" if _STEP.fullmatch(f".{key}") else f"['{key}']" for key in path)
    return "".join(steps).removeprefix(".")


_Parsed = BeforeValidator(lambda value: value if isinstance(value, tuple) else parse_path(value))
AnyPath = Annotated[Path, _Parsed, PlainSerializer(shown_path, when_used="json")]
SpecPath = Annotated[AnyPath, AfterValidator(lambda path: _below("spec", path))]
StatusPath = Annotated[AnyPath, AfterValidator(lambda path: _below("status", path))]
_Key = Annotated[str, StringConstraints(min_length=1, max_length=253)]
_LABEL: Final = r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
_Label = Annotated[str, StringConstraints(max_length=317, pattern=_LABEL)]
_DnsName = Annotated[str, StringConstraints(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=300)]


def _below(root: str, path: Path) -> Path:
    if path[0] != root or len(path) < 2:
        raise ValueError(f"must be the path of a field of the {root}, not {shown_path(path)}")
    return path


class SignRow(Section):
    """A condition, by its type, or a field of the status, by its path."""

    condition: _Key | None = None
    path: StatusPath | None = None
    value: _Key | None = None
    """Of the field. A condition is one whose status is True."""

    @model_validator(mode="after")
    def _one(self) -> SignRow:
        if (self.condition is None) == (self.path is None):
            raise ValueError("set either condition or path")
        if (self.value is None) != (self.path is None):
            raise ValueError("path needs the value of its field, and a condition has none: it is True")
        return self

    def sign(self) -> Sign:
        return Sign(self.condition or self.path or "", self.value or "True")


class EndRow(SignRow):
    succeeded: bool
    pods_gone: bool = False
    """It is shown only once no pod of the object is alive; otherwise its pods are asked for."""

    def ending(self) -> Ending:
        return Ending(self.sign(), WorkloadOutcome.SUCCEEDED if self.succeeded else WorkloadOutcome.FAILED)


class SuspendedRow(SignRow):
    asked: _Key = "Unknown"
    """What queuectl writes in its place after a stop, so that the controller says it again."""

    @model_validator(mode="after")
    def _at_the_top(self) -> SuspendedRow:
        if self.path is not None and len(self.path) > 2:
            raise ValueError(f"must be a field at the top of the status, not {shown_path(self.path)}")
        return self

    def seen(self) -> SuspensionSeen:
        return SuspensionSeen(self.sign(), self.asked)


class CountRow(Section):
    """A number of pods, or of groups of pods."""

    path: AnyPath
    default: int = Field(default=1, ge=0, le=2**31 - 1)
    """Where there is none."""
    at_most: AnyPath | None = None
    """A number that bounds it: parallelism is at most completions."""
    at_least: AnyPath | None = None

    def count(self) -> Count:
        return Count(self.path, self.default, self.at_least or (), self.at_most or ())


def _of_path(value: object) -> object:
    """A path alone is a count without bounds."""
    return {"path": value} if isinstance(value, str) else value


class PodSetRow(Section):
    """One podset, or one for each entry of a list or map."""

    name: _DnsName | None = None
    path: AnyPath | None = None
    """Of what has number and pod template of the podset `name`."""
    for_each: AnyPath | None = None
    """Of a list or map, of which each entry is a podset."""
    name_from: _Key | None = None
    """Key with the name of an entry of the list; none: it is a map, whose keys are the names."""
    types: tuple[_Key, ...] = Field(default=(), max_length=32, strict=False)
    """Keys of the map, in the order of the podsets; none: any, in alphabetical order."""
    counts: tuple[Annotated[CountRow, BeforeValidator(_of_path)], ...] = Field(
        default=(), max_length=4, strict=False
    )
    """Paths in the entry. Their product is the number of pods; none: one pod."""
    template_path: AnyPath = ("template",)
    """In the entry."""
    optional: bool = False
    """Whether the object may do without."""

    @model_validator(mode="after")
    def _one_form(self) -> PodSetRow:
        if (self.path is None) == (self.for_each is None):
            raise ValueError("set either path, for one podset, or forEach, for several")
        if (self.name is None) != (self.path is None):
            raise ValueError("a podset at path needs a name, and one of forEach has that of its entry")
        if self.path is not None and (self.types or self.name_from):
            raise ValueError("types and nameFrom are for forEach")
        if self.types and self.name_from:
            raise ValueError("types are those of a map, nameFrom is for a list")
        if (at := self.path or self.for_each) and at[0] != "spec":
            raise ValueError(f"must be in the spec, not at {shown_path(at)}")
        return self

    def group(self) -> PodSetGroup:
        each = (Each(self.name_from or ""),) if self.for_each else ()
        return PodSetGroup(
            at=(*(self.path or self.for_each or ()), *each),
            name=self.name or "",
            types=self.types,
            counts=tuple(one.count() for one in self.counts),
            template=self.template_path,
            optional=self.optional,
        )


class SelectorRow(Section):
    """A label of its pods."""

    label: _Label
    value_from: AnyPath = Field(default=("name",), alias="from")
    """`name` or `uid` of the object, or the path of another field of it."""

    @field_validator("value_from")
    @classmethod
    def _known(cls, value: Path) -> Path:
        if len(value) == 1 and value[0] not in ("name", "uid"):
            raise ValueError(f"must be name, uid or the path of a field, not {value[0]!r}")
        return value

    def label_of_pods(self) -> PodLabel:
        uid, path = self.value_from == ("uid",), self.value_from if len(self.value_from) > 1 else ()
        return PodLabel(self.label, uid=uid, path=path)


class ManagedByRow(Section):
    path: SpecPath
    values: tuple[_Key, ...] = Field(min_length=1, max_length=8, strict=False)
    """For the usual controller, as has an object without the field. Objects of others do not queue."""


class RefusalRow(Section):
    rule: Annotated[str, StringConstraints(min_length=1, max_length=cel.MAX_EXPRESSION)]
    """CEL over `object`: true of an object that cannot be queued as it is."""
    field: AnyPath
    """To change."""
    message: _Text

    @field_validator("rule")
    @classmethod
    def _compiles(cls, value: str) -> str:
        cel.check(value)
        return value

    @field_validator("message")
    @classmethod
    def _one_line(cls, value: str) -> str:
        return clean(" ".join(value.split()), 300)

    def refusal(self) -> KindRefusal:
        # The policies of the gate hold it on folded lines, as a part of a longer expression.
        return KindRefusal(f"({' '.join(self.rule.split())})", shown_path(self.field), self.message)


class ChildRow(Section):
    api_version: _Key
    kind: _Key


class KindRow(Section):
    """One kind."""

    api_version: str = Field(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+/v[a-z0-9]+$", max_length=317)
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]{0,62}$")
    plural: _DnsName
    short_names: tuple[_DnsName, ...] = Field(default=(), max_length=8, strict=False)
    """For the command line."""
    suspend: SpecPath
    """The field that suspends it."""
    pod_sets: tuple[PodSetRow, ...] = Field(min_length=1, max_length=16, strict=False)
    finished: tuple[EndRow, ...] = Field(min_length=1, max_length=16, strict=False)
    """What its status shows from its end on; the first that it shows applies."""
    suspended: SuspendedRow | None = None
    """What its controller says once it has seen a suspension; none: the condition Suspended."""
    ready: SignRow | None = None
    """What its status shows while all its pods are ready; none: as many as `readyPods` says."""
    ready_pods: tuple[StatusPath, ...] = Field(default=(), max_length=8, strict=False)
    """Numbers of ready pods, which are added."""
    active: tuple[StatusPath, ...] = Field(default=(), max_length=8, strict=False)
    """Numbers of pods that are alive: while they are not 0, the pods themselves are not asked for."""
    pod_selectors: tuple[SelectorRow, ...] = Field(min_length=1, max_length=8, strict=False)
    managed_by: ManagedByRow | None = None
    priority_class_path: AnyPath | None = None
    fixed: tuple[SpecPath, ...] = Field(default=(), max_length=16, strict=False)
    """Further fields that determine number or requests of its pods: they cannot change while it runs."""
    refuse: tuple[RefusalRow, ...] = Field(default=(), max_length=32, strict=False)
    children: tuple[ChildRow, ...] = Field(default=(), max_length=8, strict=False)
    """Kinds of which its controller makes objects, which have the pods: they do not queue by themselves."""
    scale: bool = False
    """Its definition has a scale subresource that writes the number of pods."""

    def job_kind(self, name: str, child: Callable[[str, str], str]) -> JobKind:
        """The row, with a name in the registry. `child`: the name of a row by apiVersion and kind.

        Raises ValueError.
        """
        group, _, version = self.api_version.partition("/")
        podsets = Templates(groups=tuple(one.group() for one in self.pod_sets))
        ends = tuple(one.ending() for one in self.finished)
        managed = self.managed_by
        return JobKind(
            name=name,
            group=group,
            version=version,
            plural=self.plural,
            names=self.short_names,
            suspend=self.suspend,
            podsets=podsets,
            status=Progress(
                podsets=podsets,
                ends=ends,
                gone=tuple(one.sign() for one in self.finished if one.pods_gone),
                ready=self.ready.sign() if self.ready else None,
                ready_pods=self.ready_pods,
                active=self.active,
            ),
            ends=ends,
            pods=(*(one.label_of_pods() for one in self.pod_selectors), LABELLED),
            children=tuple(child(one.api_version, one.kind) for one in self.children),
            managed_by=(managed.path, managed.values) if managed else ((), ()),
            seen=self.suspended.seen() if self.suspended else BY_CONDITION,
            priority_class=self.priority_class_path or (),
            fixed=self.fixed,
            refuse=tuple(one.refusal() for one in self.refuse),
            scale=self.scale,
        )


class BadRow(ValueError):
    """A row is malformed. `problems`: path in the row, and text, of each malformed field."""

    def __init__(self, *problems: tuple[Place, str]) -> None:
        super().__init__("; ".join(text for _, text in problems))
        self.problems = problems


def parse(content: object) -> KindRow:
    """Raises BadRow."""
    if not isinstance(content, dict):
        raise BadRow(((), f"must be an object, not {kind_of(content)}"))
    try:
        return KindRow.model_validate(content)
    except ValidationError as error:
        errors = problems_of(error)
    # A list is not called too short because an entry of it is malformed.
    inner = {one.path[:end] for one in errors for end in range(len(one.path))}
    raise BadRow(
        *((one.path, one.text) for one in errors if one.type != "too_short" or one.path not in inner)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Reads the status of an object of one kind."""

    podsets: Templates
    ends: tuple[Ending, ...]
    gone: tuple[Sign, ...]
    """Of `ends`, those that are shown only once no pod is alive."""
    ready: Sign | None
    """Shown while all pods are ready; None: they are if as many are ready as there are pods."""
    ready_pods: tuple[tuple[str, ...], ...]
    """Paths of numbers of ready pods, which are added."""
    active: tuple[tuple[str, ...], ...]
    """Paths of numbers of pods that are alive."""

    def __call__(self, obj: Json) -> Status:
        found = conditions(obj)
        if any(sign.shows(obj, found) for sign in self.gone):
            return Status(quiet=True)
        # That none is alive may have been written before its start: only the end is a promise.
        quiet = False if _numbers(obj, self.active) else None
        if any(end.sign.shows(obj, found) for end in self.ends):
            return Status(quiet=quiet)
        up = _numbers(obj, self.ready_pods)
        return Status(quiet=quiet, ready=self._ready(obj, found, up), pods_ready=up)

    def _ready(self, obj: Json, found: dict[str, str], up: int | None) -> bool | None:
        if self.ready is not None:
            return self.ready.shows(obj, found)
        if up is None:
            return None
        try:
            return up >= sum(pods.pods for pods in self.podsets.find(obj))
        except BadField:
            return None


def _numbers(obj: Json, paths: tuple[tuple[str, ...], ...]) -> int | None:
    """The sum of the numbers that are there; None if none is."""
    found = [value for path in paths if _is_count(value := value_at(obj, path))]
    return min(sum(found), MAX_COUNT) if found else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
