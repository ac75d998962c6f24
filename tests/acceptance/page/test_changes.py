"""Changes by the page: what a dialog says before one is made, what is sent, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from queuectl.core.model.workload import ConfigKey, PodSet
from queuectl.ports.changes import ChangedField, ChangeRefused, Wanted, WantedSize
from tests.acceptance.page.conftest import SECONDS, SIZES, Open, leave
from tests.acceptance.page.serving import Site, serving
from tests.acceptance.page.stories import IN_TREE, busy, of, queues
from tests.acceptance.page.test_views import violations
from tests.unit.api.canned import GPU, local_spec
from tests.unit.api.changing import CannedChanges
from tests.unit.api.reviews import CannedReviews

JOB = "#/workloads/team-a/Job/evaluate"
QUEUE = "#/clusterqueues/team-a"
DENIED = "you may not patch jobs.batch in namespace team-a (ClusterRole edit has it)"


@pytest.fixture
def changes() -> CannedChanges:
    return CannedChanges()


@pytest.fixture
def changing(changes: CannedChanges) -> Iterator[Site]:
    with serving(busy(), changes=changes) as found:
        yield found


def made(changes: CannedChanges) -> list[Wanted]:
    return [wanted for wanted, _ in changes.made if not wanted.dry_run]


def opened(page: Page, button: str) -> None:
    page.get_by_role("group", name="Changes").get_by_role("button", name=button).click()


@pytest.mark.parametrize("size", SIZES)
def test_a_hold_says_what_will_happen_and_is_made_once_confirmed(
    changing: Site, changes: CannedChanges, open_page: Open, size: str
) -> None:
    page = open_page(changing.url + JOB, size=size, scheme="dark" if size == "phone" else "light")
    opened(page, "Hold")
    dialog = page.get_by_role("dialog", name="Hold Job team-a/evaluate")
    expect(dialog).to_contain_text("It means hold.")
    expect(dialog).to_contain_text("queuectl hold job/evaluate -n team-a")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert made(changes) == []
    dialog.get_by_label("Reason").fill("node 7 is broken")
    dialog.get_by_role("button", name="Hold").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".notice.done")).to_contain_text("Hold Job team-a/evaluate: It means hold.")
    assert made(changes) == [
        Wanted(verb="hold", kind="Job", namespace="team-a", name="evaluate", reason="node 7 is broken")
    ]
    assert violations(page) == []
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator(".notice.done")).to_have_count(0)


def test_what_a_hold_ends_is_named_and_confirmed(
    changing: Site, changes: CannedChanges, open_page: Open
) -> None:
    changes.loss = "Job team-a/train runs, and a hold evicts it: what it has not saved is lost"
    page = open_page(changing.url + JOB.replace("evaluate", "train"))
    opened(page, "Hold")
    expect(page.get_by_role("dialog").locator(".notice.bad")).to_contain_text("what it has not saved is lost")
    assert violations(page) == []
    page.get_by_role("dialog").get_by_role("button", name="Hold").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert [one.evict for one in made(changes)] == [True]


@pytest.mark.parametrize("size", SIZES)
def test_a_size_with_which_it_starts_is_made_by_its_button(
    changes: CannedChanges, open_page: Open, size: str
) -> None:
    readings = busy()
    ten = (PodSet(name="main", count=10, requests=((GPU, 1),)),)
    namespace = ConfigKey("Namespace", "", "team-a")
    waits = replace(of("team-a", "evaluate", 2, reason=IN_TREE), pod_sets=ten)
    readings.commit(waits, configs={namespace: json.dumps({"labels": {}})})
    changes.fields = (ChangedField("spec.parallelism", "10", "7"),)
    with serving(readings, changes=changes) as found:
        page = open_page(found.url + JOB, size=size)
        page.get_by_role("button", name="Try changes").click()
        tried = page.locator(".options li").filter(has_text="With 7 of 10 pods")
        expect(page.locator(".options li")).to_have_count(2)
        expect(page.get_by_role("button", name="Fit")).to_have_count(1)  # more quota is no size
        assert violations(page) == []
        tried.get_by_role("button", name="Fit to 7 GPUs").click()
        dialog = page.get_by_role("dialog", name="Fit Job team-a/evaluate to 7 GPUs")
        expect(dialog).to_contain_text("It means fit.")
        expect(dialog).to_contain_text("spec.parallelism 10 → 7")
        expect(dialog).to_contain_text("queuectl fit job/evaluate -n team-a --gpus 7")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        assert made(changes) == []
        dialog.get_by_role("button", name="Fit to 7 GPUs").click()
        expect(page.locator(".notice.done")).to_contain_text(
            "Fit Job team-a/evaluate to 7 GPUs: It means fit."
        )
        expect(page.get_by_role("button", name="Try changes")).to_be_visible()
        leave(page)  # before its server ends
    assert made(changes) == [
        Wanted(verb="fit", kind="Job", namespace="team-a", name="evaluate", size=WantedSize(gpus=7))
    ]


def test_a_deletion_is_confirmed_and_asks_for_no_reason(
    changing: Site, changes: CannedChanges, open_page: Open
) -> None:
    page = open_page(changing.url + JOB)
    opened(page, "Delete")
    dialog = page.get_by_role("dialog", name="Delete Job team-a/evaluate")
    expect(dialog).to_contain_text("It means cancel.")
    expect(dialog).to_contain_text("queuectl cancel job/evaluate -n team-a")
    expect(dialog.get_by_label("Reason")).to_have_count(0)
    assert violations(page) == []
    assert made(changes) == []
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert made(changes) == [Wanted(verb="cancel", kind="Job", namespace="team-a", name="evaluate")]


def test_a_queue_is_stopped_and_drained(changing: Site, changes: CannedChanges, open_page: Open) -> None:
    page = open_page(changing.url + QUEUE)
    opened(page, "Stop…")
    dialog = page.get_by_role("dialog", name="Stop ClusterQueue team-a")
    dialog.get_by_label("Evict its admitted workloads too").check()
    expect(dialog).to_contain_text("queuectl stop clusterqueue/team-a --drain")
    expect(dialog).to_contain_text("It means stop.")
    assert violations(page) == []
    dialog.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert made(changes) == [
        Wanted(verb="stop", kind="ClusterQueue", namespace="", name="team-a", evict=True)
    ]


def test_a_local_queue_is_stopped_and_resumed(
    changing: Site, changes: CannedChanges, open_page: Open
) -> None:
    page = open_page(f"{changing.url}{JOB}")
    page.get_by_role("link", name="main", exact=True).click()
    expect(page.get_by_role("heading", name="main", level=1)).to_be_focused()
    expect(page.locator("main")).to_contain_text("too-large")
    opened(page, "Stop…")
    dialog = page.get_by_role("dialog", name="Stop LocalQueue team-a/main")
    expect(dialog).to_contain_text("queuectl stop localqueue/main -n team-a")
    dialog.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    stopped = local_spec("team-a", stopPolicy="Hold")
    changing.readings.commit(configs={ConfigKey("LocalQueue", "team-a", "main"): stopped})
    opened(page, "Resume")
    dialog = page.get_by_role("dialog", name="Resume LocalQueue team-a/main")
    expect(dialog).to_contain_text("It means resume.")
    assert violations(page) == []
    dialog.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert made(changes) == [
        Wanted(verb="stop", kind="LocalQueue", namespace="team-a", name="main"),
        Wanted(verb="resume", kind="LocalQueue", namespace="team-a", name="main"),
    ]


def test_a_priority_is_checked_once_it_is_complete(
    changing: Site, changes: CannedChanges, open_page: Open
) -> None:
    page = open_page(changing.url + JOB)
    opened(page, "Priority…")
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Priority")
    expect(confirm).to_be_disabled()
    assert changes.made == []
    dialog.get_by_label("WorkloadPriorityClass").fill("high")
    expect(dialog).to_contain_text("It means priority.")
    confirm.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert [one.target for one in made(changes)] == ["high"]
    opened(page, "Priority…")
    dialog.get_by_label("None: that of its pods counts").check()
    confirm.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert [one.target for one in made(changes)] == ["high", None]


def test_a_move_is_to_a_queue_of_its_namespace(
    changing: Site, changes: CannedChanges, open_page: Open
) -> None:
    page = open_page(changing.url + JOB)
    opened(page, "Move…")
    field = page.get_by_label("LocalQueue of namespace team-a")
    expect(field.get_by_role("option")).to_have_count(1)  # there is none but its own
    expect(page.get_by_role("dialog").get_by_role("button", name="Move")).to_be_disabled()
    assert violations(page) == []


def test_without_the_right_the_button_is_disabled_with_the_words_of_the_server(
    changing: Site, changes: CannedChanges, open_page: Open
) -> None:
    changes.refusal = ChangeRefused(403, DENIED)
    page = open_page(changing.url + JOB, quiet=True)
    opened(page, "Hold")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text(DENIED)
    expect(dialog.get_by_role("button", name="Hold")).to_be_disabled()
    assert violations(page) == []


def test_a_server_without_changes_shows_the_command(site: Site, open_page: Open) -> None:
    page = open_page(site.url + QUEUE, quiet=True)
    opened(page, "Stop…")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("api.changes is none")
    expect(dialog).to_contain_text("queuectl stop clusterqueue/team-a")


def test_a_dialog_is_used_by_keyboard(changing: Site, changes: CannedChanges, open_page: Open) -> None:
    page = open_page(changing.url + JOB)
    button = page.get_by_role("group", name="Changes").get_by_role("button", name="Hold")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("It means hold.")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("It means hold.")
    page.get_by_label("Reason").press("Enter")
    expect(page.locator(".notice.done")).to_be_visible()
    assert [one.verb for one in made(changes)] == ["hold"]


def test_an_earlier_time_is_not_changed(changing: Site, open_page: Open) -> None:
    page = open_page(f"{changing.url}{JOB}?asOf=2026-01-05T10:00:10Z")
    expect(page.locator("main")).to_contain_text("team-a")
    expect(page.get_by_role("group", name="Changes")).to_have_count(0)


@pytest.mark.parametrize("size", SIZES)
def test_selected_workloads_are_changed_together_and_those_that_are_refused_stay(
    changing: Site, changes: CannedChanges, open_page: Open, size: str
) -> None:
    page = open_page(changing.url + "#/workloads", size=size, scheme="dark" if size == "phone" else "light")
    page.get_by_label("Select Job team-a/evaluate").check()
    page.get_by_label("Select Job team-b/owner").check()
    page.get_by_label("Select Job team-a/too-large").check()
    expect(page.locator("main")).to_contain_text("3 workloads selected")
    page.get_by_role("group", name="Changes of the selected workloads").get_by_role(
        "button", name="Hold"
    ).click()
    dialog = page.get_by_role("dialog", name="Hold 3 workloads")
    expect(dialog.get_by_role("listitem")).to_have_count(3)
    expect(dialog.locator(".line")).to_contain_text(
        "queuectl hold job/evaluate job/too-large -n team-a\nqueuectl hold job/owner -n team-b"
    )
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert made(changes) == []
    dialog.get_by_role("button", name="Hold").click()
    expect(page.locator(".notice.done")).to_contain_text("Hold 3 workloads: 3 workloads of 3 changed")
    assert [(one.verb, one.name) for one in made(changes)] == [
        ("hold", "evaluate"),
        ("hold", "too-large"),
        ("hold", "owner"),
    ]
    expect(page.get_by_label("Select all on this page")).to_be_visible()
    page.get_by_label("Select all on this page").check()
    expect(page.locator("main")).to_contain_text("4 workloads selected")


def test_of_selected_workloads_each_refusal_is_said_and_the_others_are_changed(
    changing: Site, changes: CannedChanges, open_page: Open
) -> None:
    changes.refusals["owner"] = ChangeRefused(403, DENIED)
    page = open_page(changing.url + "#/workloads", quiet=True)
    page.get_by_label("Select all on this page").check()
    page.get_by_role("group", name="Changes of the selected workloads").get_by_role(
        "button", name="Release"
    ).click()
    dialog = page.get_by_role("dialog", name="Release 4 workloads")
    refused = dialog.get_by_role("listitem").filter(has_text="team-b/job/owner")
    expect(refused).to_contain_text(f"stays as it is: {DENIED}")
    assert violations(page) == []
    dialog.get_by_role("button", name="Release").click()
    expect(page.locator(".notice.done")).to_contain_text("3 workloads of 4 changed")
    assert sorted(one.name for one in made(changes)) == ["evaluate", "too-large", "train"]


def test_more_changes_than_a_caller_may_ask_for_in_a_second_are_made_later(
    changes: CannedChanges, open_page: Open
) -> None:
    readings, reviews = queues("team-a"), CannedReviews()
    names = [f"job-{number:02}" for number in range(32)]
    readings.commit(*(of("team-a", name, number, reason=IN_TREE) for number, name in enumerate(names, 1)))
    reviews.tenant("ann", "team-a")
    with serving(readings, reviews, changes) as site:
        page = open_page(f"{site.url}#/workloads", quiet=True)
        page.get_by_role("dialog").get_by_label("Token").fill("ann")
        page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
        page.get_by_label("Select all on this page").check()
        group = page.get_by_role("group", name="Changes of the selected workloads")
        group.get_by_role("button", name="Hold").click()
        dialog = page.get_by_role("dialog", name="Hold 32 workloads")
        expect(dialog.get_by_role("listitem")).to_have_count(32, timeout=3000 * SECONDS)
        expect(dialog).not_to_contain_text("stays as it is")
        dialog.get_by_role("button", name="Hold").click()
        done = page.locator(".notice.done")
        expect(done).to_contain_text("32 workloads of 32 changed", timeout=3000 * SECONDS)
        assert [one.name for one in made(changes)] == names


def test_a_change_of_several_stops_at_the_first_that_fails_and_says_how_far_it_came(
    changing: Site, changes: CannedChanges, open_page: Open
) -> None:
    page = open_page(changing.url + "#/workloads", quiet=True)
    page.get_by_label("Select all on this page").check()
    group = page.get_by_role("group", name="Changes of the selected workloads")
    group.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete 4 workloads")
    expect(dialog.get_by_role("listitem")).to_have_count(4)
    changes.refusals["evaluate"] = ChangeRefused(403, DENIED)  # after the dry runs
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_contain_text(f"1 workload changed, then team-a/job/evaluate: {DENIED}")
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    assert [one.name for one in made(changes)] == ["train"]
