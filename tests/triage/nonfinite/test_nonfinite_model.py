"""Non-finite values in a real model on the CPU, whose inputs decide what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.nonfinite import nonfinite
from aoti_debug.triage.results.finding_kinds import Infinities
from tests.built_model import Built, build_model

pytestmark = pytest.mark.slow

INF = float("inf")


@pytest.fixture(scope="module")
def arithmetic(tmp_path_factory: pytest.TempPathFactory) -> Built:
    from tests.triage import nonfinite_models

    torch.manual_seed(0)
    with torch.no_grad():
        program = torch.export.export(nonfinite_models.Arithmetic().eval(), nonfinite_models.inputs())
    return build_model(program, tmp_path_factory.mktemp("arithmetic"), {}, "tests.triage.nonfinite_models")


@pytest.fixture
def run(arithmetic: Built, tmp_path: Path) -> Callable[..., RunDir]:
    """Runs the model at a level with inputs made from keyword arguments."""
    from tests.triage import nonfinite_models

    def run_model(level: int, **what: Any) -> RunDir:
        torch.save(nonfinite_models.inputs(**what), tmp_path / "inputs.pt")
        phase = "both" if level == 2 else None
        return runner.run(
            RunOptions(
                arithmetic.package, inputs=tmp_path / "inputs.pt", level=level, phase=phase, out=tmp_path / "runs"
            )
        ).run

    return run_model


def explained(run: Callable[..., RunDir], **what: Any) -> Finding:
    outcome = nonfinite.find(Dataflow(run(2, **what)), Infinities.FAIL)
    assert outcome.finding is not None
    return nonfinite.explain(outcome.finding, run(1, **what))


def line(finding: Finding) -> str:
    assert finding.where is not None
    assert finding.where.frame is not None
    return finding.where.frame.text


def test_a_mask_that_leaves_the_model_is_clean(run: Callable[..., RunDir]) -> None:
    assert nonfinite.find(Dataflow(run(2)), Infinities.FAIL) == nonfinite.NonFinite(None)


def test_zero_divided_by_zero(run: Callable[..., RunDir]) -> None:
    finding = explained(run, x=(3, 4, 0.0), divisor=0.0)
    assert line(finding) == "quotient = x / divisor"
    assert finding.where is not None
    assert finding.where.element == 52
    assert finding.evidence[0].startswith("0 / 0 is NaN: `")
    assert "[3, 4] is NaN; it was computed from " in finding.evidence[1]


def test_an_infinity_far_from_the_nan_that_it_becomes(run: Callable[..., RunDir]) -> None:
    finding = explained(run, x=(3, 4, 1.0), divisor=0.0)
    assert line(finding) == "quotient = x / divisor"
    assert finding.evidence[0].startswith("1 / 0 is +Inf: `")
    assert [place.kernel for place in finding.chain][1] == "aoti_torch_cpu_addmm_out"
    assert len(finding.chain) == 3


def test_a_fully_masked_row(run: Callable[..., RunDir]) -> None:
    finding = explained(run, masked_row=True)
    assert line(finding) == "weights = torch.softmax(scores, -1)"
    assert finding.evidence[0].startswith("all 16 elements of a row are -Inf, and softmax computes -Inf - -Inf")
    assert "(16 elements, 16 true)" in finding.evidence[1]


def test_a_product_that_float16_cannot_hold(run: Callable[..., RunDir]) -> None:
    finding = explained(run, half=300.0)
    assert line(finding) == "scaled = half * half"
    assert finding.evidence[0].startswith("300 * 300 = 90000, beyond the largest float16 (65504): `")
    near = nonfinite.find(Dataflow(run(2, half=200.0)), Infinities.FAIL)
    assert near.finding is None
    assert near.warnings[0].endswith("holds 40000, 61% of the largest float16 (65504)")
