from __future__ import annotations

from dataclasses import replace

from factories import make_manifest, site

from aoti_debug.manifest import OperatorSchema


def test_filters_that_match_no_kernel() -> None:
    package = make_manifest(site("cpp_fused_relu_0"), site("aoti_torch_cpu_addmm_out"))
    assert package.unmatched_filters(["cpp_*", "!aoti_*", "!triton_*", "CPP_*"]) == ("!triton_*", "CPP_*")
    assert package.unmatched_filters(["cpp_*", "!aoti_*"]) == ()


def test_operators_are_found_under_both_spellings() -> None:
    schema = OperatorSchema("mylib.op.default", (), returns=1)
    package = replace(make_manifest(), operators=(schema,))
    assert package.operator("mylib::op.default") is schema
    assert package.operator("mylib.op.default") is schema
    assert package.operator("mylib::op.out") is None
