"""Runs a repro in the modes that this machine has, and reads its evidence file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.processes.child_process import FinishedProcess
from aoti_debug.base.machine.processes.python_process import PythonCommand
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import KernelCompilation, Kind
from aoti_debug.repro.templates.accesses import CodeLine, LoadedIndex

FAILED = "failed"


@dataclass(frozen=True)
class Mode:
    """A way of running a repro.

    Attributes:
        name: "jit", "checked", "memcheck", "poison", …
        words: the options that ask for it.
        missing: the reason why it cannot be run here; "" if it can.
    """

    name: str
    words: tuple[str, ...]
    missing: str = ""


@dataclass(frozen=True)
class Machine:
    """The tools that repros need, each with the reason why it is missing; "" where it is installed."""

    cuda: str = ""
    triton: str = ""
    compute_sanitizer: str = ""
    compiler: str = ""
    address_sanitizer: str = ""


def this_machine(compiler: KernelCompilation, *, cuda: bool) -> Machine:
    """Looks for the tools on this machine.

    Args:
        compiler: of the package.
        cuda: True if torch finds a CUDA device here.
    """
    from aoti_debug.repro.templates import sanitizers

    program = compiler.command if shutil.which(compiler.command) else Path(compiler.command).name
    no_compiler = "" if program and shutil.which(program) else f"{compiler.command or 'a C++ compiler'} was not found"
    return Machine(
        cuda="" if cuda else "torch finds no CUDA device here",
        triton="" if find_spec("triton") is not None else "triton is not installed",
        compute_sanitizer=_missing_reason(sanitizers.find_compute_sanitizer),
        compiler=no_compiler,
        address_sanitizer=no_compiler or _missing_reason(lambda: sanitizers.runtime_of(program)),
    )


def modes(kind: Kind, device: str, machine: Machine) -> tuple[Mode, ...]:
    """The ways to look for a fault of a launch, those that say most first.

    Args:
        kind: of the launch.
        device: that it ran on: "cpu", "cuda".
    """
    cuda = device != "cpu"
    no_sanitizer = machine.cuda or machine.compute_sanitizer
    watched = [Mode(tool, ("--sanitize", tool), no_sanitizer) for tool in ("memcheck", "initcheck")]
    poison = Mode("poison", ("--poison",), machine.cuda if cuda else "")
    replay = traits_of(kind).replay
    if replay == "triton":
        device_needs = machine.triton or machine.cuda
        return (
            Mode("interpret", ("--backend", "interpret"), machine.triton),
            Mode("cubin", ("--backend", "cubin"), device_needs),
            Mode("jit", ("--backend", "jit"), device_needs),
            *(Mode(m.name, m.words, machine.triton or m.missing) for m in watched),
            Mode("poison", ("--poison",), device_needs),
        )
    if replay == "cpp":
        return (
            Mode("checked", ("--backend", "checked"), machine.compiler),
            Mode("native", ("--backend", "native"), machine.compiler),
            Mode("address", ("--sanitize",), machine.address_sanitizer),
            Mode("poison", ("--poison",), machine.compiler),
        )
    return (Mode("operator", (), machine.cuda if cuda else ""), *(watched if cuda else ()), poison)


def _missing_reason(find: Callable[[], object]) -> str:
    """The reason why a tool is missing, in the words of the repro's modules; "" if it is there."""
    try:
        find()
    except SystemExit as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class SeenAccess:
    """One wrong access, or the first of several that are alike.

    Attributes:
        kind: "load", "store", "read", "write", "atomic", "access", "uninitialised read", "overrun", "index",
            "assertion", "division", "race", "undefined behaviour"; "" where the tool does not say.
        what: in the tool's own words; the message of an assertion; what is wrong with a division.
        argument: of the launch; "" where the address belongs to none.
        parameter: the kernel's own name of it; "" where it is the same.
        element: from the argument's first element, in memory; None where it is none in particular.
        elements: of the argument, gaps included; for "index" the size of the dimension.
        beyond: elements outside: > 0 past the end, < 0 before the beginning.
        program: of a Triton kernel's grid.
        count: how many are alike.
        source: the line that it came from; its file is the script, or "SOURCE" for the C++ source in that.
        index: the integer tensor element that an out-of-bounds address, or a divisor, was computed from.
    """

    kind: str
    what: str
    argument: str
    parameter: str
    element: int | None
    elements: int
    beyond: int
    bytes: int
    program: tuple[int, int, int] | None
    count: int
    source: CodeLine | None
    index: LoadedIndex | None


