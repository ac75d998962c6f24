"""The OpenAPI document agrees with the responses."""

from __future__ import annotations

import re
from typing import Any

from tests.unit.api.canned import decision, two_teams, workload
from tests.unit.api.canned_nodes import with_nodes
from tests.unit.api.changing import OWN_PAGE, CannedChanges
from tests.unit.api.conftest import Rest, Serve
from tests.unit.api.test_tenants import CHANGES, CONTENT
from tests.unit.api.test_what_ifs import LARGER, manifest, planned, quoted
from tests.unit.test_bounds_table import rows

FILTERS = frozenset(
    {
        *("namespace", "queue", "name", "clusterqueue", "phase", "order", "reason", "submitter", "kind"),
        *("sinceSeconds", "version", "verdict", "budget"),
    }
)
"""Parameters that share the row of `labelSelector` in the table of bounds."""


async def test_every_path_is_described_and_responds_as_described(serve: Serve) -> None:
    rest = await serve(with_nodes(two_teams()), changes=CannedChanges())
    rest.readings.rows = [decision(1, workload("waits", 3), "Queued")]
    description = await rest.get("/openapi.json")
    assert description["openapi"].startswith("3.1")
    for path, methods in description["paths"].items():
        ((method, operation),) = methods.items()
        values = {"namespace": "default", "kind": "job", "name": "waits", "month": "2026-01"}
        if "clusterqueues" in path or "demand" in path:
            values["name"] = "team-a"
        if "localqueues" in path:
            values["name"] = "main"
        if "cohorts" in path:
            values["name"] = "all"
        if "resourceflavors" in path or "capacity" in path:
            values["name"] = "a100"
        if "nodes" in path:
            values["name"] = "gpu-1"
        if path in CHANGES:
            content = CONTENT.get(path.rpartition("/")[2], {})
            made = await rest.client.post(path.format(**values), json=content, headers=OWN_PAGE)
            answer = await made.json()
        elif method == "post":
            answer = await (quoted(rest, manifest()) if path.endswith("quote") else planned(rest, LARGER))
        else:
            answer = await rest.get(path.format(**values))
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        check(answer, schema, description, path)


async def test_every_reference_has_a_definition(rest: Rest) -> None:
    description = await rest.get("/openapi.json")
    names = set(re.findall(r'"\$ref": ?"#/components/schemas/([^"]+)"', (await _text(rest))))
    assert names
    assert names <= set(description["components"]["schemas"])


async def test_the_described_parameters_are_the_accepted_ones(rest: Rest) -> None:
    description = await rest.get("/openapi.json")
    detail = await rest.refused(rest.client.get("/api/v1/workloads?nonsense=1"), 400)
    known = [p["name"] for p in description["paths"]["/api/v1/workloads"]["get"]["parameters"]]
    assert detail.endswith(", ".join(known))


async def test_each_parameter_of_a_query_has_a_row_in_the_table_of_bounds(rest: Rest) -> None:
    described = (await rest.get("/openapi.json"))["paths"].values()
    operations = [operation for methods in described for operation in methods.values()]
    parameters = [one for operation in operations for one in operation.get("parameters", ())]
    names = {one["name"] for one in parameters if one["in"] == "query"}
    inputs = " ".join(row[0] for row in rows())
    assert names >= FILTERS
    assert {name for name in names - FILTERS if f"`{name}`" not in inputs} == set()


async def _text(rest: Rest) -> str:
    return await (await rest.client.get("/openapi.json")).text()


def check(value: Any, schema: Any, description: Any, place: str) -> None:
    """Checks a value against the part of JSON Schema that the document uses."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        check(value, description["components"]["schemas"][name], description, place)
    elif "anyOf" in schema:
        wanted = next((s for s in schema["anyOf"] if (s.get("type") == "null") == (value is None)), None)
        assert wanted is not None, place
        check(value, wanted, description, place)
    elif schema.get("type") == "object":
        assert isinstance(value, dict), place
        fields = schema.get("properties", {})
        if schema.get("additionalProperties") is False:
            assert set(value) <= set(fields), place
        required = set(schema.get("required", ())) - {"stale", "detail"}
        assert required <= set(value), place
        for key in set(fields) & set(value):
            check(value[key], fields[key], description, f"{place}.{key}")
    elif schema.get("type") == "array":
        for number, item in enumerate(value):
            check(item, schema["items"], description, f"{place}[{number}]")
    elif "type" in schema:
        kinds = {"string": str, "integer": int, "number": float | int, "boolean": bool, "null": type(None)}
        assert isinstance(value, kinds[schema["type"]]), place
        assert value in schema.get("enum", (value,)), place
