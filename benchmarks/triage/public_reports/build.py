"""Builds the program of a public report, and finds what eager and a package that torch compiles alone do."""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from benchmarks.triage.public_reports import planted
from benchmarks.triage.public_reports.all_reports import REPORTS
from benchmarks.triage.public_reports.planted import VARIABLE
from benchmarks.triage.public_reports.report import INPUTS, PACKAGE, PROGRAM, Example, Report

TRUTH = "truth.txt"
# What `find_truth` finds: eager and the plain package
PLAIN = {
    "same": "both return the same up to rounding",
    "differs": "both return, and outputs differ by more than rounding",
    "both raise": "both raise",
    "eager raises": "eager raises, and the package returns",
    "package raises": "eager returns, and the package raises",
    "package dies": "eager returns or raises, and the package ends its process",
    "no package": "eager returns, and torch does not compile a package",
    "nonfinite": "both return NaN or infinities in the same places",
}
TOLERANCE = 1e-3  # relative to the largest number of an output; at least a unit in its last place


def build(name: str, folder: Path) -> None:
    """Writes inputs.pt and program.pt2, or package.pt2, into `folder`; nothing for the Python API and for scripts.

    It is the whole of a process of its own, which may end in any way.
    """
    report = REPORTS[name]
    with _in(folder, "build.log"):
        if report.command in ("api", "script", "torch_compile"):
            return
        example, program = exported(report)
        torch.save(example.inputs, folder / INPUTS)
        if report.command == "compiled":
            _plant(report)
            compile_package(report, program, folder / PACKAGE)
        else:
            torch.export.save(program, folder / PROGRAM)


def find_truth(name: str, folder: Path) -> None:
    """Writes a key of `PLAIN`, and how it shows, to truth.txt in `folder`; like `build`, the whole of a process."""
    report = REPORTS[name]
    with _in(folder, "truth.log"):
        example, program = exported(report)
        _plant(report)
        (folder / TRUTH).write_text(_truth(report, example, program, folder))


def _plant(report: Report) -> None:
    os.environ[VARIABLE] = report.plant
    importlib.reload(planted)


@contextlib.contextmanager
def _in(folder: Path, log: str) -> Iterator[None]:
    """Goes to a folder, with what is printed there in a log."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        yield


def exported(report: Report) -> tuple[Example, ExportedProgram]:
    example = report.make()
    with torch.no_grad():
        return example, torch.export.export(
            example.module, example.args, dynamic_shapes=example.dynamic, strict=example.strict
        )


def compile_package(report: Report, program: ExportedProgram, to: Path) -> None:
    configs = {"aot_inductor.compile_wrapper_opt_level": "O0", **report.configs}
    torch._inductor.aoti_compile_and_package(program, package_path=str(to), inductor_configs=configs)


def _truth(report: Report, example: Example, program: ExportedProgram, place: Path) -> str:
    """A key of `PLAIN`, and how it shows."""

    def package() -> Any:
        try:
            compile_package(report, program, place / PACKAGE)
        except Exception as error:  # noqa: BLE001 - that it fails is the answer
            return f"no package: {type(error).__name__}: {_line(error)}"
        return torch._inductor.aoti_load_package(str(place / PACKAGE))(*_copies(example))

    if report.drive is not None:
        return _driven(report, example, program, place)
    with torch.no_grad():
        eager = _in_child(lambda: program.module()(*_copies(example)), place / "eager.pt")
        compiled = _in_child(package, place / "compiled.pt")
    if isinstance(compiled, str):
        if not compiled.startswith("raises"):
            return compiled
        return f"both raise: {eager}; package {compiled}" if isinstance(eager, str) else f"package {compiled}"
    if isinstance(eager, str):
        return f"eager {eager}"
    return _difference(eager, compiled)


def _driven(report: Report, example: Example, program: ExportedProgram, place: Path) -> str:
    """A key of `PLAIN` for what a script does with a package: its results are finite or not, or it dies."""
    compile_package(report, program, place / PACKAGE)
    drive = report.drive
    assert drive is not None
    returned = _in_child(lambda: drive(str(place / PACKAGE), example), place / "driven.pt")
    if isinstance(returned, str):
        return f"package {returned}" if returned.startswith("raises") else returned
    is_finite = all(bool(tensor.isfinite().all()) for tensor in returned)
    return "same: finite results" if is_finite else "nonfinite: results are not finite"


def _copies(example: Example) -> tuple[Any, ...]:
    return copy.deepcopy(example.inputs)  # tensors that share memory share it in the copy


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:150]


def _in_child(call: Callable[[], Any], file: Path) -> Any:
    """What a call returns, its leaves in a list; "raises ..." or "package dies ..." where it does not."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            try:
                result = call()
                if not isinstance(result, str):
                    result = [torch.as_tensor(leaf) for leaf in torch.utils._pytree.tree_leaves(result)]
            except Exception as error:  # noqa: BLE001 - that it fails is the answer
                result = f"raises {type(error).__name__}: {_line(error)}"
            torch.save(result, file)
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    if status:
        return f"package dies: signal {os.WTERMSIG(status)}, code {os.waitstatus_to_exitcode(status)}"
    return torch.load(file)


def _difference(eager: list[torch.Tensor], compiled: list[torch.Tensor]) -> str:
    said, worst, tolerance = "same", 0.0, TOLERANCE
    for one, other in zip(eager, compiled, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"differs: {one.dtype}{list(one.shape)} and {other.dtype}{list(other.shape)}"
        a, b = one.double(), other.double()
        if not torch.equal(a.isfinite(), b.isfinite()) or not torch.equal(a.isnan(), b.isnan()):
            return f"differs: {int((~a.isfinite()).sum())} and {int((~b.isfinite()).sum())} elements are not finite"
        finite = a.isfinite()
        said = said if bool(finite.all()) else "nonfinite"
        scale = float(a[finite].abs().max()) if bool(finite.any()) else 0.0
        error = float((a[finite] - b[finite]).abs().max()) if bool(finite.any()) else 0.0
        worst = max(worst, error / scale if scale else float(error > 0))
        tolerance = max(tolerance, torch.finfo(one.dtype).eps if one.dtype.is_floating_point else 0.0)
    said = "differs" if worst > tolerance else said
    return f"{said}: largest difference {worst:.2g} of the largest number"
