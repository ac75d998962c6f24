"""`python -m benchmarks.under_profile FILE COMMAND…`: runs COMMAND and writes its CPU profile to FILE."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.profiles import sampled
from queuectl.cli import main

if __name__ == "__main__":
    file, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2:]
    with sampled() as found:
        try:
            main()
        finally:
            found.write(file)
