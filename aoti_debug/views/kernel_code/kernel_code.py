"""The code of kernels: generated source with the origin of its lines, and the PTX and SASS of Triton kernels."""

from __future__ import annotations

import getpass
import glob
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aoti_debug.base import terminal_cells
from aoti_debug.base.errors import ArtifactError, ToolchainError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache, compiler
from aoti_debug.base.machine.files import json_data
from aoti_debug.package.manifest import Kernel, Provenance
from aoti_debug.package.program_graphs import Reference
from aoti_debug.package.pt2.trust import TRUST_HINT
from aoti_debug.repro.recorded_launch import kernel_binary
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.kernel_code.line_origins import LineOrigin, line_origins

_NO_FILE_NAME = re.compile(r'[\\/:*?"<>|]')  # the characters that torch replaces in a user's name
_DISASSEMBLERS = (("nvdisasm", ("--print-code", "--print-line-info")), ("cuobjdump", ("--dump-sass",)))
_SECONDS = 120.0
_WIDEST = 32  # columns of what stands beside a line
_INDENT = "  "
_RULE = " │ "
_BESIDE = f"    {_RULE}"  # what separates the columns of a line
_LEAST_CODE = 64  # columns of code that has something beside it
_LEGEND = "beside or above a line: the operator that it computes, or a part of it, < what it reads, > what it writes"


def triton_caches() -> tuple[Path, ...]:
    """The directories of Triton's cache: of builds of this tool, of torch's own builds by device, of other programs."""
    own = os.environ.get("TRITON_CACHE_DIR")
    return (
        cache.directory() / "triton",
        *([Path(own)] if own else []),
        *sorted((_inductor_cache() / "triton").glob("*")),
        Path.home() / ".triton/cache",
    )


def _inductor_cache() -> Path:
    """The directory of Inductor's cache, as torch._inductor.runtime.cache_dir_utils.cache_dir names it."""
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if named:
        return Path(named).absolute()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user ID without a name
        user = f"uid_{os.getuid()}"
    return Path(tempfile.gettempdir()) / f"torchinductor_{_NO_FILE_NAME.sub('_', user)}"


