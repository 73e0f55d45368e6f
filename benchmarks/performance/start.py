"""Measures how long a user waits: for a run, a triage, a build, and for the commands that read a run.

usage: python -m benchmarks.performance.start [--device cpu|cuda] [--rounds N] [--against CHECKOUT] [--only SECTION ...]

Prints Markdown tables. Times are of whole processes, medians of the rounds; in each round everything that is compared
is called in turn. "bare" is a Python script that imports torch, loads the plain package with torch's C++ loader and
calls it. --against names another checkout of aoti-debug, which is measured in the same rounds. The models are those of
examples.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import EXIT_CLEAN, EXIT_INCOMPLETE
from benchmarks.checkout import ROOT
from benchmarks.markdown import table
from benchmarks.performance.overhead import COMPILE_PLAIN

EXAMPLES = ROOT / "examples"
SECTIONS = ("run", "read", "triage", "build")
EXPORT = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from model import Classifier
torch.manual_seed(0)
model, tokens = Classifier().eval().to(sys.argv[2]), torch.randint(0, 1000, (8, 32), device=sys.argv[2])
with torch.no_grad():
    torch.export.save(torch.export.export(model, (tokens,)), sys.argv[3])
torch.save((tokens,), sys.argv[4])
"""
BARE = """
import json, sys, time
import torch
before = time.monotonic()
loader = torch._C._aoti.AOTIModelPackageLoader(sys.argv[1], "model", False, 1, -1)
loaded = time.monotonic()
loader.boxed_run(list(torch.load(sys.argv[2])))
if torch.cuda.is_initialized():
    torch.cuda.synchronize()
print(json.dumps({"load": loaded - before, "call": time.monotonic() - loaded}))
"""


@dataclass(frozen=True)
class Checkout:
    """A tree of aoti-debug.

    Attributes:
        name: of its column.
    """

    name: str
    root: Path


@dataclass(frozen=True)
class Done:
    """A process that has ended.

    Attributes:
        seconds: of the whole process.
    """

    seconds: float
    stdout: str


