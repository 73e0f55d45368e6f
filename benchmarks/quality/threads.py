"""Calls a model with planted shared state from several threads, and looks whether `aoti-debug run --threads` finds it.

usage: python -m benchmarks.quality.threads [--runs N] [--threads N] [--calls N] [--rows N] [--reduce] [FAULT ...]

The operators of threads_ops.cpp share state between threads as a variable of the environment says, each fault in its
own way; some look similar and are right. One model has all of them; it is built once. Every fault is looked for in N
runs without delays and N with delays of another seed each (`--jitter`). Prints a Markdown table: in how many runs a
call was wrong, which launch differed first, and with --reduce the smallest set of launches whose delays show it. Exit
code 1: a right model was blamed, or a launch was named that neither shares state nor reads what is shared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.bisect.threaded_calls import (
    ThreadSession,
    ThreadsOptions,
    call_from_threads,
    compared,
    is_wrong,
    recorded_by_default,
)
from aoti_debug.compare.bisect.threads_text import delay_lines
from aoti_debug.compare.diff.repeated_calls import beside
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir.threads_json import Jitter, WeightUpdates
from benchmarks.markdown import table

SOURCE = Path(__file__).parent / "threads_ops.cpp"
STORE, LOAD, TOUCH = "planted::store.default", "planted::load.default", "planted::touch.default"
STALL = 8.0  # seconds without a launch, after which a run has hung


@dataclass(frozen=True)
class Fault:
    """A way in which the operators share state.

    Attributes:
        launches: the beginnings of the kernels that share it, or that read what is shared.
        needs_beside: a launch of them runs beside the one that is wrong; not where each thread has a state of its own.
        runners, updates: how the model is called, if the fault shows in no other way.
    """

    launches: tuple[str, ...] = (STORE,)
    needs_beside: bool = True
    runners: int | None = None
    updates: WeightUpdates = WeightUpdates.NONE


FAULTS = {
    "scratch": Fault(),
    "static tensor": Fault(),
    "free buffer": Fault(),
    "file": Fault(),
    "lazy": Fault(),
    "cache": Fault(),
    "map": Fault(),
    "replaced table": Fault(),
    "packed weight": Fault((TOUCH,), updates=WeightUpdates.EQUAL),
    "counter": Fault(),
    "atomic sum": Fault(),
    "generator": Fault(),
    "torch's generator": Fault(),
    "default dtype": Fault(),
    "denormals": Fault(needs_beside=False),
    "OpenMP threads": Fault(needs_beside=False),
    "worker": Fault(),
    "kept pointer": Fault((LOAD, STORE)),
    "global": Fault((LOAD, STORE)),
    "alias": Fault((STORE, LOAD, "cpp_fused_sin")),
    "ring": Fault((LOAD, "cpp_fused__softmax")),
    "weight": Fault((TOUCH, "cpp_fused_mul", "cpp_fused__softmax")),
    "lock order": Fault((STORE, LOAD)),
    "permits": Fault((TOUCH, STORE)),
    "batch": Fault(runners=2, needs_beside=False),
}
HIDDEN = {  # which show with delays, or perturbed memory, alone
    "slow call": Fault((LOAD, STORE)),
    "freed memory": Fault(needs_beside=False),
}
ALL = {**FAULTS, **HIDDEN}
RIGHT = (
    "none",
    "mutex",
    "thread_local",
    "safe static",
    "atomic counter",
    "own generator",
    "denormals of the call",
    "file of the thread",
    "locks in order",
)


class Model(torch.nn.Module):
    """Launches that read the weight stand before and behind the operator that may write to it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(64, 64)
        self.register_buffer("weight", torch.linspace(0.5, 2, 64))
        self.weight: torch.Tensor

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        stored = torch.ops.planted.store(torch.relu(self.linear(x)))
        middle = torch.cumsum(torch.sin(stored), -1) * self.weight
        touched = torch.ops.planted.touch(middle, self.weight)
        loaded = torch.ops.planted.load(touched, stored)
        return torch.softmax(loaded + self.weight, -1).square().sum(-1), loaded


@dataclass
class Found:
    """What the runs of one fault have shown.

    Attributes:
        without, with_delays: runs in which a call was wrong, or that failed.
        named: how often each launch was the first that differs, or in which the run failed.
        other: how often a launch was named that shares no state.
        beside: how often one that does ran beside the launch that was named.
        failed: runs that crashed or hung.
        unrepeatable: the calls alone already differ.
    """

    without: int = 0
    with_delays: int = 0
    named: Counter[str] = field(default_factory=Counter)
    other: int = 0
    beside: int = 0
    failed: int = 0
    unrepeatable: bool = False
    delays: str = ""

    def is_found(self, fault: Fault) -> bool:
        """True if the launch was named, none but those that share state, and what ran beside it."""
        return bool(self.named) and not self.other and (self.beside > 0 or not fault.needs_beside)


def inputs(rows: int) -> torch.Tensor:
    return torch.linspace(-1, 1, rows * 64).reshape(rows, 64)


