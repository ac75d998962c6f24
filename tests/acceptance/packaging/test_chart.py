"""The Helm chart: the same objects as kustomize renders."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from queuectl import __version__
from queuectl.sandbox.control_plane import find_assets
from release.chart import CHART, CHECKSUM, MANIFESTS, files, written
from tests.acceptance.packaging.helm import Json, lint, render

PARTS: dict[str, tuple[str, Json, int]] = {
    "base": (".", {"createNamespace": True, "mutating": False}, 36),
    "mutating": ("mutating", {}, 36),
    "authors": ("authors", {"authors": True}, 36),
    "webhook": ("webhook", {"webhook": {"enabled": True}}, 35),
    "notifier": ("notifier", {"notifier": {"enabled": True}}, 36),
}
"""Folder below manifests/, the values that add it to the chart, and the server's minor version."""
Identity = tuple[str, str, str]


def identity(thing: Json) -> Identity:
    return thing["kind"], thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def by_identity(objects: list[Json]) -> dict[Identity, Json]:
    found = {identity(thing): thing for thing in objects}
    assert len(found) == len(objects)
    return found


def kustomized(folder: Path) -> list[Json]:
    """The objects of `kubectl apply -k`, without the hash in the names of ConfigMaps."""
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: there is no kubectl to render manifests/")
    command = [str(assets / "kubectl"), "kustomize", str(folder)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    for name in re.findall(r"^kind: ConfigMap\nmetadata:\n  name: (\S+-[a-z0-9]{10})$", text, re.MULTILINE):
        text = text.replace(name, name.rpartition("-")[0])
    return list(yaml.load_all(text, yaml.CSafeLoader))


def without_checksum(thing: Json) -> Json:
    """The object without the annotation that only the chart has."""
    if thing["kind"] == "Deployment":
        metadata = thing["spec"]["template"]["metadata"]
        assert re.fullmatch(r"[0-9a-f]{64}", metadata["annotations"].pop(CHECKSUM))
        if not metadata["annotations"]:
            del metadata["annotations"]
    return thing


def test_the_chart_is_what_make_manifests_writes() -> None:
    found = {str(path.relative_to(CHART)): path.read_text() for path in written()}
    assert found == files()
    chart = yaml.safe_load(found["Chart.yaml"])
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_the_objects_of_kustomize(part: str) -> None:
    folder, values, minor = PARTS[part]
    objects = by_identity(list(map(without_checksum, render(values, minor))))
    wanted = by_identity(kustomized(MANIFESTS / folder))
    if part == "base":
        assert objects.keys() == wanted.keys()
    assert {name: objects[name] for name in wanted} == wanted


def test_what_is_optional_is_left_out_by_default() -> None:
    deployments = {thing["metadata"]["name"] for thing in render({}, 36) if thing["kind"] == "Deployment"}
    assert deployments == {"queuectl-controller", "queuectl-api"}


def test_an_older_server_gets_no_mutating_policy() -> None:
    for minor, expected in ((35, False), (36, True)):
        kinds = {thing["kind"] for thing in render({}, minor)}
        assert ("MutatingAdmissionPolicy" in kinds) is expected
        assert "Namespace" not in kinds


def test_values_set_image_replicas_and_configuration() -> None:
    config = 'controller:\n  listen: "0.0.0.0:9"\n'
    values = {"image": "mine@sha256:0", "controller": {"replicas": 3, "config": config}}
    before, after = (by_identity(render(found, 36)) for found in ({}, values))
    place = ("Deployment", "queuectl-system", "queuectl-controller")
    template = after[place]["spec"]["template"]
    assert after[place]["spec"]["replicas"] == 3
    pods = template["spec"]
    assert {c["image"] for c in (*pods["initContainers"], *pods["containers"])} == {"mine@sha256:0"}
    settings = after["ConfigMap", "queuectl-system", "queuectl-controller-config"]["data"]
    assert settings == {"config.yaml": config}
    # The pods are replaced when their configuration changes, and those of REST are not.
    checksums = [
        found[place]["spec"]["template"]["metadata"]["annotations"][CHECKSUM] for found in (before, after)
    ]
    assert checksums[0] != checksums[1]
    rest = ("Deployment", "queuectl-system", "queuectl-api")
    annotations = [found[rest]["spec"]["template"]["metadata"]["annotations"] for found in (before, after)]
    assert annotations[0] == annotations[1]


def test_helm_lint_finds_nothing() -> None:
    assert "0 chart(s) failed" in lint()
