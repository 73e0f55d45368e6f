"""Weights that a script gives a model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.app.execute import kept_weights
from aoti_debug.app.execute.kept_weights import GivenWeights

ONE, TWO, THREE = ({"w": torch.full((2,), float(value))} for value in (1, 2, 3))


def values(folder: Path, call: int) -> list[float] | None:
    """The first value that each change in force has set."""
    files = kept_weights.of_call(folder, call)
    return None if files is None else [torch.load(file)["tensors"]["w"][0].item() for file in files]


def test_what_was_in_force_in_a_call(tmp_path: Path) -> None:
    kept = GivenWeights(tmp_path / "weights", keeps_all=False)
    kept.tell(tmp_path, 0)
    assert values(tmp_path, 0) == []
    assert not list(tmp_path.iterdir())  # without weights, nothing is written
    kept.changed("load_constants", ONE, inactive=False)
    kept.tell(tmp_path, 1)
    kept.changed("update_constant_buffer", TWO, inactive=True)
    kept.tell(tmp_path, 2)
    kept.changed("swap_constant_buffer", {}, inactive=False)
    kept.tell(tmp_path, 5)
    kept.changed("swap_constant_buffer", {}, inactive=False)
    kept.changed("load_constants", THREE, inactive=False)
    kept.tell(tmp_path, 6)
    assert [values(tmp_path, call) for call in range(8)] == [[], [1], [1], [1], [1], [1, 2], [1, 3], [1, 3]]
    assert torch.load(tmp_path / "weights/0.pt")["method"] == "load_constants"


def test_weights_that_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_weights, "_LARGEST", 7)
    kept = GivenWeights(tmp_path / "weights", keeps_all=False)
    kept.changed("load_constants", ONE, inactive=False)
    kept.tell(tmp_path, 0)
    assert values(tmp_path, 0) is None
    kept = GivenWeights(tmp_path / "weights", keeps_all=True)
    kept.changed("load_constants", ONE, inactive=False)
    kept.tell(tmp_path, 3)
    assert values(tmp_path, 3) == [1]
    (tmp_path / "weights/0.pt").unlink()
    assert values(tmp_path, 3) is None


def test_old_files_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_weights, "_FILES", 2)
    kept = GivenWeights(tmp_path, keeps_all=False)
    for _ in range(3):
        kept.changed("update_constant_buffer", ONE, inactive=True)
    kept.changed("swap_constant_buffer", {}, inactive=False)
    kept.changed("update_constant_buffer", TWO, inactive=False)
    for _ in range(3):
        kept.changed("update_constant_buffer", THREE, inactive=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.pt", "3.pt", "5.pt", "6.pt"]  # 2 and 3 are in force


@pytest.mark.parametrize("in_place", [True, False])
def test_tensors_that_the_model_uses_themselves_are_kept_without_what_they_are_views_of(
    tmp_path: Path, in_place: bool
) -> None:
    view = torch.arange(4.0)[2:]
    GivenWeights(tmp_path, keeps_all=False).changed("load_constants", {"w": view}, inactive=False, in_place=in_place)
    kept = torch.load(tmp_path / "0.pt")["tensors"]["w"]
    assert torch.equal(kept, view)
    assert kept.storage_offset() == (0 if in_place else 2)
