"""YAML as kubectl reads it, and YAML that kubectl reads as it is meant. No other module reads or prints YAML.

kubectl converts YAML to JSON by sigs.k8s.io/yaml (go-yaml v2), and that decides what a scalar is: `y` and
`on` are true, `0b1`, `0o17`, `017` and `08` are numbers, `1:30:00` and `2026-01-01` are text, `1e400` is
text, `1.0` is 1. Refused here, although kubectl takes them: a key that is given twice, deep nesting, aliases
that stand for too much, tags of applications, and what kubectl would ignore.
"""

from __future__ import annotations

import base64
import copy
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

import yaml

MAX_NESTING: Final = 32
MAX_ALIASED: Final = 1 << 20
"""Characters and values that the aliases of one document stand for, at most."""

_TAG: Final = "tag:yaml.org,2002:"
_STR: Final = f"{_TAG}str"
_KINDS: Final = ("str", "bool", "int", "float", "null", "timestamp", "binary", "merge", "map", "seq")
_TAGS: Final = frozenset({"!", *(f"{_TAG}{kind}" for kind in _KINDS)})
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_INTEGER: Final = re.compile(
    r"([-+]?)(?:0[xX](?P<x16>[0-9a-fA-F]+)|0[bB](?P<x2>[01]+)|0(?:[oO](?=.))?(?P<x8>[0-7]*)|(?P<x10>[1-9][0-9]*))"
)
_BINARY: Final = re.compile(r"(-?)0b([-+]?)([01]+)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_POINT_FIRST: Final = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?")
_NO_TEXT: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What changes the order of text on a terminal, or cannot be seen.
_INVISIBLE: Final = re.compile("[\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f]")
_ESCAPED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
# What some reader takes for a number, a time or a word, though kubectl does not.
_ELSEWHERE: Final = re.compile(
    r"[-+.]?[0-9._][0-9a-fA-FxXoO_.:+tTzZ -]*"
    r"|(?i:y|n|yes|no|on|off|true|false|null|[-+]?\.?(?:nan|inf|infinity))"
)


