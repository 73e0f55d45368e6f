"""The command line of a repro."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .job import Job
from .kernel import Settings

SANITIZERS = ("memcheck", "racecheck", "initcheck")


@dataclass(frozen=True)
class Options:
    """The options of a repro.

    Attributes:
        backend: "" where the kernel has none to choose from.
        programs: run these programs of the grid only.
        repeat: how many launches; 0: one, compared with the record.
        sanitize: a tool of compute-sanitizer; "" for none.
        here: run the launch in this process, never in a child.
        tolerance: for floating outputs; None for that of the back end.
        report: a pipe to the parent, in a child.
        evidence: the file to write the findings to, as JSON; None for none.
        trial: the trial that a child of --reduce or --sanitize runs.
    """

    backend: str = ""
    programs: tuple[tuple[int, int, int], ...] = ()
    repeat: int = 0
    sanitize: str = ""
    poison: bool = False
    bench: bool = False
    reduce: bool = False
    debugger: bool = False
    here: bool = False
    libraries: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    tolerance: float | None = None
    report: int | None = None
    evidence: Path | None = None
    trial: str = ""

    def applied(self, job: Job) -> Job:
        """The job with its tensors where they go, and with the libraries that the user named."""
        named = replace(job, libraries=self.libraries or job.libraries, imports=self.imports or job.imports)
        return named.on(self.backend).on_available_gpus()

    @property
    def option(self) -> str:
        """The option that replaces the plain comparison: "repeat", "sanitize", …; "" for none."""
        chosen = {
            "repeat": self.repeat,
            "sanitize": self.sanitize,
            "poison": self.poison,
            "bench": self.bench,
            "reduce": self.reduce,
        }
        return next((name for name, value in chosen.items() if value), "")

    def settings(self, job: Job) -> Settings:
        """The settings for the kernel."""
        return Settings(job.folder, backend=self.backend, programs=self.programs)

    def tolerance_of(self, job: Job) -> float:
        """The tolerance for floating outputs: see `compare`."""
        if self.tolerance is not None:
            return self.tolerance
        return 0.0 if job.kernel is None else job.kernel.tolerance(self.backend)

    def words(self) -> list[str]:
        """The options for a child process that runs the same launch."""
        words = ["--backend", self.backend] if self.backend else []
        words += [word for program in self.programs for word in ("--program", ",".join(map(str, program)))]
        words += [] if self.tolerance is None else ["--tolerance", repr(self.tolerance)]
        words += [word for library in self.libraries for word in ("--load-library", library)]
        return words + [word for module in self.imports for word in ("--import", module)]


def _parser(job: Job) -> argparse.ArgumentParser:
    """The options that the repro of a launch has."""
    parser = argparse.ArgumentParser(
        description=f"Replays {job.title} alone and compares it with what was recorded.",
        epilog="exit codes: 0 as recorded; 10 differs; 11 a fault; 12 the recorded fault was not reproduced; "
        "1 the replay failed",
    )
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--repeat", type=_count, default=0, metavar="N", help="launch N times: do the results vary?")
    modes.add_argument(
        "--sanitize",
        nargs="?",
        const=SANITIZERS[0],
        default="",
        choices=SANITIZERS,
        help="look for wrong accesses: compute-sanitizer on CUDA (memcheck), AddressSanitizer and UBSan in C++ kernels",
    )
    modes.add_argument(
        "--poison", action="store_true", help="look for overruns (guard zones) and uninitialised reads (fill patterns)"
    )
    modes.add_argument("--bench", action="store_true", help="measure the time of the launch and its bytes per second")
    modes.add_argument(
        "--reduce", action="store_true", help="find the smallest part that still shows the fault or the difference"
    )
    modes.add_argument(
        "--debugger",
        action="store_true",
        help="start gdb (C++ kernels) or cuda-gdb (Triton kernels), stopped at the kernel; without a terminal, run to "
        "the end or the fault and show where that is",
    )
    kernel = job.kernel
    if kernel is not None and kernel.backends:
        default = kernel.default_backend()
        parser.add_argument("--backend", choices=kernel.backends, default=default, help=f"default here: {default}")
    if kernel is not None and any(kernel.part(b) == "any" for b in kernel.backends or ("",)):
        parser.add_argument(
            "--program",
            dest="programs",
            type=_program,
            action="append",
            default=[],
            metavar="X,Y,Z",
            help="run only this program of the grid; may be repeated; with --debugger: stop in this block",
        )
    parser.add_argument(
        "--here", action="store_true", help="run the launch in this process, not in a child process; for a debugger"
    )
    parser.add_argument(
        "--load-library",
        dest="libraries",
        action="append",
        default=[],
        metavar="PATH",
        help=_default("operators' library", job.libraries),
    )
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="MODULE", help=_default("module", job.imports)
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="X",
        help="floating outputs may differ by X * (1 + |recorded|); 0: not at all; default: that of the back end",
    )
    parser.add_argument("--evidence", type=Path, metavar="FILE", help="write the findings as JSON")
    parser.add_argument("--report", type=int, metavar="FD", help=argparse.SUPPRESS)
    parser.add_argument("--trial", default="", help=argparse.SUPPRESS)
    return parser


def parse(job: Job, arguments: Sequence[str] | None = None) -> Options:
    """Parses the command line.

    Raises:
        SystemExit: the command line is wrong (code 2), or asks for help.
    """
    parser, kernel = _parser(job), job.kernel
    parsed = parser.parse_args(arguments)
    backend, programs = getattr(parsed, "backend", ""), tuple(getattr(parsed, "programs", ()))
    if programs and kernel is not None and kernel.part(backend) != "any" and not parsed.debugger:
        parser.error(f"--program: the back end {backend} runs the whole grid")
    if parsed.debugger and parsed.evidence is not None:
        parser.error("--debugger cannot be combined with --evidence")
    if programs and (parsed.repeat or parsed.bench or parsed.reduce):
        parser.error("--program cannot be combined with --repeat, --bench or --reduce")
    given = {
        "programs": programs,
        "libraries": tuple(parsed.libraries),
        "imports": tuple(parsed.imports),
        "evidence": None if parsed.evidence is None else parsed.evidence.absolute(),
    }
    return Options(**{**vars(parsed), **given})


def _default(what: str, recorded: Sequence[str]) -> str:
    names = ", ".join(recorded) if recorded else "none"
    return f"{what} to load instead of the recorded ones ({names})".replace("%", "%%")


def _count(text: str) -> int:
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError("N must be 2 or more")
    return value


def _program(text: str) -> tuple[int, int, int]:
    numbers = [int(word) for word in text.split(",")]
    if not 1 <= len(numbers) <= 3 or min(numbers) < 0:
        raise argparse.ArgumentTypeError(f"{text}: one to three numbers, X,Y,Z")
    x, y, z = (*numbers, 0, 0)[:3]
    return x, y, z
