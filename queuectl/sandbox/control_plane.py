"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager as children.

The binaries are found as envtest finds them: `KUBEBUILDER_ASSETS` names their folder. There is no
kubelet and no scheduler.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import signal
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from queuectl.kinds.admission import CONTROLLER_USER
from queuectl.kubernetes_yaml import dump
from queuectl.sandbox.endpoints import choose_ports, write_private
from queuectl.sandbox.processes import ChildProcess, spawn, until_ready

__all__ = ["CONTROLLER_USER", "ControlPlane", "ControlPlaneError", "find_assets", "write_kubeconfig"]

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
TENANT_USER: Final = "tenant"
ADMIN_USER: Final = "admin"

_NEEDED: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
_CONTROLLER_MANAGER: Final = "controller-manager"
_WEBHOOK: Final = "webhook"
_OUR_GROUPS: Final = ("system:serviceaccounts", "system:serviceaccounts:queuectl-system")
_IDENTITIES: Final = {
    "admin": (ADMIN_USER, ("system:masters",)),
    "tenant": (TENANT_USER, ()),
    "controller": (CONTROLLER_USER, _OUR_GROUPS),
    _WEBHOOK: ("system:serviceaccount:queuectl-system:queuectl-webhook", _OUR_GROUPS),
    _CONTROLLER_MANAGER: ("system:kube-controller-manager", ()),
}
_CONTROLLERS: Final = (
    "job-controller",
    "cronjob-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "ttl-after-finished-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",
)


class ControlPlaneError(RuntimeError):
    """It can't be started, or one of its processes has ended. Names the process and its last log lines."""


def find_assets(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder with the binaries, or None when KUBEBUILDER_ASSETS is not set.

    Raises ControlPlaneError when it is set and a binary is missing there.
    """
    value = environment.get(ASSETS_VARIABLE, "")
    if not value:
        return None
    folder = Path(value)
    missing = [name for name in _NEEDED if not os.access(folder / name, os.X_OK)]
    if missing:
        raise ControlPlaneError(f"{ASSETS_VARIABLE}={folder} has no {', '.join(missing)}")
    return folder


def write_kubeconfig(path: Path, url: str, ca_file: Path, tokens: Mapping[str, str], current: str) -> None:
    """A kubeconfig with one context per token, named like it; readable by its owner alone."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    cluster = {"server": url, "certificate-authority-data": authority}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": "queuectl", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}} for name, token in tokens.items()],
        "contexts": [{"name": name, "context": {"cluster": "queuectl", "user": name}} for name in tokens],
    }
    write_private(path, dump(content))


_START_SECONDS: Final = 120.0


