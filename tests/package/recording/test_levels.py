from __future__ import annotations

import pytest

from aoti_debug.base.abi import Level
from aoti_debug.base.errors import UsageError
from aoti_debug.package.recording import levels


@pytest.mark.parametrize("level", Level)
def test_a_level_is_read_as_it_is_written(level: Level) -> None:
    assert levels.number(levels.written(level)) == level
    assert levels.number(str(levels.written(level))) == level
    assert levels.number(level) == level


def test_only_the_one_without_a_number_has_a_name() -> None:
    assert [levels.written(level) for level in Level] == [0, 1, 2, 3, "hash"]


@pytest.mark.parametrize("level", [7, -1, "4", "Hash", "", "values"])
def test_what_is_no_level(level: int | str) -> None:
    with pytest.raises(UsageError, match="is not one of 0, 1, 2, 3, hash"):
        levels.number(level)


def test_a_level_that_is_not_allowed_here() -> None:
    with pytest.raises(UsageError, match="level 3 is not one of 1, 2, hash"):
        levels.number(3, levels.WITH_HASHES)
