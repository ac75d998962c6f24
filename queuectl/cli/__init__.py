"""The command line: parse, call, print, exit code.

Nothing heavy is imported before a command needs it, so that `queuectl get` answers at once.
"""

from __future__ import annotations

from queuectl.cli.commands import main

__all__ = ["main"]
