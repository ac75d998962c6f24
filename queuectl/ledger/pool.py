"""Connections to Postgres, in a pool: deadlines, no cancelled transactions, errors of the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
from sqlalchemy import Executable, func, select
from sqlalchemy import text as sql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from queuectl.net.failures import why
from queuectl.ports.ledger import LedgerRefused, LedgerUnavailable, LedgerUnfit, PlanFailed, SchemaMismatch

P = ParamSpec("P")
T = TypeVar("T")

_CONNECT_TIMEOUT: Final = 5.0
_ACQUIRE_TIMEOUT: Final = 5.0
_ANSWER_TIMEOUT: Final = 15.0
"""Seconds until a silent server is given up; more than every limit that the server enforces itself."""
_IDLE_TIMEOUT: Final = 10.0
_CHUNK: Final = 1000
"""Rows fetched at a time."""
LONG_READ: Final = 12.0
"""Seconds of a statement that reads a state, a month or months."""
UPKEEP: Final = 120.0
"""The same of roll-ups and `verify`, which have pools of their own: a client waits only as long as its pool
says, also where a transaction allows the server more."""
FEW_ROWS: Final = 200
"""Rows that a server of REST takes between two turns of other requests: some 10 ms."""

# By SQLSTATE, a class of two characters or a whole code (the longer match counts).
_NOT_ALLOWED: Final = ("28",)  # password, pg_hba.conf
_REFUSED: Final = ("22", "23")  # bad value, constraint
_BAD_VALUE: Final = "22"
_AWAY: Final = ("08", "25", "40", "53", "55", "57", "58", "F0", "XX")
"""The server, not the statement: connections, conflicts, resources, shutdown, disks, corruption."""
_NOT_AWAY: Final = ("53400", "57014")  # a limit of the configuration; a statement that took too long
_MISMATCH: Final = ("3D000", "3F000", "42P01", "42703", "42883")  # no such database, schema, table, column
_NO_DATABASE: Final = "create it, then run `queuectl migrate`"
_ANOTHER_SCHEMA: Final = (
    "the schema was changed by another version of queuectl, or dropped, while this program ran: start this "
    "program again, it says what to do"
)
"""Only a start compares the versions: which of the two is newer is not known here."""

Pool = AsyncEngine
"""A connection pool. SQLAlchemy calls it an engine, which is something else here."""

_POOLED: Final = (
    "a pooler such as PgBouncer is in between: connect to Postgres itself, or through a pool in session mode "
    "that hands startup parameters on"
)


def create_pool(url: str, *, read_only: bool = False, statement_timeout: float = 10.0) -> AsyncEngine:
    """A pool for `url`, in libpq's form or with SQLAlchemy's `+asyncpg`. Connects when first used.

    `statement_timeout` is in seconds; 0 sets none.
    """
    dsn = url.replace("postgresql+asyncpg://", "postgresql://", 1)
    settings = {
        "application_name": "queuectl",
        "statement_timeout": f"{int(statement_timeout * 1000)}",
        "lock_timeout": "2000",
        "idle_in_transaction_session_timeout": f"{int(_IDLE_TIMEOUT * 1000)}",
        "timezone": "UTC",
        "jit": "off",
    }
    if read_only:
        settings["default_transaction_read_only"] = "on"

    async def open_connection() -> asyncpg.Connection:
        # asyncpg itself connects: it reads sockets, several hosts and TLS from a URL as libpq does.
        return await asyncpg.connect(
            dsn,
            ssl=_tls(dsn),
            timeout=_CONNECT_TIMEOUT,
            command_timeout=max(_ANSWER_TIMEOUT, statement_timeout * 1.5) if statement_timeout else None,
            server_settings=settings,
        )

    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=open_connection,
        pool_size=5,
        max_overflow=5,
        pool_timeout=_ACQUIRE_TIMEOUT,
        pool_recycle=1800,
        pool_use_lifo=True,
    )


def _tls(dsn: str) -> ssl.SSLContext | None:
    """For `sslrootcert=system` of libpq, which asyncpg does not know: CAs of the system, and the host name.

    None: as asyncpg reads it from the URL.
    """
    roots = parse_qs(urlsplit(dsn).query).get("sslrootcert")
    return ssl.create_default_context() if roots == ["system"] else None


@contextlib.asynccontextmanager
async def reading(
    pool: AsyncEngine, *, statement_timeout: float | None = None, idle_timeout: float | None = None
) -> AsyncIterator[AsyncConnection]:
    """A read-only transaction that sees one committed state. Timeouts are in seconds, 0: none.

    `idle_timeout`: between two statements, where much is computed from what the first one answers.
    """
    assert statement_timeout is None or statement_timeout < _ANSWER_TIMEOUT
    options = pool.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    given = {"statement_timeout": statement_timeout, "idle_in_transaction_session_timeout": idle_timeout}
    async with options.begin() as connection:
        for name, seconds in given.items():
            if seconds is not None:
                await connection.execute(select(func.set_config(name, str(int(seconds * 1000)), True)))
        yield connection


async def stream(
    connection: AsyncConnection,
    query: Executable,
    given: Mapping[str, Any] | None = None,
    at_once: int = _CHUNK,
) -> AsyncIterator[Any]:
    """Yield the rows of a query, of which `at_once` are in memory: other tasks have a turn between."""
    async with connection.stream(query, given, execution_options={"yield_per": at_once}) as result:
        # In chunks: fetching single rows costs more than what is done with them.
        async for chunk in result.partitions():
            for row in chunk:
                yield row


async def check_session(connection: AsyncConnection) -> None:
    """Raises LedgerUnfit if the settings of `create_pool` do not reach the server's session."""
    name, asked = "idle_in_transaction_session_timeout", int(_IDLE_TIMEOUT * 1000)
    query = sql("SELECT setting FROM pg_settings WHERE name = :name")
    found = (await connection.execute(query, {"name": name})).scalar_one()
    if found != str(asked):
        raise LedgerUnfit(f"{name} is {found} ms in its sessions, {asked} was asked for: {_POOLED}")


