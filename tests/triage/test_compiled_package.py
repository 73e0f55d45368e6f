"""One fault, triaged from the exported program and from the package that torch compiled of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.builder.join_program import NO_MODEL_LINES
from aoti_debug.runs.diagnosis.findings import FAULT
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.session import triage
from tests import forked_script

FAR = 1_000_000
COMPILE = """
import sys, torch
from tests import wrapper_templates

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 32)

    def forward(self, x, index):
        return torch.softmax(self.table(index) + x.sin(), -1)

program = torch.export.export(Model().eval(), (torch.ones(8, 32), torch.arange(8)))
torch.export.save(program, sys.argv[1])
wrapper_templates.share()
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2])
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The exported program and the compiled package."""
    folder = tmp_path_factory.mktemp("models")
    program, compiled = folder / "program.pt2", folder / "theirs.pt2"
    (folder / "compile.py").write_text(COMPILE)
    forked_script.run(folder / "compile.py", program, compiled)
    return program, compiled


@pytest.mark.slow
def test_launch_index_and_origin_are_the_same(models: tuple[Path, Path], tmp_path: Path) -> None:
    program, compiled = models
    index = torch.arange(8)
    index[3] = FAR
    torch.save((torch.ones(8, 32), index), tmp_path / "inputs.pt")
    found = {
        model: triage(TriageOptions(model, inputs=tmp_path / "inputs.pt", out=tmp_path / model.stem))
        for model in (program, compiled)
    }
    whole, alone = found[program].finding, found[compiled].finding
    assert alone.kind is whole.kind is FAULT
    assert alone.where is not None
    assert whole.where is not None
    assert (alone.where.launch, alone.where.kernel) == (whole.where.launch, whole.where.kernel)
    assert alone.where.frame is None
    assert whole.where.frame is not None
    assert alone.origin is not None
    assert whole.origin is not None
    assert (alone.origin.element, whole.origin.input) == (3, "index")
    assert f"model lines: {NO_MODEL_LINES}" in alone.warnings
    assert not any("model lines" in warning for warning in whole.warnings)
    assert "1 of 1 kernels identical to those of theirs.pt2" in whole.warnings
    assert (
        found[compiled]
        .record.steps[0]
        .text.endswith("from a compiled package; 1 of 1 kernels identical to the original")
    )


@pytest.mark.slow
def test_a_package_has_no_inputs_of_its_own(models: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"theirs\.pt2 has no inputs in it") as caught:
        triage(TriageOptions(models[1], out=tmp_path / "triages"))
    assert caught.value.hint is not None
    assert "int64[8] on cpu" in caught.value.hint
    assert list(tmp_path.iterdir()) == []
