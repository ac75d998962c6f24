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
from queuectl.kinds.reserved_keys import WORKLOAD_LABEL

FOLDER: Final = Path(__file__).parent
KINDS: Final = FOLDER / "kinds.md"
RULES: Final = FOLDER / "scheduling.md"
EXAMPLES: Final = FOLDER / "clusterqueue-by-example.md"
POLICIES: Final = FOLDER / "examples" / "clusterqueues"
COMPLETE: Final = ("own-and-lend", "flavor-fallback", "users-in-turn")
"""Examples that the page shows with their ResourceFlavors and LocalQueues: these are what they are about."""
SAME: Final = re.compile(r"^apiVersion: .*\n|^  namespaceSelector: \{\}\n", re.MULTILINE)
"""Lines that the page leaves out of objects after the first example."""
LEFT_OUT: Final = ("ResourceFlavor", "LocalQueue")

_COMMENT: Final = re.compile(r"\A(?:#.*\n)+")
_OWN: Final = re.compile(r"metadata: .*|nominalQuota: [^,}\n]*")
_QUOTA: Final = re.compile(r"  resourceGroups:\n(?:  .*\n)+?.*nominalQuota: (\w+)\}\]\n(?=\Z|\S)")
"""A ResourceFlavor with a quota, as most examples have it: all quotas of a ClusterQueue or Cohort."""
_COUNTED: Final = re.compile(r"<!-- counted pods -->\n.*?<!-- end -->", re.DOTALL)
_EXAMPLE: Final = re.compile(r"<!-- example ([a-z-]+) -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    """Replace the tables of scheduling.md and kinds.md, and the policies of clusterqueue-by-example.md."""
    text = RULES.read_text()
    for lines in (transitions.table(), field_support.table()):
        begin = text.index(lines[0])
        end = text.index("\n\n", begin)
        text = text[:begin] + "\n".join(lines) + text[end:]
    RULES.write_text(text)
    KINDS.write_text(with_counted_pods(KINDS.read_text()))
    EXAMPLES.write_text(with_examples(EXAMPLES.read_text()))


def with_counted_pods(text: str) -> str:
    """`text` with the labels and owners by which pods are counted: kinds with equal ones in one row.

    Left out is the label with the UID of the workload, which all kinds have.
    """
    kinds: dict[str, list[str]] = {}
    for kind in BUILT_IN:
        own = (label for label in kind.pods if label.key != WORKLOAD_LABEL)
        labels = ", ".join(f"`{label.key}`: {_value(label)}" for label in own)
        between = [below.name for below in BUILT_IN.below(kind)]
        owners = "directly, or by " + ", ".join(between) if between else "directly"
        if any(label.sure for label in kind.pods):
            owners = "any: each pod with the label"
        kinds.setdefault(f"{labels} | {owners}", []).append(kind.name)
    rows = ["| kind | labels of its pods, and their values | owners |", "|---|---|---|"]
    rows += [f"| {', '.join(names)} | {cells} |" for cells, names in kinds.items()]
    table = "\n".join(rows)
    return _COUNTED.sub(lambda _: f"<!-- counted pods -->\n{table}\n<!-- end -->", text)


def _value(label: PodLabel) -> str:
    if label.uid:
        return "its UID"
    name = f"its `{'.'.join(label.path)}`" if label.path else "its name"
    return f"{name} and more" if label.prefix else name


def with_examples(text: str) -> str:
    """`text` with the current policy, and the names of its tests, between the marks of each example."""

    earlier: set[str] = set()

    def current(mark: re.Match[str]) -> str:
        folder = POLICIES / mark[1]
        tests = yaml.safe_load_all((folder / "test.yaml").read_text())
        link = f"[test](examples/clusterqueues/{mark[1]}/test.yaml)"
        return "\n".join(
            (
                f"<!-- example {mark[1]} -->",
                f"```yaml\n{_shown(mark[1], (folder / 'policy.yaml').read_text(), earlier)}```\n",
                f"Its {link}:\n",
                *(f"- {test['name']}" for test in tests),
                "<!-- end -->",
            )
        )

    return _EXAMPLE.sub(current, text)


def _shown(example: str, policy: str, earlier: set[str]) -> str:
    """The objects of `policy` that the page shows, without the comment at the beginning of the file.

    Left out are ResourceFlavors, LocalQueues, objects that are as one of `earlier`, those that the page has
    shown, and ClusterQueues that differ from one of these in name and nominal quota only. What is shown is
    added to them. Of resource groups that differ from earlier ones in the nominal quota only, this is shown.
    """
    shown: list[str] = []
    first = not earlier
    for text in _COMMENT.sub("", policy).split("---\n"):
        kind, shape, whole = yaml.safe_load(text)["kind"], _OWN.sub("", text), text
        if text in earlier:
            continue
        if example in COMPLETE or (kind not in LEFT_OUT and (kind != "ClusterQueue" or shape not in earlier)):
            quota = _QUOTA.search(text)
            groups = quota and _OWN.sub("", quota[0])
            if groups in earlier and example not in COMPLETE:
                text = _QUOTA.sub("  resourceGroups: … # nominalQuota: \\1\n", text)
            shown.append(text if first else SAME.sub("", text))
            earlier |= {whole, shape, groups or shape}
    return "---\n".join(shown)


if __name__ == "__main__":
    main()
