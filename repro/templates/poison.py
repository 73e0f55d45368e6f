"""`--poison`: fills uninitialised memory with a bit pattern, and puts guard zones around the storages.

The launch runs twice, with two patterns. An output that depends on them was computed from uninitialised memory; a guard
zone or a gap that changed was overrun.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from .accesses import Access, lines_of
from .child import ReplayReport
from .compare import index_of, unequal_bits
from .job import AS_RECORDED, DIFFERS, FAULT, Job
from .memory import Block, Extent, LaunchMemory, Result, extents_of, fill, memory_of, placed
from .options import Options
from .verdict import judge_findings

GUARD = 1 << 16  # bytes before and after each storage
NAN, NUMBER = 0xFF, 0x3B  # every byte: NaN, or -1; a number near 1 or below, or a large integer
UNINITIALISED = "uninitialised read"  # what an output shows that depends on the pattern
_M_PERTURB = -6  # of glibc's mallopt

Zone = Literal["before", "between", "past"]


@dataclass(frozen=True)
class Poisoned:
    """One launch with a pattern.

    Attributes:
        tensors: what came out, on the CPU.
        overruns: of guard zones, and of gaps between elements.
    """

    pattern: int
    tensors: dict[str, torch.Tensor]
    overruns: tuple[Access, ...]


def poison(job: Job, options: Options, report: ReplayReport) -> int:
    """Exits with 11 where a guard zone was overwritten, with 10 where an output depends on the pattern."""
    job.prepare(options.settings(job))
    report.send("begin")
    runs = [_run(job, pattern) for pattern in (NAN, NUMBER)]
    fault = judge_findings(job, report)
    overruns = list(dict.fromkeys(access for run in runs for access in run.overruns))
    depends = [] if job.random else list(_dependent(job, *runs))
    for what, accesses in (("OVERRUN", overruns), ("UNINITIALISED", depends)):
        for access in accesses:
            report.access(access)
            print("\n".join([f"{job.title}: {what}: {lines_of(access)[0]}", *lines_of(access)[1:]]))
    for line in _left_alone(job, *runs):
        print(f"  {line}")
    if not (fault or overruns or depends):
        print(f"{job.title}: no overrun within {GUARD // 1024} KiB, and no output depends on uninitialised memory")
    return FAULT if fault or overruns else DIFFERS if depends else AS_RECORDED


def _run(job: Job, pattern: int) -> Poisoned:
    memory = memory_of(job.arguments, job.storages, GUARD)
    for block in memory.blocks.values():
        block.whole.fill_(pattern)
    for argument in job.arguments:
        if argument.role == "out" and argument.dtype == torch.bool:
            fill(memory.views[argument.name], torch.full(argument.shape, pattern == NAN))
    for argument in job.arguments:
        if argument.role != "out":
            fill(memory.views[argument.name], job.before(argument))
    before = {name: block.whole.clone() for name, block in memory.blocks.items()}
    _perturb_fresh_memory(job, pattern)
    try:
        made = job.run(memory)
    finally:
        _mallopt(0)
    kept = {output.name: made[output.name].detach().cpu().clone() for output in job.outputs}
    extents = extents_of(job.arguments, memory)
    overruns = [
        access
        for name, block in memory.blocks.items()
        for access in _changed(block, before[name], _covered(job, memory, name), extents)
    ]
    return Poisoned(pattern, kept, tuple(overruns))


def _perturb_fresh_memory(job: Job, pattern: int) -> None:
    """Makes the memory that the launch allocates begin with the pattern: glibc's own means, or CUDA's cache."""
    if not job.results:
        return
    _mallopt(pattern ^ 0xFF)  # glibc fills what it hands out with the complement
    for device in job.cuda_devices:
        sizes = [torch.empty(r.shape, dtype=r.dtype, device="meta").nbytes for r in job.results]
        blocks = [torch.full((max(n, 1),), pattern, dtype=torch.uint8, device=device) for n in sizes for _ in range(2)]
        torch.cuda.synchronize(device)
        del blocks


def _mallopt(value: int) -> None:
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        ctypes.CDLL(None).mallopt(_M_PERTURB, value)


def _covered(job: Job, memory: LaunchMemory, storage: str) -> torch.Tensor:
    """bool [bytes of the whole block]: what some argument's elements cover."""
    block = memory.blocks[storage]
    mask = torch.zeros_like(block.whole)
    inside = mask[block.first : block.first + block.described.bytes]
    for argument in job.arguments:
        if argument.storage != storage or memory.views[argument.name].numel() == 0:
            continue
        item = argument.dtype.itemsize
        row = inside[argument.offset * item :]
        shape, stride = (*argument.shape, item), (*(step * item for step in argument.stride), 1)
        fill(torch.as_strided(row, shape, stride, row.storage_offset()), torch.ones(shape, dtype=torch.uint8))
    return mask.bool()


