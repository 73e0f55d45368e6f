"""The exported program is called for its states; a program that fails in eager does not end the comparison."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from aoti_debug.compare.evaluate.arguments import ExportedWeights
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.measure.state_change import lost_change
from aoti_debug.compare.protocol.measurement import Advance, ExportedOutputs, FaultyOutput, StateChange, StatesFailure
from aoti_debug.compare.protocol.messages import InputElement, Refusal
from aoti_debug.compare.protocol.request import (
    CallStates,
    CompareRequest,
    ExportedRun,
    GivenTensors,
    ProgramRun,
    ProgramState,
    Recorded,
    RecordedWeight,
)
from aoti_debug.compare.worker import exported_program
from aoti_debug.compare.worker import exported_results as results_module
from aoti_debug.compare.worker.exported_program import inputs_of
from aoti_debug.compare.worker.exported_results import exported_results, is_about_values
from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.manifest import Constant
from aoti_debug.package.program_graphs import EXPORTED, FORMAT, MODEL, Graph, Node, NodeKind, Reference
from aoti_debug.runs.run import saved_outputs
from tests import saved_tensors
from tests.factories import make_manifest


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self) -> torch.Tensor:
        self.count.add_(1)
        return self.count + 0


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The packages whose embedded inputs were read."""
    read: list[object] = []

    def embedded(package: object) -> Inputs:
        read.append(package)
        return Inputs((), {})

    monkeypatch.setattr(input_files, "read_embedded", embedded)
    return read


def results(
    exported: Path,
    calls: int = 1,
    returned: Path | None = None,
    known: bool = True,
    states: tuple[CallStates, ...] = (),
    module: torch.nn.Module | None = None,
    constants: tuple[Constant, ...] = (),
    **members: Any,
) -> list[Any]:
    """What the worker yields for a program in a file, whose graph the package holds unless it is not `known`.

    Args:
        constants: of the package.
    """
    package: Any = SimpleNamespace(manifest=lambda: replace(make_manifest(), constants=constants))
    run = ExportedRun(calls=calls, returned=str(returned or ""), states=states, **members)
    request = CompareRequest(
        package="package.pt2", device="cpu", regions=(), exported=str(exported), exported_run=run if calls else None
    )
    graphs = ReferenceGraphs()
    if known:
        graphs.record_exported(torch.export.export(module or Counter(), ()))
    lowered = Graph("", MODEL, (Node("output", NodeKind.OUTPUT, "output", ([],)),), ())
    reference = Reference(FORMAT, "2.13.0", (lowered,), exported=graphs.reference().exported)
    weights = ExportedWeights(exported)
    return list(exported_results(request, package, reference, "cpu", weights, exported.parent))


def saved(folder: Path) -> Path:
    torch.export.save(torch.export.export(Counter(), ()), folder / "model.pt2")
    return folder / "model.pt2"


def value(folder: str) -> float:
    (output,) = saved_outputs.saved(Path(folder)).values()
    return float(load_file(output)["0"].item())


@pytest.mark.parametrize("known", [True, False])
def test_a_program_that_cannot_be_loaded_is_said(tmp_path: Path, called: list[object], known: bool) -> None:
    broken = tmp_path / "model.pt2"
    broken.write_bytes(b"no archive")
    (failure,) = results(broken, known=known)
    assert isinstance(failure, StatesFailure)
    assert failure.reason.startswith("the weight count is not known" if known else "it cannot be loaded: ")
    assert called


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).view(2, 3))

    def forward(self) -> torch.Tensor:
        return self.weight[1] * 2


