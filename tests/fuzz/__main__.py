"""`python -m tests.fuzz`: see CONTRIBUTING.md."""

from __future__ import annotations

import sys

from tests.fuzz.command import main

sys.exit(main())