def _changed(block: Block, before: torch.Tensor, covered: torch.Tensor, extents: list[Extent]) -> Iterator[Access]:
    changed = ((block.whole != before) & ~covered).nonzero().reshape(-1).cpu()
    begin, end = block.first, block.first + block.described.bytes
    zones: tuple[tuple[Zone, torch.Tensor], ...] = (
        ("before", changed[changed < begin]),
        ("between", changed[(changed >= begin) & (changed < end)]),
        ("past", changed[changed >= end]),
    )
    for zone, bytes_ in zones:
        if not bytes_.numel():
            continue
        first, last = int(bytes_[0]), int(bytes_[-1])
        own = [e for e in extents if e.storage_begin == block.whole.data_ptr() + begin]
        access = Access(
            "guard",
            "overrun",
            zone,
            argument=block.described.name,
            bytes=int(bytes_.numel()),
            reach={"before": begin - first, "between": 0, "past": last - end + 1}[zone],
        )
        yield placed(access, block.whole.data_ptr() + (last if zone == "before" else first), own or extents)


def _dependent(job: Job, one: Poisoned, other: Poisoned) -> Iterator[Access]:
    for output in job.outputs:
        mine, theirs = one.tensors[output.name], other.tensors[output.name]
        if mine.shape != theirs.shape:
            yield Access("pattern", UNINITIALISED, "the shape", argument=output.name)
            continue
        unequal = unequal_bits(mine, theirs)
        unequal &= ~(_is_pattern(mine, one.pattern) & _is_pattern(theirs, other.pattern))
        if isinstance(output, Result):
            unequal |= _is_pattern(mine, one.pattern) & _is_pattern(theirs, other.pattern)
        count = int(unequal.sum())
        if count:
            index = index_of(int(unequal.nonzero()[0]), tuple(mine.shape))
            yield Access(
                "pattern",
                UNINITIALISED,
                argument=output.name,
                element=sum(at * step for at, step in zip(index, output.stride, strict=True)),
                elements=mine.numel(),
                bytes=mine.element_size(),
                count=count,
                notes=(f"at {index} {mine[index].item()} and {theirs[index].item()} with two fill patterns",),
            )


def _left_alone(job: Job, one: Poisoned, other: Poisoned) -> Iterator[str]:
    for argument in job.arguments:
        if argument.role != "out":
            continue
        mine, theirs = one.tensors[argument.name], other.tensors[argument.name]
        count = int((_is_pattern(mine, one.pattern) & _is_pattern(theirs, other.pattern)).sum())
        if count:
            yield f"{argument.name}: {count} of {mine.numel()} elements were not written"


def _is_pattern(tensor: torch.Tensor, pattern: int) -> torch.Tensor:
    """bool [numel]: which elements hold the pattern."""
    row = tensor.contiguous().reshape(-1)
    expected = pattern if tensor.dtype != torch.bool else int(pattern == NAN)
    return (row.view(torch.uint8).reshape(row.numel(), row.element_size()) == expected).all(dim=1)
