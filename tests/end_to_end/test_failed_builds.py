"""Triages of a program whose build fails, from its file to the finding of what could be built."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.report import report
from aoti_debug.triage.investigation.options import TriageOptions
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.triage import triage

BROKEN = """
import torch
from torch._inductor.lowering import lowerings

def broken(*arguments):
    raise RuntimeError("no such layout")

lowerings[torch.ops.aten.erf.default] = broken
"""


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
    options = TriageOptions(tmp_path / "model.pt2", imports=("breaks_erf",), trusted=True, out=tmp_path / "triages")
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
