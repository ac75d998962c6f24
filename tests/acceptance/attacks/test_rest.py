"""Attacks of callers on REST: each answer is bounded, names its problem, and tells nothing of others."""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

import pytest
from yarl import URL

from queuectl.core.model.workload import ConfigKey
from queuectl.ports.changes import Wanted
from tests.unit.api.canned import EPOCH_START, local_spec, queue_spec, two_teams
from tests.unit.api.changing import OWN_PAGE, CannedChanges
from tests.unit.api.conftest import Serve, bearer
from tests.unit.api.reviews import CannedReviews
from tests.unit.api.test_budgets import with_budgets
from tests.unit.api.test_tenants import BOBS, SECRET
from tests.unit.api.test_tenants import ledger as of_two_tenants
from tests.unit.api.test_usage_limits import with_limits
from tests.unit.api.test_what_ifs import AS_YAML, LARGER, ledger, manifest
from tests.unit.kinds.test_policy import BUDGET

AS_JSON: Final = {"Content-Type": "application/json"}
SLOW: Final = 20
"""Seconds of CPU that no attack may cost; most cost a hundredth."""


def tenants() -> CannedReviews:
    """Alice may read namespace default, and mallory nothing."""
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.add("mallory")
    return reviews


# --- bodies ---------------------------------------------------------------------------------------------


def text_of(**changes: str) -> bytes:
    """The text of a Job whose marks are replaced: values that no encoder of JSON writes."""
    body = manifest(name="NAME", namespace="SPACE")
    body["spec"]["parallelism"] = "PODS"
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "GPUS"}}
    text = json.dumps(body)
    marks = {"NAME": '"new"', "SPACE": '"default"', "PODS": "1", "GPUS": '"1"'} | changes
    for mark, value in marks.items():
        text = text.replace(f'"{mark}"', value)
    return text.encode()


