"""Graphs of AOT autograd, as the backend gets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd


def traced(function: Callable[..., Any], *inputs: Any, dynamic: bool = False) -> dict[str, torch.fx.GraphModule]:
    """The graphs of one call by their kind: inference, or forward and backward; and of its backward."""
    found: dict[str, torch.fx.GraphModule] = {}

    def compiler(kind: str) -> Callable[..., Any]:
        def keep(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
            found[kind] = graph
            forward: Callable[..., Any] = graph.forward
            return forward

        return keep

    torch._dynamo.reset()
    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        keep_inference_input_mutations=True,
    )
    result = torch.compile(function, backend=backend, dynamic=dynamic)(*inputs)
    if result is not None and result.requires_grad:
        result.sum().backward()
    return found
