"""Models between guards compute what they compute without, and give tensors out that are what they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.runs.rundir import run_directory
from tests.built_model import Built


def outputs(package: Path, name: str) -> list[torch.Tensor]:
    """Of two calls: a model may write to its constants. The package is gone when they are looked at."""
    from tests import models

    model = torch._inductor.aoti_load_package(str(package))
    found: list[Any] = []
    for _ in range(2):
        args = models.inputs(name)
        torch.manual_seed(7)
        found += torch.utils._pytree.tree_leaves(model(*args))
    del model
    return found


def facts(tensor: torch.Tensor) -> tuple[object, ...]:
    """All that its user can see of a tensor, but for where it lies."""
    content = tensor.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8).numpy().tobytes()
    storage = tensor.untyped_storage().nbytes()
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), storage, content


@pytest.mark.parametrize("poison", ["ff", "3b"])
@pytest.mark.parametrize("name", ["mixed", "control"])
def test_outputs_equal_the_plain_twins(
    built: Callable[[str], Built], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, poison: str
) -> None:
    plain = [facts(tensor) for tensor in outputs(built(name).plain, name)]
    settings = {"DIR": str(tmp_path), "PRINT": "none", "LEVEL": "3", "GUARDS": "1", "POISON": poison}
    for variable, value in settings.items():
        monkeypatch.setenv(f"AOTI_DEBUG_{variable}", value)
    guarded = [facts(tensor) for tensor in outputs(built(name).package, name)]
    assert guarded == plain
    run = run_directory.open_run(tmp_path / "latest")
    assert run.timeline.damages == ()
    assert run.timeline.notes == ()
    assert any(allocation.guarded for allocation in run.manifest.allocations)
