from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import RunDirError
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.measurer import HASH_ONLY, Measurer, PhaseStatistics
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.show.argument_statistics import hash_text, largest_magnitude, phases
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.runs.show.recorded import crashed, hashes, level_2


def saved(base: Path, **values: tuple[Role, Any, Any]) -> RunDir:
    """A run of one launch whose arguments held the first tensor before it and the second one after it."""
    writer = JournalWriter(level=1)
    writer.launch_begin(0, 0, *(tensor(*before.shape) for _, before, _ in values.values()))
    writer.launch_end(0)
    package = make_manifest(site("k", *(arg(name, role) for name, (role, _, _) in values.items())))
    contents: dict[str, Any] = {}
    for slot, (name, (_, before, after)) in enumerate(values.items()):
        for phase, value in ((Phase.BEFORE, before), (Phase.AFTER, after)):
            path = f"{phase.value}_{name}.safetensors"
            content = hash(tuple(map(repr, value.flatten().tolist()))) & 0xFFFFFFFF
            writer.tensor_file(0, slot, phase, path, size=value.numel() * 4, content=content)
            contents[path] = value
    run = run_directory(base, package, writer)
    for path, value in contents.items():
        metadata = {
            "dtype": str(value.dtype),
            "shape": json.dumps(list(value.shape)),
            "strides": json.dumps(list(value.stride())),
            "storage_offset": "0",
            "storage_bytes": str(value.numel() * 4),
        }
        save_file({"x": value}, run / path, metadata)
    return open_run(run)


def worst(run: RunDir, launch: str = "0") -> str:
    return largest_magnitude(run.launch(launch), Measurer(run))


def of(*values: float) -> Any:
    return torch.tensor(values)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("read", "written", "text"),
    [
        ([1.0, -3.0], [2.0, -2.5], "-2.5 in out"),
        ([1.0, 2.0], [NAN, NAN], "2 NaN in out"),
        ([1.0, 2.0], [INF, NAN], "1 NaN in out"),
        ([NAN, 2.0], [-INF, INF], "2 Inf in out"),
        ([NAN, 2.0], [1.0, 0.5], "1 NaN in x (read)"),
        ([INF, 2.0], [1.0, 0.5], "1 Inf in x (read)"),
    ],
)
def test_what_stands_out(tmp_path: Path, read: list[float], written: list[float], text: str) -> None:
    junk = of(NAN, INF)  # what an output held before
    run = saved(tmp_path, x=(Role.IN, of(*read), of(*read)), out=(Role.OUT, junk, of(*written)))
    assert worst(run) == text


def test_what_a_written_buffer_held_before_does_not_count(tmp_path: Path) -> None:
    assert worst(saved(tmp_path, b=(Role.INOUT, of(NAN, NAN), of(4.0, 1.0)))) == "4 in b"


def test_the_worst_argument_is_named(tmp_path: Path) -> None:
    run = saved(tmp_path, a=(Role.OUT, of(0.0, 0.0, 0.0), of(NAN, 0.0, 0.0)), b=(Role.OUT, of(0.0, 0.0), of(NAN, NAN)))
    assert worst(run) == "2 NaN in b"


def test_recorded_statistics_are_enough(tmp_path: Path) -> None:
    run = level_2(tmp_path)
    assert [worst(run, n) for n in "012"] == ["3 NaN in buf0", "1 NaN in buf1", "-7 in buf1"]


def test_nothing_is_known_at_level_3(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch(0, 0, tensor(2))
    assert worst(open_run(run_directory(tmp_path, make_manifest(site("k", arg("x"))), writer))) == "-"


def test_equal_bytes_are_read_once(tmp_path: Path) -> None:
    run = saved(tmp_path, x=(Role.IN, of(1.0, 2.0), of(1.0, 2.0)))
    measurer = Measurer(run, budget=8)
    (argument,) = run.launch("0").args
    first = measurer.measure(argument, Phase.BEFORE)
    assert measurer.measure(argument, Phase.AFTER) is first
    assert not measurer.exhausted


def test_a_budget_stops_reading(tmp_path: Path) -> None:
    run = saved(tmp_path, x=(Role.IN, of(1.0, 2.0), of(3.0, 4.0)))
    measurer = Measurer(run, budget=8)
    (argument,) = run.launch("0").args
    assert measurer.measure(argument, Phase.BEFORE).statistics is not None
    measured = measurer.measure(argument, Phase.AFTER)
    assert (measured.statistics, measured.reason) == (None, "not read")
    assert measurer.exhausted


def test_an_output_before_its_launch_is_not_read(tmp_path: Path) -> None:
    run = saved(tmp_path, o=(Role.OUT, of(NAN), of(1.0)))
    assert Measurer(run).measure(run.launch("0").args[0], Phase.BEFORE).reason == "not initialised"


def test_memory_that_nothing_has_written_is_not_read(tmp_path: Path) -> None:
    run = saved(tmp_path, o=(Role.INOUT, of(NAN), of(1.0)))
    (known,) = run.launch("0").args
    assert Measurer(run).measure(known, Phase.BEFORE).statistics is not None
    fresh = replace(known, spec=replace(known.spec, fresh=True))
    assert Measurer(run).measure(fresh, Phase.BEFORE) == PhaseStatistics(None, "not initialised")
    assert Measurer(run).measure(fresh, Phase.AFTER).statistics is not None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    run = saved(tmp_path, x=(Role.IN, of(1.0, 2.0), of(1.0, 2.0)))
    (run.path / "0_x.safetensors").write_bytes(b"junk")
    with pytest.raises(RunDirError, match=r"0_x\.safetensors is damaged"):
        worst(run)


def test_when_an_argument_is_worth_a_look(tmp_path: Path) -> None:
    value = of(1.0)
    run = saved(tmp_path, a=(Role.IN, value, value), b=(Role.OUT, value, value), c=(Role.UNKNOWN, value, value))
    assert [phases(argument) for argument in run.launch("0").args] == [
        (Phase.BEFORE,),
        (Phase.AFTER,),
        (Phase.BEFORE, Phase.AFTER),
    ]


def test_a_hash_is_no_statistics(tmp_path: Path) -> None:
    run = hashes(tmp_path)
    out = run.launch("0").args[0]
    assert Measurer(run).measure(out, Phase.AFTER) == PhaseStatistics(None, HASH_ONLY)
    assert Measurer(run).measure(out, Phase.BEFORE) == PhaseStatistics(None, "not initialised")
    assert worst(run) == "-"


def test_the_hash_of_what_a_launch_wrote(tmp_path: Path) -> None:
    run = hashes(tmp_path / "hashes")
    assert [hash_text(launch) for launch in run.launches] == ["#01234567 in buf0", "#deadbeef in buf0 and 1 more"]
    assert hash_text(crashed(tmp_path / "crashed").launch("0")) == "-"
