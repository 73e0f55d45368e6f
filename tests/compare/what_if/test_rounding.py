"""Headroom, and the change of outputs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from aoti_debug.base.dtypes import FLOAT_FORMATS, FloatFormat
from aoti_debug.compare.what_if.rounding import Headroom, OtherChoices, changes, effects, headroom, largest_error
from aoti_debug.runs.run.saved_outputs import write_tensor


def saved(folder: Path, name: str, tensor: torch.Tensor) -> Path:
    path = folder / f"{name}.safetensors"
    write_tensor(path, name, tensor)
    return path


@pytest.mark.parametrize("target", FLOAT_FORMATS.values(), ids=FLOAT_FORMATS)
def test_headroom_is_what_a_cast_by_torch_shows(tmp_path: Path, target: FloatFormat) -> None:
    sizes = torch.exp2(torch.linspace(-160, 127.9, 5000, dtype=torch.float64))
    near = torch.tensor([target.limit, target.smallest / 2, target.least_normal], dtype=torch.float64)
    values = torch.cat([sizes, -sizes, near, near * (1 - 1e-12), torch.tensor([0.0, math.inf, math.nan])])
    dtype = getattr(torch, target.name)
    inside = values.clamp(-target.largest, target.largest).to(dtype).double()  # torch may saturate beyond it
    finite = values.isfinite()
    found = headroom(saved(tmp_path, "x", values), target)
    assert found.elements == values.numel()
    assert found.overflow == int((finite & (values.abs() >= target.limit)).sum())
    assert found.to_zero == int(((values != 0) & (inside == 0)).sum())
    normal = torch.finfo(dtype).smallest_normal
    assert found.subnormal == int(((inside != 0) & (inside.abs() < normal)).sum())
    assert found.largest == values[finite].abs().max()


@pytest.mark.parametrize("target", FLOAT_FORMATS.values(), ids=FLOAT_FORMATS)
def test_formats_are_those_of_torch(target: FloatFormat) -> None:
    info = torch.finfo(getattr(torch, target.name))
    assert (target.largest, target.least_normal, target.smallest) == (
        info.max,
        info.smallest_normal,
        info.smallest_normal * info.eps,
    )


def test_formats_that_change_others() -> None:
    pairs = {(target, own) for target in FLOAT_FORMATS for own in ("float64", *FLOAT_FORMATS)}
    unchanged = {pair for pair in pairs if not changes(FLOAT_FORMATS[pair[0]], pair[1])}
    few = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
    assert {own for target, own in unchanged if target == "float32"} == {"float32", "float16", *few}
    assert {own for target, own in unchanged if target == "bfloat16"} == few
    assert {own for target, own in unchanged if target == "float16"} == {"float16", "float8_e4m3fn", "float8_e5m2"}


def test_shares_are_of_all_elements() -> None:
    assert (Headroom(8, 2) + Headroom(8, 2, largest=3.0)).share(4) == 0.25
    assert Headroom().share(0) == 0.0


def test_effects_on_outputs(tmp_path: Path) -> None:
    before = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    after = before.clone()
    after[1, 1] = 3.5
    found = effects({0: saved(tmp_path, "after", after)}, {0: saved(tmp_path, "before", before)})
    assert (found[0].shape, found[0].choices) == ((2, 3), OtherChoices(2, 1))
    assert largest_error(found) == pytest.approx(1.5 / before.square().sum().sqrt())


def test_effects_on_integers_are_shares(tmp_path: Path) -> None:
    before, after = torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 9])
    found = effects({0: saved(tmp_path, "after", after)}, {0: saved(tmp_path, "before", before)})
    assert found[0].choices is None
    assert largest_error(found) == 0.25


def test_an_output_that_becomes_infinite(tmp_path: Path) -> None:
    before, after = torch.tensor([1.0, 2.0]), torch.tensor([1.0, math.inf])
    found = effects({0: saved(tmp_path, "after", after)}, {0: saved(tmp_path, "before", before)})
    assert largest_error(found) == math.inf
