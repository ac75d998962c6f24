"""The real operators as processes, each under a service account of its own.

An operator has all rights that it may need, but not the right to bypass the gate: what it makes is checked as
in a cluster. Its webhooks are called by URL: there are no Services.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import yaml

from queuectl.kube.errors import ApiError
from queuectl.sandbox.control_plane import write_kubeconfig
from queuectl.sandbox.endpoints import choose_ports
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.processes import ChildProcess, spawn
from tests.integration.sandbox.polling import eventually
from tests.rights import bind
from tests.unit.certificates.issuing import DAY, issue, key_pem, new_key, pem

Json = dict[str, Any]
VARIABLE = "QUEUECTL_OPERATORS"
NAMESPACE = "operators"
ROLE = "operators"
_RBAC = "rbac.authorization.k8s.io"
RULE: Json = {
    "apiGroups": ["*"],
    "resources": ["*"],
    "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
}
_READY_SECONDS = 60.0


def find_operators(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder with the binaries and definitions; None if QUEUECTL_OPERATORS is not set."""
    value = environment.get(VARIABLE, "")
    return Path(value) if value else None


@dataclass(frozen=True)
class Place:
    """What an operator is started with."""

    folder: Path
    """Its own, with tls.crt and tls.key where it has webhooks."""
    kubeconfig: Path
    port: int
    """Of its webhooks."""


@dataclass(frozen=True)
class Program:
    """How one operator is started."""

    name: str
    arguments: Callable[[Place], list[str]]
    webhooks: bool = False
    pods: str = "jobset.sigs.k8s.io/jobset-name"
    """The label of pods for which its webhook is called."""


def _training_operator(place: Place) -> list[str]:
    return [
        *("--kubeconfig", str(place.kubeconfig), "--namespace", "", "--webhook-server-port", str(place.port)),
        *("--metrics-bind-address", "0", "--health-probe-bind-address", "0"),
        *(
            "--webhook-secret-name",
            "training-operator-webhook-cert",
            "--webhook-service-name",
            "training-operator",
        ),
        *("--kube-api-qps", "500", "--kube-api-burst", "1000", "--controller-threads", "4"),
    ]


def _mpi_operator(place: Place) -> list[str]:
    rates = ("--kube-api-qps", "500", "--kube-api-burst", "1000", "--controller-queue-rate-limit", "500")
    return [
        "--kubeConfig",
        str(place.kubeconfig),
        "--lock-namespace",
        NAMESPACE,
        "--threadiness",
        "4",
        *rates,
    ]


def _kuberay(place: Place) -> list[str]:
    return [
        *("--metrics-addr", "0", "--health-probe-bind-address", "0"),
        *("--enable-leader-election=false", "--leader-election-namespace", NAMESPACE),
        *("--qps", "500", "--burst", "1000", "--reconcile-concurrency", "32"),
    ]


def _argo(place: Place) -> list[str]:
    return [
        *("--kubeconfig", str(place.kubeconfig), "--namespace", NAMESPACE),
        *("--executor-image", "registry.example/argoexec", "--qps", "500", "--burst", "1000"),
    ]


_OF_ARGO = {
    "LEADER_ELECTION_DISABLE": "true",
    # It looks at a Workflow at most once in this time. Its default is 10 s.
    "DEFAULT_REQUEUE_TIME": "1s",
    # A pod that is gone counts as deleted only so long after its step began. Its default is 10 s.
    "RECENTLY_STARTED_POD_DURATION": "0s",
}
_OF_SIGS = ("jobset.x-k8s.io", "lws.x-k8s.io")


def _configured(group: str) -> Callable[[Place], list[str]]:
    def arguments(place: Place) -> list[str]:
        file = place.folder / "config.yaml"
        file.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": f"config.{group}/v1alpha1",
                    "kind": "Configuration",
                    "leaderElection": {"leaderElect": False},
                    "webhook": {"host": "127.0.0.1", "port": place.port, **_certificates(group, place)},
                    "metrics": {"bindAddress": "0"},
                    "health": {"healthProbeBindAddress": "0"},
                    "clientConnection": {"qps": 500, "burst": 1000},
                }
                | _without_certificate_management(group)
            )
        )
        return ["--config", str(file)]

    return arguments


def _certificates(group: str, place: Place) -> Json:
    return {"certDir": str(place.folder)} if group in _OF_SIGS else {}


def _without_certificate_management(group: str) -> Json:
    name = "internalCertManagement" if group in _OF_SIGS else "certManagement"
    return {name: {"enable": False}}


TRAINING_OPERATOR = Program("training-operator", _training_operator)
MPI_OPERATOR = Program("mpi-operator", _mpi_operator)
JOBSET = Program("jobset", _configured("jobset.x-k8s.io"), webhooks=True)
TRAINER = Program("trainer", _configured("trainer.kubeflow.org"), webhooks=True)
TRAINER_2_3 = Program("trainer-2.3", _configured("trainer.kubeflow.org"), webhooks=True)
KUBERAY = Program("kuberay", _kuberay)
ARGO = Program("argo", _argo)
LWS = Program("lws", _configured("lws.x-k8s.io"), webhooks=True, pods="leaderworkerset.sigs.k8s.io/name")


