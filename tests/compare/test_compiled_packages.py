"""Compiled packages: their exported program gives the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from built_model import Built, FromPackage
from corpus.wrong_values import Relu

from aoti_debug.compare.compare import compare
from aoti_debug.compare.options import CompareOptions
from aoti_debug.errors import ArtifactError, UsageError

Builds = Callable[[str], Built]
Packages = Callable[[str], FromPackage]


@pytest.mark.parametrize(("name", "least"), [("half", 1.0), ("control", 0.95)])
def test_launches_against_the_program(
    built: Builds, from_package: Packages, tmp_path: Path, name: str, least: float
) -> None:
    package, program = from_package(name).original, built(name).program
    comparison = compare(CompareOptions(package, exported=program, imports=("models",), out=tmp_path))
    assert comparison.first_wrong is None
    coverage = comparison.coverage
    assert coverage.compared == coverage.launches
    assert coverage.compared_bytes >= least * coverage.bytes
    assert all(row.launch.site.provenance.source for row in comparison.rows if row.outputs)


def test_a_package_that_was_lowered_wrongly(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        program = torch.export.export(Relu().eval(), (torch.randn(8, 16),))
    torch.export.save(program, tmp_path / "model.pt2")
    fault = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}
    package = str(tmp_path / "compiled.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=fault)
    options = CompareOptions(Path(package), exported=tmp_path / "model.pt2", out=tmp_path / "compares")
    with pytest.raises(ArtifactError, match="with another source in the program") as caught:
        compare(options)
    assert "--inductor-config" in caught.value.hint
    wrong = compare(CompareOptions(**(vars(options) | {"inductor_configs": fault}))).first_wrong
    assert wrong is not None
    assert (wrong.launch.id, wrong.suspects[0].operator) == ("0.1", "aten.relu.default")


def test_a_program_with_other_inputs(built: Builds, from_package: Packages, tmp_path: Path) -> None:
    options = CompareOptions(from_package("half").original, exported=built("blocks").program, out=tmp_path)
    with pytest.raises(ArtifactError, match=r"was not compiled from .*, which takes"):
        compare(options)


def test_a_program_that_does_something_else(built: Builds, from_package: Packages, tmp_path: Path) -> None:
    """Both take one matrix of float32."""
    options = CompareOptions(
        from_package("half").original, exported=built("half").program, imports=("models",), out=tmp_path
    )
    other = tmp_path / "other.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(Negated(), (torch.ones(4, 16, dtype=torch.bfloat16),)), other)
    with pytest.raises(
        ArtifactError, match=r"launch site 0 is aten.addmm.out in the package, cpp_fused_\w+ in the program"
    ):
        compare(CompareOptions(**(vars(options) | {"exported": other})))


class Negated(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -x


def test_a_program_of_what_needs_none(built: Builds, tmp_path: Path) -> None:
    half = built("half")
    for model, what in ((half.program, "an exported program"), (half.package, "an instrumented package")):
        with pytest.raises(UsageError, match=f"is {what}: it has no need of --exported"):
            compare(CompareOptions(model, exported=half.program, out=tmp_path))
