from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.abi import FaultDomain
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis import verdict_text
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, NO_FAULT, Finding, Place
from aoti_debug.runs.diagnosis.verdict_text import with_coordinates
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from aoti_debug.runs.show.overview import notes
from tests.factories import JournalWriter, arg, crumbs, make_manifest, run_directory, site, tensor, triton_kernel
from tests.views.report.subjects import manifest, run


def finding_of(opened: RunDir, *arguments: str) -> Finding:
    return verdict_text.finding_of(opened, diagnose(opened), arguments)


def test_a_fault_names_its_launch(tmp_path: Path) -> None:
    opened = run(tmp_path)
    assert finding_of(opened).next == ("AOTI_DEBUG_LAUNCH=0.1 aoti-debug run m.pt2 --level 1", "aoti-debug show 0.1")
    (opened.path / "package.pt2").touch()  # without it nothing can be repeated
    found = finding_of(opened)
    assert (found.kind, found.where and found.where.launch) == (FAULT, "0.1")
    assert found.what == "index 314159 is out of bounds with size 4"
    assert found.evidence == ("launch 0.1 raised an exception",)
    assert found.next == (f"aoti-debug repro aoti_torch_cpu_index_Tensor --launch 0.1 --run {opened.path}",)


def test_a_clean_run(tmp_path: Path) -> None:
    found = finding_of(run(tmp_path, fault=False))
    assert (found.kind, found.what, found.where) == (NO_FAULT, "3 launches; values not recorded", None)


@pytest.mark.parametrize(("level", "told"), [(3, True), (0, False)])
def test_a_clean_run_of_kernels_that_overlap_otherwise(tmp_path: Path, level: int, told: bool) -> None:
    kernels = (triton_kernel("a"), replace(triton_kernel("b", 1), overlaps=True))
    package = make_manifest(site("cpp_fused_mul_0", arg("x")), kernels=kernels)
    writer = JournalWriter(level=level)
    writer.call_begin()
    opened = open_run(run_directory(tmp_path, package, writer, level=level, exit=Exit(ExitKind.CLEAN)))
    warning = "1 kernel may begin before the one before ends; while launches are recorded they may not, and a race "
    expected = [warning + "between the two may not show"] if told else []
    assert list(finding_of(opened).warnings) == expected
    assert notes(opened) == expected


def test_a_hang_and_several_suspects(tmp_path: Path) -> None:
    package = manifest()
    package = type(package)(**{**vars(package), "device": "cuda"})
    writer = JournalWriter(crumb_every=4)
    writer.call_begin()
    on_device = tensor(4, device="cuda:0", data_ptr=0x7F00)
    for launch in range(3):
        writer.launch(launch, 0, on_device, on_device)
    writer.fault(2, FaultDomain.CUDA, 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
    end = Exit(ExitKind.FAULT, "RuntimeError: x", RunStage.CALL, exception="RuntimeError")
    opened = open_run(run_directory(tmp_path, package, writer, exit=end, crumbs=crumbs(0, every=4)))
    found = finding_of(opened)
    assert found.where is None
    assert any(sentence.startswith("one of 3 launches: 0.0 cpp_fused_mul_0, 0.1") for sentence in found.evidence)
    timeout = Exit(ExitKind.TIMEOUT, "60 s")
    hang = finding_of(run_with(tmp_path / "b", timeout), "args     in      x  float32[4] cpu")
    assert hang.kind is HANG
    assert hang.evidence[-1] == "args     in      x  float32[4] cpu"


def test_only_a_hang_tells_the_arguments(tmp_path: Path) -> None:
    assert finding_of(run(tmp_path), "args     in      x  float32[4] cpu").evidence == (
        "launch 0.1 raised an exception",
    )


def test_one_launch_is_no_plural(tmp_path: Path) -> None:
    opened = run_with(tmp_path, Exit(ExitKind.CLEAN))
    assert finding_of(opened).what == "1 launch; values not recorded"


def test_where_the_host_was_and_which_launch_noticed_are_evidence(tmp_path: Path) -> None:
    opened = run_with(tmp_path, Exit(ExitKind.FAULT, "killed by SIGSEGV", signal="SIGSEGV"))
    verdict = diagnose(opened)
    assert verdict is not None
    told = replace(verdict, surfaced=opened.launches[0], frames=("boom in ops.cpp:12",))
    found = verdict_text.finding_of(opened, told)
    assert found.what == "invalid memory access in cpp_fused_mul_0"
    assert found.evidence == (
        "0.0 cpp_fused_mul_0 ended with: SIGSEGV (Segmentation fault)",
        "launch 0.0 began and never returned",
        "it was noticed in 0.0 cpp_fused_mul_0, which may be a victim",
    )
    assert found.stack == ("boom in ops.cpp:12",)


def run_with(base: Path, end: Exit) -> RunDir:
    writer = JournalWriter()
    writer.call_begin()
    writer.launch_begin(0, 0, tensor(4), tensor(4))
    return open_run(run_directory(base, manifest(), writer, exit=end))


@pytest.fixture
def small_run(tmp_path: Path) -> RunDir:
    """A run of one launch, which reads the input `ids` of two rows and three columns."""
    package = replace(
        make_manifest(site("cpp_fused_index_0", arg("arg0_1"), arg("buf0", Role.OUT))),
        inputs=("arg0_1",),
        input_names=("ids",),
    )
    journal = JournalWriter()
    journal.call_begin()
    journal.launch(0, 0, tensor(2, 3), tensor(4))
    return open_run(run_directory(tmp_path, package, journal))


@pytest.mark.parametrize(
    ("place", "coordinates"),
    [
        (Place(input="ids", element=5), (1, 2)),
        (Place(input="arg0_1", element=0), (0, 0)),
        (Place("0.0", "cpp_fused_index_0", argument="buf0", element=3), (3,)),
        (Place("0.0", "cpp_fused_index_0", argument="buf0", element=4), ()),
        (Place("0.0", "cpp_fused_index_0", argument="buf0", element=-1), ()),
        (Place("0.7", "gone", argument="buf0", element=1), ()),
        (Place(input="other", element=1), ()),
        (Place(input="ids"), ()),
    ],
)
def test_elements_that_lie_in_their_tensor_have_coordinates(
    small_run: RunDir, place: Place, coordinates: tuple[int, ...]
) -> None:
    found = with_coordinates(Finding(FAULT, "SIGSEGV", place, origin=place, chain=(place,)), small_run)
    for located in (found.where, found.origin, *found.chain):
        kind = "input" if place.input in ("ids", "arg0_1") else ""
        assert located == replace(place, coordinates=coordinates, input_kind=kind)


def test_no_place_stays_none(small_run: RunDir) -> None:
    assert with_coordinates(Finding(FAULT, "SIGSEGV"), small_run) == Finding(FAULT, "SIGSEGV")
