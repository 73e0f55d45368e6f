"""Findings of comparisons whose launches are right: eager refuses the inputs, or returns something else."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.compare import stored_comparison
from aoti_debug.compare.compare_run import first_difference
from aoti_debug.compare.comparison import Beginning, Comparison, Row, SettingTrial
from aoti_debug.compare.measure.output_errors import OutputError, ReturnedElement
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.outcome import DIFFERS, REFUSED, differs, exit_code, kind_of, refused, report_lines
from aoti_debug.compare.protocol.measurement import NOT_REPEATABLE, Measurement, RegionResult
from aoti_debug.compare.protocol.messages import BadOperand, InputElement, Refusal
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.stored_comparison import document
from aoti_debug.compare.suspects import InexactOperator, UndefinedOperator
from aoti_debug.compare.text import comparison_lines
from aoti_debug.package.manifest import Kind, ModelLine
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE
from aoti_debug.triage.results.wrong_value_finding import finding_of
from aoti_debug.views.report import report
from tests import schema
from tests.triage.recorder import Recorder

LINE = ModelLine("/home/user/model.py", 8, "forward", "y = table[rows]")
BAD = BadOperand(
    launch="",
    node="index",
    operator="aten.index.Tensor",
    name="rows",
    index=(1,),
    value=-11,
    count=1,
    table="table",
    dimension=0,
    size=10,
)
MEASURED = Measurement(
    argument="buf0", value="tanh", operator="aten.tanh.default", dtype="float16", shape=(2, 3), count=6
)
NAN = OutputError(
    index=0,
    dtype="float16",
    elements=6,
    different=6,
    relative=math.inf,
    computed="float16",
    misplaced=6,
    example=ReturnedElement((0, 1), "0.0", "nan"),
)
ROUNDED = OutputError(
    index=1,
    dtype="float32",
    elements=6,
    different=6,
    relative=0.03,
    computed="float16",
    double=1e-4,
    eager_double=0.03,
    arithmetic="float16",
)
CAST = OutputError(
    index=1,
    dtype="float32",
    elements=6,
    different=6,
    relative=3e-4,
    computed="float16",
    double=1e-7,
    eager_double=3e-4,
    arithmetic="float32",
)


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    """One right launch."""
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf0",))
    recorder.journal.call_begin()
    recorder.launch("a", {"arg0": torch.zeros(2, 3)}, {"buf0": torch.zeros(2, 3)}, kind=Kind.CPP)
    run = recorder.run()
    row = Row(launch=run.launches[0], verdict=LaunchVerdict.OK, outputs=(MEASURED,), bytes=24, compared_bytes=24)
    return Comparison(run=run, rows=(row,))


def kept(comparison: Comparison) -> None:
    """Checks that the file in the run's directory holds the whole comparison."""
    stored_comparison.write(comparison, comparison.run.path)
    read = stored_comparison.read(comparison.run)
    assert read == comparison
    text = (comparison.run.path / stored_comparison.NAME).read_text()
    compare = json.loads((schema.DOCS / "compare.schema.json").read_text())
    assert schema.problems(json.loads(text), compare) == []
    assert document(comparison)["outcome"] == kind_of(comparison).value


def test_a_refusal_names_the_operand_and_the_element_of_the_input(comparison: Comparison) -> None:
    given = (InputElement("rows", (1,), 1, "-11"),)
    refusal = Refusal(
        error="IndexError",
        words="index -11 is out of bounds",
        node="index",
        operator="aten.index.Tensor",
        bad=BAD,
        inputs=given,
    )
    comparison = replace(comparison, refusal=refusal, refusal_line=LINE)
    assert (kind_of(comparison), exit_code(comparison)) == (REFUSED, 1)
    kept(comparison)
    finding = refused(comparison)
    assert finding.what == "index -11 is out of bounds"
    assert finding.where is not None
    assert (finding.where.operator, finding.where.frame) == ("aten.index.Tensor", LINE)
    assert finding.origin is not None
    assert (finding.origin.input, finding.origin.element) == ("rows", 1)
    assert finding.evidence == (
        "`y = table[rows]`: aten.index.Tensor: rows[1] is -11, table has 10 rows",
        "the exported program, called in eager with the inputs of this run, raises IndexError",
        "the package computed with them: 1 launch, no fault",
    )
    assert "EAGER REFUSES index -11 is out of bounds" in report_lines(comparison, UNLIMITED)


