"""Core dumps of a GPU: cuda-gdb reads them, and its output is parsed here; the package says whose kernel it is.

The driver writes one if CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 is set (CUDA-GDB manual, "GPU core dump support").
"""

from __future__ import annotations

import re
import shlex
import subprocess
from itertools import chain
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.compiler import find_program
from aoti_debug.base.machine.processes import child_process
from aoti_debug.package.manifest import Kernel, Manifest, Site
from aoti_debug.runs.diagnosis.findings import FAULT, Finding, Place
from aoti_debug.runs.diagnosis.run_findings import device_error

_SECONDS = 600
_LANES = 32  # threads of a warp
_COMMANDS = ("info cuda kernels", r"x/8i $pc-32")
_FOCUS = re.compile(r"^\[Current focus set to .*?block (\([\d,]+\)), thread (\([\d,]+\))", re.MULTILINE)
_EXCEPTION = re.compile(r"^CUDA Exception: (.+)$", re.MULTILINE)
_PLACE = re.compile(r"^The exception was triggered at PC 0x[0-9a-f]+\s+(\S+)(?:\s+\((.+):(\d+)\))?", re.MULTILINE)
_FRAME = re.compile(r"^#0 .*? in (\S+?)<<<\(([\d,]+)\),\(([\d,]+)\)>>> .*?(?: at (.+):\d+)?$", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\*>?\s*0x[0-9a-f]+ <[^>]*>:\s+(.+)$", re.MULTILINE)
_CODES = {  # the ends of cuda-gdb's names, and the errors that the driver reports for them
    "Illegal Address": 700,
    "Out-of-range Address": 700,
    "Assert": 710,
    "Hardware Stack Overflow": 714,
    "Illegal Instruction": 715,
    "Misaligned Address": 716,
    "Invalid Address Space": 717,
    "Invalid PC": 718,
}
_ACCESSES = {
    "LDG": "a load from global memory",
    "STG": "a store to global memory",
    "LDS": "a load from shared memory",
    "STS": "a store to shared memory",
    "RED": "an atomic operation",
    "ATOM": "an atomic operation",
    "ATOMG": "an atomic operation on global memory",
    "ATOMS": "an atomic operation on shared memory",
}


@dataclass(frozen=True)
class GpuCore:
    """The exception that a GPU's core dump shows.

    Attributes:
        exception: in the words of cuda-gdb: "Warp Illegal Address".
        kernel: the function of the GPU; "" if it is not known.
        file, line: where in its source the exception was raised; "" and 0 if the binary does not tell.
        grid, block_size: "256,1,1"; "" if they are not known.
        block, thread: that cuda-gdb shows: "(100,0,0)".
        instruction: that raised it: "LDG.E R3,desc[UR8][R2.64]"; "" if it is not known.
    """

    exception: str
    kernel: str = ""
    file: str = ""
    line: int = 0
    grid: str = ""
    block_size: str = ""
    block: str = ""
    thread: str = ""
    instruction: str = ""


def read(path: Path) -> GpuCore:
    """Has cuda-gdb read a core dump.

    Raises:
        ToolchainError: there is no cuda-gdb, it cannot read the file, or the file shows no exception.
    """
    debugger = find_program("cuda-gdb")
    if debugger is None:
        raise ToolchainError(
            f"cuda-gdb was not found; it reads {path}, a core dump of a GPU",
            hint="it comes with the CUDA toolkit: set CUDA_HOME to its directory, or read the file where there is one",
        )
    by_hand = shlex.join(["cuda-gdb", "-ex", f"target cudacore {path}"])
    commands = (f"target cudacore {path}", *_COMMANDS)
    words = [str(debugger), "-nx", "-batch", *chain.from_iterable(("-ex", command) for command in commands)]
    try:
        done = child_process.run(words, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"cuda-gdb cannot read {path}: {error}", hint=by_hand) from error
    core = parse(done.stdout)
    if core is None:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it shows no exception")
        raise ToolchainError(f"cuda-gdb cannot read {path}: {last}", hint=by_hand)
    return core


def parse(text: str) -> GpuCore | None:
    """Parses what cuda-gdb has printed; None if it shows no exception."""
    exception = _EXCEPTION.search(text)
    if exception is None:
        return None
    place, frame, focus = _PLACE.search(text), _FRAME.search(text), _FOCUS.search(text)
    instruction = _INSTRUCTION.search(text)
    file = "" if place is None or place[2] is None else place[2]
    if frame is not None and frame[4] and Path(frame[4]).name == Path(file).name:
        file = frame[4]  # with its folder
    return GpuCore(
        exception=exception[1].strip(),
        kernel=place[1] if place is not None else frame[1] if frame is not None else "",
        file=file,
        line=int(place[3]) if place is not None and place[3] else 0,
        grid=frame[2] if frame is not None else "",
        block_size=frame[3] if frame is not None else "",
        block=focus[1] if focus is not None else "",
        thread=focus[2] if focus is not None else "",
        instruction=" ".join(instruction[1].split()) if instruction is not None else "",
    )


def finding_of(core: GpuCore, manifest: Manifest | None) -> Finding:
    """The fault that a core dump shows, and the launches of the package that it may be of.

    Args:
        manifest: of the package that the process had loaded; None if it is not known.
    """
    kernels = () if manifest is None else _kernels(core, manifest.kernels)
    sites = () if manifest is None else _sites(kernels, manifest.sites)
    where, possible = _where(core, sites)
    named = sites[0].kernel if len({site.kernel for site in sites}) == 1 else core.kernel
    code = next((code for end, code in _CODES.items() if core.exception.endswith(end)), None)
    what = f"{core.exception} on the GPU" if code is None else device_error(code)
    return Finding(
        FAULT,
        f"{what} in {named}" if named else what,
        where,
        evidence=tuple(_evidence(core, kernels)),
        possible=possible,
        warnings=tuple(_notes(core, manifest, sites)),
    )


def _kernels(core: GpuCore, kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels of the package that have the function's name and, where some have, its warps."""
    same = tuple(kernel for kernel in kernels if core.kernel and core.kernel in (kernel.mangled, kernel.name))
    threads = [int(size) for size in core.block_size.split(",") if size]
    fitting = tuple(kernel for kernel in same if threads and kernel.num_warps * _LANES == threads[0])
    return fitting or same


def _sites(kernels: tuple[Kernel, ...], sites: tuple[Site, ...]) -> tuple[Site, ...]:
    names = {kernel.name for kernel in kernels}
    return tuple(site for site in sites if names & {site.kernel, *site.launches})


def _where(core: GpuCore, sites: tuple[Site, ...]) -> tuple[Place | None, tuple[str, ...]]:
    """The place of the launch, as far as one is left, and what it may be otherwise."""
    if len(sites) == 1:
        return Place(kernel=sites[0].kernel, frame=next(iter(sites[0].provenance.source), None)), ()
    if not sites:
        return (Place(kernel=core.kernel) if core.kernel else None), ()
    lines = wording.join_truncated([f"{site.kernel} (wrapper line {site.line})" for site in sites], 6)
    return Place(kernel=core.kernel), (f"it may be any of {len(sites)} launches: {lines}",)


def _evidence(core: GpuCore, kernels: tuple[Kernel, ...]) -> list[str]:
    place = f" in {core.kernel}" if core.kernel else ""
    if core.line:
        text = _source_line(core, kernels)
        place += f" at {Path(core.file).name}:{core.line}" + (f": `{text}`" if text else "")
    found = [f"cuda-gdb: {core.exception}{place}"]
    if core.block:
        found.append(f"it shows block {core.block}, thread {core.thread}")
    if core.grid:
        found.append(f"the grid is ({core.grid}), its blocks have ({core.block_size}) threads")
    if core.instruction:
        word = next(word for word in core.instruction.split() if not word.startswith("@"))  # that is a predicate
        kind = _ACCESSES.get(word.partition(".")[0], "")
        found.append(f"the instruction is {core.instruction}" + (f", {kind}" if kind else ""))
    return found


def _source_line(core: GpuCore, kernels: tuple[Kernel, ...]) -> str:
    """The line of the kernel's source, if the file lies on this machine as the package knows it; else ""."""
    try:
        lines = Path(core.file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    text = lines[core.line - 1].strip() if core.line <= len(lines) else ""
    return text if text and any(text in kernel.source for kernel in kernels) else ""


def _notes(core: GpuCore, manifest: Manifest | None, sites: tuple[Site, ...]) -> list[str]:
    if manifest is None:
        return ["the package is not known, which would name the launch: --package"]
    if not core.kernel:
        return ["cuda-gdb does not show the kernel's name, which would tell the launch"]
    if not sites:
        return [f"{core.kernel} is no generated kernel of the package: a library may have launched it, or other code"]
    return [
        "a GPU's core dump has no list of launches: the arguments are not known; the instrumented package writes them "
        "down in a process with AOTI_DEBUG_LEVEL=3"
    ]
