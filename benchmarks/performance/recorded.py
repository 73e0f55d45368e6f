"""Counts what a run of one model leaves behind: with aoti-debug, and with PyTorch's built-in printer.

usage: python -m benchmarks.performance.recorded PROGRAM.pt2 PACKAGE.pt2

The package is called once, with the program's example inputs.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aoti_debug.instrument.wrapper.cpp_syntax.expressions import is_null
from aoti_debug.package.manifest import Form
from aoti_debug.package.pt2 import archive as pt2_archive
from aoti_debug.runs.rundir import run_directory

TENSORS = (Form.TENSOR, Form.OUTPUT_SLOT, Form.OPTIONAL, Form.LIST, Form.OPTIONAL_LIST, Form.POINTER)
SAVE = re.compile(r'aoti_torch_save_tensor_handle\(.+, "(.+)", "(before|after)_launch", "(.+)"\);')
SAVED = "aoti_torch_save_tensor_handle: Saved tensor to "
NAMED = re.compile(r"\[ before_launch: .+ \]")


@dataclass(frozen=True)
class Coverage:
    """What is known of one call of a model.

    Attributes:
        launches: that are named.
        with_tensors: launches of which a tensor is saved.
        arguments: tensor arguments that are saved, before or after their launch; (launch, argument), each once.
        states: tensors that are saved, before and after counted apart.
        files: that lie on the disk in the end.
    """

    launches: int
    with_tensors: int
    arguments: int
    states: int
    files: int


@dataclass(frozen=True)
class Save:
    """A call of aoti_torch_save_tensor_handle in a generated wrapper."""

    argument: str
    phase: str
    kernel: str


def in_code(package: Path) -> tuple[int, int]:
    """Launch sites and their tensor arguments, from the manifest of an instrumented package; None is no tensor."""
    sites = pt2_archive.inspect(package).manifest().sites
    tensors = [
        (site.id, arg.name) for site in sites for arg in site.args if arg.form in TENSORS and not is_null(arg.text)
    ]
    return len(sites), len(set(tensors))


def ours(runs: Path) -> Coverage:
    """Of a run at level 1."""
    run = run_directory.open_run(base=runs)
    saved = [
        (launch.id, argument.name, phase, run.tensor_path(file))
        for launch in run.launches
        for argument in launch.args
        for phase, file in argument.files.items()
        if file.path
    ]
    return Coverage(
        launches=len(run.launches),
        with_tensors=len({launch for launch, *_ in saved}),
        arguments=len({(launch, argument) for launch, argument, *_ in saved}),
        states=len({(launch, argument, phase) for launch, argument, phase, _ in saved}),
        files=len({path for *_, path in saved if path.exists()}),
    )


def built_in(saving: Path, saving_output: str, naming_output: str, directory: Path) -> Coverage:
    """Of the built-in printer.

    Args:
        saving: the package that was compiled with level 1; every call of its wrapper has run once.
        saving_output: what it printed.
        naming_output: what the package that was compiled with level 3 printed.
        directory: where the first one ran.

    Raises:
        SystemExit: the wrapper's calls are not those that were run.
    """
    with zipfile.ZipFile(saving) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".wrapper.cpp"))
        saves = [Save(*found) for found in SAVE.findall(archive.read(name).decode())]
    ran = saving_output.count(SAVED)
    if ran != len(saves):
        raise SystemExit(f"{len(saves)} tensors are saved by the generated code, and {ran} were saved by a run")
    launches = list(_launches(saves))
    return Coverage(
        launches=sum(NAMED.fullmatch(line) is not None for line in naming_output.splitlines()),
        with_tensors=len(launches),
        arguments=sum(len({save.argument for save in launch}) for launch in launches),
        states=len(saves),
        files=sum(1 for _ in directory.rglob("*.pt")),
    )


def _launches(saves: list[Save]) -> Iterator[list[Save]]:
    """The saves of each launch: those before it, then those after it, under one kernel name."""
    launch: list[Save] = []
    for save in saves:
        if launch and (save.kernel != launch[-1].kernel or (launch[-1].phase, save.phase) == ("after", "before")):
            yield launch
            launch = []
        launch.append(save)
    if launch:
        yield launch


def main() -> None:
    import torch

    args, kwargs = torch.export.load(sys.argv[1]).example_inputs
    with torch.no_grad():
        torch._inductor.aoti_load_package(sys.argv[2])(*args, **kwargs)
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
