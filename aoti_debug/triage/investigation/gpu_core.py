"""Core dumps of a GPU: cuda-gdb reads them, and its output is parsed here; the package says whose kernel it is.

The driver writes one if CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 is set (CUDA-GDB manual, "GPU core dump support").
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.compiler import find_program
from aoti_debug.base.machine.processes import child_process
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Kernel, Manifest, Role, Site
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, Finding, Place
from aoti_debug.runs.diagnosis.verdict_text import device_error
from aoti_debug.runs.kernel_source import triton_text
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.triage.investigation import core_launch, gpu_access
from aoti_debug.triage.investigation.core_launch import NearArgument
from aoti_debug.triage.investigation.gpu_access import LANES, ThreadAccess

READER = "cuda-gdb"
_SECONDS = 600
_INSTRUCTION_BYTES = 16
_LISTED = 64  # instructions
COMMANDS = ("info cuda kernels", "info cuda devices", "x/8i $pc-32", f"x/{_LISTED}i $errorpc")
_FOCUS = re.compile(r"^\[Current focus set to .*?block (\([\d,]+\)), thread (\([\d,]+\))", re.MULTILINE)
_EXCEPTION = re.compile(r"^CUDA Exception: (.+)$", re.MULTILINE)
_PLACE = re.compile(
    r"^The exception was triggered at PC 0x[0-9a-f]+(?:  (.+?))?(?:  ?\(([^()\s]+):(\d+)(?: in .*)?\))?$", re.MULTILINE
)
_FRAME = re.compile(
    r"^#0 +(?:0x[0-9a-f]+ in )?(.+?)<<<\(([\d,]+)\),\(([\d,]+)\)>>> .*?(?: at ([^\s:]+):(\d+).*)?$", re.MULTILINE
)
_INSTRUCTION = re.compile(r"^(\*=?>|=>)?[ \t]*0x([0-9a-f]+)(?: <.*>)?:[ \t]+(.+)$", re.MULTILINE)
_ARCHITECTURE = re.compile(r"\bsm_(\d+)")
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
_OF_ADDRESSES = (700, 716, 717)
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
    """The content of a GPU's core dump: an exception, or what a kernel was doing.

    Attributes:
        exception: in the words of cuda-gdb: "Warp Illegal Address"; "" of a dump that was asked for while a kernel ran.
        kernel: the function of the GPU; "" if it is not known.
        file, line: where in its source the exception was raised; "" and 0 if the binary does not tell.
        grid, block_size: "256,1,1"; "" if they are not known.
        block, thread: that cuda-gdb shows: "(100,0,0)".
        instruction: that raised it: "LDG.E R3,desc[UR8][R2.64]"; "" if it is not known.
        architecture: 90 of sm_90; 0 if it is not known.
        following: the instructions between it and the place where the warp stopped; None if they are not known.
        parameters: words of 8 bytes, the kernel's parameters; none if the dump does not hold them.
        accesses: of the threads of the warp; none if the addresses cannot be told.
        doubt: why the registers may hold another address by now; "" if they do not.
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
    architecture: int = 0
    following: tuple[str, ...] | None = None
    parameters: tuple[int, ...] = ()
    accesses: tuple[ThreadAccess, ...] = ()
    doubt: str = ""


def read(path: Path) -> GpuCore:
    """Has cuda-gdb read a core dump.

    Raises:
        ToolchainError: there is no cuda-gdb, it cannot read the file, or the file shows no exception.
    """
    debugger = find_program(READER)
    if debugger is None:
        raise ToolchainError(
            f"{READER} was not found; it reads {path}, a core dump of a GPU",
            hint="it comes with the CUDA toolkit: set CUDA_HOME to its directory, or read the file where there is one",
        )
    done = run(debugger, path, COMMANDS)
    core = parse(done.stdout)
    if core is None:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it shows no kernel")
        raise ToolchainError(f"cuda-gdb cannot read {path}: {last}", hint=_by_hand(path))
    commands = gpu_access.commands(gpu_access.operand_of(core.instruction), core.architecture)
    return with_registers(core, run(debugger, path, commands).stdout) if core.exception and commands else core


def _by_hand(path: Path) -> str:
    return shlex.join(["cuda-gdb", "-ex", f"target cudacore {path}"])


def run(debugger: Path, path: Path, commands: Sequence[str]) -> child_process.FinishedProcess:
    """Has cuda-gdb read a core dump and follow commands; one that fails does not keep it from the others.

    Raises:
        ToolchainError: it does not start, or does not end.
    """
    every = (f"target cudacore {path}", *commands)
    words = [str(debugger), "-nx", "-batch", *chain.from_iterable(("-ex", command) for command in every)]
    try:
        return child_process.run(words, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"cuda-gdb cannot read {path}: {error}", hint=_by_hand(path)) from error


