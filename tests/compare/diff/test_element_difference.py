from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from aoti_debug.compare.diff.element_difference import ElementDifference, element_difference, element_sizes
from aoti_debug.compare.diff.text import element_text
from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor, open_tensor
from tests.saved_tensors import save


def stored(folder: Path, name: str, tensor: torch.Tensor) -> StoredTensor:
    save(folder / name, name, tensor)
    return open_tensor(folder / name)


def difference(folder: Path, a: torch.Tensor, b: torch.Tensor) -> ElementDifference:
    return element_difference(stored(folder, "a", a), stored(folder, "b", b))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_neighbouring_numbers_are_one_ulp_apart(dtype: torch.dtype, tmp_path: Path) -> None:
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    a = torch.tensor([[1.0, -2.0, 0.5], [3.0, 4.0, 5.0]], dtype=dtype)
    b = (a.view(bits) + torch.tensor([[0, 1, 0], [0, 0, 3]], dtype=bits)).view(dtype)
    found = difference(tmp_path, a, b)
    assert (found.elements, found.different, found.first, found.worst) == (6, 2, 1, 5)
    assert found.max_ulp == 3
    assert found.values == (5.0, b[1, 2].item())
    assert found.max_absolute == float(b[1, 2]) - 5.0
    assert found.max_relative == pytest.approx(float(((b.double() - a.double()) / b.double()).abs().max()))


def test_numbers_on_both_sides_of_zero(tmp_path: Path) -> None:
    tiny = torch.finfo(torch.float32).smallest_normal * 2**-23
    found = difference(tmp_path, torch.tensor([tiny, 0.0]), torch.tensor([-tiny, -0.0]))
    assert (found.different, found.max_ulp, found.first) == (2, 2, 0)


@pytest.mark.parametrize(("a", "b", "ulp"), [(1.0, math.nan, math.inf), (math.inf, 1.0, 0x7F800000 - 0x3F800000)])
def test_what_is_not_finite(a: float, b: float, ulp: float, tmp_path: Path) -> None:
    found = difference(tmp_path, torch.tensor([a]), torch.tensor([b]))
    assert (found.max_ulp, found.max_absolute) == (ulp, math.inf)


def test_nan_with_other_bits_is_another_value(tmp_path: Path) -> None:
    a = torch.tensor([math.nan])
    b = (a.view(torch.int32) + 1).view(torch.float32)
    assert difference(tmp_path, a, b).different == 1


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ([1.0, 2.0, math.nan], [1.0, 2.0, 0.5], "1 of 3 elements differ; a is NaN at [2], b is 0.5"),
        ([1.0, 2.5, 3.0], [4.0, math.nan, 3.0], "2 of 3 elements differ; b is NaN at [1], a is 2.5"),
    ],
)
def test_nan_on_one_side_is_said(a: list[float], b: list[float], text: str, tmp_path: Path) -> None:
    found = difference(tmp_path, torch.tensor(a), torch.tensor(b))
    assert element_text(found, (3,)) == text


def test_integers_have_no_ulp(tmp_path: Path) -> None:
    found = difference(tmp_path, torch.tensor([1, 2, 3]), torch.tensor([1, 7, 2]))
    assert (found.different, found.max_ulp, found.max_absolute, found.worst) == (2, None, 5.0, 1)


def test_complex_numbers(tmp_path: Path) -> None:
    found = difference(tmp_path, torch.tensor([1 + 1j, 2j]), torch.tensor([1 + 1j, 3 + 2j]))
    assert (found.different, found.max_ulp, found.max_absolute) == (1, None, 3.0)


def test_equal_and_empty_tensors(tmp_path: Path) -> None:
    a = torch.arange(4.0)
    assert difference(tmp_path, a, a.clone()) == ElementDifference(
        elements=4, different=0, first=-1, worst=-1, values=None, max_ulp=None, max_absolute=None, max_relative=None
    )
    assert difference(tmp_path, a[:0], a[:0]).different == 0


def test_the_worst_of_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aoti_debug.compare.diff.element_difference._CHUNK", 4)
    a = torch.ones(10)
    b = a.clone()
    b[2], b[5], b[9] = 1.5, 3.0, 2.0
    found = difference(tmp_path, a, b)
    assert (found.different, found.first, found.worst, found.values) == (3, 2, 5, (1.0, 3.0))


def test_the_size_of_each_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aoti_debug.compare.diff.element_difference._CHUNK", 3)
    a = torch.tensor([1.0, 0.0, 1.0, math.nan, 2.0])
    b = torch.tensor([1.0, -0.0, math.nan, math.nan, 2.0])
    b[4] = torch.nextafter(b[4], b[4] + 1)
    assert element_sizes(stored(tmp_path, "a", a), stored(tmp_path, "b", b)).tolist() == [0, 1, math.inf, 0, 1]
    integers = [stored(tmp_path, name, torch.tensor(values)) for name, values in (("c", [1, 2]), ("d", [1, 9]))]
    assert element_sizes(*integers).tolist() == [0, 7]


def test_tensors_of_other_dtypes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="float32 of 2 elements and float64 of 2"):
        difference(tmp_path, torch.ones(2), torch.ones(2, dtype=torch.float64))


def test_integers_that_float64_lacks(tmp_path: Path) -> None:
    found = difference(tmp_path, torch.tensor([2**53]), torch.tensor([2**53 + 1]))
    assert found.max_absolute == 1.0
    lowest = difference(tmp_path, torch.tensor([-128], dtype=torch.int8), torch.tensor([0], dtype=torch.int8))
    assert (lowest.max_absolute, lowest.max_relative) == (128.0, 1.0)
