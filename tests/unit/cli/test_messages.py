"""Whatever is in a file, no message about it has the words of a library, and none is a traceback."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from queuectl.cli import main
from queuectl.kubernetes_yaml import dump
from tests.unit.core.profiles import examples
from tests.yaml_texts import Texts

LIBRARIES = re.compile(
    r"pydantic|\[type=|Input should|Field required"
    r"|valid (?:integer|string|boolean|number)|yaml\.|scanner\.|Traceback"
    r"|NoneType|\bdict\b|\btuple\b|<class|Error\("
    r"|while (?:parsing|scanning)|did not find|could not find|in this context|any token|found (?:un|in|ch)"
    r"|Errno|_ssl\.c|ssl:default|Connect call|kube-config"
    r"|set_int_max_str|codec can't|'int'|'str'|ordinal not in"
)
COMMANDS = (
    ("import", "kueue", "-f"),
    ("import", "slurm", "-f"),
    ("test",),
    ("test", "-p"),
    ("simulate", "-p"),
    ("controller", "--config"),
    ("plan", "--server", "http://127.0.0.1:9", "-f"),
    ("submit", "--server", "http://127.0.0.1:9", "-q", "main", "-f"),
    ("quote", "--server", "http://127.0.0.1:9", "-q", "main", "-f"),
)
KINDS = (
    "Budget",
    "ClusterQueue",
    "Cohort",
    "LocalQueue",
    "ResourceFlavor",
    "UsageLimit",
    "IdlePolicy",
    "WorkloadPriorityClass",
    "Job",
    "Configuration",
)
GROUPS = ("queuectl.dev/v1beta1", "kueue.x-k8s.io/v1beta1", "config.kueue.x-k8s.io/v1beta1", "batch/v1")
FIELDS = (
    *("cohortName", "resourceGroups", "coveredResources", "flavors", "nominalQuota", "fairSharing", "weight"),
    *("preemption", "withinClusterQueue", "namespaceSelector", "matchLabels", "nodeLabels", "clusterQueue"),
    *("template", "containers", "resources", "requests", "parallelism", "suspend", "labels", "stopPolicy"),
    *("scheduling", "nodes", "mode", "controller", "listen", "kinds", "database", "url"),
)


def broken(pick: random.Random, depth: int = 4) -> Any:
    """A value of any form, with names of fields that exist."""
    kind = pick.random()
    if depth and kind < 0.5:
        return {pick.choice(FIELDS): broken(pick, depth - 1) for _ in range(pick.randint(0, 4))}
    if depth and kind < 0.65:
        return [broken(pick, depth - 1) for _ in range(pick.randint(0, 3))]
    return pick.choice((None, True, -1, 1.5, 10**30, "x", "4", "8Gi", "a b", "", "é\x1b", [], {}))


def content(pick: random.Random, texts: Texts) -> bytes:
    if pick.random() < 0.25:
        return texts.document("d").encode()
    if pick.random() < 0.1:
        return bytes(pick.choices(range(256), k=30))
    document = {
        "apiVersion": pick.choice(GROUPS),
        "kind": pick.choice(KINDS),
        "format": "scenario/v1",
        "metadata": pick.choice(
            ({"name": "a"}, {"name": 5}, None, [], {"name": "a", "labels": broken(pick, 2)})
        ),
        "spec": broken(pick),
        **{pick.choice(FIELDS): broken(pick) for _ in range(pick.randint(0, 2))},
    }
    text = dump(document) if pick.random() < 0.7 else json.dumps(document)
    if pick.random() < 0.3:
        at = pick.randrange(len(text))
        text = text[:at] + pick.choice(":{}[]\t\"'&*!%@\x00") + text[at + 1 :]
    return text.encode()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_no_message_about_a_file_has_the_words_of_a_library(command: tuple[str, ...], tmp_path: Path) -> None:
    pick, texts = random.Random(str(command)), Texts(5)
    for number in range(examples(400)):
        path = tmp_path / f"{number}.{pick.choice(('yaml', 'yaml', 'json'))}"
        path.write_bytes(content(pick, texts))
        found = CliRunner().invoke(
            main, [*command, str(path)], env={"HOME": str(tmp_path), "KUBECONFIG": "/dev/null"}
        )
        assert found.exception is None or isinstance(found.exception, SystemExit), (
            path.read_bytes(),
            found.exception,
        )
        wrong = LIBRARIES.search(found.stderr)
        assert wrong is None, (wrong, found.stderr, path.read_bytes())
