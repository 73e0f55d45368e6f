"""`--reduce`: the smallest part of the launch that still shows its fault or its difference.

Programs of a Triton kernel's grid; rows of the arguments of an operator; of a C++ kernel rows whose number it takes as
an argument. Each trial runs in a process of its own, and its result is saved, so that an interrupted
reduction can be continued.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from .child import ChildExit, ReplayReport, run_child
from .compare import compare, unequal_bits
from .cpp_kernel import CppKernel
from .job import AS_RECORDED, DIFFERS, FAILED, FAULT, Job
from .options import Options
from .part import LaunchPart, Rows, write_reduced
from .shrink import smallest_count, smallest_set, smallest_window

STATE = "reduction"  # the folder of its state, in the repro's
WHOLE = "whole.pt"  # in the state's folder: the outputs of the whole launch


class Interrupts:
    """Remembers an interrupt while it is entered, and raises KeyboardInterrupt for it, as Python does."""

    def __init__(self) -> None:
        self._has_come = False
        self._before: signal._HANDLER = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raises KeyboardInterrupt if an interrupt has come."""
        if self._has_come:
            raise KeyboardInterrupt

    def _handle(self, *_: object) -> None:
        self._has_come = True
        raise KeyboardInterrupt


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


class ReductionTrials:
    """Runs parts in child processes, each part once."""

    def __init__(self, job: Job, options: Options, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.words = options.words()
        script = Path(sys.argv[0]).read_bytes()
        key = hashlib.sha256(script + json.dumps(self.words).encode()).hexdigest()[:16]
        self.folder = job.folder / STATE / key
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "trials.json"
        self.known: dict[str, str] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.asked = 0

    def shows(self, part: LaunchPart) -> str:
        """Returns the failure that a part shows; "" if none."""
        text = part.to_json()
        if text not in self.known:
            file = self.folder / "part.json"
            file.write_text(text)
            ended = run_child([*self.words, "--trial", str(file)], text="kept")
            if ended.failed:
                raise SystemExit(
                    f"{ended.text}\nthe replay of {part} failed before the launch ({ended.failure_reason})"
                )
            self.interrupts.check()
            self.known[text] = outcome(ended)
            self._save()
        self.asked += 1
        print(f"  {self.asked:3}  {part}: {self.known[text] or 'not shown'}", flush=True)
        return self.known[text]

    def _save(self) -> None:
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self.known))
        os.replace(unfinished, self.path)


def reduce(job: Job, options: Options) -> int:
    """Exits with 0 when it is done, with 1 when the whole launch shows nothing.

    Raises:
        SystemExit: this launch has no parts that could be tried.
    """
    axes = _axes(job)
    kernel = job.kernel
    parts = "none" if kernel is None else kernel.part(options.backend)
    if parts == "none" and not axes:
        raise SystemExit(f"{job.title} has no smaller part that could be tried: {_no_parts_reason(job, options)}")
    with Interrupts() as interrupts:
        return _reduce(job, options, ReductionTrials(job, options, interrupts), axes, parts)


def _reduce(job: Job, options: Options, trials: ReductionTrials, axes: Sequence[tuple[int, bool]], parts: str) -> int:
    kernel = job.kernel
    print(f"{job.title}: reducing; {len(trials.known)} earlier trials were read from {trials.path}")
    try:
        shown = trials.shows(LaunchPart())
        if not shown:
            print(f"{job.title}: nothing to reduce: the whole launch shows neither a fault nor a difference")
            return FAILED
        part = _programs(trials, shown, kernel.grid, parts) if kernel is not None and parts != "none" else LaunchPart()
        for size, scalars in axes:
            part = _rows(trials, shown, part, size, scalars=scalars)
    except KeyboardInterrupt:
        print(f"\ninterrupted; run the same command again to continue from {trials.path}")
        return FAILED
    _say(job, options, part, shown)
    return AS_RECORDED


def _programs(trials: ReductionTrials, shown: str, grid: tuple[int, ...], parts: str) -> LaunchPart:
    """The fewest programs, or the smallest grid, that show it."""
    if parts == "any":
        numbers = list(range(math.prod(grid)))
        return LaunchPart.of_programs(
            smallest_set(numbers, lambda some: trials.shows(LaunchPart.of_programs(some)) == shown)
        )
    least = list(grid)
    for axis in reversed(range(len(grid))):

        def holds(count: int, axis: int = axis) -> bool:
            smaller = (*least[:axis], count, *least[axis + 1 :])
            return trials.shows(LaunchPart(grid=smaller)) == shown

        least[axis] = smallest_count(least[axis], holds)
    return LaunchPart(grid=tuple(least)) if tuple(least) != tuple(grid) else LaunchPart()


def _rows(trials: ReductionTrials, shown: str, part: LaunchPart, size: int, *, scalars: bool) -> LaunchPart:
    """The fewest rows of one size that show it, beside what is reduced already."""

    def holds(begin: int, end: int) -> bool:
        return (begin, end) == (0, size) or trials.shows(part.with_rows(Rows(size, begin, end, scalars))) == shown

    begin, end = smallest_window(0, size, holds)
    return part if (begin, end) == (0, size) else part.with_rows(Rows(size, begin, end, scalars))


def _axes(job: Job) -> list[tuple[int, bool]]:
    """(rows, True if the call passes their number) that can be cut: those of index tensors before those of tables, of
    which fewer rows would make other indices wrong; then the largest first."""
    sized = [a for a in job.arguments if a.shape and a.shape[0] > 1]
    indices = {a.shape[0] for a in sized if not (a.dtype.is_floating_point or a.dtype.is_complex)}
    sizes = sorted({a.shape[0] for a in sized}, key=lambda size: (size not in indices, -size))
    if job.kernel is None:
        return [(size, False) for size in sizes]
    if not isinstance(job.kernel, CppKernel):
        return []
    numbers = set(_numbers(job))
    return [(size, True) for size in sizes if size in numbers]


def _numbers(job: Job) -> Iterator[int]:
    """The integers that the launch passes to a C++ kernel."""
    for found in re.finditer(r"ctypes\.c_u?int(?:32|64)?\((\d+)\)", inspect.getsource(job.launch)):
        yield int(found[1])


def _no_parts_reason(job: Job, options: Options) -> str:
    if job.kernel is None:
        return "no argument has more than one row"
    if isinstance(job.kernel, CppKernel):
        return "its kernel takes no number of rows as an argument: its sizes are constants of the source"
    return f"the back end {options.backend} runs its whole grid"


def _say(job: Job, options: Options, part: LaunchPart, shown: str) -> None:
    print(f"{job.title}: {shown}, still shown by {part}")
    if part.rows:
        folder = write_reduced(job, part, Path(sys.argv[0]))
        print(f"next: python {folder / 'repro.py'}")
    elif part.grid:
        print(f"next: write grid={tuple(part.grid)} in {sys.argv[0]}")
    elif part.programs and job.kernel is not None:
        chosen = part.chosen(job.kernel.grid)
        words = [word for program in chosen[:20] for word in ("--program", ",".join(map(str, program)))]
        backend = ["--backend", options.backend] if options.backend else []
        more = f"  (and {len(chosen) - 20} more programs)" if len(chosen) > 20 else ""
        print("next: " + " ".join(["python", sys.argv[0], *backend, *words]) + more)
