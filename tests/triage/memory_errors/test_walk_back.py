from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import JournalWriter, arg, make_manifest, run_directory, site
from saved_tensors import described, save

from aoti_debug.abi import Phase
from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.manifest import Role
from aoti_debug.rundir.run_directory import RunDir, open_run
from aoti_debug.triage.memory_errors.walk_back import (
    IndexValue,
    Walk,
    _same_memory,
    coordinates,
    integer_inputs,
    makers,
    walk_back,
)

torch = pytest.importorskip("torch")

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

    def launch(self, site_id: int, *values: Any, unsaved: Sequence[int] = ()) -> None:
        number, self._count = self._count, self._count + 1
        self._writer.launch_begin(number, site_id, *(described(value) for value in values))
        for slot, value in enumerate(values):
            if slot in unsaved:
                continue
            path = f"tensors/0/{number:04}/before_{slot}.safetensors"
            self._writer.tensor_file(number, slot, Phase.BEFORE, path, size=value.nbytes)
            self._files.append((path, MANIFEST.sites[site_id].args[slot].name, value.clone()))
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
    recorder.launch(SCALE, index, first)
    first.copy_(index)
    recorder.launch(COPY, first, second)
    second.copy_(first)
    recorder.launch(GATHER, TABLE, second, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.2", "buf1", 1, FAR)
    assert (walk.origin.input, walk.origin.element) == ("index", 1)
    assert [place.launch for place in walk.chain] == ["", "0.0", "0.1", "0.2"]
    assert walk.evidence == (
        f"the index buf1[1] is {FAR}; launch 0.1 copy wrote it",
        f"the index buf0[1] is {FAR}; launch 0.0 scale wrote it",
        f"the index came from the model's input: index[1] is {FAR}",
    )


def test_an_index_that_was_computed_on_the_way(tmp_path: Path) -> None:
    """The input is in range; its product is not, and is copied once."""
    index = torch.tensor([1, 60, 2])
    first, second = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, index, first)
    first.copy_(index * 2)
    recorder.launch(COPY, first, second)
    second.copy_(first)
    recorder.launch(GATHER, TABLE, second, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.2", "buf1", 1, 120)
    assert (walk.origin.launch, walk.origin.kernel, walk.origin.element) == ("0.0", "scale", 1)
    assert walk.origin.frame is not None
    assert walk.origin.frame.line == 10
    assert [place.launch for place in walk.chain] == ["0.0", "0.1", "0.2"]


def test_an_index_that_was_moved_is_followed_by_its_value(tmp_path: Path) -> None:
    index = torch.tensor([FAR, 1, 2])
    first = torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, index, first)
    first.copy_(index.flip(0))
    recorder.launch(GATHER, TABLE, first, OUT)
    run = recorder.run(tmp_path)
    walk = walk_from(run, "0.1", "buf1", 2, FAR)
    assert (walk.origin.input, walk.origin.element) == ("index", 0)


def test_an_element_of_a_transposed_view_is_found_where_it_lies(tmp_path: Path) -> None:
    index = torch.tensor([[1, 2, 3], [4, 500, 6]])
    first = torch.zeros(2, 3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.ones(2, 3, dtype=torch.int64), first)
    first.copy_(index)
    recorder.launch(GATHER, TABLE, first.t(), OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 3, 500)  # [1, 1] of the transposed view
    assert (walk.origin.launch, walk.origin.element) == ("0.0", 4)


def test_an_index_that_is_repeated_along_a_dimension(tmp_path: Path) -> None:
    index = torch.tensor([[7], [700]])
    first = torch.zeros(2, 3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, index, first)
    first.copy_(index.expand(2, 3))
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 5, 700)
    assert (walk.origin.input, walk.origin.element) == ("index", 1)


@pytest.mark.parametrize(
    ("shape", "element"),
    [((2, 3), 5), ((6,), 5), ((3,), 2), ((1, 3), 2), ((2, 1), 1), ((1,), 0), ((), 0), ((1, 2, 1, 3), 5)],
)
def test_an_absurd_value_is_followed_by_its_place(tmp_path: Path, shape: tuple[int, ...], element: int) -> None:
    """A kernel added something to it, so that the value itself is nowhere in its input."""
    index = torch.full(shape, FAR)
    first = torch.zeros(2, 3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, index, first)
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 5, FAR + 1)
    assert (walk.origin.input, walk.origin.element) == ("index", element)


