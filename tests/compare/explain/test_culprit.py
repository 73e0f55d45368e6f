"""The element of the inputs of a computation that makes its result bad."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from aoti_debug.compare.explain.culprit import Culprit, TimeOverError, UndecidedError, find_culprit

ROWS = 1000
FAR = 1 << 36


def found(compute: Callable[..., Tensor], value: str = "", **tensors: Tensor) -> Culprit | None:
    """The culprit of an index that is out of range."""

    def is_bad(changes: Mapping[str, Tensor]) -> bool:
        index = compute(**{**tensors, **changes})
        return bool(((index >= ROWS) | (index < -ROWS)).any())

    assert is_bad({})
    return find_culprit(tensors, is_bad, value)


def ids(*bad: tuple[int, int]) -> Tensor:
    made = torch.arange(20)
    for element, value in bad:
        made[element] = value
    return made


@pytest.mark.parametrize("element", [0, 7, 19])
def test_the_element_of_the_only_tensor(element: int) -> None:
    culprit = found(lambda a: a * 3 + 1, a=ids((element, 5000)))
    assert culprit is not None
    assert (culprit.name, culprit.element, culprit.value, culprit.alone) == ("a", element, "5000", True)


def test_the_tensor_whose_typical_numbers_make_it_good() -> None:
    """The other factor, and the column, are as ever."""
    culprit = found(lambda a, b: a * b, a=ids((3, 5000)), b=torch.full((20,), 40))
    assert culprit is not None
    assert (culprit.name, culprit.element) == ("a", 3)
    culprit = found(lambda row, column: row * 8 + column, row=ids((3, FAR)), column=torch.arange(20) % 8)
    assert culprit is not None
    assert (culprit.name, culprit.element) == ("row", 3)


def test_a_tensor_that_is_bad_everywhere() -> None:
    culprit = found(lambda a: a * 1000, a=torch.full((4,), 3000))
    assert culprit == Culprit("a", 0, "3000", "0", False)


def test_several_elements_together() -> None:
    culprit = found(lambda a: a.sum(), a=torch.full((8,), 200))
    assert culprit is not None
    assert (culprit.name, culprit.element) == ("a", None)


def test_a_large_term_of_a_sum() -> None:
    culprit = found(lambda a: a.cumsum(0), a=ids((4, FAR)))
    assert culprit is not None
    assert (culprit.name, culprit.element) == ("a", 4)


def test_two_tensors_that_are_both_needed() -> None:
    assert found(lambda a, b: a + b, a=ids((3, 700)), b=ids((3, 700))) is None


def test_of_two_tensors_the_one_that_holds_the_number() -> None:
    """A table of pages, and the place in it."""
    pages, at = ids((6, FAR)), torch.tensor([1, 6, 6, 0, 2])
    culprit = found(lambda pages, at: pages[at], value=str(FAR), pages=pages, at=at)
    assert culprit is not None
    assert (culprit.name, culprit.element) == ("pages", 6)


def test_a_mask_is_no_culprit_beside_numbers() -> None:
    mask = torch.arange(20) == 3
    culprit = found(lambda mask, a: torch.where(mask, a * 2, 0), mask=mask, a=ids((3, FAR)))
    assert culprit is not None
    assert culprit.name == "a"
    culprit = found(lambda mask: mask * FAR, mask=mask)
    assert culprit is not None
    assert (culprit.name, culprit.element, culprit.value) == ("mask", 3, "True")


def test_a_float_that_is_divided_by() -> None:
    norm = torch.ones(20)
    norm[9] = 0
    culprit = found(lambda x, norm: (x / norm).long(), x=torch.ones(20), norm=norm)
    assert culprit is not None
    assert (culprit.name, culprit.element, culprit.value) == ("norm", 9, "0.0")


def test_no_tensor_at_all() -> None:
    assert found(lambda a: a * 0 + FAR, a=ids()) is None


def test_trials_that_cannot_be_judged_name_nothing() -> None:
    def undecided(changes: Mapping[str, Tensor]) -> bool:
        raise UndecidedError("another fault")

    assert find_culprit({"a": ids()}, undecided) is None


def test_the_end_of_the_time_is_not_an_answer() -> None:
    def late(changes: Mapping[str, Tensor]) -> bool:
        raise TimeOverError("no answer")

    with pytest.raises(TimeOverError):
        find_culprit({"a": ids()}, late)
