"""Errors of functions in what a launch writes: those within a bound are explained anywhere, others nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aoti_debug.compare.evaluate.rounding_errors import FUNCTION_BOUNDS
from aoti_debug.compare.measure.ulp import ulp
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.worker.error_bounds import BoundedEvaluation, followed
from aoti_debug.compare.worker.region import RegionEvaluator
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from tests import saved_tensors

X, Y = {"node": "x"}, {"node": "y"}
BINARY = ("atan2", "hypot", "pow")
SPECIAL = ("i0e", "i1", "i1e", "ndtri")
LARGEST = {"lgamma": 1e30, "cosh": 88.0, "sinh": 88.0, "exp": 88.0, "i0": 88.0, "i1": 88.0, "digamma": 1e30}


def call(name: str, target: str, *args: Any, dtype: str = "float32", **kwargs: Any) -> Node:
    return Node(name, NodeKind.CALL, target, args, kwargs, types=(TensorType(dtype, "cpu", ("n",), ()),))


def graph_of(inputs: dict[str, Tensor], nodes: tuple[Node, ...]) -> Graph:
    def typed(tensor: Tensor) -> tuple[TensorType, ...]:
        return (TensorType(str(tensor.dtype).removeprefix("torch."), "cpu", (str(len(tensor)),), ()),)

    given = (Node(name, NodeKind.INPUT, types=typed(tensor)) for name, tensor in inputs.items())
    return Graph("", MODEL, (*given, *nodes), ())


def measured(folder: Path, inputs: dict[str, Tensor], nodes: tuple[Node, ...], actual: Tensor) -> Measurement:
    """The measurement of the last node's value, of a kernel that reads the inputs."""

    def known(value: str, tensor: Tensor) -> KnownValue:
        saved_tensors.save(folder / f"{value}.safetensors", value, tensor)
        return KnownValue(ValueKey(value), Recorded("0.0", value, str(folder / f"{value}.safetensors")))

    graph, last = graph_of(inputs, nodes), nodes[-1].name
    read = tuple(known(name, tensor) for name, tensor in inputs.items())
    names = tuple(node.name for node in nodes)
    region = Region(
        launch="0.0",
        launches=("0.0",),
        graph="",
        function=MODEL,
        nodes=names,
        inputs=read,
        outputs=(known(last, actual),),
    )
    result = RegionEvaluator(Reference(FORMAT, "2.13", (graph,)), "cpu").measure(region)
    assert not result.failure
    return result.outputs[0]


def magnitudes(largest: float = 3e38) -> Tensor:
    """Numbers of both signs from the smallest subnormal one on, several of each exponent."""
    positive = torch.logspace(-44.8, 38.5, 2000, dtype=torch.float64).float()
    positive = torch.cat([positive[positive <= largest], torch.linspace(0.05, 12, 500)])
    return torch.cat([positive, -positive])


def function_of(name: str) -> Callable[..., Tensor]:
    found: Callable[..., Tensor] = getattr(torch.special if name in SPECIAL else torch, name)
    return found


def arguments_of(name: str) -> dict[str, Tensor]:
    x = magnitudes(LARGEST.get(name, 3e38))
    if name not in BINARY:
        return {"x": x}
    generator = torch.Generator().manual_seed(0)
    if name == "pow":
        x = x.abs()
        y = ((torch.rand(len(x), generator=generator) * 270 - 145) / x.double().log2()).float()
    else:
        y = x * torch.exp(torch.randn(len(x), generator=generator))
    are_finite = y.isfinite()
    return {"x": x[are_finite], "y": y[are_finite]}


