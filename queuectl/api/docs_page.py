"""The OpenAPI document as one HTML page, without scripts and without requests to other servers."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = """
:root{color-scheme:light dark;--back:#fff;--text:#1c2024;--soft:#60646c;--line:#dfe3e6;--box:#f6f8f9;
--mark:#0b68cb}
@media (prefers-color-scheme:dark){
:root{--back:#111418;--text:#e8eaed;--soft:#9ba1a6;--line:#2b3137;--box:#191d22;--mark:#6cb2ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.55 system-ui,sans-serif}
main{max-width:62rem;margin:0 auto;padding:2rem 1.25rem 6rem}
h1{font-size:1.7rem;margin:0}h2{margin:3rem 0 1rem;font-size:1.25rem}
h3{margin:0;font-size:1rem;font-family:ui-monospace,monospace;overflow-wrap:anywhere}
p{margin:.4rem 0;max-width:46rem}a{color:var(--mark);text-decoration:none}a:hover{text-decoration:underline}
code,td:first-child,.type{font-family:ui-monospace,monospace;font-size:.88em}
code{background:var(--box);padding:.1em .3em;border-radius:4px}
.soft{color:var(--soft)}.verb{color:var(--mark);margin-right:.6em}
section{border:1px solid var(--line);border-radius:8px;padding:1rem 1.1rem;margin:0 0 1rem;overflow-x:auto}
table{border-collapse:collapse;width:100%;margin:.7rem 0 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;border-top:1px solid var(--line)}
th{font-weight:600;color:var(--soft);font-size:.85em;border:0}
td:first-child{white-space:nowrap}td:last-child{width:60%}
ul{columns:2 20rem;padding:0;list-style:none;margin:1rem 0}li{break-inside:avoid;padding:.12rem 0}
pre{background:var(--box);padding:.8rem 1rem;border-radius:6px;overflow-x:auto;font-size:.88em}
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_REFERENCE: Final = re.compile(r"#/components/schemas/(.+)")
_CODE: Final = re.compile(r"`([^`]+)`")
_EXAMPLE: Final = """\
TOKEN=$(kubectl create token SERVICEACCOUNT --audience queuectl)
curl -H "Authorization: Bearer $TOKEN" SERVER/api/v1/workloads?reason=WaitingForQuota"""


def html(document: Mapping[str, Any]) -> str:
    """`document`: as openapi.document makes it."""
    return "".join(_page(document))


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info, paths = document["info"], document["paths"]
    schemas = document["components"]["schemas"]
    title = escape(info["title"])
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{title} REST</title><style>{_STYLE}</style></head><body><main>"
    yield f'<h1>{title} REST <span class="soft">{escape(info["version"])}</span></h1>'
    yield f'<p class="soft">{escape(info["summary"])} · <a href="openapi.json">openapi.json</a></p>'
    yield f"<p>{_prose(info['description'])}</p><pre>{escape(_EXAMPLE)}</pre><ul>"
    for path in paths:
        yield f'<li><a href="#{_anchor(path)}">{escape(path)}</a></li>'
    yield "</ul><h2>Paths</h2>"
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield from _operation(method, path, operation)
    yield "<h2>Errors</h2><section><p>Each is <code>application/problem+json</code> (RFC 9457) with "
    yield "<code>title</code>, <code>status</code> and a <code>detail</code> that says what to do.</p>"
    operations = [operation for methods in paths.values() for operation in methods.values()]
    errors = {code: text for operation in operations for code, text in _errors(operation)}
    yield from _table(("code", "means"), ((code, _prose(errors[code])) for code in sorted(errors)))
    yield "</section><h2>Documents</h2>"
    for name, schema in schemas.items():
        yield from _schema(name, schema)
    yield "</main></body></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="{_anchor(path)}"><h3><span class="verb">{method.upper()}</span>{escape(path)}</h3>'
    yield f"<p>{_prose(operation['summary'])}.</p>"
    if "description" in operation:
        yield f"<p>{_prose(operation['description'])}</p>"
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    yield f'<p class="soft">answers <span class="type">{_type(answer)}</span></p>'
    rows = (
        (escape(one["name"]), _type(one["schema"]), _prose(one.get("description", "Part of the path.")))
        for one in operation.get("parameters", ())
    )
    yield from _table(("parameter", "type", ""), rows)
    yield "</section>"


def _errors(operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for code, answer in operation["responses"].items():
        if code != "200" and operation.get("parameters") is not None:
            yield code, answer["description"]


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="{_anchor(name)}"><h3>{escape(schema.get("title", name))}</h3>'
    if "description" in schema:
        yield f"<p>{_prose(schema['description'])}</p>"
    if "enum" in schema:
        yield "<p>" + " ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"]) + "</p>"
    rows = (
        (escape(field), _type(value), _prose(value.get("description", "")))
        for field, value in schema.get("properties", {}).items()
    )
    yield from _table(("field", "type", ""), rows)
    yield "</section>"


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Cells are HTML already. Empty without rows."""
    rows = list(rows)
    if rows:
        yield "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
        for row in rows:
            yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
        yield "</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """As HTML."""
    if "$ref" in schema:
        found = _REFERENCE.fullmatch(schema["$ref"])
        name = found[1] if found else schema["$ref"]
        return f'<a href="#{_anchor(name)}">{escape(_short(name))}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"map to {_type(values)}"
    name = escape(str(schema.get("format") or schema.get("type", "any")))
    if "minimum" in schema and "maximum" in schema:
        return f"{name} {schema['minimum']} to {schema['maximum']}"
    if "enum" in schema:
        return " ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    return name


def _short(name: str) -> str:
    """The readable form of a name such as `Page_Workload_`."""
    outer, _, inner = name.rstrip("_").partition("_")
    return f"{outer}[{inner}]" if inner else outer


def _prose(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def _anchor(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-")
