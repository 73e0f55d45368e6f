"""`--debugger`: the launch under gdb or cuda-gdb, stopped at the kernel."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import torch

from . import guilty_program, verdict
from .child import ReplayReport, run_child
from .compute_sanitizer import find_cuda_program
from .cpp_build import build_directory
from .cpp_kernel import CHECKED, CppKernel
from .debugger_commands import Breakpoint, cuda_commands, gdb_commands, variables
from .job import AS_RECORDED, Job
from .kernel import ReplayKernel
from .memory import LaunchMemory
from .options import Options

TRIAL = "debugger "  # a process's --trial; what follows is how a C++ kernel is compiled
PLAIN, OPTIMISED = "plain", "optimised"
FLAGS = {PLAIN: ("-g3", "-O0"), OPTIMISED: ("-g3",)}
VALUES = 8  # first elements that are shown


def debugger(job: Job, options: Options) -> NoReturn:
    """Becomes the debugger; where standard input is no terminal, it runs the command file to its end.

    Raises:
        SystemExit: no debugger is installed, or none can run this launch.
    """
    batch = not sys.stdin.isatty()
    kernel = job.kernel
    if isinstance(kernel, CppKernel):
        program = shutil.which("gdb")
        if program is None:
            raise SystemExit(f"{job.title}: gdb was not found on PATH; install it: apt install gdb, dnf install gdb")
        if options.backend == CHECKED:
            raise SystemExit(f"{job.title}: the back end {CHECKED} needs no debugger; --backend native runs under gdb")
        compiled = _compilation(job, kernel, options)
        text = gdb_commands(Breakpoint(job.title, kernel.name, _variables(job, kernel)), batch=batch)
    elif kernel is not None and job.cuda_devices:
        try:
            block, thread = guilty_program.stopped_in(job.folder, kernel.grid, options.programs)
        except ValueError as error:
            raise SystemExit(f"{job.title}: {error}") from error
        program = find_cuda_program("cuda-gdb")
        if program is None:
            raise SystemExit(
                f"{job.title}: cuda-gdb was not found on PATH or in the CUDA toolkit; install the toolkit's cuda-gdb"
            )
        compiled = PLAIN
        text = cuda_commands(
            Breakpoint(job.title, kernel.function_name(options.backend), {}, block, thread), batch=batch
        )
    elif kernel is not None:
        raise SystemExit(
            f"{job.title}: the back end {options.backend} runs in Python; --backend jit runs under cuda-gdb"
        )
    else:
        raise SystemExit(
            f"{job.title}: it calls torch's own code, which has no kernel to stop at; "
            "gdb --args python repro.py --here runs it"
        )
    commands = build_directory(job.folder) / "debugger.gdb"
    commands.write_text(text, encoding="utf-8")
    whole = replace(options, programs=())  # --program names the block to stop in
    words = [*whole.words(), "--here", "--trial", f"{TRIAL}{compiled}"]
    _become(program, commands, words, batch=batch)


def trial(job: Job, options: Options, report: ReplayReport) -> int:
    """Lists the arguments, launches, and compares the results: what runs under the debugger."""
    job.prepare(replace(options.settings(job), flags=FLAGS[options.trial.removeprefix(TRIAL)]))
    memory = job.memory()
    assert job.kernel is not None
    for line in argument_lines(memory, _parameters(job, job.kernel, memory.views)):
        print(line)
    sys.stdout.flush()
    report.send("begin")
    tensors = job.run(memory)
    return AS_RECORDED if job.fault else verdict.judge(job, options, report, tensors)


def argument_lines(memory: LaunchMemory, parameters: Mapping[str, str]) -> list[str]:
    """The arguments as a table: parameter, name, dtype, shape, address, first values.

    Args:
        parameters: the kernel's parameter by argument.
    """
    rows = []
    for name, tensor in memory.views.items():
        shape = "x".join(map(str, tensor.shape)) or "1 element"
        dtype = str(tensor.dtype).removeprefix("torch.")
        values = f"[{', '.join(_first_values(tensor))}]"
        rows.append((parameters.get(name, ""), name, dtype, shape, f"{tensor.data_ptr():#x}", values))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(5)]
    columns = [[cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)] for row in rows]
    return ["arguments:", *(f"  {'  '.join(cells)}".rstrip() for cells in columns)]


def _first_values(tensor: torch.Tensor) -> list[str]:
    """The first elements, and "…" for the others; torch cannot list those of packed dtypes."""
    first, wanted = tensor.detach(), VALUES
    for axis in reversed(range(tensor.dim())):  # a view: to flatten a tensor with strides copies all of it
        first = first.narrow(axis, 0, min(tensor.shape[axis], wanted))
        wanted = -(-wanted // max(tensor.shape[axis], 1))
    try:
        values = first.reshape(-1)[:VALUES].tolist()
    except (RuntimeError, NotImplementedError):
        return ["…"]
    words = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in values]
    return [*words, "…"] if tensor.numel() > VALUES else words


def _compilation(job: Job, kernel: CppKernel, options: Options) -> str:
    """How to compile the kernel: without optimisation, unless a recorded fault does not come then."""
    kernel.build(replace(options.settings(job), flags=FLAGS[PLAIN]))
    if not job.fault:
        return PLAIN
    words = [*options.words(), "--here", "--trial", f"{TRIAL}{PLAIN}"]
    if run_child(words, text="kept").fault:
        return PLAIN
    print(
        f"{job.title}: the fault does not come without optimisation; the kernel is compiled as in the package, with -g"
    )
    return OPTIMISED


def _variables(job: Job, kernel: ReplayKernel) -> dict[str, str]:
    """The debugger's variable by parameter."""
    views = {
        a.name: torch.empty_strided(a.shape, a.stride, dtype=a.dtype, device="meta")
        for a in job.arguments  # nothing is launched with them
    }
    return variables({parameter: name for name, parameter in _parameters(job, kernel, views).items()})


def _parameters(job: Job, kernel: ReplayKernel, views: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The kernel's parameter by argument, as the launch passes them."""
    names = {id(tensor): name for name, tensor in views.items()}
    passed = kernel.passed_by(lambda: job.launch(**views))
    return {names[id(value)]: parameter for parameter, value in passed.items() if id(value) in names}


def _become(program: str, commands: Path, words: list[str], *, batch: bool) -> NoReturn:
    isolated = ["-I"] if sys.flags.isolated else []
    launched = [sys.executable, *isolated, os.path.abspath(sys.argv[0]), *words]
    print(f"{Path(program).name} with {commands}", flush=True)
    os.environ["DEBUGINFOD_URLS"] = ""  # gdb would ask whether to download debug information
    quiet = ["-q", "-iex", "set auto-load python-scripts off"]  # Python's own, which gdb would refuse at length
    if batch:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    arguments = [program, *quiet, *(["-batch"] if batch else []), "-x", str(commands), "--args", *launched]
    os.execv(program, arguments)
