"""The flags of every command, and the settings they lead to."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from queuectl.cli.printing import printable

if TYPE_CHECKING:
    from queuectl.app.kinds import Kinds
    from queuectl.kinds.jobs import KindRegistry
    from queuectl.settings import Settings

FORMATS: Final = ("table", "wide", "json", "yaml")
SELECTIONS: Final = ("name", "jsonpath=", "custom-columns=")
"""Output formats of commands that list objects."""
_PATH: Final = click.Path(path_type=Path)
_AGO: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST: Final = timedelta(days=365_000)
"""Earlier than any ledger, and still within the range of dates."""


def parse_ago(text: str) -> timedelta | None:
    """How long ago, such as 90s, 15m, 2h or 7d; None: `text` is something else."""
    found = _AGO.fullmatch(text)
    return min(timedelta(seconds=int(found[1]) * _SECONDS[found[2]]), _LONGEST) if found else None


class Failure(click.ClickException):
    """An error that the user can correct: `message` says how. Exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        # The message may contain text of a server or a file.
        click.echo("\n".join(map(printable, f"Error: {self.message}".split("\n"))), err=True)


class NotGood(Failure):
    """The command worked, but its result is negative. Exit code 1."""

    exit_code = 1


class NoAnswer(Failure):
    """No server, or a server that cannot answer now: the same request may succeed later."""


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
    """Output format: table, json or yaml, or one of SELECTIONS with its text."""
    wide: bool = False
    """Tables with all their columns."""

    @property
    def folder(self) -> Path:
        """Folder of the sandbox."""
        return self.data or default_folder()

    def endpoints(self) -> dict[str, str]:
        """Those of the sandbox in `folder`."""
        return read_endpoints(self.folder)

    def settings(self) -> Settings:
        """Flags override environment, which overrides the file. Raises Failure with all problems."""
        from queuectl.settings import ConfigurationError, load

        try:
            return load(self.config, database_url=self.database_url)
        except ConfigurationError as error:
            raise Failure("the configuration is not valid:\n  " + "\n  ".join(error.problems)) from None

    def kinds(self) -> KindRegistry:
        """Kinds of jobs: built-in ones, and those of --config. Raises Failure."""
        return self.all_kinds().registry

    def all_kinds(self) -> Kinds:
        """The same with the rows of --config that are malformed."""
        from queuectl.app.kinds import built_in, job_kinds

        return built_in() if self.config is None else job_kinds(self.settings())

    def connected(self, *, cluster: bool) -> tuple[Settings, Path | None, str | None]:
        """Settings with a database, kubeconfig and context.

        Without a database, and with `cluster` without a kubeconfig too, both of the sandbox are used:
        never one of the sandbox with one of another cluster.
        """
        from queuectl.settings import load

        settings = self.settings()
        if settings.database.url is not None:
            return settings, self.kubeconfig, self.context
        rest = self.endpoints()
        named = "give --database-url or QUEUECTL_DATABASE_URL, or set database.url in --config"
        if cluster and self.kubeconfig is not None:
            raise Failure(f"no database is given for this kubeconfig: {named}")
        if "postgres" not in rest:
            raise Failure(f"no database is given: {named} (and there is no sandbox in {self.folder})")
        click.echo(f"using the sandbox in {self.folder}", err=True)
        settings = load(self.config, database_url=rest["postgres"])
        return settings, self.folder / "kubeconfig", self.context or "controller"


def read_endpoints(folder: Path) -> dict[str, str]:
    """URLs of the sandbox in a folder: kubernetes, rest, metrics, postgres; empty if none was started."""
    try:
        found = json.loads((folder / "endpoints.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}


def default_folder() -> Path:
    """The default folder of the sandbox.

    For root it is not in the home folder: Postgres refuses to run as root, and others have no access there.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/queuectl/sandbox")
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "queuectl" / "sandbox"


class _Format(click.ParamType[str]):
    """One of FORMATS, or of the others that a command has; one that ends with `=` takes a text after it."""

    name = "format"

    def __init__(self, others: tuple[str, ...]) -> None:
        self._others = others

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text in FORMATS or any(
            text.startswith(one) if one.endswith("=") else text == one for one in self._others
        ):
            return text
        self.fail(f"{text[:80]!r} is none of {', '.join((*FORMATS, *self._others))}", param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join((*FORMATS, *self._others))}]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(one) for one in (*FORMATS, *self._others) if one.startswith(incomplete)]


class Command(click.Command):
    """A command whose help lists its own options first, then those that say where the cluster is."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        connection: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if row is not None:
                (connection if isinstance(parameter, _ConnectionOption) else own).append(row)
        for heading, rows in (("Options", own), ("Connection", connection)):
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class CommandGroup(Command, click.Group):
    """Commands below one, such as `statement show`."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def command(
    name: str, cls: type[Command] = Command, **attributes: Any
) -> Callable[[Callable[..., Any]], Command]:
    return click.command(name, cls=cls, **attributes)


class _ConnectionOption(click.Option):
    """A common flag that says which cluster, ledger or server is meant."""


_connection: Final = partial(click.option, cls=_ConnectionOption)


def common(command: Callable[..., Any], formats: tuple[str, ...] = SELECTIONS) -> Callable[..., Any]:
    """The common flags. `formats`: output formats besides FORMATS."""
    decorators = (
        _connection("--config", type=_PATH, help="Configuration file (YAML)."),
        _connection("--kubeconfig", type=_PATH, help="Kubeconfig of the cluster."),
        _connection("--context", help="Context in the kubeconfig."),
        _connection("--database-url", envvar="QUEUECTL_DATABASE_URL", help="postgresql://USER@HOST/DATABASE"),
        _connection("--data", type=_PATH, envvar="QUEUECTL_DATA", help="Folder of the sandbox."),
        _connection("--server", envvar="QUEUECTL_SERVER", help="URL of `queuectl api`."),
        _connection(
            "--server-ca",
            type=_PATH,
            envvar="QUEUECTL_SERVER_CA",
            help="CA certificates (PEM) for --server.  [default: the system's]",
        ),
        _connection(
            "--token-file", type=_PATH, help="File with the token for --server; else QUEUECTL_TOKEN."
        ),
        click.option(
            "-o",
            "--output",
            type=_Format(formats),
            default="table",
            help="Output format.",
            show_default=True,
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def with_options(command: Callable[..., None], formats: tuple[str, ...] = ()) -> Callable[..., None]:
    """The flags of every command; the command gets them as its first argument.

    They may be given before the command's name too; those after it take precedence. `formats`: output formats
    besides FORMATS.
    """
    format = _Format(formats)
    names = [field.name for field in fields(Options) if field.name != "wide"]

    @wraps(command)
    def run(**values: Any) -> None:
        context = click.get_current_context()
        for name, value in (context.obj or {}).items():
            source = context.get_parameter_source(name)
            if name in values and source in (ParameterSource.DEFAULT, ParameterSource.ENVIRONMENT):
                values[name] = value
        found = {name: values.pop(name) for name in names}
        # Before the command's name the formats of all commands are accepted.
        found["output"] = format.convert(found["output"], None, context)
        if found["output"] == "wide":
            found |= {"output": "table", "wide": True}
        command(Options(**found), **values)

    return common(run, formats)


def given_first(context: click.Context) -> dict[str, Any]:
    """Flags that are given before the command's name, for `with_options`."""
    return {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
