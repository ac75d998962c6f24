"""How tests are divided among commands and worker processes.

Two markers, given to each test by what it needs, select the tests of a command. `make test` runs what is not
marked `acceptance`. `make test-acceptance` runs what is, and with more examples what is marked `law`.

In several processes (`pytest -n`) a group of tests runs in one worker, in order.

What tests share (a control plane, a sandbox, a Postgres) belongs to a worker process. A group is therefore
all tests of one site, or all tests of one file that run on the same kind of API server. A site is started
once, and two workers may have different sites up at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

_SITE: Final = re.compile(r"^(?P<folder>[^:]+)/[^:]+::.*\[.*?\bsite=(?P<site>[\w.]+)")
"""The id of a test that uses a site of its folder: `test_x[site=real-...]`."""
_PLANE: Final = re.compile(r"^(?P<file>[^:]+)::.*\[(?:.*-)?(?P<plane>small|real|in_process|as-1\.\d+)[-\]]")

LONGEST: Final = (
    "tests/acceptance/world",
    "tests/acceptance/operators",
    "tests/acceptance/e2e",
    "tests/acceptance/gate",
    "tests/integration/test_smoke.py",
    "tests/integration/kube_api",
    "tests/acceptance/benchmarks",
    "tests/integration/ledger",
    "tests/integration/kube",
)
"""Folders and files with the groups that start first, so that no long group is the last one to run."""

ACCEPTANCE: Final = "acceptance"
LAW: Final = "law"
_PROFILES: Final = "tests.unit.core.profiles"


def tiers(item: pytest.Item) -> list[str]:
    """The markers of a test.

    `acceptance`: it is in tests/acceptance, its parameters name a real control plane, or it types kubectl;
    other tests have the marker in their text. `law`: its number of examples depends on HYPOTHESIS_PROFILE.
    """
    names = []
    types_kubectl = "kubectl" in getattr(item, "fixturenames", ())
    if item.nodeid.startswith("tests/acceptance/") or _on_real_plane(item.nodeid) or types_kubectl:
        names.append(ACCEPTANCE)
    if isinstance(item, pytest.Function) and _depends_on_profile(item):
        names.append(LAW)
    return names


def _on_real_plane(nodeid: str) -> bool:
    """Tests of tests/unit have none."""
    match = _SITE.match(nodeid) or _PLANE.match(nodeid)
    if match is None or not nodeid.startswith("tests/integration/"):
        return False
    return match[match.lastindex or 0] not in ("small", "in_process")


def _depends_on_profile(item: pytest.Function) -> bool:
    return bool(getattr(item.function, "is_hypothesis_test", False)) or _uses_profiles(item.module)


@lru_cache(maxsize=1)
def _uses_profiles(module: ModuleType) -> bool:
    """The tests of a module are collected one after the other."""
    return any(
        _PROFILES in (getattr(value, "__name__", ""), getattr(value, "__module__", ""))
        for value in vars(module).values()
    )


def group(nodeid: str) -> str:
    """The group that a test belongs to."""
    if found := _SITE.match(nodeid):
        return f"{found['folder']} on {found['site']}"
    if found := _PLANE.match(nodeid):
        return f"{found['file']} on {found['plane']}"
    return nodeid.partition("::")[0]


def import_in_turn(arguments: Sequence[str], root: Path, worker: int, count: int) -> None:
    """Import all modules of tests below the arguments of pytest; each of `count` workers begins with others.

    All workers import all modules. On the first run a module is compiled by the worker that comes to it
    first, and the others load what it has written. An error is reported by the collection, which tries again.
    """
    folders = [root / argument.partition("::")[0] for argument in arguments]
    modules = sorted(module for folder in folders for module in folder.rglob("test_*.py"))
    first = worker * len(modules) // count
    for module in modules[first:] + modules[:first]:
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(module.relative_to(root).with_suffix("").parts))


def workers(cores: int) -> int:
    """How many run the tests: half as many more than cores, because many tests wait for what they start."""
    return cores + (cores + 1) // 2


def in_groups(items: list[pytest.Item]) -> None:
    """Sort by folder, the longest first, and by group: in one process too, a site is started once."""
    groups: dict[str, int] = {}
    for item in items:
        groups.setdefault(group(item.nodeid), len(groups))
    items.sort(key=lambda item: (_rank(item.nodeid), groups[group(item.nodeid)]))


def _rank(nodeid: str) -> int:
    return next(
        (n for n, folder in enumerate(LONGEST) if nodeid.startswith((f"{folder}/", f"{folder}::"))),
        len(LONGEST),
    )


def shared_sites(item: pytest.Item) -> dict[str, pytest.FixtureDef[Any]]:
    """The name of what the test shares with its group; the same for all tests of the group."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return {}
    definitions = {name: item._fixtureinfo.name2fixturedefs.get(name) for name in item.callspec.params}
    return {
        f"{found[-1].baseid} {name}={item.callspec.params[name]}": found[-1]
        for name, found in definitions.items()
        if found and found[-1].scope == "session"
    }


def scheduler(config: pytest.Config, log: Any) -> Any:
    """A scheduler of xdist: it gives a worker whole groups, in the order in which they were collected."""
    # Runs with planted bugs have no plugins, so xdist is imported only when it is needed.
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)