def test_of_several_input_elements_none_is_the_origin(comparison: Comparison) -> None:
    given = (InputElement("a", (1,), 1, "3"), InputElement("b", (), 0, "-14"))
    refusal = Refusal(
        error="IndexError",
        words="index -11",
        node="index",
        operator="aten.index.Tensor",
        bad=replace(BAD, name="add"),
        inputs=given,
        call=2,
    )
    finding = refused(replace(comparison, refusal=refusal))
    assert finding.origin is None
    assert finding.evidence[1:3] == (
        "it was computed from a[1] = 3, b = -14",
        "the exported program, called in eager with the inputs of this run, raises IndexError in call 2",
    )


def test_a_refusal_of_an_unknown_operator(comparison: Comparison) -> None:
    finding = refused(replace(comparison, refusal=Refusal(error="RuntimeError", words="lengths add up to 11")))
    assert (finding.where, finding.origin, len(finding.evidence)) == (None, None, 2)


def test_places_of_nan_that_differ(comparison: Comparison) -> None:
    begins = Beginning(
        launch="0.0",
        argument="buf0",
        misplaced=6,
        count=6,
        dtype="float16",
        node="root",
        operator="aten.rsqrt.default",
        line=LINE,
    )
    trial = SettingTrial("emulate_precision_casts=True", "m.pt2", relative={"0": 0.0})
    comparison = replace(comparison, outputs=(NAN,), beginning=begins, setting=trial)
    assert (kind_of(comparison), exit_code(comparison)) == (DIFFERS, 1)
    kept(comparison)
    finding = differs(comparison)
    assert finding.what == (
        "output 0: 6 of 6 elements are NaN or infinite otherwise than in eager: [0, 1] is 0.0, eager returns nan"
    )
    assert finding.evidence[:3] == (
        "observed: with emulate_precision_casts=True the outputs equal eager's",
        "it begins in launch 0.0: 6 of 6 elements of buf0 are NaN or infinite otherwise than eager makes them from the "
        "same inputs",
        f"in eager, aten.rsqrt.default (root) at {LINE.place} is the first whose result is not finite as in float64",
    )
    assert finding.next == ("aoti-debug build m.pt2 --inductor-config emulate_precision_casts=True",)
    page = report.html(report.of_comparison(comparison))
    assert "differs from eager</p>" in page
    assert '<section class="verdict bad"' in page


def cancelled(actual: str) -> OutputError:
    """What is left of numbers that cancel: eager has 0, and float64 has not."""
    example = ReturnedElement((), actual, "0.0")
    return OutputError(
        index=0,
        dtype="float32",
        elements=1,
        different=1,
        relative=math.inf,
        computed="float32",
        double=5e8,
        eager_double=1.0,
        example=example,
        arithmetic="float32",
    )


def test_a_clean_comparison_says_what_is_not_finite_in_eager_either(comparison: Comparison) -> None:
    found = replace(comparison, outputs=(replace(RIGHT, nonfinite=2),))
    assert kind_of(found) is CLEAN
    assert report_lines(found, UNLIMITED)[-1].endswith(
        f"computed what the program says; NaN or infinite as in eager: output 0 (2 of {RIGHT.elements} elements)"
    )
    kept(found)


def test_lost_rounding_is_a_finding(comparison: Comparison) -> None:
    found = replace(comparison, outputs=(ROUNDED,))
    assert kind_of(found) is DIFFERS
    kept(found)
    within = replace(ROUNDED, relative=5e-3, eager_double=5e-3)
    assert kind_of(replace(found, outputs=(within,))) is CLEAN, "as far as a model of float16 is rounded"
    assert kind_of(replace(found, outputs=(CAST,))) is DIFFERS, "no operator rounds as the program asks for"


