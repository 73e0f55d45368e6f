"""One trial of a reduction, in a process of its own: does a part of the launch still show what the whole shows?"""

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
    """In the child. Of a part, an output counts only where it is what the whole launch gives there, and is not what was
    recorded: a part that computes something else shows nothing.

    Args:
        options: its `trial` is the file of the part.
    """
    path = Path(options.trial)
    part = LaunchPart.from_json(path.read_text())
    grid = () if job.kernel is None else job.kernel.grid
    job.make_ready(part.settings(options.settings(job), grid))
    memory = job.memory()
    report.say("begin")
    made = job.run(part.narrowed(memory))
    found = job.findings()
    if found is not None and found.outside:
        return FAULT
    if job.fault or job.random:
        return AS_RECORDED
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in made.items()}
    whole_path = path.parent / WHOLE
    if part == LaunchPart():
        torch.save({output.name: tensors[output.name] for output in job.outputs}, whole_path)
    if not whole_path.exists():  # the whole launch did not come this far
        return AS_RECORDED
    return DIFFERS if _differs(job, options, part, tensors, torch.load(whole_path)) else AS_RECORDED


def _differs(
    job: Job, options: Options, part: LaunchPart, tensors: dict[str, torch.Tensor], whole: dict[str, torch.Tensor]
) -> bool:
    """Whether an output is wrong in the part."""
    tolerance = 0.0 if job.kernel is None else job.kernel.tolerance(options.backend)
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
    """What a trial showed, in a form that is equal for equal failures; "" if nothing."""
    if ended.fault:
        return "fault: " + re.sub(r"0x[0-9a-f]+|\d+", "#", ended.fault)[:120]
    code = int((ended.said("end") or ("", AS_RECORDED))[1])
    return {DIFFERS: "a difference", FAULT: "an out-of-bounds access"}.get(code, "")
