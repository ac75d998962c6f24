"""The command line by a kubeconfig alone, through a real API server: each kind of credentials, two users.

No kubelet runs here. So the pod of REST is an object without a process. Its address is one of this machine,
where `queuectl api` listens with the rights of the manifests: an API server proxies to nothing on loopback.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme
import yaml

from queuectl.sandbox.control_plane import ControlPlane
from queuectl.shipped import shipped
from tests.acceptance.e2e.exposing import expose, own_address
from tests.acceptance.e2e.rest_site import OWN, ROLES, SYSTEM, TEAMS, Place, Server, placed, started
from tests.acceptance.e2e.site import Json, Run, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUTHORITY = trustme.CA()
EVERY_TEAM = [f"train-{team}" for team in TEAMS]
OWN_TEAM = [f"train-{TEAMS[0]}"]
SCRIPTS = Path(sys.executable).parent


class WithCertificates(ControlPlane):
    """It accepts the client certificates of AUTHORITY."""

    def _server_arguments(self, store: str) -> list[str]:
        path = self.folder / "client-ca.pem"
        AUTHORITY.cert_pem.write_to_path(str(path))
        return [*super()._server_arguments(store), f"--client-ca-file={path}"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with placed(WithCertificates) as found:
        for user in ("tenant", "carol"):
            await grant(found, user, "edit", {"kind": "User", "name": user})
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(place: Place) -> AsyncIterator[Server]:
    """REST with the configuration and the Service of the manifests; only its address is another."""
    address = own_address()
    config = yaml.safe_load((shipped("manifests") / "api" / "config.yaml").read_text())["api"]
    async for found in started(
        place, host=address, names=tuple(config["tls"]["names"]), clusterTokens=config["clusterTokens"]
    ):
        service = yaml.safe_load((shipped("manifests") / "api" / "service.yaml").read_text())
        await place.api.request("POST", f"/api/v1/namespaces/{SYSTEM}/services", service)
        await expose(place.api, address, int(found.url.rpartition(":")[2]))
        yield found


async def grant(place: Place, name: str, role: str, subject: Json) -> None:
    """Bind a ClusterRole in the first team's namespace."""
    group = {} if subject["kind"] == "ServiceAccount" else {"apiGroup": "rbac.authorization.k8s.io"}
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{name}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{**subject, **group}],
    }
    await place.api.request("POST", f"{ROLES}/namespaces/{TEAMS[0]}/rolebindings", body)


def certificate(name: str, *groups: str) -> Json:
    """A user of a kubeconfig by a client certificate."""
    issued = AUTHORITY.issue_cert(
        f"{name}@example.com", common_name=name, organization_name=(*groups, None)[0]
    )
    pem = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    return {
        "client-certificate-data": base64.b64encode(pem).decode(),
        "client-key-data": base64.b64encode(issued.private_key_pem.bytes()).decode(),
    }


def plugin(folder: Path, token: str) -> Json:
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}}
    program = folder / "credentials.py"
    program.write_text(f"print({json.dumps(credential)!r})")
    exec_ = {"apiVersion": version, "command": sys.executable, "args": [str(program)]}
    return {"exec": {**exec_, "interactiveMode": "Never"}}


def kubeconfig(place: Place, folder: Path, user: Json, namespace: str = TEAMS[0]) -> Path:
    path = folder / "kubeconfig"
    place.plane.write_kubeconfig(path)
    config = yaml.safe_load(path.read_text())
    context = {"cluster": config["clusters"][0]["name"], "user": "u", "namespace": namespace}
    content = {
        **config,
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "prod", "context": context}],
        "current-context": "prod",
    }
    path.write_text(yaml.safe_dump(content))
    return path


