"""Address of an API server and credentials for it, read by the Kubernetes library, again when refused."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from queuectl.files import BadFile, documents
from queuectl.files import read as read_file
from queuectl.kube.errors import BadKubeconfig
from queuectl.net.failures import why

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

LOAD_SECONDS: Final = 30.0
"""To read credentials: an exec plugin that calls a cloud may take seconds and has no deadline of its own."""


class Bearer:
    """A token that never changes."""

    def __init__(self, token: str) -> None:
        self._header = f"Bearer {token}"

    async def authorization(self) -> str | None:
        return self._header

    async def refresh(self, refused: str | None) -> None:
        return None


class Account:
    """An identity on one API server."""

    def __init__(self, configuration: Configuration, load: Callable[[], Awaitable[Configuration]]) -> None:
        self._configuration = configuration
        self._load = load
        self._refreshing = asyncio.Lock()
        self.server = str(configuration.host)
        if not _is_url(self.server):
            raise BadKubeconfig(f"server {self.server[:200]!r} is no URL such as https://10.0.0.1:6443")
        self.server_name: str | None = configuration.tls_server_name
        self.proxy: str | None = configuration.proxy
        try:
            self.tls: ssl.SSLContext | None = _tls(configuration) if self.server.startswith("https") else None
        except OSError as error:  # ssl.SSLError is one
            raise BadKubeconfig(f"a certificate of the kubeconfig: {why(error)}") from error

    @classmethod
    async def read(cls, load: Callable[[], Awaitable[Configuration]]) -> Account:
        """Raises BadKubeconfig."""
        return cls(await load(), load)

    def trust(self) -> ssl.SSLContext | None:
        """TLS to this server without the client certificate of this identity; None: without TLS."""
        if not self.server.startswith("https"):
            return None
        return _tls(self._configuration, certificate=False)

    async def authorization(self) -> str | None:
        """The header's value; None if the client certificate suffices. Raises BadKubeconfig."""
        try:
            found: str | None = await self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # any kind: a token file that is being replaced, a plugin that fails
            raise BadKubeconfig(f"no credentials: {error or type(error).__name__}") from error
        return found

    async def refresh(self, refused: str | None) -> None:
        """Read the credentials again, unless that was done since `refused` was returned.

        Raises BadKubeconfig.
        """
        async with self._refreshing:
            if refused is not None and await self.authorization() != refused:
                return
            self._configuration = await self._load()
            if self.tls is not None and self._configuration.cert_file:
                # New connections present the new certificate.
                try:
                    self.tls.load_cert_chain(self._configuration.cert_file, self._configuration.key_file)
                except OSError as error:
                    raise BadKubeconfig(f"certificate {self._configuration.cert_file}: {error}") from error


async def from_kubeconfig(path: str | None, context: str | None) -> Account:
    """The identity of `context` (its current one if None) in the file at `path` (the default one if None).

    Raises BadKubeconfig.
    """
    read = library()
    files = _files(path)

    async def load() -> Configuration:
        configuration: Configuration = read.Configuration()
        async with asyncio.timeout(LOAD_SECONDS):
            await read.load_kube_config(
                config_file=os.pathsep.join(files),
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
        return configuration

    where = f"kubeconfig {path or 'of the user'}{f', context {context}' if context else ''}"
    return await Account.read(_checked(load, where, files))


def _files(path: str | None) -> list[str]:
    """The files that are read. Raises BadKubeconfig if there is none of them."""
    # The library knows the variable as it was at its import only.
    given = path or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    files = given.split(os.pathsep)
    if not any(Path(file).expanduser().exists() for file in files):
        raise BadKubeconfig(f"there is no kubeconfig {given}: give --kubeconfig, or set KUBECONFIG")
    return files


async def in_cluster() -> Account:
    """The service account of this pod. Raises BadKubeconfig."""
    read = library()

    async def load() -> Configuration:
        configuration: Configuration = read.Configuration()
        read.load_incluster_config(client_configuration=configuration)
        return configuration

    return await Account.read(_checked(load, "service account of this pod"))


def _checked(
    load: Callable[[], Awaitable[Configuration]], where: str, files: Sequence[str] = ()
) -> Callable[[], Awaitable[Configuration]]:
    async def checked() -> Configuration:
        try:
            return await load()
        except TimeoutError as error:
            raise BadKubeconfig(f"{where}: no credentials within {LOAD_SECONDS:.0f} s") from error
        except (
            Exception
        ) as error:  # the library passes on errors of its parsers and plugins, even AssertionError
            raise BadKubeconfig(f"{where}: {_problem(error, files)}") from error

    return checked


_MISSING: Final = re.compile(r"Expected key (\S+) in (.*)")
_UNNAMED: Final = re.compile(r"Expected object with name (.*) in (.*) list")
_NO_FILE: Final = re.compile(r"File does not exists?: (.*)")


def _problem(error: Exception, files: Sequence[str]) -> str:
    """What is wrong with the files that an error of the library is about."""
    for name in files:
        if len(files) > 1 and not Path(name).expanduser().exists():
            continue
        try:
            found = documents(read_file(Path(name).expanduser()), name)
        except BadFile as bad:
            return str(bad).removeprefix(f"{name}: ")
        if any(not isinstance(document.content, dict) for document in found):
            return "an object is expected"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else why(error)
    text = str(error)
    if missing := _MISSING.search(text):
        return f"{missing[1]} is missing"
    if unnamed := _UNNAMED.search(text):
        return f"{unnamed[1]} is not among its {unnamed[2].rpartition('/')[2]}"
    if no_file := _NO_FILE.search(text):
        return f"{no_file[1]}: No such file or directory"
    # Another error of the library's parser has no words that help.
    return text if type(error).__module__.startswith(_LIBRARY) else "a field is malformed"


def _is_url(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _tls(configuration: Configuration, *, certificate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if certificate and configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


_LIBRARY: Final = "kubernetes_asyncio"

log = logging.getLogger(__name__)


class Library(NamedTuple):
    Configuration: Any
    load_kube_config: Any
    load_incluster_config: Any


@functools.cache
def library() -> Library:
    """Raises ImportError where it is not installed."""
    if _LIBRARY not in sys.modules:
        with _only_parts():
            try:
                return _parts("kubernetes_asyncio.client.configuration")
            except Exception:
                # Another version with another layout: import all of it.
                log.debug("%s can't be imported in parts", _LIBRARY, exc_info=True)
    return _parts("kubernetes_asyncio.client")


def _parts(client: str) -> Library:
    configuration = import_module(client).Configuration
    package = sys.modules[f"{_LIBRARY}.client"]
    if not hasattr(package, "Configuration"):
        vars(package).update(Configuration=configuration, ApiClient=_no_client)
    config = import_module(f"{_LIBRARY}.config")
    return Library(configuration, config.load_kube_config, config.load_incluster_config)


def _no_client(*_: object, **__: object) -> None:
    raise NotImplementedError("requests go through queuectl.kube.session")


@contextlib.contextmanager
def _only_parts() -> Iterator[None]:
    """The library and its package `client`, with nothing imported into them."""
    spec = find_spec(_LIBRARY)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{_LIBRARY} is not installed", name=_LIBRARY)
    for name, inside in ((_LIBRARY, ""), (f"{_LIBRARY}.client", "client")):
        bare = ModuleType(name)
        bare.__path__ = [str(Path(place, inside)) for place in spec.submodule_search_locations]
        sys.modules[name] = bare
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _LIBRARY]:
            del sys.modules[name]
