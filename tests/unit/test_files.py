"""Files that people write: what they say, and where they are wrong."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from queuectl.files import BadFile, FileDocument, Places, documents, read, read_open


def test_each_document_comes_with_the_line_it_begins_at() -> None:
    text = b"---\na: 1\n---\n# nothing but a comment\n---\nb:\n- 2\n"
    assert documents(text, "some.yaml") == [FileDocument({"a": 1}, 2), FileDocument({"b": [2]}, 6)]


def test_json_is_one_document() -> None:
    assert documents(b'\xef\xbb\xbf[{"a":\t1}]', "some.json") == [FileDocument([{"a": 1}], 1)]


BAD = {
    "a tab where YAML wants spaces": ("bad.yaml", b"a:\n\tb: 1\n", "bad.yaml: line 2, column 1: "),
    "an alias without an anchor": (
        "bad.yaml",
        b"a: 1\nb: [*x]\n",
        "bad.yaml: line 2, column 5: the alias *x has no anchor before it",
    ),
    "a key given twice": ("bad.yaml", b"a: 1\na: 2\n", "bad.yaml: line 2, column 1: key 'a' is given twice"),
    "YAML nested too deep": (
        "bad.yaml",
        b"[" * 40 + b"]" * 40,
        "bad.yaml: line 1, column 33: nested deeper than 32",
    ),
    "JSON nested too deep": (
        "bad.json",
        b"[" * 100_000,
        "bad.json: line 1, column 33: nested deeper than 32",
    ),
    "JSON nested a little too deep": (
        "bad.json",
        b"[\n\t" * 33 + b"]" * 33,
        "bad.json: line 33, column 2: nested deeper than 32",
    ),
    "JSON cut short": ("bad.json", b'{"a":\n', "bad.json: line 2, column 1: Expecting value"),
    "a key given twice in JSON": (
        "bad.json",
        b'{"a": 1, "a": 2}',
        "bad.json: line 1, column 10: key 'a' is given twice",
    ),
    "what JSON has no number for": ("bad.json", b'{"a": NaN}', "bad.json: NaN is not a number"),
    "a number of five thousand digits": (
        "bad.json",
        b"1" * 5000,
        "bad.json: 1111111111111111111111111111111111111111…, of 5000 characters, is not a number",
    ),
    "bytes that are no text": ("bad.json", b'"\xff"', "bad.json: line 1: byte 0xff is not UTF-8"),
    "an object of Python": (
        "bad.yaml",
        b"!!python/object/apply:os.system [id]",
        "bad.yaml: line 1, column 1: ",
    ),
}


@pytest.mark.parametrize(("name", "text", "told"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_told_with_its_place(name: str, text: bytes, told: str) -> None:
    with pytest.raises(BadFile) as raised:
        documents(text, name)
    assert str(raised.value).startswith(told)
    assert "\n" not in str(raised.value)


def test_a_file_is_read_up_to_its_limit_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * 101)
    assert read(path, 101) == b"#" * 101
    with pytest.raises(BadFile, match=r"large\.yaml: larger than 100 bytes"):
        read(path, 100)
    with pytest.raises(BadFile, match=r"none\.yaml: No such file"):
        read(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", b"---\n# first\n---\na:\n  b:\n  - x\n  - c: 1\n"),
        ("a.json", b'\xef\xbb\xbf{\n\n\n"a": {\n\t"b": ["x",\n\n\t{"c":\t1}]}}'),
    ],
)
def test_what_is_wrong_in_a_document_can_be_told_with_its_place(name: str, text: bytes) -> None:
    places = Places(text, documents(text, name)[-1])
    assert places.of(("a", "b", 1, "c")) == (7, 5 if name == "a.yaml" else 3)
    assert places.of(("a", "b", 1, "missing")) == (7, 5 if name == "a.yaml" else 2)
    assert places.of(("a", "b", 7)) == places.of(("a", "b"))


def test_standard_input_is_read_up_to_its_limit_and_no_further() -> None:
    endless = io.BytesIO(b"#" * 1000)
    with pytest.raises(BadFile, match="standard input: larger than 100 bytes"):
        read_open(endless, "standard input", 100)
    assert endless.tell() == 101
