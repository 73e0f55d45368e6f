"""Model lines and a reference of a package, from a new lowering of its program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aoti_debug.instrument.builder.join_program import (
    join_model_lines,
    lacks_model_lines,
    match,
    renamed,
    renamed_promises,
)
from aoti_debug.instrument.wrapper.analysis import Analysis
from aoti_debug.package.manifest import Arg, Certainty, Kernel, Kind, PackageOrigin, Promise, Provenance, Role, Site
from aoti_debug.package.program_graphs import FORMAT, MODEL, BufferValue, Graph, Reference
from tests.factories import arg, make_manifest, site


def launch(kernel: str, line: int | None = None, kind: Kind = Kind.CPP) -> Site:
    """A launch; of a model's line, or without one as in a package that has none."""
    recorded = site(kernel, kind=kind, line=line)
    return recorded if line else replace(recorded, provenance=Provenance(Certainty.NONE))


def named_kernel(name: str, body: str) -> Kernel:
    return Kernel(name, "cpp", f'extern "C" void {name}(float* x) {{ {body} }}', "")


def lines(joined: Analysis) -> list[int | None]:
    return [s.provenance.source[0].line if s.provenance.source else None for s in joined.sites]


MM = ("aoti_torch_cpu_mm_out", Kind.SHIM_OUT)
KERNELS = (named_kernel("cpp_fused_relu_0", "relu"), named_kernel("cpp_fused_sum_1", "sum"))
FRESH_KERNELS = (named_kernel("cpp_fused_relu_sum_5", "sum"), named_kernel("cpp_fused_relu_3", "relu"))


def test_kernels_are_known_by_their_source_and_calls_by_their_order() -> None:
    ours = [launch("cpp_fused_relu_0"), launch(MM[0], kind=MM[1]), launch("cpp_fused_sum_1"), launch(MM[0], kind=MM[1])]
    fresh = [
        launch("cpp_fused_relu_3", 10),
        launch(MM[0], 11, MM[1]),
        launch("cpp_fused_relu_sum_5", 12),
        launch(MM[0], 13, MM[1]),
    ]
    joined, count = join_model_lines(analysis(ours, KERNELS), analysis(fresh, FRESH_KERNELS))
    assert (lines(joined), count) == ([10, 11, 12, 13], 4)
    assert {s.provenance.certainty for s in joined.sites} == {Certainty.INFERRED}
    assert [s.kernel for s in joined.sites] == [s.kernel for s in ours]


def test_what_only_one_of_them_has_stays_without_a_line() -> None:
    ours = [launch("cpp_fused_relu_0"), launch("cpp_fused_mine_9"), launch(MM[0], kind=MM[1])]
    fresh = [launch("cpp_fused_relu_3", 10), launch("cpp_fused_theirs_2", 20), launch(MM[0], 11, MM[1])]
    kernels = (*KERNELS, named_kernel("cpp_fused_mine_9", "mine"))
    joined, count = join_model_lines(analysis(ours, kernels), analysis(fresh, FRESH_KERNELS))
    assert (lines(joined), count) == ([10, None, 11], 2)
    assert joined.sites[1] == ours[1]


def test_unique_kernels_are_found_out_of_order() -> None:
    ours = [launch("cpp_fused_relu_0"), launch("cpp_fused_sum_1")]
    fresh = [launch("cpp_fused_relu_sum_5", 12), launch("cpp_fused_relu_3", 10)]
    joined, _ = join_model_lines(analysis(ours, KERNELS), analysis(fresh, FRESH_KERNELS))
    assert lines(joined) == [10, 12]


def test_kernels_without_a_source_in_the_package_are_joined_by_name_and_not_taken_for_the_same() -> None:
    ours = [launch("triton_a", kind=Kind.TRITON), launch("triton_b", kind=Kind.TRITON)]
    fresh = [launch("triton_b", 12, Kind.TRITON), launch("triton_a", 10, Kind.TRITON)]
    kernels = tuple(Kernel(name, "triton", f"def {name}(x): pass", "") for name in ("triton_a", "triton_b"))
    package = analysis(ours, tuple(replace(kernel, source="") for kernel in kernels))
    joined, count = join_model_lines(package, analysis(fresh, kernels))
    assert (lines(joined), count) == ([10, 12], 2)
    assert match(package, analysis(ours, kernels)).difference == (
        "launch site 0 is triton_a in the package, without the source of triton_a"
    )


def test_calls_that_are_not_unique_are_not_guessed_out_of_order() -> None:
    ours = [launch(MM[0], kind=MM[1]), launch(MM[0], kind=MM[1]), launch("cpp_fused_relu_0")]
    fresh = [launch("cpp_fused_relu_3", 10), launch(MM[0], 11, MM[1])]
    joined, count = join_model_lines(analysis(ours, KERNELS), analysis(fresh, FRESH_KERNELS))
    assert lines(joined)[2] == 10
    assert count <= 2


