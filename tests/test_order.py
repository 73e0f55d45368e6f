from __future__ import annotations

import pytest

from tests.order import LONGEST, beginning, dealt
from tests.paths import ROOT


def test_the_longest_files_exist() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []


@pytest.mark.parametrize("workers", [1, 2, 4, 40])
def test_every_test_is_there_once(workers: int) -> None:
    tests = [f"{name}::{number}" for name in (*LONGEST, "a.py", "b.py") for number in range(3)]
    ordered = dealt(tests, lambda test: test.partition("::")[0], workers)
    assert sorted(ordered) == sorted(tests)


def test_each_share_begins_with_long_files() -> None:
    tests = [f"quick.py::{number}" for number in range(50)] + [f"{LONGEST[1]}::0", f"{LONGEST[0]}::0"]
    ordered = dealt(tests, lambda test: test.partition("::")[0], 2)
    assert [ordered[0], ordered[len(tests) // 2]] == [f"{LONGEST[0]}::0", f"{LONGEST[1]}::0"]


def test_workers_begin_to_collect_where_a_share_lies_before() -> None:
    assert [beginning([1, 5, 2, 1, 3], share) for share in (0, 0.1, 1 / 3, 2 / 3)] == [0, 2, 2, 3]
