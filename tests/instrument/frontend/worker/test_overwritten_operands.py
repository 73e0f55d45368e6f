"""Which operator overwrites what its loop is passed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.instrument.frontend.worker.overwritten_operands import overwritten_operands


@torch.library.custom_op("test_overwritten_operands::bump", mutates_args={"x"})
def bump(x: Tensor, by: Tensor) -> None:
    x.add_(by)


class Loop(nn.Module):
    def __init__(self, copies: bool) -> None:
        super().__init__()
        self.copies = copies

    def forward(self, start: Tensor, by: Tensor) -> Tensor:
        def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            own = x.clone() if self.copies else x
            bump(own, by)
            return i + 1, own * 1.5

        count = torch.zeros((), dtype=torch.int64)
        return torch._higher_order_ops.while_loop(lambda i, _: i < 4, step, (count, start.sin()))[1]


@pytest.mark.parametrize("copies", [False, True])
def test_the_operator_that_overwrites_what_a_loop_carries(copies: bool) -> None:
    with torch.no_grad():  # otherwise the export itself refuses
        program = torch.export.export(Loop(copies), (torch.randn(8), torch.randn(8)))
    error = RuntimeError("body_fn might be modifying the input!")
    said = overwritten_operands(program, error)
    if copies:
        assert said == ""
    else:
        assert said.startswith("test_overwritten_operands.bump.default overwrites ")
        assert "which while_loop is passed, in while_loop_body_graph_0 (test_overwritten_operands.py:" in said
    assert overwritten_operands(program, RuntimeError("no such layout")) == ""
