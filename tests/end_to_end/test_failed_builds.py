"""Triages of a program whose build fails, from its file to the finding of what could be built."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.session import triage
from aoti_debug.views.report import report

BROKEN = """
import torch
from torch._inductor.lowering import lowerings

def broken(*arguments):
    raise RuntimeError("no such layout")

lowerings[torch.ops.aten.erf.default] = broken
"""


CRASHES = """
import os, signal
from torch._inductor.codegen import cpp

def crash(*arguments):
    os.kill(os.getpid(), signal.SIGSEGV)

cpp.CppOverrides.erf = cpp.CppVecOverrides.erf = staticmethod(crash)
"""
UNPLANNED = """
from torch._inductor import ir

original = ir.ComputedBuffer.simplify_and_reorder

def refuse(self, *arguments, **others):
    if any("erf" in node.name for node in self.origins):
        raise RuntimeError("no such loops")
    return original(self, *arguments, **others)

ir.ComputedBuffer.simplify_and_reorder = refuse
"""


AT_WORK = "code of node erf of the graph that Inductor lowers: it was at work when the process ended"


class Model(nn.Module):
    """An operator that Inductor cannot lower, and a root of negative numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sqrt(torch.erf(x) - 2)


@pytest.mark.slow
def test_a_lowering_that_raises_is_left_out_and_the_triage_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where children look for modules first
    (tmp_path / "breaks_erf.py").write_text(BROKEN)
    torch.export.save(torch.export.export(Model(), (torch.ones(4),)), tmp_path / "model.pt2")
    options = TriageOptions(
        tmp_path / "model.pt2", user_code=UserCode(("breaks_erf",), trusted=True), out=tmp_path / "triages"
    )
    done = triage(options)
    finding = done.finding
    assert (finding.kind.value, finding.what) == (
        "build_failure",
        "lowering of aten.erf.default: RuntimeError: no such layout",
    )
    assert finding.where is not None
    assert finding.where.frame is not None
    assert finding.where.frame.text.strip() == "return torch.sqrt(torch.erf(x) - 2)"
    assert finding.confirmed_by == ("repro.py: RuntimeError: no such layout",)
    assert done.repro == done.path / "build_failure"
    (other,) = finding.also
    assert other.kind.value == "nonfinite"
    assert other.warnings[0] == "this is of the package built without the lowering of aten.erf.default"
    assert triage_directory.open_triage(done.path).finding == finding
    page = report.html(report.of_triage(done))
    assert "aten.erf.default" in page
    assert other.what in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "what", "evidence"),
    [
        (
            CRASHES,
            "SIGSEGV",
            "code of node erf of the graph that Inductor lowers: it was at work when the process ended",
        ),
        (
            UNPLANNED,
            "RuntimeError: no such loops",
            "the call of aten.erf.default alone, node erf, fails in the same way",
        ),
    ],
)
def test_code_of_a_kernel_that_cannot_be_generated_is_that_of_one_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, what: str, evidence: str
) -> None:
    """erf, sub and sqrt are one kernel; in the second case none of its steps is at work when it fails."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "breaks_erf.py").write_text(fault)
    torch.export.save(torch.export.export(Model(), (torch.ones(4),)), tmp_path / "model.pt2")
    options = TriageOptions(
        tmp_path / "model.pt2", user_code=UserCode(("breaks_erf",), trusted=True), out=tmp_path / "triages"
    )
    finding = triage(options).finding
    assert finding.what == f"code generation of aten.erf.default: {what}"
    assert finding.where is not None
    assert finding.where.operator == "aten.erf.default"
    assert finding.where.frame is not None
    assert finding.where.frame.text.strip() == "return torch.sqrt(torch.erf(x) - 2)"
    assert finding.evidence[0] == evidence
    assert finding.confirmed_by == (f"repro.py: {what}",)
    (other,) = finding.also
    assert other.warnings[0] == "this is of the package built without the lowering of aten.erf.default"
