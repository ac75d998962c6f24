"""What is read: a maker of inputs and a reader for each place where bytes come in."""

from __future__ import annotations

import asyncio
import atexit
import json
import tempfile
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from queuectl.core.model.events import PolicyInvalid
from queuectl.core.model.resources import MAX_AMOUNT, BadQuantity, parse_quantity
from queuectl.files import BadFile, documents
from queuectl.importers.kueue import import_kueue
from queuectl.importers.slurm import import_slurm
from queuectl.importers.slurm_script import batch_script
from queuectl.importers.slurm_text import BadSlurm
from queuectl.importers.slurm_text import read as read_slurm
from queuectl.importers.slurm_values import BadValue
from queuectl.kinds.labels import KUEUES_TOO
from queuectl.kinds.pods import pod_event
from queuectl.kinds.policy import parse_policy, policy_event
from queuectl.kinds.workloads import observe
from queuectl.settings import ConfigurationError, load
from queuectl.webhook.mutation import BadReview, answered
from tests.fuzz.mutations import NUMBERS, TEXTS, mutated, mutated_bytes
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import job, pytorch_job
from tests.unit.kinds.kind_objects import job_set, sample, seen_suspended
from tests.unit.kinds.policy_cases import ACCEPTED

_ROOT: Final = Path(__file__).parents[2]


class Target(NamedTuple):
    place: str
    """Where bytes come in. Targets of one place share its time."""
    name: str
    make: Callable[[Random], Any]
    read: Callable[[Any], str | None]
    """Returns what is wrong with the answer, if anything; raises what it does not expect."""
    most: float = 0.05
    """Seconds of CPU for one input."""


_OF_A_FILE: Final = 1.0
"""Seconds for a file that the caller of a command names."""


# --- quantities


def _quantity(random: Random) -> Any:
    if random.random() < 0.1:
        return random.choice((*NUMBERS, *TEXTS))
    digits = "".join(random.choices("0123456789", k=random.choice((0, 1, 2, 5, 18, 19, 20, 40))))
    fraction = random.choice(("", ".", "." + "0" * 9, ".5", "." + digits[:9]))
    suffix = random.choice(
        ("", "m", "k", "Ki", "Ei", "E", "n", "e9", "E-30", "e999", "e" + digits, "x", "mi", "\n")
    )
    return random.choice(("", "+", "-", "--", " ")) + digits + fraction + suffix


def _read_quantity(given: Any) -> str | None:
    for resource in ("cpu", "memory", "nvidia.com/gpu"):
        try:
            amount = parse_quantity(given, resource)
        except BadQuantity as error:
            if not str(error):
                return "it is refused without a reason"
            continue
        if not -MAX_AMOUNT <= amount <= MAX_AMOUNT:
            return f"{amount} {resource} are out of range"
    return None


# --- objects of the cluster


