"""A check that HTML is whole: every tag closed in order, nothing fetched from anywhere, every SVG
well-formed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"br", "meta", "hr", "img", "link", "input"}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute of <{tag}> comes twice"
        assert not {"src", "href"} & set(names), f"<{tag}> fetches something"
        assert tag not in ("script", "link", "img", "iframe")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check_html(html: str) -> str:
    """The text of the page, once its markup has passed."""
    tags = _Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    assert not re.search(r"https?://|url\(|@import|//cdn", html)
    for drawing in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL):
        ElementTree.fromstring(drawing)
        assert "nan" not in drawing
        assert "inf" not in drawing
    return " ".join(tags.text)
