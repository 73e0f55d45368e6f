"""Whether rounding explains what differs: from recorded chains of additions, with a wrong launch in one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.diff import explain_differences as explain_differences_module
from aoti_debug.compare.diff.budget import Budget, TensorBudget
from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.compare.diff.difference import Diff, DiffCause
from aoti_debug.compare.diff.document import document
from aoti_debug.compare.diff.explain_differences import explain_differences
from aoti_debug.compare.diff.text import diff_lines
from aoti_debug.package.program_graphs import Node, NodeKind, TensorType
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.views.report.diff_page import diff_page
from tests import schema
from tests.compare.chains import attach, chain, reference

ADD = ("aten.add.Tensor",) * 6
ULP = 2.0**-21  # of numbers from 4 to 8


@pytest.fixture(autouse=True, scope="module")
def forked() -> Iterator[None]:
    """Processes that have imported torch."""
    with python_process.forking_from(PRELOADED):
        yield


def explained(a: RunDir, b: RunDir) -> Diff:
    return explain_differences(diff_runs(a, b), UserCode(), Steps(None))


def causes(diff: Diff) -> list[tuple[str, DiffCause]]:
    return [(item.launch.id, item.explanation.cause) for item in diff.launches if item.explanation is not None]


def test_rounding_and_its_consequences(tmp_path: Path) -> None:
    found = explained(chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=3, error=ULP))
    assert causes(found) == [
        ("0.3", DiffCause.ROUNDING),
        ("0.4", DiffCause.CONSEQUENCE),
        ("0.5", DiffCause.CONSEQUENCE),
    ]
    assert found.is_rounding
    assert found.launches[0].tensors[0].nearer == "a"
    lines = diff_lines(found)
    assert lines[-1] == "DIFFERENT from 0.3 cpp_fused_add_3 on; rounding suffices to explain it"
    assert "  why      rounding suffices: from the same inputs, both are within what it explains" in lines
    assert "rounding suffices to explain 3 of 3 differences" in lines
    assert Budget((TensorBudget(rounding=True),)).excesses(found) == ()
    assert len(Budget((TensorBudget(rounding=True, atol=0.0),)).excesses(found)) == 3


@pytest.mark.parametrize("error", [1.0, 1e-3, 64 * ULP, -1e-3])
def test_a_planted_value_is_not_rounding(error: float, tmp_path: Path) -> None:
    found = explained(chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=3, error=error))
    assert causes(found) == [("0.3", DiffCause.WRONG), ("0.4", DiffCause.CONSEQUENCE), ("0.5", DiffCause.CONSEQUENCE)]
    assert found.launches[0].explanation is not None
    assert found.launches[0].explanation.wrong == ("b",)
    assert [item.launch.id for item in found.unexplained] == ["0.3"]
    assert found.is_rounding is False
    (excess,) = Budget((TensorBudget(rounding=True),)).excesses(found)
    assert excess.startswith("0.3 cpp_fused_add_3 buf3: rounding: wrong in b, ")
    assert diff_lines(found)[-1] == "DIFFERENT from 0.3 cpp_fused_add_3 on; rounding does not explain 0.3"


def test_the_wrong_side_is_named(tmp_path: Path) -> None:
    wrong = chain(tmp_path / "wrong", ADD, wrong=2)
    found = explained(wrong, chain(tmp_path / "right", ADD))
    assert found.launches[0].explanation is not None
    assert found.launches[0].explanation.wrong == ("a",)
    both = explained(wrong, chain(tmp_path / "both", ADD, wrong=2, error=3.0))
    assert both.launches[0].explanation is not None
    assert both.launches[0].explanation.wrong == ("a", "b")


def test_a_wrong_launch_among_consequences(tmp_path: Path) -> None:
    rounded = chain(tmp_path / "a", ADD, wrong=1, error=ULP / 2)  # the numbers are from 2 to 4 there
    found = explained(rounded, chain(tmp_path / "b", ADD, wrong=2))
    assert dict(causes(found))["0.2"] is DiffCause.WRONG
    assert dict(causes(found))["0.1"] is DiffCause.ROUNDING
    lines = [line for line in diff_lines(found) if line.startswith("NOT EXPLAINED")]
    assert lines == ["NOT EXPLAINED 0.2 cpp_fused_add_2: b is wrong: 4 of 4 elements of buf2"]


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_wrong_launch_without_a_counterpart(wrong: int, tmp_path: Path) -> None:
    """The launch that fuses it reads equal bytes and is right; the other run has gone wrong on the way."""
    found = explained(chain(tmp_path / "a", ADD, wrong=wrong), chain(tmp_path / "b", ADD, step=3))
    first = found.launches[0].explanation
    assert first is not None
    assert (first.cause, first.wrong) == (DiffCause.WRONG, ("a",))
    assert [item.launch.id for item in found.wrong_alone] == ([f"0.{wrong}"] if wrong < 2 else [])
    turned = explained(chain(tmp_path / "c", ADD, step=3), chain(tmp_path / "d", ADD, wrong=wrong))
    first = turned.launches[0].explanation
    assert first is not None
    assert (first.cause, first.wrong) == (DiffCause.WRONG, ("b",))


def test_another_program_is_not_rounding(tmp_path: Path) -> None:
    """Each run is right by its own program; the constant in one of them is another one."""
    found = explained(chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, altered=2))
    first = found.launches[0].explanation
    assert first is not None
    assert first.cause is DiffCause.PROGRAM
    assert first.reason == "buf2 differs by 1, where the errors are 0 and 0"
    assert causes(found)[1:] == [(f"0.{at}", DiffCause.CONSEQUENCE) for at in (3, 4, 5)]
    assert found.is_rounding is False
    lines = diff_lines(found)
    operators = "only in a: aten.add.Tensor(…, 1); only in b: aten.add.Tensor(…, 2)"
    assert [line for line in lines if "only in" in line] == [f"  note     of the operators there, {operators}"]
    assert "rounding suffices to explain 0 of 4 differences; 3 may be consequences" in lines
    assert lines[-1] == "DIFFERENT from 0.2 cpp_fused_add_2 on: the two programs compute other values there"


def with_weight(run: RunDir, number: float) -> RunDir:
    """The run of a chain whose third operator adds a weight, which is written into its kernel."""
    (graph,) = reference(ADD).graphs
    weight = Node("k", NodeKind.WEIGHT, "k", types=(TensorType("float32", "cpu", (), ()),), value=(number,))
    nodes = [
        replace(node, args=(node.args[0], {"node": "k"})) if node.name == "node_2" else node for node in graph.nodes
    ]
    attach(run.path, replace(reference(ADD), graphs=(replace(graph, nodes=(nodes[0], weight, *nodes[1:])),)))
    return open_run(run.path)


def test_another_weight_that_is_written_into_the_kernel_is_not_rounding(tmp_path: Path) -> None:
    a, b = with_weight(chain(tmp_path / "a", ADD), 1.0), with_weight(chain(tmp_path / "b", ADD, altered=2), 2.0)
    found = explained(a, b)
    assert causes(found) == [("0.2", DiffCause.PROGRAM), *((f"0.{at}", DiffCause.CONSEQUENCE) for at in (3, 4, 5))]
    assert found.launches[0].notes == ("of the operators there, only in a: k = [1.0]; only in b: k = [2.0]",)


def test_another_weight_in_the_kernel_is_not_known_to_be_ties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = with_weight(chain(tmp_path / "a", ADD), 1.0), with_weight(chain(tmp_path / "b", ADD, altered=2), 2.0)
    monkeypatch.setattr(explain_differences_module, "_is_discrete", lambda _: True)
    first = explained(a, b).launches[0]
    assert first.explanation is not None
    assert first.explanation.cause is DiffCause.UNKNOWN
    assert first.explanation.reason.endswith("ties may decide the integers of buf2")
    assert "only in a: k = [1.0]" in first.notes[0]


def test_another_program_behind_other_inputs(tmp_path: Path) -> None:
    found = explained(chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=1, error=2.0**-20, altered=3))
    assert dict(causes(found))["0.3"] is DiffCause.UNKNOWN
    assert dict(causes(found))["0.2"] is DiffCause.CONSEQUENCE


@pytest.mark.parametrize("step", [1, 3])
def test_another_input_that_a_launch_without_a_counterpart_reads(step: int, tmp_path: Path) -> None:
    found = explained(chain(tmp_path / "a", ADD, step=4 - step), chain(tmp_path / "b", ADD, step=step, first=0.5))
    assert [item.name for item in found.inputs] == ["x"]
    assert {cause for _, cause in causes(found)} == {DiffCause.CONSEQUENCE}
    assert found.is_rounding is False


def test_the_document_and_the_page(tmp_path: Path) -> None:
    found = explained(chain(tmp_path / "a", ADD, wrong=0), chain(tmp_path / "b", ADD, step=3))
    data = json.loads(json.dumps(document(found), allow_nan=False))
    assert schema.problems(data, json.loads((schema.DOCS / "diff.schema.json").read_text())) == []
    assert data["rounding"] is False
    assert data["unexplained"] == [{"launch": "0.0", "kernel": "cpp_fused_add_0"}]
    assert data["wrong_alone"][0]["launch"] == "0.0"
    explanation = data["differences"][0]["explanation"]
    assert (explanation["cause"], explanation["wrong"], explanation["explained"]) == ("wrong", ["a"], False)
    assert data["differences"][0]["tensors"][0]["errors"]["b"]["absolute"] == 0
    page = diff_page(found)
    assert "<dt>cause</dt><dd>a is wrong: 0.0 cpp_fused_add_0 before it: 4 of 4 elements of buf0</dd>" in page
    assert "rounding suffices to explain 0 of 2 differences; 1 may be a consequence" in page


def test_without_the_reference(tmp_path: Path) -> None:
    a, b = chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=1)
    result = CliRunner().invoke(group, ["diff", str(a.path), str(b.path), "--no-reference", "--json"])
    data = json.loads(result.stdout)
    assert (data["rounding"], data["differences"][0]["explanation"]) == (None, None)


def test_runs_that_do_not_tell(tmp_path: Path) -> None:
    a, b = chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=1)
    (b.path / "package.pt2").unlink()
    found = explained(a, b)
    assert found.is_rounding is None
    assert found.unexplained_reason.startswith("the package of run ")
    assert any(
        line.startswith("not known if rounding suffices to explain it: the package") for line in diff_lines(found)
    )
    (excess, *_) = Budget((TensorBudget(rounding=True),)).excesses(found)
    assert excess == "0.1 cpp_fused_add_1 buf1: rounding: it is not known if rounding explains it"
    assert explained(a, a).unexplained_reason == ""
