"""Write what is generated in the documents, from code and from examples: `make manifests` runs this."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

from queuectl.core.transitions import ROWS
from queuectl.kinds.field_support import UNSUPPORTED

FOLDER: Final = Path(__file__).parent
RULES: Final = FOLDER / "scheduling.md"
EXAMPLES: Final = FOLDER / "clusterqueue-by-example.md"
POLICIES: Final = FOLDER / "examples" / "clusterqueues"
COMPLETE: Final = ("own-and-lend", "flavor-fallback", "users-in-turn")
"""Examples that the page shows with their ResourceFlavors and LocalQueues: these are what they are about."""
SAME: Final = re.compile(r"^apiVersion: .*\n|^  namespaceSelector: \{\}\n", re.MULTILINE)
"""Lines that the page leaves out of objects after the first example."""
LEFT_OUT: Final = ("ResourceFlavor", "LocalQueue")
ALL_RESOURCES: Final = ("own-and-lend", "pods-limit")
"""The examples of which the page shows cpu and memory, too."""

_COMMENT: Final = re.compile(r"\A(?:#.*\n)+")
_OWN: Final = re.compile(r"metadata: .*|nominalQuota: [^,}\n]*")
_QUOTA: Final = re.compile(r"  resourceGroups:\n(?:  .*\n)+?.*nominalQuota: (\w+)\}\]\n(?=\Z|\S)")
"""A ResourceFlavor with a quota, as most examples have it: all quotas of a ClusterQueue or Cohort."""
_CPU_AND_MEMORY: Final = re.compile(
    r"resources:\n +- (\{name: nvidia.com/gpu.*\})\n +- \{name: cpu.*\n +- \{name: memory.*\n"
)
_EXAMPLE: Final = re.compile(r"<!-- example ([a-z-]+) -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    """Replace the tables of scheduling.md, and the policies of clusterqueue-by-example.md."""
    text = RULES.read_text()
    for lines in (transitions(), unsupported_fields()):
        begin = text.index(lines[0])
        end = text.index("\n\n", begin)
        text = text[:begin] + "\n".join(lines) + text[end:]
    RULES.write_text(text)
    EXAMPLES.write_text(with_examples(EXAMPLES.read_text()))


def transitions() -> list[str]:
    """The table of section L, by line. An empty cell: nothing changes."""
    lines = ["| event | Pending | Admitted | Evicting |", "|---|---|---|---|"]
    for row in ROWS:
        cells = ("" if cell is None else str(cell) for cell in row[1:])
        lines.append(f"| {row.event} | {' | '.join(cells)} |")
    return lines


def unsupported_fields() -> list[str]:
    """The table of the fields that are not obeyed, by line and reason."""
    fields: dict[str, list[str]] = {}
    for kind, by_path in UNSUPPORTED.items():
        for path, field in by_path.items():
            beside = f" beside `{field.beside}`" if field.beside else ""
            fields.setdefault(field.why, []).append(f"{kind} `{path}`{beside}")
    rows = [f"| {', '.join(named)} | {why} |" for why, named in fields.items()]
    return ["| field | why it is not obeyed |", "|---|---|", *rows]


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
    for complete in _COMMENT.sub("", policy).split("---\n"):
        text = _CPU_AND_MEMORY.sub(r"resources: [\1]\n", complete).replace("/gpu, cpu, memory]", "/gpu]")
        kind, shape, whole = yaml.safe_load(text)["kind"], _OWN.sub("", text), text
        if text in earlier:
            continue
        if example in COMPLETE or (kind not in LEFT_OUT and (kind != "ClusterQueue" or shape not in earlier)):
            quota = _QUOTA.search(text)
            groups = quota and _OWN.sub("", quota[0])
            if groups in earlier and example not in COMPLETE:
                text = _QUOTA.sub("  resourceGroups: … # nominalQuota: \\1\n", text)
            text = complete if example in ALL_RESOURCES else text
            shown.append(text if first else SAME.sub("", text))
            earlier |= {whole, shape, groups or shape}
    return "---\n".join(shown)


if __name__ == "__main__":
    main()
