"""CEL for the gate's policies, from the rows of a registry.

A policy about all kinds chooses what depends on the kind by `request.resource`, which does not change when an
object is converted from one version to another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from queuectl.kinds.jobs import PASSED, Ending, JobKind, Sign
from queuectl.kinds.labels import KUEUES_OF_PODS
from queuectl.kinds.podsets import Count, Each, Numbered, Own, Place, PodSetGroup, Step, Templates
from queuectl.kinds.start_patch import pointer

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|namespace|null|package|return"
    "|true|var|void|while"
)
"""Words that CEL does not accept as the name of a field."""
Text = Callable[[JobKind], str]
"""An expression for a kind."""


def by_kind(rows: Sequence[JobKind], text: Text) -> str:
    """One expression for all kinds: each with its own, the first kind's for all others."""
    alike: dict[str, list[JobKind]] = {}
    for row in rows:
        alike.setdefault(text(row), []).append(row)
    (first, _), *others = alike.items()
    chosen = "".join(f"{about(members, rows)} ? {own} : " for own, members in others)
    return f"({chosen}{first})"


def about(members: Sequence[JobKind], rows: Sequence[JobKind]) -> str:
    """An expression: the request is about one of these kinds, and not about another one of the rows."""
    groups: dict[str, list[str]] = {}
    for row in members:
        groups.setdefault(row.group, []).append(row.plural)
    shared = {row.group for row in rows if row.plural not in groups.get(row.group, [])}
    whole = [group for group in groups if group not in shared]
    parts = [f"request.resource.group {_one_of(whole)}"] if whole else []
    parts += [
        f"request.resource.group == '{group}' && request.resource.resource {_one_of(names)}"
        for group, names in groups.items()
        if group not in whole
    ]
    return parts[0] if len(parts) == 1 else f"({' || '.join(parts)})"


def suspend(row: JobKind, holder: str) -> str:
    """The optional value of the field that suspends an object."""
    return _optional(holder, row.suspend)


def suspend_applied(row: JobKind) -> str:
    """The spec of an apply configuration that suspends an object."""
    types = [".".join(("Object", *row.suspend[:depth])) for depth in range(1, len(row.suspend))]
    return (
        "".join(f"{of}{{{key}: " for of, key in zip(types, row.suspend[1:], strict=True))
        + "true"
        + "}" * len(types)
    )


def asked(row: JobKind) -> str:
    """Whether the status at `key` changes only to ask its controller whether it sees the object suspended."""
    sign, value = row.seen
    if not value:
        return "false"
    if not isinstance(sign.of, str):
        below = sign.of[1:]
        told = f"key == {below[0]!r} && {_optional('object', sign.of)} == optional.of({value!r})"
        one, other = (f"o[{place}].status[?key].orValue({{}})" for place in (0, 1))
        return f"{told} && {_kept([below[1:]], one, other)}" if below[1:] else told
    of = f"type == {sign.of!r}"
    return (
        "key == 'conditions' && [[object, oldObject].map(o, o.?status.?conditions.orValue([]))].all(both,"
        f" size(both[0]) == size(both[1])"
        f" && both[0].all(one, one in both[1] || (one.{of} && one.status == {value!r}))"
        f" && both[1].all(one, one.{of} || one in both[0]))"
    )


def ended(row: JobKind, holder: str) -> str:
    """Whether the status of an object shows its end."""
    types = [repr(end.sign.of) for end in row.ends if isinstance(end.sign.of, str) and end.unless is None]
    shown = [_ending(end, holder) for end in row.ends if not isinstance(end.sign.of, str) or end.unless]
    if types:
        condition = f"condition.type in [{', '.join(types)}] && condition.status == 'True'"
        shown.insert(0, f"{holder}.?status.?conditions.orValue([]).exists(condition, {condition})")
    return f"({' || '.join(shown)})" if len(shown) > 1 else shown[0] if shown else "false"


def _ending(end: Ending, holder: str) -> str:
    shown = _shows(end.sign, holder)
    return f"({shown} && !{_shows(end.unless, holder)})" if end.unless else shown


def _shows(sign: Sign, holder: str) -> str:
    if isinstance(sign.of, str):
        condition = f"condition.type == {sign.of!r} && condition.status == {sign.value!r}"
        return f"{holder}.?status.?conditions.orValue([]).exists(condition, {condition})"
    return f"{_optional(holder, sign.of)} == optional.of({sign.value!r})"


