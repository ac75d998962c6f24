"""Where each command of README.md and docs/install.md is typed, and what its reader adds to it.

The blocks of a scene are typed in the order of the document. A command in a sentence or a table is typed in
the scene that has what it needs. Commands are typed as they stand, except for what the tables below state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.acceptance.first_hour.lines import Line, commands

README: Final = "README.md"
INSTALL: Final = "docs/install.md"


class Block(NamedTuple):
    section: str
    number: int = 1


@dataclass(frozen=True)
class Scene:
    """What is typed on one new cluster, or with the sandbox that `make run` starts."""

    name: str
    document: str
    typed: tuple[Block | str, ...]
    """Blocks, and beginnings of commands that are in a sentence or a table."""
    cluster: bool = True

    def lines(self) -> list[Line]:
        """Raises KeyError for a command that the document does not have."""
        known = commands(self.document)
        found: list[Line] = []
        for asked in self.typed:
            if isinstance(asked, Block):
                meant = [line for line in known if (line.section, line.block) == asked]
            else:
                inline = [line for line in known if not line.block and line.text.startswith(asked)]
                meant = sorted(inline, key=lambda line: line.text != asked)[:1]
            if not meant:
                raise KeyError(f"{self.document} has no {asked}")
            found += meant
        return found


SCENES: Final = (
    Scene("observe", README, (Block("Try it without risk"),)),
    Scene(
        "install",
        README,
        (
            Block("Install it on a cluster"),
            "queuectl get workloads",
            "kubectl queue get workloads",
            "queuectl submit job.yaml -q main --follow",
            "queuectl wait job/train",
            "queuectl explain",
            "queuectl waited",
            "queuectl share",
            "queuectl preemptions",
            "queuectl cancel job/train",
            "kubectl patch job NAME",
            "queuectl verify",
            "queuectl import kueue",
            "queuectl import slurm",
            "queuectl test",
            "queuectl simulate",
            "kubectl delete -k manifests/mutating",
            "kubectl delete -k manifests --ignore-not-found",
        ),
    ),
    Scene("helm", README, ("helm install",)),
    Scene(
        "local",
        README,
        (
            Block("Run it locally"),
            Block("queuectl"),
            "queuectl top",
            "make run ARGS=--headless",
            'make run ARGS="--control-plane real"',
            "make bench",
        ),
        cluster=False,
    ),
    Scene(
        "own database",
        INSTALL,
        (
            Block("Install"),
            Block("1. Create a database"),
            Block("2. Install queuectl"),
            "queuectl rebuild",
            "queuectl verify --cluster",
        ),
    ),
    Scene(
        "no database",
        INSTALL,
        (
            Block("1. Create a database", 2),
            Block("2. Install queuectl"),
            "queuectl manifests",
            "queuectl manifests FOLDER",
            "kubectl create clusterrolebinding",
            Block("4. Apply a policy and run the first job"),
            Block("4. Apply a policy and run the first job", 2),
            "kubectl queue",
            "kubectl apply -k manifests/examples",
            "kubectl apply -k manifests/authors",
            "kubectl apply -f manifests/default-queue/required.yaml",
            "kubectl apply -k manifests/default-queue",
            "kubectl delete -k manifests/default-queue",
            Block("Upgrade"),
            Block("Upgrade", 2),
            Block("Backup and restore"),
            Block("Uninstall"),
            Block("Uninstall", 2),
        ),
    ),
    Scene("helm", INSTALL, (Block("2. Install queuectl", 2), "helm uninstall")),
)

EXCEPTIONS: Final[Mapping[str, str]] = {
    "docker": "no Docker engine is needed for the tests: tests/acceptance/packaging reads the files",
    "export KUBECONFIG=~/.kube/config QUEUECTL_USER": "for the Docker commands after it",
    "kubectl krew install": "krew is not needed: tests/acceptance/packaging runs what it installs",
}
"""Beginnings of commands of docs/install.md that are not typed, with the reason. README has none."""


@dataclass(frozen=True)
class How:
    """What is stated here of the commands that begin with `begins`."""

    begins: str
    add: str = ""
    """Arguments that the text leaves to its reader."""
    answers: str = ""
    """Typed at its prompts."""
    terminal: bool = False
    """It asks at a terminal only."""
    before: str = ""
    """A command for what its reader has by then."""
    until: str = ""
    """It runs until it is stopped, in another terminal; the next command follows once it has printed this."""
    goes_on: bool = False
    """Stopped at the end of the scene only."""
    environment: Mapping[str, str] = field(default_factory=dict)
    tries: bool = False
    """Repeated until it succeeds: it is about what happens in the background."""
    document: str = ""
    """Only there."""
    exits: int = 0
    """Its exit code."""
    not_on_small: str = ""
    """Why it is not typed on the small API."""


_LARGE: Final = "docs/examples/three-teams.yaml"
_DATABASE: Final = " --database-url {url}"
_NAMESPACE: Final = "kubectl create namespace queuectl-system"
_UNINSTALL: Final = "helm uninstall queuectl --namespace queuectl-system"
_LONG: Final = (
    "kubectl -n team-a delete job train && "
    "sed 's/run-seconds: .*/run-seconds: \"600\"/' job.yaml | kubectl create -f -"
)
"""The same job again, and it runs."""
_LOST: Final = (
    "kubectl -n queuectl-system delete deployment queuectl-controller && dropdb --force queuectl && "
    "createdb queuectl --owner=queuectl && queuectl migrate --database-url {url}"
)
"""The controller is stopped, and the database is new."""

HOW: Final[Sequence[How]] = (
    How("make run ARGS", until="first admission", environment={"TERM": "dumb"}),
    How("make run", until="train-bert", goes_on=True),
    How("make test", environment={"PYTEST_ADDOPTS": "-k test_quantities"}),
    How("make bench", environment={"ARGS": "--scale 1000 --only engine,ledger"}),
    How("kubectl get job train-bert", tries=True),
    How("queuectl explain job/train-bert", tries=True),
    How("queuectl explain", add=" job/train -n team-a", document=README),
    How("queuectl waited", add=" job/train -n team-a", document=README),
    How("queuectl share", add=" team-a", document=README),
    How("queuectl top", until="Decisions"),
    How("queuectl controller --observe", until="probes at", goes_on=True),
    How("createuser", answers="{password}\n{password}\n"),
    How(
        "queuectl cancel",
        answers="y\n",
        terminal=True,
        before=_LONG,
    ),
    How("kubectl patch job NAME", before="kubectl create job train --image=busybox:1.37"),
    How("queuectl verify --cluster", add=f"{_DATABASE} --kubeconfig ~/.kube/config"),
    How("queuectl verify", add=_DATABASE),
    How("queuectl rebuild", add=f"{_DATABASE} --kubeconfig ~/.kube/config", before=_LOST),
    How("queuectl import kueue", add=" -f ../kueue.yaml"),
    How("queuectl import slurm", add=" -f tests/unit/kinds/slurm/department.txt", exits=3),
    How("queuectl test", add=" docs/examples/policy-tests.yaml -p docs/examples/policy"),
    How("queuectl simulate", add=f" {_LARGE}"),
    How("kubectl queue", add=" get workloads", document=INSTALL),
    How("helm install queuectl deploy/helm/queuectl --namespace queuectl-system --set", before=_UNINSTALL),
    How("helm install", before=_NAMESPACE, document=INSTALL),
    How("kubectl -n queuectl-system scale", not_on_small="it does not serve scale"),
    How("helm uninstall", add=" queuectl --namespace queuectl-system"),
)

REPLACED: Final[Mapping[str, str]] = {
    "postgresql://…": "{url}",
    "PASSWORD@HOST/queuectl?sslmode=verify-full&sslrootcert=system": "{password}@{host}/queuectl",
    "patch job NAME": "patch job train",
    "manifests FOLDER": "manifests manifests",
    "--server URL": "--server {rest}",
}
"""What stands for something of the reader's, and the reader's."""


def how(line: Line) -> How:
    """The first that fits."""
    fits = (one for one in HOW if line.text.startswith(one.begins) and one.document in ("", line.document))
    return next(fits, How(line.text))


def not_typed(document: str) -> list[Line]:
    """Commands of a document that no scene has. In a sentence, the beginning of a typed command is enough."""
    typed = {line for scene in SCENES for line in scene.lines()}
    texts = [line.text for line in typed]
    return [
        line
        for line in commands(document)
        if line not in typed and (line.block or not any(text.startswith(line.text) for text in texts))
    ]


def excepted(line: Line) -> bool:
    return line.document == INSTALL and line.text.startswith(tuple(EXCEPTIONS))
