"""AddressSanitizer and UBSan of compilers, compute-sanitizer of CUDA: finds them, and parses their reports."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .accesses import Access, CodeLine

FLAGS = ("-fsanitize=address,undefined", "-fsanitize-recover=address,undefined", "-g", "-fno-omit-frame-pointer")
_HEAD = re.compile(r"==\d+==\s*ERROR: AddressSanitizer: (\S+)(?: on (?:unknown )?address (0x[0-9a-f]+))?(.*)")
_ACCESS = re.compile(r"(READ|WRITE) of size (\d+) at 0x[0-9a-f]+ thread")
_SEGV_KIND = re.compile(r"signal is caused by a (READ|WRITE) memory access")
_FRAME = re.compile(r"\s+#\d+ 0x[0-9a-f]+ in (.+?) (\S+?):(\d+)(?::\d+)?\s*$")
_UNDEFINED = re.compile(r"^(\S+?):(\d+)(?::\d+)?: runtime error: (.*)$")
PACKAGES = ("nvidia-cuda-sanitizer-api", "nvidia-cuda-sanitizer-api-cu13", "nvidia-cuda-sanitizer-api-cu12")
CUDA = "CUDA"  # the text for a CUDA call that failed
_NUMBERED = re.compile(r"^=+ ?", re.MULTILINE)
_MEMORY = re.compile(r"^((?:Potential )?Invalid (?:__\w+__ )?(\w+)) of size ([\d,]+)(?: bytes)?", re.IGNORECASE)
_UNWRITTEN = re.compile(r"^(Uninitialized (?:__\w+__ )?memory (read)) of size ([\d,]+)", re.IGNORECASE)
_RACE = re.compile(r"^(?:Error|Warning): (.*(?:Race|hazard).*)$", re.IGNORECASE)
_PROGRAM = re.compile(r"^Program hit (\w+) ")
_AT = re.compile(r"^\s+at (?:(?P<kernel>.+?)[+:])?0x[0-9a-f]+(?: in (?P<source>.+))?$")
_THREAD = re.compile(r"^\s+by (thread \([\d,]+\) in block \([\d,]+\))")
_ADDRESS = re.compile(r"^\s+(?:Access to|Access at|Address) (0x[0-9a-f]+)(.*)$")
_RACE_AT = re.compile(r"access at (?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<source>\S+:\d+))?")


@dataclass(frozen=True)
class Runtime:
    """The AddressSanitizer runtime of a compiler.

    Attributes:
        flags: to compile and link a kernel with.
        preload: shared libraries that the process must begin with.
    """

    flags: tuple[str, ...]
    preload: tuple[str, ...]


def runtime_of(compiler: str) -> Runtime:
    """Finds the AddressSanitizer runtime of a compiler.

    Raises:
        SystemExit: the compiler cannot be run, or has no AddressSanitizer.
    """
    clang = "clang" in _ask(compiler, "--version")
    name = f"libclang_rt.asan-{platform.machine()}.so" if clang else "libasan.so"
    library = Path(_ask(compiler, f"-print-file-name={name}"))
    if clang and not library.is_absolute():
        library = Path(_ask(compiler, "-print-file-name=libclang_rt.asan.so"))
    if not library.is_absolute() or not library.is_file():
        package = "compiler-rt" if clang else "libasan"
        raise SystemExit(f"{compiler} has no AddressSanitizer here ({name}); it comes with the package {package}")
    standard = Path(_ask(compiler, "-print-file-name=libstdc++.so.6"))
    preload = [_shared(library), *([standard] if standard.is_absolute() else [])]
    flags = (*FLAGS, "-shared-libasan") if clang else FLAGS
    return Runtime(flags, tuple(str(path.resolve()) for path in preload))


def environment(runtime: Runtime, reports: Path) -> dict[str, str]:
    """Returns the environment variables of the process that runs the kernel.

    AddressSanitizer's reports go to files in `reports`, those of UBSan to standard error.
    """
    shared = "halt_on_error=0:symbolize=1"
    return {
        "LD_PRELOAD": " ".join(runtime.preload),
        "ASAN_OPTIONS": f"{shared}:detect_leaks=0:detect_odr_violation=0:alloc_dealloc_mismatch=0:abort_on_error=0:"
        f"protect_shadow_gap=0:suppress_equal_pcs=1:log_path={reports / 'asan'}",
        "UBSAN_OPTIONS": f"{shared}:print_stacktrace=0",
        "PYTHONMALLOC": "malloc",
    }


def parse_compiler_report(text: str, source: Path) -> list[Access]:
    """Parses the reports in a log.

    Args:
        source: the compiled file, whose lines are the kernel's own.
    """
    accesses: list[Access] = []
    reports = re.split(r"(?m)^(?==+\d*=*\s*ERROR: AddressSanitizer)", text)
    for report in reports:
        head = _HEAD.search(report)
        if head:
            accesses.append(_access(head, report, source))
        accesses += [_undefined(m, source) for line in report.splitlines() if (m := _UNDEFINED.match(line))]
    return accesses


def _access(head: re.Match[str], report: str, source: Path) -> Access:
    access, segv = _ACCESS.search(report), _SEGV_KIND.search(report)
    kind, size = (access[1].lower(), int(access[2])) if access else (segv[1].lower() if segv else "", 0)
    stack = report.partition("\n\n")[0].splitlines()
    frames = [frame for line in stack if (frame := _FRAME.match(line))]
    frame = next((f for f in frames if Path(f[2]).name == source.name), frames[0] if frames else None)
    return Access(
        "sanitizer",
        what=f"AddressSanitizer: {head[1]}",
        kind=kind,
        bytes=size,
        address=int(head[2], 16) if head[2] else None,
        kernel=re.sub(r"\s*\[clone .*\]|\._omp_fn\.\d+|\(.*", "", frame[1]) if frame else "",
        source=_place(frame[2], frame[3], source) if frame else None,
    )


def _undefined(message: re.Match[str], source: Path) -> Access:
    place = _place(message[1], message[2], source)
    return Access("sanitizer", "undefined behaviour", f"UBSan: {message[3]}", source=place)


def _place(file: str, line: str, source: Path) -> CodeLine:
    """A line of the kernel's own source is in "SOURCE": repro.py has it under that name."""
    name = Path(file).name
    return CodeLine("SOURCE" if name == source.name else name, int(line))