class BadYaml(ValueError):
    """The text is no YAML that is read here. `line` and `column`: from 1."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(problem)
        self.line = line
        self.column = column


class DocumentText(NamedTuple):
    """The text of one document, between lines of `---`."""

    text: str
    line: int
    """Number of its first line, from 1."""


def load(text: bytes) -> Iterator[tuple[Any, int]]:
    """Content and line, from 1, of each document that is not empty. Raises BadYaml."""
    for part in parts(text):
        content, line = _Reader(part).document()
        if content is not None:
            yield content, line


def dump(value: Any) -> str:
    """`value` (dict, list, str, int, float, bool, None) as one document. Text that any reader could take for
    something else is quoted, and text that cannot be seen is escaped."""
    text = _dumped(value, allow_unicode=True)
    return _dumped(value, allow_unicode=False) if _INVISIBLE.search(text) else text


def _dumped(value: Any, *, allow_unicode: bool) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=allow_unicode)
    return text


def dump_all(values: Iterable[Any]) -> str:
    """A document each, with `---` between them."""
    return "---\n".join(dump(value) for value in values)


def parts(text: bytes) -> Iterator[DocumentText]:
    """Raises BadYaml, also where `---` does not stand alone on its line: kubectl refuses that."""
    lines: list[bytes] = []
    first = 1
    for number, whole in enumerate(text.removesuffix(b"\n").split(b"\n"), 1):
        line = whole.removesuffix(b"\r")
        if line.startswith(b"---"):
            rest = line[3:].strip()
            if rest and not rest.startswith(b"#"):
                raise BadYaml("`---` must stand alone on its line", number, 4)
            if lines:
                yield _part(lines, first)
                lines, first = [], number + 1
                continue
        lines.append(line)
    yield _part(lines, first)


def _part(lines: list[bytes], first: int) -> DocumentText:
    try:
        text = b"\n".join((*lines, b"")).decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        at = error.start - before.rfind(b"\n")
        byte = error.object[error.start]
        raise BadYaml(f"byte 0x{byte:02x} is not UTF-8", first + before.count(b"\n"), at) from None
    if found := _NO_TEXT.search(text):
        line = first + text.count("\n", 0, found.start())
        column = found.start() - text.rfind("\n", 0, found.start())
        raise BadYaml(f"the character U+{ord(found[0]):04X} is not allowed: escape it", line, column)
    return DocumentText(text, first)


def scalar(text: str) -> Any:
    """What plain text is: str, int, float, bool or None. NaN and infinities are possible."""
    if text in _WORDS:
        return _WORDS[text]
    if not text or text[0] not in "+-.0123456789":
        return text
    value = _number(text)
    return text if value is None or _DATE.fullmatch(text) else value


def json_number(value: float) -> int | float:
    """A number as it comes back from JSON: integers within 64 bits, else floating point; `1.0` is 1.

    Raises ValueError for NaN and infinities.
    """
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    real = float(value)
    if real != real or real in (float("inf"), float("-inf")):
        raise ValueError(f"{real} is not a number of JSON")
    return int(_digits(real)) if real.is_integer() and abs(real) < 1e21 else real


def _digits(real: float) -> str:
    """The shortest digits that mean an integral number, with zeros after them."""
    mantissa, _, exponent = f"{real!r}".partition("e")
    if not exponent:
        return mantissa.partition(".")[0]
    whole, _, fraction = mantissa.partition(".")
    return whole + fraction + "0" * (int(exponent) - len(fraction))


def _number(text: str) -> int | float | None:
    if text[0] == ".":
        return _finite(text.replace("_", "")) if _POINT_FIRST.fullmatch(text) else None
    plain = text.replace("_", "")
    found = _INTEGER.fullmatch(plain)
    if found is not None:
        assert found.lastgroup is not None
        base, digits = int(found.lastgroup[1:]), found[found.lastgroup].lstrip("0") or "0"
        # 64 digits are more than 64 bits in every base but two.
        value = int(found[1] + digits, base) if len(digits) <= 64 else 2**64
        if -(2**63) <= value < (2**63 if found[1] else 2**64):
            return value
    if _FLOAT.fullmatch(plain):
        return _finite(plain)
    found = _BINARY.fullmatch(plain)
    if found is not None and not (found[1] and found[2]) and len(found[3].lstrip("0")) <= 63:
        return int(f"{found[1]}{found[2]}{found[3]}", 2)
    return None


def _finite(text: str) -> float | None:
    value = float(text)
    return None if value in (float("inf"), float("-inf")) else value


class _Reader:
    """Reads one document from the events of the parser: its cost is bounded before a value is built."""

    def __init__(self, part: DocumentText) -> None:
        self._part = part
        self._anchors: dict[str, tuple[Any, int, int] | None] = {}
        """Value, size and height by name; None: its value is being read."""
        self._aliased = 0
        self._flow = 0
        """Number of flow collections, such as `[a, b]`, around the next event."""
        self._events = _events(part)

    def document(self) -> tuple[Any, int]:
        """Content, and the line where it begins. None: there is nothing in the document."""
        next(self._events)
        content, line = None, self._part.line
        if isinstance(next(self._events), yaml.DocumentStartEvent):
            event = next(self._events)
            line = self._part.line + event.start_mark.line
            content, _, _ = self._value(event, 0)
            self._end(next(self._events))
        return content, line

    def _end(self, last: yaml.DocumentEndEvent) -> None:
        try:
            if isinstance(next(self._events), yaml.StreamEndEvent):
                return
        except BadYaml:
            pass
        self._refuse("kubectl ignores what follows: a line of `---` must be before it", last)

    def _refuse(self, problem: str, at: Any) -> NoReturn:
        mark = at.start_mark
        raise BadYaml(problem, self._part.line + mark.line, mark.column + 1)

    def _value(self, event: Any, depth: int) -> tuple[Any, int, int]:
        """The same as `_node`, with numbers as they come back from JSON."""
        value, size, height = self._node(event, depth)
        if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
            try:
                value = json_number(value)
            except ValueError as error:
                self._refuse(str(error), event)
        return value, size, height

    def _node(self, event: Any, depth: int) -> tuple[Any, int, int]:
        """Value, size and height of what begins with this event."""
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        if event.tag is not None and event.tag not in _TAGS:
            self._refuse(f"the tag {event.tag[:60]} is not known here", event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            built = self._scalar(event), len(event.value) + 1, 0
        elif depth >= MAX_NESTING:
            self._refuse(f"nested deeper than {MAX_NESTING}", event)
        else:
            self._flow += bool(event.flow_style)
            mapping = isinstance(event, yaml.MappingStartEvent)
            built = self._mapping(depth) if mapping else self._sequence(depth)
            self._flow -= bool(event.flow_style)
        if event.anchor is not None:
            self._anchors[event.anchor] = built
        return built

    def _alias(self, event: yaml.AliasEvent, depth: int) -> tuple[Any, int, int]:
        built = self._anchors.get(str(event.anchor))
        if built is None:
            known = event.anchor in self._anchors
            problem = "stands for a value that contains it" if known else "has no anchor before it"
            self._refuse(f"the alias *{event.anchor} {problem}", event)
        value, size, height = built
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            self._refuse(f"aliases stand for more than {MAX_ALIASED} characters", event)
        if depth + height > MAX_NESTING:
            self._refuse(f"nested deeper than {MAX_NESTING}", event)
        return copy.deepcopy(value), size, height

    def _sequence(self, depth: int) -> tuple[list[Any], int, int]:
        items: list[Any] = []
        size, height = 1, 0
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            value, more, below = self._value(event, depth + 1)
            items.append(value)
            size, height = size + more, max(height, below)
        return items, size, height + 1

    def _mapping(self, depth: int) -> tuple[dict[str, Any], int, int]:
        found: dict[str, Any] = {}
        given: set[str] = set()
        size, height = 1, 0
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if _is_merge(event):
                more, below = self._merge(found, event, depth)
                size, height = size + more, max(height, below)
                continue
            key, more = self._key(event)
            if key in given:
                self._refuse(f"key {key!r} is given twice", event)
            given.add(key)
            found[key], inner, below = self._value(next(self._events), depth + 1)
            size, height = size + more + inner, max(height, below)
        return found, size, height + 1

    def _key(self, event: Any) -> tuple[str, int]:
        if isinstance(event, yaml.CollectionStartEvent):
            self._refuse("a key must be text", event)
        key, size, _ = self._node(event, 0)
        if isinstance(key, bool):
            return ("true" if key else "false"), size
        if isinstance(key, float):
            return _short(key), size
        if isinstance(key, int) and key < 2**63:
            return str(key), size
        if not isinstance(key, str):
            self._refuse("a key must be text", event)
        return key, size

    def _merge(self, into: dict[str, Any], at: Any, depth: int) -> tuple[int, int]:
        """Put the entries of what `<<` names into a mapping; as with kubectl, they replace those before it.

        Returns their size and height.
        """
        event = next(self._events)
        value, size, height = self._node(event, depth + 1)  # what is merged may merge in turn
        listed = isinstance(event, yaml.SequenceStartEvent)
        merged = list(reversed(value)) if listed else [value]
        for one in merged:
            if not isinstance(one, dict):
                self._refuse("`<<` needs a mapping, or a list of mappings", at)
            into.update(one)
        return size, height - 1 - listed

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        text, tag = event.value, event.tag
        if self._flow and not event.style and "?" in text:
            self._refuse("`?` must be quoted between brackets and braces", event)
        if tag is not None:
            return self._tagged(tag, text, event)
        return scalar(text) if event.implicit[0] else text

    def _tagged(self, tag: str, text: str, event: yaml.ScalarEvent) -> Any:
        kind = tag.removeprefix(_TAG)
        if kind == "binary":
            try:
                return base64.b64decode(re.sub("[\r\n]", "", text), validate=True).decode()
            except ValueError:
                self._refuse("!!binary is not UTF-8 text in base64", event)
        if kind == "timestamp":
            if not _DATE.fullmatch(text):
                self._refuse(f"{text[:60]!r} is not a !!timestamp", event)
            return text
        if kind not in ("bool", "int", "float", "null"):
            return text
        value = scalar(text)
        actual = "null" if value is None else type(value).__name__
        if kind == "float" and actual == "int" and value < 2**63:
            return float(value)
        if actual != kind:
            self._refuse(f"{text[:60]!r} is not a !!{kind}", event)
        return value


def _is_merge(event: Any) -> bool:
    if not isinstance(event, yaml.ScalarEvent) or event.value != "<<":
        return False
    return (event.tag is None and event.implicit[0]) or event.tag == f"{_TAG}merge"


def _events(part: DocumentText) -> Iterator[Any]:
    try:
        yield from yaml.parse(part.text, Loader=getattr(yaml, "CLoader", yaml.Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line, mark.column) if mark is not None else (0, 0)
        begin = error.context_mark.line if error.context_mark is not None else line
        opened = f" (it begins in line {part.line + begin})" if begin != line else ""
        problem = _problem(f"{error.problem}", part.text.split("\n")[line : line + 1], column) + opened
        raise BadYaml(problem, part.line + line, column + 1) from None


_PROBLEMS: Final = (
    ("mapping values are not allowed", "`:` cannot stand here: quote the value, or mend the indentation"),
    ("sequence entries are not allowed", "`-` cannot stand here: each item of a list has its own line"),
    ("tab character", "a tab cannot indent: use spaces"),
    ("expected key", "a key is expected: mend the indentation"),
    ("expected '-'", "`-` is expected: mend the indentation"),
    ("',' or ']'", "`,` or `]` is expected in this list"),
    ("',' or '}'", "`,` or `}` is expected in this object"),
    ("node content", "a value is expected"),
    ("unexpected ':'", "text that ends with `:` needs quotes in a list or object on one line"),
    ("expected ':'", "`:` is expected after this key"),
    ("unexpected end of stream", "this quote is not closed"),
    ("document indicator", "this quote is not closed"),
    ("URI", "this tag is malformed"),
    ("escape", "what follows `\\` in this quoted text is no escape"),
    ("hexdecimal", "what follows `\\` in this quoted text is no escape"),
    ("alphabetic or numeric", "a name is expected after `&` or `*`"),
    ("tag", "this tag is malformed"),
    ("<document start>", "what is before this ends the document: a line of `---` must be between two"),
    ("directive", "lines that begin with `%` are not read"),
    ("incompatible", "lines that begin with `%` are not read"),
    ("whitespace or line break", "a space or the end of the line is expected"),
    ("comment or line break", "a comment or the end of the line is expected"),
    ("indentation indicator", "the number after `|` or `>` must be 1 to 9"),
)
"""By a part of what the parser says, what is said here."""


def _problem(said: str, lines: list[str], column: int) -> str:
    if "cannot start any token" in said:
        character = lines[0][column : column + 1] if lines else ""
        if character == "\t":
            return "a tab cannot indent: use spaces"
        return f"a value cannot begin with `{character}`: quote it"
    return next((ours for part, ours in _PROBLEMS if part in said), "this cannot be read as YAML")


def _short(key: float) -> str:
    """A key that is a floating point number, as kubectl writes it: with the precision of 32 bits."""
    if key != key:
        return ".nan"
    try:
        (near,) = struct.unpack("f", struct.pack("f", key))
    except OverflowError:
        near = float("inf") if key > 0 else float("-inf")
    if near in (float("inf"), float("-inf")):
        return ".inf" if near > 0 else "-.inf"
    shown = next(
        text
        for digits in range(9)
        if struct.unpack("f", struct.pack("f", float(text := f"{near:.{digits}e}")))[0] == near
    )
    mantissa, _, exponent = shown.partition("e")
    digits = len(mantissa.replace(".", "").lstrip("-"))
    if -4 <= int(exponent) < 6:
        return f"{float(shown):.{max(0, digits - 1 - int(exponent))}f}"
    return shown


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Text that would not be text for every reader has another tag than text: it is quoted."""
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        plain = kind is yaml.ScalarNode and tag == _STR and implicit[0]
        return "!quoted" if plain and (_ELSEWHERE.fullmatch(value) or scalar(value) != value) else tag


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(_STR, value, style='"' if _ESCAPED.search(value) else None)


_Dumper.add_representer(str, _text)


# --- places of values -----------------------------------------------------------------------------------


def composed(text: bytes, line: int) -> tuple[yaml.Node, int] | None:
    """The nodes of the document that begins at `line`, and the number of its text's first line.

    None: it cannot be parsed as YAML, as some JSON cannot.
    """
    try:
        part = [one for one in parts(text.replace(b"\t", b" ")) if one.line <= line][-1]
        node = yaml.compose(part.text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (BadYaml, yaml.YAMLError, RecursionError):
        return None
    return (node, part.line) if node is not None else None


def place(root: tuple[yaml.Node, int], path: Iterable[int | str]) -> tuple[int, int]:
    """Line and column, from 1, of the value at `path`; for the value of a key, those of the key.

    If there is no value at `path`, the place of the last step that exists.
    """
    node, first = root
    shown = node
    for step in path:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == str(step)), None)
            if pair is None:
                break
            shown, node = pair
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            shown = node = node.value[step]
        else:
            break
    mark = shown.start_mark
    return mark.line + first, mark.column + 1