async def run(config: Path, *words: str) -> Run:
    """A command in an environment that names the kubeconfig and nothing else of queuectl."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QUEUECTL", "KUBE"))}
    folders = f"{SCRIPTS}{os.pathsep}{kept.get('PATH', '')}"
    process = await asyncio.create_subprocess_exec(
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**kept, "KUBECONFIG": str(config), "HOME": str(config.parent), "PATH": folders},
        cwd=config.parent,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Run(process.returncode, out.decode(), err.decode())


async def sees(config: Path, *program: str) -> tuple[list[str], str]:
    """Names of the workloads that a command lists, and what it says on stderr."""
    told = await run(config, *program, "get", "workloads", "-o", "json")
    assert told.code == 0, told.err
    return [item["name"] for item in json.loads(told.out)["items"]], told.err


async def credentials(place: Place, folder: Path, kind: str, who: str) -> Json:
    if kind == "client certificate":
        return certificate("root", "system:masters") if who == "admin" else certificate("carol")
    token = place.plane.tokens[who]
    if kind == "service account":
        token = await place.token("alice", TEAMS[0], OWN)
    return plugin(folder, token) if kind == "exec plugin" else {"token": token}


@pytest.mark.parametrize("who", ["admin", "tenant"])
@pytest.mark.parametrize("kind", ["token", "exec plugin"])
async def test_with_its_own_token_a_user_sees_what_it_may_read(
    place: Place, server: Server, tmp_path: Path, kind: str, who: str
) -> None:
    config = kubeconfig(place, tmp_path, await credentials(place, tmp_path, kind, who))
    for program in (["queuectl"], [str(place.plane.kubectl), "queue"]):
        names, told = await sees(config, *program)
        assert sorted(names) == (EVERY_TEAM if who == "admin" else OWN_TEAM)
        assert told.startswith(
            f"context prod ({place.plane.url}): REST through the API server, "
            "with the token of the kubeconfig\n"
        )


async def test_a_service_account_sees_what_it_may_read(place: Place, server: Server, tmp_path: Path) -> None:
    config = kubeconfig(place, tmp_path, await credentials(place, tmp_path, "service account", "tenant"))
    names, told = await sees(config, "queuectl")
    assert (names, "with the token of the kubeconfig" in told) == (OWN_TEAM, True)


async def test_an_admin_with_a_client_certificate_reads_as_the_viewer_of_the_installation(
    place: Place, server: Server, tmp_path: Path
) -> None:
    config = kubeconfig(place, tmp_path, await credentials(place, tmp_path, "client certificate", "admin"))
    names, told = await sees(config, "queuectl")
    assert sorted(names) == EVERY_TEAM
    assert f"with a token of service account {SYSTEM}/queuectl-viewer for 10 minutes\n" in told


async def test_a_tenant_with_a_client_certificate_reads_as_the_viewer_of_its_namespace(
    place: Place, server: Server, tmp_path: Path
) -> None:
    config = kubeconfig(place, tmp_path, await credentials(place, tmp_path, "client certificate", "tenant"))
    told = await run(config, "queuectl", "get", "workloads")
    assert told.code == 2
    lines = [line.strip() for line in told.err.splitlines()]
    commands = [line for line in lines if line.startswith("kubectl create") and "token" not in line]
    assert len(commands) == 2, told.err
    admin = tmp_path / "admin"
    place.plane.write_kubeconfig(admin)
    for command in commands:
        # As printed, by an admin.
        done = await run(admin, str(place.plane.kubectl), *command.split()[1:])
        assert done.code == 0, done.err

    async def seen() -> bool:
        # A binding takes effect a moment after it is made.
        return (await sees(config, "queuectl"))[0] == OWN_TEAM

    await eventually("the tenant sees the workloads of its namespace", seen, pause=0.5)
    assert f"{TEAMS[0]}/queuectl-viewer" in (await sees(config, "queuectl"))[1]


async def test_a_user_without_rights_connects_and_sees_nothing(
    place: Place, server: Server, tmp_path: Path
) -> None:
    await place.account("stranger", TEAMS[1])
    token = await place.token("stranger", TEAMS[1], OWN)
    names, _ = await sees(kubeconfig(place, tmp_path, {"token": token}), "queuectl")
    assert names == []


async def test_the_right_to_connect_reaches_nothing_else(place: Place, server: Server) -> None:
    attributes: Any = {"namespace": SYSTEM, "resource": "services", "subresource": "proxy"}

    async def may(**asked: str) -> bool:
        spec = {
            "user": "x",
            "groups": ["system:authenticated"],
            "resourceAttributes": {**attributes, **asked},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool((await place.api.request("POST", path, body))["status"]["allowed"])

    rest = "https:queuectl-api:rest"
    assert await may(verb="get", name=rest)
    assert not await may(verb="create", name=rest)
    assert not await may(verb="get", name="queuectl-postgres")
    assert not await may(verb="get")
    assert not await may(verb="create", resource="pods", subresource="portforward")


async def test_hold_and_get_are_of_one_cluster(place: Place, server: Server, tmp_path: Path) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "own", "labels": {"queuectl.dev/queue-name": "main"}},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        },
    }
    await place.api.request("POST", f"/apis/batch/v1/namespaces/{TEAMS[0]}/jobs", job)
    config = kubeconfig(place, tmp_path, await credentials(place, tmp_path, "token", "tenant"))
    held = await run(config, "queuectl", "hold", "job", "own")
    assert held.code == 0, held.err
    assert held.err == f"context prod ({place.plane.url})\n"
    found = await place.api.request("GET", f"/apis/batch/v1/namespaces/{TEAMS[0]}/jobs/own")
    assert found["metadata"]["annotations"]["queuectl.dev/hold"] == "true"
    assert (await sees(config, "queuectl"))[1].startswith(f"context prod ({place.plane.url}): ")
