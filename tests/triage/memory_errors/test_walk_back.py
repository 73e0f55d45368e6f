from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.triage.memory_errors.explain_access import (
    IndexValue,
    Walk,
    _same_memory,
    coordinates,
    integer_inputs,
    makers,
    walk_back,
)
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site
from tests.saved_tensors import described, save

FAR = 1 << 41
MANIFEST = replace(
    make_manifest(
        site("scale", arg("arg0_1"), arg("buf0", Role.OUT), line=10),
        site("copy", arg("buf0"), arg("buf1", Role.OUT), line=11),
        site("gather", arg("table"), arg("buf1"), arg("buf2", Role.OUT), line=12),
        site("add", arg("buf0"), arg("buf1"), arg("buf2", Role.OUT), line=13),
    ),
    inputs=("arg0_1", "table"),
    input_names=("index", "table"),
)
SCALE, COPY, GATHER, ADD = range(4)
ALL = range(3)  # arguments


class Recorder:
    """A run at level 1 of launches that all return; `values` are the arguments before each of them."""

    def __init__(self) -> None:
        self._writer = JournalWriter(level=1)
        self._writer.call_begin()
        self._files: list[tuple[str, str, Any]] = []
        self._count = 0

    def launch(self, site_id: int, *values: Any, unsaved: Sequence[int] = (), made: Any = None) -> None:
        """Records a launch; `made` is what its last argument holds after it, and is copied there."""
        number, self._count = self._count, self._count + 1
        self._writer.launch_begin(number, site_id, *(described(value) for value in values))
        for slot, value in enumerate(values):
            if slot in unsaved:
                continue
            path = f"tensors/0/{number:04}/before_{slot}.safetensors"
            self._writer.tensor_file(number, slot, Phase.BEFORE, path, size=value.nbytes)
            self._files.append((path, MANIFEST.sites[site_id].args[slot].name, value.clone()))
        if made is not None:
            slot, last = len(values) - 1, values[-1]
            last.copy_(made)
            path = f"tensors/0/{number:04}/after_{slot}.safetensors"
            self._writer.tensor_file(number, slot, Phase.AFTER, path, size=last.nbytes)
            self._files.append((path, MANIFEST.sites[site_id].args[slot].name, last.clone()))
        self._writer.launch_end(number)

    def run(self, base: Path) -> RunDir:
        path = run_directory(base, MANIFEST, self._writer)
        for name, key, value in self._files:
            save(path / name, key, value)
        return open_run(path)


def index_value(run: RunDir, launch: str, argument: str, element: int, value: int) -> IndexValue:
    reader = run.launch(launch)
    read = reader.argument(argument)
    assert read is not None
    return IndexValue(reader, read, element, value, limit=100)


def walk_from(run: RunDir, launch: str, argument: str, element: int, value: int) -> Walk:
    return walk_back(Dataflow(run), index_value(run, launch, argument, element, value))


TABLE, OUT = torch.zeros(100, 4), torch.zeros(6, 4)


def test_an_index_that_a_model_input_held(tmp_path: Path) -> None:
    index = torch.tensor([1, FAR, 2])
    first, second = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, index, first, made=index)
    recorder.launch(COPY, first, second, made=first)
    recorder.launch(GATHER, TABLE, second, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.2", "buf1", 1, FAR)
    assert walk.origin is not None
    assert (walk.origin.input, walk.origin.element) == ("index", 1)
    assert [place.launch for place in walk.chain] == ["", "0.0", "0.1", "0.2"]
    assert walk.evidence == (
        f"the index buf1[1] is {FAR}; launch 0.1 copy wrote it",
        f"the index buf0[1] is {FAR}; launch 0.0 scale wrote it",
        f"the index came from the model's input: index[1] is {FAR}",
    )
    assert walk.possible == ()


def test_an_index_that_was_computed_on_the_way(tmp_path: Path) -> None:
    """The input is in range; its product is not, and is copied once."""
    index = torch.tensor([1, 60, 2])
    first, second = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, index, first, made=index * 2)
    recorder.launch(COPY, first, second, made=first)
    recorder.launch(GATHER, TABLE, second, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.2", "buf1", 1, 120)
    assert walk.origin is not None
    assert (walk.origin.launch, walk.origin.kernel, walk.origin.element) == ("0.0", "scale", 1)
    assert walk.origin.frame is not None
    assert walk.origin.frame.line == 10
    assert [place.launch for place in walk.chain] == ["0.0", "0.1", "0.2"]


def test_an_index_that_was_moved_is_found_by_its_only_position(tmp_path: Path) -> None:
    index = torch.tensor([FAR, 1, 2])
    first = torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, index, first, made=index.flip(0))
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 2, FAR)
    assert walk.origin is not None
    assert (walk.origin.input, walk.origin.element) == ("index", 0)