@pytest.mark.parametrize("name", FUNCTION_BOUNDS)
def test_a_function_off_by_its_bound_is_right_and_by_three_times_that_is_wrong(tmp_path: Path, name: str) -> None:
    bound, function, inputs = FUNCTION_BOUNDS[name], function_of(name), arguments_of(name)
    wide = [tensor.double() for tensor in inputs.values()]
    exact = function(*wide)
    by_argument = torch.zeros_like(exact)
    for sign in (1, -1):
        moved = (w + sign * bound.cpu_argument * ulp(w, torch.float32) for w in wide)
        by_argument = by_argument.maximum((function(*moved) - exact).abs())
    size = exact.abs()
    counted = exact.isfinite() & by_argument.isfinite() & (size > 2.0**-149) & (size < 1e38)
    if bound.flushes:
        counted &= size >= torch.finfo(torch.float32).smallest_normal
    inputs, exact = {name: tensor[counted] for name, tensor in inputs.items()}, exact[counted]
    error = bound.cpu * ulp(exact, torch.float32) + by_argument[counted]
    target = f"aten.special_{name}.default" if name in SPECIAL else f"aten.{name}.default"
    target = "aten.pow.Tensor_Tensor" if name == "pow" else target
    nodes = (call("f", target, *({"node": name} for name in inputs)),)
    assert len(exact) > 500
    for sign in (1, -1):
        assert measured(tmp_path, inputs, nodes, (exact + sign * error).float()).wrong == 0
        assert measured(tmp_path, inputs, nodes, (exact + 3 * sign * error).float()).wrong == len(exact)


