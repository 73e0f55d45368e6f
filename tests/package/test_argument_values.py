from __future__ import annotations

import pytest

from aoti_debug.package.argument_values import extent_elements, ravel, unravel
from tests.factories import tensor


@pytest.mark.parametrize(
    ("shape", "strides", "elements"),
    [((4, 8), (8, 1), 32), ((4, 2), (8, 1), 26), ((4, 2), (0, 1), 2), ((), (), 1), ((0, 8), (8, 1), 0)],
)
def test_how_far_a_tensor_reaches(shape: tuple[int, ...], strides: tuple[int, ...], elements: int) -> None:
    assert extent_elements(shape, strides) == elements
    assert tensor(*shape, strides=strides).layout.extent_bytes == 4 * elements


@pytest.mark.parametrize(("element", "shape", "coordinates"), [(5, (2, 3), (1, 2)), (0, (), ()), (7, (8,), (7,))])
def test_coordinates(element: int, shape: tuple[int, ...], coordinates: tuple[int, ...]) -> None:
    assert unravel(element, shape) == coordinates
    assert ravel(coordinates, shape) == element


@pytest.mark.parametrize(
    ("strides", "distance", "element"),
    [((3, 1), 4, 4), ((1, 2), 3, 4), ((8, 1), 9, 4), ((8, 1), 3, None), ((3, 1), 6, None)],
)
def test_the_element_at_a_place_in_memory(strides: tuple[int, ...], distance: int, element: int | None) -> None:
    assert tensor(2, 3, strides=strides).layout.row_major(distance) == element
