"""The API server's own CPU profile: it samples itself (pprof), this reads the samples."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp

from benchmarks.profiles import Samples
from benchmarks.site import Site

_SECONDS: Final = 10
"""Of one profile; the server sends it when they are over."""
_SAMPLE: Final = 0.01
"""CPU seconds between two samples of a Go program."""
_PARTS: Final = tuple(
    (re.compile(pattern), part)
    for pattern, part in (
        (r"admission/plugin/policy/mutating", "mutating policies"),
        (r"admission/plugin/policy/validating", "validating policies"),
        (r"admission/plugin/policy|cel-go", "policies: matching"),
        (r"apiserver/pkg/admission|plugin/pkg/admission", "other admission"),
        (r"managedfields|structured-merge-diff", "managed fields"),
        (r"serveWatch|WatchServer|watchEncoder", "sending watches"),
        (r"storage/cacher", "watch cache"),
        (r"registry/rest\.|/registry/batch|apis/batch", "strategy, validation, conversion of Jobs"),
        (r"storage/etcd3|etcd/client|grpc", "etcd client, codecs of stored objects"),
        (r"authentication|authorization|auth/authorizer", "identity, rights"),
        (r"apiserver/pkg/endpoints/handlers", "handlers: decoding, patching, answers"),
        (r"apiserver/|net/http|crypto/", "HTTP, TLS, filters"),
        (r"runtime\.(gc|bgsweep|bgscavenge)", "garbage collection"),
        (r"runtime\.(mcall|schedule|findRunnable|mstart|morestack|rt0_go)", "Go scheduler"),
    )
)
_Fields = Iterator[tuple[int, int | bytes]]


class ServerProfile:
    """`async with ServerProfile(site, file):` profiles the API server while the block runs."""

    def __init__(self, site: Site, file: Path) -> None:
        self._site = site
        self._file = file
        self._found = Samples(every=_SAMPLE)
        self._tasks = asyncio.TaskGroup()
        self._over = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        await self._tasks.__aexit__(kind, error, trace)
        self._found.write(self._file)

    async def _run(self) -> None:
        """Profile after profile: the server refuses one that is longer than a request may last."""
        headers = {"Authorization": f"Bearer {self._site.plane.tokens['admin']}"}
        trust = self._site.plane.ssl_context()
        url = f"{self._site.plane.url}/debug/pprof/profile?seconds={_SECONDS}"
        async with aiohttp.ClientSession(headers=headers, trust_env=False) as session:
            while not self._over.is_set():
                async with session.get(url, ssl=trust) as answer:
                    content = await answer.read()
                    if answer.status != 200:
                        raise RuntimeError(f"GET {url}: {answer.status} {content[:500].decode()}")
                for stack, count in stacks(content):
                    self._found.add(stack, _part(stack), count)


def _part(stack: Sequence[str]) -> str | None:
    """The first part of the table that has any function of the stack."""
    return next((part for pattern, part in _PARTS if any(pattern.search(one) for one in stack)), None)


def stacks(profile: bytes) -> Iterator[tuple[list[str], int]]:
    """Functions of each sampled stack, innermost first, and how often it was sampled.

    `profile`: as Go programs serve it, a gzipped protocol buffer (github.com/google/pprof, profile.proto).
    """
    texts: list[str] = []
    functions: dict[int, int] = {}
    locations: dict[int, list[int]] = {}
    samples: list[tuple[list[int], int]] = []
    for number, value in _fields(gzip.decompress(profile)):
        if number == 6:
            texts.append(_bytes(value).decode())
        elif number == 5:
            function = dict(_fields(_bytes(value)))
            functions[_number(function[1])] = _number(function[2])
        elif number == 4:
            location = list(_fields(_bytes(value)))
            lines = [dict(_fields(_bytes(line))) for field, line in location if field == 4]
            locations[_number(dict(location)[1])] = [_number(line[1]) for line in lines]
        elif number == 2:
            sample = list(_fields(_bytes(value)))
            samples.append((list(_numbers(sample, 1)), next(_numbers(sample, 2))))
    for places, count in samples:
        yield [texts[functions[one]] for place in places for one in locations[place]], count


def _fields(message: bytes) -> _Fields:
    """Number and value of each field of a protocol buffer: an integer, or the bytes of any other value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif key & 7 == 2:
            size, at = _varint(message, at)
            yield key >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError(f"a profile has no field of wire type {key & 7}")


def _numbers(message: list[tuple[int, int | bytes]], field: int) -> Iterator[int]:
    """All values of a repeated field: each by itself, or many packed into one value."""
    for number, value in message:
        if number == field and isinstance(value, int):
            yield value
        elif number == field:
            packed, at = _bytes(value), 0
            while at < len(packed):
                one, at = _varint(packed, at)
                yield one


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def _bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


def _number(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value
