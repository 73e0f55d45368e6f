from __future__ import annotations

import pytest

from aoti_debug.package.manifest import Kernel
from aoti_debug.views.report import highlighted_source, page
from aoti_debug.views.report.prepare import prepare


def test_what_was_prepared_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [Kernel("cpp_fused_0", "cpp", "int x;", "0"), Kernel("shim", "cpp", "", "0")]
    prepare(kernels)
    hits = highlighted_source.highlight_kernel.cache_info().hits
    assert "int" in highlighted_source.highlight_kernel(kernels[0]).html
    assert highlighted_source.highlight_kernel.cache_info().hits == hits + 1
    assert page._asset.cache_info().currsize >= len((*page.LIBRARIES, *page.SCRIPTS, *page.STYLES, *page.LICENCES))


def test_a_kernel_without_source_is_left_out() -> None:
    before = highlighted_source.highlight_kernel.cache_info().currsize
    prepare([Kernel("aoti_torch_cpu_mm_out", "cpp", "", "0")])
    assert highlighted_source.highlight_kernel.cache_info().currsize == before
