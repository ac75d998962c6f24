"""Pictures of a month of three teams, as its ledger shows it: `make pictures`, or this module alone.

The month is that of tests/integration/ledger/test_month.py, which checks the figures.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.machine import scratch
from docs.pictures import drawing
from queuectl.ledger.admin import schema
from queuectl.ledger.pool import connection_pool
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.integration.ledger.test_month import Lab, play, store
from tests.integration.ledger.test_statements import Books

HERE: Final = Path(__file__).resolve().parent
SHOWN: Final = {
    "month-finance": ("statement", "show", "2030-01", "--by", "clusterqueue,user,kind"),
    "month-admin": ("usage", "--by", "user", "--month", "2030-01"),
    "month-hana": ("history", "job/hog-4", "-n", "ns"),
    "month-rob": ("history", "job/sim", "-n", "ns"),
}
"""What finance, the admin and two users ask, by the name of the picture."""
_WIDTH: Final = 132
_SECONDS: Final = 120.0
_SAYS: Final = "REST at "


def pictures() -> dict[str, str]:
    """The content of each SVG by name. Raises NotMade."""
    with scratch() as folder:
        return asyncio.run(_pictures(folder))


async def _pictures(folder: Path) -> dict[str, str]:
    async with EmbeddedPostgres(folder / "postgres") as postgres:
        await schema.migrate(postgres.url)
        lab = Lab()
        play(lab)
        async with connection_pool(postgres.url) as pool:
            await store(lab, Books(pool, "month", postgres.url))
        return await asyncio.to_thread(_drawn, folder, postgres.url)


def _drawn(folder: Path, database: str) -> dict[str, str]:
    with _rest(folder, database) as url:
        return {
            f"{name}.svg": drawing.terminal(
                arguments, drawing.at_a_terminal([*arguments, "--server", url], _WIDTH), _WIDTH
            )
            for name, arguments in SHOWN.items()
        }


@contextmanager
def _rest(folder: Path, database: str) -> Iterator[str]:
    """The URL of a REST server over the database."""
    config, log = folder / "queuectl.yaml", folder / "api.log"
    config.write_text("api: {listen: '127.0.0.1:0', identity: local}\n", encoding="utf-8")
    argv = [sys.executable, "-m", "queuectl", "api", "--config", str(config), "--database-url", database]
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, cwd=drawing.ROOT, env=drawing.environment(), stdout=output, stderr=subprocess.STDOUT
        )
    end = time.monotonic() + _SECONDS
    try:
        while _SAYS not in (said := log.read_text(encoding="utf-8")):
            if process.poll() is not None or time.monotonic() > end:
                raise drawing.NotMade(f"queuectl api does not serve:\n{said}")
            time.sleep(0.1)
        yield said.partition(_SAYS)[2].split()[0].rstrip(",;")
    finally:
        process.terminate()
        process.wait(30)


def draw() -> None:
    """Write all of `SHOWN`. Raises NotMade."""
    for name, content in pictures().items():
        (HERE / name).write_text(content, encoding="utf-8")
        print(f"{name} {len(content) / 1000:.0f} kB")


if __name__ == "__main__":
    draw()
