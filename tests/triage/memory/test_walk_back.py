from __future__ import annotations

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
from aoti_debug.triage.memory.walk_back import IndexValue, Walk, makers, walk_back

torch = pytest.importorskip("torch")

FAR = 1 << 41
MANIFEST = replace(
    make_manifest(
        site("scale", arg("arg0_1"), arg("buf0", Role.OUT), line=10),
        site("copy", arg("buf0"), arg("buf1", Role.OUT), line=11),
        site("gather", arg("table"), arg("buf1"), arg("buf2", Role.OUT), line=12),
    ),
    inputs=("arg0_1", "table"),
    input_names=("index", "table"),
)
SCALE, COPY, GATHER = range(3)


class Recorder:
    """A run at level 1 of launches that all return; `values` are the arguments before each of them."""

    def __init__(self) -> None:
        self._writer = JournalWriter(level=1)
        self._writer.call_begin()
        self._files: list[tuple[str, str, Any]] = []
        self._count = 0

    def launch(self, site_id: int, *values: Any, saved: bool = True) -> None:
        number, self._count = self._count, self._count + 1
        self._writer.launch_begin(number, site_id, *(described(value) for value in values))
        for slot, value in enumerate(values if saved else ()):
            path = f"tensors/0/{number:04}/before_{slot}.safetensors"
            self._writer.tensor_file(number, slot, Phase.BEFORE, path, size=value.nbytes)
            self._files.append((path, MANIFEST.sites[site_id].args[slot].name, value.clone()))
        self._writer.launch_end(number)

    def run(self, base: Path) -> RunDir:
        path = run_directory(base, MANIFEST, self._writer)
        for name, key, value in self._files:
            save(path / name, key, value)
        return open_run(path)


def walk_from(run: RunDir, launch: str, argument: str, element: int, value: int) -> Walk:
    reader = run.launch(launch)
    read = reader.argument(argument)
    assert read is not None
    return walk_back(Dataflow(run), IndexValue(reader, read, element, value, limit=100))


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
    assert walk.evidence[-1] == f"the index came from the model's input: index[1] is {FAR}"


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


def test_the_walk_ends_where_nothing_was_saved(tmp_path: Path) -> None:
    first = torch.zeros(3, dtype=torch.int64)
    recorder = Recorder()
    recorder.launch(SCALE, torch.tensor([1, FAR, 2]), first, saved=False)
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
