"""Compiled packages: their exported program gives the reference, or else the sources of their kernels."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.compare import stored_comparison
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.compare.stored_comparison import document
from aoti_debug.compare.text import comparison_lines
from tests import schema, wrapper_templates
from tests.built_model import Built, FromPackage
from tests.corpus.wrong_values import Relu

SCHEMA = json.loads((schema.DOCS / "compare.schema.json").read_text())

Builds = Callable[[str], Built]
Packages = Callable[[str], FromPackage]


@pytest.mark.parametrize(("name", "least"), [("half", 1.0), ("control", 0.95)])
def test_launches_against_the_program(
    built: Builds, from_package: Packages, tmp_path: Path, name: str, least: float
) -> None:
    package, program = from_package(name).original, built(name).program
    comparison = compare(
        CompareOptions(model=package, exported=program, user_code=UserCode(("tests.models",)), out=tmp_path)
    )
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
    wrapper_templates.share()
    torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=fault)
    options = CompareOptions(model=Path(package), exported=tmp_path / "model.pt2", out=tmp_path / "compares")
    with pytest.raises(ArtifactError, match="with another source in the program") as caught:
        compare(options)
    assert "--inductor-config" in caught.value.hint
    assert f"aoti-debug triage {package} --exported {tmp_path / 'model.pt2'}" in caught.value.hint
    wrong = compare(CompareOptions(**(vars(options) | {"inductor_configs": fault}))).first_wrong
    assert wrong is not None
    assert (wrong.launch.id, wrong.suspects[0].operator) == ("0.1", "aten.relu.default")


def test_a_program_with_other_inputs(built: Builds, from_package: Packages, tmp_path: Path) -> None:
    options = CompareOptions(model=from_package("half").original, exported=built("blocks").program, out=tmp_path)
    with pytest.raises(ArtifactError, match=r"was not compiled from .*, which takes"):
        compare(options)


def test_a_program_that_does_something_else(built: Builds, from_package: Packages, tmp_path: Path) -> None:
    """Both take one matrix of float32."""
    options = CompareOptions(
        model=from_package("half").original,
        exported=built("half").program,
        user_code=UserCode(("tests.models",)),
        out=tmp_path,
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
        with pytest.raises(UsageError, match=f"is {what}, which is compared with its own program"):
            compare(CompareOptions(model=model, exported=half.program, out=tmp_path))


# Without a program: the machine code against the source


def with_inputs(program: Path, folder: Path) -> Path:
    args, kwargs = torch.export.load(program).example_inputs
    torch.save({"args": args, "kwargs": kwargs}, folder / "inputs.pt")
    return folder / "inputs.pt"


def with_other_source(package: Path, old: bytes, new: bytes, output: Path) -> Path:
    """The package with another source of a C++ kernel; the machine code stays what it is."""
    with zipfile.ZipFile(package) as source, zipfile.ZipFile(output, "w") as target:
        for info in source.infolist():
            content = source.read(info)
            if info.filename.endswith(".kernel.cpp"):
                assert old in content
                content = content.replace(old, new)
            target.writestr(info, content)
    return output


def test_machine_code_that_does_what_its_source_says(built: Builds, from_package: Packages, tmp_path: Path) -> None:
    inputs = with_inputs(built("half").program, tmp_path)
    comparison = compare(CompareOptions(model=from_package("half").original, inputs=inputs, out=tmp_path / "compares"))
    assert [row.verdict.value for row in comparison.rows] == ["not comparable", "matches its source"]
    assert comparison.rows[0].reason == "it calls an operator, of which the package holds no source"
    assert comparison.first_wrong is None
    lines = comparison_lines(comparison, UNLIMITED)
    assert any("a wrong lowering cannot be seen" in line for line in lines)
    assert not any("condition" in line for line in lines)
    assert not (Path(comparison.directory) / "sources" / "0.1").exists()
    assert schema.problems(json.loads(json.dumps(document(comparison))), SCHEMA) == []
    assert stored_comparison.read(comparison.run) == replace(comparison, directory="")


def test_machine_code_that_does_something_else(
    built: Builds, from_package: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = with_other_source(
        from_package("half").original, b"static_cast<float>(1.0)", b"static_cast<float>(1.5)", tmp_path / "other.pt2"
    )
    inputs = with_inputs(built("half").program, tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ["compare", str(package), "--inputs", str(inputs), "--report"]
    result = CliRunner().invoke(group, command, prog_name="aoti-debug")
    assert result.exit_code == 1, result.output
    assert "DIFFERS 0.1 cpp_fused_add_relu_0" in result.stdout
    assert re.search(r"because  buf1 +bfloat16 \(4, 32\) +differs in 128 of 128 elements", result.stdout)
    folder = (tmp_path / "aoti-debug/compares/latest").resolve()
    found = json.loads((folder / "compare.json").read_text())
    assert (found["first_wrong"], found["repro"]) == ("0.1", str(folder / "sources/0.1"))
    assert found["launches"][1]["verdict"] == "differs from its source"
    assert (folder / "sources/0.1/repro.py").is_file()
    page = (folder / "report/index.html").read_text()
    assert "cpp_fused_add_relu_0 computes something else than its source says" in page
    assert "Compared with the sources of the kernels" in page


def test_a_metric_needs_a_program(built: Builds, from_package: Packages, tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("def f(a, b):\n    return 0\n")
    inputs = with_inputs(built("half").program, tmp_path)
    options = CompareOptions(
        model=from_package("half").original, inputs=inputs, metric=f"{tmp_path / 'my.py'}:f", out=tmp_path
    )
    with pytest.raises(UsageError, match="--metric needs the values of the program"):
        compare(options)


def test_made_up_inputs(from_package: Packages, tmp_path: Path) -> None:
    comparison = compare(CompareOptions(model=from_package("half").original, random_inputs=3, out=tmp_path))
    assert [row.verdict.value for row in comparison.rows] == ["not comparable", "matches its source"]
    assert comparison.run.inputs is not None


def test_a_package_without_inputs(from_package: Packages, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="input"):
        compare(CompareOptions(model=from_package("half").original, out=tmp_path))
