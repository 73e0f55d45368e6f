"""One fault, triaged from the exported program and from the package that torch compiled of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aoti_debug.findings import FindingKind
from aoti_debug.joined import NO_LINES
from aoti_debug.triage.options import TriageOptions
from aoti_debug.triage.triage import triage

FAR = 1_000_000
COMPILE = """
import sys, torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 32)

    def forward(self, x, index):
        return torch.softmax(self.table(index) + x.sin(), -1)

program = torch.export.export(Model().eval(), (torch.ones(8, 32), torch.arange(8)))
torch.export.save(program, sys.argv[1])
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2])
"""


@pytest.mark.slow
def test_launch_index_and_origin_are_the_same(tmp_path: Path) -> None:
    program, compiled = tmp_path / "program.pt2", tmp_path / "theirs.pt2"
    (tmp_path / "compile.py").write_text(COMPILE)
    subprocess.run([sys.executable, "compile.py", str(program), str(compiled)], check=True, cwd=tmp_path)
    index = torch.arange(8)
    index[3] = FAR
    torch.save((torch.ones(8, 32), index), tmp_path / "inputs.pt")
    found = {
        model: triage(TriageOptions(model, inputs=tmp_path / "inputs.pt", out=tmp_path / model.stem))
        for model in (program, compiled)
    }
    whole, alone = found[program].finding, found[compiled].finding
    assert alone.kind is whole.kind is FindingKind.FAULT
    assert alone.where is not None
    assert whole.where is not None
    assert (alone.where.launch, alone.where.kernel) == (whole.where.launch, whole.where.kernel)
    assert alone.where.frame is None
    assert whole.where.frame is not None
    assert alone.origin is not None
    assert whole.origin is not None
    assert (alone.origin.element, whole.origin.input) == (3, "index")
    assert f"model lines: {NO_LINES}" in alone.warnings
    assert not any("model lines" in warning for warning in whole.warnings)
    assert (
        found[compiled]
        .record.steps[0]
        .text.endswith("from a compiled package; 1 of 1 kernels identical to the original")
    )
