from __future__ import annotations

from aoti_debug.app.cli.unmatched import unmatched_warning
from aoti_debug.package.recording.site_filter import SiteFilter, unmatched
from tests.factories import make_manifest, site

KERNELS = make_manifest(site("triton_poi_fused_1"), site("cpp_fused_relu_0"), site("cpp_fused_relu_0"))


def test_the_kernels_are_listed() -> None:
    assert unmatched_warning(()) == []
    assert unmatched_warning(unmatched(KERNELS, SiteFilter(("!cuda_*", "x?")))) == [
        "warning: no kernel matches !cuda_*, x?; the package has:",
        "  cpp_fused_relu_0",
        "  triton_poi_fused_1",
    ]


def test_a_long_list_ends() -> None:
    many = make_manifest(*(site(f"k{n:02}") for n in range(30)))
    lines = unmatched_warning(unmatched(many, SiteFilter(("x",))))
    assert (len(lines), lines[-1]) == (22, "  and 10 more")


def test_names_that_a_package_does_not_hold() -> None:
    assert unmatched_warning(unmatched(KERNELS, SiteFilter(modules=("a", "b"), lines=("model.py:13",)))) == [
        "warning: no module matches a, b: the package holds no module paths",
        "warning: no model line matches model.py:13; the package has:",
        "  /home/u/model.py:12",
    ]
