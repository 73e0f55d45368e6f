from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from aoti_debug.base import terminal_cells
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import RunDirError
from aoti_debug.package.argument_values import Absent, Number, Value
from aoti_debug.package.manifest import Certainty, CType, ModelLine, Provenance, Role
from aoti_debug.runs.rundir.argument_statistics import HASH_ONLY, Measurer, PhaseStatistics
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.show import text
from aoti_debug.runs.show.detail import model_lines, stack_lines, whole_stacks
from aoti_debug.runs.show.text import (
    ModuleCell,
    decode,
    format_element,
    hash_text,
    largest_magnitude,
    phases,
    place_columns,
    short_path,
)
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.runs.show.recorded import crashed, hashes, level_2


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (tensor(2, 3, dtype="bfloat16", device="cuda:1"), "bfloat16[2,3] cuda:1"),
        (tensor(dtype="float64"), "float64[] cpu"),
        (tensor(kind="sparse_csr"), "float32 sparse_csr cpu"),
        (Number(3, CType.I64), "3"),
        (Number(0.5, CType.F64), "0.5"),
        (Number(True, CType.BOOL), "True"),
        (Number(255, CType.ADDRESS), "0xff"),
        (Absent.NULL, "None"),
        (Absent.UNDEFINED, "an undefined tensor"),
        (Absent.UNSET, "not set yet"),
        (Absent.OPAQUE, "not recorded"),
    ],
)
def test_values(value: Value, spelled: str) -> None:
    assert text.value(value) == spelled


def test_statistics_leave_out_what_is_nought() -> None:
    assert text.statistics(Statistics(0, 0, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)) == ["empty"]
    assert text.statistics(Statistics(2, 2, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)) == ["NaN 2"]
    large = Statistics(2, 0, 0, 0, 0, 0, 2**53 + 1, 0, 1, 4.5e15, 4.5e15)
    assert text.statistics(large)[1] == "max 9007199254740993 at 1"


REAL = ["float16", "bfloat16", "float32", "float64", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz"]
INTEGER = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


def raw(value: Any) -> bytes:
    return bytes(value.contiguous().flatten().view(torch.uint8).tolist())


@pytest.mark.parametrize("dtype", [*REAL, *INTEGER, "bool"])
def test_elements_are_torchs(dtype: str) -> None:
    value = torch.tensor([0.0, 1.0, 3.5, 100.0]).to(getattr(torch, dtype))
    assert decode(raw(value), dtype) == value.to(torch.float64).tolist()


@pytest.mark.parametrize("dtype", ["complex32", "complex64", "complex128"])
def test_complex_elements(dtype: str) -> None:
    parts = torch.tensor([[1.5, -2.0], [0.0, 4.0]])
    real = {"complex32": torch.float16, "complex64": torch.float32, "complex128": torch.float64}[dtype]
    assert decode(raw(parts.to(real)), dtype) == [1.5 - 2j, 4j]


def test_what_is_not_a_number() -> None:
    (value,) = decode(raw(torch.tensor([math.nan], dtype=torch.bfloat16)), "bfloat16")
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("value", "dtype", "spelled"),
    [
        (0.1234567891, "float32", "0.123457"),
        (0.1234567891, "float64", "0.1234567891"),
        (2**53 + 1, "int64", "9007199254740993"),
        (True, "bool", "True"),
        (1.5 - 2j, "complex64", "1.5-2j"),
        (math.inf, "float32", "inf"),
    ],
)
def test_spelling(value: Any, dtype: str, spelled: str) -> None:
    assert format_element(value, dtype) == spelled


MODEL, BLOCK = "/home/u/model.py", "/home/u/block.py"
TORCH = "/venv/lib/python3.11/site-packages/torch/nn"


def stack(*frames: tuple[str, int, str]) -> str:
    return "\n".join(f'  File "{file}", line {line}, in forward\n    {text}' for file, line, text in frames)


def of(source: Sequence[tuple[str, int, str]], *stacks: str) -> Provenance:
    frames = tuple(ModelLine(file, line, "forward", text) for file, line, text in source)
    return Provenance(Certainty.EXACT, source=frames, stacks=stacks)


NORM = stack((MODEL, 30, "x = self.block(x)"), (BLOCK, 7, "x = self.norm(x)"), (f"{TORCH}/norm.py", 228, "return F.n("))
ADD = stack((MODEL, 30, "x = self.block(x)"), (BLOCK, 9, "return x + y"), (f"{TORCH}/norm.py", 9, "x"))
BOTH = of([(BLOCK, 7, "x = self.norm(x)"), (BLOCK, 9, "return x + y")], NORM, ADD, NORM)


