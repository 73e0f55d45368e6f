"""The room that a run needs before it begins."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import ArtifactError, TargetError
from aoti_debug.base.machine import exhaustion
from aoti_debug.package.manifest import Constant, Form, Manifest, Promise
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.package.weights_file import PackedWeights, WeightsFile
from aoti_debug.runs.run import required_room
from tests import archives
from tests.disk_usage import DiskUsage
from tests.factories import arg, make_manifest, site

MIB = 1 << 20


@pytest.fixture
def package(tmp_path: Path) -> Artifact:
    """4 MiB are unpacked, 3 MiB of inputs and 2 MiB of weights read."""
    members = {
        **archives.PACKAGE,
        f"{archives.MODEL}weights.so": bytes(4 * MIB),
        "aoti_debug_inputs.pt": bytes(3 * MIB),
        "aoti_debug_weights.pt": bytes(2 * MIB),
    }
    return archive.inspect(archives.write(tmp_path / "m.pt2", members))


def manifest(device: str = "cpu", *constants: Constant) -> Manifest:
    return replace(make_manifest(site("k", arg("x"))), device=device, constants=constants)


def require(package: Artifact, of: Manifest, variables: dict[str, str] | None = None, **files: Path) -> None:
    required_room.require(package.path, of, {"TMPDIR": str(package.path.parent), **(variables or {})}, **files)


def free(monkeypatch: pytest.MonkeyPatch, *, disk: int = 1 << 40, memory: int = 1 << 40) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(0, 0, disk))
    monkeypatch.setattr(exhaustion, "_free_memory", lambda: memory)


def refused(package: Artifact, of: Manifest, variables: dict[str, str] | None = None, **files: Path) -> TargetError:
    with pytest.raises(TargetError) as caught:
        require(package, of, variables, **files)
    return caught.value


def test_temporary_files(package: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, disk=4 * MIB + 1024)
    require(package, manifest())
    free(monkeypatch, disk=4 * MIB - 1)
    error = refused(package, manifest())
    assert str(error) == (f"running m.pt2 needs 4.0 MiB on the disk of {package.path.parent}, and 4.0 MiB are free")
    assert (error.hint, error.exit_code) == ("TMPDIR names a folder on another disk", 5)


def test_memory(package: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, memory=5 * MIB)
    require(package, manifest())
    free(monkeypatch, memory=4 * MIB)
    assert str(refused(package, manifest())) == "running m.pt2 needs 5.0 MiB of memory, and 4.0 MiB are free"
    require(package, manifest("cuda"))  # what a GPU gets is read in parts
    inputs, mapped = tmp_path / "inputs.pt", tmp_path / "inputs.safetensors"
    for path in (inputs, mapped):
        path.write_bytes(bytes(7 * MIB))
    require(package, manifest(), inputs=mapped)
    assert "needs 9.0 MiB of memory" in str(refused(package, manifest(), inputs=inputs))
    assert "needs 16.0 MiB of memory" in str(refused(package, manifest(), inputs=inputs, weights=inputs))


@pytest.mark.parametrize(
    ("variables", "is_refused"),
    [
        ({"AOTI_DEBUG_FLIGHT": "8", "AOTI_DEBUG_FLIGHT_BYTES": "2G"}, True),
        ({"AOTI_DEBUG_FLIGHT": "8", "AOTI_DEBUG_FLIGHT_BYTES": "1048577k"}, True),
        ({"AOTI_DEBUG_FLIGHT": "8", "AOTI_DEBUG_FLIGHT_BYTES": "1g"}, False),
        ({"AOTI_DEBUG_FLIGHT": "8"}, False),  # it takes a part of what is free
        ({"AOTI_DEBUG_FLIGHT": "0", "AOTI_DEBUG_FLIGHT_BYTES": "2G"}, False),
        ({"AOTI_DEBUG_FLIGHT_BYTES": "2G"}, False),
        ({"AOTI_DEBUG_FLIGHT": "8", "AOTI_DEBUG_FLIGHT_BYTES": "much"}, False),  # the runtime says so
    ],
)
def test_shared_memory(
    package: Artifact, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_refused: bool
) -> None:
    free(monkeypatch, disk=1 << 30)
    require(package, manifest(), variables)  # on a CPU it grows as it is needed
    if is_refused:
        error = refused(package, manifest("cuda"), variables)
        assert str(error).startswith("the flight recorder of running m.pt2 needs ")
        assert str(error).endswith(" on the disk of /dev/shm, and 1.0 GiB are free")
        assert error.hint == "a smaller AOTI_DEBUG_FLIGHT_BYTES keeps fewer inputs"
    else:
        require(package, manifest("cuda"), variables)


def saving() -> Manifest:
    """Launches that read an input of 1 MiB and weights of 1 and 2 MiB, and write 4 MiB, 8 MiB and what is not known."""
    small, large = constant("small"), constant("large", shape=(512, 1024))
    first = site("first", arg("x"), arg("small"), arg("buf0", form=Form.OUTPUT_SLOT))
    second = site("second", arg("buf0"), arg("x"), arg("large"), arg("x_view", base="x"), arg("buf1"), arg("buf2"))
    in_branch = replace(site("third", arg("buf3")), subgraph="true_graph_0")
    promises = [promise("x", "256"), promise("buf0", "1024"), promise("buf1", "2048"), promise("buf2", "s0")]
    promises += [promise("buf3", "4096"), replace(promise("buf1", "9999"), function="_const_run_impl")]
    return replace(
        make_manifest(first, second, in_branch), constants=(small, large), promises=tuple(promises), device="cpu"
    )


def promise(name: str, rows: str) -> Promise:
    return Promise(name, "cpu", "float32", (rows, "1024"), ("1024", "1"))


NAMES = {"large": "large", "small": "small"}


@pytest.mark.parametrize(
    ("changed", "chosen", "phase", "expected"),
    [
        ({}, SiteFilter(), "", (3, 13)),
        ({}, SiteFilter(), "both", (3, 13)),
        ({}, SiteFilter(("first",)), "", (1, 5)),
        ({}, SiteFilter(("first",)), "before", (1, 1)),
        ({}, SiteFilter(("!first",)), "", (2, 13)),
        ({}, SiteFilter(("third",)), "", (0, 0)),
        ({"packed": PackedWeights({"large": 0}, {"large": 2 * MIB}, 2 * MIB)}, SiteFilter(), "", (1, 13)),
        ({"weights": WeightsFile("m.pt2", 1, "", NAMES)}, SiteFilter(), "", (1, 13)),  # one of 1 MiB is copied
    ],
)
def test_what_a_run_at_level_1_saves_at_least(
    changed: dict[str, Any], chosen: SiteFilter, phase: str, expected: tuple[int, int]
) -> None:
    found = required_room.bytes_to_save(replace(saving(), **changed), chosen, phase)
    assert found == (expected[0] * MIB, expected[1] * MIB)


def test_the_disk_of_a_run_at_level_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(**variables: str) -> None:
        names = {f"AOTI_DEBUG_{name}": value for name, value in variables.items()}
        required_room.require_for_tensors(tmp_path / "run", Path("m.pt2"), saving(), names)

    free(monkeypatch, disk=(1 << 30) + 16 * MIB)
    check()
    free(monkeypatch, disk=(1 << 30) + 16 * MIB - 1)
    with pytest.raises(TargetError) as caught:
        check()
    assert str(caught.value) == (
        f"a run at level 1 of m.pt2 saves at least 16.0 MiB of tensors; on the disk of {tmp_path} 1.0 GiB are free, "
        "of which AOTI_DEBUG_KEEP_FREE_BYTES leaves 1.0 GiB"
    )
    assert caught.value.hint == "--filter or --module chooses launches, --out names a folder on another disk"
    assert caught.value.exit_code == 5
    for narrowing in ({"FILTER": "first"}, {"KEEP_FREE_BYTES": "0"}, {"LAUNCH": "0.1"}, {"MAX_BYTES": "1M"}):
        check(**narrowing)
    monkeypatch.setattr(required_room, "LARGE", MIB)
    with pytest.raises(TargetError) as caught:
        check()
    assert "--weights by-reference copies no weights" in caught.value.hint


def test_a_damaged_package(package: Artifact) -> None:
    package.path.write_bytes(b"PK")
    with pytest.raises(ArtifactError, match=r"m\.pt2 is damaged"):
        require(package, manifest())


def constant(name: str, dtype: str = "float32", **changed: Any) -> Constant:
    return replace(Constant(name, name, dtype, (256, 1024), (1024, 1), folded=False), **changed)


def test_the_memory_of_a_gpu() -> None:
    of = manifest(
        "cuda",
        constant("a"),
        constant("b", "bfloat16"),
        constant("c", fqn="a"),  # another name of one weight
        constant("d", folded=True),
        constant("e", "unheard_of"),
    )
    needed = MIB + MIB // 2
    assert required_room.bytes_on_device(of) == needed
    required_room.require_on_device(of, needed, 80 << 30, "cuda:1")
    with pytest.raises(TargetError) as caught:
        required_room.require_on_device(of, needed - 1024, 80 << 30, "cuda:1")
    assert str(caught.value) == (
        "the weights of the model need 1.5 MiB of the memory of cuda:1, and 1.5 MiB of 80.0 GiB are free"
    )
    assert "nvidia-smi" in caught.value.hint
