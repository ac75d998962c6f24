from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import WorkloadId
from queuectl.simulation.history import History, Life, Run
from queuectl.simulation.measures import Document, measures
from queuectl.simulation.usage import QuotaTable
from tests.builders import GPU, queue

pytest.importorskip("matplotlib")


def document(queues: int, seconds: int = 600) -> Document:
    names = [f"team-{number}" for number in range(queues)]
    lives = tuple(
        Life(WorkloadId(name), 0, name, runs=[Run(name, {FlavorResource("default", GPU): n + 1}, 1000 * n)])
        for n, name in enumerate(names)
    )
    site = QuotaTable([queue(name, 4, cohort="all") for name in names])
    return {"name": "A <name> & more", **measures(History(end=seconds * 1000, lives=lives, plans=0), site)}


def texts(path: Path) -> list[str]:
    return [element.text or "" for element in ElementTree.parse(path).iter() if element.tag.endswith("text")]


def test_an_svg_contains_its_labels_as_text(tmp_path: Path) -> None:
    from queuectl.simulation.picture import draw

    draw(document(3), tmp_path / "out.svg")
    found = texts(tmp_path / "out.svg")
    assert {"A <name> & more", "team-0", "team-2", "minutes", "workloads waiting"} <= set(found)
    assert f"{GPU} in use" in found


def test_the_same_document_gives_the_same_file(tmp_path: Path) -> None:
    from queuectl.simulation.picture import draw

    for name in ("one.svg", "two.svg"):
        draw(document(2), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_png_has_the_png_signature(tmp_path: Path) -> None:
    from queuectl.simulation.picture import draw

    draw(document(1), tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_of_many_queues_those_with_the_least_usage_are_drawn_together(tmp_path: Path) -> None:
    from queuectl.simulation.picture import draw

    draw(document(20), tmp_path / "out.svg")
    found = texts(tmp_path / "out.svg")
    assert "12 others" in found
    assert "team-19" in found
    assert "team-0" not in found


@pytest.mark.parametrize("queues", [0, 1])
def test_a_simulation_without_any_events_is_drawn(queues: int, tmp_path: Path) -> None:
    from queuectl.simulation.picture import draw

    site = QuotaTable([queue("team", 4)][:queues])
    draw({"name": "nothing", **measures(History(end=0, lives=(), plans=0), site)}, tmp_path / "out.svg")
    assert "nothing" in texts(tmp_path / "out.svg")
