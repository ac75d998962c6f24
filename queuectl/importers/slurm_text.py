"""Reads what Slurm prints: `scontrol show partition|node`, `sacctmgr dump`, `sacctmgr show ... --parsable2`.

The text is split into records with their fields; what a value means is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from queuectl.kinds.json_fields import clean

MOST_PROBLEMS: Final = 20
"""Errors reported at once, at most."""
_SHOWN: Final = 80

_RECORD: Final = re.compile(r"(PartitionName|NodeName)=\S")
_OF_FILE: Final = re.compile(r"DEFAULT(?:\s|$)|[^\s\[]*\[|\S*,")
"""A name of slurm.conf alone: several hosts, or defaults."""
_KEY: Final = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z_]*)=")
_FREE_TEXT: Final = frozenset({"Reason", "Comment", "Extra"})
"""Fields whose value is the rest of the line, whatever is in it."""
_DUMPED: Final = re.compile(r"(Cluster|Parent|Account|User|QOS) - '([^']*)'(.*)")
# A value ends before the next `:Word=`: `GrpTRES=gres/gpu:a100=8` and `MaxWall=2-00:00:00` are values.
# Text between quotes is printed as it is: `Description='it's text'`.
_OPTION: Final = re.compile(r":([A-Z][A-Za-z]*)\+?=('.*?'(?=:[A-Z]|:?$)|(?:(?!:[A-Z][A-Za-z]*\+?=)[^'])*)")


class BadSlurm(ValueError):
    """The text cannot be imported. `problems`: one line each, with file, line and value."""

    def __init__(self, problems: list[str]) -> None:
        more = [f"{len(problems) - MOST_PROBLEMS} more like these"] if len(problems) > MOST_PROBLEMS else []
        self.problems = problems[:MOST_PROBLEMS] + more
        super().__init__("\n".join(self.problems))


class SlurmKind(StrEnum):
    PARTITION = "Partition"
    NODE = "Node"
    CLUSTER = "Cluster"
    ACCOUNT = "Account"
    USER = "User"
    QOS = "QOS"
    DESCRIPTION = "Account description"
    """Of an account: a row of `sacctmgr show accounts`."""


class Field(NamedTuple):
    value: str
    line: int


class Record(NamedTuple):
    kind: SlurmKind
    name: str
    file: str
    line: int
    """Where it begins, from 1."""
    fields: dict[str, Field]
    """By name, as `sacctmgr dump` and `scontrol` call them."""
    parent: str = "root"
    """Of accounts and users: the account above."""

    def value(self, field: str, default: str = "") -> str:
        found = self.fields.get(field)
        return found.value if found is not None else default

    def problem(self, field: str, what: str) -> str:
        """An error about the value of a field."""
        given = self.fields.get(field)
        line, shown = (given.line, given.value) if given is not None else (self.line, self.name)
        return problem(self.file, line, shown, f"{self.kind} {self.name}: {field}: {what}")


def problem(file: str, line: int, value: str, what: str) -> str:
    return clean(f"{file}: line {line}: {value[:_SHOWN]!r}: {what}", 500)


def read(text: bytes, name: str) -> list[Record]:
    """The records of a file. Raises BadSlurm with all lines that are none."""
    try:
        lines = text.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        place = text.count(b"\n", 0, error.start) + 1
        shown = text[error.start : error.start + 1].hex()
        raise BadSlurm([problem(name, place, shown, "this byte is not UTF-8")]) from None
    reader = _Reader(name)
    for number, line in enumerate(lines, 1):
        reader.line(line.rstrip(), number)
    if reader.problems:
        raise BadSlurm(reader.problems)
    return reader.records


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._parent = "root"
        self._columns: list[str] | None = None
        """Of the table that the lines are in."""
        self._open: Record | None = None
        """The record of scontrol that the lines are in."""
        self.records: list[Record] = []
        self.problems: list[str] = []

    def line(self, text: str, number: int) -> None:
        if not text.strip():
            self._open = self._columns = None
        elif text.startswith("#"):
            pass
        elif _RECORD.match(text):
            self._begin(text, number)
        elif found := _DUMPED.fullmatch(text):
            self._open = self._columns = None
            self._dumped(found, number)
        elif self._open is not None and text[0].isspace():
            self._fields(self._open, text, number)
        elif "|" in text:
            self._open = None
            self._table(text, number)
        else:
            self._bad(text, number, "is no line of scontrol show partition|node, or of sacctmgr dump|show -P")

    def _bad(self, text: str, number: int, what: str) -> None:
        self.problems.append(problem(self._name, number, text.strip(), what))

    # --- scontrol

    def _begin(self, text: str, number: int) -> None:
        key, _, rest = text.partition("=")
        kind = SlurmKind.PARTITION if key == "PartitionName" else SlurmKind.NODE
        self._open = None
        if _OF_FILE.match(rest):
            command = f"scontrol show {kind.lower()}"
            self._bad(text, number, f"is a line of slurm.conf: add the output of `{command}` instead")
            return
        self._open = Record(kind, rest.split(maxsplit=1)[0], self._name, number, {})
        self.records.append(self._open)
        self._fields(self._open, text, number)

    def _fields(self, record: Record, text: str, number: int) -> None:
        keys = list(_KEY.finditer(text))
        if not keys or text[: keys[0].start()].strip():
            self._bad(text, number, f"{record.kind} {record.name}: FIELD=VALUE is expected")
            return
        for key, after in zip(keys, [*keys[1:], None], strict=True):
            free = key[1] in _FREE_TEXT
            end = len(text) if free or after is None else after.start()
            record.fields[key[1]] = Field(text[key.end() : end].strip(), number)
            if free:
                break

    # --- sacctmgr dump

    def _dumped(self, found: re.Match[str], number: int) -> None:
        word, name, rest = found.groups()
        if not name:
            self._bad(found[0], number, f"{word} has no name")
            return
        if word == "Parent":
            self._parent = name
            return
        fields: dict[str, Field] = {}
        at = 0
        while option := _OPTION.match(rest, at):
            fields[option[1]] = Field(option[2].strip("'"), number)
            at = option.end()
        if rest[at:] not in ("", ":"):
            self._bad(rest[at:], number, f"{word} {name}: :OPTION=VALUE is expected")
            return
        self.records.append(Record(SlurmKind(word), name, self._name, number, fields, self._parent))

    # --- sacctmgr show -P

    def _table(self, text: str, number: int) -> None:
        cells = [cell.strip() for cell in text.split("|")]
        if self._columns is None:
            self._columns = cells
            self._head(text, number)
            return
        if len(cells) != len(self._columns):
            self._bad(text, number, f"{len(cells)} cells, the head of the table has {len(self._columns)}")
            return
        row = {column: Field(cell, number) for column, cell in zip(self._columns, cells, strict=True) if cell}
        found = _of_row(_table_kind(self._columns), row, self._name, number)
        if found is not None:
            self.records.append(found)

    def _head(self, text: str, number: int) -> None:
        assert self._columns is not None
        head = _table_kind(self._columns)
        if head is None:
            self._bad(text, number, "is no head of sacctmgr show qos|associations|accounts -P")
        elif head is _ASSOCIATION_HEAD and not _ABOVE & set(self._columns):
            self._bad(text, number, "has no column ParentName: add it by format=Account,ParentName,User,...")


_QOS_HEAD: Final = {"Name", "Priority"}
_ASSOCIATION_HEAD: Final = {"Account", "User"}
_ACCOUNT_HEAD: Final = {"Account", "Descr"}
_AS_DUMPED: Final = {
    "Share": "Fairshare",
    "Fairshare": "Fairshare",
    "Def QOS": "DefaultQOS",
    "MaxSubmit": "MaxSubmitJobs",
    "MaxTRES": "MaxTRESPerJob",
    "MaxWall": "MaxWallDurationPerJob",
}
"""Columns of associations that `sacctmgr dump` calls otherwise."""
_DESCRIBED: Final = {"Descr": "Description", "Org": "Organization"}
"""Columns of accounts that `sacctmgr dump` calls otherwise."""
_ABOVE: Final = {"ParentName", "Par Name"}
_IDENTITY: Final = {"Account", "User", "Cluster", *_ABOVE}


def _table_kind(columns: list[str]) -> set[str] | None:
    heads = (_QOS_HEAD, _ASSOCIATION_HEAD, _ACCOUNT_HEAD)
    return next((head for head in heads if head <= set(columns)), None)


def _of_row(head: set[str] | None, row: dict[str, Field], file: str, number: int) -> Record | None:
    """None: the row has nothing that is imported."""
    if head is _QOS_HEAD:
        name = row.pop("Name", Field("", number)).value
        return Record(SlurmKind.QOS, name, file, number, row)
    if head is _ACCOUNT_HEAD:
        name = row.pop("Account", Field("", number)).value
        fields = {_DESCRIBED.get(key, key): field for key, field in row.items()}
        return Record(SlurmKind.DESCRIPTION, name, file, number, fields)
    if head is not _ASSOCIATION_HEAD:
        return None
    account = row.get("Account", Field("", number)).value
    user = row.get("User", Field("", number)).value
    above = (row.get("ParentName") or row.get("Par Name") or Field("root", number)).value
    fields = {_AS_DUMPED.get(key, key): field for key, field in row.items() if key not in _IDENTITY}
    if user:
        return Record(SlurmKind.USER, user, file, number, fields, account)
    if account == "root":
        cluster = row.get("Cluster", Field("slurm", number)).value
        return Record(SlurmKind.CLUSTER, cluster, file, number, fields)
    return Record(SlurmKind.ACCOUNT, account, file, number, fields, above)


def fields_of(record: Record) -> Iterator[tuple[str, Field]]:
    """The fields that have a value."""
    return ((name, field) for name, field in record.fields.items() if field.value)
