"""Weights are in memory while they are read, however many the program has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.compare.protocol.measurement import Inherited
from aoti_debug.compare.protocol.request import KnownValue, ProgramOutput, ProgramRun, Recorded, Region
from aoti_debug.compare.worker.lowered_program import evaluate_program
from aoti_debug.compare.worker.region import RegionEvaluator
from aoti_debug.package.argument_values import Layout
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from aoti_debug.runs.run.saved_outputs import write_tensor
from aoti_debug.runs.rundir.formats import tensor_file_format
from aoti_debug.runs.rundir.formats.tensor_file_format import ALIGNMENT
from tests.compare.anonymous_memory import growth

ROWS, COLUMNS = 1 << 14, 1 << 10
BYTES = 4 * ROWS * COLUMNS  # of a weight: 64 MiB
COUNT = 6
ROW = (TensorType("float32", "cpu", (str(COLUMNS),), ("1",)),)
TABLE = (TensorType("float32", "cpu", (str(ROWS), str(COLUMNS)), (str(COLUMNS), "1")),)


def weight(folder: Path, name: str, strides: tuple[int, int] = (COLUMNS, 1)) -> KnownValue:
    """A recorded weight of zeros that takes no room on the disk."""
    layout = Layout("float32", "cpu", (ROWS, COLUMNS), strides, storage_offset=0, storage_bytes=BYTES, item_bytes=4)
    header = tensor_file_format.header(name, layout)
    assert len(header) % ALIGNMENT == 0
    path = folder / f"{name}.safetensors"
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + BYTES)
    return KnownValue(ValueKey(name), Recorded("0.0", name, str(path), tuple(map(str, strides)), ROWS * COLUMNS))


def row(folder: Path, name: str) -> KnownValue:
    path = folder / f"{name}.safetensors"
    write_tensor(path, name, torch.zeros(COLUMNS))
    return KnownValue(ValueKey(name), Recorded("0.0", name, str(path), ("1",), COLUMNS))


def graph() -> Graph:
    """Each node is the largest number of each column of a weight."""
    weights = [Node(f"w{at}", NodeKind.WEIGHT, f"w{at}", types=TABLE) for at in range(COUNT)]
    nodes = [
        Node(f"node{at}", NodeKind.CALL, "aten.amax.default", ({"node": f"w{at}"}, [0]), types=ROW)
        for at in range(COUNT)
    ]
    return Graph("", MODEL, (*weights, *nodes), ())


@pytest.mark.parametrize("strides", [(COLUMNS, 1), (1, ROWS)])
def test_one_weight_of_the_whole_program_at_a_time(tmp_path: Path, strides: tuple[int, int]) -> None:
    weights = tuple(weight(tmp_path, f"w{at}", strides) for at in range(COUNT))
    outputs = tuple(ProgramOutput("0.0", row(tmp_path, f"node{at}")) for at in range(COUNT))
    run = ProgramRun(graph="", function=MODEL, inputs=weights, outputs=outputs)
    with growth() as grown:
        results = list(evaluate_program(Reference(FORMAT, "2.13", (graph(),)), run, "cpu"))
    assert [result.relative for result in results if isinstance(result, Inherited)] == [0.0] * COUNT
    assert len(results) == COUNT
    assert grown.bytes < 1.5 * BYTES * (strides != (COLUMNS, 1)) + (32 << 20)


def test_a_recorded_weight_is_not_copied(tmp_path: Path) -> None:
    region = Region(
        launch="0.0",
        launches=("0.0",),
        graph="",
        function=MODEL,
        nodes=("node0",),
        inputs=(weight(tmp_path, "w0"),),
        outputs=(row(tmp_path, "node0"),),
    )
    with growth() as grown:
        result = RegionEvaluator(Reference(FORMAT, "2.13", (graph(),)), "cpu").measure(region)
    assert not result.failure
    assert result.outputs[0].equals_eager
    assert grown.bytes < 3.5 * BYTES  # one copy in float64, 2.75 to 3 with parts of it; a copy would make one more
