"""A program with print operators, as a package: it prints what eager prints, in eager's order."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from aoti_debug.app.cli import main
from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from tests import cpp_host, print_model, torch_features
from tests.once import once
from tests.schema import problems


@dataclass(frozen=True)
class Printing:
    """The model of print_model.py: its exported program and its instrumented package."""

    program: Path
    package: Path


@pytest.fixture(scope="module")
def prints(tmp_path_factory: pytest.TempPathFactory) -> Printing:

    def make(folder: Path) -> Printing:
        torch.export.save(print_model.program(), folder / "model.pt2")
        package = builder.build(folder / "model.pt2", output=folder / "prints.pt2")
        return Printing(folder / "model.pt2", package)

    return once(tmp_path_factory, "prints", make)


def in_eager(program: Path, calls: int = 1) -> tuple[str, list[torch.Tensor]]:
    """What the model prints in eager, and its outputs."""
    exported = torch.export.load(program)
    args, _ = exported.example_inputs
    out = io.StringIO()
    with torch.no_grad(), contextlib.redirect_stdout(out):
        for _ in range(calls):
            outputs = print_model.Prints()(*args)
    return out.getvalue(), list(outputs)


@pytest.mark.parametrize("level", [0, 3])
def test_it_prints_what_eager_prints(prints: Printing, tmp_path: Path, level: int) -> None:
    result = runner.run(RunOptions(prints.package, level=level, out=tmp_path, calls=2))
    expected, _ = in_eager(prints.program, calls=2)
    assert (result.run.path / "stdout.log").read_text() == expected
    printed = [launch for launch in result.run.launches if launch.printed is not None]
    if level == 0:
        return
    assert "".join(f"{launch.printed}\n" for launch in printed) == expected
    lines = [launch.site.provenance.source[0].text for launch in printed if launch.site.provenance.source]
    assert [line.strip() for line in lines[:2]] == [
        'TORCH_PRINT("y={y} n={} {:.2f} {{}}", y.shape[0], 1.5, y=y)',
        "TORCH_PRINT('quotes \"a\" \\\\ tab\\t newline\\nunicode é?')",
    ]


@pytest.mark.slow
def test_a_cpp_program_prints_what_eager_prints(prints: Printing, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cpp")
    expected, outputs = in_eager(prints.program)
    inputs, _ = torch.export.load(prints.program).example_inputs
    host = cpp_host.compiled_host()
    ran = cpp_host.call(host, prints.package, inputs, folder, {"AOTI_DEBUG_LEVEL": "0"})
    sums = "".join(f"{output.double().sum().item():.17g}\n" for output in outputs)
    assert ran.stdout == expected + sums


def test_outputs_are_those_without_prints(prints: Printing) -> None:
    _, expected = in_eager(prints.program)
    args, _ = torch.export.load(prints.program).example_inputs
    with contextlib.redirect_stdout(io.StringIO()):
        model = torch._inductor.aoti_load_package(str(prints.package))
        outputs = model(*args)
    assert all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True))


def test_show_has_what_was_printed(
    prints: Printing, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner.run(RunOptions(prints.package))
    capfd.readouterr()
    assert main.run(["show", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert not problems(document)
    first = next(launch for launch in document["launches"] if launch["printed"] is not None)
    assert main.run(["show", first["id"]]) == 0
    shown = capfd.readouterr().out.splitlines()
    at = shown.index("  printed")
    assert [line.strip() for line in shown[at + 1 :]][: first["printed"].count("\n") + 1] == [
        line.strip() for line in first["printed"].splitlines()
    ]


@pytest.mark.skipif(not torch_features.PRINT, reason="this torch has no print operator")
def test_a_field_without_a_value(tmp_path: Path) -> None:
    class Wrong(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._higher_order_ops.print("{} {y}", x)
            return x + 1

    torch.export.save(torch.export.export(Wrong(), (torch.ones(2),)), tmp_path / "wrong.pt2")
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if '"{} {y}", x' in text)
    with pytest.raises(ArtifactError) as caught:
        builder.build(tmp_path / "wrong.pt2", output=tmp_path / "out.pt2")
    place = f"{Path(__file__)}:{line}"
    assert str(caught.value) == f"the print at {place} cannot be compiled: there is no value for the field {{y}}"


def test_a_saved_program_is_loaded_where_the_operator_is_imported(prints: Printing) -> None:
    code = (
        "import torch; from aoti_debug import print_; "
        f"print(torch.export.load({str(prints.program)!r}).graph_module is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
