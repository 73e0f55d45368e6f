"""A Triton kernel as Inductor writes it, and the graph that it was generated from: add and normalise."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.package.manifest import Arg, Certainty, Form, Kernel, Kind, Manifest, ModelLine, Provenance, Role, Site
from aoti_debug.package.program_graphs import FORMAT, MODEL, BufferValue, Graph, Node, NodeKind, Reference
from tests.factories import arg, make_manifest, site

NAME = "triton_per_fused_add_native_layer_norm_0"
SOURCE = f"""\
@triton.jit
def {NAME}(in_ptr0, in_ptr1, out_ptr2, xnumel, r0_numel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    tmp0 = tl.load(in_ptr0 + (r0_1 + 64*x0), None)
    tmp1 = tl.load(in_ptr1 + (r0_1 + 64*x0), None).to(tl.float32)
    tmp2 = tmp0 + tmp1
    tmp3 = tl.broadcast_to(tmp2, [XBLOCK, R0_BLOCK])
    tmp5 = tl.where(xmask, tmp3, 0)
    tmp6 = tl.sum(tmp5, 1)[:, None].to(tl.float32)
    tmp7 = tl.full([XBLOCK, 1], 64, tl.int32)
    tmp9 = (tmp6 / tmp7)
    tmp10 = tmp2 - tmp9
    tmp11 = 1e-05
    tmp12 = tmp9 + tmp11
    tmp13 = libdevice.rsqrt(tmp12)
    tmp14 = tmp10 * tmp13
    tl.store(out_ptr2 + (r0_1 + 64*x0), tmp14, None)
"""
PLACE = "/home/u/model.py"
LINES = (ModelLine(PLACE, 12, "forward", "h = x + y"), ModelLine(PLACE, 13, "forward", "return self.norm(h)"))


def read(name: str) -> dict[str, str]:
    return {"node": name}


def call(name: str, operator: str, *args: object, line: int = 1) -> Node:
    target = operator if "." in operator else f"aten.{operator}.default"
    return Node(name, NodeKind.CALL, target, args, line=line, module="norm" if line else "")


NODES = (
    Node("arg0_1", NodeKind.INPUT),
    Node("arg1_1", NodeKind.INPUT),
    call("half", "prims.convert_element_type.default", read("arg1_1"), {"dtype": "float32"}, line=0),
    call("add", "add", read("arg0_1"), read("half"), line=0),
    call("mean", "mean", read("add"), [1], True),
    call("sub", "sub", read("add"), read("mean")),
    call("add_1", "add", read("mean"), 1e-05),
    call("rsqrt", "rsqrt", read("add_1")),
    call("mul", "mul", read("sub"), read("rsqrt")),
)
GRAPH = Graph("", MODEL, NODES, (BufferValue("buf0", "mul"),))
REFERENCE = Reference(FORMAT, "2.13.0", (GRAPH,), LINES)
KERNEL = Kernel(NAME, "triton", SOURCE, "ab" * 32, num_warps=4)


def pointer(name: str, param: str, role: Role = Role.IN) -> Arg:
    return replace(arg(name, role, Form.POINTER), param=param, base=name)


PROVENANCE = Provenance(
    Certainty.EXACT, source=LINES[::-1], post_grad_nodes=("mul", "rsqrt", "add_1", "sub", "mean", "add", "half")
)
SITE: Site = site(
    NAME,
    pointer("arg0_1", "in_ptr0"),
    pointer("arg1_1", "in_ptr1"),
    pointer("buf0", "out_ptr2", Role.OUT),
    kind=Kind.TRITON,
    launches=(NAME,),
    provenance=PROVENANCE,
)
MANIFEST: Manifest = make_manifest(SITE, kernels=(KERNEL,), device="cuda")
