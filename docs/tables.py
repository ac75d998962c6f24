"""Write the tables of the documents that are generated from code: `make manifests` runs this."""

from __future__ import annotations

from pathlib import Path

from queuectl.core import transitions
from queuectl.kinds import field_support

PAGE = Path(__file__).parent / "scheduling.md"


def main() -> None:
    """Replace the table of transitions, and that of the fields that are not supported, in scheduling.md."""
    text = PAGE.read_text()
    for lines in (transitions.table(), field_support.table()):
        begin = text.index(lines[0])
        end = text.index("\n\n", begin)
        text = text[:begin] + "\n".join(lines) + text[end:]
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
