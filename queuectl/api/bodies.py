"""Bodies of requests as objects."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from queuectl.api.problems import bad_request
from queuectl.api.requests import Question
from queuectl.files import BadFile, documents, listed, refuse_deep

_NAME: Final = "body"


async def one_object(question: Question) -> dict[str, Any]:
    """The only object in the body. Raises a 400 that names the place of an error."""
    if not question.yaml:
        return await _json(question.body)
    found = await _yaml(question.body)
    if len(found) != 1:
        raise bad_request(f"the body must have one object, and has {len(found)}")
    if not isinstance(found[0], dict):
        raise bad_request("the body must be one YAML object")
    return found[0]


async def policy_objects(question: Question) -> dict[str, Any]:
    """`{objects: [...], deleted: [...]}`; YAML has the objects only. Raises a 400."""
    if not question.yaml:
        return await _json(question.body)
    return {"objects": await _yaml(question.body)}


async def _json(body: bytes) -> dict[str, Any]:
    """On a thread, as YAML."""
    content = await asyncio.to_thread(_parsed, body)
    if not isinstance(content, dict):
        raise bad_request("the body must be one JSON object")
    return content


def _parsed(body: bytes) -> Any:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise bad_request("the body is not JSON") from None
    try:
        refuse_deep(content)
    except ValueError as problem:
        raise bad_request(f"the body is {problem} levels") from None
    return content


async def _yaml(body: bytes) -> list[Any]:
    """All objects, those of a `List` too. Parsed on a thread: other requests are answered meanwhile."""
    return await asyncio.to_thread(_objects, body)


def _objects(body: bytes) -> list[Any]:
    try:
        found = documents(body, _NAME)
    except BadFile as problem:
        raise bad_request(str(problem)) from None
    objects = [one for document in found for one in listed(document.content)]
    # Dates of YAML are texts in the objects of Kubernetes.
    return list(json.loads(json.dumps(objects, default=str)))
