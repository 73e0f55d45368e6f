"""The text of a comparison."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.text import comparison_lines, eager_notes, output_text, short, state_lines, wrong_lines
from aoti_debug.package.manifest import ModelLine
from tests.views.report.subjects import comparison_of, run


def test_a_wrong_launch_in_a_loop(tmp_path: Path) -> None:
    comparison = comparison_of(run(tmp_path, 2, fault=False))
    row = comparison.rows[1]
    place = "in iteration 3 of while_loop_body_graph_0: index = aten.index.Tensor(table, [i])"
    launch = copy.copy(row.launch)
    launch.begin = launch.begin._replace(loops=(3,))
    row = replace(
        row,
        launch=launch,
        suspects=(replace(row.suspects[0], place=place), *row.suspects[1:]),
    )
    lines = wrong_lines(replace(comparison, rows=(comparison.rows[0], row)), row)
    assert lines[0] == f"WRONG {row.launch.id} {row.launch.kernel} [3]"
    operator = next(at for at, line in enumerate(lines) if line.startswith("  operator aten.index.Tensor"))
    assert lines[operator + 1].strip() == place


@pytest.mark.parametrize(
    ("different", "elements", "says"),
    [
        (1, 1, "1 of 1 element differs from"),
        (1, 8, "1 of 8 elements differs from"),
        (3, 8, "3 of 8 elements differ from"),
    ],
)
def test_integers_that_differ(different: int, elements: int, says: str) -> None:
    error = OutputError(index=1, dtype="int64", elements=elements, different=different, relative=0.5)
    assert output_text(error) == f"output 1: {says} what the exported program returns in eager"


def test_states_that_only_the_graph_of_the_kernels_was_compared_with() -> None:
    compared: Any = SimpleNamespace(states_failure="", states=(object(),), wrong_states=())
    assert state_lines(compared) == ["state: 1 of 1 change as the program says"]
    compared.states_failure = "it cannot be called"
    assert state_lines(compared)[1] == "state: 1 of 1 change as the graph of the kernels says"


def test_outputs_that_pass_by_the_rule_of_their_dtype_are_told(tmp_path: Path) -> None:
    half = OutputError(
        index=0, dtype="float32", elements=8, different=8, relative=0.0053, computed="float16", arithmetic="float16"
    )
    comparison = comparison_of(run(tmp_path, 2, fault=False))
    notes = eager_notes(replace(comparison, outputs=(half,)))
    said = "output 0 has a relative error of 0.0053 against what the exported program returns in eager"
    assert notes == [f"{said}; where a program computes in float16, up to 0.02 counts as rounding"]
    several = eager_notes(replace(comparison, outputs=tuple(replace(half, index=number) for number in range(5))))
    assert len(several) == 3
    assert several[-1] == "the same rule passes 3 more outputs"
    assert not eager_notes(replace(comparison, outputs=(replace(half, relative=0.0004, different=0),)))


def test_a_model_line_is_printed_once_for_the_operators_that_come_from_it(tmp_path: Path) -> None:
    comparison = comparison_of(run(tmp_path, 2, fault=False))
    row = comparison.rows[1]
    line = ModelLine("/home/u/model.py", 7, "forward", "y = x.erf() * x")
    other = replace(line, line=8)
    suspects = [
        replace(row.suspects[0], operator=f"aten.{name}.default", node=name, place="", line=at)
        for name, at in (("erf", line), ("mul", line), ("add", other), ("sin", None), ("cos", None))
    ]
    lines = wrong_lines(comparison, replace(row, suspects=tuple(suspects)))
    said = [text.rpartition("  ")[2] for text in lines if text.lstrip().startswith(("operator", "aten."))]
    assert said == [
        "/home/u/model.py:7 in forward: y = x.erf() * x",
        "same line",
        "/home/u/model.py:8 in forward: y = x.erf() * x",
        "model line unknown",
        "model line unknown",
    ]


def test_an_error_of_what_should_be_zero_has_no_digits() -> None:
    assert [short(error) for error in (0.0, 0.0125, 2.83e299, 1e300)] == ["0", "0.013", "inf", "NaN/Inf"]


def test_an_absolute_error_is_a_number_however_large_it_is(tmp_path: Path) -> None:
    comparison = comparison_of(run(tmp_path, 2, fault=False))
    row = next(row for row in comparison.rows if row.worst is not None)
    far = tuple(replace(output, atol=2.5e233, rtol=2.5e233) for output in row.outputs)
    lines = comparison_lines(replace(comparison, rows=(replace(row, outputs=far),)), 400)
    head, found = lines[0].split(), next(line for line in lines if line.split()[:1] == [row.launch.id])
    assert head.index("rtol") < head.index("atol")
    assert found.split()[found.split().index("inf") + 1] == "2.5e+233"
