"""Each number that CLI and page show, and the one function that it comes from.

CLI and page take all numbers from REST. A number of a document that is in no row, a row without a number, and
an answer that does not come from the function of its row are errors.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from types import FrameType
from typing import Any, Final

import pytest

from queuectl.core.model.capacity import FlavorCapacity
from queuectl.core.model.workload import ConfigKey
from tests.acceptance.page.stories import busy_on_nodes
from tests.unit.api.conftest import Serve
from tests.unit.api.past_usage import configured
from tests.unit.api.test_capacity import GPUS

PLACES: Final = {
    "clusterqueues": "clusterqueues/team-a",
    "localqueues": "localqueues/team-a/main",
    "cohorts": "cohorts/research",
    "resourceflavors": "resourceflavors/a100",
    "capacity": "capacity/a100",
    "trend": "capacity/a100/trend",
    "demand": "demand/team-a",
    "nodes": "nodes/gpu-1",
    "workloads": "workloads/team-a/Job/evaluate",
    "waited": "workloads/team-a/Job/evaluate/waited",
    "exposure": "workloads/team-a/Job/train/exposure",
    "share": "clusterqueues/team-a/share?since=2026-01-05T10:00:00Z&steps=2",
    "shares": "cohorts/research/share?since=2026-01-05T10:00:00Z&steps=2",
    "pastusage": "cohorts/research/pastusage",
    "preemptions": "preemptions",
    "usage": "usage",
    "usagelimits": "usagelimits",
    "budgets": "budgets?budget=users",
    "idle": "idle",
    "workloadcounts": "workloadcounts",
}
"""By document, where a test asks for it, below /api/v1/."""
ACCOUNT: Final = "guaranteed used borrowed lent idle beyond borrowedFrom.amount lentTo.amount"
STATEMENT: Final = f"statement.accounts[{ACCOUNT}] statement.steps.accounts[{ACCOUNT}]"
NUMBERS: Final[dict[str, dict[str, str]]] = {
    "answers.queue_states:QueueWorkloads.moved": {
        "clusterqueues": "pending admitted flavors.used",
        "cohorts": "pending admitted flavors.used",
        "resourceflavors": "resources.used",
        "share": "pending",
    },
    "answers.queue_states:nominal_quota": {
        "clusterqueues": "flavors.nominal",
        "cohorts": "flavors.nominal",
        "resourceflavors": "resources.nominal",
        "capacity": "resources.nominal",
    },
    "answers.state:CommittedState.effective": {
        "clusterqueues": "flavors.effective",
        "cohorts": "flavors.effective flavors.free",
    },
    "answers.free:FreeQuota.of": {"clusterqueues": "flavors.free"},
    "answers.statements:accounts": {
        "clusterqueues": "flavors.borrowed flavors.lent",
        "share": f"accounts[{ACCOUNT}]",
        "shares": f"accounts[{ACCOUNT}]",
    },
    "answers.statements:_statements": {"share": STATEMENT, "shares": STATEMENT},
    "answers.statements:lost": {"share": "statement.accounts.lost", "shares": "statement.accounts.lost"},
    "answers.statements:fair_share": {"share": "accounts.fair share"},
    "answers.state:_counts": {"localqueues": "pending admitted"},
    "answers.state:CommittedState.under_cohorts": {"cohorts": "clusterQueues"},
    "answers.state:CommittedState.capacity": {
        "capacity": "nodes.* resources[allocatable.* expected free headroom shapes.free shapes.nodes used "
        "unmanaged unmanagedBy.amount]",
    },
    "answers.free:free_on_nodes": {"capacity": "resources.available"},
    "answers.state:CommittedState.advance": {"demand": "demand[pods workloads requests.*]"},
    "answers.nodes:node_use": {
        "nodes": "allocatable.* free.* unmanaged.* used.* workloads.pods workloads.used.*",
    },
    "answers.state:CommittedState.position": {"workloads": "position"},
    "answers.state:CommittedState.ready": {"workloads": "podsReady"},
    "answers.explanation:as_of": {
        "workloads": "reason[available awaited nodes.free nodes.nodes pods podsFit requested shortBy]"
    },
    "answers.explanation:explain": {
        "workloads": "line aheadSize.requests.* aheadSize.workloads holders.amount moreHolders lent.amount "
        "lent.share "
        "lent.borrowers.amount lent.borrowers.share limits.available limits.requested limits.shortBy",
    },
    "answers.waits:breakdown": {
        "waited": "attempts evictingSeconds parts.ahead parts.seconds ranSeconds waitedSeconds"
    },
    "answers.exposure:threats": {"exposure": "threats.pending"},
    "answers.past_usage:PastUsageTree.rows": {"pastusage": "items[level order part used weight]"},
    "answers.usage:usage_by": {"usage": "items[amount idle]"},
    "api.usage_routes:_totals": {
        "usage": "totals[free held overcommitted unmanaged unusable usable used]",
    },
    "api.capacity_routes:_trend": {
        "trend": "steps.resources[free held overcommitted unmanaged unusable usable]",
    },
    "answers.usage_limits:limit_use": {"usagelimits": "items[used limit left waiting]"},
    "answers.workload_filters:counts": {"workloadcounts": "workloads items.more items.values.workloads"},
    "api.budget_routes:_item": {"budgets": "items[hours granted used reserved left]"},
    "api.preemption_routes:_preemption": {"preemptions": "items[ranSeconds lost.*]"},
}
"""By function, the numbers of documents that it computes: `a[b c]` for `a.b a.c`."""
STORED: Final = {
    "clusterqueues": "maxExecutionTime.ceiling maxExecutionTime.default",
    "localqueues": "maxExecutionTime.ceiling maxExecutionTime.default",
    "resourceflavors": "tolerations.tolerationSeconds",
    "share": "weight",
    "pastusage": "halfLifeSeconds",
    "workloads": "priority attempt attempts pods requests.* admission.podSets.count "
    "admission.podSets.requests.* podSets.count podSets.minCount podSets.requests.* "
    "end.heldSeconds end.resourceSeconds.* end.attempts[number requests.* resourceSeconds.*] "
    "use.devices use.idleDevices",
    "preemptions": "items[attempt sequence shares.preemptor.after shares.preemptor.before "
    "shares.victim.after shares.victim.before]",
    "budgets": "rows[attempt granted reserved sequence used]",
    "idle": "items[attempt coverage devices engine idleDevices multiprocessors wastedSeconds] others",
}
"""As the ledger or the policy has them: they are decisions, measurements or settings, and no answers."""
ELSEWHERE: Final = {
    "quote": "tried on a copy of the engine (test_what_ifs)",
    "plan": "tried on a copy of the engine (test_what_ifs)",
    "counterfactuals": "tried on a copy of the engine (test_what_ifs)",
    "eta": "a forecast (test_forecasts)",
    "history": "decisions as they are stored",
    "story": "decisions as they are stored",
    "decisions": "decisions as they are stored",
    "statements": "money (test_monthly_statements)",
}
_EVERYWHERE: Final = ("sequence", "ageSeconds", "controller")


def spelled(text: str) -> Iterator[str]:
    """`a[b c] d` as `a.b`, `a.c`, `d`."""
    for name, inner, plain in re.findall(r"(\S+)\[([^\]]*)\]|(\S+)", text):
        yield from (f"{name}.{one}" for one in inner.split()) if name else (plain,)


def listed(document: str) -> Counter[str]:
    rows = [fields[document] for fields in NUMBERS.values() if document in fields]
    return Counter(one for row in (*rows, STORED.get(document, "")) for one in spelled(row))


def numbers(schema: Any, schemas: Any, at: str = "", seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """The places of numbers in a JSON schema; `*` stands for any key."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name:
        if name not in seen:
            yield from numbers(schemas[name], schemas, at, seen | {name})
        return
    for one in schema.get("anyOf", ()):
        yield from numbers(one, schemas, at, seen)
    if schema.get("type") in ("integer", "number"):
        yield at
    if "items" in schema:
        yield from numbers(schema["items"], schemas, at, seen)
    for key, one in (schema.get("properties") or {}).items():
        if at or key not in _EVERYWHERE:
            yield from numbers(one, schemas, f"{at}.{key}".strip("."), seen)
    if isinstance(more := schema.get("additionalProperties"), dict):
        yield from numbers(more, schemas, f"{at}.*".strip("."), seen)


