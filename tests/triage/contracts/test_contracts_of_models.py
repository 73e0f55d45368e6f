"""Real models whose operators lie, and real inputs that a model was not exported for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import InputMismatch
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.contracts import contracts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests import lying_ops

    folder = tmp_path_factory.mktemp("lying")
    torch.export.save(lying_ops.program(), folder / "model.pt2")
    return builder.build(folder / "model.pt2", output=folder / "lying.pt2", imports=("tests.lying_ops",))


@pytest.fixture(scope="module")
def run(package: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return runner.run(RunOptions(package, level=3, out=tmp_path_factory.mktemp("runs"), calls=2)).run


@pytest.fixture(scope="module")
def findings(run: RunDir) -> dict[str, Finding]:
    return {finding.where.operator: finding for finding in contracts.check(Dataflow(run)) if finding.where is not None}


def test_the_package_keeps_what_the_graph_promised(run: RunDir) -> None:
    promised = {promise.name: promise for promise in run.manifest.promises}
    assert run.manifest.without_promises == ""
    for position, columns in enumerate(("8", "4")):
        promise = promised[run.manifest.inputs[position]]
        assert (promise.device, promise.dtype, promise.strides) == ("cpu", "float32", (columns, "1"))
        assert promise.sizes == (promised[run.manifest.inputs[0]].sizes[0], columns)
        assert promise.sizes[0].startswith("s")


@pytest.mark.parametrize(
    ("operator", "what", "line"),
    [
        (
            "lying::dtype.default",
            "returned bfloat16[6, 8] where float32[6, 8] was promised",
            "halved = ops.dtype(fine)",
        ),
        (
            "lying::shape.default",
            "returned float32[5, 8] where float32[6, 8] was promised",
            "shorter = ops.shape(fine + 1)",
        ),
        (
            "lying::strides.default",
            "returned float32[6, 8] with strides [1, 6] where float32[6, 8] with strides [8, 1] was promised",
            "turned = ops.strides(fine + 2)",
        ),
        (
            "lying::pair.default",
            "returned float64[6, 8] where float32[6, 8] was promised",
            "_, doubled = ops.pair(fine + 3)",
        ),
    ],
)
def test_every_broken_promise_is_found(findings: dict[str, Finding], operator: str, what: str, line: str) -> None:
    finding = findings[operator]
    assert finding.what == f"{operator} {what}"
    assert finding.where is not None
    assert finding.where.frame is not None
    assert finding.where.frame.text == line


def test_nothing_else_is_found(run: RunDir, findings: dict[str, Finding]) -> None:
    assert len(contracts.check(Dataflow(run))) == len(findings) == 4


def test_the_next_reader_of_a_lie(findings: dict[str, Finding]) -> None:
    reads = [line for line in findings["lying::dtype.default"].evidence if "bytes per element" in line]
    assert len(reads) == 1
    assert reads[0].endswith(
        "reads 4 bytes per element of a tensor with 2 bytes per element, up to 96 bytes past the end of its memory"
    )


X, Y = torch.ones(6, 8), torch.ones(6, 4)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ((X.double(), 2.0, Y), [("x", "dtype")]),
        ((torch.ones(8, 6).t(), 2.0, Y), [("x", "strides")]),
        ((X, 2.0, torch.ones(5, 4)), [("y", "shape")]),
        ((X[:2], 3.0, Y.half()), [("x", "shape"), ("scale", "kind"), ("y", "dtype"), ("y", "shape")]),
        ((X, 2.0), [("", "count")]),
    ],
)
def test_inputs_that_the_model_was_not_exported_for(
    package: Path, tmp_path: Path, inputs: tuple[object, ...], expected: list[tuple[str, str]]
) -> None:
    torch.save(inputs, tmp_path / "in.pt")
    with pytest.raises(InputMismatch) as caught:
        runner.run(RunOptions(package, inputs=tmp_path / "in.pt", level=3, out=tmp_path / "runs"))
    assert [(found.name, found.kind) for found in caught.value.mismatches] == expected
    assert caught.value.exit_code == 3
    assert caught.value.hint != ""
    finding = contracts.input_finding(caught.value)
    assert finding.what in str(caught.value)
    assert len(finding.evidence) == len(expected) - 1
    assert not (tmp_path / "runs").exists()