def sass(run: RunDir, kernel: Kernel, *, trusted: bool) -> str:
    """The instructions of a kernel as a GPU runs them, from the binary in the package.

    Args:
        trusted: start the disassembler on it even if it was not made on this account.

    Raises:
        UsageError: it is no Triton kernel, or was not made on this account.
        ArtifactError: the package has no binary of it any more.
        ToolchainError: no disassembler is installed, or it failed.
    """
    binary = _binary(run, kernel, "--sass")
    if not (trusted or run.is_made_here):
        raise UsageError(
            f"{run.path} was not made on this account; a disassembler would read the machine code of {kernel.name}",
            hint=TRUST_HINT,
        )
    program, options = _disassembler()
    with tempfile.NamedTemporaryFile(prefix="aoti-debug-", suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(program), *options, file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(f"{program} did not disassemble {kernel.name}: {error}") from error
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise ToolchainError(
            f"{program} cannot disassemble {kernel.name}: {reason[0]}",
            hint="a CUDA toolkit of the package's CUDA version, or a newer one, can",
        )
    return done.stdout


def ptx(run: RunDir, kernel: Kernel, caches: Iterable[Path]) -> str:
    """The PTX that a kernel was assembled from. Packages hold machine code only: Triton's cache may still have it.

    Args:
        caches: directories of Triton's cache.

    Raises:
        UsageError: it is no Triton kernel.
        ArtifactError: the package has no binary of it any more, or no cache has the PTX of this binary.
    """
    wanted = hashlib.sha256(_binary(run, kernel, "--ptx")).digest()
    searched = [folder for folder in dict.fromkeys(caches) if folder.is_dir()]
    for folder in searched:
        for path in folder.glob(f"*/{glob.escape(_function(kernel))}.cubin"):
            text = path.with_suffix(".ptx")
            if path.is_file() and text.is_file() and hashlib.sha256(path.read_bytes()).digest() == wanted:
                return text.read_text()
    where = ", ".join(map(str, searched)) or "this machine"
    raise ArtifactError(
        f"the PTX of {kernel.name} is not recorded: packages hold machine code only, and Triton's cache ({where}) has "
        "no such kernel",
        hint="--sass shows the machine code; a build by this user on this machine leaves its PTX there",
    )


def _binary(run: RunDir, kernel: Kernel, option: str) -> bytes:
    if kernel.language != "triton":
        raise UsageError(
            f"{option} is for Triton kernels; {kernel.name} is one in C++",
            hint="--source shows its source; python repro.py --debugger disassembles it",
        )
    binary, reason = kernel_binary(run, kernel)
    if binary is None:
        raise ArtifactError(
            f"the machine code of {kernel.name} is not available: {reason}", hint="run the package again"
        )
    return binary


def _function(kernel: Kernel) -> str:
    """The name of the function in the source, which Triton's files have."""
    return kernel.mangled or kernel.name


def _disassembler() -> tuple[Path, tuple[str, ...]]:
    bundled = compiler.triton_directory()
    for name, options in _DISASSEMBLERS:
        path = compiler.find_program(name) or (bundled / "bin" / name if bundled else None)
        if path is not None and path.is_file():
            return path, options
    raise ToolchainError(
        "neither nvdisasm nor cuobjdump is installed",
        hint="install the CUDA toolkit, or Triton, which contains both",
    )


@dataclass(frozen=True)
class KernelCode:
    """A generated kernel as a launch ran it.

    Attributes:
        origins: the origins of the lines of its source, by line; lines without a known one are absent.
        unknown: why no line has a node; "" if some have.
    """

    kernel: Kernel
    origins: Mapping[int, LineOrigin]
    unknown: str = ""


def launch_kernels(run: RunDir, launch: Launch) -> tuple[Kernel, ...]:
    """The generated kernels that a launch may have started: of an operator none, of a multi-kernel the one that ran."""
    names = (launch.grid.kernel,) if launch.grid else (launch.kernel, *launch.site.launches)
    return tuple(kernel for kernel in run.manifest.kernels if kernel.name in names)


def launch_code(run: RunDir, launch: Launch, reference: Reference | None, missing: str) -> tuple[KernelCode, ...]:
    """The code of the kernels of a launch; none of an operator.

    Args:
        reference: the graphs of the package; None if they are not at hand.
        missing: the reason for that.
    """
    codes = []
    for kernel in launch_kernels(run, launch):
        origins = line_origins(kernel, launch.site, run.manifest, reference) if kernel.source else {}
        known = any(origin.node for origin in origins.values())
        unknown = "" if known else (missing or "its statements match no operators of the graph")
        codes.append(KernelCode(kernel, origins, unknown if kernel.source else "the package holds no source"))
    return tuple(codes)


def document(code: KernelCode) -> dict[str, Any]:
    """The code as a JSON object (`code` of a launch in docs/show.schema.json)."""
    return {
        "kernel": code.kernel.name,
        "language": code.kernel.language,
        "sha256": code.kernel.sha256,
        "source": code.kernel.source,
        "unknown": code.unknown or None,
        "lines": [_line(origin) for _, origin in sorted(code.origins.items())],
    }


def _line(origin: LineOrigin) -> dict[str, Any]:
    return {
        "line": origin.line,
        "node": origin.node or None,
        "module": origin.module or None,
        "model_line": None if origin.model_line is None else json_data.to_data(origin.model_line),
        "reads": list(origin.reads),
        "writes": origin.writes or None,
    }


def listing(code: KernelCode, provenance: Provenance, width: int, code_width: int) -> list[str]:
    """The lines of the listing: what is known of the kernel as a whole, then its source, a number before each line.

    What is known of a line stands beside it, or where that leaves too little room, above it.

    Args:
        provenance: of the launch.
        width: columns of what stands above the source.
        code_width: columns of the source and of what stands beside it; a longer line of code goes on below.
    """
    kernel = code.kernel
    lines = [f"{kernel.name} ({kernel.language}, sha256 {kernel.sha256[:12]})"]
    lines += _whole(code, provenance, width)
    source = kernel.source.splitlines()
    digits = len(str(len(source)))
    beside = {number: _beside(origin) for number, origin in code.origins.items()}
    places = {number: _place(origin) for number, origin in code.origins.items()}
    place, text = (
        min(_WIDEST, max(map(terminal_cells.count, column.values()), default=0)) for column in (places, beside)
    )
    is_beside = digits + place + text + len(_BESIDE) <= code_width - _LEAST_CODE
    for number, line in enumerate(source, 1):
        head = f"{number:>{digits}}"
        if is_beside:
            head = "  ".join([head, _column(places, number, place), _column(beside, number, text)])
        elif number in code.origins:
            above = terminal_cells.shorten_middle(f"{places[number]}  {beside[number]}", code_width - digits - 3)
            lines.append(f"{'':{digits}} ┌ {above}")
        lines += _code_lines(head, line, code_width)
    return lines


def _code_lines(head: str, line: str, width: int) -> Iterator[str]:
    """A line of code behind its number and what stands beside it, and below that what has no room."""
    room = width - terminal_cells.count(head) - len(_RULE)
    code = line.lstrip()
    indent = " " * min(len(line) - len(code), room // 2)
    parts = [line] if terminal_cells.count(line) <= room else terminal_cells.wrapped(code, room, indent, "    ")
    for number, part in enumerate(parts or [""]):
        before = head if number == 0 else " " * terminal_cells.count(head)
        yield f"{before}{_RULE}{part}".rstrip()


def _whole(code: KernelCode, provenance: Provenance, width: int) -> Iterator[str]:
    """What is known of all lines together."""
    if code.unknown:
        frames = dict.fromkeys(f"{_file(frame.file)}:{frame.line}" for frame in provenance.source)
        known = f"; all of it comes from {', '.join(frames)}" if frames else ""
        yield from _wrapped(f"which line comes from which model line is not known: {code.unknown}{known}", width)
        return
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for _, origin in sorted(code.origins.items()):
        if origin.node:
            groups.setdefault((_place(origin), origin.module), {})[origin.node] = None
    for (place, module), nodes in groups.items():
        words = [word for word in (place, module) if word]
        yield from _wrapped("  ".join([*words, ", ".join(nodes)]), width)
    yield from _wrapped(_LEGEND, width)


def _wrapped(text: str, width: int) -> list[str]:
    return terminal_cells.wrapped(text, width, _INDENT)


def _column(texts: Mapping[int, str], number: int, width: int) -> str:
    return terminal_cells.pad(terminal_cells.shorten_middle(texts.get(number, ""), width), width)


def _beside(origin: LineOrigin) -> str:
    words = [origin.node] if origin.node else []
    words += [f"< {', '.join(origin.reads)}"] if origin.reads else []
    words += [f"> {origin.writes}"] if origin.writes else []
    return " ".join(words)


def _place(origin: LineOrigin) -> str:
    return "" if origin.model_line is None else f"{_file(origin.model_line.file)}:{origin.model_line.line}"


def _file(path: str) -> str:
    return path.rpartition("/")[2]
