"""The library is imported in parts: unused parts cost nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_READ = """
import asyncio, json, sys, warnings
warnings.simplefilter("error")
from queuectl.kube import account
from queuectl.kube.account import library
user = asyncio.run(account.from_kubeconfig(sys.argv[1], None))
token = asyncio.run(user.authorization())
imported = [name for name in sys.modules if name.startswith("kubernetes_asyncio")]
ours = library().Configuration
import kubernetes_asyncio.client
whole = kubernetes_asyncio.client
print(json.dumps([user.server, token, imported, ours.__name__, hasattr(whole, "V1Job")]))
"""
_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: main
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: secret}}]
contexts: [{name: main, context: {cluster: here, user: me}}]
"""


def test_a_kubeconfig_is_read_without_the_typed_models_and_the_library_stays_whole(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(_KUBECONFIG)
    ran = subprocess.run(
        [sys.executable, "-c", _READ, str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == ["http://127.0.0.1:1", "Bearer secret", [], "Configuration", True]
