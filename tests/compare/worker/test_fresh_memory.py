"""Memory that operators are given, filled."""

from __future__ import annotations

import torch

from aoti_debug.compare.worker.fresh_memory import fresh_memory_filled


def test_what_was_not_written_is_nan_inside_alone() -> None:
    with fresh_memory_filled():
        assert torch.are_deterministic_algorithms_enabled()
        assert bool(torch.empty(64).isnan().all())
        assert bool((torch.empty(64, dtype=torch.int32) == torch.iinfo(torch.int32).max).all())
    assert not torch.are_deterministic_algorithms_enabled()
