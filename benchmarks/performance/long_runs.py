"""Measures commands on runs of very many launches: seconds, memory, and what memory each further launch takes.

usage: python -m benchmarks.performance.long_runs [--calls N] [--only COMMAND ...] [--against CHECKOUT]

The model has eleven launches a call; it is called N/4 and N times. Memory is the peak of the command's own process,
without the one that the model runs in. --against names another checkout of aoti-debug, which is measured in turn.
Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkout import ROOT
from benchmarks.markdown import table

EXPORT = """
import sys, torch
class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(5))
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x
torch.export.save(torch.export.export(Layers().eval(), (torch.randn(2, 4),)), sys.argv[1])
"""
COMMANDS = ("run", "show", "report", "triage")
SAMPLE = 0.02  # seconds between two looks at the memory of a process


@dataclass(frozen=True)
class Cost:
    """What a command took.

    Attributes:
        bytes: the peak of its resident memory.
    """

    seconds: float
    bytes: int


def measured(checkout: Path, work: Path, *words: str | Path) -> Cost:
    """Runs a command of a checkout, whose exit code may say that there is a finding."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "AOTI_DEBUG_PRINT": "none"}
    began = time.monotonic()
    with (work / "log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "aoti_debug", *map(str, words)], cwd=work, env=environment, stdout=log, stderr=log
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, _peak_bytes(process.pid))
            time.sleep(SAMPLE)
        seconds = time.monotonic() - began
        if process.returncode not in (0, 1, 8):
            log.seek(0)
            raise SystemExit(f"{words} ended with {process.returncode}:\n{log.read()[-4000:]}")
    return Cost(seconds, peak)


def _peak_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def words_of(command: str, calls: int, checkout: int) -> Sequence[str | Path]:
    """The command line of one measurement."""
    runs = f"runs-{checkout}-{calls}"
    match command:
        case "run":
            return ("run", "model.pt2", "--calls", str(calls), "--out", runs)
        case "show":
            return ("show", f"{runs}/latest")
        case "report":
            return ("report", f"{runs}/latest", "-o", f"report-{checkout}-{calls}.html")
        case _:
            return ("triage", "model.pt2", "--calls", str(calls), "--no-compare", "--out", f"triages-{checkout}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=COMMANDS, help="show and report need run")
    parser.add_argument("--against", type=Path, help="another checkout of aoti-debug")
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against.resolve()] if options.against else [])]
    sizes = (options.calls // 4, options.calls)
    launches = [11 * size for size in sizes]
    costs: dict[tuple[str, int, int], Cost] = {}
    with tempfile.TemporaryDirectory(prefix="aoti-debug-long-") as folder:
        work = Path(folder)
        subprocess.run([sys.executable, "-c", EXPORT, "program.pt2"], cwd=work, check=True)
        measured(ROOT, work, "build", "program.pt2", "-o", "model.pt2")
        for command in options.only:
            for calls in sizes:
                for number, checkout in enumerate(checkouts):
                    costs[command, calls, number] = measured(checkout, work, *words_of(command, calls, number))
    rows = []
    for command in options.only:
        for number, checkout in enumerate(checkouts):
            of_sizes = [costs[command, calls, number] for calls in sizes]
            slope = (of_sizes[1].bytes - of_sizes[0].bytes) / (launches[1] - launches[0])
            name = f"`{command}`" + (f", {checkout}" if number else "")
            cells = [f"{cost.seconds:.1f} s, {cost.bytes >> 20} MiB" for cost in of_sizes]
            rows.append((name, *cells, f"{slope:.0f}"))
    table(("command", *(f"{count:,} launches" for count in launches), "bytes a launch"), rows)


if __name__ == "__main__":
    main()
