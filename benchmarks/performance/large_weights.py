"""Measures what large weights cost: disk, memory and seconds of each step, beside those of torch alone.

usage: python -m benchmarks.performance.large_weights [GIB ...] [--device cpu|cuda]    0.5, 2 and 6 GiB by default

Each step is a process of its own. Disk is what all files of the step together take at the worst moment, temporary and
lasting ones, without the program; memory is what its processes have allocated together at the worst moment, without
files that they map.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import checkout

GIB = 1 << 30
WIDTH = 4096  # rows and columns of a weight
INTERVAL = 0.05  # seconds
PROGRAM = "program.pt2"

MAKE = """
import sys
import torch

width, layers, device, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(256, width)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(layers))

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return x


torch.set_default_device(device)
ids = torch.arange(8)
with torch.no_grad():
    program = torch.export.export(Layers().eval(), (ids,))
torch.export.save(program, path)
torch.save({"args": (torch.where(ids == 5, 9999, ids),), "kwargs": {}}, path.replace(".pt2", ".bad.pt"))
"""
COMPILE = """
import sys
import torch

torch._inductor.aoti_compile_and_package(torch.export.load(sys.argv[1]), package_path=sys.argv[2])
"""
LOAD = """
import sys
import torch

ids = torch.arange(8, device=sys.argv[2])
print(torch._inductor.aoti_load_package(sys.argv[1])(ids).sum())
"""


@dataclass(frozen=True)
class Cost:
    """What a step cost.

    Attributes:
        disk, memory: at the worst moment, in bytes.
    """

    seconds: float
    disk: int
    memory: int
    status: int


class Sampler(threading.Thread):
    """Samples the files of a folder and the memory of a process and its children until it is stopped."""

    def __init__(self, folder: Path, pid: int) -> None:
        super().__init__(daemon=True)
        self._folder, self._pid = folder, pid
        self._ended = threading.Event()
        self.disk = self.memory = 0

    def run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.disk = max(self.disk, used(self._folder))
            self.memory = max(self.memory, sum(map(allocated, family(self._pid))))

    def stop(self) -> None:
        self._ended.set()
        self.join()


def used(folder: Path) -> int:
    """The bytes that the files of a folder take on the disk; each once, however many names it has."""
    files: dict[int, int] = {}
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(os.path.join(base, name))
            except FileNotFoundError:
                continue
            files[found.st_ino] = found.st_blocks * 512
    return sum(files.values())


def family(pid: int) -> Iterator[int]:
    """Yields a process and all processes below it."""
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield from family(child)


def allocated(pid: int) -> int:
    """The resident memory of a process in bytes, without that of files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))


def measure(words: Sequence[str], folder: Path) -> Cost:
    """Runs a command in a folder, whose subfolder is that of temporary files and caches."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    variables = checkout.environment(
        TMPDIR=str(scratch),
        AOTI_DEBUG_CACHE_DIR=str(scratch / "cache"),
        TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"),
    )
    began = time.monotonic()
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(words, cwd=folder, env=variables, stdout=log, stderr=log)
        sampler = Sampler(folder, process.pid)
        sampler.start()
        status = process.wait()
        sampler.stop()
    return Cost(time.monotonic() - began, sampler.disk, sampler.memory, status)


def steps(device: str) -> Iterator[tuple[str, list[str], tuple[str, ...]]]:
    """Yields name, command, and the files that are deleted afterwards, of each step."""
    python, debug = [sys.executable, "-c"], [sys.executable, "-m", "aoti_debug"]
    yield "torch: compile and package", [*python, COMPILE, PROGRAM, "plain.pt2"], ("scratch/inductor",)
    yield "torch: load and call", [*python, LOAD, "plain.pt2", device], ()
    yield "build from compiled package", [*debug, "build", "plain.pt2", "-o", "again.pt2"], ("again.pt2", "plain.pt2")
    yield "build", [*debug, "build", PROGRAM, "-o", "inside.pt2"], ()
    yield "run, level 3", [*debug, "run", "inside.pt2"], ("inside.pt2",)
    yield "build, by reference", [*debug, "build", PROGRAM, "--weights", "by-reference", "-o", "reference.pt2"], ()
    for level in ("3", "2"):
        yield f"run by reference, level {level}", [*debug, "run", "reference.pt2", "--level", level], ()
    one = ["--level", "1", "--filter", "*embedding*"]
    yield "run by reference, level 1, a kernel", [*debug, "run", "reference.pt2", *one], ()
    yield "triage, clean", [*debug, "triage", PROGRAM], ("aoti_debug_triages",)
    yield "triage, bad token", [*debug, "triage", PROGRAM, "--inputs", "program.bad.pt"], ()


def main() -> int:
    """Prints a table; 1 if a step ended with another status than 0, or 1 of a triage with a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=float, default=[0.5, 2.0, 6.0], metavar="GIB")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    failed = 0
    for size in arguments.sizes:
        layers = max(1, round(size * GIB / (WIDTH * WIDTH * 4)))
        with tempfile.TemporaryDirectory(prefix="large_weights_") as name:
            folder = Path(name)
            made = measure([sys.executable, "-c", MAKE, str(WIDTH), str(layers), arguments.device, PROGRAM], folder)
            if made.status:
                sys.exit((folder / "log.txt").read_text())
            program = (folder / PROGRAM).stat().st_size
            print(f"\n{program / GIB:.2f} GiB of weights, {arguments.device}")
            print(f"{'step':36} {'seconds':>8} {'disk GiB':>9} {'memory GiB':>11}  status")
            for step, words, deleted in steps(arguments.device):
                before = used(folder)
                cost = measure(words, folder)
                disk, memory = (cost.disk - before) / GIB, cost.memory / GIB
                print(f"{step:36} {cost.seconds:8.1f} {disk:9.2f} {memory:11.2f}  {cost.status}", flush=True)
                if cost.status != (1 if "bad" in step else 0):
                    failed += 1
                    print((folder / "log.txt").read_text()[-2000:])
                for path in deleted:
                    target = folder / path
                    shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
