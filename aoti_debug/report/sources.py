"""Kernel sources as HTML, coloured by pygments; each kernel's once."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer, PythonLexer

from aoti_debug.manifest import Kernel, Site

_LONGEST = 200_000  # characters of a source that is shown


@dataclass(frozen=True)
class SourceFile:
    """
    Attributes:
        html: escaped and coloured.
    """

    name: str
    language: str
    html: Markup


def kernels_of(site: Site, known: dict[str, int]) -> list[int]:
    """Indices of the sources that belong to a site: its own, or those of the device kernels that it may start."""
    return [known[name] for name in dict.fromkeys((site.kernel, *site.launches)) if name in known]


def source_of(kernel: Kernel) -> SourceFile:
    text = kernel.source
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "\n… the rest is left out"
    lexer = CppLexer() if kernel.language == "cpp" else PythonLexer()
    return SourceFile(kernel.name, kernel.language, Markup(highlight(text, lexer, _FORMATTER)))


def python(text: str) -> Markup:
    """One line of Python, coloured."""
    return Markup(highlight(text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)).rstrip("\n"))


_FORMATTER = HtmlFormatter(nowrap=True)
