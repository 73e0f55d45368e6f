"""Renders a document as one HTML file: everything inline, nothing fetched, texts of the model never as markup.

Tables that a page holds as a whole have the cells of a terminal; their names are cut by the same rules.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.terminal_cells import Cell, Column, Sentence
from aoti_debug.package.manifest import Kernel
from aoti_debug.views.report import source_text
from aoti_debug.views.report.document import Document

LONGEST = 60  # characters of a name; the style sheet cuts it shorter where the column is narrower


@dataclass(frozen=True)
class StaticCell:
    """A cell.

    Attributes:
        text: in full.
        shown: the text, or the name as far as it is shown.
        is_name: a name, which is cut rather than wrapped.
    """

    text: str
    shown: str
    is_name: bool


def static_rows(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]]) -> list[list[StaticCell]]:
    """The cells of rows: those of columns that a terminal narrows are names, unless they are sentences."""
    return [[_cell(column, cell) for column, cell in zip(columns, row, strict=True)] for row in rows]


def _cell(column: Column, cell: str | Cell) -> StaticCell:
    text = str(cell)
    if not column.share or isinstance(cell, Sentence):
        return StaticCell(text, text, is_name=False)
    return StaticCell(text, text if isinstance(cell, str) else cell.fit(LONGEST), is_name=True)


LIBRARIES = ("tabulator.min.js", "uPlot.iife.min.js", "dagre.min.js")
STYLES = ("tabulator_simple.min.css", "uPlot.min.css", "report.css")
LICENCES = ("LICENSE-tabulator", "LICENSE-uPlot", "LICENSE-dagre")
SCRIPTS = (
    "data.js",
    "spread.js",
    "errors.js",
    "comparison.js",
    "timeline.js",
    "graph.js",
    "histogram.js",
    "detail.js",
    "rows.js",
    "table.js",
    "main.js",
)
_SOURCE_MAP = re.compile(r"^(?://|/\*)# sourceMappingURL=.*$", re.MULTILINE)  # these files are not shipped

_PERHAPS_INVISIBLE = re.compile(r"\\[ubfr]|\x7f")  # in JSON: escapes, other than those of line breaks and tabs


def page(document: Document) -> str:
    """The text of index.html."""
    return render(_PARTS, document.data, {"document": document})


def prepare(kernels: Iterable[Kernel]) -> None:
    """Loads the template and the files of index.html, and highlights the sources of kernels, ahead of `page`."""
    _environment().get_template(_PARTS.template)
    for name in (*_PARTS.scripts, *_PARTS.styles, *_PARTS.licences):
        _asset(name)
    for kernel in kernels:
        if kernel.source:
            source_text.highlight_kernel(kernel)


@dataclass(frozen=True)
class PageParts:
    """The files that a page is made of.

    Attributes:
        template: in templates/.
        scripts, styles, licences: in assets/, in the order of the page.
    """

    template: str
    scripts: tuple[str, ...]
    styles: tuple[str, ...]
    licences: tuple[str, ...]


_PARTS = PageParts("page.html", (*LIBRARIES, *SCRIPTS), STYLES, LICENCES)


def render(parts: PageParts, data: Any, values: Mapping[str, Any]) -> str:
    """The text of a page.

    Args:
        data: what its scripts read, as JSON.
        values: what its template shows, by name.
    """
    scripts = [_asset(name) for name in parts.scripts]
    return (
        _environment()
        .get_template(parts.template)
        .render(
            data=embed_json(data),
            scripts=[_Asset(script) for script in scripts],
            styles=[_Asset(_asset(name)) for name in parts.styles],
            licences=[_asset(name) for name in parts.licences],
            policy=_policy(scripts),
            **values,
        )
    )


def embed_json(data: Any) -> Markup:
    """JSON for a script element: no text in it can end the element, or begin a comment."""
    text = _json(data)
    if _PERHAPS_INVISIBLE.search(text):
        text = _json(_visible(data))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=dict)


class _Asset(Markup):
    """A text of this tool, which the page contains as it is."""


def _visible(value: Any) -> Any:
    """The data, in whose texts characters that are invisible or change the direction of others are escaped."""
    if isinstance(value, str) and not isinstance(value, _Asset):
        return type(value)(wording.printable_lines(value))
    if isinstance(value, Mapping):
        return {_visible(name): _visible(item) for name, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, (list, tuple)) else value


def _policy(scripts: list[str]) -> str:
    """Content-Security-Policy: only the page's own scripts run, and nothing is fetched."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    nothing = " ".join(f"{kind} 'none';" for kind in ("default-src", "base-uri", "form-action"))
    return f"{nothing} script-src {allowed}; style-src 'unsafe-inline'; img-src data:"


@cache
def _asset(name: str) -> str:
    text = (resources.files("aoti_debug.views.report") / "assets" / name).read_text(encoding="utf-8")
    return _SOURCE_MAP.sub("", text.replace("\r\n", "\n")).strip("\n")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("aoti_debug.views.report", "templates"),
        autoescape=True,
        finalize=_visible,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["python"] = source_text.highlight_line
    environment.filters["seconds"] = wording.duration
    environment.filters["count"] = wording.pluralize
    environment.filters["shorten"] = terminal_cells.shorten_middle
    return environment
