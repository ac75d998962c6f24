"""The documentation page: the whole document, in one file without requests to other servers."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from tests.unit.api.conftest import Rest

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Checks that every tag is closed in order; collects links and ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        assert not {"src", "style", "onclick", "srcset"} & given.keys()
        if found := given.get("id"):
            self.ids.append(found)
        if found := given.get("href"):
            self.links.append(found)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_the_page_shows_every_path_parameter_and_field(rest: Rest) -> None:
    document = await rest.get("/openapi.json")
    answer = await rest.client.get("/docs")
    assert (answer.status, answer.content_type, answer.charset) == (200, "text/html", "utf-8")
    page = Page(await answer.text())
    assert page.open == []
    for path, methods in document["paths"].items():
        assert path in page.text
        for parameter in next(iter(methods.values())).get("parameters", ()):
            assert parameter["name"] in page.text
            assert parameter.get("description", "").replace("`", "") in page.text
    for schema in document["components"]["schemas"].values():
        for field in schema.get("properties", ()):
            assert field in page.text
    for code in ("401", "404", "429", "503"):
        assert code in page.text


async def test_the_page_loads_nothing_from_other_servers_and_runs_no_script(rest: Rest) -> None:
    answer = await rest.client.get("/docs")
    text = await answer.text()
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert {link for link in page.links if not link.startswith("#")} == {"openapi.json"}
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert not re.search(r"@import|url\(|https?://", text)
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "prefers-color-scheme:dark" in text
