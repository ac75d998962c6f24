"""YAML as people and machines write it, at random; and what kubectl reads of it."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

_PLAIN = """
y Y n N yes Yes YES no No NO on On ON off Off OFF true True TRUE false False FALSE yEs oN tRue
~ null Null NULL nULL none None nil undefined = << < .nan .NaN .NAN nan NaN .inf .Inf .INF -.inf +.INF
0 -0 +0 00 08 09 -08 017 -017 0o17 0O17 0x1F -0X1f 0b101 0B1 -0b101 0b-1 0b+1 -0b+1 0x 0o 0b 0b2
1_000 1__0 _1 1_ +_1 0x_1f 0o_7 0_8 - + . .. ... -. +. .5 -.5 +.5 .5_0 ._5 .5_ .5e1_0 5. 5.e3 1.0
1e3 1E3 1e+3 1e-3 1.5e3 1e 1e+ e3 .e3 1.0.0 1e400 -1e400 1e-400 1e21 1e20 1.5e300 1e15 123456789.5
9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
18446744073709551615 18446744073709551616 +18446744073709551615 0xFFFFFFFFFFFFFFFF
0xFFFFFFFFFFFFFFFFF 0777777777777777777777777 0o7777777777777777777777777 0x8000000000000000
2026-01-01 2026-1-1 2026-13-01 2026-02-30 2026-01-01T10:00:00Z 2026-01-01t10:00:00.5+01:00
1:30:00 01:30 1:30 190:20:30.15 12:00:00 -1:30 5Gi 500m 1e3Mi 1Ki 2E 1d 12h 10% v1 1.36 1.36.2
10.0.0.1 ::1 a:b a#b http://x:80/y?z=1#f a,b *x &x !x %x @x `x` {{x}} [x] {x} | > ? ?x -x -1x
"""
WORDS = (
    *_PLAIN.split(),
    "2026-01-01 10:00:00",
    "a b",
    "a: b",
    "a #b",
    "- a",
    "",
    " ",
    " a",
    "a ",
    "é",
    "日本",
    "\U0001f600",
    "a\nb",
    "a\n\nb\n",
    "\na",
    "a\n  b",
    "---",
    "--- a",
    "a\n---\nb",
    "a\tb",
    "\ta",
    "a\x85b",
    "a\u2028b",
    "a\xa0b",
    "\ufeffa",
    "a\rb",
    "a\r\nb",
    "\x00",
    "a\u202eb",
    "a\u200bb",
    "\x1b[1m",
    "'",
    '"',
    "\\",
    "\\n",
    "it's",
    'say "x"',
    "x" * 200,
    "word " * 60,
)
_LETTERS = "0123456789" * 2 + "__++--..::eExXoObBTZzfF ynYN~"
_TAGS = ("!!str", "!!int", "!!float", "!!bool", "!!null", "!!binary", "!!timestamp", "!own", "!")


class Texts:
    """Documents of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def word(self) -> str:
        pick = self._random
        if pick.random() < 0.6:
            return pick.choice(WORDS)
        return "".join(pick.choices(_LETTERS, k=pick.randint(1, 8)))

    def value(self, depth: int = 3) -> Any:
        """What a program prints: text, numbers, lists and objects."""
        pick = self._random
        kind = pick.random()
        if depth and kind < 0.2:
            return [self.value(depth - 1) for _ in range(pick.randint(0, 3))]
        if depth and kind < 0.45:
            return {self.word(): self.value(depth - 1) for _ in range(pick.randint(0, 4))}
        if kind < 0.85:
            return self.word()
        return pick.choice((None, True, False, 0, -1, 2**53, 2**63 - 1, -(2**63), 0.1, 1.5e-9, 1e300, 3.25))

    def document(self, name: str) -> str:
        """A manifest as a person may write it; now and then one that is not valid."""
        pick = self._random
        self._anchors: list[str] = []
        spec = self._block("  ", 3)
        text = f"apiVersion: example.com/v1\nkind: Free\nmetadata:\n  name: {name}\nspec:\n{spec}"
        if pick.random() < 0.05:
            text = text.replace("\n", "\r\n")
        if pick.random() < 0.05:
            text = "\ufeff" + text
        if pick.random() < 0.1:
            text = pick.choice(("---\n", "--- # first\n", "# comment\n", "---\n---\n", "\n\n")) + text
        if pick.random() < 0.05:
            text += pick.choice(("...\n", "---\n", "--- \n# end\n", "...\n# end\n"))
        return text

    def _block(self, indent: str, depth: int) -> str:
        pick = self._random
        lines = ""
        if depth < 3 and pick.random() < 0.3:
            for _ in range(pick.randint(1, 3)):
                lines += f"{indent}-{self._space()}{self._inline(indent, depth)}\n"
            return lines
        for _ in range(pick.randint(1, 4)):
            if self._anchors and pick.random() < 0.05:
                lines += f"{indent}<<: {self._merged()}\n"
            elif depth and pick.random() < 0.35:
                anchor = self._anchor()
                lines += f"{indent}{self._key()}:{anchor}\n{self._block(indent + '  ', depth - 1)}"
            else:
                lines += f"{indent}{self._key()}:{self._space()}{self._inline(indent, depth)}\n"
        return lines

    def _merged(self) -> str:
        names = [f"*{name}" for name in self._random.choices(self._anchors, k=2)]
        return self._random.choice((names[0], f"[{', '.join(names)}]", "{a: 1, b: y}"))

    def _anchor(self) -> str:
        if self._random.random() > 0.1:
            return ""
        self._anchors.append(f"a{len(self._anchors)}")
        return f" &{self._anchors[-1]}"

    def _space(self) -> str:
        return self._random.choice((" ", " ", " ", " ", "  ", "\t", " \t"))

    def _key(self) -> str:
        pick = self._random
        if pick.random() < 0.7:
            return f"k{pick.randint(0, 10**6)}"
        return self._scalar(tags=False)

    def _inline(self, indent: str, depth: int) -> str:
        pick = self._random
        kind = pick.random()
        if kind < 0.12:
            return self._literal(indent)
        if kind < 0.25 and depth:
            return self._flow(2)
        if kind < 0.30 and self._anchors:
            return f"*{pick.choice(self._anchors)}"
        comment = pick.choice(("", "", "", " # why", "#x"))
        return f"{self._anchor().strip()} {self._scalar()}{comment}".strip()

    def _flow(self, depth: int) -> str:
        pick = self._random
        if not depth or pick.random() < 0.5:
            return self._scalar()
        if pick.random() < 0.5:
            return "[" + ", ".join(self._flow(depth - 1) for _ in range(pick.randint(0, 3))) + "]"
        pairs = (
            f"{self._key()}{pick.choice((': ', ': ', ':', ' : '))}{self._flow(depth - 1)}"
            for _ in range(pick.randint(0, 3))
        )
        return "{" + ", ".join(pairs) + "}"

    def _scalar(self, tags: bool = True) -> str:
        pick = self._random
        word = self.word()
        style = pick.random()
        if style < 0.65:
            text = " ".join(word.split()) or "~"
        elif style < 0.82:
            text = "'" + re.sub(r"\s", " ", word).replace("'", "''") + "'"
        else:
            text = json.dumps(word, ensure_ascii=pick.random() < 0.5)
        return f"{pick.choice(_TAGS)} {text}" if tags and pick.random() < 0.06 else text

    def _literal(self, indent: str) -> str:
        pick = self._random
        head = pick.choice("|>") + pick.choice(("", "-", "+"))
        lines = [self.word().split("\n")[0] for _ in range(pick.randint(1, 3))]
        return head + "".join(f"\n{indent}  {line}" for line in lines)