def template(place: str, paths: list[str]) -> str:
    """The path of the OpenAPI document that answers at a place."""
    asked = f"/api/v1/{place.partition('?')[0]}"
    (found,) = (one for one in paths if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one), asked))
    return found


@pytest.fixture
def entered() -> Iterator[set[str]]:
    """The functions that are entered in this thread, and in threads that start meanwhile."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event == "call" and (at := code.co_filename.rfind("/queuectl/")) >= 0:
            module = code.co_filename[at + 10 : -3].replace("/", ".")
            found.add(f"{module}:{code.co_qualname}")

    threading.setprofile(note)
    sys.setprofile(note)
    yield found
    sys.setprofile(None)
    threading.setprofile(None)


async def test_each_number_of_a_document_has_one_function(serve: Serve) -> None:
    description = await (await serve(busy_on_nodes())).get("/openapi.json")
    paths = [path for path, methods in description["paths"].items() if "get" in methods]
    for document, place in PLACES.items():
        answer = description["paths"][template(place, paths)]["get"]["responses"]["200"]
        schema = answer["content"]["application/json"]["schema"]
        found = Counter(set(numbers(schema, description["components"]["schemas"])))
        assert listed(document) == found, document


async def test_each_document_that_has_numbers_is_in_the_tables(serve: Serve) -> None:
    description = await (await serve(busy_on_nodes())).get("/openapi.json")
    paths = [path for path, methods in description["paths"].items() if "get" in methods]
    known = {template(place, paths) for place in PLACES.values()}
    for path in paths:
        of = {part for part in path.split("/") if part} & {*ELSEWHERE}
        one = f"{path}/{{name}}", f"{path}/{{namespace}}/{{name}}", f"{path}/{{namespace}}/{{kind}}/{{name}}"
        same = path.endswith("/pastusage") or known & {path, *one}
        assert of or same or path in ("/healthz", "/readyz"), path


async def test_an_answer_comes_from_the_functions_of_its_numbers(
    serve: Serve, entered: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch)
    readings = busy_on_nodes()
    readings.capacity(FlavorCapacity(flavor="a100", nodes=(("Ready", 1),), resources=(GPUS,)))
    readings.commit(configs={ConfigKey("Configuration", "", "queuectl"): "{}"})
    entered.clear()
    rest = await serve(readings)
    await rest.view.refresh()
    reading = {*entered}
    for document, place in PLACES.items():
        entered.clear()
        answer = await rest.client.get(f"/api/v1/{place}")
        assert answer.status == 200, await answer.text()
        named = {function for function, fields in NUMBERS.items() if document in fields}
        assert named <= entered | reading, document


def test_page_and_command_line_ask_for_no_other_documents() -> None:
    folder = resources.files("queuectl")
    files = [
        *(folder / "page").iterdir(),
        *(folder / "page" / "views").iterdir(),
        *(folder / "cli").iterdir(),
    ]
    texts = [one.read_text(encoding="utf-8") for one in files if one.name.endswith((".js", ".py"))]
    asked = set(re.findall(r'\b(?:useRest|ask|ofRest)\((?:path\()?"(\w+)"', "\n".join(texts)))
    asked |= set(re.findall(r'\.(?:get|all)\(\("(\w+)"', "\n".join(texts)))
    asked |= set(re.findall(r'(?:path\("\w+",|\(\*\w+,)[^)]*"(\w+)"\)', "\n".join(texts)))
    assert {"usagelimits", "share", "waited", "clusterqueues", "eta", "pastusage"} <= asked
    assert asked <= {*PLACES, *ELSEWHERE}
