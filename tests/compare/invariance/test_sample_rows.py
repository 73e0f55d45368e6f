from __future__ import annotations

import pytest
import torch

from aoti_debug.compare.invariance.sample_rows import (
    PlacedTensor,
    RowsRelation,
    SampleExtent,
    SplitAxis,
    maps_of,
    row_maps,
    rows_difference,
)
from tests.saved_tensors import stored

WHOLE = SplitAxis(0, 0)
ALONE = SampleExtent(size=1, place=0, width=1)


def placed(tensor: torch.Tensor, extent: SampleExtent) -> PlacedTensor:
    return PlacedTensor(stored(tensor), tuple(tensor.shape), extent)


def batch(rows: torch.Tensor, place: int = 0) -> PlacedTensor:
    return placed(rows, SampleExtent(size=4, place=place, width=1))


def test_an_axis_that_is_the_varied_size() -> None:
    assert row_maps((1, 8), 1, (4, 8), 4) == ((SplitAxis(1, 1), WHOLE),)


def test_an_axis_that_holds_several_rows_of_each_sample() -> None:
    found = row_maps((6, 8), 1, (24, 8), 4)
    assert {one[0] for one in found} == {SplitAxis(1, 6), SplitAxis(2, 3), SplitAxis(3, 2), SplitAxis(6, 1)}


def test_an_axis_with_more_elements_than_the_rows() -> None:
    assert row_maps((3, 8), 1, (9, 8), 4) == ((SplitAxis(1, 2, 0, 1), WHOLE), (SplitAxis(1, 2, 1, 0), WHOLE))


@pytest.mark.parametrize("first", [True, False])
def test_rows_before_or_after_more_elements(*, first: bool) -> None:
    more, x, y = torch.zeros(1, 2), torch.randn(4, 2), torch.randn(4, 2)
    y[:1] = x[:1]
    together = [torch.cat([more, rows] if first else [rows, more]) for rows in (x[:1], x, y)]
    alone, among, control = placed(together[0], ALONE), batch(together[1]), batch(together[2])
    maps = maps_of(alone, among, control)
    assert maps is not None
    assert (SplitAxis(1, 1, int(first), int(not first)), WHOLE) in maps
    assert rows_difference(alone, among, maps).relation is RowsRelation.EQUAL
    together[1][int(first), 0] += 1
    assert rows_difference(alone, batch(together[1]), maps).relation is not RowsRelation.EQUAL


def test_interleaved_rows_with_more_elements_are_not_known() -> None:
    """Not said to be changed by the others: two samples of the batch, one after the other, have a token more each."""
    x, y = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    y[:, :1] = x[:, :1]
    tokens = torch.zeros(2, 1, 3)
    alone, among, control = (torch.cat([tokens, rows], 1).flatten(0, 1) for rows in (x[:, :1], x, y))
    assert maps_of(placed(alone, ALONE), batch(among), batch(control)) is None


@pytest.mark.parametrize(("first", "second"), [((1, 8), (4, 9)), ((2, 8), (7, 8)), ((2, 8), (4, 8)), ((1,), (1, 4))])
def test_shapes_that_do_not_say(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert row_maps(first, 1, second, 4) == ()


def test_equal_rows_at_another_place() -> None:
    rows = torch.randn(4, 3)
    alone = placed(rows[2:3].clone(), ALONE)
    maps = maps_of(alone, batch(rows, 2), None)
    assert rows_difference(alone, batch(rows, 2), maps).relation is RowsRelation.EQUAL
    assert rows_difference(alone, batch(rows, 1), maps).relation is RowsRelation.DIFFERENT


def test_how_much_the_rows_differ() -> None:
    rows = torch.ones(4, 3)
    rows[0, 1] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    alone = placed(torch.ones(1, 3), ALONE)
    found = rows_difference(alone, batch(rows), maps_of(alone, batch(rows), None))
    assert found.relation is RowsRelation.DIFFERENT
    assert found.elements is not None
    assert (found.elements.different, found.elements.elements, found.elements.max_ulp) == (1, 3, 1)


@pytest.mark.parametrize("together", [True, False])
def test_the_control_shows_how_flattened_rows_lie(together: bool) -> None:
    own = torch.randn(6)

    def flat(others: int) -> torch.Tensor:
        rows = torch.cat([own[None], torch.randn(3, 6, generator=torch.Generator().manual_seed(others))])
        return (rows if together else rows.T).reshape(24)

    alone = placed(own.clone(), ALONE)
    maps = maps_of(alone, batch(flat(1)), batch(flat(2)))
    assert maps == ((SplitAxis(1, 6) if together else SplitAxis(6, 1),),)
    assert rows_difference(alone, batch(flat(1)), maps).relation is RowsRelation.EQUAL


def test_without_a_control_it_is_not_guessed_how_flattened_rows_lie() -> None:
    rows = torch.arange(24.0)
    alone = placed(rows[:6].clone(), ALONE)
    found = rows_difference(alone, batch(rows), maps_of(alone, batch(rows), None))
    assert found.relation is RowsRelation.UNKNOWN
    assert found.reason == "the sample's elements may lie in more than one way"


def test_elements_that_change_with_the_other_samples() -> None:
    alone = placed(torch.ones(1, 3), ALONE)
    maps = maps_of(alone, batch(torch.ones(4, 3)), batch(torch.ones(4, 3) * 2))
    assert maps == ()
    assert rows_difference(alone, batch(torch.ones(4, 3)), maps).relation is RowsRelation.MIXED


def test_a_tensor_without_the_varied_size_is_compared_as_a_whole() -> None:
    weight = torch.randn(5, 5)
    alone = placed(weight, ALONE)
    maps = maps_of(alone, batch(weight), batch(weight))
    assert rows_difference(alone, batch(weight), maps).relation is RowsRelation.EQUAL
    assert rows_difference(alone, batch(weight + 1), maps).relation is RowsRelation.DIFFERENT


def test_two_axes_of_the_varied_size() -> None:
    scores = torch.randn(6, 6)
    first = placed(scores[:2, :2].contiguous(), SampleExtent(size=2, place=0, width=2))
    second = placed(scores, SampleExtent(size=6, place=0, width=2))
    assert rows_difference(first, second, maps_of(first, second, second)).relation is RowsRelation.EQUAL
