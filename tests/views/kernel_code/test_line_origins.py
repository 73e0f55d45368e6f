from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from aoti_debug.compare.compare_run import reference_of
from aoti_debug.package.program_graphs import Reference
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.kernel_code.line_origins import LineOrigin, line_origins
from tests.views.kernel_code import layer_norm_kernel as triton


def beside(source: str, reference: Reference | None = triton.REFERENCE) -> list[tuple[str, str, tuple[str, ...], str]]:
    """(first word of the statement, node, reads, writes) of the lines that have an origin."""
    kernel = replace(triton.KERNEL, source=source)
    origins = line_origins(kernel, triton.SITE, triton.MANIFEST, reference)
    lines = source.splitlines()
    return [
        (lines[n - 1].split()[0].partition("(")[0], origin.node, origin.reads, origin.writes)
        for n, origin in sorted(origins.items())
    ]


def test_a_triton_kernel() -> None:
    assert beside(triton.SOURCE) == [
        ("tmp0", "", ("arg0_1",), ""),
        ("tmp1", "", ("arg1_1",), ""),
        ("tmp2", "add", (), ""),
        ("tmp3", "add", (), ""),
        ("tmp5", "add", (), ""),
        ("tmp6", "mean", (), ""),
        ("tmp9", "mean", (), ""),
        ("tmp10", "sub", (), ""),
        ("tmp12", "add_1", (), ""),
        ("tmp13", "rsqrt", (), ""),
        ("tmp14", "mul", (), ""),
        ("tl.store", "mul", (), "buf0"),
    ]


def test_the_line_and_the_module_of_a_node() -> None:
    origins = line_origins(triton.KERNEL, triton.SITE, triton.MANIFEST, triton.REFERENCE)
    assert origins[6] == LineOrigin(6, "add", "", triton.LINES[0])
    assert origins[12] == LineOrigin(12, "sub", "norm", triton.LINES[1])


def test_without_a_graph_only_arguments_are_known() -> None:
    assert beside(triton.SOURCE, None) == [
        ("tmp0", "", ("arg0_1",), ""),
        ("tmp1", "", ("arg1_1",), ""),
        ("tl.store", "", (), "buf0"),
    ]


def test_operands_that_are_keywords() -> None:
    source = triton.SOURCE.replace("tl.sum(tmp5, 1)", "tl.sum(axis=1, input=tmp5)")
    source = source.replace("tl.load(in_ptr0 + (r0_1 + 64*x0), None)", "tl.load(mask=None, pointer=in_ptr0 + x0)")
    assert source != triton.SOURCE
    assert beside(source) == beside(triton.SOURCE)


@pytest.mark.parametrize("value", ["tl.sum(axis=1)", "tl.load()", "float()", "compute()", " + ".join(["tmp0"] * 250)])
def test_an_expression_that_is_not_understood(value: str) -> None:
    known = beside(triton.SOURCE.replace("libdevice.rsqrt(tmp12)", value))
    assert ("tmp2", "add", (), "") in known


def test_a_source_that_is_nested_too_deeply_has_no_origins() -> None:
    assert beside(triton.SOURCE.replace("libdevice.rsqrt(tmp12)", " + ".join(["tmp0"] * 2000))) == []


def test_what_fits_two_operators_has_none() -> None:
    twice = replace(triton.GRAPH, nodes=(*triton.NODES, triton.call("again", "rsqrt", triton.read("add_1"))))
    site = replace(triton.SITE, provenance=replace(triton.PROVENANCE, post_grad_nodes=("rsqrt", "again")))
    reference = replace(triton.REFERENCE, graphs=(replace(twice, buffers=()),))
    assert not any(origin.node for origin in line_origins(triton.KERNEL, site, triton.MANIFEST, reference).values())


def test_a_source_that_is_not_understood_has_no_origins() -> None:
    assert beside("def broken(:\n    tmp0 = tl.load(in_ptr0)\n") == []


@pytest.mark.slow
def test_cpp_kernels_of_a_model(saved: Callable[[str], RunDir]) -> None:
    """Statements that name their operator have it beside them; what is stored is the node that the buffer holds."""
    run = saved("blocks")
    reference, _ = reference_of(run)
    graph = reference.graph("", "run_impl")
    assert graph is not None
    fused = [launch for launch in run.launches if "layer_norm" in launch.kernel]
    assert fused
    for launch in fused:
        kernel = run.manifest.kernel(launch.kernel)
        assert kernel is not None
        origins = line_origins(kernel, launch.site, run.manifest, reference)
        nodes = {origin.node for origin in origins.values()} - {""}
        computed = {n for n in launch.site.provenance.post_grad_nodes if not n.startswith(("view", "permute", "addmm"))}
        assert nodes == computed
        for number, line in enumerate(kernel.source.splitlines(), 1):
            node = origins[number].node if number in origins else ""
            if ".erf()" in line:
                assert re.fullmatch(r"erf(_\d+)?", node), line
            if "std::sqrt(" in line:
                assert re.fullmatch(r"rsqrt(_\d+)?", node), line
        last = {origin.writes: origin.node for _, origin in sorted(origins.items()) if origin.writes}
        held = {buffer: node for buffer, node in graph.held.items() if buffer in last and "getitem" not in node}
        assert held.items() <= last.items() or all(last[b].split("_")[0] in ("add", "mul") for b in held)
