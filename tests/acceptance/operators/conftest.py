"""Sites with real operators.

The MPI operator has one of its own: its MPIJob has the name of another's. So has each further version of one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from queuectl.sandbox.control_plane import find_assets
from tests.acceptance.operators.matrix import Matrix, Place, places
from tests.acceptance.operators.programs import (
    JOBSET,
    KUBERAY,
    MPI_OPERATOR,
    TRAINER,
    TRAINER_2_3,
    TRAINING_OPERATOR,
    find_operators,
)
from tests.acceptance.operators.site import Site, served
from tests.conftest import CELL

NO_OPERATORS = "QUEUECTL_OPERATORS is not set: no kind is tried on its real operator"
PROGRAMS = {
    "all": (TRAINING_OPERATOR, JOBSET, TRAINER, KUBERAY),
    "mpi": (MPI_OPERATOR,),
    "trainer-2.3": (JOBSET, TRAINER_2_3),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a cell runs on the site that has the operator of its kind."""
    if "place" not in metafunc.fixturenames:
        return
    chosen = [(site, place) for site in PROGRAMS for place in places(site)]
    names = [f"site={site}-{place.kind}-{place.step.replace(' ', '_')}" for site, place in chosen]
    metafunc.parametrize(("site", "place"), chosen, indirect=["site"], scope="session", ids=names)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    assets, binaries = find_assets(), find_operators()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real kube-apiserver tier is skipped")
    if binaries is None:
        pytest.skip(NO_OPERATORS)
    missing = [one.name for one in PROGRAMS[request.param] if not (binaries / one.name).exists()]
    if missing:
        pytest.skip(f"QUEUECTL_OPERATORS has no {', '.join(missing)}: `make operators` makes them")
    folder = tmp_path_factory.mktemp("operators")
    async with served(request.param, folder, assets, binaries, PROGRAMS[request.param]) as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def matrix(request: pytest.FixtureRequest, site: Site) -> AsyncIterator[Matrix]:
    """All cells of this site that this run has chosen."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    # Tests of other folders have parameters of these names too.
    cells = [one for one in parameters if isinstance(one.get("place"), Place)]
    found = Matrix(site, [one["place"] for one in cells if one["site"] == site.name])
    yield found
    await found.end()


@pytest.fixture
def told(request: pytest.FixtureRequest, place: Place) -> None:
    """Send the place of the result with the report of the test."""
    request.node.user_properties.append((CELL, list(place)))
