"""The page while nothing is there, something is wrong, the caller is unknown, or 50,000 workloads wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.acceptance.page.conftest import SIZES, Open
from tests.acceptance.page.serving import Site, serving
from tests.acceptance.page.stories import LARGE, LONGEST, MARKUP, busy, crowded, long_names
from tests.acceptance.page.test_views import violations
from tests.unit.api.canned import AWAY, CannedReadings
from tests.unit.api.reviews import CannedReviews

EMPTY: Final = {
    "": "There is no ClusterQueue, or you may not read any",
    "workloads": "No workload that you may read passes these filters",
    "decisions": "Nothing was decided yet",
    "preemptions": "No workload that you may read was preempted",
    "lending": "nothing is lent",
    "usage": "Nothing was held in this time",
    "capacity": "No pending pods wait for quota or room",
}
TIMING: Final = """() => ({
  paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
  bytes: performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
    .filter((one) => !one.name.includes("/api/")).reduce((sum, one) => sum + one.transferSize, 0),
})"""
MOST_BYTES: Final = 100_000


@pytest.fixture(scope="module")
def nothing() -> Iterator[Site]:
    with serving(CannedReadings()) as found:
        yield found


@pytest.fixture(scope="module")
def many() -> Iterator[Site]:
    with serving(crowded()) as found:
        yield found


@pytest.mark.parametrize("address", EMPTY)
def test_an_empty_view_says_what_is_missing(nothing: Site, open_page: Open, address: str) -> None:
    page = open_page(f"{nothing.url}#/{address}", size="phone", scheme="dark")
    expect(page.locator("main")).to_contain_text(EMPTY[address])
    assert violations(page) == []


def test_an_object_that_is_not_there_is_named_as_an_error(nothing: Site, open_page: Open) -> None:
    page = open_page(f"{nothing.url}#/clusterqueues/none", quiet=True)
    expect(page.get_by_role("alert").first).to_contain_text("there is no such object, or you may not read it")
    assert violations(page) == []


def test_a_ledger_that_is_away_makes_the_page_stale_and_then_it_recovers(open_page: Open) -> None:
    readings = busy()
    with serving(readings) as site:
        page = open_page(site.url, quiet=True)
        expect(page.locator("main")).to_contain_text("team-a")
        readings.down = AWAY
        expect(page.locator(".notices")).to_contain_text("Stale: REST cannot read the ledger")
        expect(page.locator("main")).to_contain_text("team-a")
        assert violations(page) == []
        readings.down = None
        expect(page.locator(".notice")).to_have_count(0)


def test_a_server_that_fails_is_an_error_with_a_way_to_try_again(nothing: Site, open_page: Open) -> None:
    page = open_page(quiet=True)

    def broken(route: Route) -> None:
        route.fulfill(status=500, json={"title": "Internal Server Error", "detail": "it broke"})

    page.route("**/api/v1/workloads*", broken)
    page.goto(f"{nothing.url}#/workloads")
    expect(page.get_by_role("alert")).to_contain_text("it broke")
    assert violations(page) == []
    page.unroute("**/api/v1/workloads*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("main")).to_contain_text(EMPTY["workloads"])


def test_a_late_answer_to_a_request_without_the_token_does_not_ask_for_it_again(open_page: Open) -> None:
    reviews = CannedReviews()
    reviews.tenant("tenant-token", "team-a")
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    with serving(busy(), reviews) as site:
        page = open_page(quiet=True)
        page.route("**/api/v1/clusterqueues?*", hold)
        page.goto(site.url)
        dialog = page.get_by_role("dialog", name="Sign in")
        dialog.get_by_label("Token").fill("tenant-token")
        # What is typed next goes to the view, so the dialog is closed once the click has been handled.
        click = "async (button) => (button.click(), await null, document.querySelector('dialog').open)"
        assert not dialog.get_by_role("button", name="Sign in").evaluate(click)
        page.evaluate("void (HTMLDialogElement.prototype.showModal = () => (window.asked = true))")
        with page.expect_response(lambda answer: "clusterqueues?" in answer.url and answer.status == 200):
            held[0].continue_()
        assert not page.evaluate("window.asked")


def test_a_tenant_signs_in_with_a_token_and_sees_its_own_only(open_page: Open) -> None:
    reviews = CannedReviews()
    reviews.tenant("tenant-token", "team-a")
    with serving(busy(), reviews) as site:
        page = open_page(f"{site.url}#/workloads", quiet=True)
        dialog = page.get_by_role("dialog", name="Sign in")
        expect(dialog).to_contain_text("--audience queuectl")
        assert violations(page) == []
        dialog.get_by_label("Token").fill("wrong-token")
        dialog.get_by_role("button", name="Sign in").click()
        expect(dialog).to_contain_text("The token was not accepted")
        dialog.get_by_label("Token").fill("tenant-token")
        dialog.get_by_role("button", name="Sign in").click()
        expect(page.locator("main")).to_contain_text("evaluate")
        for address in (
            "",
            "workloads/team-a/Job/evaluate",
            "decisions",
            "preemptions",
            "lending",
            "capacity",
        ):
            page.goto(f"{site.url}#/{address}")
            expect(page.locator("main .loading")).to_have_count(0)
            assert "owner" not in page.locator("body").inner_text(), address
        assert page.evaluate("[...Object.values(localStorage)].join()").count("tenant-token") == 0
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()


@pytest.mark.parametrize("size", SIZES)
def test_names_of_any_length_and_markup_in_them_are_shown_as_text_within_the_screen(
    open_page: Open, size: str
) -> None:
    with serving(long_names()) as site:
        page = open_page(site.url, size=size)
        for address, shows in (
            ("", "q" * LONGEST),
            (f"workloads/team-a/Job/{'n' * LONGEST}", MARKUP),
            ("workloads", "n" * LONGEST),
            ("preemptions", "j" * LONGEST),
            ("capacity", "g" * LONGEST),
            ("usage", MARKUP),
        ):
            page.goto(f"{site.url}#/{address}")
            expect(page.locator("main")).to_contain_text(shows)
            expect(page.locator("main .loading")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], address
            assert page.locator("main img").count() == 0, address
            widest = (
                "Math.max(...[...document.querySelectorAll('main td, main th')].map((e) => e.offsetWidth))"
            )
            assert page.evaluate(widest) < 700, address


def test_of_50_000_pending_workloads_the_page_has_100_at_a_time(many: Site, open_page: Open) -> None:
    page = open_page(f"{many.url}#/clusterqueues/queue-000")
    rows = page.get_by_role("region", name="Pending queue").locator("tbody tr")
    expect(rows).to_have_count(100)
    expect(rows.first).to_contain_text("job-00001")
    expect(page.locator("main")).to_contain_text(f"of {LARGE:,}")
    page.get_by_role("button", name="Next").click()
    expect(rows.first).to_contain_text("job-00101")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Previous").click()
    expect(rows.first).to_contain_text("job-00001")
    assert violations(page) == []
    page.goto(f"{many.url}#/workloads?order=newest&clusterqueue=queue-000")
    rows = page.get_by_role("region", name="Workloads").locator("tbody tr")
    expect(rows).to_have_count(100)
    expect(rows.first).to_contain_text(f"job-{LARGE}")
    page.get_by_role("button", name="Next").click()
    expect(rows.first).to_contain_text(f"job-{LARGE - 100}")
    expect(page.get_by_label("ClusterQueue")).to_contain_text(f"queue-000 ({LARGE:,})")
    expect(page.locator("main")).to_contain_text(f"of {LARGE:,}")
    assert violations(page) == []


def test_the_files_of_the_page_are_small(browser: Browser, many: Site, figures: list[str]) -> None:
    with browser.new_context() as context:  # without a file in its cache
        page = context.new_page()
        page.goto(many.url)
        expect(page.locator("main")).to_contain_text("queue-099")
        found = page.evaluate(TIMING)
    figures.append(f"web page: first picture after {found['paint']:.0f} ms, {found['bytes']} bytes")
    assert 0 < found["bytes"] < MOST_BYTES
