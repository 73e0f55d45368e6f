"""Values of a region: recorded in parts, moved by rounding errors, in fresh memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.evaluate.rounding_errors import FUNCTION_BOUNDS
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.worker.region import RegionEvaluator
from aoti_debug.compare.worker.region_values import (
    RegionInputs,
    approximated,
    fresh_memory_filled,
    perturbed,
    region_inputs,
)
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from tests import saved_tensors

WHOLE = torch.arange(12.0).reshape(3, 4)
X = {"node": "x"}
GRAPH = Graph(
    "",
    MODEL,
    (
        Node("x", NodeKind.INPUT, types=(TensorType("float32", "cpu", ("3", "4"), ("4", "1")),)),
        Node("select", NodeKind.CALL, "aten.select.int", (X, 0, 1)),
        Node("double", NodeKind.CALL, "aten.mul.Tensor", ({"node": "select"}, 2)),
        Node("total", NodeKind.CALL, "aten.sum.dim_IntList", (X, [0])),
    ),
    (),
)


def saved(folder: Path, name: str, tensor: torch.Tensor, storage: int = 12) -> Recorded:
    saved_tensors.save(folder / f"{name}.safetensors", name, tensor)
    return Recorded("0.0", name, str(folder / f"{name}.safetensors"), ("4", "1"), storage)


def region(output: str, actual: Recorded, *parts: Recorded) -> Region:
    nodes = ("select", "double") if output == "double" else ("total",)
    known = KnownValue(ValueKey("x"), parts[0], parts[1:])
    return Region(
        launch="0.0",
        launches=("0.0",),
        graph="",
        function=MODEL,
        nodes=nodes,
        inputs=(known,),
        outputs=(KnownValue(ValueKey(output), actual),),
    )


def inputs(item: Region) -> RegionInputs:
    return region_inputs(GRAPH, item, Symbols(), "cpu", None)


def test_parts_that_cover_the_whole_value(tmp_path: Path) -> None:
    parts = (saved(tmp_path, "top", WHOLE[:2]), saved(tmp_path, "bottom", WHOLE[1:]))
    found = inputs(region("total", saved(tmp_path, "buf0", WHOLE.sum(0)), *parts))
    assert found.other is None
    assert torch.equal(found.known[ValueKey("x")], WHOLE)


def test_other_elements_are_filled_twice(tmp_path: Path) -> None:
    expanded = WHOLE[:, 1:2].expand(3, 4)  # a column, four times
    found = inputs(region("total", saved(tmp_path, "buf0", WHOLE.sum(0)), saved(tmp_path, "column", expanded)))
    assert found.other is not None
    first, second = found.known[ValueKey("x")], found.other[ValueKey("x")]
    assert torch.equal(first[:, 1], WHOLE[:, 1])
    assert torch.equal(second[:, 1], WHOLE[:, 1])
    assert not torch.equal(first, second)
    assert set(first.reshape(-1).tolist()) <= set(WHOLE[:, 1].tolist())


def test_a_part_of_an_unknown_place(tmp_path: Path) -> None:
    item = region("double", saved(tmp_path, "buf0", WHOLE[1] * 2), saved(tmp_path, "row", WHOLE[1].clone(), storage=99))
    with pytest.raises(NotEvaluableError, match=r"row of 0\.0 is a part of x"):
        inputs(item)


def test_only_what_does_not_depend_on_the_rest_is_compared(tmp_path: Path) -> None:
    evaluator = RegionEvaluator(Reference(FORMAT, "2.13", (GRAPH,)), "cpu")
    row = saved(tmp_path, "row", WHOLE[1])
    for wrong, actual in ((0, WHOLE[1] * 2), (4, WHOLE[1] * 2 + 1)):
        (output,) = evaluator.measure(region("double", saved(tmp_path, "buf0", actual), row)).outputs
        assert output.wrong == wrong
    result = evaluator.measure(region("total", saved(tmp_path, "buf1", WHOLE.sum(0)), row))
    assert result.failure == "it depends on elements of x that were not recorded"


def test_the_memory_of_conjugated_numbers_holds_their_conjugates(tmp_path: Path) -> None:
    numbers = torch.complex(WHOLE, WHOLE + 1)
    types = (TensorType("complex64", "cpu", ("3", "4"), ("4", "1")),)
    graph = Graph(
        "",
        MODEL,
        (
            Node("z", NodeKind.INPUT, types=types),
            Node("conjugate", NodeKind.CALL, "aten._conj.default", ({"node": "z"},), types=types),
            Node("turned", NodeKind.CALL, "aten.permute.default", ({"node": "conjugate"}, [1, 0])),
            Node("copied", NodeKind.CALL, "aten.clone.default", ({"node": "turned"},)),
        ),
        (),
    )
    evaluator = RegionEvaluator(Reference(FORMAT, "2.13", (graph,)), "cpu", kept=tmp_path)
    memory = saved(tmp_path, "buf0", numbers)
    copied = replace(saved(tmp_path, "buf1", numbers.conj().resolve_conj().t().contiguous()), strides=("3", "1"))
    known = (KnownValue(ValueKey("z"), memory),)
    other = KnownValue(ValueKey("conjugate"), saved(tmp_path, "buf2", numbers * 2 + 1))
    for nodes, start, output in (
        (("conjugate",), known, KnownValue(ValueKey("conjugate"), memory)),
        (("turned", "copied"), (KnownValue(ValueKey("conjugate"), memory),), KnownValue(ValueKey("copied"), copied)),
    ):
        (measured,) = evaluator.measure(
            Region(
                launch="0.0", launches=("0.0",), graph="", function=MODEL, nodes=nodes, inputs=start, outputs=(output,)
            )
        ).outputs
        assert (measured.wrong, measured.equals_eager) == (0, True)
    (wrong,) = evaluator.measure(
        Region(
            launch="0.0",
            launches=("0.0",),
            graph="",
            function=MODEL,
            nodes=("conjugate",),
            inputs=known,
            outputs=(other,),
        )
    ).outputs
    assert wrong.wrong == 24
    assert len(list(tmp_path.glob("program_values/*"))) == 1


def test_a_wrong_output_of_eight_bits_stays_wrong(tmp_path: Path) -> None:
    narrow = (TensorType("float8_e4m3fn", "cpu", ("3", "4"), ("4", "1")),)
    wide = (TensorType("float32", "cpu", ("3", "4"), ("4", "1")),)
    convert = "prims.convert_element_type.default"
    graph = Graph(
        "",
        MODEL,
        (
            Node("x", NodeKind.INPUT, types=wide),
            Node("narrow", NodeKind.CALL, convert, (X, {"dtype": "float8_e4m3fn"}), types=narrow),
        ),
        (),
    )
    evaluator = RegionEvaluator(Reference(FORMAT, "2.13", (graph,)), "cpu", kept=tmp_path)
    known = KnownValue(ValueKey("x"), saved(tmp_path, "x", WHOLE))
    actual = KnownValue(ValueKey("narrow"), saved(tmp_path, "buf0", (WHOLE * 2).to(torch.float8_e4m3fn)))
    result = evaluator.measure(
        Region(
            launch="0.0",
            launches=("0.0",),
            graph="",
            function=MODEL,
            nodes=("narrow",),
            inputs=(known,),
            outputs=(actual,),
        )
    )
    assert result.failure == ""
    assert result.outputs[0].wrong > 0


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, 2.0**-52), (torch.float32, 2.0**-23)])
def test_every_number_is_moved(dtype: torch.dtype, unit: float) -> None:
    values = {ValueKey("x"): torch.ones(100, dtype=dtype), ValueKey("n"): torch.arange(3)}
    moved = perturbed(values, torch.Generator().manual_seed(0))
    assert set((moved[ValueKey("x")] - 1).tolist()) == {unit, -unit}
    assert moved[ValueKey("n")].tolist() == [0, 1, 2]
    far = perturbed(values, torch.Generator().manual_seed(0), units=8)
    assert set((far[ValueKey("x")] - 1).tolist()) == {8 * unit, -8 * unit}


def test_functions_that_kernels_approximate_are_moved_by_their_bounds_however_small_they_are() -> None:
    exact = torch.full((4,), 1e-6, dtype=torch.float64).erf()
    adjust = approximated(torch.Generator().manual_seed(0))
    moved = adjust(Node("erf", NodeKind.CALL, "aten.erf.default"), [], exact) - exact
    assert torch.allclose(moved.abs(), FUNCTION_BOUNDS["erf"].cpu * 2.0**-23 * exact, rtol=1e-6)
    assert adjust(Node("mul", NodeKind.CALL, "aten.mul.Tensor"), [], exact) is exact


@pytest.mark.parametrize(("dtype", "unit"), [("float64", 2.0**-52), ("float32", 2.0**-23), ("bfloat16", 2.0**-23)])
def test_the_results_of_reductions_are_moved_by_their_rounding(dtype: str, unit: float) -> None:
    node = Node(
        "mean", NodeKind.CALL, "aten.var_mean.correction", types=(TensorType(dtype, "cpu", ("4",), ("1",)),) * 2
    )
    exact = torch.ones(4, dtype=torch.float64)
    variance, mean = approximated(torch.Generator().manual_seed(0))(node, [], (exact, exact))
    for moved in (variance, mean):
        assert set((moved - exact).abs().tolist()) == {unit}


def test_what_was_not_written_is_nan_inside_alone() -> None:
    with fresh_memory_filled():
        assert torch.are_deterministic_algorithms_enabled()
        assert bool(torch.empty(64).isnan().all())
        assert bool((torch.empty(64, dtype=torch.int32) == torch.iinfo(torch.int32).max).all())
    assert not torch.are_deterministic_algorithms_enabled()