@contextlib.asynccontextmanager
async def connection_pool(
    url: str, *, read_only: bool = False, statement_timeout: float = 10.0
) -> AsyncIterator[AsyncEngine]:
    """`create_pool`; its connections are closed afterwards."""
    pool = create_pool(url, read_only=read_only, statement_timeout=statement_timeout)
    try:
        yield pool
    finally:
        await pool.dispose()


def translated(error: BaseException) -> Exception | None:
    """The ledger error for a database error; None if it is not one.

    A dead server causes many different errors; every error that is not clearly a refused statement counts as
    LedgerUnavailable, after which a call may be repeated.
    """
    if isinstance(error, PlanFailed):
        return None  # it says more than its cause
    chain = _chain(error)
    state = _sqlstate(chain)
    message = _message(error)
    if state is not None:
        if "startup parameter" in message:
            return LedgerUnfit(f"{message}: {_POOLED}")
        if state.startswith(_NOT_ALLOWED):
            return LedgerUnfit(f"{message} (SQLSTATE {state})")
        if state.startswith(_MISMATCH):
            return SchemaMismatch(f"{message}: {_NO_DATABASE if state == '3D000' else _ANOTHER_SCHEMA}")
        if state.startswith(_REFUSED):
            return LedgerRefused(f"{message} (SQLSTATE {state})")
        return LedgerUnavailable(f"{message} (SQLSTATE {state})")
    if any(isinstance(e, asyncpg.DataError | UnicodeError) for e in chain):
        return LedgerRefused(message)  # a value that cannot be sent
    known = (
        DBAPIError,
        PoolTimeout,
        OSError,
        TimeoutError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
    )
    if isinstance(error, PoolTimeout):
        return LedgerUnavailable(f"no connection of the pool was free within {_ACQUIRE_TIMEOUT:g} s")
    return LedgerUnavailable(why(message)) if isinstance(error, known) else None


@contextlib.contextmanager
def storing() -> Iterator[None]:
    """Raises PlanFailed where the server answers that it can't store what the block sends, for a reason that
    is neither a constraint nor an outage: a value that no row can hold is that of one workload."""
    try:
        yield
    except DBAPIError as error:
        state = _sqlstate(_chain(error)) or _AWAY[0]
        away = state.startswith(_AWAY) and state not in _NOT_AWAY
        failed = translated(error)
        bad_value = state.startswith(_BAD_VALUE) and type(failed) is LedgerRefused
        if away or not (bad_value or type(failed) is LedgerUnavailable):
            raise
        raise PlanFailed(str(failed), state) from error


def _sqlstate(chain: list[BaseException]) -> str | None:
    return next((state for error in chain if (state := getattr(error, "sqlstate", None))), None)


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = getattr(current, "orig", None) or current.__cause__
    return chain


def _message(error: BaseException) -> str:
    orig = getattr(error, "orig", None)
    text = str(orig or error).strip() or type(error).__name__
    detail = getattr(orig, "detail", None)
    # The driver's class name comes first, as <class '...'>: it does not help an operator.
    text = text.rpartition("'>: ")[2].splitlines()[0]
    return f"{text} ({detail})" if detail else text


def ledger_call(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Makes a coroutine function raise the ledger's errors, and end its transaction even if cancelled."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await uncancelled(function(*args, **kwargs))
        except Exception as error:
            known = translated(error)
            if known is None:
                raise
            raise known from error

    return call


async def uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; on cancellation, first wait for its end (bounded by its own deadlines)."""
    task: asyncio.Task[T] = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _ended(task)
        raise


async def _ended(task: asyncio.Task[Any]) -> None:
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()  # marked as retrieved: the cancelled caller cannot get it