def parts(row: JobKind, holder: str) -> str:
    """What has a number of pods and a pod template in an object: a list of maps."""
    if not isinstance(row.podsets, Templates):
        return "[]"
    groups = row.podsets.groups
    # Podsets of two groups are never taken for each other.
    named = [(group, f"{place}/" if len(groups) > 1 else "") for place, group in enumerate(groups)]
    return " + ".join(_parts(group, holder, prefix) for group, prefix in named)


def _parts(group: PodSetGroup, holder: str, prefix: str) -> str:
    found = _optional(holder, group.parent)
    if group.each is None:
        part = _part(group, "one", repr(group.name), prefix)
        if group.optional:
            return f"({found}.hasValue() ? [{found}.value()] : []).map(one, {part})"
        return f"[{found}.orValue({{}})].map(one, {part})"
    if group.each.key:
        name = _optional("one", (group.each.key,)) + ".orValue('')"
        return f"{found}.orValue([]).map(one, {_part(group, 'one', name, prefix)})"
    entry = f"{_plain(holder, group.parent)}[name]"
    return f"{found}.orValue({{}}).map(name, {_part(group, entry, 'name', prefix)})"


def entries(row: JobKind, holder: str) -> str:
    """How many annotations and labels an object has, those of its pod templates included."""
    own = (f"size({holder}.metadata.?{field}.orValue({{}}))" for field in ("annotations", "labels"))
    of_pods = f"({template_marks(row, holder, 'labels')}).map(labels, size(labels)).sum()"
    return " + ".join((*own, of_pods) if isinstance(row.podsets, Templates) else own)


def listed(row: JobKind, holder: str) -> str:
    """How many pod templates an object has in lists: each is looked up in the list of the other object."""
    groups = row.podsets.groups if isinstance(row.podsets, Templates) else ()
    keyed = (group for group in groups if group.each is not None and group.each.key)
    return " + ".join(f"size({_optional(holder, group.parent)}.orValue([]))" for group in keyed) or "0"


def template_marks(row: JobKind, holder: str, field: str) -> str:
    """The `annotations` or `labels` of all pod templates of an object: a list of maps."""
    if not isinstance(row.podsets, Templates):
        return "[]"
    return " + ".join(_marks(group, holder, field) for group in row.podsets.groups)


def _marks(group: PodSetGroup, holder: str, field: str) -> str:
    below = (*group.template, "metadata", field)
    found = _optional(holder, group.parent)
    if group.each is None:
        return f"[{_optional(holder, (*group.parent, *below))}.orValue({{}})]"
    if group.each.key:
        return f"{found}.orValue([]).map(one, {_optional('one', below)}.orValue({{}}))"
    entry = f"{_plain(holder, group.parent)}[name]"
    return f"{found}.orValue({{}}).map(name, {_optional(entry, below)}.orValue({{}}))"


def _part(group: PodSetGroup, entry: str, name: str, prefix: str) -> str:
    """`name`: an expression of the name of its entry. `prefix`: of the names of the group."""
    pod_set = f"{name}.lowerAscii()" if group.types else name
    name = f"{prefix!r} + {name}" if prefix else name
    spec = _optional(entry, (*group.template, "spec"))
    labels = _optional(entry, (*group.template, "metadata", "labels"))
    pods = " * ".join(_count(count, entry) for count in group.counts) or "1"
    return (
        f"{{'name': dyn({name}), 'podset': dyn({pod_set}), 'pods': dyn({pods}), 'spec': {spec}.orValue({{}}),"
        f" 'labels': {labels}.orValue({{}})}}"
    )


def _count(count: Count, entry: str) -> str:
    value = f"{_optional(entry, count.path)}.orValue({count.default})"
    for bound, choice in ((count.at_least, "max"), (count.at_most, "min")):
        if bound:
            value = f"[{value}, {_optional(entry, bound)}.orValue({value})].{choice}()"
    return value


def fixed(row: JobKind, new: str, old: str) -> str:
    """Whether the further fields that do not change while it runs are the same in both objects."""
    if not isinstance(row.podsets, Templates):
        both = f"[[{new}, {old}], [{old}, {new}]]"
        return f"{both}.all(o, {_kept((row.suspend[1:],), 'o[0].spec', 'o[1].spec')})"
    return " && ".join(f"{_optional(new, path)} == {_optional(old, path)}" for path in row.fixed) or "true"