def test_subnormal_results_that_overflow_within_the_function_may_be_zero(tmp_path: Path) -> None:
    x = torch.linspace(-103, -88, 100)
    nodes = (call("sigmoid", "aten.sigmoid.default", X),)
    exact = x.double().sigmoid()
    flushed = torch.where(exact < torch.finfo(torch.float32).smallest_normal, 0.0, exact).float()
    assert (flushed == 0).sum() > 80
    assert measured(tmp_path, {"x": x}, nodes, flushed).wrong == 0
    exp = (call("exp", "aten.exp.default", X),)
    x = torch.linspace(-100, -88, 100)
    assert measured(tmp_path, {"x": x}, exp, torch.zeros_like(x)).wrong == 100


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_bounded_in_its_own_unit(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.logspace(-4, 0, 300).to(dtype)
    nodes = (call("tanh", "aten.tanh.default", X, dtype=str(dtype).removeprefix("torch.")),)
    exact = x.double().tanh()
    step = ulp(exact, dtype)
    assert measured(tmp_path, {"x": x}, nodes, (exact + step / 2).to(dtype)).wrong == 0
    assert measured(tmp_path, {"x": x}, nodes, (exact + 3 * step).to(dtype)).wrong == len(x)


SMALL = torch.logspace(-7, 1, 400)
ERROR = 2.0**-23  # relative


def tanh(x: Tensor, ulps: float) -> Tensor:
    """tanh as a kernel computes it that is off by so many units."""
    return (x.double().tanh() * (1 + ulps * ERROR)).float()


@pytest.mark.parametrize(
    ("target", "places", "value"), [("addcmul", (0, 1, 1), -0.5), ("addcdiv", (0, 1, 1), -3.0), ("lerp", (0, 1), 0.7)]
)
def test_a_product_that_is_rounded_before_it_cancels(
    tmp_path: Path, target: str, places: tuple[int, ...], value: float
) -> None:
    x = torch.linspace(0.5, 4, 600)
    factor = value * x.double() ** (0 if target == "addcdiv" else 2)
    y = (-factor if target != "lerp" else x * (1 - 1 / 0.7)) * (1 + 1e-5)
    first, second = (y.float(), x) if target != "lerp" else (x, y.float())
    inputs = {"x": first, "y": second}
    args = [(X, Y)[place] for place in places]
    number: dict[str, Any] = {"value": value} if target != "lerp" else {}
    node = call(
        "f",
        f"aten.{target}.{'Scalar' if target == 'lerp' else 'default'}",
        *args,
        *([] if number else [value]),
        **number,
    )
    a, b = first, second
    rounded = {
        "addcmul": lambda: a + (b * b) * value,
        "addcdiv": lambda: a + (b * value) / b,
        "lerp": lambda: a + (b - a) * torch.tensor(value),
    }[target]()
    other = rounded + 0.5 * ulp(a.double(), torch.float32).float()
    assert measured(tmp_path, inputs, (node,), rounded).wrong == 0
    assert measured(tmp_path, inputs, (node,), other).wrong == 0
    assert measured(tmp_path, inputs, (node,), rounded + 40 * ulp(a.double(), torch.float32).float()).wrong == 600


SCALED = (call("tanh", "aten.tanh.default", X), call("mul", "aten.mul.Tensor", {"node": "tanh"}, 1e6))


def test_what_cancels_behind_a_function_is_explained_and_a_factor_is_not(tmp_path: Path) -> None:
    nodes = (call("tanh", "aten.tanh.default", X), call("sub", "aten.rsub.Scalar", {"node": "tanh"}, 1))
    x = torch.linspace(3, 8, 100)
    off = tanh(x, 1.5)
    relative = ((1 - off.double()) / (1 - x.double().tanh()) - 1).abs().max()
    assert relative > 0.3  # of what is small
    assert measured(tmp_path, {"x": x}, nodes, 1 - off).wrong == 0
    assert measured(tmp_path, {"x": x}, nodes, 1 - tanh(x, 12)).wrong == 100
    assert measured(tmp_path, {"x": SMALL}, SCALED, tanh(SMALL, 1.5) * 1e6).wrong == 0
    assert measured(tmp_path, {"x": SMALL}, SCALED, tanh(SMALL, 9) * 1e6).wrong == len(SMALL)
    assert measured(tmp_path, {"x": SMALL}, SCALED, torch.zeros_like(SMALL)).wrong == len(SMALL)


def test_the_logarithm_of_a_rounded_sum_near_one(tmp_path: Path) -> None:
    x = torch.logspace(-6, -2, 300)
    nodes = (call("add", "aten.add.Tensor", X, 1), call("log", "aten.log.default", {"node": "add"}))
    assert measured(tmp_path, {"x": x}, nodes, (x + 1).log()).wrong == 0
    otherwise = (x.double() + 1 + 0.7 * ERROR).log().float()
    assert ((otherwise.double() / x.double().log1p() - 1).abs() > 0.01).sum() > 20
    assert measured(tmp_path, {"x": x}, nodes, otherwise).wrong == 0
    assert measured(tmp_path, {"x": x}, nodes, (x.double() + 1 + 6 * ERROR).log().float()).wrong == 300
    alone = (call("log", "aten.log.default", X),)
    assert measured(tmp_path, {"x": x + 1}, alone, torch.nextafter(x + 1, torch.tensor(2.0)).log()).wrong > 200


def gelu() -> tuple[Node, ...]:
    return (
        call("half", "aten.mul.Tensor", X, 0.5),
        call("scaled", "aten.mul.Tensor", X, 0.7071067811865476),
        call("erf", "aten.erf.default", {"node": "scaled"}),
        call("add", "aten.add.Tensor", {"node": "erf"}, 1),
        call("gelu", "aten.mul.Tensor", {"node": "half"}, {"node": "add"}),
    )


def test_an_absolute_error_of_erf_is_explained_where_1_is_added(tmp_path: Path) -> None:
    x = torch.cat([torch.linspace(-6, 6, 999), torch.logspace(-6, 0, 500)])
    erf = (x * 0.7071067811865476).double().erf() + 5e-7 * (-(x.double() ** 2)).exp()
    assert measured(tmp_path, {"x": x}, gelu(), (0.5 * x) * (1 + erf.float())).wrong == 0
    y = torch.logspace(-6, -3, 100)
    alone = (call("erf", "aten.erf.default", X),)
    assert measured(tmp_path, {"x": y}, alone, (y.double().erf() + 5e-7).float()).wrong == 100
    scaled = (*alone, call("mul", "aten.mul.Tensor", {"node": "erf"}, 1e6))
    assert measured(tmp_path, {"x": y}, scaled, (y.double().erf() + 5e-7).float() * 1e6).wrong == 100


def test_a_decision_that_the_error_of_a_function_makes(tmp_path: Path) -> None:
    nodes = (
        call("tanh", "aten.tanh.default", X),
        call("gt", "aten.gt.Scalar", {"node": "tanh"}, 0.5, dtype="bool"),
        call("where", "aten.where.self", {"node": "gt"}, X, Y),
    )
    x = torch.full((50,), 0.5).atanh() + torch.linspace(-1e-7, 1e-7, 50)
    inputs = {"x": x, "y": x + 100}
    assert measured(tmp_path, inputs, nodes, x).wrong == 0
    assert measured(tmp_path, inputs, nodes, x + 100).wrong == 0
    assert measured(tmp_path, inputs, nodes, x + 250).wrong == 50
    far = {"x": x + 1, "y": x + 100}
    assert measured(tmp_path, far, nodes, far["y"]).wrong == 50


def test_what_overflows_on_the_way_may_be_anything_up_to_infinity(tmp_path: Path) -> None:
    nodes = (
        call("neg", "aten.neg.default", X),
        call("exp", "aten.exp.default", {"node": "neg"}),
        call("add", "aten.add.Tensor", {"node": "exp"}, 1),
        call("silu", "aten.div.Tensor", X, {"node": "add"}),
    )
    x = torch.linspace(-95, -80, 100)
    assert measured(tmp_path, {"x": x}, nodes, torch.where(x < -88.7, 0.0, x / (1 + (-x).exp()))).wrong == 0
    assert measured(tmp_path, {"x": x}, nodes, torch.zeros_like(x)).wrong > 40


def test_large_arguments_do_not_excuse_a_function(tmp_path: Path) -> None:
    """An input is what the kernel read: not its neighbour, which exp(80) or sin(1e6) would tell from it."""
    x = torch.linspace(60, 80, 50)
    exp = (call("exp", "aten.exp.default", X),)
    assert measured(tmp_path, {"x": x}, exp, torch.nextafter(x, torch.tensor(100.0)).exp()).wrong == 50
    large = 1e6 + torch.arange(50.0)
    sin = (call("sin", "aten.sin.default", X),)
    assert measured(tmp_path, {"x": large}, sin, (large + 0.0625).sin()).wrong > 45


def test_after_more_than_a_period_any_number_may_come_out(tmp_path: Path) -> None:
    nodes = (call("exp", "aten.exp.default", X), call("sin", "aten.sin.default", {"node": "exp"}))
    x = torch.linspace(18, 30, 500)
    assert measured(tmp_path, {"x": x}, nodes, (x.double().exp() * (1 + 2 * ERROR)).sin().float()).wrong == 0
    assert measured(tmp_path, {"x": x}, nodes, 1.5 + (x.exp() * 0).sin()).wrong > 0
    small = torch.linspace(-3, 1, 500)
    assert measured(tmp_path, {"x": small}, nodes, (small.double().exp() * (1 + 40 * ERROR)).sin().float()).wrong > 450


def test_only_operators_on_single_elements_are_followed() -> None:
    x = torch.ones(4)
    nodes = (
        call("tanh", "aten.tanh.default", X),
        call("sum", "aten.sum.default", {"node": "tanh"}),
        call("mul", "aten.mul.Tensor", {"node": "tanh"}, {"node": "sum"}),
        call("decimals", "aten.round.decimals", {"node": "tanh"}, decimals=2),
        call("wide", "prims.convert_element_type.default", {"node": "tanh"}, {"dtype": "float64"}, dtype="float64"),
    )
    assert followed(graph_of({"x": x}, nodes), [node.name for node in nodes]) == {"tanh"}


@pytest.mark.parametrize(("device", "excused"), [("cpu", False), ("cuda:0", True)])
def test_a_triton_kernel_may_take_a_subnormal_base_for_a_larger_one(device: str, excused: bool) -> None:
    """What one on an H100 returned: 2**-149 to the power of 0.832 as if the base were 2**-127."""
    inputs = {"x": torch.tensor([2.0**-149, 0.5]), "y": torch.tensor([0.8324345946311951, 2.0])}
    node = call("f", "aten.pow.Tensor_Tensor", X, Y)
    graph = graph_of(inputs, (node,))
    evaluation = BoundedEvaluation(Reference(FORMAT, "2.13", (graph,)), graph, device)
    for name, value in inputs.items():
        evaluation.set(ValueKey(name), value)
    evaluation.run(node)
    subnormal, normal = evaluation.error(ValueKey("f")).tolist()
    assert (subnormal >= 1.4974477067699206e-32) == excused
    assert normal < 1e-5
