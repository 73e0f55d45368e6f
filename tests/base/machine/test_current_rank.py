"""Ranks of a distributed program."""

from __future__ import annotations

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine import current_rank


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(current_rank.VARIABLE, raising=False)
    assert current_rank.current() == 0
    monkeypatch.setenv(current_rank.VARIABLE, "3")
    assert current_rank.current() == 3
    assert current_rank.selected(None)
    assert current_rank.selected({3})
    assert not current_rank.selected({0, 1})


def test_the_text_of_an_option() -> None:
    assert current_rank.parse("") is None
    assert current_rank.parse("0,12") == frozenset({0, 12})
    assert current_rank.parse("0,2-4,3") == frozenset({0, 2, 3, 4})
    for text in ("x", "0,", ",", "-1", "0 1", "²", "3-", "3-2", "1-2-3"):
        with pytest.raises(UsageError, match=f"--ranks {text} is not numbers"):
            current_rank.parse(text)
    with pytest.raises(UsageError, match="goes beyond"):
        current_rank.parse("0-999999999")


TORCHRUN = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_RESTART_COUNT": "1",
    "MASTER_ADDR": "host",
    "MASTER_PORT": "29500",
}


def test_a_rank_of_torchrun() -> None:
    assert current_rank.of_environment(TORCHRUN) == current_rank.Rank(2, 4, 2, "job", "host:29500", "1", 1)


@pytest.mark.parametrize(
    "variables", [{}, {"RANK": "0"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"RANK": "4", "WORLD_SIZE": "4"}]
)
def test_no_rank_of_many(variables: dict[str, str]) -> None:
    assert current_rank.of_environment(variables) is None


@pytest.mark.parametrize(
    ("local_world_size", "visible", "expected"),
    [(1, None, None), (2, None, "1"), (2, "4,5,6", "5"), (2, "4", None), (0, None, None)],
)
def test_the_gpu_of_a_rank(local_world_size: int, visible: str | None, expected: str | None) -> None:
    rank = current_rank.Rank(3, 4, local_world_size, local_rank=1)
    assert current_rank.visible_gpus(rank, visible) == expected