def test_equal_numbers_in_several_places_are_only_possible(tmp_path: Path) -> None:
    first = torch.zeros(4, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.tensor([1, 2, 700, 700]), first, made=torch.tensor([700, 0, 0, 0]))
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 0, 700)
    assert walk.origin is None
    assert walk.evidence == ("the index buf1[0] is 700; launch 0.0 scale wrote it",)
    assert walk.possible == ("0.0 scale may have taken it from arg0_1[2], arg0_1[3], which it read and which is equal",)


def test_an_equal_number_in_range_is_only_possible(tmp_path: Path) -> None:
    """Small numbers are equal by chance."""
    first = torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.tensor([5, 2, 1]), first, made=torch.tensor([0, 0, 5]))
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 2, 5)
    assert walk.origin is None
    assert len(walk.possible) == 1


def test_a_launch_whose_result_was_not_recorded_may_have_written_it(tmp_path: Path) -> None:
    index = torch.tensor([1, FAR, 2])
    first = torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, index, first)
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 1, FAR)
    assert (walk.origin, walk.evidence) == (None, ())
    assert walk.possible == (f"buf1[1] is {FAR}; launch 0.0 scale may have written it: it wrote this memory last",)


def test_a_launch_whose_result_holds_another_number_did_not_write_it(tmp_path: Path) -> None:
    first = torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.tensor([1, 2, 3]), first, made=torch.tensor([1, 2, 3]))
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 1, FAR)
    assert (walk.origin, walk.evidence) == (None, ())


def test_an_element_of_a_transposed_view_is_found_where_it_lies(tmp_path: Path) -> None:
    index = torch.tensor([[1, 2, 3], [4, 500, 6]])
    first = torch.zeros(2, 3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.ones(2, 3, dtype=torch.int64), first, made=index)
    recorder.launch(GATHER, TABLE, first.t(), OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 3, 500)  # [1, 1] of the transposed view
    assert walk.origin is not None
    assert (walk.origin.launch, walk.origin.element) == ("0.0", 4)


def test_an_input_that_was_not_saved_leaves_the_origin_open(tmp_path: Path) -> None:
    memory = [torch.zeros(3, dtype=torch.int64), torch.tensor([1, 700, 2]), torch.zeros(3, dtype=torch.int64)]
    recorder = Recorder()
    recorder.launch(ADD, *memory, unsaved=[0], made=memory[1])
    recorder.launch(GATHER, TABLE, memory[2], OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 1, 700)
    assert walk.origin is None
    assert [place.launch for place in walk.chain] == ["0.0", "0.1"]