@pytest.mark.parametrize("columns", [2, 1])
def test_a_weight_that_launches_were_passed_the_transpose_of(
    tmp_path: Path, called: list[object], columns: int
) -> None:
    """Without the file of the program it is that of the run, if all of it was recorded."""
    path = tmp_path / "view.safetensors"
    saved_tensors.save(path, "view", torch.arange(6.0).as_strided((3, columns), (1, 3)))
    view = Recorded("0.0", "reinterpret_tensor(weight)", str(path), ("3", "1"), storage=6)
    weight = RecordedWeight("weight", str(path), is_view=True, views=(view,))
    (found,) = results(tmp_path / "none.pt2", module=Weighted(), weights=(weight,))
    if columns == 2:
        assert isinstance(found, ExportedOutputs)
        (output,) = saved_outputs.saved(Path(found.eager)).values()
        assert load_file(output)["0"].tolist() == [6.0, 8.0, 10.0]
    else:
        assert found == StatesFailure("the weight weight is not known: the run has not recorded all of it")
    assert called


BIASES = [
    torch.tensor([1.0, -0.0, float("nan"), float("inf"), 1e-40, 0.1, 3e38, 7]),
    torch.tensor([0.1, -2.5], dtype=torch.bfloat16),
    torch.tensor([(1 << 62) + 1, -3]),
    torch.tensor([True, False]),
    torch.tensor(0.1, dtype=torch.float64),
    torch.tensor([1 + 0.1j], dtype=torch.complex64),
]


class Biased(torch.nn.Module):
    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("bias", bias)

    def forward(self) -> torch.Tensor:
        bias = self.get_buffer("bias").reshape(-1)
        return torch.cat([bias, bias])


@pytest.mark.parametrize("bias", BIASES, ids=str)
def test_a_weight_that_the_package_lacks_is_that_of_the_program(
    tmp_path: Path, called: list[object], bias: Tensor
) -> None:
    """Torch has written its few elements into the kernels."""
    (found,) = results(tmp_path / "none.pt2", module=Biased(bias))
    assert isinstance(found, ExportedOutputs)
    (output,) = saved_outputs.saved(Path(found.eager)).values()
    expected, held = torch.cat([bias.reshape(-1)] * 2), load_file(output)["0"]
    assert held.dtype == expected.dtype
    assert torch.equal(held.view(torch.uint8), expected.view(torch.uint8))
    assert called


def test_a_small_weight_of_the_package_is_that_of_the_run(tmp_path: Path, called: list[object]) -> None:
    """It may have been replaced since the program was compiled."""
    constant = Constant("bias", "bias", "bfloat16", (2,), (1,), False, "Buffer")
    (found,) = results(tmp_path / "none.pt2", module=Biased(BIASES[1]), constants=(constant,))
    assert found == StatesFailure("the weight bias is not known: the run has not recorded all of it")
    assert called


def test_without_a_call_nothing_is_read(tmp_path: Path, called: list[object]) -> None:
    assert results(tmp_path / "none.pt2", calls=0) == []
    assert called == []


def test_an_output_far_from_a_program_whose_graph_is_right(tmp_path: Path, called: list[object]) -> None:
    """No pass and no launch explains it, and no rounding."""
    saved_outputs.save([torch.tensor(4.0)], tmp_path / "returned")
    source = results(
        saved(tmp_path),
        calls=3,
        returned=tmp_path / "returned",
        last=ProgramRun(graph="", function=MODEL, inputs=(), outputs=()),
    )
    (faulty,) = [result for result in source if isinstance(result, FaultyOutput)]
    assert faulty.index == 0
    assert faulty.fault.startswith("is far from what the exported program returns")


def test_a_state_that_a_run_never_writes(tmp_path: Path, called: list[object]) -> None:
    (lost, kept) = results(saved(tmp_path), untouched=GivenTensors(("count", "nothing"), (7,)))
    assert (lost.name, lost.advance, lost.change) == ("count", Advance.UNTOUCHED, 1.0)
    assert isinstance(kept, ExportedOutputs)


