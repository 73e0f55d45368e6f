"""Model lines of a package that was compiled without them."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.instrument.builder import join_provenance
from aoti_debug.package.manifest import Certainty, Kernel, Kind, PackageOrigin, Provenance, Site
from tests import factories


def site(kernel: str, line: int | None = None, kind: Kind = Kind.CPP) -> Site:
    """A launch; of a model's line, or without one as in a package that has none."""
    recorded = factories.site(kernel, kind=kind, line=line)
    return recorded if line else replace(recorded, provenance=Provenance(Certainty.NONE))


def cpp(name: str, body: str) -> Kernel:
    return Kernel(name, "cpp", f'extern "C" void {name}(float* x) {{ {body} }}', "")


def lines(joined: join_provenance.JoinedSites) -> list[int | None]:
    return [s.provenance.source[0].line if s.provenance.source else None for s in joined.sites]


MM = ("aoti_torch_cpu_mm_out", Kind.SHIM_OUT)
KERNELS = (cpp("cpp_fused_relu_0", "relu"), cpp("cpp_fused_sum_1", "sum"))
FRESH_KERNELS = (cpp("cpp_fused_relu_sum_5", "sum"), cpp("cpp_fused_relu_3", "relu"))


def test_kernels_are_known_by_their_source_and_calls_by_their_order() -> None:
    ours = [site("cpp_fused_relu_0"), site(MM[0], kind=MM[1]), site("cpp_fused_sum_1"), site(MM[0], kind=MM[1])]
    fresh = [
        site("cpp_fused_relu_3", 10),
        site(MM[0], 11, MM[1]),
        site("cpp_fused_relu_sum_5", 12),
        site(MM[0], 13, MM[1]),
    ]
    joined = join_provenance.join(ours, KERNELS, fresh, FRESH_KERNELS)
    assert (lines(joined), joined.count) == ([10, 11, 12, 13], 4)
    assert {s.provenance.certainty for s in joined.sites} == {Certainty.INFERRED}
    assert [s.kernel for s in joined.sites] == [s.kernel for s in ours]


def test_what_only_one_of_them_has_stays_without_a_line() -> None:
    ours = [site("cpp_fused_relu_0"), site("cpp_fused_mine_9"), site(MM[0], kind=MM[1])]
    fresh = [site("cpp_fused_relu_3", 10), site("cpp_fused_theirs_2", 20), site(MM[0], 11, MM[1])]
    joined = join_provenance.join(ours, (*KERNELS, cpp("cpp_fused_mine_9", "mine")), fresh, FRESH_KERNELS)
    assert (lines(joined), joined.count) == ([10, None, 11], 2)
    assert joined.sites[1] == ours[1]


def test_unique_kernels_are_found_out_of_order() -> None:
    ours = [site("cpp_fused_relu_0"), site("cpp_fused_sum_1")]
    fresh = [site("cpp_fused_relu_sum_5", 12), site("cpp_fused_relu_3", 10)]
    assert lines(join_provenance.join(ours, KERNELS, fresh, FRESH_KERNELS)) == [10, 12]


def test_calls_that_are_not_unique_are_not_guessed_out_of_order() -> None:
    ours = [site(MM[0], kind=MM[1]), site(MM[0], kind=MM[1]), site("cpp_fused_relu_0")]
    fresh = [site("cpp_fused_relu_3", 10), site(MM[0], 11, MM[1])]
    joined = join_provenance.join(ours, KERNELS, fresh, FRESH_KERNELS)
    assert lines(joined)[2] == 10
    assert joined.count <= 2


def test_a_record_without_a_line_joins_nothing() -> None:
    joined = join_provenance.join([site("cpp_fused_relu_0")], KERNELS, [site("cpp_fused_relu_3")], FRESH_KERNELS)
    assert (lines(joined), joined.count) == ([None], 0)


def test_only_a_package_can_lack_lines() -> None:
    def lacks(source: PackageOrigin, *sites: Site) -> bool:
        return join_provenance.lacks_model_lines(replace(factories.make_manifest(*sites), source=source))

    without, with_line = site("a"), site("b", 7)
    assert {source for source in PackageOrigin if lacks(source, without)} == {
        PackageOrigin.COMPILED,
        PackageOrigin.UNCOMPILED,
    }
    assert not any(lacks(source, without, with_line) for source in PackageOrigin)
