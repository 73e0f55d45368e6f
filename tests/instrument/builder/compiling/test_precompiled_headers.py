from __future__ import annotations

from aoti_debug.instrument.builder.compiling import precompiled_headers

KERNELS = "#include <torch/csrc/inductor/cpp_prefix.h>"
SHIM = "#include <torch/csrc/inductor/aoti_torch/c/shim.h>"


def test_the_includes_that_a_source_begins_with() -> None:
    source = f"\n{KERNELS}\n// matrix product\n{SHIM} // C\nint x;\n#include <cstdint>\n"
    assert precompiled_headers.leading_includes(source) == [KERNELS, SHIM]


def test_kernels_share_the_header_of_all_kernels() -> None:
    assert precompiled_headers.worth_precompiling([KERNELS, SHIM]) == [KERNELS]
    assert precompiled_headers.worth_precompiling([SHIM, KERNELS]) == [KERNELS]
    assert precompiled_headers.worth_precompiling([SHIM]) == [SHIM]
    assert precompiled_headers.worth_precompiling([]) == []
