"""The elements of outputs that rounding does not decide."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from aoti_debug.compare.worker.altered import WrongOutput
from aoti_debug.compare.worker.returned_outputs import undecided
from aoti_debug.runs.run import saved_outputs

EXACT = torch.arange(8.0)


def left(folder: Path, actual: torch.Tensor, otherwise: torch.Tensor, *, is_random: bool = False) -> list[int]:
    """The elements that are left of an output that is wrong as a whole.

    Args:
        otherwise: what the program returns in float64 when operators round otherwise.
    """
    saved_outputs.save([EXACT.to(actual.dtype)], folder / "double")
    program = SimpleNamespace(call=lambda: [otherwise])
    source: Any = SimpleNamespace(
        is_random=is_random, run=SimpleNamespace(calls=1), program=lambda arithmetic, noise: program
    )
    outputs = {0: WrongOutput(actual, torch.ones(8, dtype=torch.bool))}
    found = undecided(source, outputs, saved_outputs.saved(folder / "double"))
    return found[0].elements.nonzero().reshape(-1).tolist() if 0 in found else []


def changed(*elements: int, by: float = 1.0) -> torch.Tensor:
    values = EXACT.clone()
    values[list(elements)] += by
    return values


def test_one_wrong_element_among_many_right_ones_is_left(tmp_path: Path) -> None:
    assert 3 in left(tmp_path, changed(3), EXACT + 1e-6)


def test_what_other_rounding_makes_about_as_far_off_is_not_left(tmp_path: Path) -> None:
    assert left(tmp_path, changed(3), changed(3)) == []
    assert left(tmp_path, changed(1, 2, 3, 4), changed(1, 2, 3)) == [], "most of them"
    assert {2, 3, 4} <= {*left(tmp_path, changed(1, 2, 3, 4), changed(1))}
    assert 1 not in left(tmp_path, changed(1, 2, 3, 4), changed(1))


def test_random_numbers_are_not_moved(tmp_path: Path) -> None:
    assert 3 in left(tmp_path, changed(3), changed(3), is_random=True)


def test_a_number_in_the_place_of_a_nan_is_left_whatever_rounding_moves(tmp_path: Path) -> None:
    actual = changed(1, 2, 3, 4)
    actual[6] = torch.nan
    assert left(tmp_path, actual, changed(1, 2, 3, 4)).count(6) == 1
