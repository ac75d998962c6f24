"""Tokens are sent only to verified servers or to the local machine."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.unit.cli.clusters import kubeconfig
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Document, Script, answering

TOKEN = "abc.DEF-123_~+/="
CLUSTER = "https://kubernetes.default.svc"


def jwt(audience: object, sub: str = "system:serviceaccount:team-a:bot") -> str:
    content = json.dumps({"aud": audience, "sub": sub})
    claims = base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secure(script: Script, authority: trustme.CA) -> Iterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with answering(script.answer, tls=context) as url:
        yield url


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def test_a_token_file_takes_precedence_over_the_environment(
    run: Run, script: Script, scripted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.page("clusterqueues")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    monkeypatch.setenv("QUEUECTL_TOKEN", "other")
    assert run("get", "cq", "--server", scripted, "--token-file", str(file)).exit_code == 0
    assert run("get", "cq", "--server", scripted).exit_code == 0
    assert script.tokens == [f"Bearer {TOKEN}", "Bearer other"]


def test_no_token_is_sent_if_none_is_given(run: Run, script: Script, scripted: str) -> None:
    script.page("clusterqueues")
    run("get", "cq", "--server", scripted)
    assert script.tokens == [None]


def test_a_token_is_not_sent_unencrypted_to_another_machine(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECTL_TOKEN", TOKEN)
    result = run("get", "cq", "--server", "http://192.0.2.1:80")
    assert result.exit_code == 2
    assert "not sent" in result.stderr
    assert "https://" in result.stderr
    assert TOKEN not in result.output


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"two words", b"a\r\nX-Evil: 1", b"\xff\xfe", b"a" * 70_000]
)
def test_an_invalid_token_is_refused_without_showing_it(
    run: Run, scripted: str, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    result = run("get", "cq", "--server", scripted, "--token-file", str(file))
    assert result.exit_code == 2
    assert str(file) in result.stderr
    assert "words" not in result.stderr
    assert "Evil" not in result.stderr


def test_a_missing_token_file_is_reported_by_name(run: Run, scripted: str, tmp_path: Path) -> None:
    result = run("get", "cq", "--server", scripted, "--token-file", str(tmp_path / "no"))
    assert result.exit_code == 2
    assert f"{tmp_path}/no: No such file" in result.stderr


def test_a_server_is_verified_only_by_the_given_certificates(
    run: Run, script: Script, secure: str, ca: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.page("clusterqueues")
    monkeypatch.setenv("QUEUECTL_TOKEN", TOKEN)
    assert run("get", "cq", "--server", secure, "--server-ca", ca).exit_code == 0
    result = run("get", "cq", "--server", secure)
    assert result.exit_code == 2
    assert "--server-ca" in result.stderr
    assert script.tokens == [f"Bearer {TOKEN}"]


def test_a_certificate_for_another_name_is_refused(run: Run, script: Script, secure: str, ca: str) -> None:
    result = run("get", "cq", "--server", secure.replace("127.0.0.1", "localhost"), "--server-ca", ca)
    assert result.exit_code == 2
    assert "is not trusted" in result.stderr
    assert script.asked == []


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_bad_certificates_are_reported_by_file(run: Run, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "bad.pem"
    if content is not None:
        path.write_text(content)
    result = run("get", "cq", "--server", "https://127.0.0.1:9", "--server-ca", str(path))
    assert result.exit_code == 2
    assert f"--server-ca {path}" in result.stderr


def test_without_a_token_the_command_that_creates_one_is_printed(
    run: Run, script: Script, scripted: str
) -> None:
    script.accepts = TOKEN
    result = run("explain", "job/x", "-n", "team-a", "--server", scripted)
    assert result.exit_code == 2
    assert "kubectl create token SERVICEACCOUNT -n team-a --audience queuectl" in result.stderr
    script.audiences = ["queues.example.com"]
    assert "--audience queues.example.com" in run("get", "cq", "--server", scripted).stderr


def test_a_token_that_is_not_accepted_is_reported(
    run: Run, script: Script, scripted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.accepts = TOKEN
    monkeypatch.setenv("QUEUECTL_TOKEN", "revoked")
    result = run("get", "cq", "--server", scripted)
    assert result.exit_code == 2
    assert "does not accept this token" in result.stderr
    assert "kubectl create token" in result.stderr
    assert "revoked" not in result.stderr.replace("was revoked", "")


@pytest.mark.parametrize("token", ["opaque", jwt(CLUSTER), jwt([CLUSTER, "other"])])
def test_the_token_of_the_kubeconfig_is_sent_if_the_server_accepts_the_cluster_s_audience(
    run: Run, script: Script, secure: str, ca: str, tmp_path: Path, token: str
) -> None:
    script.accepts = token
    script.audiences = ["queuectl", CLUSTER]
    script.page("clusterqueues")
    config = str(kubeconfig(tmp_path, "https://127.0.0.1:9", token=token))
    result = run("get", "cq", "--server", secure, "--server-ca", ca, "--kubeconfig", config)
    assert result.exit_code == 0, result.stderr
    assert script.tokens == [None, f"Bearer {token}"]


@pytest.mark.parametrize(
    ("audiences", "token"), [(["queuectl"], "opaque"), (["queuectl", CLUSTER], jwt("https://elsewhere"))]
)
def test_the_token_of_the_kubeconfig_is_not_sent_to_a_server_that_does_not_request_it(
    run: Run, script: Script, secure: str, ca: str, tmp_path: Path, audiences: list[str], token: str
) -> None:
    script.accepts = token
    script.audiences = audiences
    config = str(kubeconfig(tmp_path, "https://127.0.0.1:9", token=token))
    result = run("get", "cq", "--server", secure, "--server-ca", ca, "--kubeconfig", config)
    assert result.exit_code == 2
    assert script.tokens == [None]


def test_the_token_of_the_kubeconfig_is_not_sent_to_a_local_port_without_tls(
    run: Run, script: Script, scripted: str, tmp_path: Path
) -> None:
    script.accepts = "opaque"
    script.audiences = ["queuectl", CLUSTER]
    result = run(
        "get",
        "cq",
        "--server",
        scripted,
        "--kubeconfig",
        str(kubeconfig(tmp_path, "https://127.0.0.1:9", token="opaque")),
    )
    assert result.exit_code == 2
    assert script.tokens == [None]


def test_the_namespace_is_that_of_the_context(
    run: Run, script: Script, scripted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = str(kubeconfig(tmp_path, "https://127.0.0.1:9", "team-b"))
    run("explain", "job/x", "--server", scripted, "--kubeconfig", config)
    monkeypatch.setenv("KUBECONFIG", config)
    run("explain", "job/x", "--server", scripted)
    run("explain", "job/x", "--server", scripted, "-n", "team-c")
    run("-n", "team-d", "explain", "job/x", "--server", scripted)
    run("explain", "job/x", "--server", scripted, "--context", "nowhere")
    asked = [path for path, _ in script.asked if path.endswith("/job/x")]
    assert [path.split("/")[1] for path in asked] == ["team-b", "team-b", "team-c", "team-d", "default"]


@pytest.mark.parametrize("content", ["", "[", "contexts: 7\ncurrent-context: [x]", "\x00", "a: &b [*b]"])
def test_a_kubeconfig_without_a_namespace_means_the_default_namespace(
    run: Run, script: Script, scripted: str, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    run("explain", "job/x", "--server", scripted, "--kubeconfig", str(path))
    assert script.asked[0][0] == "workloads/default/job/x"


def test_a_busy_server_is_retried_after_its_retry_after(run: Run, script: Script, scripted: str) -> None:
    answers: Iterator[tuple[int, Document]] = iter(
        [(429, {"detail": "slow down"}), (200, {"items": [], "next": None, "sequence": 1})]
    )
    script.answers["clusterqueues"] = lambda query: next(answers)
    assert run("get", "cq", "--server", scripted).exit_code == 0
    assert len(script.asked) == 2


def test_a_server_that_stays_busy_is_not_retried_for_ever(run: Run, script: Script, scripted: str) -> None:
    script.say("clusterqueues", {"detail": "slow down"}, status=429)
    result = run("get", "cq", "--server", scripted)
    assert result.exit_code == 2
    assert "slow down" in result.stderr
    assert len(script.asked) <= 5


def test_a_url_with_a_password_is_refused(run: Run) -> None:
    result = run("get", "cq", "--server", "http://alice:hunter2@127.0.0.1:9")
    assert result.exit_code == 2
    assert "hunter2" not in result.output
