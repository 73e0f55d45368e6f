"""A package beside a new lowering of its program: launch by launch, names of buffers aside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aoti_debug.instrument.builder.join_reference import match, renamed, renamed_promises
from aoti_debug.instrument.wrapper.analysis import Analysis
from aoti_debug.package.manifest import Arg, Kernel, Kind, Promise, Role, Site
from aoti_debug.package.reference.program import FORMAT, MODEL, BufferValue, Graph, Reference
from tests.factories import arg, site

ADD = Kernel("cpp_fused_add_0", "cpp", "void cpp_fused_add_0(float* out) { out[0] += 1; }", "0" * 64)
MUL = Kernel("cpp_fused_mul_1", "cpp", "void cpp_fused_mul_1(float* out) { out[0] *= 2; }", "1" * 64)


def analysis(sites: list[Site], kernels: tuple[Kernel, ...] = (ADD, MUL)) -> Analysis:
    return Analysis(tuple(sites), kernels, (), (), (), (), (), ())


def cpp(kernel: Kernel, *args: Arg, **fields: object) -> Site:
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
