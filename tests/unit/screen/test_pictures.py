"""The pictures of docs/pictures render anywhere, and contain no data of the machine that made them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rich.text import Text

from docs.pictures import pages
from docs.pictures.drawing import README, draw, pictures, readme, screen
from docs.pictures.recording import Recording
from queuectl.sandbox import example
from queuectl.sandbox.install import read_kustomization
from queuectl.shipped import shipped

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(content: str) -> str:
    """What stands in it, once it is sure to need nothing from elsewhere."""
    root = ElementTree.fromstring(content)
    assert root.tag == f"{SVG}svg"
    assert "@" not in content.partition("</style>")[0]
    assert set(re.findall(r"url\(.", content)) <= {"url(#"}
    assert not root.findall(f".//{SVG}script")
    assert not root.findall(f".//{SVG}image")
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    return "\n".join(texts).replace("\xa0", " ")


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording.read()


@pytest.fixture(scope="module")
def drawn_now(recording: Recording) -> dict[str, str]:
    """What `make pictures ARGS=--draw` writes, by file."""
    return {**pictures(recording), "README.md": readme(recording)}


def test_lines_of_a_terminal_become_a_picture_without_fonts_or_servers() -> None:
    lines = ["\x1b[1;32mteam-a\x1b[0m <&> ▆▁", "x" * 50]
    content = draw("queuectl", map(Text.from_ansi, lines), 40)
    text = drawn(content)
    assert "team-a" in text
    assert "<&> ▆▁" in text
    assert "x" * 41 not in text
    assert text.count("x") == 50
    assert "#7ec671" in content


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "explain.svg",
        "help.svg",
        "screen.svg",
        "screen-80x24.svg",
    ],
)
def test_readme_and_pictures_are_what_is_drawn_from_the_recording(
    name: str, drawn_now: dict[str, str]
) -> None:
    path = README if name == "README.md" else PICTURES / name
    assert path.read_text(encoding="utf-8") == drawn_now[name], "make pictures ARGS=--draw"


def test_the_recording_is_of_the_example_as_it_is(recording: Recording) -> None:
    jobs = {(job["kind"], job["metadata"]["namespace"], job["metadata"]["name"]) for _, job in example.jobs()}
    listed = [
        one
        for path, answer in recording.answers.items()
        if path.startswith("/api/v1/workloads?")
        for one in answer.document["items"]
    ]
    assert listed
    assert {(one["kind"], one["namespace"], one["name"]) for one in listed} <= jobs
    quotas = {
        one["name"]: {
            (cell["flavor"], cell["resource"]): cell["nominal"]
            for cell in one["flavors"]
            if cell["resource"] == "nvidia.com/gpu"
        }
        for one in recording.answers["/api/v1/clusterqueues?limit=1000"].document["items"]
    }
    policy = read_kustomization(shipped("manifests") / "examples")
    assert quotas == {
        queue["metadata"]["name"]: {
            (flavor["name"], resource["name"]): resource["nominalQuota"]
            for flavor in queue["spec"]["resourceGroups"][0]["flavors"]
            for resource in flavor["resources"]
            if resource["name"] == "nvidia.com/gpu"
        }
        for queue in policy
        if queue["kind"] == "ClusterQueue"
    }


def test_no_frame_is_wider_or_higher_than_its_terminal(recording: Recording) -> None:
    with recording.replayed() as url:
        for width, height in ((80, 24), (200, 50)):
            lines = screen(url, width, height)
            assert len(lines) == height
            assert max(line.cell_len for line in lines) <= width


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "screen",
            (
                "Waiting",
                "WaitingForQuota",
                "ExceedsMaxQuota",
                "cohort research",
                "Preempted (InClusterQueue)",
            ),
        ),
        ("screen-80x24", ("Waiting", "WaitingForQuota", "~/.local/share/queuectl/sandbox")),
        ("explain", ("queuectl explain job/train-bert", "Held by", "Short by")),
        ("month-finance", ("queuectl statement show 2030-01", "8460.00", "-960.00", "8800.00")),
        ("month-admin", ("3384.00", "384.00", "136.00", "32.00", "3904.00")),
        ("month-hana", ("BudgetExhausted", "2030-01-29 06:00:00", "Admitted")),
        ("month-rob", ("IdleDevices at IdlePolicy/lab", "8 of 8 are Hang", "held 136.0 gpu")),
    ],
)
def test_the_pictures_in_the_docs_show_it_and_nothing_of_the_machine(
    name: str, words: tuple[str, ...]
) -> None:
    text = drawn((PICTURES / f"{name}.svg").read_text(encoding="utf-8"))
    for word in words:
        assert word in text
    assert not re.findall(r"/(?:root|home|tmp|var|work|usr)\b", text)
    assert set(re.findall(r"https?://([^:/\s]+)", text)) <= {"127.0.0.1"}
    assert "Error" not in text


def test_pictures_of_pages_are_small_and_each_picture_stands_in_a_document() -> None:
    documents = [README, *README.parent.glob("docs/**/*.md")]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in documents)
    there = {path.stem: path for path in PICTURES.glob("*.png")}
    assert there.keys() == pages.SHOTS.keys() | pages.STATES.keys()
    for name, path in there.items():
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG"), name
        assert len(content) < 300_000, name
    for path in PICTURES.glob("*.[ps][nv]g"):
        assert f"pictures/{path.name})" in texts, path.name
