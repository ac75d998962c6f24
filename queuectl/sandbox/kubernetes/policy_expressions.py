"""The expressions of admission policies: CEL with the functions of Kubernetes that the shipped policies use.

A `quantity` is its text, an `Object` of a mutation is a map, and an `authorizer` is a map of what was asked.
All values are dynamic: a mistake in a type shows when the expression is evaluated.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from queuectl.core.model.resources import CPU, QuantityOutOfRange, parse_quantity
from queuectl.sandbox.kubernetes.identities import ResourceAttributes, UserInfo, allowed
from queuectl.sandbox.kubernetes.wire import Json

_NAMES = ("object", "oldObject", "request", "params", "authorizer")
_VARIABLE = re.compile(r"\bvariables\.(\w+)")
_OBJECT = re.compile(r"\bObject(?:\.\w+)*\s*\{")
_FIELD = re.compile(r"([{,]\s*)(\w+)\s*:")
_PROGRAMS = 1024


class ExpressionError(Exception):
    """An expression can't be compiled, or has no value. The message is one line."""


def evaluate(expression: str, values: Any) -> Any:
    """The value as JSON. `values`: of `evaluation_values`. Raises ExpressionError."""
    value = _program(expression).eval(values)
    if value.type().name() == "ERROR":
        raise ExpressionError(_first_line(value))
    return value.plain_value()


def evaluation_values(
    new: Json | None, old: Json | None, request: Json, params: Json | None, user: UserInfo
) -> Any:
    """What the expressions of one request read."""
    authorizer = {"user": user.name, "groups": list(user.groups)}
    return _environment().Activation(dict(zip(_NAMES, (new, old, request, params, authorizer), strict=True)))


def with_variables(expression: str, variables: Mapping[str, str]) -> str:
    """The expression with the variables that it needs: each is evaluated once, and only if it is used."""
    needed: set[str] = set()
    texts = [expression]
    while texts:
        names = {*_VARIABLE.findall(texts.pop())} - needed
        needed |= names
        texts += [variables[name] for name in names if name in variables]
    for name, text in reversed(list(variables.items())):
        if name in needed:
            expression = f"cel.bind(variables.{name}, {text}, {expression})"
    return _VARIABLE.sub(r"variables_\1", expression)  # the name of what is bound has no dot


def as_map(expression: str) -> str:
    """An expression that makes an `Object`, as one that makes a map with the same fields."""
    return _FIELD.sub(r"\1'\2':", _OBJECT.sub("{", expression))


@functools.lru_cache(_PROGRAMS)
def _program(expression: str) -> Any:
    try:
        return _environment().compile(expression, disable_check=True)
    except RuntimeError as error:
        raise ExpressionError(_first_line(error)) from None


def _first_line(error: object) -> str:
    return str(error).split("\n")[0]


@functools.cache
def _environment() -> Any:
    # Costs 10 MB and 20 ms: only for a server with policies.
    from cel_expr_python import cel
    from cel_expr_python.ext.ext_bindings import ExtBindings
    from cel_expr_python.ext.ext_optional import ExtOptional
    from cel_expr_python.ext.ext_strings import ExtStrings

    value, text = cel.Type.DYN, cel.Type.STRING

    def function(name: str, implementation: Callable[..., Any], *parameters: Any, member: bool = True) -> Any:
        overload = cel.Overload(f"kubernetes_{name}", value, parameters, member, implementation)
        return cel.FunctionDecl(name, [overload])

    functions = [
        *(function(name, _asked(field), value, text) for name, field in _QUESTION.items()),
        function("allowed", _is_allowed, value),
        function("find", _found, text, text),
        *(function(name, implementation, value) for name, implementation in _OF_LISTS.items()),
        function("quantity", _quantity, text, member=False),
        function("isGreaterThan", lambda left, right: _size(left) > _size(right), value, value),
    ]
    extensions = [ExtBindings(), ExtOptional(), ExtStrings(), cel.CelExtension("kubernetes", functions)]
    return cel.NewEnv(variables=dict.fromkeys(_NAMES, value), extensions=extensions)


_QUESTION = {
    **{"group": "group", "resource": "resource", "subresource": "subresource"},
    **{"namespace": "namespace", "name": "name", "check": "verb"},
}
"""The field of ResourceAttributes that each function of an authorizer sets."""
_OF_LISTS: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "min": min, "max": max}


def _asked(field: str) -> Callable[[Json, str], Json]:
    return lambda question, value: {**question, field: value}


def _is_allowed(question: Json) -> bool:
    access = {name: value for name, value in question.items() if name not in ("user", "groups")}
    return allowed(UserInfo(question["user"], tuple(question["groups"])), ResourceAttributes(**access))


def _found(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match[0] if match else ""


def _quantity(text: str) -> str:
    _size(text)
    return text


def _size(quantity: str) -> tuple[float, float]:
    """For comparison: in units, then in thousandths, each rounded up. Raises BadQuantity."""
    return _amount(quantity, ""), _amount(quantity, CPU)


def _amount(quantity: str, resource: str) -> float:
    try:
        return parse_quantity(quantity, resource)
    except QuantityOutOfRange:
        return math.inf
