"""Tests the number of threads that a region is evaluated with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from aoti_debug.compare.protocol.request import KnownValue, Recorded
from aoti_debug.compare.worker.main import threads_for
from aoti_debug.package.program_graphs import ValueKey

USUAL = 3


@pytest.fixture(autouse=True)
def several_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(USUAL)
    yield
    torch.set_num_threads(before)


def value(path: Path, *parts: Path) -> KnownValue:
    recorded = (Recorded("0.0", "buf0", str(file)) for file in (path, *parts))
    return KnownValue(ValueKey("mm"), next(recorded), tuple(recorded))


@pytest.mark.parametrize(("size", "threads"), [((1 << 20) - 1, 1), (1 << 20, USUAL)])
def test_large_tensors_are_computed_in_all_threads(tmp_path: Path, size: int, threads: int) -> None:
    small, other = tmp_path / "small", tmp_path / "other"
    small.write_bytes(b"1")
    other.write_bytes(bytes(size))
    for values in ([value(small), value(other)], [value(small, other)]):
        with threads_for(values):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == USUAL


def test_a_tensor_whose_file_is_missing_is_none(tmp_path: Path) -> None:
    with threads_for([value(tmp_path / "gone")]):
        assert torch.get_num_threads() == 1


def test_the_number_is_restored_after_an_error() -> None:
    with pytest.raises(ValueError, match="no"), threads_for([]):
        raise ValueError("no")
    assert torch.get_num_threads() == USUAL
