from __future__ import annotations

from aoti_debug.builder.summary import unmatched_filters


def test_filters_that_match_nothing() -> None:
    kernels = ["cpp_fused_relu_0", "aoti_torch_cpu_addmm_out"]
    assert unmatched_filters(["cpp_*", "!aoti_*", "!triton_*", "CPP_*"], kernels) == ("!triton_*", "CPP_*")
