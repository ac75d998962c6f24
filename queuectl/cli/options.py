"""The flags that every command takes, and what follows from them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from queuectl.cli.printing import printable

if TYPE_CHECKING:
    from queuectl.settings import Settings

FORMATS: Final = ("table", "wide", "json", "yaml")
_PATH: Final = click.Path(path_type=Path)
_AGO: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST: Final = timedelta(days=365_000)
"""Before the first entry of any ledger, and still a date."""


def parse_ago(text: str) -> timedelta | None:
    """How long ago, such as 90s, 15m, 2h or 7d; None: `text` is something else."""
    found = _AGO.fullmatch(text)
    return min(timedelta(seconds=int(found[1]) * _SECONDS[found[2]]), _LONGEST) if found else None


class Failure(click.ClickException):
    """Something to tell the user, who can do something about it: `message` says what. Exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        # What a server or a file says is in it, too.
        click.echo("\n".join(map(printable, f"Error: {self.message}".split("\n"))), err=True)


class NotGood(Failure):
    """The command worked, and what it found is not as it should be. Exit code 1."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The common flags, as given."""

    config: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    database_url: str | None = None
    data: Path | None = None
    server: str | None = None
    server_ca: Path | None = None
    token_file: Path | None = None
    output: str = "table"
    """How to print: table, json or yaml."""
    wide: bool = False
    """Tables with all their columns."""

    @property
    def folder(self) -> Path:
        """Where the sandbox is."""
        return self.data or default_folder()

    def endpoints(self) -> dict[str, str]:
        """Of the sandbox in `folder`: kubernetes, rest, metrics, postgres; empty where none was started."""
        try:
            found = json.loads((self.folder / "endpoints.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(k): v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}

    def settings(self) -> Settings:
        """Of the configuration file under environment and flags. Raises Failure with all its problems."""
        from queuectl.settings import ConfigurationError, load

        try:
            return load(self.config, database_url=self.database_url)
        except ConfigurationError as error:
            raise Failure("the configuration can't be used:\n  " + "\n  ".join(error.problems)) from None

    def connected(self, *, cluster: bool) -> tuple[Settings, Path | None, str | None]:
        """Settings with a database, kubeconfig and context.

        Where no database is named, and with `cluster` no kubeconfig either, the sandbox's are taken together:
        never one of the sandbox with one of something else.
        """
        from queuectl.settings import load

        settings = self.settings()
        if settings.database.url is not None:
            return settings, self.kubeconfig, self.context
        rest = self.endpoints()
        named = "give --database-url or QUEUECTL_DATABASE_URL, or set database.url in --config"
        if cluster and self.kubeconfig is not None:
            raise Failure(f"no database is named for this kubeconfig: {named}")
        if "postgres" not in rest:
            raise Failure(f"no database is named: {named} (and there is no sandbox in {self.folder})")
        click.echo(f"using the sandbox in {self.folder}", err=True)
        settings = load(self.config, database_url=rest["postgres"])
        return settings, self.folder / "kubeconfig", self.context or "controller"


def default_folder() -> Path:
    """Of the sandbox where none is named.

    Root's is not under its home: Postgres refuses to run as root, and another user can't get in there.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/queuectl/sandbox")
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "queuectl" / "sandbox"


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags themselves."""
    decorators = (
        click.option("--config", type=_PATH, help="Configuration file (YAML)."),
        click.option("--kubeconfig", type=_PATH, help="Where the cluster is."),
        click.option("--context", help="Context in the kubeconfig."),
        click.option(
            "--database-url", envvar="QUEUECTL_DATABASE_URL", help="postgresql://USER@HOST/DATABASE"
        ),
        click.option("--data", type=_PATH, envvar="QUEUECTL_DATA", help="Folder of the sandbox."),
        click.option("--server", envvar="QUEUECTL_SERVER", help="URL of `queuectl api`."),
        click.option(
            "--server-ca",
            type=_PATH,
            envvar="QUEUECTL_SERVER_CA",
            help="Certificates (PEM) that it is trusted by.  [default: the system's]",
        ),
        click.option(
            "--token-file", type=_PATH, help="Who asks it: a file with a token; else QUEUECTL_TOKEN."
        ),
        click.option(
            "-o",
            "--output",
            type=click.Choice(FORMATS),
            default="table",
            help="How to print.",
            show_default=True,
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The flags of every command; the command gets them as its first argument.

    They may stand before the command's name too; after it they count more.
    """
    names = [field.name for field in fields(Options) if field.name != "wide"]

    @wraps(command)
    def run(**values: Any) -> None:
        context = click.get_current_context()
        for name, value in (context.obj or {}).items():
            source = context.get_parameter_source(name)
            if name in values and source in (ParameterSource.DEFAULT, ParameterSource.ENVIRONMENT):
                values[name] = value
        found = {name: values.pop(name) for name in names}
        if found["output"] == "wide":
            found |= {"output": "table", "wide": True}
        command(Options(**found), **values)

    return common(run)


def given_first(context: click.Context) -> dict[str, Any]:
    """Flags that stand before the command's name, for `with_options`."""
    return {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
