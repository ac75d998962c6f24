"""docker-compose.yml, checked without Docker: against its specification, and against the files it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from compose_spec import PyOptions

from queuectl.cli import main
from queuectl.settings import load

REPOSITORY = Path(__file__).resolve().parents[3]
FILE = REPOSITORY / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROFILES = (frozenset[str](), frozenset({"observe"}))
OURS = [name for name, service in SERVICES.items() if "queuectl" in service["image"]]


def _active(profiles: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Services that are started with these profiles."""
    return {
        name: service
        for name, service in SERVICES.items()
        if not service.get("profiles") or profiles & set(service["profiles"])
    }


def test_the_file_is_valid_by_the_compose_specification() -> None:
    # Interpolate variables, as Compose does before it parses the file.
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", FILE.read_text()).replace("~/", "/home/somebody/")
    assert "${" not in text
    found = PyOptions(apply_merge=True).from_yaml(text)
    found.validate()
    assert found.service_names() == list(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_has_a_tagged_image_a_health_check_and_a_restart_policy(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[a-z0-9./-]+:v?\d[a-z0-9.-]*", service["image"])
    if name == "migrate":  # it runs to completion
        assert service["restart"] == "on-failure"
        return
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("profiles", PROFILES, ids=lambda found: "+".join(sorted(found)) or "default")
def test_ports_are_on_loopback_and_used_once(profiles: frozenset[str]) -> None:
    taken = []
    for name, service in _active(profiles).items():
        for port in service.get("ports", ()):
            address, host, inside = port.rsplit(":", 2)
            assert address == "127.0.0.1", f"{name}: {port}"
            assert inside.isdigit()
            taken.append(int(host))
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize("profiles", PROFILES, ids=lambda found: "+".join(sorted(found)) or "default")
def test_the_dependencies_of_a_service_are_started_with_it(profiles: frozenset[str]) -> None:
    active = _active(profiles)
    for name, service in active.items():
        shared = service.get("network_mode", "").partition("service:")[2]
        for needed, how in service.get("depends_on", {}).items():
            assert needed in active, f"{name} waits for {needed}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed]
        assert not shared or shared in active
        assert not shared or "ports" not in service


def _mounts() -> Iterator[tuple[str, str, str]]:
    for name, service in SERVICES.items():
        for mount in service.get("volumes", ()):
            found = re.fullmatch(r"(\$\{[^}]*\}|[^:]+):([^:]+)(:ro)?", mount)
            assert found, mount
            yield name, found[1], found[2]


def test_every_mounted_file_exists() -> None:
    for name, source, target in _mounts():
        assert target.startswith("/")
        if source.startswith("./"):
            assert (REPOSITORY / source).exists(), f"{name}: {source}"
        elif not source.startswith("${"):
            assert source in COMPOSE["volumes"], f"{name}: {source}"


def _arguments() -> Iterator[tuple[str, list[str]]]:
    """queuectl command lines of the services."""
    for name in OURS:
        yield name, SERVICES[name]["command"]
        test = SERVICES[name].get("healthcheck", {}).get("test", [])
        if test[1:2] == ["queuectl"]:
            yield f"health of {name}", test[2:]


LINES = dict(_arguments())


@pytest.mark.parametrize("name", LINES)
def test_our_command_lines_are_valid(name: str) -> None:
    """The program parses them and does not run them."""
    first, *rest = LINES[name]
    command, context = _command(first)
    with command.make_context(first, rest, parent=context):
        pass


def _command(name: str) -> tuple[click.Command, click.Context]:
    assert isinstance(main, click.Group)
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None, name
    return command, context


@pytest.mark.parametrize("name", OURS)
def test_our_environment_variables_are_those_that_the_program_reads(name: str) -> None:
    command, _ = _command(SERVICES[name]["command"][0])
    known = {str(option.envvar) for option in command.params if option.envvar}
    for variable, value in SERVICES[name].get("environment", {}).items():
        assert variable in known
        if variable == "QUEUECTL_DATABASE_URL":
            url = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value)
            assert load(database_url=url, environ={}).database_url == url
            assert f"@postgres/{SERVICES['postgres']['environment']['POSTGRES_DB']}" in url


def test_our_containers_have_a_read_only_root_and_no_capabilities() -> None:
    for name in (*OURS, "front"):
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert any(mount.startswith("/tmp") for mount in service["tmpfs"])


def test_prometheus_scrapes_ports_on_which_a_service_listens() -> None:
    config = yaml.safe_load((REPOSITORY / "deploy/compose/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    targets = dict(target.split(":") for target in job["static_configs"][0]["targets"])
    assert set(targets) <= set(SERVICES)
    settings = load(REPOSITORY / "deploy/compose/config.yaml", database_url="postgresql://u@h/d", environ={})
    assert int(targets["observer"]) == settings.controller.listen.port
    assert f":{settings.controller.listen.port}/" in SERVICES["observer"]["healthcheck"]["test"][-1]
    fronted = _fronted()
    command = SERVICES["sandbox"]["command"]
    flags = {command[at]: int(command[at + 1]) for at in range(2, len(command), 2)}
    assert fronted[int(targets["sandbox"])] == flags["--metrics-port"]
    published = {port.rsplit(":", 2)[2]: port.rsplit(":", 2)[1] for port in SERVICES["sandbox"]["ports"]}
    # The kubeconfig has the port inside the container: the published port must be the same.
    assert {fronted[int(inside)]: int(host) for inside, host in published.items()} == {
        flags["--kubernetes-port"]: flags["--kubernetes-port"],
        flags["--rest-port"]: flags["--rest-port"],
    }


def _fronted() -> dict[int, int]:
    """Ports on the sandbox's loopback, by the port of the proxy in front of them."""
    text = (REPOSITORY / "deploy/compose/haproxy.cfg").read_text()
    pairs = re.findall(r"bind :(\d+)\n\s+server sandbox 127\.0\.0\.1:(\d+)", text)
    return {int(outside): int(inside) for outside, inside in pairs}


def test_grafana_finds_its_dashboard_and_prometheus() -> None:
    provisioning = REPOSITORY / "deploy/compose/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    host, _, port = source["url"].removeprefix("http://").partition(":")
    assert f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/queuectl.yaml").read_text())["providers"]
    targets = [target for name, _, target in _mounts() if name == "grafana"]
    assert any(target.startswith(provider["options"]["path"] + "/") for target in targets)
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in targets
