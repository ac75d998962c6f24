"""Run as a script: have the kernel end this process with its parent, then execute the program.

`end_with_parent.py PARENT_PID SIGNAL UID GID PROGRAM [ARGUMENT...]`. A script instead of a hook between fork
and exec: such a hook is unsafe with threads. The process id stays the same, so the parent sees only the
program. UID -1 keeps the user. It uses only the standard library, so that it starts in milliseconds, and
imports nothing after the change of user: that user may not be able to read the files.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    parent, death_signal, uid, gid = (int(argument) for argument in arguments[:4])
    program = arguments[4:]
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if uid != -1:
        os.setgroups([gid])
        os.setgid(gid)
        os.setuid(uid)
    # After the change of user: that would clear the setting.
    if prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # the parent ended before the call above
        sys.exit(128 + death_signal)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs inherit SIG_IGN
    # Python ignores this signal; the program has to start with the default.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execv(program[0], program)
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
