"""Write what is generated in the documents, from code and from examples: `make manifests` runs this."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

from queuectl.core import transitions
from queuectl.kinds import field_support
from queuectl.kinds.builtin import BUILT_IN
from queuectl.kinds.jobs import PodLabel

FOLDER: Final = Path(__file__).parent
KINDS: Final = FOLDER / "kinds.md"
RULES: Final = FOLDER / "scheduling.md"
EXAMPLES: Final = FOLDER / "clusterqueue-by-example.md"
POLICIES: Final = FOLDER / "examples" / "clusterqueues"
COMPLETE: Final = ("own-and-lend", "flavor-fallback", "users-in-turn")
"""Examples that the page shows with their ResourceFlavors and LocalQueues: these are what they are about."""
LEFT_OUT: Final = ("ResourceFlavor", "LocalQueue")

_OWN: Final = re.compile(r"metadata: .*|nominalQuota: [^,}\n]*")
_COUNTED: Final = re.compile(r"<!-- counted pods -->\n.*?<!-- end -->", re.DOTALL)
_EXAMPLE: Final = re.compile(r"<!-- example ([a-z-]+) -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    """Replace the tables of scheduling.md and kinds.md, and the policies of clusterqueue-by-example.md."""
    text = RULES.read_text()
    for lines in (transitions.table(), transitions.observations(), field_support.table()):
        begin = text.index(lines[0])
        end = text.index("\n\n", begin)
        text = text[:begin] + "\n".join(lines) + text[end:]
    RULES.write_text(text)
    KINDS.write_text(with_counted_pods(KINDS.read_text()))
    EXAMPLES.write_text(with_examples(EXAMPLES.read_text()))


def with_counted_pods(text: str) -> str:
    """`text` with the labels and owners by which the pods of each kind are counted."""
    rows = ["| kind | labels of its pods, and their values | owners |", "|---|---|---|"]
    for kind in BUILT_IN:
        labels = ", ".join(f"`{label.key}`: {_value(label)}" for label in kind.pods)
        between = [one.name for one in BUILT_IN.below(kind)]
        owners = "directly, or by " + ", ".join(between) if between else "directly"
        sure = any(label.sure for label in kind.pods)
        rows.append(f"| {kind.name} | {labels} | {'any: each pod with the label' if sure else owners} |")
    table = "\n".join(rows)
    return _COUNTED.sub(lambda _: f"<!-- counted pods -->\n{table}\n<!-- end -->", text)


def _value(label: PodLabel) -> str:
    if label.uid:
        return "its UID"
    name = f"its `{'.'.join(label.path)}`" if label.path else "its name"
    return f"{name} and more" if label.prefix else name


def with_examples(text: str) -> str:
    """`text` with the current policy, and the names of its tests, between the marks of each example."""

    def current(mark: re.Match[str]) -> str:
        folder = POLICIES / mark[1]
        tests = yaml.safe_load_all((folder / "test.yaml").read_text())
        link = f"[test](examples/clusterqueues/{mark[1]}/test.yaml)"
        return "\n".join(
            (
                f"<!-- example {mark[1]} -->",
                f"```yaml\n{_shown(mark[1], (folder / 'policy.yaml').read_text())}```\n",
                f"Its {link}:\n",
                *(f"- {test['name']}" for test in tests),
                "<!-- end -->",
            )
        )

    return _EXAMPLE.sub(current, text)


def _shown(example: str, policy: str) -> str:
    """The objects of `policy` that the page shows, with the comment at its beginning.

    Left out are ResourceFlavors, LocalQueues, and ClusterQueues that differ from one before in name and
    nominal quota only.
    """
    if example in COMPLETE:
        return policy
    comment = "".join(line for line in policy.splitlines(keepends=True) if line.startswith("#"))
    shown: dict[str, str] = {}
    for text in policy.removeprefix(comment).split("---\n"):
        kind = yaml.safe_load(text)["kind"]
        if kind not in LEFT_OUT:
            shown.setdefault(_OWN.sub("", text) if kind == "ClusterQueue" else text, text)
    return comment + "---\n".join(shown.values())


if __name__ == "__main__":
    main()
