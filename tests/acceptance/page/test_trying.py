"""The views that try something on a copy of the state: a quote of a workload, a plan of policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Final

import pytest
import yaml
from playwright.sync_api import expect

from queuectl.core.model.workload import ConfigKey
from tests.acceptance.page.conftest import SIZES, Open
from tests.acceptance.page.serving import Site, serving
from tests.acceptance.page.test_views import violations
from tests.unit.api.canned import GPU, queue_spec
from tests.unit.api.reviews import CannedReviews
from tests.unit.api.test_what_ifs import ledger, manifest

WAITS: Final = yaml.safe_dump(manifest(pods=9))
QUOTES: Final = {
    "one GPU is free": (manifest(), ["It starts now", "What it would hold", f"{GPU.split('/')[1]}: a100"]),
    "two take one of a guest": (
        manifest(pods=2),
        ["It starts after a preemption", "It displaces other/job/guest (InCohortReclamation)"],
    ),
    "nine are too many": (manifest(pods=9), ["Cheaper shapes", "of 9 pods in podset main it starts"]),
}


def policy(nominal: int) -> str:
    spec = json.loads(queue_spec(nominal, cohort="all"))
    return yaml.safe_dump({"kind": "ClusterQueue", "metadata": {"name": "team-a"}, "spec": spec})


@pytest.fixture(scope="module")
def tried() -> Iterator[Site]:
    with serving(ledger()) as found:
        yield found


@pytest.mark.parametrize(("case", "size"), list(zip(QUOTES, cycle(SIZES), strict=False)))
def test_a_quote_says_whether_a_workload_would_start_and_what_it_costs(
    tried: Site, open_page: Open, case: str, size: str
) -> None:
    manifest, says = QUOTES[case]
    page = open_page(f"{tried.url}#/quote", size=size, scheme="dark" if size == "phone" else "light")
    page.get_by_label("The workload, as you would create it").fill(yaml.safe_dump(manifest))
    page.get_by_role("button", name="Would it start?").click()
    for text in says:
        expect(page.locator(".answer")).to_contain_text(text)
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]


def test_a_plan_names_what_it_admits_and_what_it_strands(tried: Site, open_page: Open) -> None:
    page = open_page(f"{tried.url}#/plan")
    field = page.get_by_label("Policy objects, as they would be")
    field.fill(policy(13))
    field.press("Control+Enter")
    rows = page.get_by_role("region", name="What the policy would decide").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("waits")
    expect(rows.first).to_contain_text("Admitted")
    objects = page.get_by_role("region", name="Objects that change").locator("tbody tr")
    expect(objects).to_have_count(1)
    expect(objects.first).to_contain_text("ClusterQueue/team-a")
    expect(objects.first).to_contain_text("nominalQuota: 8 13")
    assert violations(page) == []
    field.fill(policy(2))
    expect(page.locator(".answer")).to_contain_text("The text was changed since")
    page.get_by_role("button", name="What would it decide?").click()
    expect(rows.filter(has_text="Stranded")).to_have_count(1)
    page.get_by_text("Stranded", exact=True).first.click()
    assert violations(page) == []


def test_an_error_of_the_yaml_names_its_place(tried: Site, open_page: Open) -> None:
    page = open_page(f"{tried.url}#/quote", quiet=True)
    page.get_by_label("The workload").fill("kind: Job\n  bad: 1")
    page.get_by_role("button", name="Would it start?").click()
    expect(page.get_by_role("alert")).to_contain_text("body: line 2, column 6")
    assert violations(page) == []


def test_a_file_fills_the_field_which_a_reload_keeps(tried: Site, open_page: Open, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(WAITS)
    page = open_page(f"{tried.url}#/quote")
    page.locator("input[type=file]").set_input_files(file)
    field = page.get_by_label("The workload")
    expect(field).to_have_value(WAITS)
    page.reload()
    expect(field).to_have_value(WAITS)
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Use an example").click()
    page.get_by_role("button", name="Would it start?").click()
    expect(page.locator(".verdict")).to_be_visible()


def test_a_tenant_is_quoted_without_the_names_of_others_and_may_not_plan(open_page: Open) -> None:
    reviews = CannedReviews()
    reviews.tenant("tenant-token", "default")
    with serving(ledger(), reviews) as site:
        page = open_page(f"{site.url}#/quote", quiet=True)
        page.get_by_role("dialog").get_by_label("Token").fill("tenant-token")
        page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
        page.get_by_label("The workload").fill(yaml.safe_dump(manifest(pods=2)))
        page.get_by_role("button", name="Would it start?").click()
        expect(page.locator(".answer")).to_contain_text("It displaces a workload not shown to you")
        assert "guest" not in page.locator("body").inner_text()
        page.goto(f"{site.url}#/plan")
        page.get_by_label("Policy objects").fill(policy(2))
        page.get_by_role("button", name="What would it decide?").click()
        expect(page.get_by_role("alert")).to_contain_text("needs the right to list all workloads")


def test_a_plan_starts_from_the_object_as_it_is(open_page: Open) -> None:
    readings = ledger()
    spec = json.loads(queue_spec(8, cohort="all")) | {
        "queueingStrategy": "StrictFIFO",
        "preemption": {"withinClusterQueue": "LowerPriority", "minRunTime": {"InClusterQueue": 600}},
        "namespaceSelector": {
            "matchExpressions": [{"key": "team", "operator": "In", "values": ["no", "1.5"]}]
        },
        "stopReason": "moved: see 'wiki' #2\nsoon",
    }
    readings.commit(configs={ConfigKey("ClusterQueue", "", "team-a"): json.dumps(spec)})
    with serving(readings) as site:
        page = open_page(f"{site.url}#/clusterqueues/team-a")
        policy_panel = page.locator(".panel").filter(has=page.get_by_role("heading", name="Policy"))
        for text in ("LowerPriority", "InClusterQueue 10m00s", "team In no 1.5", "moved: see 'wiki' #2"):
            expect(policy_panel).to_contain_text(text)
        policy_panel.get_by_text("As YAML").click()
        assert yaml.safe_load(policy_panel.locator("pre").inner_text()) == spec
        assert violations(page) == []
        page.get_by_role("link", name="Plan a change").click()
        page.get_by_role("button", name="Start from team-a").click()
        field = page.get_by_label("Policy objects, as they would be")
        written = field.input_value()
        assert yaml.safe_load(written)["spec"] == spec
        page.get_by_role("button", name="What would it decide?").click()
        expect(page.locator(".answer")).to_contain_text("No object changes")
        assert "cohortName: all" in written
        field.fill(written.replace('nominalQuota: "8"', 'nominalQuota: "9"'))
        page.get_by_role("button", name="What would it decide?").click()
        objects = page.get_by_role("region", name="Objects that change").locator("tbody tr")
        expect(objects).to_contain_text("nominalQuota")
        expect(objects.locator("code")).to_have_count(1)
        assert violations(page) == []
