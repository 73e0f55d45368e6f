"""The frames of stack traces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aoti_debug.package.manifest import Certainty, Kind, ModelLine, Provenance, Site
from aoti_debug.package.origins import frames, own_frames, own_nodes
from tests.factories import make_manifest, site

ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


def of(op: str, *nodes: str) -> Site:
    provenance = Provenance(Certainty.EXACT, post_grad_nodes=nodes)
    return site(f"k_{op}", op=op, kind=Kind.SHIM_OUT if op else Kind.CPP, provenance=provenance)


def own(*sites: Site) -> list[tuple[str, ...]]:
    numbered = make_manifest(*sites).sites
    return [own_nodes(one, numbered) for one in numbered]


def test_an_operator_and_the_kernel_that_prepares_its_arguments() -> None:
    kernel, operator = of("", ATTENTION, "view_6", "add"), of(f"aten.{ATTENTION}.default", ATTENTION, "view_6", "add")
    assert own(kernel, operator) == [("view_6", "add"), (ATTENTION,)]


@pytest.mark.parametrize(
    ("op", "node"),
    [("aten.addmm.out", "addmm_3"), ("aten.index_put_.default", "index_put"), ("mylib::op.default", "op_1")],
)
def test_nodes_that_are_named_after_an_operator(op: str, node: str) -> None:
    assert own(of(op, "view", node, f"{node}_x")) == [(node,)]


def test_a_kernel_that_the_user_wrote_computes_none_of_its_arguments() -> None:
    kernel, other = of("", "triton_kernel_wrapper_mutation_1", "sin", "mul"), of("", "sin", "mul")
    assert own(kernel, other) == [("triton_kernel_wrapper_mutation_1",), ("sin", "mul")]
    assert own(of("", "add", "triton_kernel_wrapper_mutation")) == [("add", "triton_kernel_wrapper_mutation")]


def test_all_nodes_where_none_can_be_told_apart() -> None:
    assert own(of("aten.mm.out", "view", "add"), of("", "view", "add"), of("")) == [
        ("view", "add"),
        ("view", "add"),
        (),
    ]
    alone = of("", "mm")
    assert own(of("aten.mm.out", "mm"), replace(alone, kernel="prepares")) == [("mm",), ("mm",)]


LAYER = (
    '  File "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 134, in forward\n'
    "    return F.linear(x)"
)
MODEL = 'File "/home/user/model.py", line 11, in forward\n    h = F.gelu(self.l1(x))'
HELPER = '  File "/venv/lib/python3.12/site-packages/helpers/norm.py", line 7, in norm\n    return x / x.norm()'
TRACED = '  File "<eval_with_key>.5", line 9, in forward\n    cond = torch.ops.higher_order.cond(a, b)'


def test_frames_are_read_outermost_first() -> None:
    assert frames(f"{MODEL}\n{LAYER}") == (
        ModelLine("/home/user/model.py", 11, "forward", "h = F.gelu(self.l1(x))"),
        ModelLine(
            "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", 134, "forward", "return F.linear(x)"
        ),
    )


def test_a_frame_may_lack_its_line() -> None:
    stack = 'File "/a.py", line 1, in f\nFile "/b.py", line 2, in g'
    assert frames(stack) == (ModelLine("/a.py", 1, "f", ""), ModelLine("/b.py", 2, "g", ""))


@pytest.mark.parametrize(
    ("stack", "file"),
    [
        (f"{MODEL}\n{LAYER}", "/home/user/model.py"),
        (f"{MODEL}\n{HELPER}\n{LAYER}", "/venv/lib/python3.12/site-packages/helpers/norm.py"),
        (f"{MODEL}\n{TRACED}", "/home/user/model.py"),
        (f"{MODEL}\n" + LAYER.replace("/venv/lib/python3.12/site-packages", "/src/pytorch"), "/home/user/model.py"),
        (MODEL.replace("/home/user", "/home/torch/fx_models"), "/home/torch/fx_models/model.py"),
    ],
)
def test_the_innermost_frame_that_is_not_torchs(stack: str, file: str) -> None:
    assert [frame.file for frame in own_frames([stack])] == [file]


def test_each_line_is_named_once() -> None:
    assert len(own_frames([MODEL, f"{MODEL}\n{LAYER}", LAYER])) == 1
