"""Builds the models of the tests, each once a session: what the fixtures `built` and `saved` give."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import machine_results

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class Built:
    """A model: its exported program, its instrumented package (level 3), the plain twin that `build_twins` makes."""

    program: Path
    package: Path
    plain: Path
    summary: builder.BuildSummary


def build_model(program: ExportedProgram, folder: Path, configs: Mapping[str, Any], module: str) -> Built:
    """Builds a program in `folder`, without a plain twin.

    Args:
        configs: Inductor settings.
        module: what registers the program's operators; children find it (`importable`).
    """
    return _build(program, folder, _options(folder, configs, module))


def build_twins(program: ExportedProgram, folder: Path, configs: Mapping[str, Any], module: str) -> Built:
    """Builds a program and its plain twin; the arguments are those of `build_model`."""
    return _build(program, folder, replace(_options(folder, configs, module), plain=folder / "plain.pt2"))


def _options(folder: Path, configs: Mapping[str, Any], module: str) -> builder.BuildOptions:
    return builder.BuildOptions(
        program=folder / "model.pt2",
        output=folder / "instrumented.pt2",
        inductor_configs=configs,
        user_code=UserCode((module,)),
    )


def _build(program: ExportedProgram, folder: Path, options: builder.BuildOptions) -> Built:
    import torch

    torch.export.save(program, folder / "model.pt2")
    summary = builder.build_report(options)
    return Built(folder / "model.pt2", folder / "instrumented.pt2", folder / "plain.pt2", summary)


@dataclass(frozen=True)
class FromPackage:
    """A model: the package that torch compiled, and that one instrumented (level 3)."""

    original: Path
    package: Path
    summary: builder.BuildSummary


def build_from_package(built: Built, folder: Path, configs: Mapping[str, Any], module: str) -> FromPackage:
    """Compiles a built model's program as any user does, and builds from the package alone.

    Args:
        configs, module: as for `build_model`.
    """
    import torch
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    from tests import wrapper_templates

    wrapper_templates.share()
    machine_results.link_into(Path(cache_dir()))
    program = torch.export.load(built.program)
    original = folder / "compiled.pt2"
    torch._inductor.aoti_compile_and_package(program, package_path=str(original), inductor_configs=dict(configs))
    args, kwargs = program.example_inputs
    torch.save({"args": args, "kwargs": kwargs}, folder / "inputs.pt")
    options = builder.BuildOptions(
        program=original, output=folder / "instrumented.pt2", inputs=folder / "inputs.pt", user_code=UserCode((module,))
    )
    return FromPackage(original, folder / "instrumented.pt2", builder.build_report(options))


def save_run(built: Built | FromPackage, folder: Path) -> RunDir:
    """A run of the package at level 1, which ends well."""
    result = runner.run(RunOptions(built.package, level=1, out=folder))
    assert result.verdict is None
    return result.run


def importable(folder: Path) -> None:
    """Lets child processes import the modules in `folder`, from now on."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, paths)])
