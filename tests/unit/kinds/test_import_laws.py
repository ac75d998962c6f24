"""Nothing of an import is lost in silence: what is taken out of the input changes objects or notes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from queuectl.importers.kueue import import_kueue
from queuectl.importers.result import Imported
from queuectl.importers.slurm import import_slurm
from queuectl.importers.slurm_text import BadSlurm, read
from tests.job_kinds import JOB_KINDS
from tests.unit.core.profiles import examples

Json = dict[str, Any]
Path = tuple[str | int, ...]

# --- Kueue ----------------------------------------------------------------------------------------------

_OF_SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
_DOMAINS = ("kueue.x-k8s.io", "provreq.kueue.x-k8s.io", "example.com")
_MARKS = (
    *("queue-name", "priority-class", "max-exec-time-seconds", "job-min-parallelism", "elastic-job"),
    *("job-completions-equal-parallelism", "pod-group-name", "podset-required-topology", "new-mark"),
)
_SPECS: dict[str, Json] = {
    "ClusterQueue": {
        "cohort": "other",
        "cohortName": "all",
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "queueingStrategy": "StrictFIFO",
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"},
        "fairSharing": {"weight": 1.5},
        "stopPolicy": "Hold",
        "admissionChecks": ["a"],
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 4, "borrowingLimit": 2}]}
                ],
            }
        ],
    },
    "Cohort": {"parent": "root", "fairSharing": {"weight": 2}},
    "LocalQueue": {"clusterQueue": "a", "stopPolicy": "Hold", "fairSharing": {"weight": "3"}},
    "ResourceFlavor": {
        "nodeLabels": {"gpu": "a100"},
        "nodeTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
        "topologyName": "racks",
    },
    "AdmissionCheck": {"controllerName": "x"},
    "Workload": {"queueName": "x"},
}
_WORK = (("batch/v1", "Job"), ("batch/v1", "CronJob"), ("v1", "Pod"), ("apps/v1", "Deployment"))
_CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "waitForPodsReady": {
        "timeout": "5m",
        "blockAdmission": True,
        "requeuingStrategy": {"backoffMaxSeconds": 7},
    },
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]},
    "admissionFairSharing": {"usageHalfLifeTime": "1h"},
    "resources": {"excludeResourcePrefixes": ["x"]},
    "integrations": {"frameworks": ["pod"], "externalFrameworks": ["Foo.v1.example.com"]},
    "featureGates": {"TopologyAwareScheduling": True},
    "leaderElection": {"leaderElect": True},
}


def some(pick: random.Random, content: Json, likely: float = 0.6) -> Json:
    """A part of the fields, at each level, and now and then one that no kind has."""
    found: Json = {}
    for key, value in content.items():
        if pick.random() < likely:
            found[key] = some(pick, value, 0.9) if isinstance(value, dict) else copy.deepcopy(value)
    if pick.random() < 0.1:
        found[f"field{pick.randint(0, 9)}"] = pick.choice((1, "x", [2], {"deep": {"a": 1}}))
    return found


def marks(pick: random.Random) -> Json:
    return {
        f"{pick.choice(_DOMAINS)}/{pick.choice(_MARKS)}": pick.choice("abc")
        for _ in range(pick.randint(0, 3))
    }


def metadata(pick: random.Random, name: str) -> Json:
    found: Json = {"name": name, "namespace": "ns"}
    for field in ("labels", "annotations"):
        if pick.random() < 0.6:
            found[field] = marks(pick)
    if pick.random() < 0.2:
        found["finalizers"] = pick.sample(("kueue.x-k8s.io/resource-in-use", "example.com/mine"), 1)
    if pick.random() < 0.2:
        found[pick.choice(_OF_SERVERS)] = "1"
    if pick.random() < 0.1:
        found["ownerReferences"] = [{"name": "x"}]
    return found


def kueue_documents(pick: random.Random) -> list[Json]:
    found: list[Json] = []
    for number in range(pick.randint(1, 3)):
        if pick.random() < 0.6:
            kind = pick.choice(tuple(_SPECS))
            spec = some(pick, _SPECS[kind], 0.8)
            made: Json = {
                "apiVersion": f"kueue.x-k8s.io/{pick.choice(('v1beta1', 'v1beta2'))}",
                "kind": kind,
                "spec": spec,
            }
        else:
            version, kind = pick.choice(_WORK)
            template = {
                "metadata": {"labels": marks(pick)},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            made = {"apiVersion": version, "kind": kind, "spec": {"replicas": 1, "template": template}}
        made["metadata"] = metadata(pick, f"n{number}")
        if pick.random() < 0.1:
            made["status"] = {"a": 1}
        if pick.random() < 0.1:
            made["unheard"] = 5
        found.append(made)
    if pick.random() < 0.4:
        content = {
            **some(pick, _CONFIGURATION),
            "apiVersion": _CONFIGURATION["apiVersion"],
            "kind": "Configuration",
        }
        if pick.random() < 0.5:
            data = {"controller_manager_config.yaml": json.dumps(content)}
            content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kueue"}, "data": data}
        found.append(content)
    return found


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all values in a document that are no objects and no lists of something."""
    if isinstance(value, dict) or (isinstance(value, list) and value):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path


