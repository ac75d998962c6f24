"""The web page: static files of the package. They hold no data: scripts in the browser ask REST for them.

The document is `/`. Its files are below `/page/HASH/`, where HASH is that of all files together: an address
never gets another content, so browsers keep the files without asking again.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import web

from queuectl.api.http import not_found

FOLDER: Final = Path(__file__).resolve().parents[1] / "page"
DOCUMENT: Final = "index.html"
SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES: Final = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
LATER: Final = frozenset({"vendor/uplot.js", "chart.js"})
"""Modules that only some views load."""
_HEADERS: Final = {
    "Content-Security-Policy": SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}
_FOREVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class File:
    body: bytes
    packed: bytes
    """With gzip."""
    type: str


@dataclass(frozen=True, slots=True)
class Files:
    digest: str
    """Part of the address of all files but the document."""
    document: File
    files: dict[str, File]
    """By path below the digest."""


@cache
def files() -> Files:
    """All files of the page. Raises OSError if the installation is broken."""
    found = {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in TYPES
    }
    document = found.pop(DOCUMENT).decode()
    whole = hashlib.sha256(document.encode())
    for name, body in found.items():
        whole.update(f"{name} {len(body)}\n".encode() + body)
    digest = whole.hexdigest()[:16]
    modules = (name for name in found if name.endswith(".js") and name not in LATER)
    early = "".join(f'<link rel="modulepreload" href="page/{digest}/{name}">' for name in modules)
    document = document.replace("<!-- modules -->", early).replace("HASH", digest)
    return Files(
        digest,
        _file(DOCUMENT, document.encode()),
        {name: _file(name, body) for name, body in found.items()},
    )


def _file(name: str, body: bytes) -> File:
    return File(body, gzip.compress(body, 9, mtime=0), TYPES[Path(name).suffix])


def add_page(app: web.Application) -> None:
    """Serve the page, to any client: the address of a file says nothing about the cluster."""
    found = files()

    async def document(request: web.Request) -> web.Response:
        return _response(request, found.document, found.digest, "no-cache")

    async def file(request: web.Request) -> web.Response:
        if request.match_info["digest"] != found.digest or request.match_info["name"] not in found.files:
            raise not_found()
        return _response(request, found.files[request.match_info["name"]], found.digest, _FOREVER)

    app.router.add_get("/", document)
    app.router.add_get("/page/{digest}/{name:.+}", file)


def _response(request: web.Request, file: File, tag: str, kept: str) -> web.Response:
    headers = {**_HEADERS, "Cache-Control": kept, "ETag": f'"{tag}"'}
    if any(one.value == tag for one in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    body = file.body
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"], body = "gzip", file.packed
    return web.Response(body=body, content_type=file.type, charset="utf-8", headers=headers)
