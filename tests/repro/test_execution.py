"""Every launch of compiled models, replayed from its repro in a fresh process that cannot import aoti_debug."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Kind
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests import models
from tests.repro.repro_launches import replay, run_script

if TYPE_CHECKING:
    from tests.built_model import Built

MODELS = (
    "mixed",
    "control",
    "profiled",
    "fold",
    "custom",
    "mutation",
    "attention",
    "views",
    "sizes",
    "half",
    "gemm",
    "planned",
)

# Runs each script as its own main program, one after the other: what one has compiled, here or in an earlier session,
# is there for the next launch of the same kernel.
SCRIPTS = """
import contextlib, io, json, os, pathlib, runpy, shutil, sys
options, kept, *scripts = json.loads(sys.argv[1])
found, kept = {}, pathlib.Path(kept)
compiled = {library.name: library for library in kept.glob("*.so")}
for script in scripts:
    build = pathlib.Path(script).with_name("build")
    build.mkdir(mode=0o700, exist_ok=True)
    for name, library in compiled.items():
        os.symlink(library, build / name)
    for name in [n for n in sys.modules if n.partition(".")[0] == "replay"]:
        del sys.modules[name]
    path, sys.argv = list(sys.path), [script, *options]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            found[script] = [end.code, said.getvalue()]
    sys.path[:] = path
    for library in build.glob("*.so"):
        if library.name not in compiled:
            part = kept / f"{library.name}.{os.getpid()}"
            shutil.copyfile(library, part)
            os.replace(part, kept / library.name)
            compiled[library.name] = kept / library.name
print(json.dumps(found))
"""


def replay_all(folders: list[Path], options: list[str], folder: Path) -> dict[str, tuple[object, str]]:
    """Folder -> the script's exit code and what it printed."""
    every = folder / "every.py"
    every.write_text(SCRIPTS)
    scripts = [str(folder / "repro.py") for folder in folders]
    tools = Toolchain(find_compiler(), find_torch())
    kept = cache.directory() / "kernels-of-tests" / tools.key()
    kept.mkdir(parents=True, exist_ok=True)
    done = run_script(every, json.dumps([options, str(kept), *scripts]), directory=Path("/"))
    assert done.returncode == 0, done.stderr
    return {Path(script).parent.name: (code, said) for script, (code, said) in json.loads(done.stdout).items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_launch_is_replayed_bit_for_bit(name: str, saved: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = saved(name)
    folders, refused = [], []
    for launch in run.launches:
        try:
            written = write_repro(
                ReproOptions(launch.kernel, run=run.path, launch=launch.id, output=tmp_path / launch.id)
            )
            folders.append(written.path)
        except UsageError:
            refused.append(launch)
    assert {launch.site.kind for launch in refused} <= {Kind.ITEM}
    replayed = {launch.id for launch in run.launches if traits_of(launch.site.kind).replay}
    assert replayed == {folder.name for folder in folders}
    operators = ["--import", models.__file__] if name == "custom" else []
    wrong = {
        id_: said
        for id_, (code, said) in replay_all(folders, operators, tmp_path).items()
        if code != 0 or not ("equal bit for bit" in said or said.endswith("draws random numbers: not compared\n"))
    }
    assert wrong == {}


@pytest.mark.slow
def test_a_run_without_tensors_is_repeated(built: Callable[[str], Built], tmp_path: Path) -> None:
    first = runner.run(RunOptions(built("mixed").package, level=3, out=tmp_path)).run
    heard: list[str] = []
    written = write_repro(ReproOptions("cpp_fused_relu_1", run=first.path, output=tmp_path / "repro"), say=heard.append)
    again = open_run(written.run)
    assert heard == [
        f"{first.path.name} (level 3) has no tensors of launch {written.launch}",
        "running the package again at level 1 for this launch",
        f"recorded in {wording.short_path(again.path)}",
    ]
    assert again.path != first.path
    assert {launch.id for launch in again.launches if any(a.files for a in launch.args)} == {written.launch}
    assert replay(written.path).returncode == 0


@pytest.mark.slow
def test_a_filter_and_a_phase_do_not_stand_in_the_way(built: Callable[[str], Built], tmp_path: Path) -> None:
    first = runner.run(
        RunOptions(built("mixed").package, level=1, filters=("nothing*",), phase="before", out=tmp_path, calls=2)
    ).run
    written = write_repro(ReproOptions("aoti_torch_cpu_topk", run=first.path, launch="1.6", output=tmp_path / "repro"))
    assert open_run(written.run).info.calls == 2
    assert "0.3\n" not in (written.path / "README").read_text()
    done = replay(written.path)
    assert done.stdout.startswith("1.6 aoti_torch_cpu_topk: as recorded\n"), done


@pytest.mark.slow
def test_a_fault_of_a_model_is_reproduced_alone(built: Callable[[str], Built], tmp_path: Path) -> None:
    arguments = list(models.inputs("mixed"))
    arguments[4] = torch.tensor([1, 99, 2, 3])  # index_put: an index past the end
    torch.save(tuple(arguments), tmp_path / "bad.pt")
    result = runner.run(RunOptions(built("mixed").package, level=3, inputs=tmp_path / "bad.pt", out=tmp_path / "runs"))
    assert result.verdict is not None
    guilty = result.verdict.launch
    assert guilty is not None
    written = write_repro(ReproOptions(guilty.kernel, run=result.run.path, output=tmp_path / "repro"))
    assert written.fault.startswith("index out of bounds: ")
    done = replay(written.path)
    assert done.returncode == 11, done
    assert done.stdout.splitlines()[:2] == [
        f"recorded: {written.fault}",
        f"here:     RuntimeError: {written.fault}",
    ]


def test_a_launch_can_be_taken_for_one_that_ended_in_a_fault(saved: Callable[[str], RunDir], tmp_path: Path) -> None:
    """Then its replay needs no results: a process that it damaged may have ended before they were saved."""
    options = ReproOptions("cpp_fused_relu_1", run=saved("mixed").path, output=tmp_path / "repro", fault="SIGABRT")
    written = write_repro(options)
    assert written.fault == "SIGABRT"
    assert replay(written.path).returncode == 12, "the recorded fault was not reproduced"


def test_a_launch_that_does_nothing_differs(saved: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = saved("mixed")
    script = write_repro(ReproOptions("cpp_fused_relu_1", run=run.path, output=tmp_path / "repro")).script
    text = script.read_text()
    assert "\n    KERNEL(" in text
    script.write_text(text.replace("\n    KERNEL(", "\n    (", 1))
    assert replay(script.parent).returncode == 10
