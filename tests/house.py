"""How the product is laid out, in figures: `python -m tests.house` prints them, `make lint` calls it.

Sizes by package, public class names that stand in several modules, classes and functions over a limit,
modules that no product module imports, layers of import contracts, modules named by a gerund. All but the
sizes have a bound, and what is beyond it is an error.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = "queuectl"
MOST_ATTRIBUTES, MOST_PARAMETERS, MOST_LINES, MOST_FILE_LINES, MOST_LAYERS = 20, 7, 60, 600, 8
MOST_REPEATED_NAMES: Final = 25
"""Public class names in two or more modules: those of REST's documents."""
LARGER: Final = {
    # A field each for what a document or an object of Kubernetes may have, and an option each of a command.
    "api.schemas.Reason": 22,
    "cli.fitting.fit": 10,
    "cli.reading.get": 8,
    "core.model.workload.Observation": 25,
    "kinds.jobs.JobKind": 24,
    # To become smaller.
    "core.entries.Entry": 45,
    "core.preemption.search.__init__": 8,
    "core.state.EngineState": 33,
    "kube.lease.KubeLease": 22,
}
"""What may be over a limit, and by how much."""
_GERUNDS_MAY_STAND_IN: Final = ("cli", "changes")
_NO_GERUNDS: Final = {"accounting", "pending", "ring", "scheduling", "string"}


@dataclass(frozen=True)
class Module:
    """One file of the product."""

    name: str
    """Dotted, `queuectl` included; of a package its own name."""
    lines: int
    tree: ast.Module

    @property
    def room(self) -> str:
        """The package below `queuectl`, or `(top)`."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 2 or (ROOT / PACKAGE / parts[-1]).is_dir() else "(top)"

    @property
    def short(self) -> str:
        return self.name.removeprefix(f"{PACKAGE}.")

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.tree.body if isinstance(node, ast.ClassDef))

    def imported(self) -> set[str]:
        """Dotted names that it imports; those of `from x import y` with and without y."""
        names: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        return names


def modules(folder: str = PACKAGE) -> list[Module]:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text()
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, text.count("\n"), ast.parse(text)))
    return found


def sizes(product: list[Module]) -> dict[str, int]:
    """Lines of each room, largest first."""
    lines: dict[str, int] = defaultdict(int)
    for module in product:
        lines[module.room] += module.lines
    return dict(sorted(lines.items(), key=lambda row: -row[1]))


def repeated_names(product: list[Module]) -> dict[str, list[str]]:
    """Public class names that stand in two or more modules, with the modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in product:
        for node in module.classes():
            if not node.name.startswith("_"):
                places[node.name].append(module.short)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def attributes(node: ast.ClassDef) -> int:
    """Fields of the class, and what its methods assign to `self`."""
    names = {
        line.target.id
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    for inner in ast.walk(node):
        targets = inner.targets if isinstance(inner, ast.Assign) else [getattr(inner, "target", None)]
        names |= {
            target.attr
            for target in targets
            if isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        }
    return len(names)


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without `self` and `cls`."""
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


@dataclass(frozen=True)
class OverLimit:
    """A class, function or file over a limit."""

    name: str
    count: int
    what: str

    @property
    def allowed(self) -> bool:
        return self.count <= LARGER.get(self.name, 0)

    def __str__(self) -> str:
        return f"{self.name}: {self.count} {self.what}"


def over_limits(product: list[Module]) -> list[OverLimit]:
    rows = []
    for module in product:
        if module.lines > MOST_FILE_LINES:
            rows.append(OverLimit(module.short, module.lines, "lines"))
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = f"{module.short}.{node.name}"
            if isinstance(node, ast.ClassDef):
                counts = [(attributes(node), MOST_ATTRIBUTES, "attributes")]
            else:
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                counts = [(parameters(node), MOST_PARAMETERS, "parameters"), (length, MOST_LINES, "lines")]
            rows += [OverLimit(name, count, what) for count, most, what in counts if count > most]
    return rows


def not_imported(product: list[Module]) -> list[str]:
    """Modules that no other module of the product imports, nor names: commands are imported by name."""
    commands = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].values()
    known = {command.partition(":")[0] for command in commands} | {PACKAGE}
    for module in product:
        known |= module.imported()
        strings = {node.value for node in ast.walk(module.tree) if isinstance(node, ast.Constant)}
        folder = module.name.rpartition(".")[0]
        known |= {
            f"{prefix}{text}" for text in strings if isinstance(text, str) for prefix in ("", f"{folder}.")
        }
    makefile = (ROOT / "Makefile").read_text()
    return [
        module.short
        for module in product
        if module.name not in known
        and f"-m {module.name}" not in makefile
        and not module.name.endswith(".__main__")
        and not (ROOT / Path(*module.name.split("."))).is_dir()
    ]


def layers() -> dict[str, int]:
    """Rows of each contract of layers."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return {
        contract["name"]: len(contract["layers"]) for contract in contracts if contract["type"] == "layers"
    }


def gerunds(product: list[Module]) -> list[str]:
    return [
        module.short
        for module in product
        if (last := module.name.rpartition(".")[2]).endswith("ing")
        and last not in _NO_GERUNDS
        and module.room not in _GERUNDS_MAY_STAND_IN
    ]


def report(product: list[Module], details: bool) -> Iterator[str]:
    """Lines of the report; with `details` also what stands behind each figure."""
    rooms = sizes(product)
    yield f"lines of the product: {sum(rooms.values())}"
    yield "  " + ", ".join(f"{room} {lines}" for room, lines in rooms.items())
    sections: dict[str, list[str]] = {
        "public class names in two or more modules": [
            f"{name}: {', '.join(where)}" for name, where in repeated_names(product).items()
        ],
        f"over {MOST_ATTRIBUTES} attributes, {MOST_PARAMETERS} parameters, {MOST_LINES} lines a function, "
        f"{MOST_FILE_LINES} a file": [str(one) for one in over_limits(product)],
    }
    for title, rows in sections.items():
        yield f"{title}: {len(rows)}"
        if details:
            yield from (f"  {row}" for row in rows)


def errors(product: list[Module]) -> Iterator[str]:
    """What is beyond a bound."""
    names = repeated_names(product)
    if len(names) > MOST_REPEATED_NAMES:
        yield f"{len(names)} class names stand twice, at most {MOST_REPEATED_NAMES} may: {', '.join(names)}"
    for one in over_limits(product):
        if not one.allowed:
            yield f"{one}, at most {LARGER.get(one.name, 'the limit')} may be"
    for module in not_imported(product):
        yield f"{module}: no module of the product imports it"
    for name, rows in layers().items():
        if rows > MOST_LAYERS:
            yield f"contract {name!r} has {rows} layers, at most {MOST_LAYERS} may be"
    for module in gerunds(product):
        yield f"{module}: name a module by a noun of the field, not by a gerund"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__.partition("\n")[0])
    parser.add_argument("--details", action="store_true", help="name what stands behind each figure")
    options = parser.parse_args()
    product = modules()
    for line in report(product, options.details):
        print(line)
    if beyond := list(errors(product)):
        sys.exit("\n".join(f"tests.house: {one}" for one in beyond))


if __name__ == "__main__":
    main()
