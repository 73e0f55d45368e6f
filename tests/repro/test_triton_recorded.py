"""Launches that were recorded on a CUDA device (tests/recorded), replayed by the interpreter in fresh processes."""

from __future__ import annotations

import copy
import hashlib
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import UsageError
from aoti_debug.package import manifest
from aoti_debug.package.manifest import Kind
from aoti_debug.package.pt2 import trust
from aoti_debug.package.triton_config import infer_config
from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.recorded_launch import recorded_launch
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.runs.rundir.launch import LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests import archives
from tests.compiled_triton import as_compiled
from tests.many_replays import replay_many
from tests.repro.repro_launches import replay

RECORDED = Path(__file__).parent.parent / "recorded"
CODE = b"\x7fELF machine code"
RUNS = ("mixed", "reductions", "two_specialisations")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunDir]:
    """A run of tests/recorded by name."""
    found: dict[str, RunDir] = {}

    def run(name: str) -> RunDir:
        if name not in found:
            folder = tmp_path_factory.mktemp("recorded") / name
            with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
                archives.extract(archive, folder)
            found[name] = run = open_run(folder)
            trust.remember_run(run.manifest, run.info.imports, run.info.libraries)
        return found[name]

    return run


def kept(run: RunDir) -> list[str]:
    """The Triton launches whose tensors were kept."""
    triton = [launch for launch in run.launches if launch.site.kind is Kind.TRITON]
    return [
        launch.id
        for launch in triton
        if all(run.tensor_path(saved).exists() for a in launch.args for saved in a.files.values())
    ]


@pytest.mark.parametrize("name", RUNS)
def test_every_kept_launch_is_as_recorded(recorded: Callable[[str], RunDir], tmp_path: Path, name: str) -> None:
    run = recorded(name)
    ids = kept(run)
    assert ids
    jobs = []
    for id_ in ids:
        written = write_repro(ReproOptions(run.launch(id_).kernel, run=run.path, launch=id_, output=tmp_path / id_))
        jobs.append((written.path, ("--backend", "interpret")))
    done = replay_many(jobs)
    assert [x.name for x in done if x.code == 0 and "as recorded" in x.said] == ids, done


@pytest.mark.parametrize("name", RUNS)
def test_launches_of_a_package_without_configurations_are_interpreted(
    recorded: Callable[[str], RunDir], tmp_path: Path, name: str
) -> None:
    """The configurations are those that the kernels' sources, grids and warps tell."""
    run = recorded(name)
    shutil.copytree(run.path, tmp_path / "run")
    kernels = tuple(
        infer_config(as_compiled(kernel)) if kernel.language == "triton" else kernel for kernel in run.manifest.kernels
    )
    described = replace(run.manifest, kernels=kernels, source=manifest.PackageOrigin.COMPILED)
    (tmp_path / "run" / "manifest.json").write_text(described.json_text)
    ids = kept(run)
    jobs = []
    for id_ in ids:
        kernel, folder = run.launch(id_).kernel, tmp_path / id_
        written = write_repro(ReproOptions(kernel, run=tmp_path / "run", launch=id_, output=folder, trusted=True))
        assert ": derived from the launch's grid and warps" in (written.path / "README").read_text() or (
            ": chosen, not recorded in the package" in (written.path / "README").read_text()
        )
        jobs.append((written.path, ("--backend", "interpret")))
    done = replay_many(jobs)
    assert [x.name for x in done if x.code == 0 and "as recorded" in x.said] == ids, done


@pytest.mark.parametrize("block", [512, 4096])
def test_another_block_along_the_reduction_computes_the_same(
    recorded: Callable[[str], RunDir], tmp_path: Path, block: int
) -> None:
    run = recorded("reductions")
    name = next(k.name for k in run.manifest.kernels if k.name.startswith("triton_red_fused__softmax"))
    folder = write_repro(ReproOptions(name, run=run.path, output=tmp_path / "repro")).path
    text = (folder / "repro.py").read_text()
    assert '"R0_BLOCK": 2048' in text
    (folder / "repro.py").write_text(text.replace('"R0_BLOCK": 2048', f'"R0_BLOCK": {block}'))
    done = replay(folder, "--backend", "interpret")
    assert done.returncode == 0, done


