"""Prints the result of a launch: its outputs against the recorded ones, and the back end's findings."""

from __future__ import annotations

import torch

from . import guilty_program
from .child import ReplayReport
from .compare import OutputComparison, compare, kind, program_text
from .job import AS_RECORDED, DIFFERS, FAULT, Job
from .kernel import NATIVE
from .memory import LaunchArgument, Result
from .options import Options


def judge(job: Job, options: Options, report: ReplayReport, tensors: dict[str, torch.Tensor]) -> int:
    """Prints how the outputs compare, and returns the exit code."""
    return judge_findings(job, report) or judge_outputs(job, options, tensors)


def judge_findings(job: Job, report: ReplayReport) -> int:
    """Prints the back end's findings of the last launch; returns FAULT if there was a wrong access, else 0."""
    findings = job.findings()
    if findings is None:
        return 0
    guilty_program.remember(job.folder, findings.accesses)
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
