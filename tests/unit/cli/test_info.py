"""`info` against a server."""

from __future__ import annotations

import json

from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity, FlavorResourceCapacity, QuotaWarning
from queuectl.core.model.policy import CapacityMode
from tests.unit.api.canned import GPU, CannedReadings
from tests.unit.cli.conftest import Run
from tests.unit.cli.documented import there
from tests.unit.cli.servers import eventually


def rows(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_nodes_are_shown_by_flavor_with_use_and_free_shapes(
    run: Run, server: str, readings: CannedReadings
) -> None:
    there(readings)
    stray = FlavorResourceCapacity(
        resource=GPU, mode=CapacityMode.ENFORCE, allocatable=(("Ready", 2),), free=2
    )
    strays = QuotaWarning("NodesWithoutFlavor", None, "1 node has the labels of no ResourceFlavor")
    nodes = (("Ready", 1),)
    readings.capacity(FlavorCapacity(flavor=NO_FLAVOR, nodes=nodes, resources=(stray,), warnings=(strays,)))
    shown = eventually(
        lambda: rows(run("info", "--server", server).stdout), lambda found: found[1].startswith("- ")
    )
    assert shown[1] == f"- 1 Ready {GPU} Enforce 0 2 0 0 0 2"
    assert shown[2] == f"a100 2 Ready, 1 Cordoned {GPU} Enforce 8 8 5 1 1 1 1 x 1"
    assert "warning: 1 node has the labels of no ResourceFlavor" in shown


def test_unmanaged_use_is_shown_by_namespace(run: Run, server: str, readings: CannedReadings) -> None:
    there(readings)
    shown = eventually(
        lambda: rows(run("info", "a100", "--unmanaged", "--server", server).stdout),
        lambda found: len(found) > 1,
    )
    assert shown[1:] == [f"a100 {GPU} notebooks 1"]


def test_demand_is_shown_by_queue_and_shape(run: Run, server: str, readings: CannedReadings) -> None:
    there(readings)
    shown = eventually(
        lambda: rows(run("info", "--demand", "--server", server).stdout), lambda found: len(found) > 1
    )
    assert shown[1:] == [f"team-a a100 Quota 1 6 1 {GPU} -"]
    other = run("info", "h100", "--demand", "--server", server)
    assert (other.stdout, other.exit_code) == ("", 0)
    assert "nothing waits for quota or room" in other.stderr


def test_json_is_the_document_of_the_server(run: Run, server: str) -> None:
    found = json.loads(run("info", "-o", "json", "--server", server).stdout)
    assert [one["flavor"] for one in found["items"]] == ["a100"]
    assert found["items"][0]["nodes"] == {}


def test_a_flavor_that_does_not_exist_is_an_error(run: Run, server: str) -> None:
    unknown = run("info", "a10", "--server", server)
    assert (unknown.exit_code, unknown.stderr.splitlines()) == (
        1,
        [
            "Error: no ResourceFlavor a10 that you may read: did you mean a100?",
            "For a node: `queuectl info node/a10`",
        ],
    )
    assert run("info", "--demand", "--unmanaged", "--server", server).exit_code == 2
