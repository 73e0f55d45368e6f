"""The command files of gdb and cuda-gdb: they run a launch up to its kernel and stop there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# A wrong access is reported some instructions after the one that made it: $errorpc is that one, and void on the host.
_FAULTING_INSTRUCTION = ("set $fault = $pc", "if !$_isvoid($errorpc)", "  set $fault = $errorpc", "end")


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


def variables(arguments: Mapping[str, str]) -> dict[str, str]:
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