BODIES: Final[dict[str, tuple[bytes, int, str]]] = {
    "a name that is half a character": (text_of(NAME='"\\ud800"'), 200, "Now"),
    "a name with an escape of a terminal": (text_of(NAME='"\\u001b[2J"'), 200, "Now"),
    "no number": (text_of(PODS="NaN"), 400, "NaN"),
    "an infinite number": (text_of(PODS="1e999"), 400, "1e999"),
    "a number of 100,000 digits": (text_of(PODS="9" * 100_000), 400, ""),
    "a namespace that is given twice": (text_of(NAME='"new", "namespace": "other"'), 400, "given twice"),
    "a namespace that is given twice, the other one last": (
        text_of(SPACE='"default", "namespace": "other"'),
        400,
        "given twice",
    ),
    "a namespace that leaves its path": (text_of(SPACE='"default/../other"'), 400, "metadata.namespace"),
    "a namespace that is a list": (text_of(SPACE='["default", "other"]'), 400, ""),
    "a quantity of many digits": (text_of(GPUS='"1' + "0" * 100_000 + '"'), 200, "Misconfigured|OutOfRange"),
    "a quantity with a huge exponent": (text_of(GPUS='"1e999999999"'), 200, "Misconfigured|OutOfRange"),
    "a quantity with a tiny exponent": (text_of(GPUS='"1e-999999999"'), 200, "Now"),
    "a number of pods below zero": (text_of(PODS="-1"), 200, "Misconfigured"),
    "bytes that are no text": (b'{"kind": "\xff\xfe"}', 400, ""),
    "a byte order mark of another encoding": ("\ufeff{}".encode("utf-16"), 400, ""),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_quote_of_a_hostile_body_is_refused_or_says_why_it_can_not_start(
    serve: Serve, name: str
) -> None:
    body, status, words = BODIES[name]
    rest = await serve(ledger(), tenants())
    begin = time.process_time()
    headers = AS_JSON | bearer("alice")
    answer = await rest.client.post("/api/v1/quote", data=body, headers=headers)
    said = await answer.text()
    assert answer.status == status, said[:500]
    assert not words or any(word in said for word in words.split("|")), said[:500]
    assert len(said) < 20_000
    assert said.replace("\n", "").isprintable()
    assert '"other"' not in said
    assert time.process_time() - begin < SLOW


YAMLS: Final[dict[str, str]] = {
    "merge keys": "a: {<<: {kind: Job}}\n<<: {apiVersion: batch/v1, kind: Job}",
    "a tag of an application": "!!python/object/apply:os.system ['true']",
    "a deep nest": "a: " + "[" * 5_000,
    "a deep nest of blocks": "".join(" " * n + "a:\n" for n in range(300)),
    "a long key": "? " + "k" * 60_000 + "\n: 1",
    "a date that is none": "kind: Job\nx: !!timestamp 9999-99-99",
    "many documents": "---\na: 1\n" * 5_000,
    "an escape of a terminal": '"\\e[2J": 1\n"\\e[2J": 2',
}


@pytest.mark.parametrize("path", ["quote", "plan"])
@pytest.mark.parametrize("name", YAMLS)
async def test_hostile_yaml_is_refused_in_words_that_are_printable(
    serve: Serve, name: str, path: str
) -> None:
    rest = await serve(ledger())
    begin = time.process_time()
    said = await rest.refused(
        rest.client.post(f"/api/v1/{path}", data=YAMLS[name].encode(), headers=AS_YAML), 400
    )
    assert said.isprintable()
    assert len(said) < 2_000
    assert time.process_time() - begin < SLOW


async def test_a_quote_of_many_labels_and_annotations_has_a_bounded_answer(serve: Serve) -> None:
    rest = await serve(ledger())
    labels = {"queuectl.dev/queue-name": "main"} | {f"l{n}": "v" * 63 for n in range(2_500)}
    answer = await rest.client.post("/api/v1/quote", json=manifest(labels=labels))
    said = await answer.text()
    assert answer.status in (200, 400), said[:300]
    assert len(said) < 20_000


async def test_a_plan_of_cohorts_in_a_circle_ends_and_names_it(serve: Serve) -> None:
    rest = await serve(ledger())
    circle = [
        {"kind": "Cohort", "metadata": {"name": f"c{n}"}, "spec": {"parentName": f"c{(n + 1) % 900}"}}
        for n in range(900)
    ]
    queue = json.loads(json.dumps(LARGER["objects"][0]))
    queue["spec"]["cohortName"] = "c0"
    begin = time.process_time()
    answer = await rest.client.post("/api/v1/plan", json={"objects": [*circle, queue]})
    found = await answer.json(content_type=None)
    assert answer.status == 200, found
    assert "team-a" in {one["clusterQueue"] for one in found["inactive"]}
    assert time.process_time() - begin < SLOW


# --- times, paths, parameters, headers ------------------------------------------------------------------

TIMES: Final = (
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:60Z",
    "2026-01-05T10:00:00.9999999999999999999Z",
    "2026-02-30T00:00:00Z",
    "٢٠٢٦-01-05T10:00:00Z",
    "now",
    "-1",
)


@pytest.mark.parametrize("when", TIMES)
async def test_a_time_at_the_ends_of_the_calendar_is_refused_by_name(serve: Serve, when: str) -> None:
    readings = two_teams()
    readings.keep(EPOCH_START)
    rest = await serve(readings)
    for path, key in (
        ("/api/v1/workloads", "asOf"),
        ("/api/v1/clusterqueues/team-a", "asOf"),
        ("/api/v1/workloads?phase=Finished", "since"),
        ("/api/v1/preemptions", "since"),
        ("/api/v1/preemptions", "until"),
    ):
        answer = await rest.client.get(path, params={key: when})
        said = await answer.text()
        assert answer.status in (200, 400, 404), (path, key, said[:300])
        if answer.status != 200:
            assert said.isascii() or said.isprintable()
            assert key in said


PATHS: Final = (
    "/api/v1/workloads/default%2F..%2F{bobs}/job/zz-urgent",
    "/api/v1/workloads/default/..%2F..%2F{bobs}/job/zz-urgent",
    "/api/v1/workloads/default/job/..%2F..%2F{bobs}%2Fjob%2Fzz-urgent",
    "/api/v1/workloads/{bobs}/job/zz-urgent;default",
    "/api/v1/workloads/{upper}/job/zz-urgent",
    "/api/v1/workloads/{bobs}/job/zz-urgent%00",
    "/api/v1//workloads/{bobs}/job/zz-urgent",
    "/api/v1/workloads/{bobs}/job/zz-urgent/counterfactuals",
    "/api/v1/workloads/{bobs}/job/zz-urgent/story",
    "/api/v1/localqueues/{bobs}/zz-queue",
)


@pytest.mark.parametrize("path", PATHS)
async def test_no_spelling_of_a_path_reads_another_tenant(serve: Serve, path: str) -> None:
    rest = await serve(of_two_tenants(), tenants())
    url = URL(path.format(bobs=BOBS, upper=BOBS.upper()), encoded=True)
    answer = await rest.client.get(url, headers=bearer("alice"), allow_redirects=False)
    said = await answer.text()
    assert answer.status in (400, 404), said[:300]
    missing = (
        said.replace(BOBS, "").replace(BOBS.upper(), "").replace("zz-urgent", "").replace("zz-queue", "")
    )
    assert SECRET not in missing.lower()


CLAIMS: Final = {
    "impersonation": {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"},
    "a proxy that checked": {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
    "another method": {"X-HTTP-Method-Override": "POST"},
    "another path": {"X-Original-URL": f"/api/v1/workloads?namespace={BOBS}"},
    "another host": {"X-Forwarded-Host": "localhost", "X-Forwarded-For": "127.0.0.1", "Forwarded": "for=::1"},
}


@pytest.mark.parametrize("name", CLAIMS)
async def test_no_header_makes_a_caller_another_one(serve: Serve, name: str) -> None:
    rest = await serve(of_two_tenants(), tenants())
    for token in ("mallory", "alice"):
        plain = await rest.client.get("/api/v1/workloads", headers=bearer(token))
        claimed = await rest.client.get("/api/v1/workloads", headers=bearer(token) | CLAIMS[name])
        first, second = await plain.json(content_type=None), await claimed.json(content_type=None)
        assert (plain.status, first.get("items")) == (claimed.status, second.get("items"))
        assert SECRET not in json.dumps(second.get("items"))
    answer = await rest.client.get("/api/v1/workloads", headers=CLAIMS[name])
    assert answer.status == 401


async def test_two_authorization_headers_are_no_two_identities(serve: Serve) -> None:
    rest = await serve(of_two_tenants(), tenants())
    for first, second in (("mallory", "alice"), ("nobody", "alice"), ("alice", "nobody")):
        headers = [("Authorization", f"Bearer {first}"), ("Authorization", f"Bearer {second}")]
        answer = await rest.client.get("/api/v1/workloads/default/job/mine", headers=headers)
        assert answer.status in (400, 401, 404), (first, second)


async def test_a_cursor_of_one_tenant_is_none_of_another(serve: Serve) -> None:
    reviews = tenants()
    reviews.tenant("bob", BOBS, "default")
    rest = await serve(of_two_tenants(), reviews)
    page = await rest.get("/api/v1/workloads", token="bob", limit="1")
    assert page["next"]
    stolen = rest.client.get("/api/v1/workloads", params={"next": page["next"]}, headers=bearer("alice"))
    assert "parameter next" in await rest.refused(stolen, 400)


SELECTORS: Final = (
    "a in (" + ",".join("b" * 3 for _ in range(250)),
    "!" * 1_024,
    "a notin ()" * 90,
    ",".join("a=b" for _ in range(255)),
    "(" * 1_024,
    "a==b==c",
    "\u202ea=b",
    "a in (b),,,,a",
)


@pytest.mark.parametrize("selector", SELECTORS)
async def test_a_hostile_selector_is_refused_by_name_or_selects_nothing(serve: Serve, selector: str) -> None:
    rest = await serve(two_teams())
    begin = time.process_time()
    answer = await rest.client.get(f"/api/v1/workloads?labelSelector={quote(selector)}")
    said = await answer.text()
    assert answer.status in (200, 400), said[:300]
    if answer.status == 200:
        assert (await answer.json())["items"] == []
    else:
        assert "labelSelector" in said
        assert said.replace("\n", "").isprintable()
    assert time.process_time() - begin < SLOW


# --- changes and turns ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", ["\x1b[2J", "a\nqueuectl: done by admin", "\u202eevil", "x" * 5_000, "\x00", ["a"], {"a": 1}]
)
async def test_a_reason_is_one_line_that_a_terminal_prints(serve: Serve, reason: Any) -> None:
    changes = CannedChanges()
    rest = await serve(two_teams(), changes=changes)
    body = {"reason": reason}
    answer = await rest.client.post("/api/v1/workloads/default/job/large/hold", json=body, headers=OWN_PAGE)
    said = await answer.text()
    assert answer.status in (200, 400, 413), said[:300]
    for wanted, _ in changes.made:
        assert isinstance(wanted, Wanted)
        assert wanted.reason is None or (wanted.reason.isprintable() and len(wanted.reason) <= 500)
    assert (answer.status == 200) == bool(changes.made)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_no_other_method_makes_a_change(serve: Serve, method: str) -> None:
    changes = CannedChanges()
    rest = await serve(two_teams(), changes=changes)
    answer = await rest.client.request(
        method, "/api/v1/workloads/default/job/large/hold", json={}, headers=OWN_PAGE
    )
    assert answer.status in (400, 405)
    assert changes.made == []


async def test_a_local_queue_of_the_same_name_elsewhere_is_not_quoted(serve: Serve) -> None:
    """The queue label names a LocalQueue of the object's namespace, whatever it is made of."""
    readings = ledger()
    readings.commit(
        configs={
            ConfigKey("ClusterQueue", "", "private"): queue_spec(100),
            ConfigKey("LocalQueue", "other", "richer"): local_spec("private"),
        }
    )
    rest = await serve(readings, tenants())
    for name in ("richer", "other/richer", "../other/richer", "RICHER", "richer "):
        body = manifest(labels={"queuectl.dev/queue-name": name})
        answer = await rest.client.post("/api/v1/quote", json=body, headers=bearer("alice"))
        said = await answer.text()
        if answer.status == 200:
            found = await answer.json()
            assert found["now"]["starts"] == "Never", found
            assert "private" not in said
        else:
            assert answer.status in (400, 404), said[:300]


async def test_a_state_of_the_far_future_is_the_one_of_now(serve: Serve) -> None:
    readings = two_teams()
    readings.keep(EPOCH_START)
    rest = await serve(readings)
    for days in (1, 365_000):
        when = (EPOCH_START + timedelta(days=days)).isoformat().replace("+00:00", "Z")
        answer = await rest.client.get("/api/v1/workloads", params={"asOf": when})
        assert answer.status == 200
        assert len((await answer.json())["items"]) == 5
    assert len(readings.looks) <= 2


VALUES: Final = (
    *("", "-1", "1e9", "9223372036854775808", "9" * 1_500, "\u0663", "../..", "{}", "user,user", "1000-01"),
    *("\x00", "\r\nX-Added: b", "\u202e", "\x1b[2J", "\U0001f3f3\ufe0f"),
    *("0001-01-01T00:00:00Z", "8999-12-31T23:59:59.999999Z"),
)


async def test_no_value_of_any_parameter_of_any_path_is_an_error_of_the_server(serve: Serve) -> None:
    readings = two_teams()
    with_budgets(readings)
    with_limits(readings)
    rest = await serve(readings, tenants())
    paths = (await rest.get("/openapi.json", token="alice"))["paths"]
    names = {"namespace": "default", "kind": "job", "name": "large", "month": "2026-01"}
    tries = 0
    for path, methods in paths.items():
        url = re.sub(r"\{(\w+)\}", lambda part: names.get(part[1], "x"), path)
        for parameter in methods.get("get", {}).get("parameters", []):
            for value in VALUES if parameter["in"] == "query" and parameter["name"] != "wait" else ():
                asked = {parameter["name"]: value}
                answer = await rest.client.get(url, params=asked, headers=bearer("alice"))
                said = await answer.text()
                tries += 1
                assert answer.status in (200, 400, 404, 429, 503), (url, asked, said[:300])
                assert answer.status == 200 or said.replace("\n", "").isprintable(), (url, asked)
                assert "X-Added" not in answer.headers
    assert tries > 1_000


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
async def test_a_plan_with_hours_at_the_ends_of_the_calendar_is_answered(serve: Serve, at: str) -> None:
    rest = await serve(ledger())
    spec = BUDGET | {"grants": [{"hours": 1, "at": at, "reason": "x"}]}
    planned = {"objects": [{"kind": "Budget", "metadata": {"name": "one"}, "spec": spec}]}
    answer = await rest.client.post("/api/v1/plan", json=planned)
    said = await answer.text()
    assert answer.status == 400, said
    assert "spec.grants[0].at" in said
