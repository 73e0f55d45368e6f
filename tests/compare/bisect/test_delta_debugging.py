"""Delta debugging: the smallest set of changes that fixes a program, where some sets tell nothing."""

from __future__ import annotations

import math

import pytest

from aoti_debug.compare.bisect.delta_debugging import SetOutcome, smallest, without_needless


class Program:
    """A program that needs some changes to be right, and cannot be built with others."""

    def __init__(self, needed: set[int], breaking: set[int] | None = None) -> None:
        self.needed = needed
        self.breaking = breaking or set()
        self.builds: list[tuple[int, ...]] = []

    def outcome(self, changes: tuple[int, ...]) -> SetOutcome:
        self.builds.append(changes)
        if self.breaking & set(changes):
            return SetOutcome.UNKNOWN
        return SetOutcome.YES if self.needed <= set(changes) else SetOutcome.NO


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 33])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.99])
def test_one_change_among_many(count: int, share: float) -> None:
    program = Program({int(count * share)})
    assert set(smallest(range(count), program.outcome)) == program.needed
    assert len(program.builds) <= 1 + 2 * math.ceil(math.log2(count))


@pytest.mark.parametrize("needed", [{0, 1}, {0, 11}, {3, 7, 8}, set(range(12))])
def test_several_changes_that_are_needed_together(needed: set[int]) -> None:
    assert set(smallest(range(12), Program(needed).outcome)) == needed


@pytest.mark.parametrize("breaking", [{0}, {11}, {0, 5, 6}])
def test_changes_that_cannot_be_built_do_not_hide_another(breaking: set[int]) -> None:
    program = Program({4}, breaking)
    assert smallest(range(12), program.outcome) == (4,)


def test_nothing_more_is_tried_where_all_changes_do_not_fix() -> None:
    program = Program({99})
    assert smallest(range(12), program.outcome) == ()
    assert len(program.builds) == 1


def test_what_can_never_be_built_is_not_found() -> None:
    program = Program({4}, {4})
    assert smallest(range(12), program.outcome) == ()
    assert len(program.builds) == len(set(program.builds))


def test_without_changes_nothing_is_tried() -> None:
    program = Program({1})
    assert smallest((), program.outcome) == ()
    assert program.builds == []


@pytest.mark.parametrize("needed", [{0}, {4}, {0, 2, 5}, set(range(6))])
def test_needless_items_are_taken_out_one_by_one(needed: set[int]) -> None:
    program = Program(needed)
    found = without_needless(range(6), program.outcome)
    assert set(found) == needed
    assert all(tuple(item for item in found if item != left) in [*program.builds, ()] for left in found)


def test_an_item_that_another_one_needs_is_taken_out_after_it() -> None:
    def outcome(items: tuple[int, ...]) -> SetOutcome:  # 1 spoils it, unless 2 is there
        does = 0 in items and (1 not in items or 2 in items)
        return SetOutcome.YES if does else SetOutcome.UNKNOWN

    assert without_needless((0, 1, 2), outcome) == (0,)