@pytest.mark.parametrize(("relative", "commands"), [({"1": 0.0}, 1), ({"1": 1e-3}, 1), ({"1": 0.02}, 0), ({}, 0)])
def test_the_setting_is_advised_where_it_brings_the_rounding_back(
    comparison: Comparison, relative: dict[str, float], commands: int
) -> None:
    trial = SettingTrial("emulate_precision_casts=True", "m.pt2", relative=relative)
    assert len(differs(replace(comparison, outputs=(ROUNDED,), setting=trial)).next) == commands


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            OutputError(
                index=0,
                dtype="float32",
                elements=6,
                different=2,
                relative=0.2,
                computed="float32",
                double=0.15,
                eager_double=0.14,
                arithmetic="float32",
            ),
            DIFFERS,
        ),
        (
            OutputError(
                index=0,
                dtype="float32",
                elements=6,
                different=2,
                relative=5e-3,
                computed="float32",
                double=4e-3,
                eager_double=5e-3,
                arithmetic="float32",
            ),
            CLEAN,
        ),
        (
            OutputError(
                index=0,
                dtype="bfloat16",
                elements=6,
                different=2,
                relative=0.03,
                computed="bfloat16",
                double=0.02,
                eager_double=0.02,
                arithmetic="bfloat16",
            ),
            CLEAN,
        ),
        (cancelled("-5.7e-06"), CLEAN),
        (cancelled("-0.0057"), DIFFERS),
        (
            OutputError(
                index=0,
                dtype="bool",
                elements=6,
                different=1,
                relative=0.5,
                computed="float32",
                double=0.5,
                eager_double=0.4,
                arithmetic="float32",
            ),
            DIFFERS,
        ),
        (
            OutputError(
                index=0,
                dtype="int64",
                elements=6,
                different=1,
                relative=0.01,
                computed="float32",
                double=0.01,
                eager_double=0.02,
                arithmetic="float32",
            ),
            CLEAN,
        ),
        (
            OutputError(
                index=0,
                dtype="int64",
                elements=6,
                different=2,
                relative=0.4,
                computed="float32",
                double=0.4,
                eager_double=0.3,
                arithmetic="float32",
            ),
            DIFFERS,
        ),
    ],
)
def test_an_output_that_is_far_off_differs_although_eager_is_as_far_off(
    comparison: Comparison, error: OutputError, kind: object
) -> None:
    assert kind_of(replace(comparison, outputs=(error,))) is kind


def test_a_setting_about_16_bits_is_none_for_a_program_of_float32(comparison: Comparison) -> None:
    wide = replace(comparison, outputs=(replace(NAN, dtype="float32", computed="float32"),))
    assert kind_of(wide) is DIFFERS
    assert (wide.suspects_of_rounding, differs(wide).possible, differs(wide).next) == ((), (), ())


def test_a_setting_that_was_not_tried_may_help(comparison: Comparison) -> None:
    finding = differs(replace(comparison, outputs=(NAN,)))
    assert finding.possible == ("emulate_precision_casts=True may remove the difference; it was not tried",)
    assert not any("observed" in sentence for sentence in finding.evidence)
    assert finding.next == ("aoti-debug build PROGRAM.pt2 --inductor-config emulate_precision_casts=True",)
    known = differs(replace(comparison, outputs=(NAN,), program=str(Path.cwd() / "my model.pt2")))
    assert known.next == ("aoti-debug build 'my model.pt2' --inductor-config emulate_precision_casts=True",)
    failed = SettingTrial("emulate_precision_casts=True", "m.pt2", "no compiler")
    finding = differs(replace(comparison, outputs=(NAN,), setting=failed))
    assert "what emulate_precision_casts=True makes of it is not known: no compiler" in finding.evidence
    assert finding.next == ()


@pytest.mark.parametrize(("moved", "kind"), [(0.1, CLEAN), (1e-5, DIFFERS), (None, INCOMPLETE)])
def test_a_wrong_output_that_no_launch_explains(comparison: Comparison, moved: float | None, kind: object) -> None:
    error = OutputError(
        index=0,
        dtype="float32",
        elements=6,
        different=6,
        relative=5e-3,
        computed="float32",
        double=5e-3,
        eager_double=1e-6,
        moved=moved,
    )
    assert kind_of(replace(comparison, outputs=(error,))) is kind


def test_an_error_column_is_never_zero_where_nan_differ(comparison: Comparison) -> None:
    output = replace(MEASURED, misplaced=6, eager_lost=6)
    (line,) = (x for x in lines_of(comparison, output) if x.lstrip().startswith("0.0"))
    assert line.split()[3:5] == ["0", "NaN/Inf"]  # local, eager: there is nothing inherited
    output = replace(MEASURED, misplaced=6, lost=6)
    (line,) = (x for x in lines_of(comparison, output) if x.lstrip().startswith("0.0"))
    assert line.split()[3:5] == ["NaN/Inf", "0"]