class Bench:
    """One benchmark run in a temporary directory."""

    def __init__(self, work: Path, device: str, rounds: int, checkouts: Sequence[Checkout]) -> None:
        self.work = work
        self.device = device
        self.rounds = rounds
        self.checkouts = checkouts
        self.program, self.inputs = work / "model.pt2", work / "inputs.pt"
        self.package, self.plain = work / "model.instrumented.pt2", work / "plain.pt2"
        self.faulty = work / "faulty.pt2"
        self.imports = ["--import", "lookup_op"]

    def python(
        self, *words: str | Path, tree: Checkout | None = None, codes: Sequence[int] = (0,), **variables: str
    ) -> Done:
        """Runs Python in the work directory, with the modules of the examples and a tree on its path."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTI_DEBUG_", "AOT_INDUCTOR_DEBUG_"))}
        inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        path = os.pathsep.join([str((tree or self.checkouts[0]).root), str(EXAMPLES), *inherited])
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=self.work,
            env={**kept, "PYTHONPATH": path, "AOTI_DEBUG_PRINT": "none", **variables},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        seconds = time.monotonic() - began
        if done.returncode not in codes:
            raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return Done(seconds, done.stdout)

    def tool(self, tree: Checkout, *words: str | Path, codes: Sequence[int] = (0,), **variables: str) -> Done:
        """Runs the command line of a tree."""
        return self.python("-m", "aoti_debug", *words, tree=tree, codes=codes, **variables)

    def prepare(self) -> None:
        """Exports the models and compiles the packages that are run."""
        with ThreadPoolExecutor() as pool:
            faulty = pool.submit(self.python, EXAMPLES / "faulty.py", self.faulty, self.device)
            self.python("-c", EXPORT, EXAMPLES, self.device, self.program, self.inputs)
            plain = pool.submit(self.python, "-c", COMPILE_PLAIN, self.program, self.plain)
            self.tool(self.checkouts[0], "build", self.program, "-o", self.package)
            for future in (faulty, plain):
                future.result()

    def bare(self) -> tuple[float, Mapping[str, float]]:
        """Seconds of the bare script, and of its load and its call."""
        done = self.python("-c", BARE, self.plain, self.inputs)
        return done.seconds, json.loads(done.stdout)


def main() -> None:
    options = _options()
    checkouts = [
        Checkout("aoti-debug", ROOT),
        *([Checkout(str(options.against), options.against.resolve())] if options.against else []),
    ]
    with tempfile.TemporaryDirectory(prefix="aoti-debug-start-") as folder:
        bench = Bench(Path(folder), options.device, options.rounds, checkouts)
        print(f"{_machine(options.device)}; medians of {options.rounds} rounds\n")
        bench.prepare()
        tables = {"run": _runs, "read": _reads, "triage": _triages, "build": _builds}
        for section in options.only or SECTIONS:
            tables[section](bench)


def _runs(bench: Bench) -> None:
    """A run of level 3 beside the bare script."""
    times: dict[str, list[float]] = {name: [] for name in ("bare", *(tree.name for tree in bench.checkouts))}
    for _ in range(bench.rounds):
        times["bare"].append(bench.bare()[0])
        for tree in bench.checkouts:
            times[tree.name].append(bench.tool(tree, "run", bench.package, "--level", "3", "--out", "runs").seconds)
    bare = statistics.median(times["bare"])
    rows = [("bare", _seconds(bare), "", "")]
    for tree in bench.checkouts:
        seconds = statistics.median(times[tree.name])
        rows.append((tree.name, _seconds(seconds), _seconds(seconds - bare), f"{seconds / bare:.2f} ×"))
    table(("run of one call", "whole process", "beyond bare", ""), rows)


def _reads(bench: Bench) -> None:
    """The commands that read a run at level 1."""
    tree = bench.checkouts[0]
    bench.tool(tree, "run", bench.package, "--level", "1", "--out", "saved")
    run = bench.work / "saved" / "latest"
    shown = json.loads(bench.tool(tree, "show", "--run", run, "--json").stdout)
    launch, kernel = shown["launches"][-1]["id"], shown["launches"][-1]["kernel"]
    commands: dict[str, Callable[[int], Sequence[str | Path]]] = {
        "show": lambda _: ("show", "--run", run),
        f"show {launch}": lambda _: ("show", launch, "--run", run),
        "repro KERNEL": lambda n: ("repro", kernel, "--run", run, "-o", f"repro-{n}"),
        "report": lambda n: ("report", run, "-o", f"report-{n}.html"),
        "bundle": lambda n: ("bundle", run, "-o", f"bundle-{n}.zip"),
    }
    rows = []
    numbers = itertools.count()
    for name, words in commands.items():
        times: dict[str, list[float]] = {checkout.name: [] for checkout in bench.checkouts}
        for _ in range(bench.rounds):
            for checkout in bench.checkouts:
                times[checkout.name].append(bench.tool(checkout, *words(next(numbers))).seconds)
        rows.append((f"`aoti-debug {name}`", *(_seconds(statistics.median(values)) for values in times.values())))
    table(("command", *(tree.name for tree in bench.checkouts)), rows)


def _triages(bench: Bench) -> None:
    """Triages beyond their build, and what a trial of them costs."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(bench.rounds):
        seconds, parts = bench.bare()
        found.setdefault(("bare", "whole"), []).append(seconds)
        found.setdefault(("bare", "load"), []).append(parts["load"])
        for tree in bench.checkouts:
            triage = _triage(bench, tree, bench.faulty, *bench.imports, codes=(1,))
            found.setdefault((tree.name, "fault"), []).append(triage.beyond_build)
            found.setdefault((tree.name, "build"), []).append(triage.build)
            if triage.to_first_launch is not None:
                found.setdefault((tree.name, "trial"), []).append(triage.to_first_launch)
            clean = _triage(bench, tree, bench.package)
            found.setdefault((tree.name, "clean"), []).append(clean.beyond_build)
    columns = ["bare", *(tree.name for tree in bench.checkouts)]

    def row(name: str, key: str, bare: str = "") -> tuple[str, ...]:
        cells = []
        for column in columns:
            values = found.get((column, bare if column == "bare" else key))
            cells.append(_seconds(statistics.median(values)) if values else "")
        return (name, *cells)

    table(
        ("", *columns),
        [
            row("triage of the fault, its build", "build"),
            row("triage of the fault, beyond the build", "fault"),
            row("second trial: start to the first launch; bare: load", "trial", "load"),
            row("triage of a clean model, beyond the build; bare: one run", "clean", "whole"),
        ],
    )


