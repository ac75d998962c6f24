"""The files of the web page: addresses that never change their content, compressed, under a strict policy."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from queuectl.api.page import FOLDER, LATER, SECURITY_POLICY, files
from release.vendor import sha256
from tests.unit.api.conftest import Rest


async def test_the_document_is_checked_each_time_and_its_files_are_kept(rest: Rest) -> None:
    document = await rest.client.get("/")
    assert (document.status, document.content_type) == (200, "text/html")
    assert document.headers["Cache-Control"] == "no-cache"
    again = await rest.client.get("/", headers={"If-None-Match": document.headers["ETag"]})
    assert (again.status, await again.read()) == (304, b"")
    addresses = set(re.findall(r'(?:href|src)="(page/[^"]+)"', await document.text()))
    assert len(addresses) == len(files().files) - len(LATER)
    for address in addresses:
        answer = await rest.client.get(f"/{address}")
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Server"] == "queuectl"


async def test_each_answer_forbids_inline_code_and_other_servers(rest: Rest) -> None:
    document = await rest.client.get("/")
    policy = document.headers["Content-Security-Policy"]
    assert policy == SECURITY_POLICY
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "unsafe" not in policy
    text = await document.text()
    assert not re.search(r"https?://|<style|style=|<script>| on[a-z]+=", text)
    assert (await rest.client.get("/api/v1/clusterqueues")).headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "address", ["/page/0000/main.js", "/page/{}/none.js", "/page/{}/../../setup.py", "/page/{}/"]
)
async def test_an_address_of_no_file_is_not_found(rest: Rest, address: str) -> None:
    assert await rest.status(address.format(files().digest)) == 404


async def test_files_are_sent_compressed_to_clients_that_take_gzip(rest: Rest) -> None:
    address = f"/page/{files().digest}/main.js"
    plain = await rest.client.get(address, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    packed = await rest.client.get(address, headers={"Accept-Encoding": "gzip, br"}, auto_decompress=False)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(await packed.read()) == await plain.read()


def test_vendored_files_are_those_of_the_lock() -> None:
    folder = FOLDER / "vendor"
    lock = json.loads((folder / "lock.json").read_text(encoding="utf-8"))
    named = {file["to"]: file["sha256"] for package in lock["packages"] for file in package["files"]}
    assert {path.name for path in folder.iterdir()} == {*named, "lock.json"}
    for name, expected in named.items():
        assert sha256((folder / name).read_text(encoding="utf-8")) == expected, name


def test_every_module_is_reached_from_the_first_one() -> None:
    names = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js")}
    found, open = set[str](), ["main.js"]
    while open:
        name = open.pop()
        if name not in found:
            found.add(name)
            text = (FOLDER / name).read_text(encoding="utf-8")
            for target in re.findall(r'(?:from\s*|import\()"(\.[^"]+)"', text):
                path = (FOLDER / name).parent / target
                open.append(path.resolve().relative_to(FOLDER).as_posix())
    assert found == names
