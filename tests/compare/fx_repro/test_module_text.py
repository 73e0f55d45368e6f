"""The sources of modules, from graphs that are written by hand."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine import torch_settings
from aoti_debug.compare.fx_repro.module_text import ModuleText, in_full, module_text
from aoti_debug.compare.fx_repro.script_text import launcher_text, script_text
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey

GOLDEN = Path(__file__).parent / "golden"
FLOAT = TensorType("float32", "cpu", ("4", "s0"), ("s0", "1"))
LINE = ModelLine("/home/u/model.py", 23, "forward", "y = self.scale(x)")
Dumped = Callable[[Path, str], None]


def node(name: str, target: str, *args: Any, kwargs: Mapping[str, Any] | None = None, **others: Any) -> Node:
    return Node(name, NodeKind.CALL, target, args, kwargs or {}, (FLOAT,), **others)


def of(name: str) -> dict[str, str]:
    return {"node": name}


def text_of(
    nodes: list[Node],
    outputs: list[ValueKey],
    inputs: list[ValueKey] | None = None,
    worded: Callable[[ModelLine], str] = in_full,
) -> ModuleText:
    """The text of a region of all nodes; "x" is its input."""
    x = Node("x", NodeKind.INPUT, types=(FLOAT,))
    graph = Graph("", MODEL, (x, *nodes), ())
    recorded = Recorded("0.0", "buf0", "none")
    region = Region(
        launch="0.0",
        launches=("0.0",),
        graph="",
        function=MODEL,
        nodes=tuple(node.name for node in nodes),
        inputs=tuple(KnownValue(key, recorded) for key in inputs or [ValueKey("x")]),
        outputs=tuple(KnownValue(key, recorded) for key in outputs),
        symbols={"s0": 3},
    )
    return module_text(Reference(FORMAT, "2.13", (graph,), (LINE,)), graph, region, worded)


def executed(module: ModuleText) -> torch.nn.Module:
    names: dict[str, Any] = {"torch": torch, "math": math}
    exec(module.source, names)
    found = names["Launch"]()
    assert isinstance(found, torch.nn.Module)
    return found


def everything(worded: Callable[[ModelLine], str] = in_full) -> ModuleText:
    scale = TensorType("float32", "cpu", ("2", "1"), ("1", "1"))
    empty = TensorType("float32", "cpu", ("0",), ("1",))
    return text_of(
        [
            Node("s0", NodeKind.INPUT, size="s0"),
            Node("scale", NodeKind.WEIGHT, "scale", types=(scale,), value=(0.5, {"float": "inf"})),
            Node("nothing", NodeKind.WEIGHT, "nothing", types=(empty,)),
            node("full", "aten.full.default", [2, of("s0")], 1.5, kwargs={"dtype": {"dtype": "float64"}}, line=0),
            node("mul", "aten.mul.Tensor", of("full"), of("scale"), line=0),
            node(
                "clone", "aten.clone.default", of("x"), kwargs={"memory_format": {"memory_format": "preserve_format"}}
            ),
            node("print_1", "aoti_debug.print_.default", "x={x}", of("clone")),
            node("max_1", "aten.max.dim", of("clone"), {"size": "s0 - 2"}),
            node("getitem", "_operator.getitem", of("max_1"), 0),
            node("add_", "aten.add_.Tensor", of("clone"), of("clone"), mutates=("clone",)),
            node("floor", "math.floor", 2.5),
            node("cat", "aten.cat.default", [of("nothing"), of("getitem")]),
            node("lambda", "aten.relu.default", of("clone")),
        ],
        [ValueKey("mul"), ValueKey("clone", "add_"), ValueKey("cat"), ValueKey("lambda")],
        worded=worded,
    )


def test_every_form_of_argument(golden: Dumped) -> None:
    module = everything()
    golden(GOLDEN / "module.py.txt", module.source)
    assert (module.calls, module.imports, list(module.inputs)) == (9, ("math",), ["x"])
    assert module.outputs == ("mul", "clone after add_", "cat", "lambda")
    x = torch.arange(12.0).reshape(4, 3)
    mul, added, cat, relu = executed(module)(x)
    assert mul.tolist() == [[0.75] * 3, [float("inf")] * 3]
    assert torch.equal(added, 2 * x)
    assert torch.equal(cat, x.amax(1))
    assert torch.equal(relu, 2 * x)  # reads what was overwritten before it
    assert torch.equal(x, torch.arange(12.0).reshape(4, 3))


def test_a_value_that_an_earlier_launch_has_overwritten_is_an_input_of_its_own() -> None:
    module = text_of(
        [node("relu", "aten.relu.default", of("x"))], [ValueKey("relu")], [ValueKey("x", "copy_"), ValueKey("x")]
    )
    assert list(module.inputs.items()) == [("x_after_copy_", ValueKey("x", "copy_")), ("x", ValueKey("x"))]
    (result,) = executed(module)(torch.ones(1), -torch.ones(1))
    assert result.tolist() == [0.0]


@pytest.mark.parametrize(
    ("target", "args", "reason"),
    [
        ("higher_order.triton_kernel_wrapper_functional", (), "it is a Triton kernel of the user's own"),
        ("higher_order.cond", (), "cond has no form"),
        ("aten.relu.default", (of("elsewhere"),), "result depends on elsewhere, which was not recorded"),
        ("aten.relu.default", ({"unknown": "Generator"},), "has no form in Python: unknown Generator"),
        ("aten.full.default", ([{"size": "u0"}], 1), "the size u0 is not known"),
    ],
)
def test_what_has_no_form_is_refused(target: str, args: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        text_of([node("result", target, *args)], [ValueKey("result")])
    assert caught.value.hint == "aoti-debug repro without --fx replays the kernel itself"


def test_names_collide_with_nothing() -> None:
    nodes = [
        node("__w", "aten.relu.default", of("x")),
        node("math", "aten.neg.default", of("__w")),
        node("floor", "math.floor", 2.5),
        node("y_in_add_", "aten.abs.default", of("math")),
        node("y", "aten.relu.default", of("x")),
        node("add_", "aten.add_.Tensor", of("y"), of("floor"), mutates=("y",)),
    ]
    module = text_of(nodes, [ValueKey("math"), ValueKey("y_in_add_"), ValueKey("y", "add_")])
    results = executed(module)(torch.tensor([1.0, -1.0]))
    assert [result.tolist() for result in results] == [[-1.0, 0.0], [1.0, 0.0], [3.0, 2.0]]


def test_complex_numbers_and_odd_keywords() -> None:
    infinite = {"complex": [{"float": "inf"}["float"], -0.0]}
    full = node("full", "aten.full.default", [1], infinite, kwargs={"dtype": {"dtype": "complex64"}})
    (result,) = executed(text_of([full], [ValueKey("full")]))(torch.ones(1))
    assert str(result.item()) == "(inf-0j)"
    odd = node("odd", "mylib.op.default", of("x"), kwargs={"from": 1, "to": 2})
    module = text_of([odd], [ValueKey("odd")])
    assert 'odd = torch.ops.mylib.op.default(x, to=2, **{"from": 1})' in module.source
    assert module.custom == ("mylib.op.default",)


def test_without_outputs_what_nothing_reads_is_returned() -> None:
    module = text_of([node("a", "aten.relu.default", of("x")), node("b", "aten.neg.default", of("a"))], [])
    assert module.outputs == ("b",)


def test_scripts(golden: Dumped) -> None:
    header = ["Launch 0.0 of cpp_fused_mul_0 as a graph: 9 operators", 'written by  """\\']
    golden(GOLDEN / "repro.py.txt", script_text(everything(), header, (), ("my_ops",), ("/lib/ops.so",)))
    golden(GOLDEN / "minifier_launcher.py.txt", launcher_text())
    settings = torch_settings.statements({"float32_matmul_precision": "high"})
    text = script_text(everything(), header, settings, (), ())
    assert 'import torch\n\ntorch.set_float32_matmul_precision("high")\n' in text.replace("'high'", '"high"')
    compile(text, "repro.py", "exec")


def test_torchs_minifier_takes_what_the_launcher_gives() -> None:
    from torch._dynamo.repro.aoti import run_repro

    (call,) = (
        node
        for node in ast.walk(ast.parse(launcher_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "run_repro"
    )
    assert {keyword.arg for keyword in call.keywords} <= set(inspect.signature(run_repro).parameters)