@pytest.mark.parametrize("shape", [(4,), (2,), (3, 2, 3), (2, 2)])
def test_an_absurd_value_is_not_followed_into_a_tensor_of_another_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    first = torch.zeros(2, 3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.full(shape, FAR), first)
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 5, FAR + 1)
    assert (walk.origin.launch, walk.origin.element) == ("0.0", 5)


def test_another_bad_value_at_the_same_place_is_not_followed(tmp_path: Path) -> None:
    """An operand of an index may be out of range; only an absurd one cannot be an operand."""
    first = torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.tensor([101, 101, 101]), first)
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 1, 102)
    assert walk.origin.launch == "0.0"


def test_an_input_that_was_not_saved_is_passed_over(tmp_path: Path) -> None:
    memory = [torch.zeros(3, dtype=torch.int64), torch.tensor([1, 700, 2]), torch.zeros(3, dtype=torch.int64)]
    recorder = Recorder()
    recorder.launch(COPY, TABLE, memory[1], unsaved=ALL)
    recorder.launch(ADD, *memory, unsaved=[0])
    recorder.launch(GATHER, TABLE, memory[2], OUT)
    walk = walk_from(recorder.run(tmp_path), "0.2", "buf1", 1, 700)
    assert [place.launch for place in walk.chain] == ["0.0", "0.1", "0.2"]


def test_a_value_that_was_moved_is_found_where_it_lies_first(tmp_path: Path) -> None:
    first = torch.zeros(4, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.tensor([1, 2, 700, 700]), first)
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 0, 700)
    assert (walk.origin.input, walk.origin.element) == ("index", 2)


def test_an_index_in_memory_that_nobody_wrote(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.launch(GATHER, TABLE, torch.zeros(2, 3, dtype=torch.int64), OUT)
    walk = walk_from(recorder.run(tmp_path), "0.0", "buf1", 4, 700)
    assert (walk.origin.launch, walk.origin.argument, walk.origin.element) == ("0.0", "buf1", 4)
    assert walk.chain == (walk.origin,)
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
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 2, 700)  # memory[4]
    assert (walk.origin.launch, walk.origin.element) == ("0.0", element)


@pytest.mark.parametrize(("read", "element"), [(0, 0), (1, None), (2, 1)])
def test_an_index_inside_of_an_element_of_the_writer(tmp_path: Path, read: int, element: int | None) -> None:
    memory = torch.zeros(8, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.zeros(1, dtype=torch.int64), memory)
    recorder.launch(GATHER, TABLE, memory.view(torch.int32), OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", read, 700)
    assert walk.origin.element == element


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
        recorder.launch(COPY, *((one, other) if number % 2 else (other, one)))
    walk = walk_from(recorder.run(tmp_path), "0.69", "buf0", 0, FAR)
    assert [place.launch for place in walk.chain] == [f"0.{number}" for number in range(6, 70)]
    assert walk.origin == walk.chain[0]
    assert len(walk.evidence) == 63


@pytest.mark.parametrize(
    ("value", "limit", "bad", "absurd"),
    [
        (0, 100, False, False),
        (-100, 100, False, False),
        (-101, 100, True, False),
        (99, 100, False, False),
        (100, 100, True, False),
        (100 << 20, 100, True, False),
        ((100 << 20) + 1, 100, True, True),
        (-(100 << 20) - 1, 100, True, True),
        (0, 0, True, False),  # an empty table
        (1 << 20, 0, True, False),
        ((1 << 20) + 1, 0, True, True),
    ],
)
def test_bad_and_absurd_values(tmp_path: Path, value: int, limit: int, bad: bool, absurd: bool) -> None:
    recorder = Recorder()
    recorder.launch(COPY, torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), unsaved=ALL)
    index = replace(index_value(recorder.run(tmp_path), "0.0", "buf0", 0, value), limit=limit)
    assert (index.is_bad, index.is_absurd) == (bad, absurd)


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


def test_the_walk_ends_where_nothing_was_saved(tmp_path: Path) -> None:
    first = torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.tensor([1, FAR, 2]), first, unsaved=ALL)
    recorder.launch(GATHER, TABLE, first, OUT)
    walk = walk_from(recorder.run(tmp_path), "0.1", "buf1", 1, FAR)
    assert walk.origin.launch == "0.0"


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
