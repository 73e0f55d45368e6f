"""Measures what large weights cost: disk, memory and seconds of each step, beside those of torch alone.

usage: python -m benchmarks.performance.large_weights [GIB ...] [--device cpu|cuda]    0.5, 2 and 6 GiB by default
       python -m benchmarks.performance.large_weights --large                          15 GiB of bfloat16 on a GPU

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
WIDTH, LARGE_WIDTH = 4096, 16384  # rows and columns of a weight; those of --large
KERNEL = "*embedding*"  # the launch that is recorded alone, and replayed
LLAMA_KERNEL = "*_copy_add_embedding*"  # of Llama, in which several kernels look rows up
INTERVAL = 0.05  # seconds
PROGRAM = "program.pt2"

MAKE = """
import sys
import torch

width, layers, device, path, dtype = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]


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
torch.set_default_dtype(getattr(torch, dtype))
ids = torch.arange(8)
module = Layers()
with torch.no_grad():
    program = torch.export.export(module.eval(), (ids,))
torch.export.save(program, path)
torch.save({"args": (ids,), "kwargs": {}}, path.replace(".pt2", ".good.pt"))
torch.save({"args": (torch.where(ids == 5, 9999, ids),), "kwargs": {}}, path.replace(".pt2", ".bad.pt"))
"""
MAKE_LLAMA = """
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM

device, path = sys.argv[3], sys.argv[4]


class Logits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sizes = {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
        heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
        self.model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False))

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


torch.set_default_dtype(torch.bfloat16)
torch.set_default_device(device)
ids = torch.arange(64)[None]
module = Logits()
with torch.no_grad():
    program = torch.export.export(module.eval(), (ids,), strict=False)
torch.export.save(program, path)
torch.save({"args": (torch.where(ids == 5, 200000, ids),), "kwargs": {}}, path.replace(".pt2", ".bad.pt"))
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
        XDG_CACHE_HOME=str(scratch / "cache"),
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


@dataclass(frozen=True)
class Step:
    """A command, the files that are deleted after it, and the exit code that it should have."""

    name: str
    command: Sequence[str]
    deleted: Sequence[str] = ()
    status: int = 0


def steps(device: str, kernel: str) -> Iterator[Step]:
    """Yields the steps in order; a launch of `kernel` is recorded alone, and replayed."""
    python, debug = [sys.executable, "-c"], [sys.executable, "-m", "aoti_debug"]
    yield Step("torch: compile and package", [*python, COMPILE, PROGRAM, "plain.pt2"], ["scratch/inductor"])
    yield Step("torch: load and call", [*python, LOAD, "plain.pt2", device])
    rebuilt = ["again.pt2", "plain.pt2"]
    inputs = ["--inputs", "program.good.pt"]
    yield Step("compiled package: build", [*debug, "build", "plain.pt2", "-o", "again.pt2", *inputs])
    yield Step("compiled package: run, level 1", [*debug, "run", "again.pt2", "--level", "1"], rebuilt)
    yield Step("build", [*debug, "build", PROGRAM, "-o", "inside.pt2"])
    for level in ("3", "2", "1"):
        yield Step(f"run, level {level}", [*debug, "run", "inside.pt2", "--level", level])
    yield from replay("", debug, kernel)
    yield Step("triage, clean", [*debug, "triage", PROGRAM], ["inside.pt2", "aoti-debug"])
    referred = ["--weights", "by-reference", "-o", "reference.pt2"]
    yield Step("by reference: build", [*debug, "build", PROGRAM, *referred])
    for level in ("3", "2"):
        yield Step(f"by reference: run, level {level}", [*debug, "run", "reference.pt2", "--level", level])
    one = ["--level", "1", "--filter", kernel]
    yield Step("by reference: run, level 1, a kernel", [*debug, "run", "reference.pt2", *one])
    yield from replay("by reference: ", debug, kernel)
    yield Step("by reference: triage, clean", [*debug, "triage", "reference.pt2"], ["aoti-debug/triages"])
    bad = [*debug, "triage", "reference.pt2", "--inputs", "program.bad.pt"]
    yield Step("by reference: triage, bad token", bad, status=1)


def replay(prefix: str, debug: Sequence[str], kernel: str) -> Iterator[Step]:
    """Yields the steps that write and run the repro of a launch of the last run."""
    yield Step(f"{prefix}repro", [*debug, "repro", kernel, "-o", "repro"])
    yield Step(f"{prefix}repro.py", [sys.executable, "repro/repro.py"], ["repro"])


def main() -> int:
    """Prints a table; 1 if a step had another exit code than it should have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=float, default=[0.5, 2.0, 6.0], metavar="GIB")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--llama", action="store_true", help="Llama with 8.03e9 parameters (needs transformers)")
    large = "15 GiB of bfloat16 (8.1e9 parameters) on a GPU; the steps by reference"
    parser.add_argument("--large", action="store_true", help=large)
    parser.add_argument("--only", metavar="TEXT", default="", help="steps whose name has this text")
    parser.add_argument("--folder", type=Path, help="keep all files here; a program that is there is taken")
    arguments = parser.parse_args()
    failed = 0
    dtype, width, item = ("bfloat16", LARGE_WIDTH, 2) if arguments.large or arguments.llama else ("float32", WIDTH, 4)
    kernel = LLAMA_KERNEL if arguments.llama else KERNEL
    device = "cuda" if arguments.large else arguments.device
    only = arguments.only or ("by reference" if arguments.large else "")
    for size in [15.0] if arguments.llama or arguments.large else arguments.sizes:
        layers = max(1, round(size * GIB / (width * width * item)))
        with tempfile.TemporaryDirectory(prefix="large_weights_") as name:
            folder = arguments.folder or Path(name)
            script = MAKE_LLAMA if arguments.llama else MAKE
            made = [sys.executable, "-c", script, str(width), str(layers), device, PROGRAM, dtype]
            if not (folder / PROGRAM).exists() and measure(made, folder).status:
                sys.exit((folder / "log.txt").read_text())
            print(f"\n{(folder / PROGRAM).stat().st_size / GIB:.2f} GiB of weights, {dtype}, {device}")
            print(f"{'step':36} {'seconds':>8} {'disk GiB':>9} {'memory GiB':>11}  status")
            failed += sum(not is_done(step, folder) for step in steps(device, kernel) if only in step.name)
    return 1 if failed else 0


def is_done(step: Step, folder: Path) -> bool:
    """Runs a step, prints its row, and deletes what no later one needs; False if its status is another one."""
    before = used(folder)
    cost = measure(step.command, folder)
    disk, memory = (cost.disk - before) / GIB, cost.memory / GIB
    print(f"{step.name:36} {cost.seconds:8.1f} {disk:9.2f} {memory:11.2f}  {cost.status}", flush=True)
    if cost.status != step.status:
        print((folder / "log.txt").read_text()[-2000:])
    for path in step.deleted:
        target = folder / path
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    return cost.status == step.status


if __name__ == "__main__":
    sys.exit(main())
