"""One dialect of YAML: what kubectl reads, and what it reads as it is meant."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from queuectl.files import BadFile, documents
from queuectl.kubernetes_yaml import MAX_ALIASED, BadYaml, dump, dump_all, load, scalar
from queuectl.sandbox.control_plane import find_assets
from tests.unit.core.profiles import examples
from tests.yaml_texts import WORDS, Texts, read_by_kubectl, read_elsewhere

# What kubectl 1.36 reads of plain text. `...`: the text itself.
READ: dict[str, Any] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"], False),
    **dict.fromkeys(("~", "null", "Null", "NULL"), None),
    **dict.fromkeys(
        [
            "yEs",
            "oN",
            "tRue",
            "nULL",
            "none",
            "nan",
            "=",
            "0x",
            "0o",
            "0b2",
            "_1",
            "._5",
            ".5_",
            "1e",
            "1e400",
            "2026-13-01",
        ],
        ...,
    ),
    **dict.fromkeys(
        ["2026-01-01", "2026-01-01T10:00:00Z", "1:30:00", "190:20:30.15", "12:00", "10.0.0.1", "5Gi", "2E"],
        ...,
    ),
    **{"017": 15, "08": 8, "0o17": 15, "0x1F": 31, "0b101": 5, "-0b101": -5, "0b-1": -1, "1_000": 1000},
    **{"+1": 1, "-0": 0, "00": 0, "1.0": 1, "1e3": 1000, "1.5e3": 1500, ".5": 0.5, ".5_0": 0.5, "5.": 5},
    **{"1e20": 10**20, "1e21": 1e21, "18446744073709551615": 18446744073709552000, "1e-400": 0},
    **{"9223372036854775807": 9223372036854775807, "9223372036854775808": 9223372036854776000},
    **{"0xFFFFFFFFFFFFFFFFF": ..., "0777777777777777777777777": 7.777777777777778e23},
}
KEYS = {"y": "true", "off": "false", "1.5": "1.5", "1e10": "1e+10", "0.1": "0.1", "08": "8", "0x10": "16"}
REFUSED = {
    ".nan": "nan is not a number of JSON",
    "{a: 1, a: 2}": "key 'a' is given twice",
    "{1: a, '1': b}": "key '1' is given twice",
    "{~: a}": "a key must be text",
    "{[a]: b}": "a key must be text",
    "*none": "the alias *none has no anchor before it",
    "&a [*a]": "the alias *a stands for a value that contains it",
    "{<<: [1]}": "`<<` needs a mapping, or a list of mappings",
    "!!int abc": "'abc' is not a !!int",
    "!!binary x": "!!binary is not UTF-8 text in base64",
    "a\n--- b": "`---` must stand alone on its line",
    "a\n...\nb": "kubectl ignores what follows: a line of `---` must be before it",
    "a\x00": "the character U+0000 is not allowed: escape it",
}


def one(text: str) -> Any:
    ((content, _),) = load(text.encode())
    return content


@pytest.mark.parametrize("text", READ)
def test_plain_text_is_what_kubectl_takes_it_for(text: str) -> None:
    read = one(f"a: {text}")["a"]
    expected = text if READ[text] is ... else READ[text]
    assert (type(read), read) == (type(expected), expected)


@pytest.mark.parametrize("text", KEYS)
def test_a_key_is_the_text_that_kubectl_makes_of_it(text: str) -> None:
    assert one(f"{text}: z") == {KEYS[text]: "z"}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_is_named(text: str) -> None:
    with pytest.raises(BadYaml) as raised:
        list(load(text.encode()))
    assert str(raised.value) == REFUSED[text]


def test_anchors_and_merge_keys_are_read_as_kubectl_reads_them() -> None:
    text = "base: &b {a: 1, c: y}\nuse: {<<: *b, c: 2}\nlist: {<<: [*b, {a: 3, d: 4}]}\nlate: {c: 2, <<: *b}"
    base = {"a": 1, "c": True}
    assert one(text) == {
        "base": base,
        "use": {"a": 1, "c": 2},
        "list": {"a": 1, "c": True, "d": 4},
        "late": base,
    }
    two = one("a: &x [1]\nb: *x")
    two["a"].append(2)
    assert two["b"] == [1], "an alias stands for a value of its own"


def test_what_aliases_stand_for_has_a_limit() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    with pytest.raises(BadYaml, match=f"aliases stand for more than {MAX_ALIASED} characters"):
        list(load(bomb.encode()))
    deep = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 40))
    with pytest.raises(BadYaml, match="nested deeper than 32"):
        list(load(deep.encode()))


@pytest.mark.parametrize(
    ("begin", "says"),
    [("{? ", "a key must be text"), ("{<<: ", "nested deeper than 32")],
    ids=["keys", "merges"],
)
def test_what_is_nested_in_keys_and_merges_has_a_limit(begin: str, says: str) -> None:
    with pytest.raises(BadYaml, match=says):
        list(load((begin * 400 + "{}" + "}" * 400).encode()))


def test_each_document_has_its_line_and_a_byte_order_mark_is_no_text() -> None:
    text = b"\xef\xbb\xbfa: 1\r\n--- # next\r\n# none\r\n---\r\n\xef\xbb\xbfb: [y]\r\n---\n"
    assert list(load(text)) == [({"a": 1}, 1), ({"b": [True]}, 5)]


def test_json_on_standard_input_is_read_as_json() -> None:
    text = b'{"a": "\\ud83d\\ude00", "b": 1.0, "c": "y"}\n{"d": 1e400}'
    with pytest.raises(BadFile):
        documents(text, "standard input")
    whole = documents(text.replace(b"1e400", b"1e3"), "standard input")
    assert [(one.content, one.line) for one in whole] == [
        ({"a": "\U0001f600", "b": 1, "c": "y"}, 1),
        ({"d": 1000}, 2),
    ]


@pytest.mark.parametrize("word", WORDS)
def test_text_that_any_reader_takes_for_something_else_is_quoted(word: str) -> None:
    for meant in ({"a": word}, {word: "a"}, [word]):
        text = dump(meant)
        assert list(load(text.encode())) == [(meant, 1)]
        assert read_elsewhere(text) == meant
    printed = dump({"a": word})[3:].strip()
    if scalar(word) != word or re.fullmatch(r"[yn]|0o?\d+|\d+e\d+|\d[\d:]*", word, re.IGNORECASE):
        assert printed[0] in "'\"", printed


@pytest.mark.parametrize("word", ["5Gi", "500m", "v1", "main", "a b", "nvidia.com/gpu", "10%", "x:y"])
def test_text_that_no_reader_takes_for_something_else_is_bare(word: str) -> None:
    assert dump({word: word}) == f"{word}: {word}\n"


def test_what_is_printed_is_read_again() -> None:
    texts = Texts(1)
    values = [{"v": texts.value()} for _ in range(examples(4000))]
    assert [content for content, _ in load(dump_all(values).encode())] == values


# --- beside kubectl -------------------------------------------------------------------------------------

_WE_REFUSE = re.compile(
    "is given twice|kubectl ignores|nested deeper|aliases stand for|not UTF-8 text in|ends with `:` needs"
    "|the tag |number of JSON"
)


@pytest.fixture
def kubectl() -> Path:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: YAML is not compared with kubectl's reading")
    return assets / "kubectl"


def test_kubectl_reads_the_same(kubectl: Path, tmp_path: Path) -> None:
    texts = Texts(2)
    written = [texts.document(f"d{number}") for number in range(examples(6_000))]
    differ, accepted = [], 0
    for text, theirs in zip(written, read_by_kubectl(kubectl, tmp_path, written), strict=True):
        try:
            contents = [content for content, _ in load(text.encode())]
            ours: Any = contents[0] if len(contents) == 1 else contents
        except BadYaml as bad:
            if theirs is not None and not _WE_REFUSE.search(str(bad)):
                differ.append((text, str(bad), theirs))
            continue
        accepted += 1
        if json.dumps(ours, sort_keys=True) != json.dumps(theirs, sort_keys=True):
            differ.append((text, ours, theirs))
    assert not differ, f"{len(differ)} differ, such as {differ[0]}"
    assert accepted > len(written) // 3


def test_kubectl_reads_what_is_printed_as_it_is_meant(kubectl: Path, tmp_path: Path) -> None:
    texts = Texts(3)
    meant = [
        {
            "apiVersion": "example.com/v1",
            "kind": "Free",
            "metadata": {"name": f"d{number}"},
            "spec": texts.value(),
        }
        for number in range(examples(6_000))
    ]
    read = read_by_kubectl(kubectl, tmp_path, [dump(value) for value in meant])
    differ = [(dump(value), theirs) for value, theirs in zip(meant, read, strict=True) if theirs != value]
    assert not differ, f"{len(differ)} differ, such as {differ[0]}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n\tb: 1\n", "line 2, column 1: a tab cannot indent: use spaces"),
        ("a: @x\n", "line 1, column 4: a value cannot begin with `@`: quote it"),
        ("a: b: c\n", "line 1, column 5: `:` cannot stand here: quote the value, or mend the indentation"),
        ("a: 1\nb: 'x\n", "line 3, column 1: this quote is not closed (it begins in line 2)"),
        ("a: {b: [1,\n", "line 2, column 1: a value is expected"),
        ("a:\n- b\nc\n", "line 4, column 1: `:` is expected after this key (it begins in line 3)"),
        ('a: "\\q"\n', "line 1, column 5: what follows `\\` in this quoted text is no escape"),
        ("a: !!%zz b\n", "line 1, column 6: this tag is malformed"),
        ("%FOO\n---\na: 1\n", "line 1, column 5: lines that begin with `%` are not read"),
    ],
)
def test_what_is_no_yaml_is_said_in_words_of_this_program(text: str, told: str) -> None:
    with pytest.raises(BadYaml) as caught:
        list(load(text.encode()))
    assert f"line {caught.value.line}, column {caught.value.column}: {caught.value}" == told