def read_by_kubectl(kubectl: Path, folder: Path, texts: Sequence[str]) -> list[Any]:
    """What kubectl reads of each text, without its labels; None: it refuses it.

    The name of the object in each text must be `d` with the number of the text.
    """
    found: list[Any] = [None] * len(texts)
    for start in range(0, len(texts), 1000):
        batch = folder / str(start)
        batch.mkdir()
        for number, text in enumerate(texts[start : start + 1000], start):
            (batch / f"{number}.yaml").write_bytes(text.encode())
        command = [str(kubectl), "label", "--local", "-f", str(batch), "of=test", "-o", "json"]
        environment = {"KUBECONFIG": "/dev/null", "HOME": str(folder)}
        ran = subprocess.run(command, capture_output=True, check=False, timeout=120, env=environment)
        text, at, decoder = ran.stdout.decode(), 0, json.JSONDecoder()
        while at < len(text.rstrip()):
            content, at = decoder.raw_decode(text, at)
            at += len(text[at:]) - len(text[at:].lstrip()) if at < len(text) else 0
            del content["metadata"]["labels"]
            found[int(content["metadata"]["name"][1:])] = content
    return found


def read_elsewhere(text: str) -> Any:
    """What a reader of YAML 1.1 that is not kubectl's reads."""
    return yaml.safe_load(text)