@dataclass(frozen=True)
class Evidence:
    """The evidence file of a repro; docs/repro.md describes each key.

    Attributes:
        title: "0.3 cpp_fused_relu_1"
        mode: "jit", "cubin", "interpret", "native", "checked"; "operator" where no kernel is the launch's own.
        option: "repeat", "sanitize", "poison", "bench", "reduce"; "" for none.
        sanitize: "memcheck", "racecheck", "initcheck"; "" for none.
        outcome: "as recorded", "differs", "fault", "no fault", "failed".
        code: the script's exit code.
        what: one line: what the launch ended in, what was seen first, or why it failed; "" where all is well.
        lines: what it printed.
    """

    title: str
    mode: str
    option: str
    sanitize: str
    outcome: str
    code: int
    what: str
    accesses: tuple[SeenAccess, ...]
    lines: tuple[str, ...]


def gather(repro: Path, mode: Sequence[str] = (), timeout: float = 600.0) -> Evidence:
    """Runs a repro in a process of its own. Whatever goes wrong with that is evidence, too: it "failed".

    Args:
        repro: its folder, or the script.
        mode: options: `Mode.words`.
        timeout: seconds; then it is killed, with what it started.
    """
    script = repro / "repro.py" if repro.is_dir() else repro
    with tempfile.TemporaryDirectory(prefix="aoti-debug-evidence-") as folder:
        path = Path(folder) / "evidence.json"
        command = PythonCommand(script=str(script), arguments=(*mode, "--evidence", str(path)))
        try:
            with python_process.start(command, os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
                ended = child_process.finished(child, timeout)
        except subprocess.TimeoutExpired:
            return _failed(script, mode, -signal.SIGKILL, f"no end within {timeout:g} s", "")
        except OSError as error:
            return _failed(script, mode, 1, f"it cannot be started: {error.strerror}", "")
        try:
            return json_data.parse(Evidence, path.read_bytes())
        except FileNotFoundError:
            return _failed(script, mode, ended.code, _ending(ended), ended.stdout)
        except (OSError, json_data.DamagedJsonError) as error:
            return _failed(script, mode, ended.code, f"its evidence cannot be read: {error}", ended.stdout)


def _ending(ended: FinishedProcess) -> str:
    last = next((line for line in reversed(ended.stdout.splitlines()) if line.strip()), "")
    return child_process.fatal_signal(ended.code) or last.strip() or child_process.describe_exit(ended.code)


def _failed(script: Path, mode: Sequence[str], code: int, what: str, said: str) -> Evidence:
    words = list(mode)
    backend = words[words.index("--backend") + 1] if "--backend" in words[:-1] else ""
    option = next((word.removeprefix("--") for word in words if word in _OPTIONS), "")
    return Evidence(
        title=script.parent.name,
        mode=backend,
        option=option,
        sanitize=_tool(words),
        outcome=FAILED,
        code=code,
        what=what,
        accesses=(),
        lines=tuple(said.splitlines()),
    )


_OPTIONS = ("--repeat", "--sanitize", "--poison", "--bench", "--reduce")


def _tool(words: Sequence[str]) -> str:
    if "--sanitize" not in words:
        return ""
    after = [*words, ""][words.index("--sanitize") + 1]
    return after if after and not after.startswith("-") else "memcheck"