def lines_of(comparison: Comparison, output: Measurement) -> list[str]:
    row = replace(comparison.rows[0], outputs=(output,))
    return [line.replace("model line unknown", "?") for line in comparison_lines(replace(comparison, rows=(row,)), 400)]


def test_an_operator_that_is_not_repeatable_is_named(comparison: Comparison) -> None:
    row = replace(comparison.rows[0], verdict=LaunchVerdict.NOT_COMPARABLE, reason=NOT_REPEATABLE, same_code=True)
    garbage = OutputError(
        index=0,
        dtype="float32",
        elements=6,
        different=6,
        relative=1e30,
        computed="float32",
        double=1e30,
        eager_double=1.0,
    )
    comparison = replace(comparison, rows=(row,), outputs=(garbage,))
    assert kind_of(comparison) is DIFFERS
    finding = differs(comparison)
    assert finding.where is not None
    assert finding.where.launch == "0.0"
    assert finding.evidence[0] == f"0.0 a: {NOT_REPEATABLE}"
    assert finding.possible == ("a may be what makes the outputs differ",)
    near = replace(comparison, outputs=(replace(garbage, relative=5e-3, double=5e-3, eager_double=5e-3),))
    assert kind_of(near) is INCOMPLETE


def test_an_operator_that_overwrites_its_argument_is_named(comparison: Comparison) -> None:
    seen = "overwrites its argument x, which its schema does not declare"
    operator = UndefinedOperator(node="op", operator="mine.op.default", seen=seen)
    error = OutputError(
        index=0,
        dtype="float32",
        elements=6,
        different=6,
        relative=0.25,
        computed="float32",
        double=0.25,
        eager_double=1e-7,
        moved=1e-6,
    )
    finding = differs(replace(comparison, outputs=(error,), undefined=(operator,)))
    assert finding.where is not None
    assert finding.where.operator == "mine.op.default"
    assert finding.evidence[0] == f"mine.op.default (op) {seen}"
    assert finding.possible[-1] == "mine.op.default may be what makes the outputs differ"
    tried = replace(operator, outputs=(0,))
    assert not differs(replace(comparison, outputs=(error,), undefined=(tried,))).possible, "it was seen"


def test_indices_that_an_operator_leaves_open_differ_and_are_not_wrong(comparison: Comparison) -> None:
    error = OutputError(
        index=0,
        dtype="int64",
        elements=600,
        different=2,
        relative=1e-3,
        example=ReturnedElement((0, 2), "598", "599"),
    )
    seen = "leaves open which of equal elements comes first: with another choice, in eager, output 0 changes"
    operator = UndefinedOperator(node="sort", operator="aten.sort.default", seen=seen, outputs=(0,), line=LINE)
    open_ = replace(comparison, outputs=(error,), undefined=(operator,))
    assert kind_of(open_) is DIFFERS
    assert kind_of(replace(open_, undefined=())) is INCOMPLETE
    finding = differs(open_)
    assert finding.evidence[0] == f"aten.sort.default (sort) at /home/user/model.py:8 {seen}"
    assert not finding.possible


# Where it begins


def typed(dtype: str) -> tuple[TensorType, ...]:
    return (TensorType(dtype, "cpu", ("2", "3"), ()),)


def graph(stored: str) -> tuple[Reference, Region]:
    """x → float16 → float32 → its sine, of which a node's value is stored as buf0."""
    nodes = (
        Node("x", NodeKind.INPUT, types=typed("float32")),
        Node("half", NodeKind.CALL, "prims.convert_element_type.default", ({"node": "x"},), types=typed("float16")),
        Node("back", NodeKind.CALL, "prims.convert_element_type.default", ({"node": "half"},), types=typed("float32")),
        Node("sin", NodeKind.CALL, "aten.sin.default", ({"node": "back"},), types=typed("float32"), line=0),
    )
    known = KnownValue(ValueKey(stored), Recorded("0.0", "buf0", ""))
    region = Region(
        launch="0.0",
        launches=("0.0",),
        graph="",
        function=MODEL,
        nodes=("half", "back", "sin"),
        inputs=(),
        outputs=(known,),
    )
    return Reference(FORMAT, "2.13", (Graph("", MODEL, nodes, ()),), (LINE,)), region


