"""A sample in models whose batch is fixed: rows of outputs at other places, among other values, in other packages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from aoti_debug.app.cli.main import group
from aoti_debug.app.python.model_files import of_size
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE, ModelFaultError, UsageError
from aoti_debug.compare.invariance.fixed_batch import (
    FixedBatch,
    FixedRun,
    fixed_document,
    fixed_lines,
    outputs_of,
)
from aoti_debug.compare.invariance.variance import SampleRun
from aoti_debug.compare.invariance.varied_inputs import Others, SampleSurroundings
from aoti_debug.package.inputs.input_files import Inputs
from tests.compare.invariance.made_runs import SAMPLE, double, rows, run
from tests.schema import DOCS, problems

SCHEMA = json.loads((DOCS / "invariance-fixed.schema.json").read_text())


def by_place(x: Tensor) -> Tensor:
    return x + torch.arange(x.shape[0]).unsqueeze(-1)


def mixing(x: Tensor) -> Tensor:
    return torch.softmax(x, 0)


def pooled(x: Tensor) -> Tensor:
    return x[:, :1].sum().reshape(1)


def found(base: Path, kernel: object, *, sizes: bool = False) -> FixedBatch:
    """The sample in a batch of four, and in one of its own."""

    def of(name: str, x: Tensor, place: int = 0) -> SampleRun:
        return run(base / name, x, [kernel], place=place)  # type: ignore[list-item]

    alone, first = of("alone", SAMPLE), of("first", rows(4, 0, 1))
    others = [
        FixedRun(of("last", rows(4, 3, 1), 3), "place"),
        FixedRun(of("drawn", rows(4, 0, 2)), "other rows"),
        FixedRun(of("again", rows(4, 0, 1)), "again"),
    ]
    of_sizes = [FixedRun(first, "size")] if sizes else []
    outputs = [
        *(o for one in of_sizes for o in outputs_of(alone, one)),
        *(o for r in others for o in outputs_of(first, r)),
    ]
    return FixedBatch(
        axis="axis 0 of x",
        first=alone if sizes else first,
        runs=(*of_sizes, *others),
        outputs=tuple(outputs),
        directory=base,
    )


def test_the_same_bits(tmp_path: Path) -> None:
    same = found(tmp_path, double)
    assert (same.exit_code, same.verdict) == (EXIT_CLEAN, "SAME BITS in the outputs of 3 other runs")
    lines = fixed_lines(same)
    assert lines[0] == "sample   1 row along axis 0 of x, which is fixed: one package, of size 4"
    assert "note: other sizes of the batch were not asked: the model has none" in lines
    assert problems(fixed_document(same), SCHEMA) == []


def test_the_place_changes_it(tmp_path: Path) -> None:
    varies = found(tmp_path, by_place)
    assert (varies.exit_code, varies.verdict) == (EXIT_FINDING, "VARIES with the place in the batch")
    assert [one.run.changed for one in varies.outputs if one.difference] == ["place"]
    assert fixed_lines(varies)[3].startswith("output 0: 3 of 3 elements of the sample differ, at most ")


def test_other_rows_change_it(tmp_path: Path) -> None:
    assert found(tmp_path, mixing).verdict.startswith("MIXES SAMPLES, or varies with them")


def test_an_output_without_the_batch_is_not_known(tmp_path: Path) -> None:
    unknown = found(tmp_path, pooled)
    assert unknown.exit_code == EXIT_INCOMPLETE
    assert unknown.verdict == "NOTHING COMPARED: no output is known to have a row for each sample"
    nothing = replace(unknown, outputs=())
    assert (nothing.exit_code, nothing.verdict) == (EXIT_INCOMPLETE, unknown.verdict)
    more = replace(found(tmp_path / "more", double), outputs=(*found(tmp_path / "b", double).outputs, *unknown.outputs))
    assert more.verdict == "SAME BITS as far as it is known, in the outputs of 3 other runs"
    assert fixed_lines(unknown).count("output 0: not known: its first dimension is not the batch: [1]") == 1
    assert problems(fixed_document(unknown), SCHEMA) == []


def test_a_run_that_was_left_out_is_told(tmp_path: Path) -> None:
    error = ModelFaultError("fixed.pt2 does not end well (size 4, place 3): offsets[0] has to be 0", hint="look at it")
    note = SampleSurroundings(4, 3, Others.GIVEN).left_out(error)
    same = replace(found(tmp_path, double), notes=(note,))
    assert same.exit_code == EXIT_INCOMPLETE
    assert fixed_lines(same)[-2:] == [
        "note: not asked: size 4, place 3, for which the model does not end well: offsets[0] has to be 0",
        "SAME BITS as far as it is known, in the outputs of 3 other runs",
    ]
    assert problems(fixed_document(same), SCHEMA) == []


def test_packages_of_several_sizes(tmp_path: Path) -> None:
    varies = found(tmp_path, lambda x: x * (2 if len(x) > 1 else 2.5), sizes=True)
    assert varies.verdict == "VARIES from package to package: their sizes differ; kernels and algorithms may"
    assert "a package for each size: 1, 4" in fixed_lines(varies)[0]
    assert found(tmp_path / "b", double, sizes=True).exit_code == EXIT_CLEAN


def test_what_does_not_repeat_is_not_blamed_on_the_place(tmp_path: Path) -> None:
    varies = found(tmp_path, by_place)
    again = replace(varies.outputs[0], run=varies.runs[-1])
    assert replace(varies, outputs=(*varies.outputs, again)).verdict.startswith("NOT REPEATABLE")


def test_inputs_of_another_size() -> None:
    given = Inputs((torch.arange(3.0), torch.arange(5.0)), {})
    first, second = of_size(given, 2, 5).args
    assert first.tolist() == [2, 0, 1, 2, 0]
    assert second.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="there is no row 3"):
        of_size(given, 3, 1)


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale = torch.cat([x[:-1], x[-1:]]).abs().amax()  # the largest is in another row than the sample
        return self.norm(x), (x / scale).round(decimals=3), x.cumsum(0)


def test_as_it_is_called(tmp_path: Path) -> None:
    program = tmp_path / "fixed.pt2"
    torch.manual_seed(0)
    x = torch.tensor([[0.5, 0.25, 1.0], [3.0, 3.0, 3.0], [3.0, 2.0, 3.0], [3.0, 1.0, 3.0]])
    torch.export.save(torch.export.export(Linear(), (x,)), program)
    words = ["invariance", str(program), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(group, [*words, "--fixed", "--json"])
    document = json.loads(result.stdout)
    assert result.exit_code == EXIT_FINDING, result.output
    assert problems(document, SCHEMA) == []
    assert document["verdict"].startswith("MIXES SAMPLES")
    assert {one["output"] for one in document["outputs"] if one["different"]} == {1, 2}
    rows = [one for one in document["outputs"] if one["different"] and one["changed"] == "other rows"]
    assert {(one["output"], one["place"], one["others"]) for one in rows} == {(1, 3, "small"), (2, 3, "small")}
    refused = CliRunner().invoke(group, [*words, "--fixed", "--sizes", "1,2"])
    assert "--fixed and --sizes exclude each other" in str(refused.exception)


def test_a_batch_of_one_row_has_nothing_to_compare(tmp_path: Path) -> None:
    program = tmp_path / "one.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(1, 3),)), program)
    result = CliRunner().invoke(group, ["invariance", str(program), "--fixed", "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("axis 0 of input has one row: ")
    assert "inputs of two rows or more" in result.exception.hint
