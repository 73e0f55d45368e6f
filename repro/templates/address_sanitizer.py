"""AddressSanitizer and UBSan of gcc and clang: finds their runtime and parses their reports."""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .accesses import Access, CodeLine

FLAGS = ("-fsanitize=address,undefined", "-fsanitize-recover=address,undefined", "-g", "-fno-omit-frame-pointer")
_HEAD = re.compile(r"==\d+==\s*ERROR: AddressSanitizer: (\S+)(?: on (?:unknown )?address (0x[0-9a-f]+))?(.*)")
_ACCESS = re.compile(r"(READ|WRITE) of size (\d+) at 0x[0-9a-f]+ thread")
_SEGV_KIND = re.compile(r"signal is caused by a (READ|WRITE) memory access")
_FRAME = re.compile(r"\s+#\d+ 0x[0-9a-f]+ in (.+?) (\S+?):(\d+)(?::\d+)?\s*$")
_UNDEFINED = re.compile(r"^(\S+?):(\d+)(?::\d+)?: runtime error: (.*)$")


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


def parse(text: str, source: Path) -> list[Access]:
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
