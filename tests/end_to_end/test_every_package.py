"""What must hold for every model whose compiled package is all that there is: its launches, arguments and outputs are
those of the build from its exported program, and its kernels the package's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built, FromPackage, save_run
from tests.launched import launched
from tests.model_outputs import outputs

pytestmark = pytest.mark.slow

MODELS = ("mixed", "control", "fold", "custom", "views", "sizes")


@pytest.mark.parametrize("name", MODELS)
def test_outputs_equal_those_of_the_package_that_torch_compiled(
    from_package: Callable[[str], FromPackage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found = from_package(name)
    monkeypatch.setenv("AOTI_DEBUG_DIR", str(tmp_path))
    monkeypatch.setenv("AOTI_DEBUG_PRINT", "none")
    plain = outputs(found.original, name)
    equal = {}
    for level in ("0", "1", "3"):
        monkeypatch.setenv("AOTI_DEBUG_LEVEL", level)
        equal[level] = outputs(found.package, name) == plain
    assert equal == dict.fromkeys(("0", "1", "3"), True)


@pytest.mark.parametrize("name", MODELS)
def test_launches_are_those_of_the_build_from_the_exported_program(
    from_package: Callable[[str], FromPackage], saved: Callable[[str], RunDir], tmp_path: Path, name: str
) -> None:
    assert launched(save_run(from_package(name), tmp_path / "runs")) == launched(saved(name))


@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_the_package_s_own(
    built: Callable[[str], Built], from_package: Callable[[str], FromPackage], name: str
) -> None:
    manifest = from_package(name).summary.manifest
    assert manifest.source is PackageOrigin.COMPILED
    assert manifest.unrecognised == ()
    same = re.fullmatch(r"(\d+) of (\d+) kernels identical to the original", str(manifest.sameness))
    assert same is not None
    assert same.group(1) == same.group(2)
    kernels = {kernel.name for kernel in manifest.kernels if kernel.code_sha256}
    assert len(kernels) == int(same.group(1))
    assert {kernel.name for kernel in built(name).summary.manifest.kernels} == kernels
