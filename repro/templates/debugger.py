"""`--debugger`: the launch under gdb or cuda-gdb, stopped at the kernel; the files of commands that they execute."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import torch

from . import verdict
from .child import ReplayReport, run_child
from .cpp_build import build_directory
from .cpp_kernel import CHECKED, CppKernel
from .job import AS_RECORDED, Job
from .kernel import ReplayKernel
from .memory import LaunchMemory
from .options import Options
from .sanitizers import find_cuda_program

# A wrong access is reported some instructions after the one that made it: $errorpc is that one, and void on the host.
_FAULTING_INSTRUCTION = ("set $fault = $pc", "if !$_isvoid($errorpc)", "  set $fault = $errorpc", "end")
TRIAL = "debugger "  # a process's --trial; what follows is how a C++ kernel is compiled
PLAIN, OPTIMISED = "plain", "optimised"
FLAGS = {PLAIN: ("-g3", "-O0"), OPTIMISED: ("-g3",)}
VALUES = 8  # first elements that are shown


@dataclass(frozen=True)
class Breakpoint:
    """Where a debugger stops.

    Attributes:
        title: "0.3 cpp_fused_relu_1".
        function: the kernel, as its machine code names it.
        names: variables of the debugger by the kernel's parameter, see `variables`: {"in_ptr0": "arg_buf3"} makes
            $arg_buf3 of in_ptr0.
        block, thread: of a CUDA kernel, those that a sanitizer or the interpreter has named; None: not known.
    """

    title: str
    function: str
    names: Mapping[str, str] = field(default_factory=dict)
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None


def kernel_variables(arguments: Mapping[str, str]) -> dict[str, str]:
    """The debugger's variable by the kernel's parameter, "arg_" and the argument's name: $sp alone is a register.

    Args:
        arguments: the argument by parameter. Names that are equal in gdb's letters are numbered.
    """
    named: dict[str, str] = {}
    for parameter, argument in arguments.items():
        plain = unique = "arg_" + re.sub(r"\W", "_", argument, flags=re.ASCII)
        n = 2
        while unique in named.values():
            unique, n = f"{plain}_{n}", n + 1
        named[parameter] = unique
    return named


def gdb_commands(stop: Breakpoint, *, batch: bool) -> str:
    """The commands of gdb for a C++ kernel.

    Args:
        batch: continue to the end or the fault, show where that is, and leave.
    """
    lines = [
        *_settings(batch=batch),
        f"break {stop.function}",
        "run",
        *_unless_ended(batch=batch),
        *(f"set ${name} = {parameter}" for parameter, name in stop.names.items()),
        f"echo \\n{stop.title}: stopped at the kernel; its arguments are listed above\\n",
        *([f"echo in gdb they are {_listed(stop.names)}\\n"] if stop.names else []),
        "tcatch throw",
    ]
    if batch:
        lines += ["continue", *_at_the_end(("bt 8", "info locals"))]
    else:
        lines += [f"echo continue runs it; a crash or an exception stops it again{_example(stop.names)}\\n"]
    return _text(f"gdb -x FILE --args python repro.py --here, for {stop.title}", lines)


def cuda_commands(stop: Breakpoint, *, batch: bool) -> str:
    """The commands of cuda-gdb for a Triton kernel.

    Args:
        batch: as for `gdb_commands`.
    """
    wanted = [] if stop.block is None else [f"blockIdx.{a} == {n}" for a, n in zip("xyz", stop.block, strict=True)]
    condition = f" if {' && '.join(wanted)}" if wanted else ""
    focus = f"cuda block {_triple(stop.block)} thread {_triple(stop.thread or (0, 0, 0))}" if stop.block else ""
    place = f" in block {_triple(stop.block)}" if stop.block else ""
    lines = [
        *_settings(batch=batch),
        "set environment CUDA_LAUNCH_BLOCKING 1",
        f"break {stop.function}{condition}",
        "run",
        *_unless_ended(batch=batch),
        f"echo \\n{stop.title}: stopped at the kernel{place}; its arguments are listed above\\n",
        *([focus] if focus else []),
        "info cuda kernels",
        "x/i $pc",
    ]
    if batch:
        lines += [
            "delete",
            "continue",
            *_at_the_end(("info cuda kernels", *_FAULTING_INSTRUCTION, "info line *$fault", "x/i $fault", "bt 4")),
        ]
    else:
        lines += [
            "echo continue runs it; a wrong access stops it again, in the thread that made it\\n",
            "echo cuda block 1,0,0 thread 32,0,0 goes to another thread; delete removes the breakpoint\\n",
        ]
    return _text(f"cuda-gdb -x FILE --args python repro.py --here, for {stop.title}", lines)


def _settings(*, batch: bool) -> list[str]:
    """Lines for every debugger: ask nothing, wait for libraries that are loaded later."""
    quiet = ["set pagination off"] if batch else []
    return [*quiet, "set confirm off", "set breakpoint pending on", "set print thread-events off", "set width 0"]


def _unless_ended(*, batch: bool) -> list[str]:
    """Lines that say that the process ended before the kernel, and leave with exit code 1."""
    leave = ["  quit 1"] if batch else []
    return [
        "if !$_isvoid($_exitcode) || !$_isvoid($_exitsignal)",
        "  echo the process ended before the kernel\\n",
        *leave,
        "end",
    ]


def _at_the_end(shown: tuple[str, ...]) -> list[str]:
    """Lines that leave with the process's exit code, or show where it stopped and leave with 11."""
    fault = ["  echo \\nthe fault:\\n", *(f"  {command}" for command in shown), "  kill", "  quit 11"]
    return [
        "if !$_isvoid($_exitcode)",
        "  quit $_exitcode",
        "end",
        "if $_isvoid($_exitsignal)",
        *fault,
        "end",
        "quit 11",
    ]


def _listed(names: Mapping[str, str]) -> str:
    return ", ".join(f"${name}" for name in names.values())


def _example(names: Mapping[str, str]) -> str:
    return f"; print *${next(iter(names.values()))}@8 shows elements" if names else ""


def _triple(numbers: tuple[int, int, int]) -> str:
    return ",".join(map(str, numbers))


def _text(title: str, lines: list[str]) -> str:
    return "\n".join([f"# {title}", *lines]) + "\n"


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
            block, thread = verdict.stopped_in(job.folder, kernel.grid, options.programs)
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
    return kernel_variables({parameter: name for name, parameter in _parameters(job, kernel, views).items()})


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
