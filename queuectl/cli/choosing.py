"""Which workloads a command changes: those that are named, or all that its options select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from queuectl.cli import arrays, completion, contexts, rest, writing
from queuectl.cli.options import Failure, NotGood, Options
from queuectl.cli.reading import own_name
from queuectl.cli.resources import split

if TYPE_CHECKING:
    from queuectl.changes.edit import WorkloadTarget

_MOST_NAMED: Final = 5


class ChosenWorkloads(NamedTuple):
    """The arguments that say which workloads are meant."""

    words: tuple[str, ...]
    selector: str | None
    queue: str | None
    mine: bool
    all: bool
    dry_run: bool
    namespace: str | None

    @property
    def selects(self) -> bool:
        return bool(self.selector or self.queue or self.mine or self.all)


def chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments and options for workloads by name or selection; the command gets a `choice`."""

    @wraps(command)
    def choose(
        *arguments: Any,
        words: tuple[str, ...],
        selector: str | None,
        of_queue: str | None,
        mine: bool,
        every: bool,
        dry_run: bool,
        namespace: str | None,
        **others: Any,
    ) -> Any:
        of_arrays = arrays.selector(words)
        if of_arrays is not None and not (selector or of_queue or mine or every):
            words, selector = (), of_arrays
        choice = ChosenWorkloads(words, selector, of_queue, mine, every, dry_run, namespace)
        return command(*arguments, choice=choice, **others)

    for option in reversed(_OPTIONS):
        choose = option(choose)
    return choose


_OPTIONS: Final = (
    click.argument("words", nargs=-1, metavar="[KIND/NAME]...", shell_complete=completion.workloads),
    click.option(
        "-l",
        "--selector",
        metavar="SELECTOR",
        help="All in the namespace that match, such as team=a. All of an array: array/NAME.",
    ),
    click.option("--queue", "of_queue", metavar="LOCALQUEUE", help="All of this LocalQueue."),
    click.option("--mine", is_flag=True, help="All in the namespace that you submitted."),
    click.option("--all", "every", is_flag=True, help="All in the namespace."),
    click.option("--dry-run", is_flag=True, help="Let the API server check each change; nothing is written."),
    completion.NAMESPACE,
)


def targets(options: Options, choice: ChosenWorkloads) -> tuple[list[WorkloadTarget], list[Failure]]:
    """Return the chosen workloads, and why those of a selection that cannot be changed cannot.

    Raises Failure, for one that is named, and NotGood if a selection has none.
    """
    from queuectl.changes import edit as changing

    namespace = contexts.namespace(options, choice.namespace)
    for flag, value in (("-l", choice.selector), ("--queue", choice.queue)):
        if value is not None and not value.strip():  # such as a shell's variable that is not set
            raise click.UsageError(f"{flag} is empty: leave it out to choose more workloads")
    if choice.selects and choice.words:
        raise click.UsageError(f"{choice.words[0]!r}: names do not go with -l, --queue, --mine and --all")
    kinds = options.kinds()
    if not choice.selects:
        pairs = _named(choice.words)
        named = writing.target(
            lambda: [changing.workload(kinds, kind, namespace, name) for kind, name in pairs]
        )
        return named, []
    found, refused = [], []
    for kind, name in _selected(options, choice, namespace):
        try:
            found.append(changing.workload(kinds, kind, namespace, name))
        except changing.BadTarget as problem:
            refused.append(Failure(f"{kind.lower()}/{name}: {problem}"))
    return found, refused


def _named(words: Sequence[str]) -> list[tuple[str, str]]:
    """Kinds and names of KIND/NAME …, or of KIND NAME … as in kubectl; one bare name is a Job's."""
    if not words:
        raise click.UsageError("KIND/NAME is expected, or one of -l, --queue, --mine and --all")
    first, *names = words
    if names and "/" not in first:
        if bad := next((name for name in names if "/" in name), None):
            raise click.UsageError(f"{bad!r}: after the kind {first!r} names are expected, without a kind")
        return [(first, name) for name in dict.fromkeys(names)]
    if names and (bad := next((word for word in names if "/" not in word), None)):
        raise click.UsageError(f"{bad!r}: KIND/NAME is expected, as in {first!r}")
    return [split(word) for word in dict.fromkeys(words)]


def _selected(options: Options, choice: ChosenWorkloads, namespace: str) -> list[tuple[str, str]]:
    filters = {"namespace": namespace}
    if choice.selector:
        filters["labelSelector"] = choice.selector
    if choice.queue:
        filters["queue"] = choice.queue
    if choice.mine:
        filters["submitter"] = own_name(options)
    items = rest.connect(options, namespace=namespace).all(("workloads",), filters)["items"]
    if not items:
        raise NotGood(f"no workload in namespace {namespace} is selected")
    return [(item["kind"], item["name"]) for item in items]


def confirm_all(targets: Sequence[WorkloadTarget], choice: ChosenWorkloads, *, done: str, yes: bool) -> bool:
    """Ask once before a change of several that ends what runs of them; `done`: what happens to them.

    Return whether no other question is to be asked: not for one workload, which is read first.
    """
    if choice.dry_run or not targets:
        return True
    if len(targets) == 1:
        return yes
    named = ", ".join(f"{target.kind.lower()}/{target.name}" for target in targets[:_MOST_NAMED])
    more = f" and {len(targets) - _MOST_NAMED} more" if len(targets) > _MOST_NAMED else ""
    where = f"{len(targets)} workloads of namespace {targets[0].namespace}"
    writing.confirm(
        f"{where} are {done}: {named}{more}; those that run end, and what they have not saved is lost",
        yes=yes,
    )
    return True
