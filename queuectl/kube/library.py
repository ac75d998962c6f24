"""The used parts of kubernetes_asyncio: its configuration, readers of kubeconfigs and service accounts.

Its package `client` imports 800 modules of typed models. None of them is used here, and importing them takes
nearly as long as the rest of a controller's start. So the used parts are imported into an empty package of
the same name, which is removed again: a later import of the library gets all of it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

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