def refused(row: JobKind) -> str:
    """The text that says why an object can't be queued as it is; empty if it can."""
    texts = "".join(f"{one.rule} ? {f'{one.field}: {one.message}'!r} : " for one in row.refuse)
    return f"({texts}'')" if texts else "''"


def kept(row: JobKind, one: str, other: str) -> str:
    """Whether the spec `other` has what the spec `one` has, but for what a start or a stop writes.

    Pod templates are left out: `templates` lists them.
    """
    places: list[Place] = [row.suspend, *row.podsets.writes]
    if isinstance(row.podsets, Templates):
        places += [group.places(()) for group in row.podsets.groups]
    places += row.counts
    places += [row.deadline] if row.deadline else []
    return _kept([place[1:] for place in places], one, other)


def _kept(places: Sequence[Place], one: str, other: str) -> str:
    """Each place starts below `one`; an empty one is all of it."""
    below: dict[Step, list[Place]] = {}
    for place in places:
        below.setdefault(place[0], []).append(place[1:])
    match next(iter(below)):
        case Each() as each:
            named = {key: rest for key, rest in below.items() if isinstance(key, str)}
            return _kept_each(each, below[each], named, one, other)
        case Numbered(limit) as numbered:
            inside = _kept(below[numbered], f"{one}[place]", f"{other}[place]")
            places_of = f"{[*range(limit)]}.all(place, place >= size({one}) || {inside})"
            return f"size({one}) == size({other}) && size({one}) <= {limit} && {places_of}"
        case Own() as own:
            return _kept_but_own(own, one, other)
    keys = ", ".join(repr(key) for key in below)
    found = [f"{one}.all(key, key in [{keys}] || {one}[?key] == {other}[?key])"]
    for key, rest in below.items():
        if () not in rest:
            inside_both = (_optional(holder, (str(key),)) for holder in (one, other))
            found.append(_kept(rest, *(f"{value}.orValue({_empty(rest)})" for value in inside_both)))
    return " && ".join(found)


def _empty(below: Sequence[Place]) -> str:
    """What has nothing at these places: a list, or a map."""
    first = below[0][0]
    return "{}" if isinstance(first, str) or (isinstance(first, Each) and not first.key) else "[]"


def _kept_but_own(own: Own, one: str, other: str) -> str:
    """All entries but queuectl's own, which holds only what it may."""
    ours = f"{_plain('entry', (own.key,))} == {own.value!r}"
    others = [f"{holder}.filter(entry, !({ours}))" for holder in (one, other)]
    inside = _only([(own.key,), *own.holds], f"{one}.filter(entry, {ours})[0]")
    return f"{others[0]} == {others[1]} && (!{one}.exists(entry, {ours}) || {inside})"


def _only(places: Sequence[Place], holder: str) -> str:
    """Whether there is nothing but what is at these places."""
    below: dict[Step, list[Place]] = {}
    for place in places:
        below.setdefault(place[0], []).append(place[1:])
    each = next((step for step in below if isinstance(step, Each)), None)
    if each is not None:
        return f"{holder}.all(one, {_only(below[each], 'one')})"
    found = [f"{holder}.all(key, key in [{', '.join(map(repr, below))}])"]
    for key, rest in below.items():
        if () not in rest:
            found.append(_only(rest, f"{_optional(holder, (str(key),))}.orValue({_empty(rest)})"))
    return " && ".join(found)


def _kept_each(each: Each, rest: list[Place], named: Mapping[str, list[Place]], one: str, other: str) -> str:
    """Of every entry: those of a list are in the same order. `named`: further places in entries of a map."""
    if not each.key:
        entries = (f"{one}[name]", f"{other}[name]")
        inside = _kept(rest, *entries)
        for name, more in named.items():
            inside = f"(name == {name!r} ? {_kept([*rest, *more], *entries)} : {inside})"
        return f"{one}.all(name, name in {other} && {inside})"
    key = _plain("entry", (each.key,))
    same = f"same{key.removeprefix('entry')}"
    inside = _kept(rest, "entry", "same")
    return (
        f"{one}.map(entry, {key}) == {other}.map(entry, {key})"
        f" && {one}.all(entry, {other}.exists(same, {same} == {key} && {inside}))"
    )


