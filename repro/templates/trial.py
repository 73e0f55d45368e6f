"""One trial of a reduction, in a process of its own: checks if a part of the launch still shows the failure."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from .child import ChildExit, ReplayReport
from .compare import compare, unequal_bits
from .job import AS_RECORDED, DIFFERS, FAULT, Job
from .options import Options
from .part import LaunchPart

WHOLE = "whole.pt"  # in the state's folder: the outputs of the whole launch


def trial(job: Job, options: Options, report: ReplayReport) -> int:
    """Runs a part of the launch in the child.

    An output of a part counts as different only where it equals the whole launch's output and differs from the
    recorded one: a part that computes other values than the whole launch shows nothing.

    Args:
        options: its `trial` is the file of the part.
    """
    path = Path(options.trial)
    part = LaunchPart.from_json(path.read_text())
    grid = () if job.kernel is None else job.kernel.grid
    job.prepare(part.settings(options.settings(job), grid))
    memory = job.memory()
    report.send("begin")
    made = job.run(part.narrowed(memory))
    findings = job.findings()
    if findings is not None and findings.outside:
        return FAULT
    if job.fault or job.random:
        return AS_RECORDED
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in made.items()}
    whole_path = path.parent / WHOLE
    if part == LaunchPart():
        torch.save({output.name: tensors[output.name] for output in job.outputs}, whole_path)
    if not whole_path.exists():  # the whole launch did not get this far
        return AS_RECORDED
    return DIFFERS if _differs(job, options, part, tensors, torch.load(whole_path)) else AS_RECORDED


def _differs(
    job: Job, options: Options, part: LaunchPart, tensors: dict[str, torch.Tensor], whole: dict[str, torch.Tensor]
) -> bool:
    """True if an output is wrong in the part."""
    tolerance = options.tolerance_of(job)
    befores = {a.name: part.cut(job.before(a)) for a in job.arguments if a.written}
    wrong = False
    for output in job.outputs:
        if part.rows and part.rows_of(output.shape) is None:
            return False
        got, expected, recorded = tensors[output.name], part.cut(whole[output.name]), part.cut(job.after(output))
        before = befores.get(output.name)
        written = torch.ones(got.numel(), dtype=torch.bool) if before is None else unequal_bits(got, before)
        if got.shape != expected.shape or bool((unequal_bits(got, expected) & written).any()):
            return False
        chosen = written if part.programs or part.grid else torch.ones_like(written)
        mine, theirs = got.contiguous().reshape(-1)[chosen], recorded.contiguous().reshape(-1)[chosen]
        wrong = wrong or not compare(mine, theirs, tolerance).passes
    return wrong


def outcome(ended: ChildExit) -> str:
    """Returns the failure that a trial showed, as a text that is equal for equal failures; "" if none."""
    if ended.fault:
        return "fault: " + re.sub(r"0x[0-9a-f]+|\d+", "#", ended.fault)[:120]
    code = int((ended.message("end") or ("", AS_RECORDED))[1])
    return {DIFFERS: "a difference", FAULT: "an out-of-bounds access"}.get(code, "")
