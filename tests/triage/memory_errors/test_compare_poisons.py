"""Whether two runs' tensors differ only where they still hold poison: by their elements, or by statistics alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.runs.rundir.formats import statistics
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey, TensorStats
from aoti_debug.triage.memory_errors.uninitialised import PoisonComparison, PoisonDifference, compare
from tests.saved_tensors import described, stored

POISONS = [(0xFF, 0x3B), (0x3B, 0xFF)]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.int8]
WRITTEN, SAME = PoisonComparison(PoisonDifference.WRITTEN), PoisonComparison(PoisonDifference.NONE)


def poisoned(value: torch.Tensor, unwritten: torch.Tensor, poison: int) -> torch.Tensor:
    """The tensor with some of its elements full of one byte."""
    fill = torch.full((value.numel() * value.element_size(),), poison, dtype=torch.uint8).view(value.dtype)
    return torch.where(unwritten, fill.reshape(value.shape), value)


AT = (0, 0, LaunchKey(CallKind.MODEL, 0, 0), 0, Phase.AFTER)


def recorded(value: torch.Tensor, *, with_values: bool) -> TensorStats:
    data = value.contiguous().view(torch.uint8).numpy().tobytes()
    return TensorStats(
        *AT, False, statistics.tensor_statistics(stored(value)), hash(data), None, data if with_values else b"", ""
    )


def compared(pair: Iterable[torch.Tensor], poisons: tuple[int, int], *, with_values: bool = False) -> PoisonComparison:
    first, second = pair
    one, other = (recorded(value, with_values=with_values) for value in (first, second))
    return compare(one, other, described(first).layout, poisons)


def ordinary(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(count).mul(3).to(dtype) if dtype.is_floating_point else torch.randint(0, 100, (count,)).to(dtype)


@pytest.mark.parametrize("with_values", [True, False])
@pytest.mark.parametrize("poisons", [*POISONS, (0xFF, 0x00)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("unwritten", [1, 17, 50])
def test_elements_that_nobody_wrote(
    dtype: torch.dtype, unwritten: int, poisons: tuple[int, int], with_values: bool
) -> None:
    value = ordinary(dtype, 50)
    mask = torch.arange(50) < unwritten
    pair = [poisoned(value, mask, poison) for poison in poisons]
    assert compared(pair, poisons, with_values=with_values) == PoisonComparison(PoisonDifference.UNWRITTEN, unwritten)


@pytest.mark.parametrize("with_values", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_tensors(dtype: torch.dtype, with_values: bool) -> None:
    value = ordinary(dtype, 50)
    assert compared((value, value.clone()), (0xFF, 0x3B), with_values=with_values) == SAME


@pytest.mark.parametrize("with_values", [True, False])
@pytest.mark.parametrize("poisons", POISONS)
@pytest.mark.parametrize(
    "work",
    [torch.cos, torch.exp, lambda x: x * 2, lambda x: x + 1, lambda x: x.cumsum(0), lambda x: x.flip(0).sigmoid()],
)
def test_what_was_computed_from_poison(work: object, poisons: tuple[int, int], with_values: bool) -> None:
    value = ordinary(torch.float32, 1000)
    mask = torch.arange(1000) % 100 == 3
    pair = [work(poisoned(value, mask, poison)) for poison in poisons]  # type: ignore[operator]
    assert compared(pair, poisons, with_values=with_values) == WRITTEN


@pytest.mark.parametrize("with_values", [True, False])
def test_sums_over_poison(with_values: bool) -> None:
    """Every element is another one, and NaN where the poison is."""
    value = ordinary(torch.float32, 1000)
    pair = [poisoned(value, torch.arange(1000) == 5, poison).reshape(10, 100).sum(1) for poison in (0xFF, 0x3B)]
    assert compared(pair, (0xFF, 0x3B), with_values=with_values) == WRITTEN


@pytest.mark.parametrize("with_values", [True, False])
def test_other_random_numbers(with_values: bool) -> None:
    pair = [ordinary(torch.float32, 1000, seed) for seed in (1, 2)]
    assert compared(pair, (0xFF, 0x3B), with_values=with_values) == WRITTEN


def test_numbers_that_were_not_finite_before() -> None:
    value = ordinary(torch.float32, 1000)
    value[10:20] = math.nan
    value[20:25] = math.inf
    value[25:27] = -math.inf
    pair = [poisoned(value, torch.arange(1000) >= 900, poison) for poison in (0xFF, 0x3B)]
    assert compared(pair, (0xFF, 0x3B)) == PoisonComparison(PoisonDifference.UNWRITTEN, 100)


def test_without_elements_floats_need_a_poison_that_is_no_number() -> None:
    value, poisons = ordinary(torch.float32, 50), (0x3B, 0x11)
    pair = [poisoned(value, torch.arange(50) < 5, poison) for poison in poisons]
    assert compared(pair, poisons, with_values=True) == PoisonComparison(PoisonDifference.UNWRITTEN, 5)
    assert compared(pair, poisons, with_values=False) == WRITTEN


def test_booleans_that_are_neither() -> None:
    raw = torch.zeros(1000, dtype=torch.uint8)
    pair = [raw.clone() for _ in range(2)]
    pair[0][:5], pair[1][:5] = 0xFF, 0x3B
    assert compared((p.view(torch.bool) for p in pair), (0xFF, 0x3B)).difference is PoisonDifference.UNWRITTEN


def test_complex_numbers() -> None:
    value = torch.complex(ordinary(torch.float32, 500, 1), ordinary(torch.float32, 500, 2))
    mask = torch.arange(500) < 9
    fills = [torch.full((500 * 8,), p, dtype=torch.uint8).view(torch.complex64) for p in (0xFF, 0x3B)]
    pair = [torch.where(mask, fill, value) for fill in fills]
    assert compared(pair, (0xFF, 0x3B)) == PoisonComparison(PoisonDifference.UNWRITTEN, 9)
    assert compared((x * 2 for x in pair), (0xFF, 0x3B)) == WRITTEN


def test_what_was_not_read_is_not_known() -> None:
    unread = TensorStats(*AT, False, None, 0, None, b"", "not read: quantized qint8")
    value = recorded(ordinary(torch.float32, 5), with_values=True)
    assert compare(unread, value, None, (0xFF, 0x3B)).difference is PoisonDifference.UNKNOWN
    assert compare(None, value, None, (0xFF, 0x3B)).difference is PoisonDifference.UNKNOWN
