"""Rules over an object in CEL, the language of the API server's policies: one text for gate and controller.

An expression may use what the API server offers in each version that queuectl supports: the standard
functions, macros and optional fields (`object.spec.?mode.orValue('')`).

The cost of a check is bounded: the length of an expression, the values, text and depth of an object are
limited; a regular expression is matched in linear time; the library ends an evaluation after 10,000 steps of
its macros.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from queuectl.kinds.json_fields import BadField, Json, clean, shown

OBJECT: Final = "object"
DEVICE: Final = "device"
"""The variable of the selectors of DeviceClasses."""
MAX_EXPRESSION: Final = 2048
"""Characters of an expression."""
MAX_VALUES: Final = 20_000
"""Values in an object: fields and items."""
MAX_TEXT: Final = 1 << 18
"""Characters of all keys and texts in an object."""
MAX_DEPTH: Final = 64
_PLACE: Final = re.compile(r"^<input>:(\d+):(\d+):")
INTEGERS: Final = range(-(2**63), 2**63)


class BadExpression(ValueError):
    """An expression is malformed. The message is one line that says where."""


def check(expression: str, variable: str = OBJECT) -> None:
    """Raises BadExpression unless `expression` is a condition over `variable`."""
    _compiled(expression, variable)


def first_true(expressions: Iterable[str], obj: Json) -> int | None:
    """The place of the first expression that is true of `obj`.

    Raises BadField if one before it has no answer, such as for a field that the object does not have, and for
    an object that is too large. Raises BadExpression.
    """
    seen = None
    for place, expression in enumerate(expressions):
        program = _compiled(expression, OBJECT)
        seen = seen or _environment(OBJECT).Activation({OBJECT: _copied(obj, _Left())})
        if _answer(program, seen, expression):
            return place
    return None


def first_selecting(selectors: Iterable[Iterable[str]], device: Json) -> int | None:
    """The place of the first group of expressions that are all true of `device`.

    One without an answer is not true. The caller bounds the device and makes it of texts, whole numbers of 64
    bits and booleans: it is not copied. Raises BadExpression.
    """
    seen = _environment(DEVICE).Activation({DEVICE: device})
    for place, expressions in enumerate(selectors):
        if all(_is_true(expression, seen) for expression in expressions):
            return place
    return None


def _is_true(expression: str, seen: Any) -> bool:
    try:
        return _answer(_compiled(expression, DEVICE), seen, expression)
    except BadField:
        return False


@functools.cache
def _environment(variable: str) -> Any:
    # Costs 10 MB and 20 ms: only for a kind that has rules and objects.
    from cel_expr_python import cel
    from cel_expr_python.ext.ext_optional import ExtOptional

    return cel.NewEnv(variables={variable: cel.Type.DYN}, extensions=[ExtOptional()])


@functools.cache
def _compiled(expression: str, variable: str) -> Any:
    if len(expression) > MAX_EXPRESSION:
        raise BadExpression(f"{len(expression)} characters, at most {MAX_EXPRESSION} are read")
    try:
        program = _environment(variable).compile(expression)
        program.eval(_environment(variable).Activation({variable: {}}))  # refuses one that is nested too deep
    except RuntimeError as error:
        raise BadExpression(_problem(str(error))) from None
    kind = program.return_type().name()
    if kind not in ("BOOL", "DYN"):
        raise BadExpression(f"must be true or false, not of type {kind.lower()}")
    return program


def _answer(program: Any, seen: Any, expression: str) -> bool:
    try:
        found = program.eval(seen).plain_value()
    except RuntimeError as error:
        found = _problem(str(error))
    if not isinstance(found, bool):
        raise BadField("object", f"{clean(expression, 80)!r} has no answer: {_problem(str(found))}")
    return found


def _problem(error: str) -> str:
    """Without the excerpt of the expression, which has lines of its own, and the library's own words."""
    head = error.split("\n")[0].split(" (in container")[0].split(" [")[0]
    head = head.removeprefix("INVALID_ARGUMENT: ").removeprefix("ERROR: ")
    return clean(_PLACE.sub(r"line \1, column \2:", head), 160)


class _Left:
    """What is left of the limits while an object is copied."""

    def __init__(self) -> None:
        self.values, self.text = MAX_VALUES, MAX_TEXT

    def take(self, values: int, text: int, depth: int) -> None:
        """Raises BadField above the limits."""
        self.values, self.text = self.values - values, self.text - text
        if self.values < 0 or self.text < 0 or depth > MAX_DEPTH:
            limits = f"{MAX_VALUES} values, {MAX_TEXT} characters and {MAX_DEPTH} levels"
            raise BadField("object", f"too large for the rules of its kind: at most {limits} are read")


def _copied(value: Any, left: _Left, depth: int = 0) -> Any:
    """The value as the API server's policies see it. Raises BadField for one that is too large."""
    left.take(1, len(value) if isinstance(value, str) else 0, depth)
    if isinstance(value, str):
        return clean(value, MAX_TEXT)
    if isinstance(value, Mapping):
        # Rules do not read which client wrote a field, and this list is as large as the rest.
        fields = [(key, one) for key, one in value.items() if key != "managedFields"]
        left.take(0, sum(len(key) for key, _ in fields), depth)
        return {clean(key, MAX_TEXT): _copied(one, left, depth + 1) for key, one in fields}
    if isinstance(value, list | tuple):
        return [_copied(one, left, depth + 1) for one in value]
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        # As the API server decodes a number that is too large for an integer.
        return value if value in INTEGERS else _float(value)
    raise BadField("object", f"{shown(value)} is not JSON")


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise BadField("object", f"{shown(value)} is too large") from None
