"""REST of a cluster, by a kubeconfig alone: found, reached through the API server, and given a token."""

from __future__ import annotations

import asyncio
import fcntl
import json
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import trustme
from aiohttp import web
from click.shell_completion import get_completion_class

from queuectl.cli import contexts, main
from queuectl.kube.proxied import HOST
from queuectl.net.relay import relay
from tests.unit.cli.clusters import Cluster
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Script, answering
from tests.unit.cli.test_identity import CLUSTER, jwt
from tests.unit.cli.test_listing import workload

SYSTEM = "/api/v1/namespaces/queuectl-system"
CA = f"{SYSTEM}/configmaps/queuectl-api-ca"
TUNNEL = f"{SYSTEM}/services/https:queuectl-api:rest/proxy/tunnel"
VIEWER = "/api/v1/namespaces/{}/serviceaccounts/queuectl-viewer/token"
JOB = "/apis/batch/v1/namespaces/default/jobs/train"
TOKEN = "opaque-token-of-the-kubeconfig"


class Installed(Cluster):
    """A cluster with queuectl: REST is behind the service proxy."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self.rest: tuple[str, int] = ("127.0.0.1", 0)
        self.tokens: dict[str, list[str]] = {}
        """Tokens that are given out, in order, by the path of the request."""
        self.requested: list[Any] = []
        self.headers: list[str | None] = []
        """Authorization of each request."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.headers.append(request.headers.get("Authorization"))
        if request.path == TUNNEL and ("GET", TUNNEL) not in self.refusals:
            self.asked.append(("GET", TUNNEL))
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await relay(socket, *await asyncio.open_connection(*self.rest))
            return socket
        if request.path.endswith("/token") and ("POST", request.path) not in self.refusals:
            if not self.tokens.get(request.path):
                return web.json_response({"message": "no such service account"}, status=404)
            self.asked.append(("POST", request.path))
            self.requested.append((await request.json())["spec"])
            return web.json_response({"status": {"token": self.tokens[request.path].pop(0)}}, status=201)
        return await super().answer(request)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def cluster(authority: trustme.CA, script: Script) -> Iterator[Installed]:
    """Its URL is `cluster.url`."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST).configure_cert(tls)
    found = Installed()
    found.add(CA, data={"ca.crt": authority.cert_pem.bytes().decode()})
    found.add(JOB, metadata={"labels": {"queuectl.dev/queue-name": "main"}}, spec={"suspend": True})
    script.page("workloads", workload("train"))
    script.audiences = ["queuectl", CLUSTER]
    with answering(script.answer, tls=tls) as rest, answering(found.answer) as url:
        found.rest = ("127.0.0.1", urlsplit(rest).port or 0)
        found.url = url
        yield found


def kubeconfig(folder: Path, cluster: Installed, user: dict[str, Any], name: str = "kubeconfig") -> str:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "clusters": [{"name": "c", "cluster": {"server": cluster.url}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}],
    }
    path = folder / name
    path.write_text(json.dumps(content))
    return str(path)


def plugin(folder: Path, token: str) -> dict[str, Any]:
    """An exec plugin that writes a line into `ran` at each run."""
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    program = folder / "plugin.py"
    program.write_text(f"open({str(folder / 'ran')!r}, 'a').write('x'); print({json.dumps(credential)!r})")
    version = credential["apiVersion"]
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(program)]}}


def oidc(token: str) -> dict[str, Any]:
    return {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}


def token_file(folder: Path) -> dict[str, Any]:
    (folder / "token").write_text(TOKEN)
    return {"tokenFile": str(folder / "token")}


@pytest.mark.parametrize("kind", ["token", "token file", "exec plugin", "oidc"])
def test_by_a_kubeconfig_alone_with_its_token(
    run: Run, cluster: Installed, script: Script, tmp_path: Path, kind: str
) -> None:
    user, token = {
        "token": ({"token": TOKEN}, TOKEN),
        "token file": (token_file(tmp_path), TOKEN),
        "exec plugin": (plugin(tmp_path, TOKEN), TOKEN),
        # As an issuer makes it: its audience is the client that the API server is there.
        "oidc": (oidc(jwt("kubernetes", sub="alice")), jwt("kubernetes", sub="alice")),
    }[kind]
    script.accepts = token
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, user))
    assert result.exit_code == 0, result.stderr
    assert "job/train" in result.stdout
    assert result.stderr == (
        f"context dev ({cluster.url}): REST through the API server, with the token of the kubeconfig\n"
    )
    assert set(cluster.headers) == {f"Bearer {token}"}
    assert cluster.asked == [("GET", CA), ("GET", TUNNEL), ("GET", TUNNEL)]
    assert script.tokens == [None, f"Bearer {token}"]


def test_a_plugin_runs_once_for_a_command(
    run: Run, cluster: Installed, script: Script, tmp_path: Path
) -> None:
    script.accepts = TOKEN
    config = kubeconfig(tmp_path, cluster, plugin(tmp_path, TOKEN))
    script.say("workloads/team-a/job/train", {**workload("train"), "sequence": 1, "ageSeconds": 0.1})
    script.page("workloads/team-a/job/train/history")
    assert run("history", "job", "train", "--kubeconfig", config).exit_code == 0
    assert (tmp_path / "ran").read_text() == "x"


def test_a_token_that_was_given_takes_precedence(
    run: Run, cluster: Installed, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.accepts = "other"
    monkeypatch.setenv("QUEUECTL_TOKEN", "other")
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {"token": TOKEN}))
    assert result.exit_code == 0, result.stderr
    assert result.stderr.endswith("with the token of QUEUECTL_TOKEN\n")
    assert script.tokens == ["Bearer other"]


@pytest.mark.parametrize("namespace", ["queuectl-system", "team-a"])
def test_a_user_without_a_token_gets_one_of_the_viewer_that_it_may_use(
    run: Run, cluster: Installed, script: Script, tmp_path: Path, namespace: str
) -> None:
    script.accepts = "short"
    cluster.tokens[VIEWER.format(namespace)] = ["short"]
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {}))
    assert result.exit_code == 0, result.stderr
    assert result.stderr.endswith(
        f"with a token of service account {namespace}/queuectl-viewer for 10 minutes\n"
    )
    assert cluster.requested == [{"audiences": ["queuectl"], "expirationSeconds": 600}]


def test_a_token_for_the_cluster_is_not_sent_where_it_is_not_accepted(
    run: Run, cluster: Installed, script: Script, tmp_path: Path
) -> None:
    script.accepts, script.audiences = "short", ["queuectl"]
    cluster.tokens[VIEWER.format("team-a")] = ["short"]
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {"token": TOKEN}))
    assert result.exit_code == 0, result.stderr
    assert script.tokens == [None, "Bearer short"]


def test_a_service_account_stays_itself(run: Run, cluster: Installed, script: Script, tmp_path: Path) -> None:
    own = "/api/v1/namespaces/ci/serviceaccounts/bot/token"
    script.accepts, script.audiences = "own", ["queuectl"]
    cluster.tokens = {own: ["own"], VIEWER.format("queuectl-system"): ["all"]}
    token = jwt([CLUSTER], sub="system:serviceaccount:ci:bot")
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {"token": token}))
    assert result.exit_code == 0, result.stderr
    assert "with a token of service account ci/bot for 10 minutes" in result.stderr


def test_a_token_that_expires_is_requested_again(
    run: Run, cluster: Installed, script: Script, tmp_path: Path
) -> None:
    cluster.tokens[VIEWER.format("team-a")] = ["first", "second"]
    script.accepts = "first"
    pages = iter(["second", None])

    def page(_: object) -> tuple[int, dict[str, Any]]:
        script.accepts = following if (following := next(pages)) else script.accepts
        return 200, {"items": [], "next": "1" if following else None, "sequence": 1, "ageSeconds": 0.1}

    script.answers["workloads"] = page
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {}))
    assert result.exit_code == 0, result.stderr
    assert script.tokens == [None, "Bearer first", "Bearer first", "Bearer second"]


def test_without_any_token_what_is_missing_is_named(
    run: Run, cluster: Installed, script: Script, tmp_path: Path
) -> None:
    script.accepts = "none"
    cluster.refusals["POST", VIEWER.format("queuectl-system")] = (403, "forbidden")
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {}))
    assert (result.exit_code, result.stdout) == (2, "")
    for told in (
        f"context dev ({cluster.url})",
        "queuectl-system/queuectl-viewer: you may not, team-a/queuectl-viewer: there is none",
        "kubectl create serviceaccount queuectl-viewer -n team-a",
        "--clusterrole=queuectl-viewer --serviceaccount=team-a:queuectl-viewer",
        "api.clusterTokens",
    ):
        assert told in result.stderr


def test_a_cluster_without_queuectl_is_reported_with_its_context(
    run: Run, cluster: Installed, tmp_path: Path
) -> None:
    del cluster.objects[CA]
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {}))
    assert result.exit_code == 2
    assert f"context dev ({cluster.url}): queuectl is not installed there" in result.stderr


@pytest.mark.parametrize(("path", "right"), [(CA, "get the ConfigMap"), (TUNNEL, "get services/proxy")])
def test_a_missing_right_is_named(
    run: Run, cluster: Installed, tmp_path: Path, path: str, right: str
) -> None:
    cluster.refusals["GET", path] = (403, "no rights")
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {}))
    assert result.exit_code == 2
    assert right in result.stderr
    assert "Role queuectl-api-callers" in result.stderr


def test_a_ca_that_is_not_published_yet_is_reported(run: Run, cluster: Installed, tmp_path: Path) -> None:
    del cluster.objects[CA]["data"]
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {}))
    assert (result.exit_code, "has not published its CA" in result.stderr) == (2, True)


def test_rest_must_have_the_certificate_that_the_cluster_publishes(
    run: Run, cluster: Installed, script: Script, tmp_path: Path
) -> None:
    cluster.objects[CA]["data"]["ca.crt"] = trustme.CA().cert_pem.bytes().decode()
    result = run("get", "wl", "--kubeconfig", kubeconfig(tmp_path, cluster, {"token": TOKEN}))
    assert result.exit_code == 2
    assert "is not trusted" in result.stderr
    assert script.asked == []


def test_hold_and_get_are_about_the_context_that_they_show(
    run: Run, cluster: Installed, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.accepts = TOKEN
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, cluster, {"token": TOKEN}))
    # A sandbox in the default folder, of another cluster.
    data = tmp_path / "data"
    data.mkdir()
    (data / "endpoints.json").write_text(
        json.dumps({"kubernetes": "https://127.0.0.1:9", "rest": "http://x"})
    )
    monkeypatch.delenv("QUEUECTL_DATA")
    monkeypatch.setattr("queuectl.cli.options.default_folder", lambda: data)
    read, held = run("get", "wl"), run("hold", "job", "train", "-n", "default")
    assert (read.exit_code, held.exit_code) == (0, 0), read.stderr + held.stderr
    shown = f"context dev ({cluster.url})"
    assert read.stderr.startswith(shown)
    assert held.stderr.startswith(shown)
    assert [path for path, _ in cluster.writes] == [JOB]


def test_a_mistyped_context_is_named(run: Run, cluster: Installed, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, cluster, {})
    for command in (["get", "wl"], ["hold", "job/train"]):
        result = run(*command, "--kubeconfig", config, "--context", "dve")
        assert result.exit_code == 2
        assert "--context dve: no such context: did you mean dev?" in result.stderr


def test_names_are_completed_from_the_cluster_without_a_message(
    run: Run, cluster: Installed, script: Script, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script.accepts = TOKEN
    config = kubeconfig(tmp_path, cluster, {"token": TOKEN})
    shell = get_completion_class("bash")
    assert shell is not None
    found = shell(main, {}, "queuectl", "").get_completions(["--kubeconfig", config, "explain"], "job/t")
    assert [item.value for item in found] == ["job/train"]
    assert capfd.readouterr() == ("", "")


def test_nothing_is_stored(run: Run, cluster: Installed, script: Script, tmp_path: Path) -> None:
    script.accepts = "short"
    cluster.tokens[VIEWER.format("team-a")] = ["short"]
    config = kubeconfig(tmp_path, cluster, {})
    before = set(tmp_path.rglob("*"))
    assert run("get", "wl", "--kubeconfig", config).exit_code == 0
    assert set(tmp_path.rglob("*")) == before


@pytest.fixture
def sandbox(cluster: Installed, scripted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sandbox that runs, on the cluster."""
    folder = tmp_path / "sandbox"
    folder.mkdir()
    kubeconfig(folder, cluster, {"token": TOKEN})
    endpoints = {"kubernetes": cluster.url, "rest": scripted}
    (folder / "endpoints.json").write_text(json.dumps(endpoints))
    (folder / "sandbox.lock").touch()
    monkeypatch.delenv("QUEUECTL_DATA")
    return folder


