"""Every view in Chromium: what it shows, desktop and phone, light and dark, without errors and violations."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Page, Route, expect

from queuectl.core.model.capacity import FlavorCapacity
from queuectl.core.model.workload import ConfigKey, Phase
from queuectl.ports.changes import Access
from queuectl.ports.reader import CapacitySum
from tests.acceptance.page.conftest import SIZES, Open
from tests.acceptance.page.serving import Site, serving
from tests.acceptance.page.stories import busy, busy_on_nodes, of
from tests.unit.api.canned import GPU, decision
from tests.unit.api.past_usage import configured, fair_tree
from tests.unit.api.reviews import CannedReviews
from tests.unit.api.test_capacity import GPUS

VIEWS: Final = {
    "": "team-a",
    "clusterqueues/team-a": "evaluate",
    "localqueues/team-a/main": "evaluate",
    "workloads/team-a/Job/evaluate": "Where the wait went",
    "workloads/team-a/Job/train": "May it be preempted",
    "workloads": "too-large",
    "decisions": "evaluate",
    "preemptions": "InCohortReclamation",
    "lending": "team-b",
    "capacity": "Idle GPUs",
    "usage": "Budgets",
    "quote": "The answer appears here",
    "plan": "The answer appears here",
}
"""By address: a text that is there once the data are."""
SHOWN: Final[tuple[tuple[str, Literal["light", "dark"]], ...]] = (
    ("phone", "light"),
    ("desktop", "light"),
    ("desktop", "dark"),
)
"""Colours are the same in both sizes."""
COLOURS: Final = ("color-contrast", "link-in-text-block")
"""The rules of axe that depend on the scheme."""
_AXE: Final = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
_NOT_SAID: Final = """() => [...document.querySelectorAll("table.cards td.number")]
    .filter((cell) => cell.innerText && getComputedStyle(cell, "::before").content === "none")
    .map((cell) => cell.outerHTML)"""
_CUT: Final = """() => [...document.querySelectorAll(".scroll:has(> .cards)")]
    .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"""


def violations(page: Page, *rules: str) -> list[str]:
    """What axe finds: the rules of WCAG 2.2 A and AA, and its own best practices, or these `rules` of it."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_AXE)
    found: Any = page.evaluate(
        "(rules) => axe.run({resultTypes: ['violations'], ...(rules.length ? {runOnly: rules} : {})})", rules
    )
    return [
        f"{one['id']}: {node['html'][:200]} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("address", VIEWS)
def test_a_view_shows_its_data_fits_each_screen_and_is_accessible(
    site: Site, open_page: Open, address: str
) -> None:
    page = open_page(f"{site.url}#/{address}", size="phone")
    for size, scheme in SHOWN:
        width, height = SIZES[size]
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("main")).to_contain_text(VIEWS[address])
        expect(page.locator("main .loading")).to_have_count(0)
        expect(page.locator("main .failure")).to_have_count(0)
        assert violations(page, *(COLOURS if scheme == "dark" else ())) == [], (address, size, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if size == "phone":
            assert page.evaluate(_NOT_SAID) == [], "a number says what it is"
            assert page.evaluate(_CUT) == [], "a table has its columns below each other"
    assert page.title().endswith("queuectl")


def test_capacity_shows_which_workloads_leave_gpus_idle(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.url}#/capacity")
    rows = page.get_by_role("region", name="Idle GPUs").get_by_role("row")
    expect(rows).to_have_count(3)
    cells = [rows.nth(number).get_by_role("cell").all_inner_texts() for number in (1, 2)]
    assert [(one[0].replace("\n", ""), *one[2:]) for one in cells] == [
        ("team-a/job/train", "Busy", "12", "3", "1.5"),
        ("team-b/job/owner", "Hang", "4", "4", "0.02"),
    ]


def test_capacity_shows_each_node_with_what_is_free_and_who_is_on_it(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.url}#/capacity")
    rows = page.get_by_role("region", name="Nodes").get_by_role("row")
    expect(rows).to_have_count(3)
    cells = [" ".join(cell.split()) for cell in rows.nth(1).get_by_role("cell").all_inner_texts()]
    assert [cells[0], cells[1], *cells[3:5]] == ["gpu-1", "Ready", "15 of 16 gpu", "1"]
    assert cells[5] == "team-a/job/train 2 pods team-b/job/owner 1 pod"
    page.get_by_role("radiogroup", name="State").get_by_text("Cordoned").click()
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("team=x:NoSchedule")
    assert violations(page) == []


@pytest.mark.parametrize("size", SIZES)
def test_usage_shows_gpu_hours_of_users_their_limits_and_what_is_left_of_budgets(
    site: Site, open_page: Open, size: str
) -> None:
    page = open_page(f"{site.url}#/usage", size=size)
    rows = page.get_by_role("region", name="Usage").locator("tbody tr")
    expect(rows).to_have_count(4)
    assert [" ".join(row.split()) for row in rows.all_inner_texts()] == [
        "alice 30.0 71%",
        "=cmd() 10.0 24%",
        "bob, ben 2.0 5%",
        "Total 42.0 100%",
    ]
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.path().read_text() == (
        f"user,resource,hours,idle\nalice,{GPU},30.0,0.00\n'=cmd(),{GPU},10.0,0.00\n"
        f'"bob, ben",{GPU},2.0,0.00\n'
    )
    budgets = page.get_by_role("region", name="Budgets").locator("tbody tr")
    expect(budgets.filter(has_text="alice")).to_contain_text("75.0")
    limits = page.get_by_role("region", name="Limits").locator("tbody tr")
    assert [" ".join(row.split()) for row in limits.all_inner_texts()] == [
        "each-user alice Cohort/research gpu 16 20 4 0 yes",
        "each-user alice Cohort/research workloads 2 20 18 0 yes",
    ]
    page.get_by_label("By").select_option("namespace")
    expect(rows.first).to_contain_text("team-a")
    expect(rows.first).to_contain_text("32.0")
    with page.expect_response(lambda answer: "since=" in answer.url):
        page.get_by_role("radiogroup", name="Time").get_by_text("7 days").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert violations(page) == []


@pytest.mark.parametrize("size", SIZES)
def test_past_usage_is_shown_in_the_order_that_it_gives(
    open_page: Open, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch)
    with serving(fair_tree()) as site:
        page = open_page(f"{site.url}#/usage", size=size)
        rows = page.get_by_role("region", name="Past usage").locator("tbody tr")
        expect(rows).to_have_count(16)
        page.get_by_label("At or below").select_option("cohorts/a")
        expect(rows).to_have_count(8)
        assert [row.split()[:6] for row in rows.all_inner_texts()][1:3] == [
            ["b", "ClusterQueue", "1", "30", "0.2", "44%"],
            ["ns-b/main", "LocalQueue", "1", "1", "0.2", "100%"],
        ]
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        assert violations(page) == []


def test_lending_and_capacity_have_totals_and_exports(open_page: Open) -> None:
    readings = busy()
    readings.commit(configs={ConfigKey("ResourceFlavor", "", "h100"): "{}"})
    for flavor in ("a100", "h100"):
        readings.capacity(FlavorCapacity(flavor=flavor, nodes=(("Ready", 1),), resources=(GPUS,)))
    with serving(readings) as site:
        page = open_page(f"{site.url}#/lending")
        total = page.get_by_role("region", name="Lending matrix").get_by_role("row").last
        expect(total).to_contain_text("Total")
        expect(total.get_by_role("cell").last).to_have_text("4")
        assert exported(page) == [
            "lender,borrower,flavor,resource,amount",
            f"ClusterQueue/team-b,ClusterQueue/team-a,a100,{GPU},1",
            f"ClusterQueue/team-c,ClusterQueue/team-a,a100,{GPU},3",
        ]
        expect(page.get_by_role("heading", name="Use over time")).to_be_visible()
        page.goto(f"{site.url}#/capacity")
        row = page.get_by_role("region", name="All flavors").get_by_role("row").nth(1)
        expect(row).to_contain_text(GPU)
        ready = dict(GPUS.allocatable)["Ready"]
        assert row.get_by_role("cell").all_inner_texts()[0] == str(2 * ready)
        head, first, *_ = exported(page)
        assert head == "flavor,resource,on ready nodes,promised as quota,used,unmanaged,free"
        assert first.startswith(f"a100,{GPU},{ready},")
        assert violations(page) == []


def exported(page: Page) -> list[str]:
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    return download.value.path().read_text().splitlines()


@pytest.mark.parametrize("address", ["workloads", "decisions"])
def test_the_head_of_a_table_is_above_its_rows(site: Site, open_page: Open, address: str) -> None:
    page = open_page(f"{site.url}#/{address}")
    head, rows = page.locator("main thead").bounding_box(), page.locator("main tbody").bounding_box()
    assert head is not None
    assert rows is not None
    assert head["x"] == rows["x"]
    assert head["y"] < rows["y"]


def test_a_queue_shows_its_line_quota_loans_and_use_over_time(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.url}#/clusterqueues/team-a")
    line = page.get_by_role("region", name="Pending queue").get_by_role("row")
    expect(line.nth(1)).to_contain_text("evaluate")
    expect(line.nth(1)).to_contain_text("requests 6 nvidia.com/gpu in flavor a100, 2 available, short by 4")
    positions = [line.nth(number).get_by_role("cell").first for number in (1, 2)]
    expect(positions[0]).to_have_text("1")
    expect(positions[1]).to_have_text("\N{EN DASH}")  # too-large can never run
    quota = page.get_by_role("region", name="Quota").get_by_role("row").nth(1)
    assert quota.get_by_role("cell").all_inner_texts()[2:5] == ["12", "8", "4"]
    expect(page.get_by_text("3 gpu of a100 borrowed from team-c")).to_be_visible()
    expect(page.locator(".chart canvas")).to_be_visible()
    page.get_by_role("group").get_by_text("As a table").first.click()
    rows = page.get_by_role("region", name="Use over time").get_by_role("row")
    expect(rows).to_have_count(49)


def test_lending_over_a_time_shows_the_use_of_all_queues_of_the_cohort(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.url}#/lending?range=24h")
    expect(page.locator(".chart canvas")).to_be_visible()
    page.get_by_text("As a table").click()
    expect(page.get_by_role("region", name="Use over time").get_by_role("row")).to_have_count(25)
    assert violations(page) == []


@pytest.mark.parametrize(("time", "steps"), [("24h", 25), ("30d", 31)])
def test_capacity_over_a_time_is_what_was_held_free_unmanaged_and_not_usable(
    open_page: Open, time: str, steps: int
) -> None:
    readings = busy_on_nodes()
    readings.capacity(FlavorCapacity(flavor="a100", nodes=(("Ready", 1),), resources=(GPUS,)))
    hours = (24 if time == "30d" else 1) * 3_600_000_000
    readings.had = [CapacitySum("a100", GPU, *(amount * hours for amount in (9, 3, 2, 5, 2, 0)))]
    with serving(readings) as site:
        page = open_page(f"{site.url}#/capacity?range={time}")
        trend = page.get_by_role("region", name="Capacity over time")
        expect(page.locator(".chart canvas")).to_be_visible()
        expect(page.locator(".legend").filter(has_text="not usable")).to_be_visible()
        page.get_by_text("As a table").click()
        expect(trend.get_by_role("row")).to_have_count(steps + 1)
        scale = """async () => {
          const page = document.querySelector("script[type=module]").src;
          return (await import(page.replace("main.js", "format.js"))).scaled("memory", 3 * 2 ** 40);
        }"""
        assert page.evaluate(scale) == [2**40, "Ti"]  # of an axis: ticks are whole numbers of it
        rows = [row.get_by_role("cell").all_inner_texts()[1:] for row in trend.get_by_role("row").all()[1:-1]]
        assert rows == [["\N{EN DASH}"] * 4, *[["5", "2", "2", "3"]] * (steps - 2)]
        assert violations(page) == []


def test_a_workload_shows_why_it_waits_and_its_life(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.url}#/workloads/team-a/Job/evaluate")
    expect(page.locator("main")).to_contain_text("nominalQuota of Cohort/research")
    expect(page.get_by_text("Position 1 of 2")).to_be_visible()
    stretches = page.locator(".life span")
    expect(stretches.filter(has_text="Attempt 1")).to_have_count(1)
    expect(stretches.filter(has_text="Preempted")).to_have_count(1)
    expect(
        page.get_by_role("region", name="Decisions on it").get_by_role("link", name="team-b/job/owner")
    ).to_be_visible()


def test_a_workload_links_to_where_its_logs_are(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.url}#/workloads/team-a/Job/evaluate")
    link = page.locator("main").get_by_role("link", name="Logs")
    expect(link).to_have_attribute("href", "https://grafana.example.com/explore?q=team-a/evaluate")
    expect(link).to_have_attribute("rel", "noreferrer")
    assert violations(page) == []


def test_facts_of_a_workload_have_a_line_each(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.url}#/workloads/team-a/Job/evaluate")
    page.set_viewport_size({"width": 1000, "height": 900})
    facts = page.locator("main > .facts > div")
    expect(facts.filter(has_text="Created")).to_be_visible()
    boxes = [box for one in facts.all() if (box := one.bounding_box())]
    assert len({box["y"] for box in boxes}) == len({box["height"] for box in boxes}) == 1, boxes


@pytest.mark.parametrize("size", SIZES)
def test_a_part_of_a_life_without_room_for_its_label_has_none(site: Site, open_page: Open, size: str) -> None:
    page = open_page(f"{site.url}#/workloads/team-a/Job/evaluate", size=size)
    expect(page.locator(".life em").last).to_be_visible()
    widths = [label["width"] for one in page.locator(".life em").all() if (label := one.bounding_box())]
    assert widths
    assert min(widths) > 60
    assert len(widths) < page.locator(".life span").count(), "each has room: nothing was tried"


def test_the_overview_names_the_oldest_pending_workloads_and_why_they_wait(
    site: Site, open_page: Open
) -> None:
    page = open_page(site.url)
    oldest = page.get_by_role("region", name="Oldest pending workloads")
    expect(oldest.locator("tbody tr")).to_have_count(2)
    expect(oldest.locator("tbody tr").first).to_contain_text("evaluate")
    expect(oldest.get_by_text("ExceedsMaxQuota")).to_be_visible()
    tree = page.get_by_role("region", name="Cohorts and ClusterQueues")
    shown = tree.get_by_role("row").nth(2).get_by_role("cell").nth(5)
    answer = page.request.get(f"{site.url}api/v1/clusterqueues/team-a").json()
    expect(shown).to_have_text(str(answer["flavors"][0]["free"]))
    page.get_by_role("link", name="All pending").click()
    expect(page).to_have_url(f"{site.url}#/workloads?phase=Pending")


def test_search_finds_a_workload_that_is_over(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    page.get_by_label("Search queues and workloads").fill("over")
    hit = page.get_by_role("option").filter(has_text="team-c/over")
    expect(hit).to_contain_text("Job")
    expect(hit).to_contain_text(re.compile("Succeeded|Finished"))


def test_what_can_never_run_has_no_position(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.url}#/workloads/team-a/Job/too-large")
    expect(page.locator("main")).to_contain_text("At most")
    expect(page.get_by_text(re.compile("Position [0-9]"))).to_have_count(0)


def test_the_choice_of_a_time_closes_when_something_else_is_clicked(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    page.get_by_label("As of, the time that is shown").click()
    expect(page.get_by_role("button", name="Back to now")).to_be_visible()
    page.get_by_role("link", name="Decisions").click()
    expect(page.get_by_role("button", name="Back to now")).to_be_hidden()


def test_search_finds_queues_and_workloads_by_keyboard(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    expect(page.locator("main")).to_contain_text("team-a")
    page.keyboard.press("/")
    page.keyboard.type("own")
    expect(page.locator("#hits").get_by_role("option")).to_have_count(1)
    assert violations(page) == []
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="owner", level=1)).to_be_focused()
    assert page.url.endswith("#/workloads/team-b/Job/owner")


def test_keyboard_reaches_the_content_and_the_theme_stays(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    expect(page.locator("main")).to_contain_text("team-a")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_be_focused()
    page.get_by_label("Theme").select_option("dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_filters_are_part_of_the_address(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.url}#/workloads")
    expect(page.get_by_role("region", name="Workloads").get_by_role("row")).to_have_count(5)
    page.get_by_label("Phase").select_option("Admitted")
    page.get_by_label("Name contains").fill("tra")
    with page.expect_response("**/api/v1/workloads*"):
        pass  # the list was read again
    expect(page.get_by_label("Name contains")).to_have_value("tra")
    page.get_by_label("Name contains").press("Enter")
    expect(page.get_by_role("region", name="Workloads").get_by_role("row")).to_have_count(2)
    assert re.search(r"phase=Admitted", page.url)
    assert re.search(r"name=tra", page.url)
    page.goto(f"{site.url}#/workloads?phase=Finished")
    expect(page.get_by_role("columnheader", name="Ended")).to_be_visible()


CHANGES: Final = {
    "sequence": 9,
    "triedAt": 9,
    "items": [
        {
            "message": "request 2 nvidia.com/gpu instead of 6",
            "displaces": [
                {"namespace": "team-b", "kind": "Job", "name": "owner", "cause": "InCohortReclamation"},
                {"namespace": None, "kind": None, "name": None, "cause": None},
            ],
        }
    ],
    "incomplete": ["Quota"],
}


def test_as_of_a_time_the_page_shows_the_state_then_until_it_returns_to_now(
    site: Site, open_page: Open
) -> None:
    page = open_page(f"{site.url}#/clusterqueues/team-a")
    expect(page.locator("main")).to_contain_text("Use over time")
    page.locator(".asof summary").click()
    page.get_by_role("textbox", name="Time").fill("2026-01-05T10:00:10")
    expect(page.locator(".notices")).to_contain_text("As of 2026-01-05 10:00:10")
    assert "asOf=2026-01-05T10%3A00%3A10Z" in page.url
    expect(page.locator("main")).to_contain_text("evaluate")
    expect(page.locator(".chart canvas")).to_be_visible()
    expect(page.get_by_role("button", name="Forecast")).to_have_count(0)
    assert violations(page) == []
    page.get_by_role("link", name="Workloads").click()
    expect(page.get_by_role("region", name="Workloads")).to_contain_text("too-large")
    assert "asOf=" in page.url
    for view, shows in (
        ("Preemptions", "Evicted for other workloads"),
        ("Lending", "Lender and borrower"),
        ("Capacity", "pods of pending workloads"),
    ):
        with page.expect_response(lambda answer: "asOf=2026-01-05T10%3A00%3A10Z" in answer.url):
            page.get_by_role("link", name=view).click()
        expect(page.locator("main")).to_contain_text(shows)
        expect(page.locator("main .failure")).to_have_count(0)
    page.locator(".notices").get_by_role("button", name="Back to now").click()
    expect(page.locator(".notice")).to_have_count(0)
    assert "asOf=" not in page.url


def test_a_tenant_that_may_not_read_the_cohort_sees_what_its_own_queue_borrows(open_page: Open) -> None:
    reviews = CannedReviews()
    reviews.tenant("tenant-token", "team-a")
    reviews.rights["tenant-token"].add(Access("get", "clusterqueues", "", "team-a"))
    with serving(busy(), reviews) as site:
        page = open_page(f"{site.url}#/lending", quiet=True)
        page.get_by_role("dialog").get_by_label("Token").fill("tenant-token")
        page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
        matrix = page.get_by_role("region", name="Lending matrix")
        expect(matrix).to_contain_text("team-a")
        expect(matrix).to_contain_text("objects not shown to you")
        expect(matrix).not_to_contain_text("team-c")
        with page.expect_response(lambda answer: "steps=24" in answer.url and answer.status == 404):
            page.get_by_role("radiogroup", name="Time").get_by_text("7 days").click()
        expect(page.locator(".chart")).to_have_count(0)
        expect(page.locator("main .failure")).to_have_count(0)


def test_a_workload_that_starts_shows_it_at_once(open_page: Open) -> None:
    readings = busy()
    with serving(readings) as site:
        page = open_page(f"{site.url}#/workloads/team-a/Job/evaluate")
        expect(page.locator(".life span").filter(has_text="Attempt 2")).to_have_count(0)
        started = of("team-a", "evaluate", 2, gpus=6, phase=Phase.ADMITTED)
        readings.rows.append(
            replace(decision(10, started, "Admitted"), attempt=2, payload={"clusterQueue": "team-a"})
        )
        readings.commit(started)
        expect(page.locator(".life span").filter(has_text="Attempt 2")).to_have_count(1)
        expect(page.locator(".badge").filter(has_text="Admitted").first).to_be_visible()


FORECAST: Final = {
    "sequence": 9,
    "at": "2026-01-05T10:00:20Z",
    "unknown": None,
    "lowSeconds": 60,
    "medianSeconds": 600,
    "highSeconds": None,
    "afterSeconds": 7200,
    "draws": 100,
    "calibration": {
        "checked": 40,
        "held": 33,
        "since": "2026-01-01T00:00:00Z",
        "until": "2026-01-05T00:00:00Z",
    },
}


@pytest.mark.parametrize(
    ("forecast", "says"),
    [
        (
            FORECAST,
            ["in 10m00s", "from in 1m00s to after more than 2h00m", "33 of 40 such intervals held (83%)"],
        ),
        ({**FORECAST, "calibration": None}, ["How often such intervals held is not known yet"]),
        ({**FORECAST, "unknown": "no run has ended yet"}, ["Unknown: no run has ended yet"]),
    ],
)
def test_a_forecast_is_made_when_asked_for(
    site: Site, open_page: Open, forecast: dict[str, Any], says: list[str]
) -> None:
    page = open_page()
    page.route("**/eta", lambda route: route.fulfill(json=forecast))
    page.goto(f"{site.url}#/workloads/team-a/Job/evaluate")
    page.get_by_role("button", name="Forecast").click()
    for text in says:
        expect(page.locator("main")).to_contain_text(text)
    assert violations(page) == []


def test_starts_of_the_first_pending_workloads_are_forecast_when_asked_for(
    site: Site, open_page: Open
) -> None:
    page = open_page()
    page.route("**/evaluate/eta", lambda route: route.fulfill(json=FORECAST))
    page.route("**/too-large/eta", lambda route: route.fulfill(json={**FORECAST, "unknown": "it never runs"}))
    page.goto(f"{site.url}#/clusterqueues/team-a")
    page.get_by_role("button", name="Forecast the first 2").click()
    rows = page.get_by_role("region", name="Pending queue").locator("tbody tr")
    expect(rows.filter(has_text="evaluate")).to_contain_text("10m00s 1m00s to > 2h00m")
    expect(rows.filter(has_text="too-large")).to_contain_text("unknown")
    assert violations(page) == []


def test_changes_that_start_a_workload_are_tried_when_asked_for(site: Site, open_page: Open) -> None:
    page = open_page()
    page.route("**/counterfactuals", lambda route: route.fulfill(json=CHANGES))
    page.goto(f"{site.url}#/workloads/team-a/Job/evaluate")
    page.get_by_role("button", name="Try changes").click()
    expect(page.get_by_text("request 2 nvidia.com/gpu instead of 6")).to_be_visible()
    displaced = page.locator(".options")
    expect(displaced).to_contain_text("team-b/job/owner (InCohortReclamation), a workload not shown to you")
    expect(page.get_by_text("Not all were tried: Quota.")).to_be_visible()
    assert violations(page) == []


def test_workloads_are_sorted_by_the_heads_of_columns_and_filtered_by_choices_with_counts(
    site: Site, open_page: Open
) -> None:
    page = open_page(f"{site.url}#/workloads")
    table = page.get_by_role("region", name="Workloads")
    names = table.locator("tbody a.name")
    expect(names.first).to_contain_text("train")
    table.get_by_role("button", name="Workload").click()
    expect(names.first).to_contain_text("evaluate")
    expect(page.get_by_role("columnheader", name="Workload")).to_have_attribute("aria-sort", "ascending")
    table.get_by_role("button", name="GPUs").click()
    expect(names.first).to_contain_text("train")
    expect(page.get_by_role("columnheader", name="GPUs")).to_have_attribute("aria-sort", "descending")
    assert "order=devices" in page.url
    assert page.get_by_label("Order").input_value() == "devices"
    assert violations(page) == []
    expect(page.get_by_label("ClusterQueue").get_by_role("option")).to_have_text(
        ["All", "team-a (3)", "team-b (1)"]
    )
    expect(page.get_by_label("Phase").get_by_role("option").first).to_have_text("Unfinished")
    expect(page.get_by_label("Phase").get_by_role("option").nth(1)).to_have_text("Pending (2)")
    expect(page.locator("main")).to_contain_text("4 workloads")
    page.get_by_label("ClusterQueue").select_option("team-b")
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_label("Namespace").get_by_role("option")).to_have_text(["All", "team-b (1)"])
    page.get_by_label("ClusterQueue").select_option("")
    page.get_by_text("More filters").click()
    page.get_by_label("Reason").select_option("ExceedsMaxQuota")
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_label("Kind").get_by_role("option")).to_have_text(["All", "Job (1)"])
    page.get_by_label("Reason").select_option("")
    table.get_by_role("link", name="alice").first.click()
    assert "submitter=alice" in page.url


def test_own_workloads_are_shown_to_whom_the_cluster_knows(open_page: Open) -> None:
    readings, reviews = busy(), CannedReviews()
    reviews.tenant("ann", "team-a", "team-b")
    readings.commit(replace(readings.stored("evaluate"), submitter="ann"))
    with serving(readings, reviews) as site:
        page = open_page(f"{site.url}#/workloads", quiet=True)
        page.get_by_role("dialog").get_by_label("Token").fill("ann")
        page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
        rows = page.get_by_role("region", name="Workloads").locator("tbody tr")
        expect(rows).to_have_count(4)
        page.get_by_label("Mine").check()
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("evaluate")
        assert violations(page) == []


@pytest.mark.parametrize("size", SIZES)
def test_preemptions_show_all_columns_and_on_a_phone_what_each_number_is(
    site: Site, open_page: Open, size: str
) -> None:
    page = open_page(size=size)
    shares = {
        "preemptor": {"node": "ClusterQueue/team-b", "before": 120, "after": 480},
        "victim": {"node": "ClusterQueue/team-a-with-a-long-name", "before": 560, "after": 0},
    }
    page.route("**/api/v1/preemptions*", lambda route: _with_shares(route, shares))
    page.goto(f"{site.url}#/preemptions")
    table = page.get_by_role("region", name="Preemptions")
    expect(table).to_contain_text("56% → 0%")
    assert table.evaluate("(table) => table.scrollWidth - table.clientWidth") <= 0
    cells = table.locator("td[data-label]")
    labels = cells.evaluate_all("(cells) => cells.map((td) => getComputedStyle(td, '::before').content)")
    shown = [text.strip('" ') for text in labels if text != "none"]
    assert shown == ([] if size == "desktop" else ["For", "Ran", "Lost", "Dominant shares"])
    assert violations(page) == []


def _with_shares(route: Route, shares: Any) -> None:
    answer = route.fetch()
    body = answer.json()
    for item in body["items"]:
        item["shares"] = shares
    route.fulfill(response=answer, json=body)