def test_the_operator_whose_rounding_makes_the_difference_is_where_it_begins(comparison: Comparison) -> None:
    reference, region = graph("sin")
    row = replace(comparison.rows[0], outputs=(replace(MEASURED, value="sin", rms=1e-8, eager_rms=1e-4),))
    found = first_difference((row,), (region,), (RegionResult(launch="0.0", begins="half", share=0.99),), reference)
    cast = "prims.convert_element_type.default"
    assert found == Beginning(
        launch="0.0",
        argument="buf0",
        misplaced=0,
        count=6,
        dtype="float16",
        node="half",
        operator=cast,
        line=None,
        rounded_to="float16",
        share=0.99,
    )
    found = first_difference((row,), (region,), (RegionResult(launch="0.0"),), reference)
    assert found == Beginning(launch="0.0", argument="buf0", misplaced=0, count=6, dtype="float16", line=LINE)
    finding = differs(replace(comparison, outputs=(CAST,), beginning=replace(found, node="half", operator=cast)))
    assert finding.origin is not None
    assert (finding.origin.operator, finding.origin.frame) == (cast, LINE)


def test_it_begins_in_what_is_not_finite_rather_than_in_what_is_decided_by_it(comparison: Comparison) -> None:
    reference, region = graph("sin")
    decided = replace(MEASURED, argument="buf1", value="any", dtype="bool", rms=1e-8, eager_rms=1e-4)
    overflow = replace(MEASURED, value="sin", misplaced=3)
    row = replace(comparison.rows[0], outputs=(decided, overflow))
    found = first_difference((row,), (region,), (RegionResult(launch="0.0", begins="half"),), reference)
    assert found is not None
    assert (found.argument, found.misplaced, found.node) == ("buf0", 3, "half")


def test_it_begins_where_rounding_decides(comparison: Comparison) -> None:
    reference, region = graph("sin")
    output = replace(MEASURED, value="sin", rms=1.0, eager_rms=1.0, relative_ulp=1e6, sensitivity=3e5)
    found = first_difference((replace(comparison.rows[0], outputs=(output,)),), (region,), (), reference)
    assert found == Beginning(
        launch="0.0", argument="buf0", misplaced=0, count=6, dtype="float16", line=LINE, sensitivity=3e5
    )
    finding = differs(replace(comparison, outputs=(ROUNDED,), beginning=found))
    assert finding.evidence[0] == (
        "it begins in launch 0.0: when its inputs move by 1 ULP, buf0 moves 3e+05 times as far (relative)"
    )
    assert finding.where is not None
    assert (finding.where.frame, finding.origin) == (LINE, None)


def test_the_operator_that_is_not_finite_is_where_it_begins(comparison: Comparison) -> None:
    reference, region = graph("sin")
    row = replace(comparison.rows[0], outputs=(replace(MEASURED, value="sin", misplaced=2),))
    found = first_difference((row,), (region,), (RegionResult(launch="0.0", begins="sin"),), reference)
    assert found == Beginning(
        launch="0.0",
        argument="buf0",
        misplaced=2,
        count=6,
        dtype="float16",
        node="sin",
        operator="aten.sin.default",
        line=LINE,
    )


def test_an_operator_behind_another_output_is_not_where_it_begins(comparison: Comparison) -> None:
    reference, region = graph("sin")
    row = replace(comparison.rows[0], outputs=(replace(MEASURED, value="back", misplaced=2),))
    found = first_difference((row,), (region,), (RegionResult(launch="0.0", begins="sin"),), reference)
    assert found is not None
    assert (found.node, found.operator) == ("", "")


def test_eager_that_is_as_near_to_float64_is_no_beginning(comparison: Comparison) -> None:
    reference, region = graph("sin")
    row = replace(comparison.rows[0], outputs=(replace(MEASURED, rms=1e-5, eager_rms=2e-5),))
    assert first_difference((row,), (region,), (RegionResult(launch="0.0"),), reference) is None


RIGHT = OutputError(index=0, dtype="int32", elements=6, different=0, relative=0.0)
OPEN = InexactOperator(
    node="to", operator="aten.to.dtype", seen="converts 1 of 6 elements that int32 cannot hold", is_open=True, line=LINE
)


