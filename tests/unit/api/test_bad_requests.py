"""Hostile and malformed requests: each gets a bounded response that names the problem."""

from __future__ import annotations

import pytest
from yarl import URL

from queuectl.api.requests import Cursors
from tests.unit.api.conftest import KEY, Rest

WORKLOADS = "/api/v1/workloads"


@pytest.mark.parametrize(
    "limit", ["-1", "0", "1001", "1000000000", "abc", str(2**63), "1.5", "", "%D9%A3", "+1", "1e3"]
)
async def test_45_a_limit_out_of_range_is_refused_with_the_range(rest: Rest, limit: str) -> None:
    detail = await rest.refused(rest.client.get(f"{WORKLOADS}?limit={limit}"), 400)
    assert "limit" in detail
    assert "1 to 1000" in detail


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("queue=%00", "queue"),
        ("namespace=../etc", "namespace"),
        ("clusterqueue=A%27%3B--", "clusterqueue"),
        ("namespace=" + "a" * 254, "namespace"),
        ("queue=", "queue"),
        ("phase=Running", "phase"),
        ("phase=pending", "phase"),
        ("reason=Because", "reason"),
        ("kind=Pod", "kind"),
        ("sort=name;drop+table", "sort"),
        ("foo=%1b%5b31m", "foo"),
        ("limit=1&limit=2", "limit"),
        ("queue=main%27%20OR%201=1", "queue"),
        ("next=%00", "next"),
        ("queue=%F0%28", "UTF-8"),
        ("%F0%28=1", "UTF-8"),
        ("&".join(f"a{n}=1" for n in range(100)), "parameters"),
    ],
)
async def test_47_a_bad_parameter_is_refused_by_name(rest: Rest, query: str, named: str) -> None:
    detail = await rest.refused(rest.client.get(_raw(f"{WORKLOADS}?{query}")), 400)
    assert named in detail
    assert detail.isprintable()


@pytest.mark.parametrize("path", ["/api/v1/clusterqueues/team-a", "/api/v1/workloads/default/job/waits"])
async def test_parameters_are_refused_on_paths_without_parameters(rest: Rest, path: str) -> None:
    assert "limit" in await rest.refused(rest.client.get(f"{path}?limit=1"), 400)


async def test_46_a_cursor_is_valid_only_for_its_own_list_and_filters(rest: Rest) -> None:
    first = await rest.get(WORKLOADS, limit="1")
    cursor = first["next"]
    changed = ("A" if cursor[-3] != "A" else "B").join((cursor[:-3], cursor[-2:]))
    for path, parameters in (
        (WORKLOADS, {"next": cursor, "namespace": "default"}),
        ("/api/v1/clusterqueues", {"next": cursor}),
        (WORKLOADS, {"next": cursor[:-4]}),
        (WORKLOADS, {"next": changed}),
        (WORKLOADS, {"next": ""}),
        (WORKLOADS, {"next": "§"}),
        (WORKLOADS, {"next": "x" * 2049}),
        (WORKLOADS, {"next": Cursors(b"another key").write([1, "uid-1"], "")}),
    ):
        detail = await rest.refused(rest.client.get(path, params=parameters), 400)
        assert "parameter next" in detail
    assert (await rest.get(WORKLOADS, next=cursor, limit="2"))["items"][0]["name"] == "large"


async def test_46_a_cursor_is_bound_to_its_caller() -> None:
    cursors = Cursors(KEY)
    text = cursors.write([7], "alice")
    assert cursors.read(text, "alice") == [7]
    with pytest.raises(Exception, match="parameter next"):
        cursors.read(text, "bob")


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/api/v1/clusterqueues/nobody",
        "/api/v1/localqueues/default/nobody",
        "/api/v1/localqueues/nobody/main",
        "/api/v1/workloads/default/job/nobody",
        "/api/v1/workloads/nobody/job/waits",
        "/api/v1/workloads/default/pod/waits",
        "/api/v1/workloads/default/job/%00",
        "/api/v1/workloads/default/job/%F0%28",
        "/api/v1/workloads/default/job/nobody/history",
        "/api/v1/workloads/default/job/nobody/story",
    ],
)
async def test_49_a_missing_object_is_the_same_404_on_every_path(rest: Rest, path: str) -> None:
    detail = await rest.refused(rest.client.get(_raw(path)), 404)
    assert detail == "there is no such object, or you may not read it"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_50_other_methods_are_refused_with_any_body(rest: Rest, method: str) -> None:
    for body in (b"", b"{" * 100_000):
        answer = await rest.client.request(method, WORKLOADS, data=body or None)
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD"
        assert answer.content_type == "application/problem+json"


async def test_head_is_get_without_the_body(rest: Rest) -> None:
    answer = await rest.client.head(WORKLOADS)
    assert (answer.status, await answer.read()) == (200, b"")


async def test_50_a_body_is_not_read(rest: Rest) -> None:
    assert "body" in await rest.refused(rest.client.request("GET", WORKLOADS, data=b"x"), 400)


async def test_a_request_with_a_foreign_host_header_is_refused(rest: Rest) -> None:
    for host in ("evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "[::1", "a:b:c"):
        answer = await rest.client.get(WORKLOADS, headers={"Host": host})
        assert 400 <= answer.status < 500
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:8080"):
        answer = await rest.client.get(WORKLOADS, headers={"Host": host})
        assert answer.status == 200


async def test_a_defect_is_a_500_without_internal_details(
    rest: Rest, caplog: pytest.LogCaptureFixture
) -> None:
    rest.readings.down = RuntimeError("secret")
    detail = await rest.refused(rest.client.get("/api/v1/workloads/default/job/waits/history"), 500)
    assert "secret" not in detail
    assert "secret" in caplog.text


def _raw(path: str) -> URL:
    """A URL that is sent without encoding."""
    return URL(path, encoded=True)
