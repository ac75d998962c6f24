"""Bad input of the command line: short messages without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Script


@pytest.mark.parametrize("limit", ["-1", "0", "abc", "1e9", "1.5", "٣٣x", ""])
def test_a_limit_is_a_whole_number_from_1(run: Run, limit: str) -> None:
    result = run("get", "wl", f"--limit={limit}", "--server", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "--limit" in result.stderr


@pytest.mark.parametrize("limit", ["1000000000", str(2**63), "9" * 400])
def test_a_huge_limit_costs_no_more_than_the_existing_objects(run: Run, server: str, limit: str) -> None:
    result = run("get", "wl", "--limit", limit, "--server", server)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 6


@pytest.mark.parametrize(
    "filters",
    [
        ("--queue", "name;drop table"),
        ("--queue", "\x00"),
        ("--cluster-queue", "a" * 300),
        ("--namespace", "../default"),
        ("--kind", "Pod"),
        ("--reason", "Because"),
        ("--phase", "pending' or 1=1"),
    ],
)
def test_an_invalid_filter_is_refused_and_named(run: Run, server: str, filters: tuple[str, str]) -> None:
    result = run("get", "wl", *filters, "--server", server)
    assert (result.exit_code, result.stdout) == (2, "")
    assert filters[0].strip("-").replace("-", "") in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr) < 1500
    assert result.stderr.replace("\n", "").isprintable()


def test_arguments_that_are_not_text_are_refused(run: Run, server: str) -> None:
    for line in (("get", "wl", "--queue", "\udcf0("), ("explain", "job/\udcff"), ("hold", "job/\udcff")):
        result = run(*line, "--server", server)
        assert result.exit_code in (1, 2)
        assert result.stdout == ""


@pytest.mark.parametrize("after", ["-1", "x", "1e3", str(2**63), "9" * 5000])
def test_an_invalid_sequence_is_refused_and_named(run: Run, server: str, after: str) -> None:
    result = run("get", "decisions", "--after", after, "--server", server)
    assert result.exit_code == 2
    assert "after" in result.stderr
    assert len(result.stderr) < 1500


@pytest.mark.parametrize(
    "name",
    ["", "/", "job/", "/x", "job/a/b", "job/" + "x" * 300, "job/\x00", "job/é", "job/a?b=c#d", "job/%2e"],
)
def test_an_invalid_name_is_not_found(run: Run, server: str, name: str) -> None:
    result = run("explain", name, "-n", "default", "--server", server)
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert "not found" in result.stderr or "is none of" in result.stderr
    assert result.stderr.replace("\n", "").isprintable()


def test_a_forbidden_object_is_reported_like_a_missing_one(run: Run, script: Script, scripted: str) -> None:
    script.page("workloads")
    script.page("localqueues")
    for command in ("explain", "history"):
        told = [run(command, "job/x", "-n", where, "--server", scripted) for where in ("foreign", "missing")]
        assert {one.exit_code for one in told} == {1}
        assert told[0].stderr.replace("foreign", "missing") == told[1].stderr


def test_a_token_that_is_too_long_for_the_server_is_reported(
    run: Run, script: Script, scripted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECTL_TOKEN", "x" * 60_000)
    result = run("get", "cq", "--server", scripted)
    assert result.exit_code == 2
    assert len(result.stderr) < 1500
    assert "xxx" not in result.stderr


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://u:secret@h:abc/x", "database.url: the port 'abc' must be a number of 1 to 65535"),
        (
            "postgresql://u:secret@h:1,g:99999/x",
            "the port '99999' must be a number of 1 to 65535",
        ),
        (
            "postgresql://u:secret@[::1/x",
            "database.url: must be a URL such as postgresql://USER@HOST/DATABASE",
        ),
        (
            "postgresql://u:secret@h/x?sslmode=some",
            "sslmode=some must be disable, allow, prefer",
        ),
        ("postgresql://u:secret@h/x?target_session_attrs=zz", "target_session_attrs=zz must be any, primary"),
    ],
)
def test_a_bad_url_of_the_ledger_is_named_without_its_password(run: Run, url: str, told: str) -> None:
    result = run("verify", "--database-url", url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert "secret" not in result.stderr
    assert "Errno" not in result.stderr


_KUBECONFIG = (
    "current-context: c\n"
    "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
    "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
    "users: [{name: u, user: {token: x}}]\n"
)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (_KUBECONFIG, "a: [\n", "line 2, column 1: a value is expected"),
        (_KUBECONFIG, "12\n", "an object is expected"),
        (_KUBECONFIG, "- a\n", "an object is expected"),
        ("current-context: c\n", "", "current-context is missing"),
        ("current-context: c\n", "current-context: d\n", "d is not among its contexts"),
        ("cluster: c,", "cluster: d,", "d is not among its clusters"),
        ("https://127.0.0.1:1", "foo", "server 'foo' is no URL such as https://10.0.0.1:6443"),
        ("https://127.0.0.1:1", "https://127.0.0.1:99999", "is no URL such as https://10.0.0.1:6443"),
        ("server:", "certificate-authority: /none, server:", "/none: No such file or directory"),
        ("server:", "certificate-authority-data: QUJD, server:", "it has no certificate (PEM)"),
        ("token: x", "client-certificate-data: zz", "a field is malformed"),
        ("token: x", "token: x", "Connection refused (127.0.0.1:1)"),
    ],
)
def test_a_bad_kubeconfig_is_named_with_what_is_wrong(
    run: Run, tmp_path: Path, old: str, new: str, told: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(_KUBECONFIG.replace(old, new))
    result = run("submit", "-q", "main", "-n", "a", "--image", "x", "--kubeconfig", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    for word in ("Errno", "Invalid kube-config", "ssl:default", "object", "_ssl"):
        assert word not in result.stderr.replace("an object is expected", "")


def test_a_kubeconfig_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    result = run("submit", "-q", "main", "-n", "a", "--image", "x")
    told = f"there is no kubeconfig {tmp_path}/.kube/config: give --kubeconfig, or set KUBECONFIG"
    assert (result.exit_code, result.stderr) == (2, f"Error: {told}\n")
