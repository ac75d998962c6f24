"""The last step of `make lint`: TypeScript checks the types of the web page's JavaScript.

TypeScript comes from npm, once for each version, into the virtual environment. Where npm is missing or the
registry does not answer, a line says that the types were not checked.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from release.chart import REPOSITORY
from release.vendor import SECONDS, NotVendored, packed

PAGE: Final = REPOSITORY / "queuectl" / "page"
TYPES: Final = Path(__file__).with_name("page_types")
"""Declarations of the libraries in `vendor`, for what the page uses of them."""
VERSION: Final = "5.9.3"
INTEGRITY: Final = (
    "sha512-jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw=="
)
FLAGS: Final = (
    *("--noEmit", "--allowJs", "--checkJs", "--strict", "--noImplicitAny", "false", "--pretty", "false"),
    *("--target", "es2023", "--module", "es2022", "--moduleResolution", "bundler"),
    *("--lib", "es2023,dom,dom.iterable"),
)


class NotChecked(Exception):
    """The compiler is not there and cannot be fetched."""


def main() -> int:
    try:
        compiler = compiler_in(Path(sys.prefix) / "share" / f"typescript-{VERSION}")
    except NotChecked as problem:
        print(f"NOT CHECKED: the types of the web page's JavaScript: {problem}", file=sys.stderr)
        return 0
    except NotVendored as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 1
    found = problems(compiler, PAGE)
    print("\n".join(found) or f"Success: TypeScript {VERSION} finds nothing in the web page")
    return 1 if found else 0


def problems(compiler: Path, page: Path) -> list[str]:
    """What TypeScript says about the modules that main.js reaches, a line each."""
    with tempfile.TemporaryDirectory(prefix="queuectl-types-") as name:
        copy = Path(name) / "page"
        # Beside a declaration the compiler would still read the library itself.
        shutil.copytree(page, copy, ignore=lambda folder, names: names if folder.endswith("vendor") else [])
        shutil.copytree(TYPES, copy / "vendor", dirs_exist_ok=True)
        command = ["node", str(compiler), *FLAGS, "main.js"]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=SECONDS)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line]
    return lines or ([f"tsc ends with {done.returncode}"] if done.returncode else [])


def compiler_in(folder: Path) -> Path:
    """The compiler in this folder, fetched if it is not there yet. Raises NotChecked, NotVendored."""
    found = folder / "package" / "bin" / "tsc"
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotChecked("node and npm are not installed: apt-get install nodejs npm")
    if found.exists():
        return found
    name = f"typescript@{VERSION}"
    with tempfile.TemporaryDirectory(prefix="queuectl-types-") as place:
        try:
            archive, integrity = packed(name, Path(place))
        except (subprocess.SubprocessError, OSError) as problem:
            raise NotChecked(f"npm does not fetch {name}: {problem}") from None
        if integrity != INTEGRITY:
            raise NotVendored(f"{name}: integrity is {integrity}, and {INTEGRITY} in {Path(__file__).name}")
        # Complete or absent, also when two runs fetch it at one time.
        with tempfile.TemporaryDirectory(dir=_made(folder.parent), prefix=".typescript-") as beside:
            with tarfile.open(archive) as content:
                content.extractall(Path(beside) / "new", filter="data")
            try:
                (Path(beside) / "new").rename(folder)
            except OSError:
                if not found.exists():
                    raise
    return found


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    sys.exit(main())