def test_one_line() -> None:
    assert model_lines(of([(BLOCK, 7, "x = self.norm(x)")]), 100) == [
        "  model      /home/u/block.py:7 in forward (exact)",
        "               x = self.norm(x)",
    ]
    assert model_lines(Provenance(Certainty.NONE), 100) == ["  model      line unknown"]


def test_lines_are_grouped_by_file_and_the_first_names_the_place() -> None:
    source = [(BLOCK, 9, "return x + y"), (MODEL, 31, "loss(x)"), (BLOCK, 7, "x = self.norm(x)")]
    assert model_lines(of(source), 100) == [
        "  model      /home/u/block.py:9 in forward (exact)",
        "                7  x = self.norm(x)",
        "                9  return x + y",
        "             /home/u/model.py",
        "               31  loss(x)",
    ]


def test_other_lines_of_the_stacks_are_grouped_by_file_the_models_own_first() -> None:
    assert stack_lines(BOTH, 100) == [
        "  stack      /home/u/model.py",
        "               30  x = self.block(x)",
        "             torch/nn/norm.py",
        "                9  x",
        "              228  return F.n(",
    ]
    assert stack_lines(of([], stack((f"{TORCH}/norm.py", 1, "x"), (MODEL, 30, "y"))), 100)[0].endswith(MODEL)
    assert stack_lines(of([(MODEL, 30, "x")], stack((MODEL, 30, "x"))), 100) == []


def test_many_lines_are_counted() -> None:
    many = of([], stack(*((f"{TORCH}/{n // 6}.py", n, "x") for n in range(20))))
    printed = stack_lines(many, 100)
    assert [line.split()[0] for line in printed if line.endswith("  x")] == [str(n) for n in range(8)]
    assert printed[-1] == "             and 12 more (--all)"


def test_long_lines_are_shortened_on_a_terminal_only() -> None:
    long = of([(BLOCK, 7, "x" * 200)], stack((MODEL, 30, "y" * 200)))
    assert max(map(len, model_lines(long, 80) + stack_lines(long, 80))) == 80
    assert "…" not in "".join(model_lines(long, terminal_cells.UNLIMITED) + stack_lines(long, terminal_cells.UNLIMITED))


def test_stacks_as_they_were_traced() -> None:
    assert whole_stacks(BOTH)[:3] == [
        "  stack",
        f'      File "{MODEL}", line 30, in forward',
        "        x = self.block(x)",
    ]
    assert sum(line == "  stack" for line in whole_stacks(BOTH)) == 3


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


def elements(*values: float) -> Any:
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
    junk = elements(NAN, INF)  # what an output held before
    run = saved(tmp_path, x=(Role.IN, elements(*read), elements(*read)), out=(Role.OUT, junk, elements(*written)))
    assert worst(run) == text


def test_what_a_written_buffer_held_before_does_not_count(tmp_path: Path) -> None:
    assert worst(saved(tmp_path, b=(Role.INOUT, elements(NAN, NAN), elements(4.0, 1.0)))) == "4 in b"


def test_the_worst_argument_is_named(tmp_path: Path) -> None:
    run = saved(
        tmp_path,
        a=(Role.OUT, elements(0.0, 0.0, 0.0), elements(NAN, 0.0, 0.0)),
        b=(Role.OUT, elements(0.0, 0.0), elements(NAN, NAN)),
    )
    assert worst(run) == "2 NaN in b"


def test_recorded_statistics_are_enough(tmp_path: Path) -> None:
    run = level_2(tmp_path)
    assert [worst(run, n) for n in "012"] == ["3 NaN in buf0", "1 NaN in buf1", "-7 in buf1"]


