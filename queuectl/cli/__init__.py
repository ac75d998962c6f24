"""The command line: parse, call, print, exit code.

Large modules are imported by the commands that need them, so that `queuectl get` starts fast.
"""

from __future__ import annotations

from queuectl.cli.commands import main

__all__ = ["main"]
