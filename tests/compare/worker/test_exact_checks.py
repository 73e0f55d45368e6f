"""The weights that a run began with, against those of its program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.compare.evaluate.arguments import ExportedWeights
from aoti_debug.compare.protocol.measurement import Advance, FaultyOutput, StateChange, StatesFailure
from aoti_debug.compare.protocol.request import (
    ExportedRun,
    KnownValue,
    ProgramOutput,
    ProgramRun,
    Recorded,
    RecordedWeight,
)
from aoti_debug.compare.text import state_text
from aoti_debug.compare.worker import exact_checks
from aoti_debug.compare.worker.exact_checks import misreturned, other_weights
from aoti_debug.package.program_graphs import (
    EXPORTED,
    FORMAT,
    MODEL,
    Graph,
    Node,
    NodeKind,
    Reference,
    TensorType,
    ValueKey,
)
from aoti_debug.runs.run import saved_outputs
from aoti_debug.runs.run.saved_outputs import write_tensor

RIGHT = torch.arange(12.0).reshape(3, 4) + 1
KIND = TensorType("float32", "cpu", ("3", "4"), ("4", "1"))
NODE = Node("p_w", NodeKind.WEIGHT, "w", types=(KIND,))


class Program(ExportedWeights):
    """A program of one weight."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__(None)
        self._value = value

    def value(self, node: Node) -> torch.Tensor | None:
        return self._value if node.target == "w" else None


def found(
    folder: Path, actual: torch.Tensor, is_view: bool = False, right: torch.Tensor = RIGHT
) -> list[StateChange | StatesFailure]:
    write_tensor(folder / "w.safetensors", "w", actual)
    recorded = RecordedWeight("w", str(folder / "w.safetensors"), is_view)
    dtype = str(right.dtype).removeprefix("torch.")
    node = replace(NODE, types=(replace(KIND, dtype=dtype),))
    graph = Graph("", EXPORTED, (node,), ())
    return list(other_weights(graph, (recorded, RecordedWeight("other", "")), Program(right)))


def changes(results: list[StateChange | StatesFailure]) -> list[StateChange]:
    return [result for result in results if isinstance(result, StateChange)]


@pytest.mark.parametrize("is_view", [False, True])
def test_the_same_weight(tmp_path: Path, is_view: bool) -> None:
    assert found(tmp_path, RIGHT.clone(), is_view) == []


def test_one_element_is_another_one(tmp_path: Path) -> None:
    wrong = RIGHT.clone()
    wrong[2, 3] += 0.5
    (change,) = changes(found(tmp_path, wrong))
    assert (change.name, change.advance, change.difference) == ("w", Advance.OTHER_BEGIN, 0.5)
    assert state_text(change) == "w is not what the program begins with: it differs by up to 0.5"


def test_nan_counts_as_nan(tmp_path: Path) -> None:
    nan = RIGHT.clone()
    nan[0, 0] = torch.nan
    assert found(tmp_path, nan, right=nan.clone()) == []
    (change,) = changes(found(tmp_path, nan))
    assert change.misplaced == 1


def test_a_view_in_another_order(tmp_path: Path) -> None:
    assert found(tmp_path, RIGHT.clone().t(), is_view=True) == []
    assert found(tmp_path, RIGHT.t().contiguous(), is_view=True) == []
    (change,) = changes(found(tmp_path, (RIGHT + 1).t(), is_view=True))
    assert state_text(change) == "w is not what the program begins with"


def test_a_weight_that_is_gone_or_of_another_type_is_not_compared(tmp_path: Path) -> None:
    assert found(tmp_path, RIGHT.double()) == []
    gone = RecordedWeight("w", str(tmp_path / "gone.safetensors"))
    assert list(other_weights(Graph("", EXPORTED, (NODE,), ()), (gone,), Program(RIGHT))) == []


DTYPES = [
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.bfloat16,
    torch.int64,
    torch.bool,
]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_view", [False, True])
def test_every_dtype(tmp_path: Path, dtype: torch.dtype, is_view: bool) -> None:
    right = (RIGHT - 1).to(dtype)
    other = RIGHT.clone()
    other[0, 0] = 9
    assert found(tmp_path, right.clone(), is_view, right) == []
    if not is_view or dtype is not torch.complex128:  # which is too large to be sorted
        assert len(changes(found(tmp_path, other.to(dtype), is_view, right))) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex32, torch.complex128])
def test_signs_of_zero_do_not_count(tmp_path: Path, dtype: torch.dtype) -> None:
    right = (RIGHT - 1).to(dtype)
    negative = right.clone()
    negative[0, 0] = -0.0
    assert found(tmp_path, negative, right=right) == []