def test_nothing_is_known_at_level_3(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch(0, 0, tensor(2))
    assert worst(open_run(run_directory(tmp_path, make_manifest(site("k", arg("x"))), writer))) == "-"


def test_equal_bytes_are_read_once(tmp_path: Path) -> None:
    run = saved(tmp_path, x=(Role.IN, elements(1.0, 2.0), elements(1.0, 2.0)))
    measurer = Measurer(run, budget=8)
    (argument,) = run.launch("0").args
    first = measurer.measure(argument, Phase.BEFORE)
    assert measurer.measure(argument, Phase.AFTER) is first
    assert not measurer.exhausted


def test_a_budget_stops_reading(tmp_path: Path) -> None:
    run = saved(tmp_path, x=(Role.IN, elements(1.0, 2.0), elements(3.0, 4.0)))
    measurer = Measurer(run, budget=8)
    (argument,) = run.launch("0").args
    assert measurer.measure(argument, Phase.BEFORE).statistics is not None
    measured = measurer.measure(argument, Phase.AFTER)
    assert (measured.statistics, measured.reason) == (None, "not read")
    assert measurer.exhausted


def test_an_output_before_its_launch_is_not_read(tmp_path: Path) -> None:
    run = saved(tmp_path, o=(Role.OUT, elements(NAN), elements(1.0)))
    assert Measurer(run).measure(run.launch("0").args[0], Phase.BEFORE).reason == "not initialised"


def test_memory_that_nothing_has_written_is_not_read(tmp_path: Path) -> None:
    run = saved(tmp_path, o=(Role.INOUT, elements(NAN), elements(1.0)))
    (known,) = run.launch("0").args
    assert Measurer(run).measure(known, Phase.BEFORE).statistics is not None
    fresh = replace(known, spec=replace(known.spec, fresh=True))
    assert Measurer(run).measure(fresh, Phase.BEFORE) == PhaseStatistics(None, "not initialised")
    assert Measurer(run).measure(fresh, Phase.AFTER).statistics is not None


def test_a_missing_file_leaves_the_rest(tmp_path: Path) -> None:
    run = saved(tmp_path, x=(Role.IN, elements(1.0), elements(1.0)), y=(Role.IN, elements(2.0), elements(3.0)))
    file = run.path / "0_x.safetensors"
    file.unlink()
    measurer = Measurer(run)
    x, y = run.launch("0").args
    assert measurer.measure(x, Phase.BEFORE) == PhaseStatistics(None, f"not read: {file} is missing")
    assert measurer.measure(x, Phase.AFTER).statistics is not None  # another file has the same bytes
    assert measurer.measure(y, Phase.AFTER).statistics is not None
    assert measurer.missing == {file.name: f"{file} is missing"}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    run = saved(tmp_path, x=(Role.IN, elements(1.0, 2.0), elements(1.0, 2.0)))
    (run.path / "0_x.safetensors").write_bytes(b"junk")
    with pytest.raises(RunDirError, match=r"0_x\.safetensors is damaged"):
        worst(run)


def test_when_an_argument_is_worth_a_look(tmp_path: Path) -> None:
    value = elements(1.0)
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


def origin(line: int, *modules: str) -> Provenance:
    frame = ModelLine("/home/u/model.py", line, "forward", "y = self.linear(x)")
    return Provenance(Certainty.EXACT, source=(frame,), modules=modules)


BLOCKS = [origin(18, f"layers.{n}.{name}_proj") for n in range(4) for name in "qkv"]


def titles(*origins: Provenance) -> list[tuple[str, int]]:
    return [(column.title, column.dropped_below) for column in place_columns(origins).columns]


def test_the_column_that_differs_stays_in_a_narrow_table() -> None:
    assert titles(*BLOCKS) == [("model line", 140), ("module", 0)]
    assert titles(origin(1, "a"), origin(2, "a")) == [("model line", 0), ("module", 140)]
    assert titles(origin(1), origin(2)) == [("model line", 0)]


def test_cells_of_a_launch_without_a_module_and_of_a_row_that_is_no_launch() -> None:
    places = place_columns([*BLOCKS, None])
    assert [str(cell) for cell in places.cells(BLOCKS[0])] == ["model.py:18", "layers.0.q_proj"]
    assert [str(cell) for cell in places.cells(origin(3))] == ["model.py:3", "-"]
    assert places.cells(None) == ["", ""]


PATH = "language_model.layers.10.self_attn.o_proj"


@pytest.mark.parametrize(
    ("width", "short"),
    [
        (41, PATH),
        (40, "…layers.10.self_attn.o_proj"),
        (26, "…10.self_attn.o_proj"),
        (19, "…10.self…ttn.o_proj"),
        (14, "…10.s…n.o_proj"),
        (12, "…10.s…n.o…j"),
        (9, "lang…proj"),
    ],
)
def test_a_path_keeps_its_number_and_its_end(width: int, short: str) -> None:
    assert short_path(PATH, width) == short


def test_a_path_without_numbers() -> None:
    assert short_path("model.post_attention_layernorm", 25) == "…post_attention_layernorm"
    assert short_path("model.post_attention_layernorm", 19) == "…post_atte…ayernorm"
    assert short_path("layernorm", 5) == "la…rm"


def test_of_several_modules_one_is_named_in_a_narrow_column() -> None:
    fused = ModuleCell(("layers.0.mlp.gate", "layers.0.mlp", "layers.0.mlp.up"))
    assert fused.fit(100) == str(fused) == "layers.0.mlp.gate, layers.0.mlp, layers.0.mlp.up"
    assert fused.fit(20) == "layers.0.mlp +2"
    assert fused.fit(10) == "…0.mlp +2"
    assert ModuleCell(("embed", "layers.0.norm")).fit(16) == "layers.0.norm +1"