def counted(row: JobKind) -> str:
    """Whether numbers of pods change only by a start with fewer, which records those before, and back.

    `marks`: the reserved-admission annotations of both objects.
    """
    if not row.counts:
        return "true"
    # Now, before, as recorded now, as recorded before; -1 where there is none.
    fields = ", ".join(
        f"[{_optional('object', path)}.orValue(-1), {_optional('oldObject', path)}.orValue(-1)]"
        f" + marks.map(mark, dyn(int((mark.find('\"{pointer(path)}\":[0-9]+') + ':-1').split(':')[1])))"
        for path in row.counts
    )
    return (
        f"[{fields}].all(count, count[2] in [dyn(-1), count[1], count[3]] && (count[0] == count[1]"
        f" || (count[0] >= 0 && count[0] == count[3]) || ({suspend(row, 'oldObject')} == optional.of(true)"
        f" && {suspend(row, 'object')} != optional.of(true)"
        " && count[0] >= 1 && count[0] < count[1] && count[2] >= 0)))"
    )


def deadline_kept(row: JobKind) -> str:
    """Whether the seconds of the deadline stay as they are, or have passed for an object that runs."""
    if not row.deadline:
        return "true"
    new, old = (_optional(holder, row.deadline) for holder in ("object", "oldObject"))
    return (
        f"{new} == {old} || ({new} == optional.of({PASSED}) && {suspend(row, 'object')} != optional.of(true)"
        f" && {suspend(row, 'oldObject')} != optional.of(true))"
    )


def templates(row: JobKind) -> str:
    """A list of all pod templates: each with the one before."""
    if not isinstance(row.podsets, Templates):
        return "[]"
    return " + ".join(_templates(group) for group in row.podsets.groups)


def _templates(group: PodSetGroup) -> str:
    new, old = (_optional(holder, group.parent) for holder in ("object", "oldObject"))
    if group.each is None:
        new, old = (_optional(value, group.template) for value in (new, old))
        return f"[[{new}.orValue({{}}), {old}.orValue({{}})]]"
    if not group.each.key:
        pair = ", ".join(
            _plain(f"{_plain(holder, group.parent)}[name]", group.template)
            for holder in ("object", "oldObject")
        )
        return f"{new}.orValue({{}}).map(name, [{pair}])"
    key = _plain("", (group.each.key,))
    before = _plain(f"{old}.value().filter(same, same{key} == entry{key})[0]", group.template)
    return f"{new}.orValue([]).map(entry, [{_plain('entry', group.template)}, {before}])"


def by_controller_of_owner(rows: Sequence[JobKind]) -> str:
    """Whether its owner is of one of these kinds, and the user may write the status of all of them."""
    plurals = {f"{row.group}/{row.kind}": row.plural for row in rows}
    group = "owner.apiVersion.split('/')[0]"
    return _by_controller(f"{plurals}[?{group} + '/' + owner.kind].optMap(plural,", group, "plural")


def by_controller_of_template(owners: Mapping[str, tuple[str, str]]) -> str:
    """Whether the controller of a template made it, which `gate/attribution` has checked.

    `owners`: group and plural of what has the template, by API version and kind of the owner.
    """
    resources = {owner: list(resource) for owner, resource in owners.items()}
    found = f"{resources}[?owner.apiVersion + '/' + owner.kind].optMap(resource,"
    return _by_controller(found, "resource[0]", "resource[1]")


def _by_controller(found: str, group: str, plural: str) -> str:
    """`found`: names for `group` and `plural` what is known of the resource of an owner."""
    return (
        "object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller == optional.of(true)"
        f" && {found} authorizer.group({group}).resource({plural}).subresource('status')"
        ".check('update').allowed()).orValue(false))"
    )


def groups_of_user() -> str:
    """The groups of the user that sends the request, those of Kubernetes left out, with commas."""
    return (
        "request.userInfo.?groups.orValue([]).filter(group, group != ''"
        " && !group.startsWith('system:') && !group.contains(',')).join(',')"
    )


def attributed() -> str:
    """The annotations that say whose an object is, with the values of the user that sends the request."""
    return (
        "{'queuectl.dev/user': request.userInfo.username, 'queuectl.dev/reserved-submitter':"
        f" request.userInfo.username, 'queuectl.dev/reserved-groups': {groups_of_user()}}}"
    )


def submitter_applied() -> str:
    """The annotations of an apply configuration: the creator, and its groups if no other user is named."""
    own = '"queuectl.dev/reserved-submitter": request.userInfo.username'
    return (
        "(object.metadata.?annotations[?'queuectl.dev/user'].orValue(request.userInfo.username) !="
        f" request.userInfo.username || {groups_of_user()} == '' ? {{{own}}} : {{{own},"
        f' "queuectl.dev/reserved-groups": {groups_of_user()}}})'
    )


