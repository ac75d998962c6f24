"""Words of the command line: commands, kinds, names, phases, and what a mistyped one was meant to be."""

from __future__ import annotations

import pytest

import queuectl
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Script


def test_kind_and_name_may_be_two_words_as_in_kubectl(run: Run, server: str) -> None:
    for command in (["explain"], ["explain", "--story"], ["history"], ["get"]):
        for words in (["job/waits"], ["job", "waits"], ["jobs", "waits"], ["JOB", "waits"]):
            result = run(*command, *words, "-o", "json", "--server", server)
            assert result.exit_code == 0, result.stderr
            assert '"sequence"' in result.stdout
    for words in (["job/waits", "job/small"], ["job/waits", "small"], ["job", "waits", "small"]):
        result = run("explain", *words, "--server", server)
        assert (result.exit_code, "one object is expected" in result.stderr) == (2, True)


def test_a_kind_lists_the_workloads_of_that_kind(run: Run, script: Script, scripted: str) -> None:
    script.page("workloads")
    for words in (["jobs"], ["pytorchjob"], ["jobs", "--kind", "pytorchjobs"]):
        assert run("get", *words, "--server", scripted).exit_code == 0
    assert [query["kind"] for _, query in script.asked] == ["Job", "PyTorchJob", "pytorchjobs"]


@pytest.mark.parametrize("phase", ["Pending", "pending", "PENDING"])
def test_words_of_filters_are_accepted_in_any_case(
    run: Run, script: Script, scripted: str, phase: str
) -> None:
    script.page("workloads")
    result = run("get", "wl", "--phase", phase, "--reason", "waitingforquota", "--server", scripted)
    assert result.exit_code == 0, result.stderr
    assert script.asked[0][1].items() >= {"phase": "Pending", "reason": "WaitingForQuota"}.items()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["hodl", "job/x"], "there is no command 'hodl': did you mean hold?"),
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["help", "exlpain"], "there is no command 'exlpain': did you mean explain?"),
        (["get", "wl", "--phase", "pendign"], "'pendign' is not a phase: did you mean Pending?"),
        (["get", "wl", "--phase", "x"], "one of Pending, Admitted, Evicting, Finished, Deleted"),
        (["get", "wl", "--reason", "waitforquota"], "did you mean WaitingForQuota"),
        (["get", "wl", "--phse", "Pending"], "--phase"),
    ],
)
def test_a_similar_word_is_offered(run: Run, words: list[str], told: str) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_help_shows_what_the_flag_shows(run: Run) -> None:
    for command in ([], ["explain"], ["import"], ["version"]):
        assert run("help", *command).stdout == run(*command, "--help").stdout


def test_the_version_is_printed_by_the_flag_and_by_the_command(run: Run) -> None:
    assert run("--version").stdout == run("version").stdout == f"queuectl {queuectl.__version__}\n"
