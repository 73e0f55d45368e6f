"""Makes what the report of a package's runs needs, whatever they record, ahead of it."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.package.manifest import Kernel
from aoti_debug.views.report import highlighted_source, page


def prepare(kernels: Iterable[Kernel]) -> None:
    """Loads the template and the files of a page, and highlights the sources of kernels."""
    page.load()
    for kernel in kernels:
        if kernel.source:
            highlighted_source.highlight_kernel(kernel)