@dataclass(frozen=True)
class TriageTime:
    """The seconds of a triage.

    Attributes:
        to_first_launch: of its second run, from the start of the process; None where they are not recorded.
    """

    whole: float
    build: float
    to_first_launch: float | None

    @property
    def beyond_build(self) -> float:
        return self.whole - self.build


def _triage(
    bench: Bench, tree: Checkout, model: Path, *words: str, codes: Sequence[int] = (EXIT_CLEAN, EXIT_INCOMPLETE)
) -> TriageTime:
    done = bench.tool(tree, "triage", model, *words, "--out", "triages", codes=codes)
    latest = bench.work / "triages" / "latest"
    steps = json.loads((latest / "triage.json").read_text())["steps"]
    runs = sorted(path for path in (latest / "runs").iterdir() if path.name != "latest" and path.is_dir())
    timings: Mapping[str, Any] = {}
    if len(runs) > 1:
        timings = json.loads((runs[1] / "run.json").read_text()).get("timings") or {}
    before = ("start", "import torch", "import modules", "inputs", "load")
    first = sum(timings.get(phase, 0.0) for phase in before) if timings else None
    return TriageTime(done.seconds, sum(step["seconds"] for step in steps if step["name"] == "build"), first)


def _builds(bench: Bench) -> None:
    """Builds beside torch's own, with empty caches and with full ones."""
    rows = []
    for state in ("cold", "warm"):
        times: dict[str, list[float]] = {}
        for number in range(1 if state == "cold" else bench.rounds):
            for name in ("torch", *(tree.name for tree in bench.checkouts)):
                cache = bench.work / f"cache-{name.replace('/', '_')}"
                places: dict[str, Any] = {
                    "XDG_CACHE_HOME": str(cache),
                    "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
                    "TRITON_CACHE_DIR": str(cache / "triton"),
                }
                output = bench.work / f"{state}-{number}-{cache.name}.pt2"
                if name == "torch":
                    done = bench.python("-c", COMPILE_PLAIN, bench.program, output, **places)
                else:
                    tree = next(tree for tree in bench.checkouts if tree.name == name)
                    done = bench.tool(tree, "build", bench.program, "-o", output, **places)
                times.setdefault(name, []).append(done.seconds)
        medians = {name: statistics.median(values) for name, values in times.items()}
        cells = [
            f"{_seconds(medians[tree.name])} ({medians[tree.name] / medians['torch']:.2f} ×)"
            for tree in bench.checkouts
        ]
        rows.append((state, _seconds(medians["torch"]), *cells))
    table(("build", "`aoti_compile_and_package`", *(tree.name for tree in bench.checkouts)), rows)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.1f} ms"


def _machine(device: str) -> str:
    versions = f"torch {metadata.version('torch')}, Python {platform.python_version()}, {os.cpu_count()} cores"
    if device == "cpu":
        return versions
    names = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.splitlines()
    return f"{versions}, {names[0].partition(' (UUID')[0] if names else 'a GPU'}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout of aoti-debug")
    parser.add_argument("--only", nargs="+", choices=SECTIONS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
