from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.base import dtypes
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.triage.nonfinite import nonfinite
from aoti_debug.triage.results.finding_kinds import Infinities
from tests.factories import tensor
from tests.triage.recorder import Recorder

HERE, ELSEWHERE = tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000)


def warnings(base: Path, *values: float, dtype: torch.dtype) -> tuple[str, ...]:
    recorder = Recorder(base)
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
    recorder.launch("k", {"arg0": torch.ones(1)}, {"buf0": tensor})
    return nonfinite.near_overflow_warnings(recorder.run().launches)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (torch.float16, -40000, "-40000, 61% of the largest float16 (65504)"),
        (torch.bfloat16, 2e38, "1.99384e+38, 59% of the largest bfloat16 (3.38953e+38)"),
        (torch.float32, 3e38, "3e+38, 88% of the largest float32 (3.40282e+38)"),
        (torch.float8_e4m3fn, 320, "320, 71% of the largest float8_e4m3fn (448)"),
        (torch.float8_e5m2, 40960, "40960, 71% of the largest float8_e5m2 (57344)"),
    ],
)
def test_values_beyond_half_of_the_largest(tmp_path: Path, dtype: torch.dtype, value: float, expected: str) -> None:
    assert warnings(tmp_path, 1, value, dtype=dtype) == (f"near overflow: buf0 of 0.0 k holds {expected}",)


@pytest.mark.parametrize(("dtype", "value"), [(torch.float16, 30000), (torch.bfloat16, 65504), (torch.int64, 1 << 62)])
def test_values_far_from_the_limit(tmp_path: Path, dtype: torch.dtype, value: float) -> None:
    assert warnings(tmp_path, 1, value, dtype=dtype) == ()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_a_mask_of_the_largest_value_is_intended(tmp_path: Path, dtype: torch.dtype) -> None:
    assert warnings(tmp_path, 1, torch.finfo(dtype).min, dtype=dtype) == ()
    assert set(dtypes.LARGEST) >= {str(dtype).removeprefix("torch.")}


def test_the_widest_dtype_and_scales_are_exempt(tmp_path: Path) -> None:
    assert warnings(tmp_path, 1, 1.7e308, dtype=torch.float64) == ()
    assert "float8_e8m0fnu" not in dtypes.LARGEST


def test_three_tensors_the_nearest_first(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, outputs=("buf3",))
    for i, value in enumerate((40000.0, 60000.0, 50000.0, 35000.0)):
        half = torch.tensor([value], dtype=torch.float16)
        recorder.launch(f"k{i}", {"arg0": torch.ones(1)}, {f"buf{i}": half})
    outcome = nonfinite.find(Dataflow(recorder.run()), Infinities.FAIL)
    assert outcome.finding is None
    assert [warning.split()[2] for warning in outcome.warnings] == ["buf1", "buf2", "buf0"]


def test_the_magnitude_counts(tmp_path: Path) -> None:
    (warning,) = warnings(tmp_path, -40000, 60000, dtype=torch.float16)
    assert "holds 60000, 92% of" in warning
    assert warnings(tmp_path / "half", 32752, dtype=torch.float16) == ()  # half of the largest
    (warning,) = warnings(tmp_path / "negative", -60000, 40000, dtype=torch.float16)
    assert "holds -60000, 92% of" in warning


def test_one_warning_for_each_tensor_of_a_kernel(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for value in (40000.0, 60000.0, 50000.0, 60000.0):
        recorder.launch("k", {"arg0": torch.ones(1)}, {"buf0": torch.tensor([value], dtype=torch.float16)})
    (warning,) = nonfinite.near_overflow_warnings(recorder.run().launches)
    assert warning.startswith("near overflow: buf0 of 0.1 k holds 60000, 92% of the largest float16")