def parse(text: str) -> GpuCore | None:
    """Parses what cuda-gdb has printed; None if it shows neither an exception nor a kernel."""
    exception = _EXCEPTION.search(text)
    place, frame, focus = _PLACE.search(text), _FRAME.search(text), _FOCUS.search(text)
    if exception is None and frame is None:
        return None
    architecture = _ARCHITECTURE.search(text)
    file = "" if place is None or place[2] is None else place[2]
    line = int(place[3]) if place is not None and place[3] else 0
    if frame is not None and frame[4] and (exception is None or Path(frame[4]).name == Path(file).name):
        file = frame[4]  # with its folder
        line = line if exception is not None else int(frame[5])
    instruction, following = _stopped(text)
    return GpuCore(
        exception="" if exception is None else exception[1].strip(),
        kernel=(place[1] if place is not None else frame[1] if frame is not None else "") or "",
        file=file,
        line=line,
        grid=frame[2] if frame is not None else "",
        block_size=frame[3] if frame is not None else "",
        block=focus[1] if focus is not None else "",
        thread=focus[2] if focus is not None else "",
        instruction=instruction,
        architecture=0 if architecture is None else int(architecture[1]),
        following=following,
    )


def _stopped(text: str) -> tuple[str, tuple[str, ...] | None]:
    """The instruction that raised the exception, or that the warp is at; those after it that the warp had issued."""
    listed: dict[int, str] = {}
    raised = stopped = None
    for mark, address, instruction in _INSTRUCTION.findall(text):
        listed[int(address, 16)] = " ".join(instruction.split())
        raised = int(address, 16) if "*" in mark else raised
        stopped = int(address, 16) if "=" in mark else stopped
    if raised is None:
        return "" if stopped is None else listed[stopped], None
    if stopped is None or stopped < raised:
        return listed[raised], None
    expected = range(raised, stopped, _INSTRUCTION_BYTES)
    known = all(address in listed for address in expected)
    return listed[raised], tuple(listed[address] for address in expected[1:]) if known else None


def with_registers(core: GpuCore, text: str) -> GpuCore:
    """The core dump with the addresses and the parameters that `gpu_access.commands` had cuda-gdb print."""
    operand = gpu_access.operand_of(core.instruction)
    parameters = gpu_access.parameters_in(text)
    if operand is None:
        return replace(core, parameters=parameters)
    doubt = gpu_access.doubt_of(operand, core.instruction, core.following)
    accesses = tuple(a for a in gpu_access.accesses_in(text, operand) if a.is_possible or not doubt)
    return replace(core, parameters=parameters, accesses=accesses, doubt=doubt)


def sites_of(core: GpuCore, manifest: Manifest) -> tuple[Site, ...]:
    """The launch sites of a package that the kernel in a core dump may be of; none of a kernel of a library."""
    return _sites(_kernels(core, manifest.kernels), manifest.sites)


def finding_of(core: GpuCore, manifest: Manifest | None) -> Finding:
    """The fault or the hang that a core dump shows, and the launches of the package that it may be of.

    Args:
        manifest: of the package that the process had loaded; None if it is not known.
    """
    kernels = () if manifest is None else _kernels(core, manifest.kernels)
    sites = () if manifest is None else _sites(kernels, manifest.sites)
    where, possible = _where(core, sites)
    named = sites[0].kernel if len({site.kernel for site in sites}) == 1 else core.kernel
    return Finding(
        FAULT if core.exception else HANG,
        _headline(core, named),
        where,
        evidence=tuple(evidence_of(core, kernels)),
        possible=possible,
        warnings=tuple(_notes(core, manifest, sites)),
    )


def _headline(core: GpuCore, kernel: str) -> str:
    if not core.exception:
        return f"{kernel} was running when the core dump was asked for: it may hang"
    code = _code(core)
    what = f"{core.exception} on the GPU" if code is None else device_error(code)
    return f"{what} in {kernel}" if kernel else what


def _code(core: GpuCore) -> int | None:
    """The error that the driver reports for the exception; None without one, or of another exception."""
    return next((code for end, code in _CODES.items() if core.exception.endswith(end)), None)


def with_parameters(finding: Finding, core: GpuCore, manifest: Manifest) -> Finding:
    """The finding with the address of a thread beside the pointers that the dump itself holds.

    Args:
        manifest: of the package, whose kernels have names for their parameters.
    """
    params = {kernel.params for kernel in _kernels(core, manifest.kernels)}
    if _code(core) not in _OF_ADDRESSES or len(params) != 1:
        return finding
    if not core.accesses:
        said = f"the address of the access is not known: {_why_no_address(core)}"
        return replace(finding, warnings=(*finding.warnings, said))
    access = core.accesses[0]
    pointers = gpu_access.pointers(core.parameters, params.pop())
    near = gpu_access.nearest_text(access.address, pointers)
    said = f"block {access.block}, thread {access.thread} has address {access.address:#x} in its registers; {near}"
    if core.doubt:
        return replace(finding, possible=(*finding.possible, f"{said}; {core.doubt}"))
    return replace(finding, evidence=(*finding.evidence, said))


