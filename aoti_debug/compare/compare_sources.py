"""Compares the launches of a run with the sources of their own kernels, run independently of their machine code.

C++ kernels are compiled again with checked pointers, Triton kernels are interpreted. This finds wrong machine code. A
wrong lowering, whose source is wrong already, cannot be seen.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.comparison import NO_PROGRAM, NOT_SELECTED, SILENT, Comparison, Row
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.regions.regions import UNRETURNED
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.recording.site_filter import SiteFilter
from aoti_debug.repro.evidence import FAILED, gather
from aoti_debug.repro.modes import Mode, modes, this_machine
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch, LaunchStatus

FOLDER = "sources"
INDEPENDENT = ("checked", "interpret")  # modes of a repro that do not run the kernel's machine code
TOLERANCE = 1e-4  # an arithmetic of its own: what is larger is no rounding
SECONDS = 120.0  # for one launch
OPERATOR = "it calls an operator, of which the package holds no source"


def compare_sources(run: RunDir, filters: SiteFilter, folder: Path, steps: Steps) -> Comparison:
    """Compares the launches of a run that saved tensors with the sources of their kernels.

    Args:
        filters: the launches to compare.
        folder: for the repros of launches that differ.
    """
    device, diagnosed = run.manifest.device, DiagnosedRun(run)
    machine = this_machine(run.manifest.compiler, cuda=device == "cuda")
    by_kernel: dict[str, list[Launch]] = defaultdict(list)
    for launch in run.launches:
        by_kernel[launch.kernel].append(launch)
    rows: dict[str, Row] = {}
    chosen = filters.site_ids(run.manifest.sites)

    def compare(launches: Sequence[Launch]) -> None:
        built: Path | None = None
        for launch in launches:
            if launch.site.id not in chosen:
                rows[launch.id] = _row(launch, LaunchVerdict.NOT_COMPARABLE, NOT_SELECTED)
                continue
            mode = next((m for m in modes(launch.site.kind, device, machine) if m.name in INDEPENDENT), None)
            place = folder / FOLDER / launch.id
            rows[launch.id] = _compared(diagnosed, launch, mode, place, built)
            built = _keep_build(place, folder / FOLDER / "build" / launch.kernel) or built
            if rows[launch.id].verdict is not LaunchVerdict.DIFFERS_FROM_SOURCE:
                shutil.rmtree(place, ignore_errors=True)
            steps.advance(len(rows), len(run.launches))

    with steps.step("compare with the sources") as note:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for _ in pool.map(compare, by_kernel.values()):
                pass
        note.text = wording.pluralize(len(by_kernel), "kernel")
    shutil.rmtree(folder / FOLDER / "build", ignore_errors=True)
    return Comparison(run=run, rows=tuple(rows[launch.id] for launch in run.launches), outputs_missing=NO_PROGRAM)


def _compared(diagnosed: DiagnosedRun, launch: Launch, mode: Mode | None, place: Path, built: Path | None) -> Row:
    verdict = LaunchVerdict.NOT_COMPARABLE
    if launch.status is not LaunchStatus.RETURNED:
        return _row(launch, verdict, UNRETURNED[launch.status])
    if not any(_bytes(launch)):
        return Row(launch=launch, verdict=verdict, reason=SILENT)
    if mode is None or mode.missing:
        reason = mode.missing if mode is not None else traits_of(launch.site.kind).not_replayed or OPERATOR
        return _row(launch, verdict, reason)
    try:
        write_repro(ReproOptions(launch.kernel, run=diagnosed, launch=launch.id, output=place, trusted=True))
    except AotiDebugError as error:
        return _row(launch, verdict, wording.first_line(str(error)))
    if built is not None:
        _copy_libraries(built, place / "build")
    evidence = gather(place, (*mode.words, "--tolerance", repr(TOLERANCE)), SECONDS)
    if evidence.outcome == "as recorded":
        return _row(launch, LaunchVerdict.MATCHES_SOURCE)
    if evidence.outcome == "differs":
        differing = (line.strip() for line in evidence.lines if "differs in" in line or "NaN" in line)
        return _row(launch, LaunchVerdict.DIFFERS_FROM_SOURCE, wording.first_line(next(differing, evidence.what)))
    why = evidence.what or ("it failed" if evidence.outcome == FAILED else f"its replay ended in: {evidence.outcome}")
    return _row(launch, verdict, f"{mode.name}: {wording.first_line(why)}")


def _copy_libraries(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for library in source.glob("*.so"):
        shutil.copy2(library, target)


def _keep_build(place: Path, kept: Path) -> Path | None:
    """Keeps what a repro has compiled, for the next launch of its kernel; None if it has compiled nothing."""
    if not any((place / "build").glob("*.so")):
        return None
    _copy_libraries(place / "build", kept)
    return kept


def _row(launch: Launch, verdict: LaunchVerdict, reason: str = "") -> Row:
    size = sum(_bytes(launch))
    compared = 0 if verdict is LaunchVerdict.NOT_COMPARABLE else size
    return Row(
        launch=launch, verdict=verdict, reason=reason, together_with=(launch.id,), bytes=size, compared_bytes=compared
    )


def _bytes(launch: Launch) -> list[int]:
    """The sizes of what a launch writes."""
    written = {a.name: a.layout for a in launch.args if a.written and a.layout is not None}
    return [layout.bytes for layout in written.values()]
