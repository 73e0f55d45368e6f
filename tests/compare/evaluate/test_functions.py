from __future__ import annotations

import pytest
import torch

from aoti_debug.compare.evaluate.functions import NotEvaluableError, implementation_of, operator_of


def test_an_operator_and_a_function_of_python() -> None:
    assert operator_of("aten.add.Tensor") is torch.ops.aten.add.Tensor
    assert operator_of("_operator.getitem")([3, 4], 1) == 4


@pytest.mark.parametrize("target", ["aoti_debug.print_.default", "aoti_debug.inspect_.default"])
def test_prints_and_inspectors_do_nothing(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_of(target)("x={}", [torch.ones(2)], []) is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("target", "reason"),
    [("aten.no_such_operator.default", "is not known here"), ("higher_order.cond", "has no evaluation of its own")],
)
def test_what_cannot_be_evaluated(target: str, reason: str) -> None:
    with pytest.raises(NotEvaluableError, match=reason):
        operator_of(target)


def test_an_operator_of_prims_is_computed_in_terms_of_aten() -> None:
    function = implementation_of("prims.convert_element_type.default")
    assert torch.equal(function(torch.tensor([1.5, 2.5]), torch.int64), torch.tensor([1, 2]))
