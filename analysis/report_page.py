"""How the report becomes one HTML file: text, links, numbers, figures, and the template.

Everything that reaches the page is escaped by the template engine; the few places that make markup
of their own are in this module.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis import render
from analysis.artefact import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

_Value = TypeVar("_Value")
FOLDER = Path(__file__).parent
_SVG = "http://www.w3.org/2000/svg"
_HREFS = ("href", "{http://www.w3.org/1999/xlink}href")
_DROPPED = ("script", "foreignObject", "metadata", "iframe")
# Text stays text: smaller, searchable, and read aloud.
_SVG_SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "recap"}


class Anchors:
    """Names that are unique within the page, made from names that need not be."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()

    def of(self, kind: str, name: str) -> str:
        """The anchor of something; the same for the same kind and name."""
        if (kind, name) not in self._names:
            start = f"{kind}-{re.sub(r'[^A-Za-z0-9_]+', '-', name).strip('-')}"
            anchor, number = start, 1
            while anchor in self._taken:
                number += 1
                anchor = f"{start}-{number}"
            self._names[kind, name] = anchor
            self._taken.add(anchor)
        return self._names[kind, name]


class Text:
    """Plain text with backticks and names of runs, as HTML."""

    def __init__(self, runs: Mapping[str, str]) -> None:
        self._runs = runs
        names = sorted(map(re.escape, runs), key=lambda name: (-len(name), name))
        self._marked = re.compile("|".join(["`(?P<code>[^`]*)`", *names]))

    def __call__(self, text: str) -> Markup:
        """Escaped, with code marked up, run names linked, and line breaks kept."""
        parts, end = [], 0
        for found in self._marked.finditer(text):
            parts += [_lines(text[end : found.start()]), self._mark(found)]
            end = found.end()
        return Markup("").join([*parts, _lines(text[end:])])

    def _mark(self, found: re.Match[str]) -> Markup:
        words = found.group() if found.group("code") is None else found.group("code")
        code = Markup("<code>{}</code>").format(words)
        if words not in self._runs:
            return code
        return Markup('<a href="#{}">{}</a>').format(self._runs[words], code)


def _lines(text: str) -> Markup:
    return Markup("<br>").join(escape(line) for line in text.split("\n"))


@dataclass(frozen=True)
class Shown:
    """A cell of an HTML table: text, or a number with what stands beside it."""

    text: str = ""
    number: render.Parts | None = None
    href: str = ""
    behind: str = ""  # what the link leads to
    sort: str = ""  # what a number is sorted by; empty where it is not measured
    heading: bool = False
    repeated: bool = False  # stands for an empty cell under a text that holds for both

    @property
    def long(self) -> bool:
        """Whether it is a sentence, which needs room."""
        return len(self.text) > 80


def shown_number(cell: Cell, comparable: bool, href: str, behind: str) -> Shown:
    """A number of a table with a link to what is behind it."""
    number = render.parts(cell, comparable)
    if cell.value is None:
        return Shown(number=number)
    return Shown(number=number, href=href, behind=behind, sort=f"{cell.value:.12g}")


def inline_svg(plot: Plot, name: str, title: str) -> Markup:
    """A plot as SVG inside the page: nothing active, nothing external, names of its own."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context(_SVG_SETTINGS):
        plot.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator")))
    return clean_svg(text.getvalue(), name, title)


def clean_svg(svg: str, name: str, title: str) -> Markup:
    """An SVG document for use inside HTML; its names begin with ``name``."""
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in _DROPPED:
                parent.remove(child)
    for element in root.iter():
        _clean_attributes(element, name)
        if _local(element.tag) == "style":  # matplotlib's rule is for every element of the document
            element.text = re.sub(r"(^|\})\s*([^{}]+)\{", rf"\1#{name} \2{{", element.text or "")
    root.attrib |= {"id": name, "role": "img", "aria-label": title}
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _HREFS[1][1:].partition("}")[0])
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _clean_attributes(element: ElementTree.Element, name: str) -> None:
    for key, value in list(element.attrib.items()):
        if _local(key).lower().startswith("on") or (key in _HREFS and not _harmless(value)):
            del element.attrib[key]
        elif key == "id":
            element.attrib[key] = f"{name}-{value}"
        elif key in _HREFS and value.startswith("#"):
            element.attrib[key] = f"#{name}-{value[1:]}"
        else:
            element.attrib[key] = _own_references(value, name)


def _own_references(value: str, name: str) -> str:
    """References to this document's names, now longer; to others, none."""
    return re.sub(r"url\((?!#)[^)]*\)", "none", value).replace("url(#", f"url(#{name}-")


def _harmless(address: str) -> bool:
    return address.startswith(("#", "data:image/png;base64,"))


def page(values: Mapping[str, Any], text: Text) -> str:
    """The whole document. Only this page's own script may run in it, and nothing is fetched."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["rich"] = text
    style, script = (_own_file(f"report_page.{ending}") for ending in ("css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = {"style": style, "script": script, "script_digest": digest, "dash": render.DASH}
    return environment.get_template("report_page.html").render(**values, **own).lstrip()


def _own_file(name: str) -> Markup:
    """A file of ours that goes into the page as it is."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))


def unique(values: Iterable[_Value]) -> list[_Value]:
    """Values once each, in order."""
    return list(dict.fromkeys(values))
