"""The cluster and namespace of a kubeconfig, chosen as kubectl does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from queuectl.cli.options import Options

DEFAULT_NAMESPACE: Final = "default"
MAX_FILE: Final = 4 << 20


def kubeconfig(options: Options) -> Path | None:
    """The given file, else the sandbox's if there is one and no server is given; None: the user's default.

    This way REST and Kubernetes are of the same cluster.
    """
    if options.kubeconfig is not None:
        return options.kubeconfig
    if options.server is None and "KUBECONFIG" not in os.environ and options.endpoints():
        return options.folder / "kubeconfig"
    return None


def announced(options: Options) -> Path | None:
    """As `kubeconfig`, with a message if it is the sandbox's by default: the user may have meant another."""
    found = kubeconfig(options)
    if found is not None and options.kubeconfig is None:
        click.echo(f"using the sandbox in {options.folder}", err=True)
    return found


def namespace(options: Options, given: str | None) -> str:
    """The given namespace, else that of the context."""
    if given is not None:
        return given
    found = kubeconfig(options)
    paths = [found] if found else _of_user()
    documents = [content for path in paths if (content := _read(path))]
    context = options.context or next((c for d in documents if (c := d.get("current-context"))), None)
    for document in documents:
        for entry in _list(document.get("contexts")):
            if entry.get("name") == context and isinstance(entry.get("context"), dict):
                return str(entry["context"].get("namespace") or DEFAULT_NAMESPACE)
    return DEFAULT_NAMESPACE


def _of_user() -> list[Path]:
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path.home() / ".kube" / "config"]


def _read(path: Path) -> dict[str, Any]:
    """Empty if it cannot be read: a command that needs the cluster reports the reason."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE:
            return {}
        text = path.read_bytes()
        import yaml

        found = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, ValueError, RecursionError):
        return {}
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        return {}
    return found if isinstance(found, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