class ControlPlane:
    """`async with ControlPlane(folder, assets) as plane:` serves until the block ends.

    Enter it on the main thread's event loop: Linux ends the processes with the thread that started them, so
    that a killed parent leaves nothing behind. Its data is in `folder`; a second start there finds all of it,
    with the same tokens and CA. `emulated` is an older release to emulate (`1.33`). `flags` are further ones
    of the API server. `fsync=False` is for tests: faster, but a crash of the machine may lose data of etcd.
    `port` 0 takes a free one.
    """

    def __init__(
        self,
        folder: Path,
        assets: Path,
        *,
        emulated: str | None = None,
        controllers: bool = True,
        flags: Sequence[str] = (),
        fsync: bool = True,
        port: int = 0,
    ) -> None:
        self.folder = folder
        self.kubectl = assets / "kubectl"
        self.ca_file = folder / "certificates" / "apiserver.crt"
        self.tokens: dict[str, str] = {}
        """By identity: admin (in system:masters), tenant, controller (queuectl's service account)."""
        self.url = ""
        self._all_tokens: dict[str, str] = {}
        self._assets = assets
        self._flags = flags
        self._emulated = emulated
        self._controllers = controllers
        self._fsync = fsync
        self._port = port
        self.environment: Mapping[str, str] = {}
        """Of its programs, in addition to ours."""
        self._children: list[ChildProcess] = []

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._start()
        except TimeoutError:
            tails = "\n".join(f"{child.name}, log {child.log}:\n{child.tail()}" for child in self._children)
            await self._kill()
            raise ControlPlaneError(f"not ready within {_START_SECONDS:g} s\n{tails}") from None
        except BaseException:
            await self._kill()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._kill()

    def write_kubeconfig(self, path: Path) -> None:
        """Contexts admin (current), tenant and controller."""
        write_kubeconfig(path, self.url, self.ca_file, self.tokens, current="admin")

    def write_kubeconfig_of(self, identity: str, path: Path) -> None:
        """With one identity only; also those of programs: controller-manager, webhook."""
        token = {identity: self._all_tokens[identity]}
        write_kubeconfig(path, self.url, self.ca_file, token, current=identity)

    def ssl_context(self) -> ssl.SSLContext:
        """Trusts only this control plane."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    def check(self) -> None:
        """Raises ControlPlaneError if one of the processes has ended."""
        for child in self._children:
            if child.returncode is not None:
                raise ControlPlaneError(str(child.death()))

    async def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._identities()
        client_port, peer_port, port = choose_ports([(0, 0)] * 3)
        self.url = f"https://127.0.0.1:{self._port or port}"
        store = f"http://127.0.0.1:{client_port}"
        await self._spawn("etcd", self._etcd_arguments(store, f"http://127.0.0.1:{peer_port}"))
        await until_ready(f"{store}/readyz", check=self.check)
        await self._spawn("kube-apiserver", self._server_arguments(store))
        ready, token = f"{self.url}/readyz", self.tokens["admin"]
        await until_ready(ready, check=self.check, ca_file=self.ca_file, token=token)
        if self._controllers:
            config = self.folder / "controller-manager.kubeconfig"
            self.write_kubeconfig_of(_CONTROLLER_MANAGER, config)
            await self._spawn("kube-controller-manager", self._manager_arguments(config))

    def _identities(self) -> None:
        """Tokens by identity, the same at every start on this folder."""
        known = self.folder / "tokens.json"
        tokens = json.loads(known.read_text()) if known.exists() else {}
        tokens = {name: tokens.get(name) or secrets.token_urlsafe(24) for name in _IDENTITIES}
        write_private(known, json.dumps(tokens))
        rows = [
            f'{tokens[name]},{user},{user},"{",".join(groups)}"\n'
            for name, (user, groups) in _IDENTITIES.items()
        ]
        write_private(self.folder / "tokens.csv", "".join(rows))
        key = self.folder / "service-accounts.pem"
        if not key.exists():
            write_private(key, _private_key())
        self._all_tokens = tokens
        self.tokens = {name: tokens[name] for name in ("admin", "tenant", "controller")}

    def _etcd_arguments(self, client: str, peer: str) -> list[str]:
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--quota-backend-bytes=8589934592",
            "--log-level=warn",
            *([] if self._fsync else ["--unsafe-no-fsync"]),
        ]

    def _server_arguments(self, store: str) -> list[str]:
        key = self.folder / "service-accounts.pem"
        return [
            f"--etcd-servers={store}",
            f"--secure-port={self.url.rpartition(':')[2]}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            # No pod reaches it by the Service `kubernetes`; from 1.37 on that may not lead to loopback.
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.ca_file.parent}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            # No controller makes a service account's default objects in time for the first pod.
            "--disable-admission-plugins=ServiceAccount",
            *self._emulation(),
            *self._flags,
        ]

    def _manager_arguments(self, config: Path) -> list[str]:
        return [
            f"--kubeconfig={config}",
            f"--controllers={','.join(_CONTROLLERS)}",
            # Each controller has its own service account, as in a cluster: gate and audit log see it.
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.folder / 'service-accounts.pem'}",
            "--leader-elect=false",
            "--secure-port=0",
            # Its default of 20 limits the rate of Jobs, not the API server.
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--concurrent-job-syncs=20",
            *self._emulation(),
        ]

    def _emulation(self) -> list[str]:
        return [f"--emulated-version={self._emulated}"] if self._emulated else []

    async def _spawn(self, name: str, arguments: Sequence[str]) -> None:
        log = self.folder / f"{name}.log"
        environment = {**os.environ, **self.environment}
        child = await spawn(
            [self._assets / name, *arguments], name=name, log=log, env=environment, cwd=self.folder
        )
        self._children.append(child)

    async def _kill(self) -> None:
        # A graceful shutdown of the API server takes a minute; etcd's data is safe on disk either way.
        while self._children:
            child = self._children.pop()
            child.send(signal.SIGKILL)
            await child.wait()


def _private_key() -> str:
    """As PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    unencrypted = serialization.NoEncryption()
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, unencrypted).decode()
