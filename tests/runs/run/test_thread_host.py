from __future__ import annotations

import pytest
import torch

from aoti_debug.runs.run.thread_host import first_difference, input_sets


def test_the_first_element_that_differs() -> None:
    expected = torch.arange(24.0).reshape(2, 3, 4)
    actual = expected.clone()
    actual[1, 0, 2] = 0.5
    actual[1, 2, 3] = -1
    found = first_difference(3, expected, actual)
    assert (found.output, found.index, found.values) == (3, (1, 0, 2), ("14", "0.5"))
    assert (found.different, found.elements) == (2, 24)


def test_bits_are_compared_not_numbers() -> None:
    expected = torch.tensor([0.0, float("nan"), 0.0])
    found = first_difference(0, expected, torch.tensor([0.0, float("nan"), -0.0]))
    assert (found.index, found.values, found.different) == ((2,), ("0", "-0"), 1)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16, torch.complex64])
def test_every_dtype_has_bits(dtype: torch.dtype) -> None:
    expected = torch.tensor([1, 0, 1]).to(dtype)
    found = first_difference(0, expected, torch.tensor([1, 1, 1]).to(dtype))
    assert (found.index, found.different) == ((1,), 1)


def test_the_elements_of_a_view_are_counted_row_major() -> None:
    expected = torch.arange(6.0).reshape(2, 3).t()
    actual = expected.clone()
    actual[1, 1] = 9
    assert first_difference(0, expected, actual).index == (1, 1)


def test_an_output_without_dimensions() -> None:
    assert first_difference(0, torch.tensor(1.0), torch.tensor(2.0)).index == ()


def test_a_sparse_output() -> None:
    expected = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    found = first_difference(0, expected.to_sparse(), torch.tensor([[0.0, 3.0], [0.0, 1.0]]).to_sparse())
    assert (found.index, found.values, found.different, found.elements) == ((0, 1), ("2", "3"), 2, 4)
    other = first_difference(0, expected, expected.to_sparse())
    assert other.values == ("torch.float32 (2, 2)", "torch.float32 (2, 2), torch.sparse_coo")


def test_outputs_of_other_sizes() -> None:
    found = first_difference(1, torch.zeros(2, 3), torch.zeros(3))
    assert (found.index, found.elements) == ((), 0)
    assert found.values == ("torch.float32 (2, 3)", "torch.float32 (3,)")


def test_sets_of_inputs_differ_and_stay_in_range() -> None:
    given = [torch.ones(4), torch.arange(6).reshape(2, 3), torch.linspace(0, 1, 6).reshape(3, 2).t()]
    sets = list(input_sets(given, 4))
    assert all(one is other for one, other in zip(sets[0], given, strict=True))
    for number, changed in enumerate(sets[1:], 1):
        assert changed[1] is given[1]  # indices stay as they are
        assert changed[2].stride() == given[2].stride()
        for other in sets[:number]:
            assert not torch.equal(changed[0], other[0])
            assert not torch.equal(changed[2], other[2])
        assert changed[0].min() >= 0.5
        assert changed[2].max() <= 1


def test_without_floating_inputs_the_integers_are_moved() -> None:
    given = torch.arange(6).reshape(2, 3)
    _, changed = input_sets([given], 2)
    assert changed[0].tolist() == [[5, 0, 1], [2, 3, 4]]


def test_a_tensor_whose_elements_share_memory_stays() -> None:
    given = torch.ones(1).expand(4)
    _, changed = input_sets([given], 2)
    assert changed[0] is given
