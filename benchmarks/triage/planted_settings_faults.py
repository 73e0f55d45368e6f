"""Faults of single settings, passes, lowerings and decompositions.

`--import benchmarks.triage.planted_settings_faults` plants one. AOTI_PLANTED_FAULT names it: a key of FAULTS, or
several with commas between them. Each is planted from outside in the installed torch, in the process that imports this
module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from benchmarks.comparison import wrong_lowerings

VARIABLE = "AOTI_PLANTED_FAULT"
WRONG_LOWERINGS = ("relu for abs", "sum one short", "exp by three per cent", "cat reversed")


def _replaced(graph: Any, wrong: str, by: str) -> None:
    """Makes the nodes of a graph that call one operator of aten call another."""
    import torch

    first, second = (getattr(getattr(torch.ops.aten, name.split(".")[0]), name.split(".")[1]) for name in (wrong, by))
    for node in graph.nodes:
        if node.target is first:
            node.target = second


def _custom_pass(setting: str) -> None:
    """A pass of the user's that takes tanh for sigmoid."""
    import torch._inductor.config

    setattr(torch._inductor.config, setting, lambda graph: _replaced(graph, "tanh.default", "sigmoid.default"))


def _swapping_pattern() -> None:
    """A pattern of the joint graph that swaps the operands of a subtraction."""
    import torch
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.pattern_matcher import CallFunction, KeywordArg, Match, register_graph_pattern

    pattern = CallFunction(torch.ops.aten.sub.Tensor, KeywordArg("a"), KeywordArg("b"))

    @register_graph_pattern(pattern, pass_dict=joint_graph.patterns)
    def swap(match: Match, a: Any, b: Any) -> None:
        node = match.output_node()
        if not node.meta.get("swapped"):
            node.meta["swapped"] = True
            node.args = (b, a)


def _sine_is_nothing() -> None:
    """An operator that is taken for one without effect."""
    import torch
    from torch._inductor.fx_passes import post_grad

    post_grad.noop_registry[torch.ops.aten.sin.default] = (lambda *_: True, 0)


def _doubled_constants() -> None:
    """Folding of constants that are the same in all elements, which doubles them."""
    import torch
    from torch._inductor.fx_passes import joint_graph

    right = joint_graph.constant_fold_uniform_value

    def wrong(module: Any) -> None:
        right(module)
        for node in module.graph.nodes:
            if node.target is torch.ops.aten.full.default and isinstance(node.args[1], float):
                node.args = (node.args[0], 2 * node.args[1], *node.args[2:])

    joint_graph.constant_fold_uniform_value = wrong


def _decomposition() -> None:
    """silu(x) = x * sigmoid(2 * x)."""
    import torch
    from torch._inductor.decomposition import decompositions

    decompositions[torch.ops.aten.silu.default] = lambda x: x * torch.sigmoid(2 * x)


def _vectors() -> None:
    """A vectorized exponential function that is 1 % too large."""
    from torch._inductor.codegen.cpp import CppVecOverrides

    right = CppVecOverrides.exp
    CppVecOverrides.exp = staticmethod(lambda x: f"(decltype({x})(1.01f) * {right(x)})")


def _fusion() -> None:
    """An exponential function that is 1 % too large in kernels of several operations."""
    from torch._inductor.codegen import cpp

    is_fused = [False]
    right = cpp.CppScheduling.codegen_node

    def codegen_node(self: Any, node: Any) -> None:
        is_fused[0] = len(node.get_nodes()) > 1
        right(self, node)
        is_fused[0] = False

    cpp.CppScheduling.codegen_node = codegen_node
    _wrong_exp(lambda: is_fused[0])


def _wrong_exp(applies: Callable[[], bool]) -> None:
    """Generates an exponential function that is 1 % too large, of numbers and of vectors, where that applies."""
    from torch._inductor.codegen import cpp

    for overrides in (cpp.CppOverrides, cpp.CppVecOverrides):

        def wrong(x: Any, right: Callable[[Any], str] = overrides.exp) -> str:
            return f"(decltype({x})(1.01f) * {right(x)})" if applies() else right(x)

        overrides.exp = staticmethod(wrong)


def _chunks() -> None:
    """An exponential function that is 1 % too large where loops are cut into small chunks for threads."""
    from torch._inductor import config

    _wrong_exp(lambda: config.cpp.min_chunk_size < 512)


def _lowering(name: str) -> Callable[[], None]:
    return lambda: wrong_lowerings.plant(name)


FAULTS: dict[str, Callable[[], None]] = {
    **{name: _lowering(name) for name in WRONG_LOWERINGS},
    "silu of twice": _decomposition,
    "custom pass after autograd": lambda: _custom_pass("post_grad_custom_post_pass"),
    "custom pass of the joint graph": lambda: _custom_pass("joint_custom_pre_pass"),
    "pattern that swaps operands": _swapping_pattern,
    "sine is nothing": _sine_is_nothing,
    "doubled constants": _doubled_constants,
    "exp of vectors": _vectors,
    "exp in fused kernels": _fusion,
    "exp of small chunks": _chunks,
}

for _name in filter(None, os.environ.get(VARIABLE, "").split(",")):
    FAULTS[_name]()