def without(document: Json, path: Path) -> Json:
    made = copy.deepcopy(document)
    at: Any = made
    for step in path[:-1]:
        at = at[step]
    del at[path[-1]]
    return made


def kueue_result(documents: list[Json]) -> Imported:
    return import_kueue([(f"in: {number}", document) for number, document in enumerate(documents)], JOB_KINDS)


def excused(document: Json, path: Path, result: Imported) -> bool:
    """What a server writes, and what is in an object or below a field that a note is on as a whole."""
    if path[0] in ("apiVersion", "kind", "status") or path[:2] == ("metadata", "name") or path[0] == "data":
        return True
    if path[0] == "metadata" and (path[1] in _OF_SERVERS or path[1:2] == ("finalizers",)):
        return True
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    name = f"/{document['metadata']['name']}" if "metadata" in document else "Configuration"
    fields = [note.field for note in result.notes if note.object.endswith(name)]
    return any(
        not field or dotted == field or dotted.startswith((f"{field}.", f"{field}[")) for field in fields
    )


def asks_for_nothing(document: Json) -> bool:
    """A Configuration without a setting, or a ConfigMap with it."""
    if document["kind"] == "ConfigMap":
        return asks_for_nothing(json.loads(document["data"]["controller_manager_config.yaml"]))
    return document.keys() == {"apiVersion", "kind"}


def test_nothing_of_an_import_from_kueue_is_lost_in_silence() -> None:
    pick = random.Random(7)
    checked = 0
    for _ in range(examples(1500)):
        documents = kueue_documents(pick)
        result = kueue_result(documents)
        number = pick.randrange(len(documents))
        document = documents[number]
        for path in leaves(document):
            checked += 1
            if excused(document, path, result):
                continue
            fewer = [*documents[:number], without(document, path), *documents[number + 1 :]]
            assert kueue_result(fewer) != result, f"{'.'.join(map(str, path))} is lost in silence: {document}"
        for document in documents:
            if asks_for_nothing(document):
                continue
            fewer = [other for other in documents if other is not document]
            assert kueue_result(fewer) != result, f"a document is lost in silence: {document}"
    assert checked > examples(1500) * 3


# --- Slurm ----------------------------------------------------------------------------------------------