def test_a_record_without_a_line_joins_nothing() -> None:
    ours, fresh = [launch("cpp_fused_relu_0")], [launch("cpp_fused_relu_3")]
    joined, count = join_model_lines(analysis(ours, KERNELS), analysis(fresh, FRESH_KERNELS))
    assert (lines(joined), count) == ([None], 0)


def test_only_a_package_can_lack_lines() -> None:
    def lacks(source: PackageOrigin, *sites: Site) -> bool:
        return lacks_model_lines(replace(make_manifest(*sites), source=source))

    without, with_line = launch("a"), launch("b", 7)
    assert {source for source in PackageOrigin if lacks(source, without)} == {
        PackageOrigin.COMPILED,
        PackageOrigin.UNCOMPILED,
    }
    assert not any(lacks(source, without, with_line) for source in PackageOrigin)


ADD = Kernel("cpp_fused_add_0", "cpp", "void cpp_fused_add_0(float* out) { out[0] += 1; }", "0" * 64)
MUL = Kernel("cpp_fused_mul_1", "cpp", "void cpp_fused_mul_1(float* out) { out[0] *= 2; }", "1" * 64)


def analysis(sites: list[Site], kernels: tuple[Kernel, ...] = (ADD, MUL)) -> Analysis:
    return Analysis(tuple(sites), kernels, (), (), (), (), (), (), {}, (), None)


def cpp(kernel: Kernel, *args: Arg, **fields: Any) -> Site:
    return site(kernel.name, *args, kind=Kind.CPP, **fields)


def sites(first: str = "buf0", second: str = "buf1") -> list[Site]:
    return [
        cpp(ADD, arg("arg0_1"), arg(first, Role.OUT)),
        site("aoti_torch_cpu_mm_out", arg(second, Role.OUT), arg(first), op="aten.mm.out"),
        cpp(MUL, arg(f"{second}_view", Role.INOUT, base=second)),
    ]


def test_the_same_launches_under_other_names() -> None:
    other = replace(ADD, name="cpp_fused_7", source=ADD.source.replace("cpp_fused_add_0", "cpp_fused_7"))
    fresh = [cpp(other, arg("arg0_1"), arg("buf3", Role.OUT)), *sites("buf3", "buf4")[1:]]
    found = match(analysis(sites()), analysis(fresh, (other, MUL)))
    assert (found.difference, found.names) == ("", {"buf3": "buf0", "buf4": "buf1"})


@pytest.mark.parametrize(
    ("fresh", "difference"),
    [
        (sites()[:2], "the package has 3 launch sites, the program 2"),
        (
            [sites()[0], cpp(MUL, arg("buf0"))],
            "launch site 1 is aten.mm.out in the package, cpp_fused_mul_1 in the program",
        ),
        (
            [sites()[0], replace(sites()[1], subgraph="true_graph_0")],
            "launch site 1 is aten.mm.out in the package, aten.mm.out of true_graph_0 in the program",
        ),
        (
            [replace(sites()[0], function="_const_run_impl")],
            "launch site 0 is cpp_fused_add_0 in the package, cpp_fused_add_0 in constant folding in the program",
        ),
        (
            [cpp(ADD, arg("arg0_1"))],
            "launch site 0 is cpp_fused_add_0 in the package, with 2 arguments, not 1",
        ),
        (
            [cpp(ADD, arg("arg1_1"), arg("buf0", Role.OUT))],
            "launch site 0 is cpp_fused_add_0 in the package; its argument arg0_1 is arg1_1 in the program",
        ),
        (
            [sites()[0], sites("buf9", "buf0")[1]],
            "launch site 1 is aten.mm.out in the package; its argument buf1 is buf0 in the program",
        ),
    ],
)
def test_the_first_difference(fresh: list[Site], difference: str) -> None:
    assert match(analysis(sites()), analysis(fresh)).difference == difference


def test_another_source_under_the_same_name() -> None:
    changed = replace(ADD, source=ADD.source.replace("+= 1", "+= 2"))
    found = match(analysis(sites()), analysis(sites(), (changed, MUL)))
    assert found.difference == "launch site 0 is cpp_fused_add_0 in the package, with another source in the program"


def test_the_reference_gets_the_names_of_the_package() -> None:
    graph = Graph("", MODEL, (), (BufferValue("buf3", "add"), BufferValue("buf5", "mul")))
    found = renamed(Reference(FORMAT, "2.13", (graph,)), {"buf3": "buf0"})
    assert found.graphs[0].held == {"buf0": "add", "buf5": "mul"}
    promises = (Promise("buf3", "cpu", "float32", ("4",), ("1",)),)
    assert [promise.name for promise in renamed_promises(promises, {"buf3": "buf0"})] == ["buf0"]