def test_a_weight_that_torch_cannot_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise NotImplementedError('"equal_cpu" not implemented')

    monkeypatch.setattr(exact_checks, "has_equal_bits", fail)
    (failure,) = found(tmp_path, RIGHT)
    reason = 'whether w is what the program begins with is not known: "equal_cpu" not implemented'
    assert failure == StatesFailure(reason)


OUTPUT = TensorType("float32", "cpu", ("2", "3"), ("3", "1"))
TURNED = TensorType("float32", "cpu", ("3", "2"), ("1", "3"))
X = torch.arange(6.0).reshape(2, 3)


def node(name: str, target: str, *args: object, type_: TensorType = OUTPUT) -> Node:
    return Node(name, NodeKind.CALL, target, args, types=(type_,))


GRAPH = Graph(
    "",
    MODEL,
    (
        Node("x", NodeKind.INPUT, types=(OUTPUT,)),
        node("sin", "aten.sin.default", {"node": "x"}),
        node("cos", "aten.cos.default", {"node": "x"}),
        node("turned", "aten.permute.default", {"node": "cos"}, [1, 0], type_=TURNED),
        node("exp", "aten.exp.default", {"node": "x"}),
        Node("output", NodeKind.OUTPUT, "output", ([{"node": "sin"}, {"node": "turned"}, {"node": "exp"}, 3],)),
    ),
    (),
)


def faults(folder: Path, *returned: object) -> list[tuple[int, str]]:
    """What is said where launches wrote the sine and the cosine."""
    written = []
    for buffer, name, value in (("buf0", "sin", X.sin()), ("buf1", "cos", X.cos())):
        write_tensor(folder / f"{buffer}.safetensors", buffer, value)
        recorded = Recorded("0.0", buffer, str(folder / f"{buffer}.safetensors"), ("3", "1"), 6)
        written.append(ProgramOutput("0.0", KnownValue(ValueKey(name), recorded)))
    saved_outputs.save(list(returned), folder / "returned")
    run = ExportedRun(
        calls=1,
        returned=str(folder / "returned"),
        last=ProgramRun(graph="", function=MODEL, inputs=(), outputs=()),
        written=tuple(written),
    )
    reference = Reference(FORMAT, torch.__version__, (GRAPH,))
    return [(f.index, f.fault) for f in misreturned(reference, run) if isinstance(f, FaultyOutput)]


def test_what_was_written_is_returned(tmp_path: Path) -> None:
    assert faults(tmp_path, X.sin(), X.cos().t(), X, 3) == []  # nothing is known of the exponential


def test_outputs_that_are_swapped(tmp_path: Path) -> None:
    said = faults(tmp_path, X.cos(), X.sin().t())
    assert said == [
        (0, "is not what launch 0.0 wrote for it, sin in buf0"),
        (1, "is not what launch 0.0 wrote for it, turned in buf1"),
    ]


def test_another_view(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, X.sin(), X.cos().reshape(3, 2))
    assert fault[0] == 1


@pytest.mark.parametrize("value", [X.sin().double(), X[:1]])
def test_another_kind_is_found_elsewhere(tmp_path: Path, value: torch.Tensor) -> None:
    assert faults(tmp_path, value, X.cos().t()) == []


def test_memory_that_was_overwritten_afterwards(tmp_path: Path) -> None:
    late = X.sin()
    late[1, 2] = torch.nan
    (fault,) = faults(tmp_path, late, X.cos().t())
    assert fault[0] == 0


def test_an_output_that_torch_cannot_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise NotImplementedError("no kernel")

    monkeypatch.setattr(exact_checks, "has_equal_bits", fail)
    found = returned_through(tmp_path, X, (), X)
    assert found == [StatesFailure("whether output 0 is what launches wrote is not known: no kernel")]


W = torch.arange(24.0).reshape(4, 6)
COMPLEX = torch.complex(W, W + 0.5)
PAIRS = torch.arange(24.0).reshape(3, 4, 2)
BASE = {"node": "base"}
MEMBER = "_operator.getitem"


def type_of(value: torch.Tensor) -> TensorType:
    dtype = str(value.dtype).removeprefix("torch.")
    return TensorType(dtype, "cpu", tuple(map(str, value.shape)), tuple(map(str, value.stride())))