@cache
def _workloads() -> list[Any]:
    from tests.unit.kinds import computed_objects as computed

    made = [
        sample(row) for row in JOB_KINDS if row.name not in ("TrainJob", "SparkApplication", "AppWrapper")
    ]
    made += [
        {**sample(row), "status": seen_suspended(row)} for row in JOB_KINDS if row.name in ("Job", "RayJob")
    ]
    containers = {"initContainers": [{"name": "i", "restartPolicy": "Always"}], "overhead": {"cpu": "250m"}}
    made += [
        job(pod={**containers, "nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]}),
        job(parallelism=3, completions=9, backoffLimit=2, completionMode="Indexed"),
        pytorch_job(Master=1, Worker=3),
        job_set(("driver", 1, 1), ("workers", 2, 4)),
        computed.spark_application(),
        computed.train_job(),
        computed.app_wrapper(
            computed.component(
                "batch/v1", "Job", {"template": {"spec": {}}}, {"replicas": 2, "path": "template.spec"}
            )
        ),
    ]
    for obj in made:
        obj["metadata"]["annotations"] = {
            "queuectl.dev/hold": "true",
            "queuectl.dev/reserved-admission": "{}",
        }
        obj["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "b", "controller": True}
        ]
    return made


def _mutated_workload(random: Random) -> Any:
    obj = mutated(random, _workloads())
    if isinstance(obj, dict) and random.random() < 0.9:
        head = _workloads()[0]["metadata"]
        known: Any = obj.get("metadata")
        known = known if isinstance(known, dict) else {}
        obj["metadata"] = {**known, **{key: head[key] for key in ("namespace", "name", "uid", "labels")}}
    return obj


def _read_workload(obj: Any) -> str | None:
    if not isinstance(obj, dict):
        return None
    rows = [JOB_KINDS.of(obj.get("apiVersion"), obj.get("kind"))] if isinstance(obj.get("kind"), str) else []
    for row in [one for one in rows if one is not None] or list(JOB_KINDS)[:1]:
        event = observe(row, obj, KUEUES_TOO, owners=JOB_KINDS)
        if event is None:
            continue
        workload = event.workload
        if workload.problem is None and not workload.pod_sets:
            return "it has neither podsets nor a reason"
        if workload.problem is not None and not workload.problem.message:
            return "it is parked without a reason"
        amounts = [amount for pods in workload.pod_sets for _, amount in pods.requests]
        if any(not 0 <= amount <= MAX_AMOUNT for amount in amounts):
            return f"requests {amounts}"
        if "\\u0000" in orjson.dumps(workload, default=str).decode():
            return "a NUL goes to the ledger"
    return None


@cache
def _pods() -> list[Any]:
    spec = {"nodeName": "n1", **job()["spec"]["template"]["spec"]}
    head = {
        **job()["metadata"],
        "ownerReferences": [{"kind": "Job", "name": "a", "uid": "b", "controller": True}],
    }
    return [{"metadata": head, "spec": spec, "status": {"phase": phase}} for phase in ("Running", "Pending")]


def _read_pod(obj: Any) -> str | None:
    if isinstance(obj, dict):
        pod_event(obj)
    return None


@cache
def _policies() -> list[Any]:
    found = [
        document for path in sorted(_ROOT.glob("docs/examples/**/*.yaml")) for document in _documents(path)
    ]
    ours = [one for one in found if str(one.get("apiVersion")).startswith("queuectl.dev/")]
    assert len(ours) > 20
    # The largest queue alone, of 400 kB, takes longer.
    return [*ours, *(one for name, one in ACCEPTED.items() if name != "the largest queue")]


def _documents(path: Path) -> list[Any]:
    return [one.content for one in documents(path.read_bytes(), path.name) if isinstance(one.content, dict)]


def _mutated_policy(random: Random) -> Any:
    """The API server refuses another kind, and an object without a name."""
    example = random.choice(_policies())
    head = {key: example[key] for key in ("apiVersion", "kind", "metadata")}
    rest = {key: content for key, content in example.items() if key not in head}
    body = mutated(random, [rest or {"spec": {}}])
    return {**(body if isinstance(body, dict) else {"spec": body}), **head}


def _read_policy(obj: Any) -> str | None:
    event = policy_event(obj)
    if isinstance(event, PolicyInvalid):
        return None if event.detail else "it is refused without a reason"
    if parse_policy(event.key, event.spec) != event.value:
        return "it is another policy when it is read from the ledger"
    return None


def _mutated_review(random: Random) -> bytes:
    request = {
        "uid": "1",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "operation": "CREATE",
        "userInfo": {"username": "ann", "groups": ["a"]},
        "object": random.choice(_workloads()),
        "namespace": "team-a",
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = json.dumps(mutated(random, [review])).encode()
    return mutated_bytes(random, [body]) if random.random() < 0.2 else body


def _read_review(body: bytes) -> str | None:
    try:
        answer, _ = answered(body, JOB_KINDS)
    except BadReview as error:
        return None if str(error) else "it is refused without a reason"
    return None if orjson.loads(answer)["response"]["allowed"] is True else "it is not allowed"


# --- files


@cache
def _yaml_files() -> list[bytes]:
    return [path.read_bytes() for path in sorted(_ROOT.glob("docs/examples/**/*.yaml"))][:40]


def _read_yaml(text: bytes) -> str | None:
    for name in ("a.yaml", "a.json"):
        try:
            documents(text, name)
        except BadFile as error:
            if "\n" in str(error) or not str(error).startswith(name):
                return f"the error does not name its place: {error}"
    return None


_CONFIGURATION: Final[list[bytes]] = [(_ROOT / "docs/examples/kind/queuectl.yaml").read_bytes()]


def _mutated_configuration(random: Random) -> bytes:
    return mutated_bytes(random, _CONFIGURATION)


def _read_configuration(text: bytes) -> str | None:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(text)
        file.flush()
        try:
            load(Path(file.name), environ={})
        except ConfigurationError as error:
            return None if error.problems and all(error.problems) else "it is refused without a reason"
    return None


@cache
def _slurm_files() -> list[bytes]:
    return [path.read_bytes() for path in sorted((_ROOT / "tests/unit/kinds/slurm").iterdir())]


def _mutated_accounts(random: Random) -> bytes:
    return mutated_bytes(random, _slurm_files())


def _read_slurm(text: bytes) -> str | None:
    try:
        found = import_slurm(read_slurm(text, "site.txt"))
    except BadSlurm as error:
        return None if error.problems else "it is refused without a reason"
    return next(filter(None, map(_invalid, found.objects)), None)


def _invalid(obj: Any) -> str | None:
    if not str(obj.get("apiVersion")).startswith("queuectl.dev/"):
        return None
    event = policy_event(obj)
    return f"an import makes {event}" if isinstance(event, PolicyInvalid) else None


_SCRIPT: Final = [
    b"#!/bin/bash\n#SBATCH --job-name=train --gres=gpu:a100:2\n#SBATCH --time 2-12:00:00\n#SBATCH -c 8\n"
    b"#SBATCH --mem=64G\n#SBATCH --array=0-29,40\n#SBATCH --qos=high\n#SBATCH --nodes=1\n\npython train.py\n"
]


def _mutated_script(random: Random) -> bytes:
    return mutated_bytes(random, _SCRIPT)


def _read_script(text: bytes) -> str | None:
    try:
        batch_script(text.decode(errors="replace"), "job.sh")
    except BadValue as error:
        return None if str(error) else "it is refused without a reason"
    return None


def _mutated_import(random: Random) -> Any:
    """Our policy with Kueue's names is most of what Kueue has."""
    text = json.dumps([mutated(random, _policies()), mutated(random, _workloads())])
    return json.loads(
        text.replace("queuectl.dev/v1beta1", "kueue.x-k8s.io/v1beta1").replace(
            "queuectl.dev", "kueue.x-k8s.io"
        )
    )


def _read_import(given: Any) -> str | None:
    found = import_kueue([("file: line 1", one) for one in given], JOB_KINDS)
    return None if found.objects or found.notes else "nothing is told of it"


# --- REST


class _Rest:
    """The server on a small ledger, with a loop of its own."""

    def __init__(self) -> None:
        from aiohttp.test_utils import TestClient, TestServer

        from queuectl.answers.what_if.engines import TriedWhatIfs
        from queuectl.api.server import application
        from queuectl.api.view import View
        from queuectl.app.api import rate_card
        from tests.unit.api.canned import two_teams
        from tests.unit.api.changing import OWN_PAGE, CannedChanges
        from tests.unit.api.conftest import KEY, Clock

        self._loop = asyncio.new_event_loop()
        self._headers = OWN_PAGE

        async def start() -> dict[str, Any]:
            readings, clock = two_teams(), Clock()
            view = View(readings, parse_policy)
            await view.refresh()
            app = application(
                view,
                readings,
                kinds=JOB_KINDS,
                cursor_key=KEY,
                clock=clock,
                what_ifs=TriedWhatIfs(),
                forecasts=readings,
                changes=CannedChanges(),
                statements=readings.statements,
                card_of=rate_card,
            )
            self._client: Any = TestClient(TestServer(app))
            await self._client.start_server()
            document: dict[str, Any] = await (await self._client.get("/openapi.json")).json()
            return document

        atexit.register(self._close)
        self.paths: Final = self._loop.run_until_complete(start())["paths"]

    def _close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

    def status(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        from yarl import URL

        async def ask() -> tuple[int, str]:
            url = URL(target, encoded=True)
            async with self._client.request(
                method, url, data=BytesIO(body), headers={**self._headers, **headers}
            ) as answer:
                return answer.status, (await answer.read())[:200].decode(errors="replace")

        return self._loop.run_until_complete(ask())


@cache
def _rest() -> _Rest:
    return _Rest()


def _request(random: Random) -> tuple[str, str, bytes, dict[str, str]]:
    paths = _rest().paths
    path = random.choice(sorted(paths))
    method, operation = random.choice(sorted(paths[path].items()))
    query: list[str] = []
    for parameter in operation.get("parameters", ()):
        name, known = parameter["name"], parameter["schema"].get("enum") or [parameter.get("example", "1")]
        text = (
            str(random.choice(known))
            if random.random() < 0.5
            else str(random.choice((*TEXTS[:-8], *NUMBERS)))
        )
        if parameter["in"] == "path":
            usual = random.choice(("team-a", "default", "waits", "job", "2026-01", "all", "main", "a100"))
            text = usual if random.random() < 0.7 else text
            path = path.replace("{" + name + "}", quote(text, safe="", errors="surrogatepass"))
        elif random.random() < 0.3:
            query += [f"{name}={quote(text, errors='surrogatepass')}"] * random.choice((1, 1, 1, 2))
    if random.random() < 0.1:
        query.append(random.choice(("%F0%28=1", "=", "&&", "a" * 5_000, "%00=%00", "x[]=1")))
    body, headers = b"", {}
    if method == "post":
        kind = random.choice(
            ("application/json", "application/yaml", "text/plain", "application/json; charset=x")
        )
        examples = [
            *_workloads()[:3],
            *_policies()[:3],
            {"reason": "node 7"},
            {"queue": "main"},
            {"changes": _policies()[:2]},
        ]
        body = json.dumps(mutated(random, examples)).encode()
        body = mutated_bytes(random, [body]) if random.random() < 0.3 else body
        headers = {"Content-Type": kind if random.random() < 0.3 else "application/json"}
    return method.upper(), path + ("?" + "&".join(query) if query else ""), body, headers


def _ask(given: tuple[str, str, bytes, dict[str, str]]) -> str | None:
    status, text = _rest().status(*given)
    if status >= 500 and status != 503:
        return f"{given[0]} {given[1][:80]}: {status} {text}"
    return None if status < 400 or text else f"{given[0]} {given[1][:80]}: {status} without a reason"


TARGETS: Final = (
    Target("quantities", "quantities", _quantity, _read_quantity),
    Target("objects", "workloads", _mutated_workload, _read_workload),
    Target("objects", "pods", lambda random: mutated(random, _pods()), _read_pod),
    Target("policy", "policy", _mutated_policy, _read_policy),
    Target("objects", "reviews", _mutated_review, _read_review),
    Target("YAML", "YAML", lambda random: mutated_bytes(random, _yaml_files()), _read_yaml, _OF_A_FILE),
    Target("configuration", "configuration", _mutated_configuration, _read_configuration, _OF_A_FILE),
    Target("imports", "import of Kueue", _mutated_import, _read_import, _OF_A_FILE),
    Target("imports", "import of Slurm", _mutated_accounts, _read_slurm, _OF_A_FILE),
    Target("imports", "Slurm scripts", _mutated_script, _read_script, _OF_A_FILE),
    Target("REST", "REST", _request, _ask),
)
