"""The call stacks in a core file: gdb unwinds them, and its output is parsed here.

gdb prints addresses alone. Their functions and lines are looked up as those of a process that died are.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.native.core_file import CoreFile
from aoti_debug.base.native.crash_stacks import MappedCode, Stack, symbolize

_SECONDS = 300
_MOST_FRAMES = 128
_INSTRUCTION, _REGISTERS, _STACKS = "aoti-debug instruction", "aoti-debug registers", "aoti-debug stacks"
_THREAD = re.compile(r"Thread \d+ \(.*?LWP (\d+)\)")
_FRAME = re.compile(r"pc 0x([0-9a-f]{1,16}) sp 0x([0-9a-f]{1,16})")
_REGISTER = re.compile(r"(\w+) +0x([0-9a-f]{1,16})\b")
_OPERAND = re.compile(r"(-?0x[0-9a-f]+)?\((%\w+)?(?:,(%\w+)(?:,([1248]))?)?\)")  # of x86-64, as gdb writes it
_NO_ACCESS = ("lea", "nop", "prefetch")
_QUIET = (
    *("set debuginfod enabled off", "set auto-load no", "set demangle-style none"),
    *("set pagination off", "set width 0", "set confirm off"),
)
_COMMANDS = (
    f"echo \\n{_INSTRUCTION}\\n",
    "x/i $pc",
    f"echo \\n{_REGISTERS}\\n",
    "info registers",
    f"echo \\n{_STACKS}\\n",
    f'thread apply all -s frame apply {_MOST_FRAMES} -q -s printf "pc %#lx sp %#lx\\n", $pc, $sp',
)


@dataclass(frozen=True)
class Unwound:
    """The output of gdb for a core file.

    Attributes:
        stacks: the addresses of the frames of each thread, innermost first, by its id. Functions that are inlined have
            no frame of their own.
        instruction: at which the process ended, with its operands; "" if gdb did not show it.
        registers: of the thread that gdb began with: that of the signal.
    """

    stacks: Mapping[int, tuple[int, ...]]
    instruction: str
    registers: Mapping[str, int]

    @property
    def accessed(self) -> int | None:
        """The address of the memory operand of the instruction; None if it has none, or several registers' worth."""
        name, _, operands = self.instruction.partition(" ")
        found = list(_OPERAND.finditer(operands))
        if len(found) != 1 or name.startswith(_NO_ACCESS):
            return None
        displacement, base, index, scale = found[0].groups()
        names = [register.removeprefix("%") for register in (base, index) if register]
        if not names or any(register not in self.registers for register in names):
            return None  # a vector register: every element has an address of its own
        address = int(displacement or "0", 16) + (self.registers[base.removeprefix("%")] if base else 0)
        if index:
            address += self.registers[index.removeprefix("%")] * int(scale or "1")
        return address % (1 << 64)


def parse(text: str) -> Unwound:
    """Parses what gdb has printed; without its marks the result is empty."""
    _, _, rest = text.partition(f"\n{_INSTRUCTION}\n")
    instruction, _, rest = rest.partition(f"\n{_REGISTERS}\n")
    registers, _, threads = rest.partition(f"\n{_STACKS}\n")
    shown = next((line for line in instruction.splitlines() if line.startswith("=>")), "")
    values = {match[1]: int(match[2], 16) for line in registers.splitlines() if (match := _REGISTER.match(line))}
    return Unwound(_frames(threads.splitlines()), " ".join(shown.rpartition(":\t")[2].split()), values)


def _frames(lines: Iterable[str]) -> dict[int, tuple[int, ...]]:
    frames: dict[int, list[tuple[int, int]]] = {}
    current: list[tuple[int, int]] = []
    for line in lines:
        if match := _THREAD.match(line):
            current = frames.setdefault(int(match[1]), [])
        elif match := _FRAME.fullmatch(line.strip()):
            frame = int(match[1], 16), int(match[2], 16)
            if not current or current[-1] != frame:  # else it is inlined in the next one
                current.append(frame)
    return {thread: tuple(pc for pc, _ in found) for thread, found in frames.items()}


def unwind(core: CoreFile) -> Unwound:
    """Has gdb unwind the stacks of a core file.

    Raises:
        ToolchainError: there is no gdb, or it fails.
        ArtifactError: the program that was started is gone, or another file lies in its place.
    """
    gdb = shutil.which("gdb")
    if gdb is None:
        raise ToolchainError(
            f"gdb was not found on PATH; it reads the call stacks of {core.path}",
            hint="install it: apt install gdb, dnf install gdb",
        )
    executable = _executable(core)
    folders = ":".join(dict.fromkeys(str(file.parent) for file in core.replacements.values()))
    found_in = [f"set solib-search-path {folders}"] if folders else []
    words = [gdb, "-nx", "-batch"]
    words += chain.from_iterable(("-iex", command) for command in (*_QUIET, *found_in))
    words += chain.from_iterable(("-ex", command) for command in _COMMANDS)
    try:
        done = child_process.run([*words, str(executable), str(core.path)], timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"gdb cannot read {core.path}: {error}") from error
    unwound = parse(done.stdout)
    if not unwound.stacks:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it printed no stack")
        raise ToolchainError(f"gdb cannot read {core.path}: {last}", hint=f"gdb {executable} {core.path}")
    return unwound


def _executable(core: CoreFile) -> Path:
    """The program that was started.

    Raises:
        ArtifactError: it is gone, or another file lies in its place.
    """
    path = core.executable
    if path is None:
        raise ArtifactError(f"{core.path} does not name the program that was started")
    hint = "read the core on the machine and with the files of the process"
    try:
        same = core.is_of(str(path), path)
    except OSError as error:
        raise ArtifactError(
            f"{path}, the program of {core.path}, cannot be read: {error.strerror}", hint=hint
        ) from error
    if same is False:
        raise ArtifactError(f"{path} is not the program of {core.path}: their contents differ", hint=hint)
    return path


def symbolized(core: CoreFile, unwound: Unwound) -> tuple[Stack, ...]:
    """The stacks with functions and lines; first that of the thread that received the signal."""
    known = [MappedCode(m.start, m.end, m.offset, _file(core, m.path)) for m in core.mappings]
    # A return address may belong to the next line or function already.
    stacks = {
        thread: (addresses[0], *(address - 1 for address in addresses[1:]))
        for thread, addresses in unwound.stacks.items()
        if addresses
    }
    resolved = symbolize(set(chain.from_iterable(stacks.values())), known)
    first = core.threads[0] if core.threads else -1
    return tuple(
        Stack(
            thread,
            core.signal.name if thread == first else "",
            core.signal.address if thread == first else None,
            tuple(chain.from_iterable(resolved[address] for address in stacks[thread])),
        )
        for thread in _in_order(stacks, first)
    )


def _in_order(threads: Iterable[int], first: int) -> Sequence[int]:
    return sorted(threads, key=lambda thread: (thread != first, thread))


def _file(core: CoreFile, path: str) -> str:
    """The file to look up functions in: a replaced one where the process's own is gone."""
    return str(core.replacements.get(path, path))