def launch_of(core: GpuCore, diagnosed: DiagnosedRun) -> Launch | None:
    """The launch that a core dump of the process of a run is of; None if nothing tells it from others of its kernel."""
    sites = {site.id for site in sites_of(core, diagnosed.run.manifest)}
    launch = None if diagnosed.verdict is None else diagnosed.verdict.launch
    if launch is not None and launch.site.id in sites:
        return launch
    of_kernel = [launch for launch in diagnosed.run.launches if launch.site.id in sites]
    return of_kernel[0] if len(of_kernel) == 1 else None


def added_to(finding: Finding, core: GpuCore, diagnosed: DiagnosedRun) -> Finding:
    """The finding of a run, with what a core dump of the process of another run shows.

    Args:
        diagnosed: that other run.
    """
    manifest = diagnosed.run.manifest
    kernels, launch = _kernels(core, manifest.kernels), launch_of(core, diagnosed)
    sites = _sites(kernels, manifest.sites)
    evidence = evidence_of(core, kernels)
    if finding.where is not None and finding.where.kernel not in {site.kernel for site in sites}:
        evidence.append(f"the core dump is of {core.kernel or 'an unknown kernel'}, not of {finding.where.kernel}")
    finding = replace(finding, evidence=(*finding.evidence, *evidence))
    return finding if launch is None else with_arguments(finding, core, launch, manifest)


def with_arguments(finding: Finding, core: GpuCore, launch: Launch, manifest: Manifest) -> Finding:
    """The finding with the argument of the launch that the address of a thread lies in, or may have meant.

    Of the threads of the warp it is the first one that accesses what is no argument; if none does, the first one.

    Args:
        launch: that the dump is of, as the package recorded it in the same process.
    """
    if _code(core) not in _OF_ADDRESSES:
        return finding
    placed = [(access, near) for access in core.accesses if (near := _near(core, access, launch, manifest)) is not None]
    if not placed:
        said = f"the address of the access is not known: {_why_no_address(core)}"
        return replace(finding, warnings=(*finding.warnings, said))
    outside = [(access, near) for access, near in placed if near.place.element is None]
    access, near = (outside or placed)[0]
    others = len(outside or placed) - 1
    shared = "outside of the arguments" if outside else "in the arguments"
    more = f"; those of {wording.pluralize(others, 'other thread')} of its warp lie {shared}, too" if others else ""
    said = f"block {access.block}, thread {access.thread}: {near.observed}{more}"
    if core.doubt:
        return replace(finding, possible=(*finding.possible, f"{said}, as the registers are now; {core.doubt}"))
    place, where = near.place, finding.where or replace(near.place, argument="", input="")
    if not outside and not where.argument:  # a load may be narrower than the numbers that it is meant for
        where = replace(where, argument=place.argument, element=place.element, input=place.input)
    return replace(
        finding,
        where=where,
        evidence=(*finding.evidence, said),
        possible=(*finding.possible, near.possible) if near.possible else finding.possible,
    )


def _near(core: GpuCore, access: ThreadAccess, launch: Launch, manifest: Manifest) -> NearArgument | None:
    """The argument that an access lies in or next to: by its last byte if only that lies outside."""
    without = Role.OUT if gpu_access.is_load(core.instruction) else Role.IN
    params = frozenset(argument.spec.param for argument in launch.args if argument.tensor is not None)
    in_line = triton_text.pointers_of(_source_line(core, _kernels(core, manifest.kernels)), params) or params

    def may_be(argument: Argument, tensor: Tensor) -> bool:
        fits = argument.role is not without and tensor.layout.item_bytes <= access.size
        return fits and argument.spec.param in in_line

    first, last = (core_launch.near_argument(at, launch, manifest, may_be) for at in access.ends)
    is_within = first is not None and first.place.element is not None
    return last if is_within and last is not None and last.place.element is None else first


def _why_no_address(core: GpuCore) -> str:
    if gpu_access.operand_of(core.instruction) is None:
        shown = core.instruction or "the instruction is not known"
        return f"{shown} is no access to global memory of a known form" if core.instruction else shown
    return "cuda-gdb shows no registers of the threads that may have made it"


def _kernels(core: GpuCore, kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels of the package that have the function's name and, where some have, its warps."""
    same = tuple(kernel for kernel in kernels if core.kernel and core.kernel in (kernel.mangled, kernel.name))
    threads = [int(size) for size in core.block_size.split(",") if size]
    fitting = tuple(kernel for kernel in same if threads and kernel.num_warps * LANES == threads[0])
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


def evidence_of(core: GpuCore, kernels: tuple[Kernel, ...]) -> list[str]:
    """Sentences on what cuda-gdb shows of a core dump.

    Args:
        kernels: of the package, that the dump may be of: their source is shown.
    """
    place = f" in {core.kernel}" if core.kernel else ""
    if core.line:
        text = _source_line(core, kernels)
        place += f" at {Path(core.file).name}:{core.line}" + (f": `{text}`" if text else "")
    found = [f"cuda-gdb: {core.exception}{place}" if core.exception else f"cuda-gdb: the warp that it shows was{place}"]
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
    """The line of the kernel's source; "" if the package's kernels are not known to be of that file."""
    return next((text for kernel in kernels if (text := triton_text.line_of(kernel, core.file, core.line))), "")


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
