from __future__ import annotations

from factories import make_manifest, site


def test_filters_that_match_no_kernel() -> None:
    package = make_manifest(site("cpp_fused_relu_0"), site("aoti_torch_cpu_addmm_out"))
    assert package.unmatched_filters(["cpp_*", "!aoti_*", "!triton_*", "CPP_*"]) == ("!triton_*", "CPP_*")
    assert package.unmatched_filters(["cpp_*", "!aoti_*"]) == ()
