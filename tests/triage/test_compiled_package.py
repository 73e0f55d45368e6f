"""One fault, triaged from the exported program and from the package that torch compiled of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import ArtifactError
from aoti_debug.compare.outcome import WRONG_VALUE
from aoti_debug.instrument.builder.join_program import NO_MODEL_LINES
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, Finding
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.session import triage
from tests import forked_script

FAR = 1_000_000
OTHERS = "others"
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

from torch._inductor.lowering import lowerings
aten, sin = torch.ops.aten, lowerings[torch.ops.aten.sin.default]
otherwise = {
    sys.argv[3]: lowerings[aten.cos.default],
    sys.argv[4]: lambda x: lowerings[aten.neg.default](sin(lowerings[aten.neg.default](x))),
}
for path, lowering in otherwise.items():
    lowerings[aten.sin.default] = lowering
    torch._inductor.aoti_compile_and_package(program, package_path=path)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The exported program and the compiled package; in a folder beside them, packages with other kernels."""
    folder = tmp_path_factory.mktemp("models")
    program, compiled = folder / "program.pt2", folder / "theirs.pt2"
    (folder / "compile.py").write_text(COMPILE)
    (folder / OTHERS).mkdir()
    others = (folder / OTHERS / "wrong.pt2", folder / OTHERS / "right.pt2")
    forked_script.run(folder / "compile.py", program, compiled, *others)
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


def of_other(models: tuple[Path, Path], name: str, folder: Path) -> Finding:
    program, inputs = models[0], folder / "inputs.pt"
    torch.save((torch.linspace(-3, 3, 256).reshape(8, 32), torch.arange(8)), inputs)
    return triage(TriageOptions(program.parent / OTHERS / name, exported=program, inputs=inputs, out=folder)).finding


@pytest.mark.slow
def test_a_package_with_other_kernels_is_compared_with_what_its_program_returns(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    wrong = of_other(models, "wrong.pt2", tmp_path)
    assert wrong.kind is WRONG_VALUE
    assert wrong.what.startswith("output 0 is far from what the exported program returns")
    other = "the package is not what the program is lowered to here: launch site 0 is cpp_fused_"
    assert [text for text in wrong.evidence if text.startswith(other)]
    assert wrong.next[0].startswith("aoti-debug diff ")
    right = of_other(models, "right.pt2", tmp_path)
    assert right.kind is CLEAN
    assert "the outputs are those of eager, but for rounding; 0 of 1 launch compared alone" in right.what
    assert [text for text in right.warnings if text.startswith(other)]
