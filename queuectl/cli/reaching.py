"""REST in the cluster of a kubeconfig: found, reached through the API server, and given a token."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import click

from queuectl.cli.contexts import Place
from queuectl.cli.identity import ACCOUNT, Grant
from queuectl.cli.options import Failure, NoAnswer
from queuectl.cli.printing import printable

if TYPE_CHECKING:
    import socket

    from queuectl.kube.proxied import ApiError

Found = TypeVar("Found")
_ROLES: Final = "ClusterRole edit includes the right to create its tokens"


class Reached:
    """REST of one cluster. Every method raises Failure, NoAnswer if it may succeed later."""

    def __init__(self, place: Place, context: str | None, patience: float | None = None) -> None:
        """`context`: as given; None: the current one. `patience`: seconds for each request."""
        from queuectl.kube import proxied as reaching

        self._app = reaching
        self._place = place
        self._refused: list[str] = []
        try:
            self._cluster = reaching.ReachedCluster(place.kubeconfig, context, patience or reaching.SECONDS)
        except reaching.BadKubeconfig as error:
            raise Failure(str(error)) from None
        except reaching.Unavailable as error:
            raise NoAnswer(f"{place}: {printable(error)}") from None
        _at_end(self._cluster.close)
        self.url: Final = f"https://{reaching.HOST}"

    def authority(self) -> str:
        """The CA certificates of REST, as PEM."""
        try:
            found = self._try(self._cluster.authority)
        except self._app.NotFound:
            raise Failure(
                f"{self._place}: queuectl is not installed there, or an older version: there is no ConfigMap "
                f"{self._app.NAMESPACE}/{self._app.AUTHORITY}\n"
                "--context or --kubeconfig names another cluster, --server another REST server"
            ) from None
        except self._app.Forbidden as error:
            raise self._forbidden(error, f"get the ConfigMap {self._app.AUTHORITY}") from None
        if found is None:
            raise NoAnswer(
                f"{self._place}: REST has not published its CA yet (ConfigMap {self._app.NAMESPACE}/"
                f"{self._app.AUTHORITY}): does it run? kubectl get pods -n {self._app.NAMESPACE}"
            )
        return found

    def connect(self) -> socket.socket:
        """A connection to REST on which TLS is still to be begun."""
        try:
            return self._try(self._cluster.connect)
        except self._app.NotFound:
            raise NoAnswer(
                f"{self._place}: there is no Service {self._app.NAMESPACE}/{self._app.SERVICE}, or its REST "
                "server is older than this program"
            ) from None
        except self._app.Forbidden as error:
            raise self._forbidden(error, f"get services/proxy of {self._app.SERVICE}") from None

    def own_token(self) -> str | None:
        return self._try(self._cluster.own_token)

    def granted(self, audience: str, *, subject: object) -> Grant | None:
        """A token of a service account: the caller's own one, or the viewer that the caller may use."""
        self._refused = []
        own = str(subject).removeprefix(ACCOUNT).split(":") if str(subject).startswith(ACCOUNT) else []
        viewer = self._app.VIEWER
        accounts = [(own[0], own[1])] if len(own) == 2 else []
        accounts += [(self._app.NAMESPACE, viewer), (self._place.namespace, viewer)]
        for namespace, name in dict.fromkeys(accounts):
            try:
                token = self._try(partial(self._cluster.account_token, namespace, name, audience))
            except (self._app.Forbidden, self._app.NotFound) as error:
                why = "there is none" if isinstance(error, self._app.NotFound) else "you may not"
                self._refused.append(f"{namespace}/{name}: {why}")
            else:
                return Grant(token, f"a token of service account {namespace}/{name} for 10 minutes")
        return None

    def refusals(self) -> str:
        """Why there is no token, and what would help."""
        namespace, viewer = self._place.namespace, self._app.VIEWER
        return (
            f" for its own audience, and {self._place} has none: no token of the kubeconfig is accepted, and "
            f"none could be created for a service account ({', '.join(self._refused)}).\n"
            f"An admin of namespace {namespace} can give it a service account that you may use ({_ROLES}):\n"
            f"  kubectl create serviceaccount {viewer} -n {namespace}\n"
            f"  kubectl create rolebinding {viewer} -n {namespace} --clusterrole={viewer} "
            f"--serviceaccount={namespace}:{viewer}\n"
            "An admin of queuectl can set api.clusterTokens, so that REST accepts the tokens of kubeconfigs"
        )

    def _try(self, work: Callable[[], Found]) -> Found:
        """Raises Forbidden and NotFound too."""
        try:
            return work()
        except (self._app.Forbidden, self._app.NotFound):
            raise
        except self._app.Unavailable as error:
            raise NoAnswer(f"{self._place}: {printable(error)}") from None
        except (self._app.ApiError, self._app.BadKubeconfig) as error:
            raise Failure(f"{self._place}: {printable(error)}") from None

    def _forbidden(self, error: ApiError, right: str) -> Failure:
        return Failure(
            f"{self._place}: you may not {right} in namespace {self._app.NAMESPACE}\n{printable(error)}\n"
            f"Role queuectl-api-callers gives every authenticated user these rights: is it applied?"
        )


def _at_end(work: Callable[[], None]) -> None:
    """Call it when the command ends."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.find_root().call_on_close(work)
    else:
        atexit.register(work)
