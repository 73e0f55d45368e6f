"""The node of a graph that torch worked on when it raised an exception; imports torch."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import CodeType
from typing import Any

from aoti_debug.package.recording import stack_frames

_NAMES = ("node", "n", "fx_node", "target_node", "user")  # what functions of torch call the node that they work on
_OUTER = ("torch/_inductor/compile_fx.py", "torch/_functorch/aot_autograd.py")  # they work on graphs
_INTERPRETER = "torch/fx/interpreter.py"


def node_at_work(error: BaseException | None) -> str:
    """Says which call the innermost function worked on that had one; "" if none had."""
    for code, line, node in _nodes(error):
        lines = stack_frames.own_frames([str(node.meta.get("stack_trace") or "")])
        at = f", {lines[0].place}: {lines[0].text.strip()}" if lines else ""
        return f"{code.co_name} ({code.co_filename}:{line}) raised it at node {node.name}, a call of {node.target}{at}"
    return ""


def traced_node(error: BaseException | None) -> Any:
    """The torch.fx.Node of the exported program that torch traced when it raised an exception; None if it did not."""
    traced = (node for code, _, node in _nodes(error) if code.co_filename.endswith(_INTERPRETER))
    return next(traced, None)


def _nodes(error: BaseException | None) -> Iterator[tuple[CodeType, int, Any]]:
    """Yields the calls that functions worked on, innermost first, each with the function and its line."""
    import torch

    frames = [] if error is None else list(traceback.walk_tb(error.__traceback__))
    for frame, line in reversed(frames):
        if frame.f_code.co_filename.endswith(_OUTER):
            return
        node = next((frame.f_locals[name] for name in _NAMES if name in frame.f_locals), None)
        if isinstance(node, torch.fx.Node) and node.op == "call_function":
            yield frame.f_code, line, node
