"""Kernel sources as HTML, highlighted by pygments."""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer, PythonLexer

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.manifest import Kernel, Site

_MAX_CHARACTERS = 200_000  # of a source that is shown


@dataclass(frozen=True)
class SourceFile:
    """The source of a kernel.

    Attributes:
        html: escaped and highlighted.
    """

    name: str
    language: str
    html: Markup


def source_indices(site: Site, index_by_kernel: dict[str, int]) -> list[int]:
    """Indices of the sources that belong to a site: its own, or those of the device kernels that it may start."""
    names = dict.fromkeys((site.kernel, *site.launches))
    return [index_by_kernel[name] for name in names if name in index_by_kernel]


@lru_cache(maxsize=1024)  # some are highlighted ahead
def highlight_kernel(kernel: Kernel) -> SourceFile:
    """The kernel's source as HTML; its end is left out if it is very long."""
    text = kernel.source
    if len(text) > _MAX_CHARACTERS:
        text = text[:_MAX_CHARACTERS] + "\n… the rest is left out"
    lexer = CppLexer() if kernel.language == "cpp" else PythonLexer()
    return SourceFile(kernel.name, kernel.language, Markup(highlight(text, lexer, _FORMATTER)))


def highlight_line(text: str) -> Markup:
    """One line of Python as HTML."""
    return Markup(highlight(text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)).rstrip("\n"))


_FORMATTER = HtmlFormatter(nowrap=True)
