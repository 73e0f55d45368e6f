"""Operators of an exported program that do what its graph does not say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.worker.exported_program import undefined_results
from tests.compare.evaluate.test_exported_calls import calls, exported


class Half(nn.Module):
    """Two parts of fresh memory: one is written as a whole, of the other one half is."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        written, half = torch.empty_like(x), torch.empty_like(x)
        written.copy_(x)
        half[:1] = x[:1]
        return written, half.sum()


def found(module: nn.Module, x: Tensor) -> list[tuple[int, ...]]:
    """The outputs that change with each operator that is named."""
    program = exported(module, x)
    source: Any = SimpleNamespace(program=lambda _: calls(program, x), trials={})
    return [result.outputs for result in undefined_results(source, source.program(Arithmetic.EAGER))]


def test_memory_that_is_read_unwritten_is_named_with_the_outputs() -> None:
    assert found(Half(), torch.ones(2, 3)) == [(1,)]


def test_an_operator_that_refuses_other_numbers_hides_no_other_one() -> None:
    @torch.library.custom_op("aoti_debug_test_program::finite", mutates_args={})
    def finite(x: Tensor) -> Tensor:
        if not bool(x.isfinite().all()):
            raise ValueError("it is not finite")
        return x.sum()

    @finite.register_fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(())

    class Refuses(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return finite(torch.empty_like(x)), torch.empty_like(x)

    assert found(Refuses(), torch.ones(2, 3)) == [(1,)]
