"""Calls a model whose operator never comes back, and looks whether a triage says where it hangs and what it waits for.

usage: python -m benchmarks.quality.hangs [--limit SECONDS] [HANG ...]

The operators of hangs_ops.cpp and hangs_ops.py hang as a variable of the environment says, each hang in a function of
its own. One model has both; it is built once. A hang is named if the finding has the launch, the model line, the line
of that function, and a sentence on what the thread in the launch waits for; and one on each other thread. Prints a
Markdown table; the seconds are those of the triage without the time limit: the start of the process, and the replay of
the launch, which takes another time limit, are among them. Exit code 1: a hang was not named within 30 s.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.native import crash_stacks
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.runs.diagnosis.findings import HANG
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.results.triage_directory import TriageDir
from aoti_debug.triage.session import triage
from benchmarks.markdown import table

SOURCE = Path(__file__).parent / "hangs_ops.cpp"
MODULE = "benchmarks.quality.hangs_ops"
MOST = 30.0  # seconds after the time limit
# What the thread in the launch waits for, as the finding has to say it.
WAITS = {
    "spin": "runs, and waits for nothing",
    "mutex": r"waits for a futex.*looks like a mutex, which thread \d+, which has ended, may hold",
    "openmp barrier": "waits for a futex, in .*libgomp",
    "condition variable": "waits for a futex, in .*libc",
    "file lock": r"waits in fcntl \(F_SETLKW\) of .*lock.*; process \d+ has locked it",
    "semaphore": "waits for a futex, in .*libc",
    "pipe read": r"waits in read of pipe:",
    "two locks": r"waits for a futex.*looks like a mutex, which thread \d+ may hold",
    "python queue": "waits for a futex",
    "python lock": "waits for a futex",
    "collective": r"waits (for a futex|in e?poll)",
}
OF_PYTHON = ("python queue", "python lock", "collective")


class Model(torch.nn.Module):
    """A kernel before each operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        native = torch.ops.hangs.stay(torch.relu(x))
        python = torch.ops.hangs.stay_in_python(native.sin())
        return python.cos()


@dataclass
class Named:
    """What the triage of a hang has said.

    Attributes:
        missing: what it has not said.
        seconds: after the time limit.
    """

    place: str
    function: str
    waits: str
    threads: str
    seconds: float
    missing: list[str]


def library(folder: Path) -> Path:
    """The operators of C++, compiled."""
    toolchain = Toolchain(find_compiler(), find_torch())
    root = toolchain.torch.directory
    words = ["-std=c++20", "-O1", "-g", "-w", "-fopenmp", "-fPIC", "-shared", f"-I{root}/include"]
    words += [f"-I{root}/include/torch/csrc/api/include", str(SOURCE), f"-L{root}/lib", f"-Wl,-rpath,{root}/lib"]
    words += ["-ltorch_cpu", "-lc10", "-ltorch", "-o", str(folder / "hangs_ops.so")]
    toolchain.run([toolchain.compiler.path, *words], f"{SOURCE.name} does not compile")
    return folder / "hangs_ops.so"


def build(folder: Path) -> tuple[Path, UserCode]:
    """The instrumented package, and its operators."""
    operators = library(folder)
    torch.ops.load_library(operators)
    __import__(MODULE)
    program = torch.export.export(Model(), (torch.ones(4, 4),))
    torch.export.save(program, folder / "model.pt2")
    code = UserCode((MODULE,), (operators,))
    package = builder.build(
        folder / "model.pt2", output=folder / "planted.pt2", imports=code.imports, libraries=code.libraries
    )
    return package, code


def named(hang: str, done: TriageDir, seconds: float) -> Named:
    """What a triage has said of a hang, and what not."""
    finding, missing = done.finding, []
    where, frame = finding.where, None if finding.where is None else finding.where.frame
    operator = "hangs::stay_in_python.default" if hang in OF_PYTHON else "hangs::stay.default"
    line = "python = torch.ops.hangs.stay_in_python" if hang in OF_PYTHON else "native = torch.ops.hangs.stay"
    if finding.kind != HANG or where is None or where.operator != operator:
        missing.append("launch")
    if frame is None or line not in frame.text:
        missing.append("model line")
    name = hang.replace(" ", "_")
    function = next((text for text in finding.stack if re.match(rf"{name} at .*hangs_ops\.(cpp|py):\d+", text)), "")
    if not function:
        missing.append("function")
    waits = [text for text in finding.evidence if text.startswith("thread ") and ", in 0." in text]
    if len(waits) != 1 or not re.search(WAITS[hang], waits[0]):
        missing.append("wait")
    run = done.run
    caught = None if run is None else crash_stacks.read(run)
    threads = () if caught is None else caught.stacks
    if not threads or any(not stack.waits for stack in threads):
        missing.append("other threads")
    place = "" if where is None or frame is None else f"{where.launch} {where.operator}, line {frame.line}"
    shown = re.sub(r"/\S*/", "", waits[0]) if waits else ""
    return Named(place, re.sub(r"/\S*/", "", function), shown, str(len(threads)), seconds, missing)


def look_at(hang: str, package: Path, code: UserCode, limit: float, folder: Path) -> Named:
    """Triages one hang."""
    os.environ["PLANTED"], os.environ["PLANTED_FILE"] = hang, str(folder / f"{hang.replace(' ', '_')}.lock")
    with open(os.environ["PLANTED_FILE"], "w") as file:
        if hang == "file lock":
            fcntl.lockf(file, fcntl.LOCK_EX)
        began = time.monotonic()
        done = triage(TriageOptions(package, out=folder / "triages", stall=limit, user_code=code))
        return named(hang, done, time.monotonic() - began - limit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hangs", nargs="*", choices=[*WAITS, []], metavar="HANG")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds without progress that count as a hang")
    chosen = parser.parse_args()
    found: dict[str, Named] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package, code = build(folder)
        for hang in chosen.hangs or WAITS:
            found[hang] = look_at(hang, package, code, chosen.limit, folder)
            print(hang, json.dumps(vars(found[hang])), file=sys.stderr, flush=True)
    rows = [
        [hang, one.place, one.function, one.waits, one.threads, f"{one.seconds:.1f}", ", ".join(one.missing) or "-"]
        for hang, one in found.items()
    ]
    header = ("planted", "launch", "function", "what its thread does", "threads", "seconds after the limit", "missing")
    table(header, rows)
    return 1 if any(one.missing or one.seconds > MOST for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