def test_an_index_in_memory_that_nobody_wrote(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.launch(GATHER, TABLE, torch.zeros(2, 3, dtype=torch.int64), OUT)
    walk = walk_from(recorder.run(tmp_path), "0.0", "buf1", 4, 700)
    assert walk.origin is None
    assert walk.evidence == ("buf1[1, 1] is 700, and no recorded launch wrote it",)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
@pytest.mark.parametrize(
    ("written", "element"),
    [
        (slice(0, 8), 4),
        (slice(4, 8), 0),
        (slice(3, 6), 1),
        (slice(0, 8, 2), 2),
        (slice(1, 8, 2), None),
        (slice(5, 8), None),
    ],
)
def test_the_element_of_the_writer_at_the_address_of_an_index(
    tmp_path: Path, written: slice, element: int | None, dtype: torch.dtype
) -> None:
    memory = torch.zeros(8, dtype=dtype)
    recorder = Recorder()
    recorder.launch(SCALE, torch.zeros(1, dtype=dtype), memory[written])
    recorder.launch(GATHER, TABLE, memory[2:], OUT)
    assert same_memory(recorder.run(tmp_path), 2) == element  # memory[4]


@pytest.mark.parametrize(("read", "element"), [(0, 0), (1, None), (2, 1)])
def test_an_index_inside_of_an_element_of_the_writer(tmp_path: Path, read: int, element: int | None) -> None:
    memory = torch.zeros(8, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.zeros(1, dtype=torch.int64), memory)
    recorder.launch(GATHER, TABLE, memory.view(torch.int32), OUT)
    assert same_memory(recorder.run(tmp_path), read) == element


def same_memory(run: RunDir, element: int) -> int | None:
    """The element of the first launch's result at the address of an index of the second one."""
    writer, reader = run.launches
    result, read = next(a for a in writer.args if a.written), reader.argument("buf1")
    assert read is not None
    return _same_memory(IndexValue(reader, read, element, 700, 7), result)


def test_a_writer_of_unknown_dtype_has_no_element(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.launch(SCALE, torch.zeros(1, dtype=torch.int64), memory := torch.zeros(8, dtype=torch.int64))
    recorder.launch(GATHER, TABLE, memory, OUT)
    writer, reader = recorder.run(tmp_path).launches
    result, read = next(a for a in writer.args if a.written), reader.argument("buf1")
    assert result.tensor is not None
    assert read is not None
    index = IndexValue(reader, read, 0, 700, 7)
    assert _same_memory(index, result) == 0
    unknown = replace(result.tensor, layout=replace(result.tensor.layout, dtype="unknown", item_bytes=0))
    assert _same_memory(index, replace(result, before=unknown, after=unknown)) is None


def test_a_walk_has_at_most_64_launches(tmp_path: Path) -> None:
    one, other = torch.tensor([FAR]), torch.tensor([FAR])
    recorder = Recorder()
    for number in range(70):
        recorder.launch(COPY, *((one, other) if number % 2 else (other, one)), made=torch.tensor([FAR]))
    walk = walk_from(recorder.run(tmp_path), "0.69", "buf0", 0, FAR)
    assert [place.launch for place in walk.chain] == [f"0.{number}" for number in range(6, 70)]
    assert walk.origin is None
    assert len(walk.evidence) == 63


@pytest.mark.parametrize(
    ("value", "limit", "bad"),
    [
        (0, 100, False),
        (-100, 100, False),
        (-101, 100, True),
        (99, 100, False),
        (100, 100, True),
        (0, 0, True),  # an empty table
        (0, None, False),  # a divisor
    ],
)
def test_bad_values(tmp_path: Path, value: int, limit: int | None, bad: bool) -> None:
    recorder = Recorder()
    recorder.launch(COPY, torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), unsaved=ALL)
    index = replace(index_value(recorder.run(tmp_path), "0.0", "buf0", 0, value), limit=limit)
    assert index.is_bad == bad


def test_coordinates_of_an_index(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.launch(COPY, torch.zeros(2, 3, 4, dtype=torch.int64), torch.zeros(1), unsaved=ALL)
    assert coordinates(index_value(recorder.run(tmp_path), "0.0", "buf0", 23, 0)) == "1, 2, 3"


def test_integer_inputs_of_a_launch(tmp_path: Path) -> None:
    index, other = torch.zeros(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(ADD, index, other, other, unsaved=ALL)
    recorder.launch(ADD, TABLE, other, other, unsaved=ALL)
    launches = recorder.run(tmp_path).launches
    assert [[a.name for a in integer_inputs(launch)] for launch in launches] == [["buf0", "buf1"], ["buf1"]]


def test_the_launches_that_produced_an_index(tmp_path: Path) -> None:
    first, second = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.tensor([1, 2, 3]), first)
    recorder.launch(COPY, first, second)
    recorder.launch(GATHER, TABLE, second, OUT)
    run = recorder.run(tmp_path)
    assert [x.id for x in makers(Dataflow(run), run.launch("0.2"))] == ["0.1", "0.0"]
    assert [x.id for x in makers(Dataflow(run), run.launch("0.2"), most=1)] == ["0.1"]


def test_the_launches_that_produced_several_indices_are_ordered_by_distance(tmp_path: Path) -> None:
    memory = [torch.zeros(3, dtype=torch.int64) for _ in range(5)]
    recorder = Recorder()
    recorder.launch(COPY, memory[0], memory[1], unsaved=ALL)
    recorder.launch(COPY, memory[1], memory[2], unsaved=ALL)
    recorder.launch(COPY, memory[1], memory[3], unsaved=ALL)
    recorder.launch(ADD, memory[2], memory[3], memory[4], unsaved=ALL)
    run = recorder.run(tmp_path)
    assert [x.id for x in makers(Dataflow(run), run.launch("0.3"))] == ["0.1", "0.2", "0.0"]


def test_at_most_32_launches_that_produced_an_index(tmp_path: Path) -> None:
    one, other = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    for number in range(40):
        recorder.launch(COPY, *((one, other) if number % 2 else (other, one)), unsaved=ALL)
    run = recorder.run(tmp_path)
    assert [x.key.launch for x in makers(Dataflow(run), run.launch("0.39"))] == [*range(38, 6, -1)]


def test_a_maker_is_followed_through_small_floats(tmp_path: Path) -> None:
    floats, index = torch.zeros(3), torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.zeros(3), floats, unsaved=ALL)
    recorder.launch(COPY, floats, index, unsaved=ALL)
    recorder.launch(GATHER, TABLE, index, OUT, unsaved=ALL)
    run = recorder.run(tmp_path)
    assert [x.id for x in makers(Dataflow(run), run.launch("0.2"))] == ["0.1", "0.0"]
    launched = run.launch("0.1")
    assert [x.id for x in makers(Dataflow(run), launched)] == ["0.0"]  # a kernel that converts them itself


def test_a_launch_with_large_tensors_is_no_maker_of_floats(tmp_path: Path) -> None:
    floats = torch.zeros(3)
    recorder = Recorder()
    recorder.launch(SCALE, torch.zeros((1 << 20) + 1), floats, unsaved=ALL)
    recorder.launch(COPY, floats, torch.zeros(3, dtype=torch.int64), unsaved=ALL)
    run = recorder.run(tmp_path)
    assert makers(Dataflow(run), run.launch("0.1")) == ()
