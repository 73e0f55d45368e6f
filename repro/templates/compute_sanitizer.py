"""compute-sanitizer of the CUDA toolkit: finds it, builds its command line and parses its reports."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from .accesses import Access, CodeLine

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


def find_cuda_program(name: str) -> str | None:
    """The path of a program on PATH or in a CUDA toolkit; None if there is none."""
    toolkits = [Path(os.environ[variable]) for variable in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(variable)]
    toolkits += [Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"), reverse=True)]
    places = [shutil.which(name), *(str(toolkit / "bin" / name) for toolkit in toolkits)]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def find() -> str:
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


def parse(text: str) -> list[Access]:
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