class Served(Protocol):
    """The API server that an operator is run on."""

    @property
    def folder(self) -> Path: ...
    @property
    def url(self) -> str: ...
    @property
    def ca_file(self) -> Path: ...


class Operator:
    """One operator on a control plane. `async with` installs its definitions and runs it."""

    def __init__(self, program: Program, binaries: Path, plane: Served, admin: Client) -> None:
        self.program = program
        self._binary = binaries / program.name
        self._parts = binaries / f"{program.name}.d"
        self._plane = plane
        self._admin = admin
        folder = plane.folder / program.name
        (port,) = choose_ports([(0, 0)])
        self._place = Place(folder, folder / "kubeconfig", port)
        self._child: ChildProcess | None = None

    def definitions(self) -> list[Json]:
        """The CustomResourceDefinitions of this version."""
        found = [one for path in sorted((self._parts / "crds").glob("*.yaml")) for one in _documents(path)]
        for one in found:
            # A conversion by a webhook is for versions that no test stores.
            one["spec"].pop("conversion", None)
        return found

    async def install(self) -> None:
        """Its service account and its webhooks."""
        self._place.folder.mkdir()
        self._issue()
        name = self.program.name
        await Installer(self._admin).apply(self._webhooks())
        token = await service_account(self._admin, name)
        write_kubeconfig(self._place.kubeconfig, self._plane.url, self._plane.ca_file, {name: token}, name)

    def _issue(self) -> None:
        """A certificate for its webhooks, where controller-runtime looks for one."""
        key, now = new_key(), datetime.now(UTC)  # noqa: TID251 (the API server checks it by its own clock)
        certificate = issue("localhost", key, begins=now - timedelta(hours=1), ends=now + DAY, authority=True)
        default = self._place.folder / "k8s-webhook-server" / "serving-certs"
        default.mkdir(parents=True)
        for folder in (self._place.folder, default):
            (folder / "tls.crt").write_bytes(pem(certificate))
            (folder / "tls.key").write_bytes(key_pem(key))

    def _webhooks(self) -> Iterator[Json]:
        file = self._parts / "webhooks.yaml"
        authority = base64.b64encode((self._place.folder / "tls.crt").read_bytes()).decode()
        for one in _documents(file) if file.exists() else ():
            one["metadata"]["name"] = f"{self.program.name}-{one['metadata']['name']}"
            for webhook in one["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                url = f"https://localhost:{self._place.port}{path}"
                webhook["clientConfig"] = {"url": url, "caBundle": authority}
                if path.endswith("-pod"):
                    # Other pods do without.
                    there = {"key": self.program.pods, "operator": "Exists"}
                    webhook["objectSelector"] = {"matchExpressions": [there]}
            yield one

    # --- the process

    async def start(self) -> None:
        """Run it. Returns once its webhooks are served."""
        kubeconfig = str(self._place.kubeconfig)
        # Its default folder for certificates is below that for temporary files.
        environment = {**os.environ, "KUBECONFIG": kubeconfig, "TMPDIR": str(self._place.folder)}
        # KubeRay looks after this time again at a RayCluster that it has lost track of. Its default is 300 s.
        environment["RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV"] = "2"
        environment |= _OF_ARGO
        self._child = await spawn(
            [self._binary, *self.program.arguments(self._place)],
            name=self.program.name,
            log=self._place.folder / "log",
            env=environment,
            cwd=self._place.folder,
        )
        if self.program.webhooks:
            await eventually(self._serves, f"webhooks of {self.program.name}", _READY_SECONDS)

    async def _serves(self) -> bool:
        self.check()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._place.port)
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()
            self._child = None

    def check(self) -> None:
        """Raises ChildDied if it has ended by itself."""
        if self._child is not None and self._child.returncode is not None:
            raise self._child.death()


async def service_account(admin: Client, name: str) -> str:
    """Create the service account of an operator. Returns its token."""
    account: Json = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
    await Installer(admin).apply([account])
    await bind(admin, f"system:serviceaccount:{NAMESPACE}:{name}", "ClusterRole", ROLE, RULE)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
    wanted: Json = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 7200},
    }
    return str((await admin.request("POST", path, wanted))["status"]["token"])


def rights() -> Json:
    """All rights of all operators: every usual verb on everything, and not `bypass`."""
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": [RULE]}


_CERTIFICATE = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")
"""The training operator waits for a file of this name, wherever its webhooks find their certificate."""


def needed_by_training_operator() -> list[Json]:
    """Its secret and webhook configuration, both empty: it runs without webhooks then."""
    _CERTIFICATE.parent.mkdir(parents=True, exist_ok=True)
    _CERTIFICATE.touch()
    hooks: Json = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validator.training-operator.kubeflow.org"},
        "webhooks": [],
    }
    metadata = {"name": "training-operator-webhook-cert", "namespace": "kubeflow"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}}
    return [namespace, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}, hooks]


def _documents(path: Path) -> list[Json]:
    return [one for one in yaml.load_all(path.read_text(), yaml.CSafeLoader) if one]


async def served(api: Client, path: str) -> bool:
    """Whether the API server serves this collection."""
    try:
        await api.request("GET", path, query={"limit": "1"})
    except ApiError as error:
        if error.status in (404, 503):
            return False
        raise
    return True
