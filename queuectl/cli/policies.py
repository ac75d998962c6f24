"""`-p` of `queuectl test` and `queuectl simulate`: manifests, read with all their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

import click

from queuectl.cli.importing import texts
from queuectl.cli.printing import printable

if TYPE_CHECKING:
    from queuectl.scenarios.manifests import Manifests

T = TypeVar("T")

policy_option: Final = click.option(
    "-p",
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE",
    help="Manifests: a file, or a folder. An object of a document replaces one of its kind and name. May be "
    "given several times.",
)


def read_policies(names: tuple[str, ...], wrong: list[str]) -> Manifests:
    """The manifests of all files, the later before the earlier. Errors are added to `wrong`."""
    from queuectl.scenarios.manifests import Manifests
    from queuectl.scenarios.reader import read_policy

    policy = Manifests()
    for given in read_each(names, read_policy, wrong):
        for note in given.without:
            click.echo(printable(note), err=True)  # the same as in a cluster
        policy = policy.under(Manifests(given.events))
    return policy


def read_each(names: tuple[str, ...], read: Callable[[bytes, str], T], wrong: list[str]) -> Iterator[T]:
    """The results of `read` for each file; errors are added to `wrong`."""
    from queuectl.files import BadFile
    from queuectl.scenarios.reader import BadScenarios

    for name in names:
        try:
            for shown, text in texts(name):
                try:
                    yield read(text, shown)
                except BadScenarios as error:
                    wrong += error.problems
        except BadFile as error:
            wrong.append(str(error))
