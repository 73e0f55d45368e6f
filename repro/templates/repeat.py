"""`--repeat`: the same launch many times from the same inputs. Results that vary show a race."""

from __future__ import annotations

import torch

from .child import ReplayReport
from .compare import difference, index_of, unequal_bits
from .job import AS_RECORDED, DIFFERS, Job
from .memory import LaunchMemory
from .options import Options
from .verdict import judge_findings


class Varying:
    """The variation of an output between launches."""

    def __init__(self, first: torch.Tensor) -> None:
        self.first = first.detach().clone()
        self.elements = torch.zeros(first.numel(), dtype=torch.bool)
        self.launches = 0
        self.example = ""

    def add(self, launch: int, got: torch.Tensor) -> None:
        """Compares the output of one more launch with the first."""
        if got.dtype != self.first.dtype or got.shape != self.first.shape:
            self.launches += 1
            self.elements |= True
            self.example = self.example or f"launch {launch}: {difference(got, self.first)}"
            return
        unequal = unequal_bits(got, self.first)
        if not bool(unequal.any()):
            return
        self.launches += 1
        self.elements |= unequal
        if not self.example:
            at = int(unequal.nonzero()[0])
            index = index_of(at, tuple(self.first.shape))
            one, other = self.first[index].item(), got[index].item()
            self.example = f"at {index} {one} in launch 1, {other} in launch {launch}"

    def line(self, count: int) -> str:
        """The variation in one line of text."""
        often = f"{self.launches} of {count - 1} further launches differ from the first"
        return f"{often}, in {int(self.elements.sum())} of {self.elements.numel()} elements: {self.example}"


def repeat(job: Job, options: Options, report: ReplayReport) -> int:
    """Exits with 10 where results vary."""
    job.prepare(options.settings(job))
    memory = job.memory()
    pristine = {name: block.bytes.clone() for name, block in memory.blocks.items()}
    report.send("begin")
    tensors = job.run(memory)
    fault = judge_findings(job, report)
    if fault:
        return fault
    varying = {output.name: Varying(tensors[output.name]) for output in job.outputs}
    for launch in range(2, options.repeat + 1):
        _restore(memory, pristine)
        tensors = job.run(memory)
        for name, variation in varying.items():
            variation.add(launch, tensors[name])
    return _say(job, varying, options.repeat)


def _restore(memory: LaunchMemory, pristine: dict[str, torch.Tensor]) -> None:
    for name, block in memory.blocks.items():
        block.bytes.copy_(pristine[name])


def _say(job: Job, varying: dict[str, Varying], count: int) -> int:
    bad = [name for name, variation in varying.items() if variation.launches]
    if not bad:
        print(f"{job.title}: {count} launches gave the same results, bit for bit")
        return AS_RECORDED
    print(f"{job.title}: results VARY between launches from the same inputs, in {', '.join(bad)}")
    width = max(map(len, bad))
    for name in bad:
        print(f"  {name:{width}}  {varying[name].line(count)}")
    if job.random:
        print(f"  {job.random}")
        return AS_RECORDED
    return DIFFERS
