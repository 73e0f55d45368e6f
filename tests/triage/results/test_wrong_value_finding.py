"""Findings of wrong values, from comparisons."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aoti_debug.base import wording
from aoti_debug.compare.comparison import NO_PROGRAM, PRIVATE, SILENT, Comparison, Row
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.outcome import DIFFERS, REFUSED, WRONG_VALUE, compared_text, exit_code, kind_of
from aoti_debug.compare.protocol.measurement import Advance, Element, Measurement, StateChange
from aoti_debug.compare.protocol.messages import Refusal
from aoti_debug.compare.suspects import Alteration, LostOperator, OverwritingOperator, Suspect, UndefinedOperator
from aoti_debug.compare.text import output_lines
from aoti_debug.package.manifest import Certainty, Kind, ModelLine, PackageOrigin, Provenance
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE, Place
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.checks import wrong_value
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.results import wrong_value_finding
from tests.triage.recorder import Recorder

LINE = ModelLine("/home/user/model.py", 8, "forward", "y = tanh(x)")
RIGHT = Measurement(
    argument="buf0",
    value="tanh",
    operator="aten.tanh.default",
    dtype="float32",
    shape=(2, 3),
    count=6,
    equals_eager=True,
)
WRONG = replace(RIGHT, wrong=2, excess=9.0, worst=Element(4, "1.5", "1.25", "1.2500001"), equals_eager=False)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """Three launches of kernels a, b and c."""
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf2",))
    recorder.journal.call_begin()
    values = torch.zeros(2, 3)
    for name, reads, writes in (("a", "arg0", "buf0"), ("b", "buf0", "buf1"), ("c", "buf1", "buf2")):
        recorder.launch(name, {reads: values}, {writes: values}, kind=Kind.CPP)
    return recorder.run()


def compared(run: RunDir, *outputs: Measurement | str) -> Comparison:
    """A row for each launch: of its measurement, or of the reason why there is none."""
    rows = tuple(
        Row(launch=launch, verdict=LaunchVerdict.NOT_COMPARABLE, reason=output, bytes=24)
        if isinstance(output, str)
        else Row(
            launch=launch,
            verdict=LaunchVerdict.WRONG if output.wrong else LaunchVerdict.OK,
            outputs=(output,),
            suspects=(Suspect(node="tanh", operator="aten.tanh.default", line=LINE),) if output.wrong else (),
            bytes=24,
            compared_bytes=24,
        )
        for launch, output in zip(run.launches, outputs, strict=True)
    )
    return Comparison(run=run, rows=rows)


@pytest.mark.parametrize(("output", "place"), [(RIGHT, None), ("no node holds it", "0.1")])
def test_a_state_is_the_launch_s_fault_unless_that_computed_its_graph(
    run: RunDir, output: Measurement | str, place: str | None
) -> None:
    states = (
        StateChange(name="count", call=0, launch="0.1", advance=Advance.TWICE, change=1.0, difference=1.0),
        StateChange(name="mean", call=0, launch="", advance=Advance.UNTOUCHED),
    )
    finding = wrong_value_finding.finding_of(replace(compared(run, RIGHT, output, RIGHT), states=states))
    assert finding.kind is WRONG_VALUE
    assert finding.what.startswith("count changes twice as much as in the program in call 0: 0.1 wrote it last")
    assert (finding.where.launch if finding.where else None) == place
    assert finding.evidence[-1].startswith("mean does not change in call 0: no launch writes it")
    assert any("0.1 computed what its graph says" in sentence for sentence in finding.evidence) is (place is None)


@pytest.mark.parametrize(("argument", "place"), [("norm_mean", None), ("buf0", "0.1")])
def test_a_state_is_as_its_graph_says_where_that_is_compared_beside_what_is_not(
    run: RunDir, argument: str, place: str | None
) -> None:
    change = StateChange(name="norm.mean", call=0, launch="0.1", advance=Advance.OTHERWISE, change=1.0, difference=0.1)
    whole = compared(run, RIGHT, replace(RIGHT, argument=argument), RIGHT)
    rows = (whole.rows[0], replace(whole.rows[1], compared_bytes=12), whole.rows[2])
    finding = wrong_value_finding.finding_of(replace(whole, rows=rows, states=(change,)))
    assert (finding.where.launch if finding.where else None) == place


def test_a_state_that_its_graph_has_otherwise_names_the_operator_of_the_program(run: RunDir) -> None:
    states = (StateChange(name="count", call=0, launch="0.1", advance=Advance.OTHERWISE, change=1.0, difference=1.0),)
    other = OverwritingOperator(node="mul_", operator="aten.mul_.Tensor", seen="overwrites mean", state="mean")
    lost = OverwritingOperator(
        node="add_", operator="aten.add_.Tensor", seen="overwrites count", line=LINE, state="count"
    )
    whole = replace(compared(run, RIGHT, RIGHT, RIGHT), states=states, overwriting=(other, lost))
    finding = wrong_value_finding.finding_of(whole)
    assert finding.where == Place(operator="aten.add_.Tensor", frame=LINE)
    assert f"in the program, {lost.text}" in finding.evidence
    of_launch = compared(run, RIGHT, "no node holds it", RIGHT)
    finding = wrong_value_finding.finding_of(replace(of_launch, states=states, overwriting=(lost,)))
    assert finding.where is not None
    assert finding.where.launch == "0.1"
    assert finding.evidence[0] == f"in the program, {lost.text}"


def test_an_input_that_no_launch_writes_names_the_operator_that_does(run: RunDir) -> None:
    name = "input 0 (cache)"
    states = (StateChange(name=name, call=0, launch="", advance=Advance.UNTOUCHED, change=1.0, difference=1.0),)
    operator = OverwritingOperator(
        node="add_", operator="aten.add_.Tensor", seen=f"overwrites {name}", line=LINE, state=name
    )
    comparison = replace(compared(run, RIGHT, RIGHT, RIGHT), states=states, overwriting=(operator,))
    finding = wrong_value_finding.finding_of(comparison)
    assert finding.kind is WRONG_VALUE
    assert finding.what.startswith("input 0 (cache) does not change in call 0: no launch writes it")
    assert finding.where == Place(operator="aten.add_.Tensor", frame=LINE)
    assert finding.evidence[0] == f"in the program, {operator.text}"


FAULTY = OutputError(
    index=1,
    dtype="float32",
    elements=6,
    different=6,
    relative=0.5,
    fault="is not what launch 0.2 wrote for it, tanh in buf2",
)


def test_an_output_that_no_launch_explains(run: RunDir) -> None:
    comparison = replace(compared(run, RIGHT, RIGHT, RIGHT), outputs=(FAULTY,))
    assert not comparison.is_clean
    finding = wrong_value_finding.finding_of(comparison)
    assert finding.kind is WRONG_VALUE
    assert finding.what == "output 1 is not what launch 0.2 wrote for it, tanh in buf2"
    assert finding.evidence == ("3 of 3 launches computed what the graph says that they were generated from",)
    said = " ".join(output_lines(comparison, 500))
    assert said == "WRONG: output 1 is not what launch 0.2 wrote for it, tanh in buf2"


def test_weights_come_before_what_they_make_of_the_graph(run: RunDir) -> None:
    began = StateChange(name="weight", call=0, launch="", advance=Advance.OTHER_BEGIN, change=None, difference=0.5)
    outputs = (OutputError(index=0, dtype="float32", elements=6, different=6, relative=0.5, double=0.5),)
    comparison = replace(
        compared(run, RIGHT, RIGHT, RIGHT), outputs=outputs, alteration=Alteration(0.5), states=(began,)
    )
    assert not comparison.is_program_altered
    assert not comparison.is_clean
    finding = wrong_value_finding.finding_of(comparison)
    assert finding.what == "weight is not what the program begins with: it differs by up to 0.5"


@pytest.mark.parametrize(("lost", "kept", "origin"), [("add", "", "add"), ("", "div", "div"), ("add", "div", "")])
def test_of_a_lost_value_and_numbers_that_may_be_there_by_chance_neither_is_the_origin(
    run: RunDir, lost: str, kept: str, origin: str
) -> None:
    outputs = (OutputError(index=0, dtype="float32", elements=6, different=6, relative=0.5, double=0.5),)
    operators = [
        tuple(LostOperator(name, name, name, LINE) for name in (lost, kept)[i : i + 1] if name) for i in (0, 1)
    ]
    alteration = Alteration(0.5, lost=operators[0], kept=operators[1])
    comparison = replace(compared(run, RIGHT, RIGHT, RIGHT), outputs=outputs, alteration=alteration)
    finding = wrong_value_finding.finding_of(comparison)
    assert (finding.origin.operator if finding.origin else "") == origin


@pytest.mark.parametrize(("line", "has_line"), [(LINE, True), (None, False)])
def test_a_change_that_may_begin_in_two_operators_has_their_line_as_its_origin(
    run: RunDir, line: ModelLine | None, has_line: bool
) -> None:
    outputs = (OutputError(index=0, dtype="float32", elements=6, different=6, relative=0.5, double=0.5),)
    lost = (
        LostOperator("mul", "aten.mul.Tensor", "mul", LINE),
        LostOperator("conj", "conj", "conj", line, only_order=True),
    )
    comparison = replace(compared(run, RIGHT, RIGHT, RIGHT), outputs=outputs, alteration=Alteration(0.5, lost=lost))
    finding = wrong_value_finding.finding_of(comparison)
    assert finding.origin == (Place(frame=LINE) if has_line else None)


def test_what_a_pass_has_changed_is_said_beside_a_wrong_launch(run: RunDir) -> None:
    outputs = (OutputError(index=0, dtype="float32", elements=6, different=6, relative=0.5, double=0.5),)
    alteration = Alteration(0.5, lost=(LostOperator("sin", "aten.sin.default", "sin = aten.sin.default(x)", LINE),))
    comparison = replace(compared(run, RIGHT, WRONG, RIGHT), outputs=outputs, alteration=alteration)
    finding = wrong_value_finding.finding_of(comparison)
    assert finding.where is not None
    assert finding.where.launch == "0.1"
    lost = "it has no value like that of sin = aten.sin.default(x) at /home/user/model.py:8: the change may begin there"
    assert lost in finding.evidence
    unaltered = wrong_value_finding.finding_of(replace(comparison, alteration=None))
    assert not any("graph pass" in sentence for sentence in unaltered.evidence)


def test_what_was_not_compared_with_the_program_is_said(run: RunDir) -> None:
    comparison = replace(compared(run, RIGHT, RIGHT, RIGHT), states_failure="it draws random numbers")
    finding = wrong_value_finding.finding_of(comparison)
    assert finding.kind is INCOMPLETE
    reason = "outputs and states of the exported program (it draws random numbers)"
    assert finding.what == f"3 of 3 launches, 100 % of bytes; not compared: {reason}"


def test_the_first_wrong_launch(run: RunDir) -> None:
    finding = wrong_value_finding.finding_of(compared(run, RIGHT, WRONG, WRONG))
    assert finding.kind is WRONG_VALUE
    assert finding.what == "2 of 6 elements of buf0 are not what the program says"
    assert finding.where is not None
    assert (finding.where.launch, finding.where.kernel, finding.where.element) == ("0.1", "b", 4)
    assert finding.origin is not None
    assert (finding.origin.operator, finding.origin.frame) == ("aten.tanh.default", LINE)
    assert finding.evidence == (
        "buf0[1, 1] is 1.5, should be 1.25, eager computes 1.2500001",
        "1 launch before it computed what the program says",
        "also wrong from their own inputs: 0.2",
    )


def test_a_wrong_launch_is_told_before_what_eager_refuses(run: RunDir) -> None:
    refusal = Refusal(error="IndexError", words="index -1 is out of bounds")
    finding = wrong_value_finding.finding_of(replace(compared(run, RIGHT, WRONG, WRONG), refusal=refusal))
    assert finding.kind is WRONG_VALUE
    assert finding.warnings == ("eager raises IndexError for these inputs: index -1 is out of bounds",)
    right = wrong_value_finding.finding_of(replace(compared(run, RIGHT, RIGHT, RIGHT), refusal=refusal))
    assert right.kind is REFUSED


def test_of_several_operators_none_is_the_origin(run: RunDir) -> None:
    comparison = compared(run, RIGHT, WRONG, RIGHT)
    several = (
        Suspect(node="mul", operator="aten.mul.Tensor", line=LINE),
        Suspect(node="tanh", operator="aten.tanh.default", line=LINE),
    )
    rows = (comparison.rows[0], replace(comparison.rows[1], suspects=several), comparison.rows[2])
    finding = wrong_value_finding.finding_of(replace(comparison, rows=rows))
    assert finding.origin is None
    assert finding.evidence[1] == "it is computed by aten.mul.Tensor (mul), aten.tanh.default (tanh)"


def test_the_other_lines_of_a_kernel_may_be_wrong(run: RunDir) -> None:
    comparison = compared(run, RIGHT, WRONG, RIGHT)
    row = comparison.rows[1]
    row.launch.site = replace(row.launch.site, provenance=Provenance(Certainty.EXACT, source=(LINE,)))
    later = replace(LINE, line=LINE.line + 1)
    several = (
        Suspect(node="mul", operator="aten.mul.Tensor", line=LINE),
        Suspect(node="tanh", operator="aten.tanh.default", line=later),
    )
    rows = (comparison.rows[0], replace(row, suspects=several), comparison.rows[2])
    (sentence,) = wrong_value_finding.finding_of(replace(comparison, rows=rows)).possible
    assert sentence.endswith(f"of which one may be wrong: {Path(later.file).name}:{later.line}")


def test_the_operator_that_alone_explains_it_is_the_origin(run: RunDir) -> None:
    comparison = compared(run, RIGHT, WRONG, RIGHT)
    explaining = Suspect(node="mul", operator="aten.mul.Tensor", line=LINE, how="without its second operand")
    several = (explaining, Suspect(node="tanh", operator="aten.tanh.default", line=LINE))
    rows = (comparison.rows[0], replace(comparison.rows[1], suspects=several), comparison.rows[2])
    finding = wrong_value_finding.finding_of(replace(comparison, rows=rows))
    assert finding.origin is not None
    assert finding.origin.operator == "aten.mul.Tensor"
    assert finding.evidence[1] == "aten.mul.Tensor (mul) without its second operand explains it"


def test_an_operator_that_explains_the_wrong_elements_alone_may_be_it(run: RunDir) -> None:
    comparison = compared(run, RIGHT, WRONG, RIGHT)
    partial = Suspect(node="mul", operator="aten.mul.Tensor", line=LINE, how="times 2", partial=True)
    several = (partial, Suspect(node="tanh", operator="aten.tanh.default", line=LINE))
    rows = (comparison.rows[0], replace(comparison.rows[1], suspects=several), comparison.rows[2])
    finding = wrong_value_finding.finding_of(replace(comparison, rows=rows))
    assert finding.origin is None
    assert not any("times 2" in sentence for sentence in finding.evidence)
    assert finding.possible == (
        "aten.mul.Tensor (mul) times 2 would explain the wrong elements: it may be what is wrong",
    )


def test_launches_that_run_the_code_of_eager_are_not_called_independent(run: RunDir) -> None:
    comparison = compared(run, RIGHT, RIGHT, SILENT)
    first, *rest = comparison.rows
    found = wrong_value_finding.finding_of(replace(comparison, rows=(replace(first, same_code=True), *rest)))
    size = wording.byte_size(first.compared_bytes)
    assert found.kind is CLEAN
    assert found.warnings == (
        f"not independent: {size} of what was compared was written by 1 launch that runs the same code as the program "
        "in eager",
    )


def test_a_run_without_a_wrong_launch_says_how_much_was_compared(run: RunDir) -> None:
    whole = wrong_value_finding.finding_of(compared(run, RIGHT, RIGHT, SILENT))
    assert (whole.kind, whole.what, whole.warnings) == (CLEAN, "2 of 2 launches computed what the program says", ())
    half = wrong_value_finding.finding_of(compared(run, RIGHT, "no node holds it", RIGHT))
    assert half.kind is INCOMPLETE
    assert half.what == "2 of 3 launches, 66 % of bytes; not compared: b (no node holds it)"
    none = wrong_value_finding.finding_of(compared(run, PRIVATE, SILENT, SILENT))
    assert (none.kind, none.what) == (INCOMPLETE, "0 of 1 launch, 0 % of bytes; not compared: any launch")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"reason": "flex_attention has no evaluation of its own"}, "flex_attention"),
        ({"reason": "its grid is empty: it was not started"}, "b (its grid is empty: it was not started)"),
        ({"reason": "random numbers: aten.rand.default"}, ""),
        ({"same_code": True}, ""),
        ({"is_unread": True}, ""),
    ],
)
def test_what_leaves_a_comparison_open_is_named(run: RunDir, change: dict[str, Any], named: str) -> None:
    comparison = compared(run, RIGHT, "no node holds it", RIGHT)
    rows = (comparison.rows[0], replace(comparison.rows[1], **change), comparison.rows[2])
    found = wrong_value_finding.finding_of(replace(comparison, rows=rows))
    assert found.kind is (INCOMPLETE if named else CLEAN)
    assert found.what.partition("not compared: ")[2] == named
    equal = (OutputError(index=0, dtype="float32", elements=6, different=0, relative=0.0),)
    assert kind_of(replace(comparison, rows=rows, outputs=equal)) is CLEAN, "all outputs are equal"


def test_outputs_that_were_not_compared_leave_it_open(run: RunDir) -> None:
    comparison = replace(compared(run, RIGHT, RIGHT, RIGHT), outputs_missing=NO_PROGRAM)
    assert kind_of(comparison) is INCOMPLETE
    assert exit_code(comparison) == 8
    assert compared_text(comparison).endswith("not compared: a compiled package without its program")
    wrong = replace(comparison, rows=compared(run, RIGHT, WRONG, RIGHT).rows)
    assert (kind_of(wrong), exit_code(wrong)) == (WRONG_VALUE, 1)


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        (["as recorded"], "the lowering or fusion is likely wrong"),
        (["fault", "as recorded"], "the lowering or fusion is likely wrong"),
        (["differs"], "its compilation may be wrong"),
        (["failed"], ""),
        ([], ""),
    ],
)
def test_the_step_that_went_wrong_follows_from_the_replays(run: RunDir, outcomes: list[str], word: str) -> None:
    sentences = wrong_value_finding.stage(run.launches[0], outcomes)
    assert len(sentences) == bool(word)
    assert all(sentence.endswith(word) for sentence in sentences)


def test_the_lowering_is_not_blamed_beside_an_operator_that_does_what_its_graph_does_not_say(run: RunDir) -> None:
    (sentence,) = wrong_value_finding.stage(run.launches[0], ["as recorded"], ["mine.op.default"])
    assert sentence == "its source computes the same values in another way of running it"


def test_an_operator_that_does_what_its_graph_does_not_say_may_be_to_blame(run: RunDir) -> None:
    seen = "returns memory of its argument x, which its schema does not declare"
    operator = UndefinedOperator(node="op", operator="mine.op.default", seen=seen)
    finding = wrong_value_finding.finding_of(replace(compared(run, RIGHT, WRONG, RIGHT), undefined=(operator,)))
    assert operator.text in finding.evidence
    assert "mine.op.default may be what makes the outputs differ" in finding.possible


def test_an_output_of_another_dtype_names_the_launch_that_wrote_it(run: RunDir) -> None:
    fault = "is float16[2, 3], where eager returns float32[2, 3]: another dtype"
    error = OutputError(index=0, dtype="float16", elements=6, different=6, relative=math.inf, fault=fault)
    finding = wrong_value_finding.finding_of(replace(compared(run, RIGHT, RIGHT, "no node holds it"), outputs=(error,)))
    assert finding.where is not None
    assert (finding.where.launch, finding.where.argument) == ("0.2", "buf2")
    assert finding.evidence[0] == "it is buf2, which launch 0.2 wrote last"


def returning(kind: str, operator: str) -> Graph:
    """A graph that returns the result of one operator, of this dtype."""
    node = Node("result", NodeKind.CALL, operator, types=(TensorType(kind, "cpu", ("2", "3"), ("3", "1")),), line=0)
    return Graph("", MODEL, (node, Node("output", NodeKind.OUTPUT, "output", ([{"node": "result"}],))), ())


@pytest.mark.parametrize(
    ("exported", "lowered", "said"),
    [
        (
            "float32",
            "float16",
            "a graph pass or a decomposition of Inductor changed the dtype: in the program it is float32, of "
            "aten.cumsum.default (result) at /home/user/model.py:8; the graph that the kernels were generated from has "
            "float16",
        ),
        (
            "float16",
            "float16",
            "the exported program promises float16 for it, of aten.cumsum.default (result) at /home/user/model.py:8, "
            "and returns another dtype in eager",
        ),
        ("float32", "float32", ""),
    ],
)
def test_a_dtype_that_a_graph_has_already_is_no_launch_s_fault(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, exported: str, lowered: str, said: str
) -> None:
    before, after = returning(exported, "aten.cumsum.default"), returning(lowered, "prims.iota.default")
    reference = Reference(FORMAT, torch.__version__, (after,), (LINE,), exported=(before,))
    monkeypatch.setattr(wrong_value_finding, "has_reference", lambda _: True)
    monkeypatch.setattr(wrong_value_finding, "reference_of", lambda _: (reference, Path()))
    monkeypatch.setattr(RunDir, "package", Path("package.pt2"))
    fault = "is float16[2, 3], where eager returns float32[2, 3]: another dtype"
    error = OutputError(index=0, dtype="float16", elements=6, different=6, relative=math.inf, fault=fault)
    outputs = (replace(error, eager_dtype="float32"),)
    finding = wrong_value_finding.finding_of(replace(compared(run, RIGHT, RIGHT, RIGHT), outputs=outputs))
    assert finding.where is not None
    assert finding.kind == (DIFFERS if exported == lowered == "float16" else WRONG_VALUE)
    assert (not finding.where.launch) is bool(said)
    assert (finding.evidence[0] == said) is bool(said)
    assert (finding.where == Place(operator="aten.cumsum.default", frame=LINE)) is bool(said)


def test_an_operator_whose_lowering_gives_another_dtype(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one: what is computed from its result has another dtype as well."""
    graph = returning("uint8", "aten.add.Tensor")
    kind = (TensorType("uint8", "cpu", ("2", "3"), ("3", "1")),)
    first = Node("any_1", NodeKind.CALL, "aten.any.dim", types=kind, line=0, lowered="bool")
    result = replace(graph.nodes[0], args=({"node": "any_1"},), lowered="int64")
    lowered = replace(graph, nodes=(first, result, graph.nodes[1]))
    reference = Reference(FORMAT, torch.__version__, (lowered,), (LINE,))
    monkeypatch.setattr(wrong_value_finding, "has_reference", lambda _: True)
    monkeypatch.setattr(wrong_value_finding, "reference_of", lambda _: (reference, Path()))
    monkeypatch.setattr(RunDir, "package", Path("package.pt2"))
    fault = "is int64[2, 3], where eager returns uint8[2, 3]: another dtype"
    error = OutputError(index=0, dtype="int64", elements=6, different=6, relative=math.inf, fault=fault)
    finding = wrong_value_finding.finding_of(replace(compared(run, RIGHT, RIGHT, RIGHT), outputs=(error,)))
    assert finding.origin == Place(operator="aten.any.dim", frame=LINE)
    assert finding.evidence[:2] == (
        "it is buf2, which launch 0.2 wrote last",
        "the lowering of aten.any.dim (any_1) at /home/user/model.py:8 gave bool, where its graph has uint8",
    )


