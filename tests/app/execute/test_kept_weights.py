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
    weights = kept_weights.of_call(folder, call)
    if weights is None or weights.changes is None:
        return None
    return [torch.load(change.file)["tensors"]["w"][0].item() for change in weights.changes]


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
    assert [values(tmp_path, call) for call in range(8)] == [[], [1], [1], [1], [1], [2], [3], [3]]
    assert torch.load(tmp_path / "weights/0.pt")["method"] == "load_constants"


def test_what_is_not_set_in_the_other_buffer(tmp_path: Path) -> None:
    """Parameters stay what they were there, which may be nothing; torch copies the rest from the active one."""
    kept = GivenWeights(tmp_path / "weights", keeps_all=False)
    kept.changed("load_constants", {"a": torch.ones(1)}, inactive=False)
    found = []
    for call, name in enumerate("bbc"):
        kept.changed("update_constant_buffer", {name: torch.ones(1)}, inactive=True)
        kept.changed("swap_constant_buffer", {}, inactive=False)
        kept.tell(tmp_path, call)
        weights = kept_weights.of_call(tmp_path, call)
        assert weights is not None
        changes = [f"{change.names[0]}{' copied' if change.is_copied else ''}" for change in weights.changes or ()]
        found.append((weights.is_whole, changes))
    assert found == [
        (False, ["a copied", "b"]),
        (True, ["a", "a copied", "b"]),
        (False, ["b", "a copied", "b copied", "c"]),
    ]


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


def test_a_buffer_that_was_freed_has_nothing(tmp_path: Path) -> None:
    """What is set in it later is all that it has, with what torch copies from the active one."""
    kept = GivenWeights(tmp_path / "weights", keeps_all=False)

    def after(call: int, *methods: tuple[str, str]) -> tuple[bool, list[str]]:
        for method, name in methods:
            inactive = method == "update_constant_buffer"
            kept.changed(method, {name: torch.ones(1)} if name else {}, inactive=inactive)
        kept.tell(tmp_path, call)
        weights = kept_weights.of_call(tmp_path, call)
        assert weights is not None
        changes = weights.changes or ()
        return weights.is_whole, [f"{one.names[0]}{' copied' if one.is_copied else ''}" for one in changes]

    swap, free = ("swap_constant_buffer", ""), ("free_inactive_constant_buffer", "")
    assert after(0, ("update_constant_buffer", "a"), swap) == (False, ["a"])
    assert after(1, free) == (False, ["a"])
    assert after(2, ("update_constant_buffer", "b"), swap) == (False, ["a copied", "b"])  # the package's are gone
    assert after(3, free, swap) == (False, [])


def test_weights_that_torch_reads_from_a_file_are_not_known(tmp_path: Path) -> None:
    kept = GivenWeights(tmp_path / "weights", keeps_all=True)
    kept.changed("update_constant_buffer_from_blob", {}, inactive=False)
    kept.tell(tmp_path, 0)
    assert values(tmp_path, 0) is None


def test_old_files_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_weights, "_FILES", 2)
    kept = GivenWeights(tmp_path, keeps_all=False)
    for _ in range(3):
        kept.changed("update_constant_buffer", ONE, inactive=True)
    kept.changed("swap_constant_buffer", {}, inactive=False)
    kept.changed("update_constant_buffer", TWO, inactive=False)
    for _ in range(3):
        kept.changed("update_constant_buffer", THREE, inactive=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.pt", "5.pt", "6.pt"]  # 3 and 6 are in force


@pytest.mark.parametrize("in_place", [True, False])
def test_tensors_that_the_model_uses_themselves_are_kept_without_what_they_are_views_of(
    tmp_path: Path, in_place: bool
) -> None:
    view = torch.arange(4.0)[2:]
    GivenWeights(tmp_path, keeps_all=False).changed("load_constants", {"w": view}, inactive=False, in_place=in_place)
    kept = torch.load(tmp_path / "0.pt")["tensors"]["w"]
    assert torch.equal(kept, view)
    assert kept.storage_offset() == (0 if in_place else 2)


def test_tensors_that_the_model_uses_themselves_are_kept_again_when_the_script_has_changed_them(tmp_path: Path) -> None:
    kept = GivenWeights(tmp_path / "weights", keeps_all=True)
    weight, other = torch.ones(2), torch.zeros(2)
    kept.changed("load_constants", {"w": weight, "v": other}, inactive=False, in_place=True)
    for call, factors in enumerate(([1.0, 1.0], [5.0, 5.0], None, [1.0, 0.0])):
        if factors is not None:
            weight.mul_(torch.tensor(factors))
        kept.tell(tmp_path, call)
    assert [values(tmp_path, call) for call in range(4)] == [[1], [5], [5], [5]]
    assert len(list((tmp_path / "weights").iterdir())) == 4
    del other
    weight.zero_()
    kept.tell(tmp_path, 4)  # what it reads of the other one is not known
    assert values(tmp_path, 4) is None


def test_inference_tensors_have_no_versions(tmp_path: Path) -> None:
    kept = GivenWeights(tmp_path / "weights", keeps_all=True)
    with torch.inference_mode():
        kept.changed("load_constants", {"w": torch.ones(2)}, inactive=False, in_place=True)
    kept.tell(tmp_path, 0)
    assert values(tmp_path, 0) == [1]
