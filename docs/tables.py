"""Write the tables of the documents that are generated from code: `make manifests` runs this."""

from __future__ import annotations

from pathlib import Path

from queuectl.core.transitions import table

PAGE = Path(__file__).parent / "scheduling.md"


def main() -> None:
    """Replace the table of transitions in section L of scheduling.md."""
    text, lines = PAGE.read_text(), table()
    begin = text.index(lines[0])
    end = text.index("\n\n", begin)
    PAGE.write_text(text[:begin] + "\n".join(lines) + text[end:])


if __name__ == "__main__":
    main()