def test_an_element_of_a_scalar_has_no_index(run: RunDir) -> None:
    scalar = replace(WRONG, shape=(), count=1, wrong=1, worst=Element(0, "1.0", "nan", "nan"))
    finding = wrong_value_finding.finding_of(compared(run, scalar, RIGHT, RIGHT))
    assert finding.what == "1 of 1 element of buf0 is not what the program says"
    assert finding.evidence[0] == "buf0 is 1.0, should be nan"


def test_an_operator_has_no_source_to_run_in_another_way(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf0",))
    recorder.journal.call_begin()
    recorder.launch("aoti_torch_cpu_cos_out", {"arg0": torch.ones(1)}, {"buf0": torch.ones(1)}, op="aten.cos.out")
    (sentence,) = wrong_value_finding.stage(recorder.run().launches[0], [])
    assert sentence.startswith("it calls an operator")


# ---- models that are not compared


def looked(run: RunDir, folder: Path, compare: bool = True) -> str:
    """What a triage says that only looks at a run."""
    options = SimpleNamespace(compare=compare, exported=None)
    named = SimpleNamespace(launches=run.launches, package=folder / "package.pt2", manifest=run.manifest)
    first = SimpleNamespace(run=named, diagnosed=None)
    model = SimpleNamespace(options=options, repro=folder / "repro", first=first)
    suspicion = wrong_value.look(model)  # type: ignore[arg-type]
    assert suspicion is not None
    assert suspicion.finding.kind is INCOMPLETE
    return suspicion.finding.what


def test_a_package_without_its_graph_is_compared_with_a_build_of_its_program(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrong_value, "has_reference", lambda _: False)
    monkeypatch.setattr(wrong_value, "has_exported_alone", lambda _: False)
    manifest = replace(run.manifest, source=PackageOrigin.COMPILED)
    named = SimpleNamespace(launches=run.launches, package=tmp_path / "package.pt2", manifest=manifest)
    first = SimpleNamespace(run=named, diagnosed=None)
    difference = "aoti-debug diff 'my program.pt2' p.pt2 --calls 4"
    for exported, commands in ((Path("my program.pt2"), (difference,)), (None, ())):
        options = TriageOptions(model=Path("p.pt2"), exported=exported, calls=4)
        suspicion = wrong_value.look(SimpleNamespace(options=options, first=first))  # type: ignore[arg-type]
        assert suspicion is not None
        assert suspicion.finding.next == commands


def test_why_a_model_is_not_compared(run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong_value, "has_reference", lambda _: False)
    monkeypatch.setattr(wrong_value, "has_exported_alone", lambda _: False)
    reason = "a package that does not hold the graph that it was compiled from"
    assert looked(run, tmp_path) == f"0 of 3 launches; not compared: {reason}"
    assert looked(run, tmp_path, compare=False) == "0 of 3 launches; not compared: --no-compare"
    monkeypatch.setattr(wrong_value, "has_reference", lambda _: True)
    monkeypatch.setattr(wrong_value, "MAX_LAUNCHES", 2)
    reason = "3 launches, which are many; aoti-debug compare does"
    assert looked(run, tmp_path) == f"0 of 3 launches; not compared: {reason}"
    monkeypatch.setattr(wrong_value, "MAX_LAUNCHES", 3)
    monkeypatch.setattr(wrong_value, "LARGEST", 143)
    reason = "144 B of tensors, which would be saved; aoti-debug compare does"
    assert looked(run, tmp_path) == f"0 of 3 launches; not compared: {reason}"
