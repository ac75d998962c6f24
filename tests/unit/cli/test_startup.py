"""Commands import only the modules they need, so that they start fast."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVERS = frozenset(
    ("sqlalchemy", "asyncpg", "alembic", "kubernetes_asyncio", "aiohttp", "prometheus_client", "cryptography")
)
HEAVY = SERVERS | {"asyncio", "pydantic", "rich", "yaml", "orjson"}


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("--help", HEAVY),
        ("get wl --server http://127.0.0.1:9", HEAVY),
        ("explain job/x -n default --server http://127.0.0.1:9", HEAVY),
        ("explain job/x --server http://127.0.0.1:9", SERVERS),
        ("events --server http://127.0.0.1:9", HEAVY),
        ("hold --help", SERVERS),
    ],
)
def test_a_command_loads_only_what_it_needs(line: str, absent: frozenset[str]) -> None:
    program = (
        "import sys\n"
        "from queuectl.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('loaded:', *sorted(name for name in sys.modules if '.' not in name))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, *line.split()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = found.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded:"
    assert absent.isdisjoint(loaded)
