"""The result of a launch: judged, printed; the block and thread that a tool has named, kept for the debugger."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from .accesses import Access
from .child import ReplayReport
from .compare import OutputComparison, compare, kind, program_text
from .cpp_build import build_directory
from .job import AS_RECORDED, DIFFERS, FAULT, Job
from .kernel import NATIVE
from .memory import LaunchArgument, Result
from .options import Options

_FILE = "guilty_program.json"

Triple = tuple[int, int, int]


def remember(folder: Path, accesses: Iterable[Access]) -> None:
    """Keeps the block of the first access that has one, and its thread; nothing where the folder cannot be written."""
    for access in accesses:
        if access.program is not None:
            thread = re.search(r"thread \((\d+),(\d+),(\d+)\)", access.thread)
            found = {"block": access.program, "thread": [int(n) for n in thread.groups()] if thread else None}
            with suppress(OSError):
                (build_directory(folder) / _FILE).write_text(json.dumps(found))
            return


def stopped_in(folder: Path, grid: Sequence[int], programs: Sequence[Triple]) -> tuple[Triple | None, Triple | None]:
    """The block and the thread that a debugger stops in: the first of `programs`, otherwise those that were kept.

    Raises:
        ValueError: the program is not in the grid.
    """
    size = (*grid, 1, 1, 1)[:3]
    if not programs:
        block, thread = remembered(folder)
        return (block, thread) if block is not None and _is_in(block, size) else (None, None)
    if not _is_in(programs[0], size):
        named = ",".join(map(str, programs[0]))
        raise ValueError(f"--program {named} is not in the grid of {'x'.join(map(str, size))}, counted from 0")
    return programs[0], None


def remembered(folder: Path) -> tuple[Triple | None, Triple | None]:
    """The block and the thread that were kept; None where they are not known."""
    try:
        found = json.loads((build_directory(folder) / _FILE).read_text())
        return _triple(found["block"]), _triple(found["thread"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None


def _is_in(block: Triple, grid: Sequence[int]) -> bool:
    return all(0 <= index < size for index, size in zip(block, grid, strict=True))


def _triple(numbers: object) -> Triple | None:
    if not isinstance(numbers, list) or len(numbers) != 3:
        return None
    x, y, z = (int(number) for number in numbers)
    return x, y, z


def judge(job: Job, options: Options, report: ReplayReport, tensors: dict[str, torch.Tensor]) -> int:
    """Prints how the outputs compare, and returns the exit code."""
    return judge_findings(job, report) or judge_outputs(job, options, tensors)


def judge_findings(job: Job, report: ReplayReport) -> int:
    """Prints the back end's findings of the last launch; returns FAULT if there was a wrong access, else 0."""
    findings = job.findings()
    if findings is None:
        return 0
    remember(job.folder, findings.accesses)
    if findings.outside:
        print(f"{job.title}: {_count(findings.outside, 'out-of-bounds access', 'out-of-bounds accesses')}")
    for access in findings.accesses:
        report.access(access)
    for line in findings.lines:
        print(line)
    return FAULT if findings.outside else 0


def judge_outputs(job: Job, options: Options, tensors: dict[str, torch.Tensor]) -> int:
    """Prints how the outputs compare with the recorded ones, and returns the exit code."""
    if job.random:
        print(f"{job.title}: {job.random}: not compared")
        return AS_RECORDED
    if options.programs:
        programs = _count(len(options.programs), "program", "programs")
        print(f"{job.title}: {programs} of the grid ran: outputs not compared")
        return AS_RECORDED
    tolerance = options.tolerance_of(job)
    compared = {o.name: _compare(o, tensors[o.name], job.after(o), tolerance) for o in job.outputs}
    bad = [name for name, comparison in compared.items() if not comparison.passes]
    how = f" ({options.backend})" if options.backend not in ("", NATIVE) else ""
    print(f"{job.title}{how}: " + (f"DIFFERS in {', '.join(bad)}" if bad else "as recorded"))
    width = max((len(name) for name in compared), default=0)
    for name, comparison in compared.items():
        print(f"  {name:{width}}  {kind(tensors[name])}  {comparison.text}")
        if text := program_text(job.program_values(name), tensors[name]):
            print(f"  {'':{width}}  {text}")
    return DIFFERS if bad else AS_RECORDED


def _compare(
    output: LaunchArgument | Result, got: torch.Tensor, recorded: torch.Tensor, tolerance: float
) -> OutputComparison:
    comparison = compare(got, recorded, tolerance)
    if comparison.passes and isinstance(output, Result) and _strides(got) != _strides(output):
        return OutputComparison(passes=False, text=f"has strides {tuple(got.stride())}, recorded {output.stride}")
    return comparison


def _strides(tensor: torch.Tensor | Result) -> list[int]:
    """The strides that address memory: those of dimensions of size 1 and of empty tensors do not."""
    stride = tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.stride
    if 0 in tensor.shape:
        return []
    return [step for size, step in zip(tensor.shape, stride, strict=True) if size > 1]


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
