"""The parts of the benchmark of PyTorch's operators that judge one program."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from benchmarks.comparison.operator_batch import draws_numbers, is_same
from benchmarks.models import operator_samples
from benchmarks.models.operator_samples import Operator, Sample, Target


def called(name: str, call: object, *values: Tensor | int) -> Operator:
    leaves, spec = pytree.tree_flatten((values[0], values[1:], {}))
    return Operator(name, call, [Sample(tuple(leaves), spec)])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), True),
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), False),
        (torch.ones(2), torch.ones(2, 1), False),
        (torch.arange(6).reshape(2, 3).t(), torch.arange(6).reshape(2, 3).t().contiguous(), True),
        (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j]), True),
        (torch.tensor([True]), torch.tensor([False]), False),
        (torch.empty(0), torch.empty(0), True),
        (torch.tensor([[0, 1]]).to_sparse_csr(), torch.tensor([[0, 1]]).to_sparse_csr(), True),
        (torch.tensor([[0, 1]]).to_sparse_csr(), torch.tensor([[0, 2]]).to_sparse_csr(), False),
        (torch.tensor([[0, 1]]).to_sparse_csr(), torch.tensor([[0, 1]]), False),
    ],
)
def test_outputs_are_compared_bit_for_bit(one: Tensor, other: Tensor, same: bool) -> None:
    assert is_same(one, other) is same


def test_an_operator_that_draws_numbers_is_recognised() -> None:
    x, target = torch.ones(20), Target("cpu", "float32")
    for call, draws in ((torch.nn.functional.dropout, True), (torch.sin, False)):
        program = operator_samples.export([called("it", call, x)], target)
        assert draws_numbers(program.exported) is draws


def test_a_program_calls_each_operator_on_copies_of_its_inputs() -> None:
    x, y = torch.ones(3), torch.full((3,), 2.0)
    operators = [called("add_", lambda a, b: a.add_(b), x, y), called("sub", torch.sub, x, y)]
    program = operator_samples.export(operators, Target("cpu", "float32"))
    assert program.outputs == ("add_", "sub")
    assert [output.tolist() for output in program.exported.module()(*program.inputs)] == [[3.0] * 3, [-1.0] * 3]
    assert x.tolist() == [1.0] * 3


def test_sizes_are_symbols_if_they_may_be() -> None:
    shapes = {}
    for dynamic in (False, True):
        target = Target("cpu", "float32", dynamic)
        program = operator_samples.export([called("sin", torch.sin, torch.ones(3, 5))], target)
        placeholder = next(node for node in program.exported.graph.nodes if node.op == "placeholder")
        shapes[dynamic] = [type(size) for size in placeholder.meta["val"].shape]
    assert shapes == {False: [int, int], True: [torch.SymInt, torch.SymInt]}


def test_a_program_without_inputs_has_no_symbols() -> None:
    program = operator_samples.export([called("arange", torch.arange, 5)], Target("cpu", "float32", dynamic=True))
    assert program.exported.module()()[0].tolist() == [0, 1, 2, 3, 4]