def _shared(path: Path) -> Path:
    """The library itself where the file is a linker script that names it."""
    head = path.read_bytes()[:4]
    if head == b"\x7fELF":
        return path
    named = re.search(r"/\S+\.so\S*", path.read_text(errors="replace"))
    return Path(named[0]) if named else path


def _ask(compiler: str, option: str) -> str:
    try:
        return subprocess.run([compiler, option], capture_output=True, text=True, check=False).stdout.strip()
    except OSError as error:
        raise SystemExit(f"the compiler cannot be run: {error}") from error


def find_cuda_program(name: str) -> str | None:
    """The path of a program on PATH or in a CUDA toolkit; None if there is none."""
    toolkits = [Path(os.environ[variable]) for variable in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(variable)]
    toolkits += [Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"), reverse=True)]
    places = [shutil.which(name), *(str(toolkit / "bin" / name) for toolkit in toolkits)]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def find_compute_sanitizer() -> str:
    """Returns the path of compute-sanitizer.

    Raises:
        SystemExit: it is not installed.
    """
    places = (find_cuda_program("compute-sanitizer"), *_installed())
    program = next((str(p) for p in places if p and os.access(p, os.X_OK)), "")
    if not program:
        raise SystemExit("compute-sanitizer was not found on PATH or in the CUDA toolkit; pip install " + PACKAGES[0])
    return program


def command(program: str, tool: str, log: Path) -> list[str]:
    """Returns the command line to put before the watched command."""
    padding = ["--padding", "256"] if tool == "memcheck" else []
    quiet = ["--show-backtrace", "no", "--report-api-errors", "no", "--print-limit", "200"]
    return [program, "--tool", tool, *padding, *quiet, "--log-file", str(log)]


def parse_cuda_report(text: str) -> list[Access]:
    """Parses the reports in a log; those on CUDA calls that failed are left out if there are others."""
    accesses = [access for block in _blocks(text) if (access := _read(block))]
    serious = [access for access in accesses if access.what != CUDA]
    return serious or accesses


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines of each report: an unindented one begins the next."""
    block: list[str] = []
    for line in _NUMBERED.sub("", text).splitlines():
        if line and not line[0].isspace():
            yield block
            block = []
        block.append(line)
    yield block


def _read(block: list[str]) -> Access | None:
    if not block:
        return None
    head = block[0]
    if (race := _RACE.match(head)) is not None:
        return _race(race[1], block)
    if (program := _PROGRAM.match(head)) is not None:
        return Access("sanitizer", what=CUDA, notes=(program[1],))
    memory = _MEMORY.match(head) or _UNWRITTEN.match(head)
    if memory is None:
        return None
    kernel, source, thread, address = "", None, "", None
    notes: list[str] = []
    for line in block[1:]:
        if (at := _AT.match(line)) is not None and source is None:
            kernel, source = _kernel_and_source(at["kernel"], at["source"])
        elif (by := _THREAD.match(line)) is not None:
            thread = by[1]
        elif (place := _ADDRESS.match(line)) is not None:
            address, remark = int(place[1], 16), place[2].strip()
            notes += [remark] if remark and remark != "is out of bounds" else []
        elif line.strip().startswith("and is ") and "nearest allocation" in line:
            notes.append(line.strip())
    return Access(
        "sanitizer",
        f"uninitialised {memory[2].lower()}" if _UNWRITTEN.match(head) else memory[2].lower(),
        memory[1],
        bytes=int(memory[3].replace(",", "")),
        address=address,
        source=source,
        kernel=kernel,
        thread=thread,
        program=_block_of(thread),
        notes=tuple(notes),
    )


def _race(text: str, block: list[str]) -> Access:
    place = _RACE_AT.search("\n".join(block))
    kernel, source = _kernel_and_source(place["kernel"], place["source"]) if place else ("", None)
    notes = tuple(line.strip() for line in block[1:] if line.strip())
    return Access("sanitizer", "race", f"racecheck: {text}", kernel=kernel, source=source, notes=notes)


def _block_of(thread: str) -> tuple[int, int, int] | None:
    """The program of the grid in "thread (5,0,0) in block (3,0,0)"."""
    block = re.search(r"in block \((\d+),(\d+),(\d+)\)", thread)
    return None if block is None else (int(block[1]), int(block[2]), int(block[3]))


def _kernel_and_source(kernel: str | None, source: str | None) -> tuple[str, CodeLine | None]:
    """Both forms: `at kernel(int*)+0x30 in file.py:23`, and the older `at 0x30 in /path/file.py:23:kernel`."""
    source = (source or "").strip()
    older = re.fullmatch(r"(.*):(\d+):(\w+)(?:\(.*\))?", source)
    if older is not None:
        kernel, source = older[3], f"{older[1]}:{older[2]}"
    elif kernel is None and source and not re.search(r":\d+$", source):
        kernel, source = source, ""
    placed = re.fullmatch(r"(.*):(\d+)", source)
    function = (kernel or "").partition("(")[0]
    if placed is not None:
        return function, CodeLine(Path(placed[1]).name, int(placed[2]))
    return function, CodeLine(source, 0) if source else None


def _installed() -> Iterator[Path]:
    """The program in the pip packages that hold it."""
    for package in PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (Path(str(f.locate())) for f in files if f.name == "compute-sanitizer")
