"""Child processes end with this process, whatever ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from queuectl.sandbox.processes import ChildDied, spawn
from tests.integration.sandbox.polling import eventually

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


async def until_printed(log: Path, text: str) -> None:
    await eventually(lambda: log.exists() and text in log.read_text(), f"{text!r} in {log.name}")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def test_a_child_is_stopped_by_sigterm_and_its_error_names_the_signal(tmp_path: Path) -> None:
    child = await spawn(SLEEPER, name="sleeper", log=tmp_path / "sleeper.log")
    await until_printed(child.log, "up")
    assert await child.stop(10) == -signal.SIGTERM


async def test_a_child_that_ignores_sigterm_is_killed_at_the_deadline(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEPER[2]
    child = await spawn([sys.executable, "-c", stubborn], name="stubborn", log=tmp_path / "log")
    await until_printed(child.log, "up")
    async with asyncio.timeout(10):
        assert await child.stop(0.05) == -signal.SIGKILL


async def test_signals_to_a_child_that_is_just_ending_change_nothing_of_its_exit_code(tmp_path: Path) -> None:
    for _ in range(40):  # a signal in the moment between its end and the return of `wait`
        child = await spawn(["sleep", "600"], name="sleep", log=tmp_path / "log")
        child.send(signal.SIGKILL)
        for _ in range(3000):
            child.send(signal.SIGTERM)
        assert await child.wait() == -signal.SIGKILL


async def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "grandchild.log"
    parent_code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from queuectl.sandbox.processes import spawn\n"
        "async def main():\n"
        f"    child = await spawn({SLEEPER!r}, name='grandchild', log=Path({str(log)!r}))\n"
        "    print(child.pid, flush=True)\n"
        "    await child.wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await spawn([sys.executable, "-c", parent_code], name="parent", log=tmp_path / "parent.log")
    await until_printed(log, "up")
    await until_printed(parent.log, "\n")
    grandchild = int(parent.log.read_text())
    assert alive(grandchild)
    parent.send(signal.SIGKILL)
    await parent.wait()
    await eventually(lambda: not alive(grandchild), "the grandchild's end")


@pytest.mark.parametrize(("program", "survives"), [("make", False), ("sh", True)])
async def test_a_process_started_by_make_ends_with_make(tmp_path: Path, program: str, survives: bool) -> None:
    """But a background job of a shell may outlive the shell."""
    (tmp_path / program).symlink_to(Path(sys.executable).resolve())
    log = tmp_path / "child.log"
    child = (
        "import os, time\n"
        "from queuectl.sandbox.processes import end_with_make\n"
        "end_with_make()\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    code = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {child!r}])"
    parent = await spawn([tmp_path / program, "-c", code], name=program, log=log)
    await until_printed(log, "\n")
    pid = int(log.read_text())
    try:
        parent.send(signal.SIGKILL)
        await parent.wait()
        if survives:
            assert alive(pid)
        else:
            await eventually(lambda: not alive(pid), "the end of what make had started")
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


async def test_sigterm_in_a_finalizer_interrupts_a_process_that_was_started_with_ctrl_c_ignored(
    tmp_path: Path,
) -> None:
    """An exception would be lost there."""
    code = (
        "import asyncio, os, signal\n"
        "from tests.doubles.processes import interrupt_on_sigterm\n"
        "class Final:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "async def main():\n"
        "    Final()\n"
        "    try:\n"
        "        await asyncio.sleep(600)\n"
        "    finally:\n"
        "        print('cleaned', flush=True)\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "interrupt_on_sigterm()\n"
        "asyncio.run(main())\n"
    )
    child = await spawn([sys.executable, "-c", code], name="interrupted", log=tmp_path / "log")
    async with asyncio.timeout(30):
        assert await child.wait() == -signal.SIGINT
    assert "cleaned" in child.log.read_text()


async def test_the_error_names_a_program_that_does_not_exist(tmp_path: Path) -> None:
    child = await spawn([tmp_path / "nothing here"], name="nothing", log=tmp_path / "log" / "nothing.log")
    async with asyncio.timeout(10):
        assert await child.wait() == 127
    with pytest.raises(ChildDied, match=r"nothing ended \(exit code 127\).*\n.*nothing here: No such file"):
        raise child.death()


async def test_the_tail_has_only_lines_of_this_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for word in ("first", "second"):
        child = await spawn([sys.executable, "-c", f"print({word!r})"], name=word, log=log)
        async with asyncio.timeout(10):
            await child.wait()
    assert child.tail() == "second"
    assert log.read_text() == "first\nsecond\n"


async def test_the_tail_has_what_a_child_prints_before_spawn_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = asyncio.create_subprocess_exec

    async def slow(*argv: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*argv, **options)
        await process.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    for _ in range(2):  # the second time the log has lines of an earlier run
        child = await spawn(["echo", "ready"], name="brief", log=tmp_path / "log")
        assert child.tail() == "ready"


@pytest.mark.acceptance
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to change the user")
async def test_a_child_can_run_as_another_user(tmp_path: Path) -> None:
    child = await spawn(["id", "-u"], name="other", log=tmp_path / "log", user=(65534, 65534))
    async with asyncio.timeout(10):
        assert await child.wait() == 0
    assert child.tail() == "65534"
