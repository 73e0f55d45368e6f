from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch._inductor.config as config

from aoti_debug.instrument.frontend.worker.reference_graphs import record_layouts
from aoti_debug.instrument.wrapper import promised_layouts
from aoti_debug.package.inputs.signature import Dim, Leaf
from aoti_debug.package.manifest import Promise
from tests import paths

GOLDEN = paths.GOLDEN / "promises"

# As torch 2.11 writes it: without the distances to its inputs that 2.13 tells of an operation.
TORCH_2_11 = """AFTER FUSION
op0: ExternKernelSchedulerNode(FallbackKernel)
op0.writes = [StarDep(name='buf0', mode=None)]
op0.unmet_dependencies = []
op0.met_dependencies = [StarDep(name='arg1_1', mode=None)]
op0.outputs = [
    buf0: FallbackKernel
    buf0.layout = MultiOutputLayout(device=device(type='cuda', index=0))
    buf0.users = [NodeUser(node=ExternKernelSchedulerNode(name='op1'), can_inplace=False, is_weak=False)]
]
op0.node.kernel = mylib.op.default


op1: ExternKernelSchedulerNode(MultiOutput)
op1.outputs = [
    buf1: MultiOutput
    buf1.layout = FixedLayout('cuda:0', torch.bfloat16, size=[s77, 3, Max(1, 2*u0)], stride=[3*Max(1, 2*u0), 1, 3])
    buf1.aliases = ['buf0']
]


op2: ExternKernelSchedulerNode(ExternKernelOut)
op2.outputs = [
    buf2: ExternKernelOut
    buf2.layout = NonOwningLayout('cuda:0', torch.float32, size=[4, 8], stride=[16, 1], offset=8, is_pinned=True)
    buf3: MutationOutput
    buf3.layout = MutationLayoutSHOULDREMOVE('cuda:0', torch.float32, size=[4, 8], stride=[8, 1])
    buf4: ComputedBuffer
    buf4.layout = FixedLayout('cpu', torch.int64, size=[], stride=[])
]
op2.sizes = ([4, 8], [])
buf1_layout = FixedLayout('cuda:0', torch.float32, size=[1], stride=[1])
"""


def texts(layouts: tuple[Promise, ...]) -> list[str]:
    return [
        f"{p.function} {p.name} {p.device} {p.dtype} [{' | '.join(p.sizes)}] [{' | '.join(p.strides)}]" for p in layouts
    ]


@pytest.mark.parametrize("name", ["fold", "control", "sizes"])
def test_reads_real_logs(golden: Callable[[Path, str], None], name: str) -> None:
    graphs = (GOLDEN / f"{name}.torch-2.13.log").read_text().split("\n=====\n")
    layouts, unparsed = promised_layouts.parse(graphs)
    assert unparsed == ()
    golden(GOLDEN / f"{name}.promises.txt", "\n".join(texts(layouts)) + "\n")


def test_reads_the_form_of_torch_2_11() -> None:
    layouts, unparsed = promised_layouts.parse([TORCH_2_11])
    assert unparsed == ()
    assert texts(layouts) == [
        "run_impl buf1 cuda:0 bfloat16 [s77 | 3 | Max(1, 2*u0)] [3*Max(1, 2*u0) | 1 | 3]",
        "run_impl buf2 cuda:0 float32 [4 | 8] [16 | 1]",
        "run_impl buf4 cpu int64 [] []",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "buf0.layout = FixedLayout(device=cpu, dtype=torch.float32, size=[4], stride=[1])",
        "buf0.layout = FixedLayout('cpu', torch.float32, size=[4, 2], stride=[1])",
        "buf0.layout = SomeLayout('cpu', torch.float32, size=[4], stride=[1])",
        "buf0.layout = FixedLayout('cpu', torch.float32)",
    ],
)
def test_unknown_forms_are_reported(line: str) -> None:
    assert promised_layouts.parse([f"    {line}\n    {line}\n"]) == ((), (line,))


def test_promises_that_contradict_each_other_are_none() -> None:
    one = "buf0.layout = FixedLayout('cpu', torch.float32, size=[4], stride=[1])\n"
    assert texts(promised_layouts.parse([one + one])[0]) == ["run_impl buf0 cpu float32 [4] [1]"]
    assert promised_layouts.parse([one + one.replace("float32", "float64")]) == ((), ())


def test_graphs_of_branches_alone_belong_to_the_model() -> None:
    branch = "true_graph_0_buf1.layout = FixedLayout('cpu', torch.float32, size=[4], stride=[1])\n"
    layouts, _ = promised_layouts.parse([branch, branch.replace("true", "false")])
    assert texts(layouts) == [
        "run_impl true_graph_0_buf1 cpu float32 [4] [1]",
        "run_impl false_graph_0_buf1 cpu float32 [4] [1]",
    ]


def test_nothing_promised() -> None:
    assert promised_layouts.parse([]) == ((), ())
    assert promised_layouts.parse(["AFTER FUSION\n"]) == ((), ())


def test_promises_of_inputs() -> None:
    x = Leaf("x", "torch.float32", "cuda:0", (Dim(2, 9, "s77"), Dim(4, 4)), (4, 1))
    y = Leaf("y", "torch.int64", "cpu", (Dim(0, -1, "2*s77"),), ("1",))
    old = Leaf("z", "torch.int64", "cpu", (Dim(3, 3),))  # of a package that did not keep symbolic strides
    number = Leaf("n", constant="2")
    assert texts(promised_layouts.input_layouts(("arg0_1", "arg2_1", "arg3_1"), (x, number, y, old))) == [
        "run_impl arg0_1 cuda:0 float32 [s77 | 4] [4 | 1]",
        "run_impl arg2_1 cpu int64 [2*s77] [1]",
        "run_impl arg3_1 cpu int64 [3] []",
    ]
    assert promised_layouts.input_layouts(("arg0_1",), (x, y)) == ()


@dataclass
class Buffer:
    """What the pass needs of Inductor's SchedulerBuffer."""

    name: str
    node: Any

    def get_name(self) -> str:
        return self.name


@dataclass
class Operation:
    outputs: list[Buffer]

    def get_outputs(self) -> list[Buffer]:
        return self.outputs


@dataclass
class Node:
    layout: str


def test_the_pass_notes_layouts_and_changes_nothing() -> None:
    operations = [Operation([Buffer("buf0", Node("A")), Buffer("buf1", Node("B"))]), Operation([])]
    before = config._post_fusion_custom_pass
    with record_layouts() as layouts:
        assert config._post_fusion_custom_pass(operations) is operations
        assert config._post_fusion_custom_pass([]) == []
    assert config._post_fusion_custom_pass is before
    assert (layouts.graphs, layouts.failure) == (["buf0.layout = A\nbuf1.layout = B\n", ""], "")


def test_the_pass_runs_the_users_own_one_first() -> None:
    with (
        config.patch({"_post_fusion_custom_pass": lambda nodes: nodes[1:]}),
        record_layouts() as layouts,
    ):
        assert config._post_fusion_custom_pass([Operation([Buffer("buf0", Node("A"))])]) == []
    assert layouts.graphs == [""]


def test_the_pass_does_not_stop_the_lowering() -> None:
    with record_layouts() as layouts:
        assert config._post_fusion_custom_pass([3]) == [3]
    assert layouts.failure == "AttributeError: 'int' object has no attribute 'get_outputs'"