@pytest.mark.parametrize("known", [True, False])
def test_a_weight_that_the_program_leaves_is_not_kept(
    tmp_path: Path, called: list[object], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the program overwrites is copied, and only what has changed is measured."""

    class Sums(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self) -> torch.Tensor:
            return super().forward() + self.weight

    def measured(name: str, before: torch.Tensor, expected: torch.Tensor) -> StateChange | None:
        names.append(name)
        return lost_change(name, before, expected)

    names: list[str] = []
    monkeypatch.setattr("aoti_debug.compare.worker.exact_checks.lost_change", measured)
    torch.export.save(torch.export.export(Sums(), ()), tmp_path / "model.pt2")
    given = GivenTensors(("weight", "count"))
    changes = results(tmp_path / "model.pt2", known=known, untouched=given, module=Sums())
    assert [change.name for change in changes if isinstance(change, StateChange)] == ["count"]
    assert names == ["count"]


def test_a_weight_with_a_number_for_a_name_is_no_input(tmp_path: Path, called: list[object]) -> None:
    class Numbered(torch.nn.Module):
        def forward(self) -> torch.Tensor:
            return self.get_buffer("0").add_(1) + 0

    module = Numbered()
    module.register_buffer("0", torch.zeros(3))
    torch.export.save(torch.export.export(module, ()), tmp_path / "model.pt2")
    lost, *_ = results(tmp_path / "model.pt2", untouched=GivenTensors(("0",)), module=module)
    assert (lost.name, lost.advance) == ("0", Advance.UNTOUCHED)


def test_a_program_that_fails_in_eager(tmp_path: Path) -> None:
    class Lookup(torch.nn.Module):
        def forward(self, table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return table[index]

    given = (torch.zeros(3), torch.tensor([1]))
    torch.export.save(torch.export.export(Lookup(), given), tmp_path / "model.pt2")
    program = exported_program.Loaded(str(tmp_path / "model.pt2"), Inputs((given[0], torch.tensor([7])), {}))
    with pytest.raises(NotEvaluableError, match=r"^it fails in eager: IndexError: "):
        program.call()


def test_a_comparison_that_fails_does_not_blame_the_program(
    tmp_path: Path, called: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(results_module, "judged_outputs", fail)
    (failure,) = results(saved(tmp_path))
    assert failure == StatesFailure("comparing states and outputs fails here: RuntimeError: no kernel")


def test_random_numbers_are_a_reason(tmp_path: Path, called: list[object]) -> None:
    drawn = Node("rand", NodeKind.CALL, "aten.rand.default", ([3],))
    reference = Reference(FORMAT, "2.13.0", (Graph("", MODEL, (drawn,), ()),))
    package: Any = "package.pt2"
    request = CompareRequest(package=package, device="cpu", regions=(), exported_run=ExportedRun(calls=1))
    (failure,) = exported_results(request, package, reference, "cpu", ExportedWeights(None), tmp_path)
    assert failure == StatesFailure("it draws random numbers")
    assert called


def test_seeds_that_are_not_recorded_are_a_reason(tmp_path: Path, called: list[object]) -> None:
    class Noise(torch.nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.rand(3)

    graphs = ReferenceGraphs()
    graphs.record_exported(torch.export.export(Noise(), ()))
    lowered = Graph("", MODEL, (Node("output", NodeKind.OUTPUT, "output", ([],)),), ())
    reference = Reference(FORMAT, "2.13.0", (lowered,), exported=graphs.reference().exported)
    package: Any = "package.pt2"
    request = CompareRequest(package=package, device="cpu", regions=(), exported_run=ExportedRun(calls=1))
    (failure,) = exported_results(request, package, reference, "cpu", ExportedWeights(None), tmp_path)
    assert failure == StatesFailure("it draws random numbers, whose seeds are not recorded")
    assert called


def recorded(folder: Path, value: float) -> Recorded:
    saved_outputs.save([torch.tensor(float(value))], folder / f"count-{value}")
    (path,) = saved_outputs.saved(folder / f"count-{value}").values()
    return Recorded("0.0", "count", str(path))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0, 1, 2, 3), [Advance.RIGHT, Advance.RIGHT, Advance.RIGHT]),
        ((0, 1, 1, 2), [Advance.RIGHT, Advance.NOT_AT_ALL]),  # what follows is a consequence
        ((0, 2, 4, 6), [Advance.TWICE]),
        ((5, 6, 7, 8), []),  # it began with something else than the program
        ((0, 1, None, 9), [Advance.RIGHT]),  # what the second call left is not recorded, nor what the third began with
    ],
)
def test_states_of_each_call(
    tmp_path: Path, called: list[object], values: tuple[float | None, ...], expected: list[Advance]
) -> None:
    states = states_of(tmp_path, values)
    changes = [change for change in results(saved(tmp_path), 3, states=states) if isinstance(change, StateChange)]
    assert [change.advance for change in changes] == expected
    assert [change.call for change in changes] == list(range(len(expected)))


@pytest.mark.parametrize(
    ("number", "began", "expected"),
    [(0, 0.0, [Advance.NOT_AT_ALL]), (1, 0.0, [Advance.NOT_AT_ALL]), (0, 5.0, []), (1, 5.0, [])],
)
def test_an_input_is_compared_where_the_call_begins_with_it_as_the_program_does(
    tmp_path: Path, number: int, began: float, expected: list[Advance]
) -> None:
    program: Any = SimpleNamespace(state=lambda _: None, input=[torch.tensor(9.0), torch.tensor(1.0)].__getitem__)
    (of_weight,) = states_of(tmp_path, (0, 0))[0].states
    call = CallStates(number, (replace(of_weight, name="input 1", input=1),))
    found = results_module._state_changes(program, call, {"input 1": torch.tensor(began)}, set(), number)
    assert [(one.change.name, one.change.advance) for one in found] == [("input 1", advance) for advance in expected]


def test_calls_whose_states_are_not_judged_are_said(
    tmp_path: Path, called: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if rounding explained that it advances twice in each call."""
    monkeypatch.setattr(results_module, "judged_by_double", lambda change, *_: replace(change, advance=Advance.RIGHT))
    *found, said = results(saved(tmp_path), 10, states=states_of(tmp_path, tuple(range(0, 22, 2))))
    assert [change.call for change in found if isinstance(change, StateChange)] == list(range(8))
    assert said == StatesFailure("count is judged in the first 8 calls in which it deviates, not in later ones")


def states_of(folder: Path, values: tuple[float | None, ...]) -> tuple[CallStates, ...]:
    """The states of calls that each begin with what the one before has left; None where that is not recorded."""
    states = []
    for call, (a, b) in enumerate(itertools.pairwise(values)):
        before, after = recorded(folder, a or 0.0), recorded(folder, b or 0.0)
        is_known = a is not None and b is not None
        state = ProgramState(
            name="count", node="b_count", mutator="copy_", before=before, after=after, launch=f"{call}.0"
        )
        states.append(CallStates(call, (state,) if is_known else ()))
    return tuple(states)


@pytest.mark.parametrize("known", [True, False])
def test_what_the_last_call_returns_is_kept(tmp_path: Path, called: list[object], known: bool) -> None:
    (kept,) = results(saved(tmp_path), calls=3, known=known)
    assert (value(kept.eager), kept.double) == (3, "")


@pytest.mark.parametrize(("returned", "is_asked"), [(3.0, False), (3.0001, True), (4.0, True)])
def test_float64_is_asked_for_where_a_run_returned_something_else(
    tmp_path: Path, called: list[object], returned: float, is_asked: bool
) -> None:
    saved_outputs.save([torch.tensor(returned)], tmp_path / "returned")
    eager, *more = results(saved(tmp_path), calls=3, returned=tmp_path / "returned")
    assert (value(eager.eager), eager.double) == (3, "")
    kept = more[0] if more else eager
    assert bool(kept.double) is is_asked
    assert not is_asked or value(kept.double) == 3


class Table(nn.Module):
    """Rows of a table, computed from two inputs and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.tensor([[5], [7]]))

    def forward(self, table: Tensor, x: Tensor, y: Tensor) -> Tensor:
        rows = (x.t().reshape(2, 3) * y + self.offset)[:, 1]
        return torch.index_select(table, 0, rows).sin()


class Branch(nn.Module):
    """An index in the body of a branch."""

    def forward(self, table: Tensor, rows: Tensor) -> Tensor:
        chosen = torch.cond(
            rows.sum() > 0, lambda t, i: t.index_select(0, i), lambda t, i: t.index_select(0, i) + 1, (table, rows)
        )
        return chosen * 2


def yielded(
    module: nn.Module,
    given: tuple[Any, ...],
    bad: tuple[Any, ...],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: Path | None = None,
    calls: int = 1,
) -> list[Any]:
    """What the worker yields for a program that was exported with `given` and is run with `bad`."""
    monkeypatch.setattr(input_files, "read_embedded", lambda _: Inputs(bad, {}))
    graphs = ReferenceGraphs()
    exported = torch.export.export(module, given)
    graphs.record_exported(exported)
    torch.export.save(exported, folder / "model.pt2")
    lowered = Graph("", MODEL, (Node("output", NodeKind.OUTPUT, "output", ([],)),), ())
    reference = Reference(FORMAT, "2.13.0", (lowered,), exported=graphs.reference().exported)
    package: Any = "package.pt2"
    request = CompareRequest(
        package=package, device="cpu", regions=(), exported=str(program or ""), exported_run=ExportedRun(calls=calls)
    )
    weights = ExportedWeights(folder / "model.pt2")
    return list(exported_results(request, package, reference, "cpu", weights, folder))


TABLE = torch.arange(40.0).reshape(10, 4)


def test_the_input_element_of_a_direct_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Add(nn.Module):
        def forward(self, table: Tensor, rows: Tensor, values: Tensor) -> Tensor:
            return table.index_add(0, rows, values)

    values = torch.ones(2, 4)
    given, bad = ((TABLE, torch.tensor(rows), values) for rows in ([0, 1], [3, -1]))
    (refusal,) = yielded(Add(), given, bad, tmp_path, monkeypatch)
    assert isinstance(refusal, Refusal)
    assert refusal.words == "index -1 is out of bounds for dimension 0 with size 10"
    assert refusal.operator == "aten.index_add.default"
    assert refusal.bad is not None
    assert (refusal.bad.name, refusal.bad.index, refusal.bad.value, refusal.bad.size) == ("rows", (1,), -1, 10)
    assert refusal.inputs == (InputElement("rows", (1,), 1, "-1"),)


def test_an_index_is_followed_through_views_and_arithmetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.arange(6).reshape(3, 2), torch.tensor([[0, 1, 0], [0, 1, 0]])
    bad = x.clone()
    bad[2, 1] = 9  # [1, 1] of what is reshaped is [1, 2] of the transposed matrix
    bad[1, 1] = 4
    (refusal,) = yielded(Table(), (TABLE, x * 0, y), (TABLE, bad, y), tmp_path, monkeypatch)
    assert isinstance(refusal, Refusal)
    assert refusal.bad is not None
    assert refusal.bad.value == int(bad.t().reshape(2, 3)[1, 1]) + 7 == 11
    assert set(refusal.inputs) == {
        InputElement("x", (1, 1), 3, "4"),
        InputElement("y", (1, 1), 4, "1"),
        InputElement("offset", (1, 0), 1, "7"),
    }


def test_an_index_in_a_branch_is_refused_by_the_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, bad = ((TABLE, torch.tensor(rows)) for rows in ([0, 1], [3, 77]))
    (refusal,) = yielded(Branch(), given, bad, tmp_path, monkeypatch)
    assert isinstance(refusal, Refusal)
    assert "out of range" in refusal.words
    assert (refusal.bad, refusal.inputs) == (None, ())


def test_the_call_in_which_a_state_grows_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("at", torch.tensor([8]))

        def forward(self, table: Tensor) -> Tensor:
            self.at.add_(1)
            return table.index_select(0, self.at)

    (refusal,) = yielded(Grows(), (TABLE,), (TABLE,), tmp_path, monkeypatch, calls=3)
    assert isinstance(refusal, Refusal)
    assert (refusal.call, refusal.operator) == (1, "aten.index_select.default")


def test_the_inputs_that_a_host_has_passed_are_not_those_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "read_embedded", lambda _: Inputs((TABLE,), {}))
    package: Any = "package.pt2"
    request = CompareRequest(package=package, device="cpu", regions=(), exported_run=ExportedRun(calls=1))
    assert inputs_of(request, package) == Inputs((TABLE,), {})
    assert inputs_of(replace(request, is_of_host=True), package) is None
    graph = Graph("", EXPORTED, (Node("output", NodeKind.OUTPUT, "output", ([],)),), ())
    reference = Reference(FORMAT, "2.13.0", (), exported=(graph,))
    of_host = replace(request, is_of_host=True)
    results = list(exported_results(of_host, package, reference, "cpu", ExportedWeights(None), tmp_path))
    assert results == [StatesFailure("the inputs of the run are not known")]


def test_an_operator_that_eager_has_not_for_a_dtype_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OfBytes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.silu(x + 1)

    given = (torch.arange(4, dtype=torch.uint8),)
    (failure,) = yielded(OfBytes(), given, given, tmp_path, monkeypatch)
    assert isinstance(failure, StatesFailure)
    lacks = "eager on cpu has no aten.silu.default (silu) for uint8, so that the program cannot be evaluated"
    assert failure.reason == f"{lacks} in eager: \"silu_cpu\" not implemented for 'Byte'"


@pytest.mark.parametrize(
    "error",
    [
        NotImplementedError("Could not run 'aten::x' with arguments from the 'CPU' backend"),
        RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        ImportError("no module named ops"),
        MemoryError(),
        TypeError("add() got an unexpected argument"),
    ],
)
def test_what_this_machine_cannot_do_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    assert not is_about_values(error)

    def fails(*_: object, **__: object) -> object:
        raise error

    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation.implementation_of", lambda _: fails)
    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation._failures_of", lambda _: (BaseException,))
    given = (TABLE, torch.tensor([0, 1]), torch.ones(2, 4))

    class Add(nn.Module):
        def forward(self, table: Tensor, rows: Tensor, values: Tensor) -> Tensor:
            return table.index_add(0, rows, values)

    (failure,) = yielded(Add(), given, given, tmp_path, monkeypatch)
    assert isinstance(failure, StatesFailure)
    has_no_kernel = "not implemented for" in str(error)
    lacks = "eager on cpu has no aten.index_add.default (index_add) for float16"
    assert failure.reason.startswith(lacks if has_no_kernel else "aten.index_add.default fails here")


def test_a_failure_that_the_program_itself_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is called by torch, too, where its file is known."""

    def fails(*_: object, **__: object) -> object:
        raise RuntimeError("sizes do not match")

    class Add(nn.Module):
        def forward(self, table: Tensor) -> Tensor:
            return table + 1

    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation.implementation_of", lambda _: fails)
    program = tmp_path / "model.pt2"
    (failure,) = yielded(Add(), (TABLE,), (TABLE,), tmp_path, monkeypatch, program=program)
    assert isinstance(failure, StatesFailure)
    assert failure.reason.endswith("the program itself, called by torch, does not fail")


def test_the_program_itself_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Select(nn.Module):
        def forward(self, table: Tensor, rows: Tensor) -> Tensor:
            return table.index_select(0, rows) + 1

    given, bad = ((TABLE, torch.tensor(rows)) for rows in ([0, 1], [3, 10]))
    (refusal,) = yielded(Select(), given, bad, tmp_path, monkeypatch, program=tmp_path / "model.pt2")
    assert isinstance(refusal, Refusal)
    assert refusal.inputs == (InputElement("rows", (1,), 1, "10"),)