def given_by_kueue(field: str) -> str:
    """Labels or annotations of an apply configuration: queuectl's, where Kueue's give them to a pod."""
    found = []
    for key, sources in KUEUES_OF_PODS.items():
        if key[0] == field:
            own, *others = (f"object.metadata.?{of}[?{name!r}]" for of, name in (key, *sources))
            found.append(f"?{key[1]!r}: {own}{''.join(f'.or({other})' for other in others)}")
    return f"{{{', '.join(found)}}}"


def queued_later() -> str:
    """Whether an update gives an object its first queue, and no submitter is recorded on it."""
    labels = "metadata.?labels.orValue({})"
    return (
        f"!('queuectl.dev/queue-name' in oldObject.{labels})"
        " && ['queuectl.dev/queue-name', 'kueue.x-k8s.io/queue-name'].exists(label,"
        f" label in object.{labels} && !(label in oldObject.{labels}))"
        " && !('queuectl.dev/reserved-submitter' in object.metadata.?annotations.orValue({}))"
    )


def loses_its_owner(rows: Sequence[JobKind]) -> str:
    """Whether `o` has an owner of one of these kinds that is its controller, and the new object has none."""
    kinds = sorted({f"{row.group}/{row.kind}" for row in rows})
    return (
        "[o, object].map(one, one.metadata.?ownerReferences.orValue([]).exists(owner,"
        " owner.?controller == optional.of(true)"
        f" && owner.apiVersion.split('/')[0] + '/' + owner.kind in {kinds})) == [true, false]"
    )


def _one_of(values: Sequence[str]) -> str:
    return f"== '{values[0]}'" if len(values) == 1 else f"in [{', '.join(map(repr, values))}]"


def _optional(holder: str, path: Sequence[str]) -> str:
    """The optional value at a path."""
    for key in path:
        holder += f".?{key}" if _selectable(key) else f"[?{key!r}]"
    return holder


def _plain(holder: str, path: Sequence[str]) -> str:
    """The value at a path that is there."""
    for key in path:
        holder += f".{key}" if _selectable(key) else f"[{key!r}]"
    return holder


def _selectable(key: str) -> bool:
    return bool(_IDENTIFIER.fullmatch(key)) and not _RESERVED.fullmatch(key)


class AttributedTemplate(NamedTuple):
    """A template in the spec of some resources, which have a policy for it."""

    name: str
    """Of what is made of it: ends the name of its policies."""
    made: str
    """What is made of it, for messages."""
    group: str
    resources: tuple[str, ...]
    path: tuple[str, ...]
    """Fields below `spec`."""
    makers: Mapping[str, tuple[str, str]] = {}
    """Group and plural of what has a template that names the user, by API version and kind of the owner of
    what its controller makes of that."""

    def applied(self) -> str:
        """Return the apply configuration with the name of its user, and its groups."""
        user = '"queuectl.dev/user": variables.user'
        text = (
            f"{{annotations: variables.groups == '' ? {{{user}}}"
            f' : {{{user}, "queuectl.dev/reserved-groups": variables.groups}}}}'
        )
        fields = ("spec", *self.path, "metadata")
        for depth in range(len(fields), 0, -1):
            text = f"{{{fields[depth - 1]}: {'.'.join(('Object', *fields[:depth]))}{text}}}"
        return f"Object{text}"


_LEADER_WORKER_SETS: Final = ("leaderworkerset.x-k8s.io", "leaderworkersets")
CRON_JOBS: Final = AttributedTemplate("cronjobs", "Jobs", "batch", ("cronjobs",), ("jobTemplate",))
OF_PODS: Final = (
    AttributedTemplate(
        "pods",
        "pods",
        "apps",
        ("deployments", "replicasets", "statefulsets"),
        ("template",),
        {
            "apps/v1/Deployment": ("apps", "deployments"),
            "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet": _LEADER_WORKER_SETS,
            "v1/Pod": _LEADER_WORKER_SETS,
        },
    ),
    *(
        AttributedTemplate(f"{role}s", "pods", group, (plural,), ("leaderWorkerTemplate", f"{role}Template"))
        for group, plural in (_LEADER_WORKER_SETS,)
        for role in ("leader", "worker")
    ),
)
"""Those of pods. The StatefulSet with the workers of a LeaderWorkerSet is owned by their leader, a pod."""
