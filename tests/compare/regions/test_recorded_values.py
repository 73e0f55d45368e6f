"""The values that recorded tensors hold, and what a launch has written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.compare.regions.recorded_values import RecordedValues
from aoti_debug.package.manifest import Kind
from aoti_debug.package.program_graphs import (
    FORMAT,
    HIGHER_ORDER,
    MEMBER_OF,
    MODEL,
    BufferValue,
    Graph,
    Node,
    NodeKind,
    Reference,
)
from tests.factories import triton_kernel
from tests.triage.recorder import Recorder

REFERENCE = Reference(FORMAT, "2.13", (), ())
STORES = "    tl.store(out_ptr0 + (x0), tmp0, xmask)\n"


@pytest.mark.parametrize(
    ("source", "changes", "written"),
    [
        (STORES, False, ["buf1"]),
        (STORES, True, ["buf1"]),
        (STORES + "    tl.store(in_out_ptr0 + (x0), tmp1, xmask)\n", False, ["buf1", "buf0"]),
        (STORES + "    tl.atomic_add(in_out_ptr0 + (x0), tmp1, xmask)\n", False, ["buf1", "buf0"]),
        (STORES + "    tmp2 = tl.load(in_out_ptr0 + (x0), xmask)\n", False, ["buf1"]),
        ("", False, ["buf1", "buf0"]),
    ],
)
def test_a_buffer_that_a_kernel_takes_as_written_and_never_stores_to(
    tmp_path: Path, source: str, changes: bool, written: list[str]
) -> None:
    kernel = replace(triton_kernel("triton_poi_fused_add_0"), source=source)
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf1",), kernels=(kernel,))
    recorder.journal.call_begin()
    before, after = torch.zeros(4), torch.ones(4)
    recorder.launch(
        kernel.name,
        {"arg0": before},
        {"buf1": after},
        changes={"buf0": (before, after if changes else before)},
        kind=Kind.TRITON,
    )
    run = recorder.run()
    values = RecordedValues(run, REFERENCE)
    assert [write.argument.name for write in values.writes[run.launches[0].key]] == written


def calling(target: str, *bodies: Graph) -> Reference:
    """A program that adds to the result of an operator that takes graphs."""
    subgraphs = tuple(Node(body.name, NodeKind.SUBGRAPH, body.name) for body in bodies)
    passed = tuple({"node": body.name} for body in bodies)
    nodes = (
        Node("arg0", NodeKind.INPUT),
        *subgraphs,
        Node("called", NodeKind.CALL, target, args=(*passed, {"node": "arg0"})),
        *(Node(f"member{i}", NodeKind.CALL, MEMBER_OF, args=({"node": "called"}, i)) for i in range(2)),
        Node("add", NodeKind.CALL, "aten.add.Tensor", args=({"node": "member1"}, 1)),
    )
    return Reference(FORMAT, "2.13", (Graph("", MODEL, nodes, (BufferValue("buf2", "add"),)), *bodies), ())


def body(name: str) -> Graph:
    nodes = (
        Node("arg0", NodeKind.INPUT),
        Node("sin", NodeKind.CALL, "aten.sin.default", args=({"node": "arg0"},)),
        Node("output", NodeKind.OUTPUT, args=([{"node": "arg0"}, {"node": "sin"}],)),
    )
    return Graph(name, MODEL, nodes, (BufferValue(f"{name}_buf0", "sin"),))


@pytest.mark.parametrize(
    ("target", "read"),
    [("cond", "member1"), ("invoke_subgraph", "member1"), ("while_loop", "None")],
)
def test_a_result_of_a_branch_or_region_that_is_overwritten_is_known(tmp_path: Path, target: str, read: str) -> None:
    """A buffer that takes over its memory has another name."""
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf2",))
    recorder.journal.call_begin()
    before, inside, after = torch.zeros(4), torch.ones(4), torch.ones(4) * 2
    name = "true_graph_0_buf0"
    recorder.launch("cpp_fused_sin_0", {"arg0": before}, {name: inside}, subgraph="true_graph_0")
    recorder.take_over("buf2", name)
    recorder.launch("cpp_fused_add_1", {}, {}, changes={"buf2": (inside, after)})
    run = recorder.run()
    reference = calling(f"{HIGHER_ORDER}{target}", body("true_graph_0"), body("false_graph_0"))
    (found,) = RecordedValues(run, reference).reads[run.launches[1].key]
    assert str(found.value) == read
