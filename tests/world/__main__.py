"""`python -m tests.world`: see CONTRIBUTING.md."""

from __future__ import annotations

import os
import sys

from tests.world.command import main

if os.environ.get("PYTHONHASHSEED") != "0":
    # Sets of texts have another order in each process otherwise.
    os.execve(
        sys.executable,
        [sys.executable, "-m", "tests.world", *sys.argv[1:]],
        {**os.environ, "PYTHONHASHSEED": "0"},
    )
sys.exit(main())