def test_what_eager_leaves_open_is_not_compared(comparison: Comparison) -> None:
    comparison = replace(comparison, outputs=(RIGHT,), inexact=(OPEN,))
    kept(comparison)
    assert kind_of(comparison) == INCOMPLETE
    assert comparison.not_compared == (
        "aten.to.dtype (to) with more than eager, whose own result is not exact or not defined",
    )
    finding = finding_of(comparison)
    assert finding.kind == INCOMPLETE
    assert finding.warnings == (OPEN.text,)
    assert f"note: {OPEN.text}" in report_lines(comparison, UNLIMITED)


def test_what_is_inexact_by_rule_is_a_note(comparison: Comparison) -> None:
    comparison = replace(comparison, outputs=(RIGHT,), inexact=(replace(OPEN, is_open=False),))
    kept(comparison)
    assert finding_of(comparison).kind == CLEAN
    assert finding_of(comparison).warnings == (OPEN.text,)


def test_numbers_that_eager_has_too_and_float64_has_not_are_noted(comparison: Comparison) -> None:
    (row,) = comparison.rows
    decided = replace(MEASURED, dtype="bool", equals_eager=True, decided=2)
    far = replace(MEASURED, equals_eager=True, relative=0.03, relative_ulp=2.5e5)
    near = replace(MEASURED, equals_eager=True, relative=1e-6, relative_ulp=8.0)
    name = f"{MEASURED.argument} of {row.launch.id}"
    notes = {
        decided: (
            f"2 of {MEASURED.count} elements of {name} are as in eager, and float64 has others: rounding decides "
            "about them",
        ),
        far: (f"{name} equals eager's, and both have a relative error of 0.03 against float64",),
        near: (),
    }
    for output, expected in notes.items():
        noted = replace(comparison, outputs=(RIGHT,), rows=(replace(row, outputs=(output,)),))
        assert finding_of(noted).kind == CLEAN
        assert finding_of(noted).warnings == expected


INDICES = OutputError(
    index=0, dtype="int64", elements=3, different=2, relative=0.5, example=ReturnedElement((1,), "2", "0")
)


@pytest.mark.parametrize(
    ("inherited", "equals_eager", "same_code", "said"),
    [
        pytest.param({"buf0": 6e-8}, True, False, "eager makes the same of what the launch read", id="rounding"),
        pytest.param({"buf0": 6e-8}, False, True, "the launch runs the code that eager runs too", id="the same code"),
        pytest.param({"buf0": 0.03}, True, False, "", id="more than rounding"),
        pytest.param({"buf0": 0.0}, True, False, "", id="the same inputs"),
        pytest.param(None, True, False, "", id="inputs that are not compared"),
        pytest.param({"buf0": 6e-8}, False, False, "", id="a launch that eager has otherwise"),
    ],
)
def test_rounding_may_decide_integers_that_were_made_of_what_it_changed(
    tmp_path: Path, inherited: dict[str, float] | None, equals_eager: bool, same_code: bool, said: str
) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf1",))
    recorder.journal.call_begin()
    given, made, chosen = torch.zeros(2, 3), torch.ones(2, 3), torch.zeros(3, dtype=torch.int64)
    recorder.launch("a", {"arg0": given}, {"buf0": made}, kind=Kind.CPP)
    recorder.launch("argmax", {"buf0": made}, {"buf1": chosen}, kind=Kind.CPP)
    run = recorder.run()
    index = replace(MEASURED, argument="buf1", dtype="int64", shape=(3,), count=3, equals_eager=equals_eager)
    rows = (
        Row(launch=run.launches[0], verdict=LaunchVerdict.OK, outputs=(MEASURED,), inherited=inherited),
        Row(launch=run.launches[1], verdict=LaunchVerdict.OK, outputs=(index,), same_code=same_code),
    )
    finding = differs(Comparison(run=run, rows=rows, outputs=(INDICES,)))
    sentence = (
        f"output 0 is buf1, which 0.1 argmax wrote; {said}, and its inputs differ from the program's in eager by a "
        "relative error of 6e-08 at most"
    )
    assert (sentence in finding.evidence) is bool(said)
    assert any(text.startswith("rounding may decide these elements") for text in finding.possible) is bool(said)
    assert (finding.where is not None and finding.where.launch == "0.1") is bool(said)
