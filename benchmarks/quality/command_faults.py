"""Has every call of a command to the system fail in turn, and looks at what the command says and leaves.

usage: python -m benchmarks.quality.command_faults [--only WORD ...] [--faults FAULT ...] [--first N] [--step N]
                                                   [--folder DIR] [--verbose]

A small model is built and run at level 1; each command then runs in a fresh copy of the folder for each point
(tests/command_faults/commands.py). Calls for files below that folder, among them its cache and TMPDIR, fail with ENOSPC
(one call, or it and all after it), EACCES, EIO or ENOMEM, or SIGTERM comes before the call. A point is broken if there
is a traceback, no error line or no hint, another exit code than one from 2 to 6, a file that is no whole result, a
temporary file, or if the same command does not do its work afterwards.

Prints a Markdown table, then the broken points. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from benchmarks import checkout, markdown
from tests.command_faults import commands
from tests.command_faults.commands import CACHE, TEMPORARY, WORK, Fault, Point

COMMANDS: Sequence[Sequence[str]] = (
    ("show",),
    ("list",),
    ("repro", "0.1", "--trust"),
    ("report",),
    ("bundle",),
    ("clean", "--all"),
    ("build", "model.pt2", "-o", "again.pt2"),
    ("triage", "model.pt2"),
)
LONG = 400  # seconds that a command may take that compiles
FAULTS: Mapping[str, Fault] = {
    "ENOSPC": Fault(errno.ENOSPC),
    "full disk": Fault(errno.ENOSPC, lasts=True),
    "EACCES": Fault(errno.EACCES),
    "EIO": Fault(errno.EIO),
    "ENOMEM": Fault(errno.ENOMEM),
    "SIGTERM": Fault(-signal.SIGTERM),
}


class Model(torch.nn.Module):
    """A linear layer and two elementwise operations."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x)).softmax(-1)


def make_template(folder: Path) -> None:
    """Builds and runs the model in a folder, unless it has done so."""
    for name in (WORK, CACHE, TEMPORARY):
        (folder / name).mkdir(parents=True, exist_ok=True)
    work = folder / WORK
    if (work / "aoti-debug/runs").exists():
        return
    program = torch.export.export(Model().eval(), (torch.linspace(-1, 1, 64).reshape(8, 8),))
    torch.export.save(program, work / "model.pt2")
    environment = {**checkout.environment(), **commands.places(folder)}  # what it compiles stays in the folder's cache
    for arguments in (["build", "model.pt2"], ["run", "model.instrumented.pt2", "--level", "1"]):
        subprocess.run([sys.executable, "-m", "aoti_debug", *arguments], cwd=work, env=environment, check=True)


def _points(
    arguments: argparse.Namespace, library: Path, template: Path, command: Sequence[str], fault: Fault
) -> Iterator[Point]:
    seconds = LONG if command[0] in ("build", "triage") else commands.SECONDS
    found = commands.points(
        library, template, command, fault, first=arguments.first, step=arguments.step, seconds=seconds
    )
    for point in found:
        if arguments.verbose or point.problems:
            print(
                f"{point.command}: {point.call} ({point.number}): {point.code} {point.problems}",
                file=sys.stderr,
                flush=True,
            )
        yield point


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="WORD", help="commands of these names")
    parser.add_argument("--step", type=int, default=1, metavar="N", help="only each N-th call fails")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first call that fails")
    parser.add_argument("--faults", nargs="*", metavar="FAULT", help="only these: ENOSPC, SIGTERM, …")
    parser.add_argument("--verbose", action="store_true", help="print every point as it is tried")
    parser.add_argument("--folder", type=Path, help="where the model and its run stay")
    arguments = parser.parse_args()
    broken: list[Point] = []
    rows = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        template = Path(temporary) / "template"
        if arguments.folder:
            make_template(arguments.folder)
            shutil.copytree(arguments.folder, template, symlinks=True)
        else:
            make_template(template)
        library = commands.compile_library(Path(temporary))
        for command in COMMANDS:
            if arguments.only and command[0] not in arguments.only:
                continue
            found = {
                name: list(_points(arguments, library, template, command, fault))
                for name, fault in FAULTS.items()
                if not arguments.faults or name in arguments.faults
            }
            worse = [point for points in found.values() for point in points if point.problems]
            rows.append([f"`{command[0]}`", *(str(len(points)) for points in found.values()), str(len(worse))])
            broken += worse
            print(rows[-1], file=sys.stderr, flush=True)
    markdown.table(["command", *(name for name in FAULTS if name in (arguments.faults or FAULTS)), "broken"], rows)
    print(f"{time.monotonic() - began:.0f} s, {os.cpu_count()} cores")
    for point in broken:
        print(f"\n{point.command}: {point.call} (number {point.number}), exit code {point.code}")
        for problem in point.problems:
            print(f"  {problem}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