def library(folder: Path) -> Path:
    """The operators, compiled."""
    toolchain = Toolchain(find_compiler(), find_torch())
    root = toolchain.torch.directory
    words = ["-std=c++20", "-O1", "-w", "-fPIC", "-shared", f"-I{root}/include"]
    words += [f"-I{root}/include/torch/csrc/api/include", str(SOURCE), f"-L{root}/lib", f"-Wl,-rpath,{root}/lib"]
    words += ["-ltorch_cpu", "-lc10", "-ltorch", "-o", str(folder / "threads_ops.so")]
    toolchain.run([toolchain.compiler.path, *words], f"{SOURCE.name} does not compile")
    return folder / "threads_ops.so"


def build(folder: Path) -> tuple[Path, UserCode]:
    """The instrumented package, and its operators."""
    operators = library(folder)
    torch.ops.load_library(operators)
    rows = {"x": {0: torch.export.Dim("rows", max=1024)}}
    program = torch.export.export(Model().eval(), (inputs(1024),), dynamic_shapes=rows)
    torch.export.save(program, folder / "model.pt2")
    package = builder.build(folder / "model.pt2", output=folder / "planted.pt2", libraries=(operators,))
    return package, UserCode(libraries=(operators,))


def take_into_account(found: Found, fault: Fault, session: ThreadSession, jitter: Jitter | None) -> None:
    """Makes the calls from threads once."""
    result = session.called(jitter)
    wrong = is_wrong(result)
    found.without += wrong and jitter is None
    found.with_delays += wrong and jitter is not None
    if result.verdict is not None:
        found.failed += 1
        pairs = [(guilty, beside(result.run, guilty)) for guilty in result.verdict.suspects]
    else:
        firsts = [call.first for call in compared(session.alone, result).wrong if call.first is not None]
        pairs = [(first.launch, [one.launch for one in first.beside]) for first in firsts]
    for launch, others in pairs:
        found.named[launch.kernel] += 1
        found.other += not launch.kernel.startswith(fault.launches)
        found.beside += any(one.kernel.startswith(fault.launches) for one in others)


def look_for(fault: Fault, options: ThreadsOptions, runs: int, *, reduces: bool) -> Found:
    """Runs one fault without and with delays."""
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        session = ThreadSession(options, Path(folder), None)
        found.unrepeatable = bool(session.unrepeatable())
        for jitter in () if found.unrepeatable else (None,) * runs + tuple(map(Jitter, range(runs))):
            take_into_account(found, fault, session, jitter)
    if reduces and not found.unrepeatable:
        for seed in range(runs):
            delays = call_from_threads(replace(options, jitter=Jitter(seed))).delays
            if delays is not None and not delays.wrong_without:
                found.delays = " ".join(line.strip() for line in delay_lines(delays))
                break
    return found


def rows(found: dict[str, Found], runs: int) -> Iterator[list[str]]:
    for fault, one in found.items():
        named = ", ".join(f"{kernel} {count}" for kernel, count in one.named.most_common(3)) or "-"
        outcome = "right" if fault in RIGHT else "found" if one.is_found(ALL[fault]) else "missed"
        outcome += ": differs alone" if one.unrepeatable else ""
        counts = [f"{count} of {runs}" for count in (one.without, one.with_delays)]
        yield [fault, *counts, str(one.failed), named, str(one.beside), str(one.other), outcome, one.delays]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", choices=[*ALL, *RIGHT, []], metavar="FAULT")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--calls", type=int, default=16)
    parser.add_argument("--rows", type=int, default=1024, help="of the input, up to 1024: how long a call takes")
    parser.add_argument("--reduce", action="store_true")
    chosen = parser.parse_args()
    found: dict[str, Found] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        python_process.forking_from(PRELOADED, (), read_late=("PLANTED",)) as server,
    ):
        package, code = build(Path(folder))
        server.preload()
        torch.save((inputs(chosen.rows),), Path(folder) / "inputs.pt")
        for fault in chosen.faults or (*FAULTS, *RIGHT):
            run = RunOptions(
                package,
                inputs=Path(folder) / "inputs.pt",
                out=Path(folder) / "runs",
                calls=chosen.calls,
                user_code=code,
                environment={"PLANTED": fault},
                stall=STALL,
            )
            kind = ALL.get(fault, Fault(()))
            options = ThreadsOptions(
                run=recorded_by_default(run), threads=chosen.threads, runners=kind.runners, updates=kind.updates
            )
            found[fault] = look_for(kind, options, chosen.runs, reduces=chosen.reduce and fault in ALL)
            print(fault, found[fault], file=sys.stderr, flush=True)
    header = ("planted", "without delays", "with delays", "crashed or hung", "launch that is named", "beside it")
    table((*header, "others named", "outcome", "delays"), list(rows(found, chosen.runs)))
    planted = [fault for fault in found if fault in ALL]
    print(f"{sum(found[fault].is_found(ALL[fault]) for fault in planted)} of {len(planted)} found")
    blamed = [fault for fault, one in found.items() if one.other or (fault in RIGHT and one.without + one.with_delays)]
    return 1 if blamed else 0


if __name__ == "__main__":
    sys.exit(main())