def test_two_specialisations_under_one_name_are_told_apart(recorded: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = recorded("two_specialisations")
    texts = []
    for kernel in ("scaled_add_kernel_0", "scaled_add_kernel_1"):
        folder = write_repro(ReproOptions(kernel, run=run.path, output=tmp_path / kernel)).path
        texts.append((folder / "repro.py").read_text())
    assert ['constants={"DOUBLE": True, "BLOCK": 256}' in text for text in texts] == [True, False]
    assert ['constants={"DOUBLE": False, "BLOCK": 64}' in text for text in texts] == [False, True]


def test_an_autotuned_kernel_has_the_configuration_that_ran(recorded: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = recorded("reductions")
    text = (
        write_repro(ReproOptions("tuned_kernel_0", run=run.path, output=tmp_path / "repro")).path / "repro.py"
    ).read_text()
    launch = next(x for x in run.launches if x.kernel == "tuned_kernel_0")
    assert launch.grid is not None
    block = {1: 64, 2: 128}[launch.grid.num_warps]  # as its configurations say
    assert f'constants={{"BLOCK": {block}}}' in text
    assert f"num_warps={launch.grid.num_warps}," in text


def test_without_the_package_the_machine_code_is_not_there(recorded: Callable[[str], RunDir], tmp_path: Path) -> None:
    folder = write_repro(
        ReproOptions("scaled_add_kernel_0", run=recorded("mixed").path, output=tmp_path / "repro")
    ).path
    assert not (folder / "kernel.cubin").exists()
    assert "cubin       not available: the package that was run was not found" in (folder / "README").read_text()
    done = replay(folder, "--backend", "cubin")
    assert done.returncode == 2
    assert "invalid choice" in done.stderr


def test_a_launch_whose_tensors_are_gone_is_refused(recorded: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = recorded("mixed")
    gone = next(x for x in run.launches if x.site.kind is Kind.TRITON and x.id not in kept(run))
    with pytest.raises(Exception, match="is gone") as caught:
        write_repro(ReproOptions(gone.kernel, run=run.path, launch=gone.id, output=tmp_path / "repro"))
    assert not isinstance(caught.value, UsageError)
    assert not (tmp_path / "repro").exists()


def with_package(run: RunDir, folder: Path, code: bytes) -> RunDir:
    """A copy of a run whose package is there, with `code` as the machine code of scaled_add_kernel_0."""
    package = archives.write(
        folder / "package.pt2",
        {**archives.PACKAGE, manifest.MEMBER: b"{}", f"{archives.MODEL}scaled_add_kernel.cubin": code},
    )
    shutil.copytree(run.path, folder / "run")
    (folder / "run" / "package.pt2").symlink_to(package)
    described = manifest.from_json((run.path / "manifest.json").read_text())
    kernels = tuple(
        replace(k, cubin="scaled_add_kernel.cubin", cubin_sha256=hashlib.sha256(CODE).hexdigest())
        if k.name == "scaled_add_kernel_0"
        else k
        for k in described.kernels
    )
    (folder / "run" / "manifest.json").write_text(replace(described, kernels=kernels).json_text)
    return open_run(folder / "run")


def test_the_packages_own_machine_code_is_copied(recorded: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = with_package(recorded("mixed"), tmp_path, CODE)
    folder = write_repro(
        ReproOptions("scaled_add_kernel_0", run=run.path, output=tmp_path / "repro", trusted=True)
    ).path
    assert (folder / "kernel.cubin").read_bytes() == CODE
    assert 'binary=Binary("kernel.cubin", "scaled_add_kernel", shared_bytes=0),' in (folder / "repro.py").read_text()


def test_machine_code_of_another_build_is_not_taken(recorded: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = with_package(recorded("mixed"), tmp_path, b"\x7fELF other code")
    folder = write_repro(
        ReproOptions("scaled_add_kernel_0", run=run.path, output=tmp_path / "repro", trusted=True)
    ).path
    assert not (folder / "kernel.cubin").exists()
    assert "was rebuilt after the run" in (folder / "README").read_text()


def test_what_a_launch_that_did_not_start_wrote_is_what_was_there(recorded: Callable[[str], RunDir]) -> None:
    run = recorded("mixed")
    launch = next(x for x in run.launches if x.kernel == "scaled_add_kernel_0")
    launch = copy.copy(launch)
    launch.status = LaunchStatus.NOT_STARTED
    launch.files = tuple(file for file in launch.files if file.phase is Phase.BEFORE)
    launch.grid_records = ()
    for computed in ("args", "grids"):
        vars(launch).pop(computed, None)
    found = recorded_launch(run, launch, "")
    assert (found.started, found.grid) == (False, None)
    saved = [slot for slot in found.slots if slot.before]
    assert saved
    assert [slot.after for slot in saved] == [slot.before for slot in saved]
    assert list(arguments_of(found).missing(fault=False)) == []
