"""Write queuectl/sandbox/kubernetes/protobuf.yaml from the Go modules of Kubernetes.

    python -m tests.integration.kube_api.make_protobuf "$(go env GOMODCACHE)/k8s.io" 0.36.2

The argument is the folder with the modules `api` and `apimachinery` at that version: numbers and types of
fields are in their generated.proto; whether a field is a pointer, and its JSON name, in their types.go.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).resolve().parents[3] / "queuectl/sandbox/kubernetes/protobuf.yaml"
_GROUPS = (
    *("admissionregistration", "apps", "authentication", "authorization", "batch", "coordination", "core"),
    *("events", "networking", "node", "policy", "rbac", "scheduling"),
)
_META = "pkg/apis/meta/v1"
_ROOTS = {
    "apps": "Deployment StatefulSet",
    "authentication": "SelfSubjectReview TokenRequest",
    "authorization": "SelfSubjectAccessReview SelfSubjectRulesReview",
    "batch": "CronJob Job",
    "coordination": "Lease",
    "core": "Binding ConfigMap Event LimitRange Namespace Node Pod ResourceQuota Secret Service"
    " ServiceAccount",
    "events": "Event",
    "meta": "DeleteOptions",
    "networking": "NetworkPolicy",
    "node": "RuntimeClass",
    "policy": "PodDisruptionBudget",
    "rbac": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "scheduling": "PriorityClass",
}
"""The messages that are sent: those of the served kinds that kubectl has typed clients for."""
_LEAVES = ("Time", "MicroTime", "Quantity", "IntOrString", "FieldsV1", "ExtraValue")
"""Messages with a JSON form of their own."""
_SCALARS = ("string", "bytes", "bool", "int32", "int64", "double")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"(optional|repeated|map<string, ([\w.]+)>) ?([\w.]*) (\w+) = (\d+)")
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.DOTALL | re.MULTILINE)
_MEMBER = re.compile(r'^\t(?:\w+ +)?([\w*.\[\]]+) +`json:"([^"]*)" protobuf:"\w+,(\d+)', re.MULTILINE)


class Member(NamedTuple):
    """One field of a Go struct; the name is empty if its fields are inlined."""

    name: str
    pointer: bool


Table = dict[str, dict[int, str]]


def read(modules: Path, version: str) -> Table:
    """All messages: `name type` by field number; `?` marks a pointer, `[]` a list, `{}` a map."""
    table: Table = {}
    for package, folder in _packages(modules, version):
        protocol = _COMMENT.sub("", (folder / "generated.proto").read_text())
        code = "\n".join(path.read_text() for path in sorted(folder.glob("*types.go")))
        members = {name: _members(body) for name, body in _STRUCT.findall(code)}
        for name, body in _MESSAGE.findall(protocol):
            if name not in _LEAVES:
                table[f"{package}.{name}"] = dict(_fields(package, body, members.get(name, {})))
    return table


def _packages(modules: Path, version: str) -> Iterator[tuple[str, Path]]:
    for group in _GROUPS:
        yield f"{group}.v1", modules / f"api@v{version}" / group / "v1"
    yield "meta.v1", modules / f"apimachinery@v{version}" / _META


def _members(body: str) -> dict[int, Member]:
    found = {}
    for kind, tag, number in _MEMBER.findall(body):
        found[int(number)] = Member(tag.partition(",")[0], kind.startswith("*"))
    return found


def _fields(package: str, body: str, members: dict[int, Member]) -> Iterator[tuple[int, str]]:
    for label, value, kind, name, digits in _FIELD.findall(body):
        number = int(digits)
        member = members.get(number, Member(name, False))
        mark = {"optional": "?" if member.pointer else "", "repeated": "[]"}.get(label, "{}")
        yield number, f"{member.name or '.'} {mark}{_type(package, value or kind)}"


def _type(package: str, name: str) -> str:
    if name in _SCALARS:
        return name
    path, _, last = name.rpartition(".")
    if last in _LEAVES:
        return last
    if not path:
        return f"{package}.{last}"
    group, version = path.split(".")[-2:]
    return f"{group}.{version}.{last}"


def reachable(table: Table) -> Table:
    """What the roots need."""
    found: Table = {}
    waiting = [f"{group}.v1.{name}" for group, names in _ROOTS.items() for name in names.split()]
    while waiting:
        name = waiting.pop()
        if name in found or name not in table:
            continue
        found[name] = table[name]
        waiting += [field.split()[1].lstrip("?[]{}") for field in table[name].values()]
    return dict(sorted(found.items()))


def main(modules: str, version: str) -> None:
    lines = [
        "# Fields of the protobuf messages that kubectl sends: `name type` by number, from Kubernetes",
        f"# {version} by tests/integration/kube_api/make_protobuf.py. `?` is a pointer (a zero is a value),",
        "# `[]` a list, `{}` a map; the fields of `.` are those of the message around it.",
        "",
    ]
    for name, fields in reachable(read(Path(modules), version)).items():
        lines.append(f"{name}:")
        lines += [f"  {number}: {fields[number]!r}" for number in sorted(fields)]
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