SENTINELS = (
    *("UNLIMITED", "INFINITE", "NONE", "None", "(null)", "N/A", "n/a", "-1", "4294967295", "4294967294"),
    *("18446744073709551615", "18446744073709551614", "NO_VAL", ""),
)
_PARTITION = {
    "AllowGroups": ("ALL", "physics"),
    "AllowAccounts": ("ALL", "x"),
    "DenyAccounts": ("y",),
    "AllowQos": ("ALL", "high"),
    "DefaultTime": ("01:00:00",),
    "MaxTime": ("2-00:00:00",),
    "GraceTime": ("0", "300"),
    "Hidden": ("NO", "YES"),
    "RootOnly": ("NO", "YES"),
    "Exclusive": ("NO", "YES"),
    "MaxNodes": ("4",),
    "PriorityJobFactor": ("1", "500"),
    "PriorityTier": ("1", "5", "65500"),
    "PreemptMode": ("OFF", "REQUEUE", "SUSPEND", "CANCEL"),
    "QoS": ("normal",),
    "State": ("UP", "DOWN"),
    "TRESBillingWeights": ("CPU=1.0",),
    "SelectTypeParameters": ("CR_CORE",),
    "NewField": ("x",),
}
_NODE = {
    "CPUTot": ("64",),
    "RealMemory": ("512000",),
    "Gres": (
        "gpu:a100:8",
        "gpu:1g.5gb:7",
        "gpu:a100:4,gpu:1g.10gb+me:2",
        "mps:100",
        "gpu:4(S:0-1)",
        "gpu:mi300x:8",
    ),
    "CfgTRES": (
        *("cpu=63,mem=511000M,billing=63,gres/gpu=7", "cpu=63,mem=511000M,gres/gpu=8", "cpu=63,gres/gpu=4"),
        *("cpu=63,gres/gpu=8,gres/gpu:a100=8", "cpu=63,gres/gpu=6", "mem=511000M"),
    ),
    "Weight": ("1", "9"),
    "State": ("IDLE", "DOWN*", "IDLE+DRAIN"),
    "CoreSpecCount": ("2",),
    "MemSpecLimit": ("6000",),
    "AvailableFeatures": ("nvlink",),
}
_ACCOUNT = {
    "Description": ("some text",),
    "Organization": ("some",),
    "Fairshare": ("1", "50", "parent", "2147483647"),
    "GrpTRES": ("cpu=100", "gres/gpu=4", "gres/gpu:1g.5gb=2", "license/x=3"),
    "MaxJobs": ("5",),
    "GrpTRESMins": ("cpu=5",),
    "QOS": ("high",),
    "MaxWallDurationPerJob": ("1440",),
    "NewOption": ("7",),
}
_USER = {"Fairshare": ("7", "15"), "WCKeys": ("w",), "QOS": ("high",)}
_QOS = {
    "Priority": ("100", "7"),
    "Preempt": ("low", "unheard"),
    "GraceTime": ("00:00:00", "00:05:00"),
    "Flags": ("DenyOnLimit",),
    "MaxTRESPU": ("cpu=4",),
    "UsageFactor": ("1.000000", "2.000000"),
    "NewColumn": ("4",),
}
# Values that ask for what is the case without them.
_NEUTRAL = {
    *(("AllowGroups", "ALL"), ("AllowAccounts", "ALL"), ("AllowQos", "ALL"), ("GraceTime", "0")),
    *(("GraceTime", "00:00:00"), ("Hidden", "NO"), ("RootOnly", "NO"), ("Exclusive", "NO")),
    *(("PriorityJobFactor", "1"), ("PriorityTier", "1"), ("PreemptMode", "OFF"), ("State", "UP")),
    *(("State", "IDLE"), ("Weight", "1"), ("UsageFactor", "1.000000"), ("QOS", "normal"), ("Fairshare", "1")),
}

_WORDS = {"PartitionName": "Partition", "NodeName": "Node"}

Line = list[tuple[str, str]]


def fields(pick: random.Random, known: dict[str, tuple[str, ...]], likely: float) -> Line:
    found = []
    for name, texts in known.items():
        if pick.random() < likely:
            value = pick.choice(SENTINELS) if pick.random() < 0.2 else pick.choice(texts)
            found.append((name, value))
    return found


def slurm_site(pick: random.Random) -> list[tuple[str, str, Line]]:
    """Kind, name and fields of each record."""
    partitions = [
        ("PartitionName", name, fields(pick, _PARTITION, 0.3)) for name in ("p", "q")[: pick.randint(1, 2)]
    ]
    inside = ",".join(name for _, name, _ in partitions)
    nodes = [("NodeName", name, [*fields(pick, _NODE, 0.5), ("Partitions", inside)]) for name in ("n1", "n2")]
    accounts = [("Account", name, fields(pick, _ACCOUNT, 0.3)) for name in ("x", "y")]
    users = [
        ("User", name, fields(pick, {"Fairshare": ("1", "15"), "WCKeys": ("w",), "QOS": ("high",)}, 0.3))
        for name in "uv"
    ]
    qos = [("QOS", name, fields(pick, _QOS, 0.4)) for name in ("low", "high")]
    return [*partitions, *nodes, *accounts, *users, *qos]


