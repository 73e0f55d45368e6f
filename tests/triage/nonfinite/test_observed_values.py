from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base import dtypes
from aoti_debug.base.abi import Phase, StatsFlag
from aoti_debug.package.manifest import Allocation, Arg, Role, Site
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.triage.nonfinite import nonfinite, observed_values
from aoti_debug.triage.nonfinite.infinities import Infinities
from aoti_debug.triage.nonfinite.observed_values import ResultOperands, Special, SpecialValues, count
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor
from tests.triage.recorder import Recorder

HERE, ELSEWHERE = tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000)


def test_special_values_of_a_run(tmp_path: Path) -> None:
    sites = (write(arg("x"), arg("buf0", Role.OUT)), write(arg("buf1", Role.INOUT), arg("buf1", Role.INOUT)))
    journal = JournalWriter(level=2)
    journal.launch(0, 0, HERE, ELSEWHERE)
    journal.tensor_stats(0, 0, Phase.BEFORE, statistics(n_pos_inf=1))
    journal.tensor_stats(0, 0, Phase.AFTER, statistics(n_neg_inf=1))
    journal.tensor_stats(0, 1, Phase.AFTER, statistics(n_nan=1, n_pos_inf=1))
    journal.launch(1, 1, HERE, ELSEWHERE)
    journal.tensor_stats(1, 0, Phase.BEFORE, statistics(n_nan=1, n_neg_inf=2))
    journal.tensor_stats(1, 0, Phase.AFTER, None, flags=StatsFlag.UNINITIALISED)
    found = SpecialValues(open_run(run_directory(tmp_path, make_manifest(*sites), journal)).launches)
    written = {special: [(o.launch.id, o.argument.name) for o in found.written[special]] for special in Special}
    assert written == {Special.NAN: [("0.0", "buf0")], Special.PLUS_INF: [("0.0", "buf0")], Special.MINUS_INF: []}
    readers = {special: [launch.id for launch in found.readers[special]] for special in Special}
    assert readers == {Special.NAN: ["0.1"], Special.PLUS_INF: ["0.0"], Special.MINUS_INF: ["0.1"]}
    assert found.kinds == {Special.NAN, Special.PLUS_INF}


def write(*args: Arg) -> Site:
    return site("write", *args)


def operands(base: Path, maker: Site | None, reader: Site, result: str, allocated: tuple[str, ...] = ()) -> list[str]:
    """The operands of a result of `reader`. Its last argument lies where `maker` wrote; all have statistics before."""
    allocations = tuple(Allocation(name, line=1, guarded=True) for name in allocated)
    sites = [site_ for site_ in (maker, reader) if site_ is not None]
    manifest = replace(make_manifest(*sites), allocations=allocations, inputs=("x",))
    journal = JournalWriter(level=2)
    if maker is not None:
        journal.launch(0, 0, HERE)
    last = len(reader.args) - 1
    journal.launch_begin(1, len(sites) - 1, *([ELSEWHERE] * last), HERE)
    for slot, spec in enumerate(reader.args):
        unset = spec.role is Role.OUT
        journal.tensor_stats(
            1, slot, Phase.BEFORE, None if unset else statistics(), flags=StatsFlag.UNINITIALISED if unset else 0
        )
    journal.launch_end(1)
    run = open_run(run_directory(base, manifest, journal))
    launch = run.launches[-1]
    argument = launch.argument(result)
    assert argument is not None
    return [a.name for a in ResultOperands(manifest, Dataflow(run)).operands(launch, argument)]


OUT, CHANGED = arg("buf1", Role.OUT), arg("buf2", Role.INOUT)


def test_operands_of_an_operator(tmp_path: Path) -> None:
    """All that it reads; what it writes only counts if it had contents."""
    maker, reader = write(CHANGED), write(arg("x"), OUT, arg("x"), CHANGED)
    assert operands(tmp_path / "a", maker, reader, "buf1") == ["x", "buf2"]
    assert operands(tmp_path / "b", maker, reader, "buf2") == ["x", "buf2"]
    assert operands(tmp_path / "c", None, reader, "buf2") == ["x"]


@pytest.mark.parametrize(
    ("written", "changed", "allocated", "had_contents"),
    [
        (arg("buf2", Role.OUT), CHANGED, (), True),
        (arg("buf2", Role.OUT), CHANGED, ("buf2",), True),
        (arg("buf2_view", Role.OUT, base="buf2"), CHANGED, (), True),
        (arg("buf2", Role.OUT), arg("buf2_view", Role.INOUT, base="buf2"), (), True),
        (arg("buf7", Role.OUT), CHANGED, (), False),  # the memory's previous owner
        (arg("buf7", Role.OUT), CHANGED, ("buf2", "buf7"), False),
        (arg("buf7", Role.OUT), CHANGED, ("buf7",), True),  # a name for the same buffer
        (arg("buf7", Role.OUT), arg("buf2_view", Role.INOUT, base="buf2"), ("buf2",), False),
        (arg("buf7", Role.OUT), arg("buf2_view", Role.INOUT, base="buf3"), ("buf2_view",), True),
    ],
)
def test_buffers_that_had_contents_of_their_own(
    tmp_path: Path, written: Arg, changed: Arg, allocated: tuple[str, ...], had_contents: bool
) -> None:
    found = operands(tmp_path, write(written), write(arg("y"), changed), changed.name, allocated)
    assert found == (["y", changed.name] if had_contents else ["y"])


def test_an_input_that_a_launch_changes_had_contents(tmp_path: Path) -> None:
    assert operands(tmp_path, None, write(arg("y"), arg("x", Role.INOUT)), "x") == ["y", "x"]


def test_counts_of_each_kind() -> None:
    observed = statistics(n_nan=1, n_pos_inf=2, n_neg_inf=3)
    assert [(special.sign, count(observed, special), count(None, special)) for special in Special] == [
        *((0, 1, 0), (1, 2, 0), (-1, 3, 0)),
    ]


def warnings(base: Path, *values: float, dtype: torch.dtype) -> tuple[str, ...]:
    recorder = Recorder(base)
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
    recorder.launch("k", {"arg0": torch.ones(1)}, {"buf0": tensor})
    return observed_values.near_overflow_warnings(recorder.run().launches)


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
    (warning,) = observed_values.near_overflow_warnings(recorder.run().launches)
    assert warning.startswith("near overflow: buf0 of 0.1 k holds 60000, 92% of the largest float16")
