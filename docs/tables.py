"""Write what is generated in the documents, from code and from examples: `make manifests` runs this."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

from queuectl.core import transitions
from queuectl.kinds import field_support

FOLDER: Final = Path(__file__).parent
RULES: Final = FOLDER / "scheduling.md"
EXAMPLES: Final = FOLDER / "clusterqueue-by-example.md"
POLICIES: Final = FOLDER / "examples" / "clusterqueues"

_EXAMPLE: Final = re.compile(r"<!-- example ([a-z-]+) -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    """Replace the tables of scheduling.md, and the policies of clusterqueue-by-example.md."""
    text = RULES.read_text()
    for lines in (transitions.table(), transitions.observations(), field_support.table()):
        begin = text.index(lines[0])
        end = text.index("\n\n", begin)
        text = text[:begin] + "\n".join(lines) + text[end:]
    RULES.write_text(text)
    EXAMPLES.write_text(with_examples(EXAMPLES.read_text()))


def with_examples(text: str) -> str:
    """`text` with the current policy, and the names of its tests, between the marks of each example."""

    def current(mark: re.Match[str]) -> str:
        folder = POLICIES / mark[1]
        tests = yaml.safe_load_all((folder / "test.yaml").read_text())
        link = f"[test](examples/clusterqueues/{mark[1]}/test.yaml)"
        return "\n".join(
            (
                f"<!-- example {mark[1]} -->",
                f"```yaml\n{(folder / 'policy.yaml').read_text()}```\n",
                f"Its {link}:\n",
                *(f"- {test['name']}" for test in tests),
                "<!-- end -->",
            )
        )

    return _EXAMPLE.sub(current, text)


if __name__ == "__main__":
    main()