def orders(site: list[tuple[str, str, Line]], name: str) -> bool:
    """Whether the tier of the partition decides on the order of the two partitions."""
    tiers = {n: dict(line).get("PriorityTier", "1") for k, n, line in site if k == "PartitionName"}
    numbers = {n: int(tier) if tier.isdecimal() and tier not in SENTINELS else 1 for n, tier in tiers.items()}
    other = next((number for n, number in numbers.items() if n != name), 1)
    return (numbers[name] > other, numbers[name] < other) != (other < 1, other > 1)


def repeated(field: str, value: str, configured: str) -> bool:
    """Whether CfgTRES, which Slurm computes, has what the field says."""
    if field in ("CPUTot", "RealMemory"):
        return {"CPUTot": "cpu=", "RealMemory": "mem="}[field] in configured
    return (field, value, configured) in (
        ("Gres", "gpu:a100:8", "cpu=63,gres/gpu=8,gres/gpu:a100=8"),
        ("Gres", "gpu:4(S:0-1)", "cpu=63,gres/gpu=4"),
    )


def slurm_text(site: list[tuple[str, str, Line]]) -> bytes:
    lines = []
    for kind, name, given in site:
        if kind in ("PartitionName", "NodeName"):
            lines.append(" ".join((f"{kind}={name}", *(f"{field}={value}" for field, value in given))))
            continue
        parent = {"u": "x", "v": "y"}.get(name, "root")
        options = "".join(f":{field}='{value}'" for field, value in given)
        lines += [f"Parent - '{parent}'", f"{kind} - '{name}'{options}"]
    return "\n".join(lines).encode()


def slurm_result(site: list[tuple[str, str, Line]]) -> Imported | list[str]:
    try:
        return import_slurm(read(slurm_text(site), "in"))
    except BadSlurm as bad:
        return bad.problems


def test_nothing_of_an_import_from_slurm_is_lost_in_silence() -> None:
    pick = random.Random(9)
    imported = 0
    for _ in range(examples(1500)):
        site = slurm_site(pick)
        result = slurm_result(site)
        imported += isinstance(result, Imported)
        assert isinstance(result, Imported), f"refused: {result}"
        kind, name, given = pick.choice([record for record in site if record[2]])
        for field, value in given:
            # Weight is an order of flavors, and may agree with the one without it.
            if value in SENTINELS or (field, value) in _NEUTRAL or field in ("Partitions", "Weight"):
                continue
            if {"AllowAccounts", "DenyAccounts"} <= dict(given).keys() and field.endswith("Accounts"):
                continue  # Slurm reads one of the two
            if repeated(field, value, dict(given).get("CfgTRES", "")):
                continue
            if field == "PriorityTier" and not orders(site, name):
                continue
            if field == "Preempt" and sum("Preempt" in dict(line) for _, _, line in site) > 1:
                continue  # queues preempt by priority, for one QOS as for two
            if any(
                note.left_out and note.field == f"{_WORDS.get(kind, kind)} {name}" for note in result.notes
            ):
                continue  # a note is on the whole record
            fewer = [
                (k, n, [one for one in line if one[0] != field]) if (k, n) == (kind, name) else (k, n, line)
                for k, n, line in site
            ]
            assert slurm_result(fewer) != result, f"{kind} {name} {field}={value} is lost in silence: {site}"


def test_a_value_that_slurm_prints_for_not_set_is_as_if_it_were_not_there() -> None:
    pick = random.Random(11)
    for _ in range(examples(1000)):
        site = slurm_site(pick)
        unset = [
            (kind, name, [(field, value) for field, value in line if value not in SENTINELS])
            for kind, name, line in site
        ]
        assert slurm_result(site) == slurm_result(unset), site