@pytest.mark.parametrize("how", ["--data", "QUEUECTL_DATA", "--kubeconfig", "KUBECONFIG", "folder"])
def test_a_sandbox_is_found_by_its_data_its_kubeconfig_and_its_folder(
    run: Run, sandbox: Path, cluster: Installed, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    flags: list[str] = []
    if how.startswith("--"):
        flags = [how, str(sandbox / "kubeconfig" if how == "--kubeconfig" else sandbox)]
    elif how == "folder":
        monkeypatch.chdir(sandbox)
    else:
        monkeypatch.setenv(how, str(sandbox / "kubeconfig" if how == "KUBECONFIG" else sandbox))
    with (sandbox / "sandbox.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        read, held = run("get", "wl", *flags), run("hold", "job/train", "-n", "default", *flags)
    assert (read.exit_code, held.exit_code) == (0, 0), read.stderr + held.stderr
    assert read.stderr == held.stderr == f"using the sandbox in {sandbox}\n"
    assert [path for path, _ in cluster.writes] == [JOB]


def test_a_kubeconfig_that_merely_lies_in_the_working_directory_is_not_used(
    run: Run, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may name a program to run: only a sandbox that runs holds the lock."""
    monkeypatch.chdir(sandbox)
    monkeypatch.setattr("queuectl.cli.options.default_folder", lambda: sandbox / "none")
    result = run("get", "wl")
    assert result.exit_code == 2
    assert "no kubeconfig with a context" in result.stderr


def test_a_command_says_once_which_cluster_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with click.Context(click.Command("hold")):
            contexts.announce("using the sandbox in x")
            contexts.announce("using the sandbox in x")
    assert capsys.readouterr().err.splitlines() == ["using the sandbox in x"] * 2
