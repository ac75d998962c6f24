"""Write deploy/helm/queuectl from manifests/: `make manifests`.

A folder of manifests/ is a template. Its objects are those of `kubectl apply -k`; image, replicas and the
configuration of each Deployment come from the values. The name of a ConfigMap has no hash: the pods that
mount it have one in an annotation, so that they too are replaced when it changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from queuectl import __version__

REPOSITORY: Final = Path(__file__).resolve().parents[1]
MANIFESTS: Final = REPOSITORY / "manifests"
CHART: Final = REPOSITORY / "deploy" / "helm" / "queuectl"
NAMESPACE: Final = "queuectl-system"
CHECKSUM: Final = "checksum/config"
IMAGE: Final = f"ghcr.io/queuectl/queuectl:{__version__}"
_HEAD = "# Generated from manifests/ by `make manifests`: change those files.\n"
_CONDITIONS: Final = {
    "namespace.yaml": ".Values.createNamespace",
    "mutating": 'and .Values.mutating (semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version)',
    "authors": ".Values.authors",
    "default-queue": 'and .Values.defaultQueue (semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version)',
    "webhook": ".Values.webhook.enabled",
    "notifier": ".Values.notifier.enabled",
}
"""When a part of manifests/ is installed; the others always are."""
_EXPRESSION: Final = re.compile(r"'@\((.*?)\)@'")

Json = dict[str, Any]

_CHART = f"""\
apiVersion: v2
name: queuectl
description: Admission and fair-share queue controller for GPU work on Kubernetes
type: application
version: {__version__}
appVersion: {__version__}
kubeVersion: ">=1.30.0-0"
"""
_VALUES = f"""\
{_HEAD}
# With a digest in production: NAME@sha256:...
image: {IMAGE}

# The namespace queuectl-system is there already: it holds the Secret with the URL of the database.
createNamespace: false

# Kubernetes 1.36 and later: labelled workloads are created suspended. Without effect on older servers.
mutating: true

# Kubernetes 1.36 and later: where a namespace has a LocalQueue named default, all work in it queues.
defaultQueue: false

# Kubernetes 1.36 and later, once queues and flavors are in place: who changes them is recorded.
authors: false
"""
_CHECK = f"""\
{{{{- if ne .Release.Namespace "{NAMESPACE}" }}}}
{{{{- fail "queuectl is installed in the namespace {NAMESPACE}: helm install --namespace {NAMESPACE}" }}}}
{{{{- end }}}}
"""
_NOTES = f"""\
The pods start once the Secret queuectl-database has the URL of a Postgres database:

  kubectl -n {NAMESPACE} create secret generic queuectl-database --from-literal=url=postgresql://...

Next: grant rights, apply queues and flavors, label a Job with its queue (docs/install.md).
"""


def files() -> dict[str, str]:
    """The text of each file, by its path in the chart."""
    found = {"Chart.yaml": _CHART, "templates/check.yaml": _CHECK, "templates/NOTES.txt": _NOTES}
    (kustomization,) = _read(MANIFESTS / "kustomization.yaml")
    values = _VALUES
    for part in (*kustomization["resources"], "mutating", "default-queue", "authors", "webhook", "notifier"):
        name = part.removesuffix(".yaml")
        objects, config, replicas = _part(MANIFESTS / part, name)
        found[f"templates/{name}.yaml"] = _template(objects, _CONDITIONS.get(part))
        if config is not None:
            enabled = "  enabled: false\n" if f".Values.{name}.enabled" in _CONDITIONS.values() else ""
            values += f"\n{name}:\n{enabled}  replicas: {replicas}\n  config: |\n{_indented(config)}"
    return {**found, "values.yaml": values}


def _part(path: Path, name: str) -> tuple[list[Json], str | None, int]:
    """The objects of a folder or file, its configuration if it has one, and how many pods read that."""
    if path.is_file():
        return _read(path), None, 0
    (kustomization,) = _read(path / "kustomization.yaml")
    objects = [thing for entry in kustomization["resources"] for thing in _read(path / entry)]
    config = None
    for generator in kustomization.get("configMapGenerator", ()):
        (file,) = generator["files"]
        config = (path / file).read_text()
        metadata = {"name": generator["name"], "namespace": generator["namespace"]}
        data = {file: f"@(.Values.{name}.config | quote)@"}
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    replicas = sum(_vary(thing["spec"], name) for thing in objects if thing["kind"] == "Deployment")
    return objects, config, replicas


def _vary(spec: Json, name: str) -> int:
    """Let the values decide about a Deployment. Returns the replicas that it had."""
    replicas: int = spec["replicas"]
    spec["replicas"] = f"@(.Values.{name}.replicas)@"
    template = spec["template"]
    checksum = f"@(.Values.{name}.config | sha256sum)@"
    template["metadata"].setdefault("annotations", {})[CHECKSUM] = checksum
    for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
        if container["image"] != IMAGE:
            raise ValueError(f"manifests/{name}: {container['name']} has {container['image']}, not {IMAGE}")
        container["image"] = "@(.Values.image | quote)@"
    return replicas


def _template(objects: list[Json], condition: str | None) -> str:
    text = "---\n".join(map(_dumped, objects))
    if "{{" in text:
        raise ValueError(f"{objects[0]['metadata']['name']}: what looks like an expression must be escaped")
    text = _EXPRESSION.sub(r"{{ \1 }}", text)
    return f"{_HEAD}{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else f"{_HEAD}{text}"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and everything once."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _dumped(thing: Json) -> str:
    return yaml.dump(thing, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)


def _read(path: Path) -> list[Json]:
    if path.is_dir():
        return _part(path, path.name)[0]
    return [thing for thing in yaml.load_all(path.read_text(), yaml.CSafeLoader) if thing]


def _indented(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def written() -> Iterator[Path]:
    """The files that are there now."""
    yield from (path for path in CHART.rglob("*") if path.is_file())


def main() -> None:
    wanted = files()
    for path in written():
        if str(path.relative_to(CHART)) not in wanted:
            path.unlink()
    for name, text in wanted.items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
