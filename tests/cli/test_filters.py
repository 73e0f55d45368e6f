from __future__ import annotations

from factories import make_manifest, site

from aoti_debug.cli.filters import unmatched_warning

KERNELS = make_manifest(site("triton_poi_fused_1"), site("cpp_fused_relu_0"), site("cpp_fused_relu_0"))


def test_the_kernels_are_listed() -> None:
    assert unmatched_warning(KERNELS, ()) == []
    assert unmatched_warning(KERNELS, ("!cuda_*", "x?")) == [
        "warning: no kernel matches !cuda_*, x?; the package has:",
        "  cpp_fused_relu_0",
        "  triton_poi_fused_1",
    ]


def test_a_long_list_ends() -> None:
    many = make_manifest(*(site(f"k{n:02}") for n in range(30)))
    lines = unmatched_warning(many, ("x",))
    assert (len(lines), lines[-1]) == (22, "  and 10 more")