def returned_through(
    folder: Path,
    base: torch.Tensor,
    views: tuple[tuple[str, tuple[Any, ...]], ...],
    value: torch.Tensor,
    after: str = "",
) -> list[Any]:
    """What is said of a returned tensor where a launch wrote another one, of which the output is a view.

    Args:
        views: each with its operator and its arguments after the first one, in order.
        after: a node that has overwritten the other one since.
    """
    nodes = [Node("base", NodeKind.CALL, "aten.sin.default", ({"node": "x"},), types=(type_of(base),))]
    for at, (target, args) in enumerate(views):
        nodes.append(Node(f"view{at}", NodeKind.CALL, target, ({"node": nodes[-1].name}, *args)))
    output = Node("output", NodeKind.OUTPUT, "output", ([{"node": nodes[-1].name}],))
    overwriting = (Node(after, NodeKind.CALL, "aten.copy_.default", (BASE, 1), mutates=("base",)),) if after else ()
    write_tensor(folder / "buf0.safetensors", "buf0", base)
    strides = tuple(map(str, base.stride()))
    recorded = Recorded("0.0", "buf0", str(folder / "buf0.safetensors"), strides, base.numel())
    saved_outputs.save([value], folder / "returned")
    written = (ProgramOutput("0.0", KnownValue(ValueKey("base", after), recorded)),)
    run = ExportedRun(
        calls=1,
        returned=str(folder / "returned"),
        last=ProgramRun(graph="", function=MODEL, inputs=(), outputs=()),
        written=written,
    )
    given = Node("x", NodeKind.INPUT, types=(OUTPUT,))
    graph = Graph("", MODEL, (given, *nodes, *overwriting, output), ())
    return list(misreturned(Reference(FORMAT, torch.__version__, (graph,)), run))


@pytest.mark.parametrize(
    ("base", "views", "seen"),
    [
        (W, (("aten.split.Tensor", (2, 1)), (MEMBER, (1,))), lambda w: w.split(2, 1)[1]),
        (W, (("aten.split_with_sizes.default", ([1, 3],)), (MEMBER, (1,))), lambda w: w.split([1, 3])[1]),
        (W, (("aten.unbind.int", (1,)), (MEMBER, (3,))), lambda w: w.unbind(1)[3]),
        (W, (("aten.as_strided.default", ([3, 2], [6, 2], 1)),), lambda w: w.as_strided([3, 2], [6, 2], 1)),
        (W, (("aten.unfold.default", (1, 3, 2)),), lambda w: w.unfold(1, 3, 2)),
        (W, (("aten._unsafe_view.default", ([8, 3],)),), lambda w: w.reshape(8, 3)),
        (W, (("aten.reshape.default", ([3, 8],)),), lambda w: w.reshape(3, 8)),
        (W, (("aten.permute.default", ([1, 0],)), ("aten.reshape.default", ([24],))), lambda w: w.t().reshape(24)),
        (W, (("aten.detach.default", ()),), lambda w: w),
        (W, (("aten.view.dtype", ({"dtype": "int32"},)),), lambda w: w.view(torch.int32)),
        (W[:1], (("aten.squeeze.dims", ([0],)),), lambda w: w[0]),
        (COMPLEX, (("aten.view_as_real.default", ()),), torch.view_as_real),
        (PAIRS, (("aten.view_as_complex.default", ()), ("aten.t.default", ())), lambda w: torch.view_as_complex(w).t()),
    ],
)
def test_what_is_seen_through_views(
    tmp_path: Path, base: torch.Tensor, views: Any, seen: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    value = seen(base)
    assert returned_through(tmp_path, base, views, value) == []
    other = value.flatten().clone()
    other[-1] += 1
    (fault,) = returned_through(tmp_path, base, views, other.reshape(value.shape))
    assert isinstance(fault, FaultyOutput)


def test_a_member_of_a_result_that_is_no_view(tmp_path: Path) -> None:
    views = (("aten.var_mean.correction", ()), (MEMBER, (1,)))
    assert returned_through(tmp_path, W, views, W + 1) == []


def test_a_tensor_that_lies_otherwise_in_memory(tmp_path: Path) -> None:
    """What it shows depends on the order of the elements in memory, which is another one in the program."""
    nodes = (
        Node("base", NodeKind.CALL, "aten.randn.default", types=(type_of(W),)),
        Node("view", NodeKind.CALL, "aten.as_strided.default", (BASE, [4], [1])),
        Node("output", NodeKind.OUTPUT, "output", ([{"node": "view"}],)),
    )
    turned = W.t().contiguous().t()
    write_tensor(tmp_path / "buf0.safetensors", "buf0", turned)
    saved_outputs.save([W[0, :4]], tmp_path / "returned")
    recorded = Recorded("0.0", "buf0", str(tmp_path / "buf0.safetensors"), ("1", "4"), W.numel())
    written = (ProgramOutput("0.0", KnownValue(ValueKey("base"), recorded)),)
    run = ExportedRun(
        calls=1,
        returned=str(tmp_path / "returned"),
        last=ProgramRun(graph="", function=MODEL, inputs=(), outputs=()),
        written=written,
    )
    assert list(misreturned(Reference(FORMAT, torch.__version__, (Graph("", MODEL, nodes, ()),)), run)) == []


def test_a_copy_of_what_was_overwritten_afterwards(tmp_path: Path) -> None:
    views = (("aten.reshape.default", ([24],)),)
    assert returned_through(tmp_path, W, views, W.reshape(24) + 1, after="copy_") == []
