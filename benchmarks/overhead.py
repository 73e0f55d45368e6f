"""Measures what instrumentation costs, side by side with the plain package and PyTorch's built-in printer.

usage: python benchmarks/overhead.py [--device cpu|cuda] [--calls N] [--only SECTION ...]

Prints Markdown tables. Every timing runs in a process of its own, on packages built in this run, with outputs of the
printers in files. The built-in printer is AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER=1..3 at compile time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILE_PLAIN = """
import sys, torch
program = torch.export.load(sys.argv[1])
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2])
"""
EXPORT = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import models
torch.export.save(models.export(sys.argv[2], sys.argv[3]), sys.argv[4])
"""
MIB = 1 << 20


@dataclass(frozen=True)
class Timing:
    median_ms: float
    best_ms: float
    total_s: float
    peak_growth_mib: float
    checksum: tuple[float, ...]


class Bench:
    """Packages and timings of one benchmark run, in a temporary directory."""

    def __init__(self, work: Path, device: str, calls: int) -> None:
        self.work = work
        self.device = device
        self.calls = calls
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("AOTI_DEBUG_", "AOT_INDUCTOR_DEBUG_"))}

    def python(self, *args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
        cwd = cwd or self.work
        log = self.work / "stderr.log"
        with log.open("wb") as stderr:
            done = subprocess.run(
                [sys.executable, *args], env={**self.env, **(env or {})}, cwd=cwd, stdout=subprocess.PIPE, stderr=stderr
            )
        if done.returncode != 0:
            raise SystemExit(f"{args} failed with {done.returncode}:\n{log.read_text(errors='replace')[-4000:]}")
        return done.stdout.decode()

    def program(self, name: str) -> Path:
        path = self.work / f"{name}.pt2"
        if not path.exists():
            self.python("-c", EXPORT, str(HERE), name, self.device, str(path))
        return path

    def plain(self, name: str, printer: int = 0) -> Path:
        """A package compiled by PyTorch alone, with its built-in printer at the given level."""
        path = self.work / f"{name}.printer{printer}.pt2"
        if not path.exists():
            env = {"AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": str(printer)}
            self.python("-c", COMPILE_PLAIN, str(self.program(name)), str(path), env=env)
        return path

    def instrumented(self, name: str) -> Path:
        path = self.work / f"{name}.instrumented.pt2"
        if not path.exists():
            self.python("-m", "aoti_debug.cli.main", "build", str(self.program(name)), "-o", str(path))
        return path

    def time(self, package: Path, name: str, calls: int, env: dict[str, str]) -> Timing:
        """Times calls in a new process whose current directory is fresh and removed afterwards."""
        directory = Path(tempfile.mkdtemp(dir=self.work))
        try:
            out = self.python(
                str(HERE / "timed_calls.py"), str(package), str(self.program(name)), str(calls), env=env, cwd=directory
            )
            data = json.loads(out.strip().splitlines()[-1])
            data["checksum"] = tuple(data["checksum"])
            return Timing(**data)
        finally:
            shutil.rmtree(directory)

    def best_of(self, variants: dict[str, tuple[Path, dict[str, str]]], name: str, calls: int) -> dict[str, Timing]:
        """Three rounds over all variants in turn; each variant's fastest median counts."""
        best: dict[str, Timing] = {}
        for _ in range(3):
            for label, (package, env) in variants.items():
                timing = self.time(package, name, calls, env)
                if label not in best or timing.median_ms < best[label].median_ms:
                    best[label] = timing
        return best


def table(header: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def calls_section(bench: Bench, name: str) -> None:
    """Levels 0, 2 and 3 against plain and the built-in printer."""
    ours, levels = bench.instrumented(name), {"AOTI_DEBUG_LEVEL": "3"}
    variants: dict[str, tuple[Path, dict[str, str]]] = {
        "plain": (bench.plain(name), {}),
        "level 0": (ours, {"AOTI_DEBUG_LEVEL": "0"}),
        "level 3": (ours, levels),
    }
    if bench.device == "cuda":
        variants["level 3, crumb every 16th"] = (ours, {**levels, "AOTI_DEBUG_CRUMB_EVERY": "16"})
    variants["built-in level 3"] = (bench.plain(name, 3), {})
    timings = bench.best_of(variants, name, bench.calls)
    if name == "blocks":
        few = max(5, bench.calls // 10)
        printers = {"level 2": (ours, {"AOTI_DEBUG_LEVEL": "2"}), "built-in level 2": (bench.plain(name, 2), {})}
        timings |= bench.best_of(printers, name, few)
    plain = timings["plain"]
    rows = [
        [label, f"{t.median_ms:.3f}", f"{t.median_ms / plain.median_ms:.3f}", f"{t.median_ms - plain.median_ms:+.3f}"]
        for label, t in timings.items()
    ]
    print(f"### {name}: time of a call\n")
    table(["variant", "ms (median)", "x plain", "ms more than plain"], rows)
    if len({t.checksum for t in timings.values()}) != 1:
        raise SystemExit(f"outputs differ between variants of {name}: {[t.checksum for t in timings.values()]}")


def write_speed(directory: Path, total: int) -> float:
    """Bytes per second of plain write(2), 8 MiB a call, into new files of 64 MiB, without fsync."""
    block = os.urandom(8 * MIB)
    directory.mkdir()
    start, written, index = time.perf_counter(), 0, 0
    while written < total:
        fd = os.open(directory / str(index), os.O_CREAT | os.O_WRONLY)
        for _ in range(8):
            written += os.write(fd, block)
        os.close(fd)
        index += 1
    speed = written / (time.perf_counter() - start)
    shutil.rmtree(directory)
    return speed


def disk_bytes(directory: Path) -> int:
    inodes = {(s.st_dev, s.st_ino): s.st_size for s in (p.stat() for p in directory.rglob("*.safetensors"))}
    return sum(inodes.values())


def saving_section(bench: Bench) -> None:
    """Level 1 against the built-in printer and against write(2)."""
    name, calls = "blocks", 2
    plain = bench.time(bench.plain(name), name, bench.calls, {})
    rows = []
    for _ in range(2):
        runs = Path(tempfile.mkdtemp(dir=bench.work))
        env = {"AOTI_DEBUG_LEVEL": "1", "AOTI_DEBUG_DIR": str(runs)}
        ours = bench.time(bench.instrumented(name), name, calls, env)
        total = disk_bytes(runs)
        shutil.rmtree(runs)
    per_call = total / (calls + 2)
    written = write_speed(bench.work / "write_speed", int(max(per_call, 512 * MIB)))
    extra = (ours.median_ms - plain.median_ms) / 1e3
    speed = per_call / extra
    builtin = bench.time(bench.plain(name, 1), name, calls, {})
    rows = [
        ["plain call", f"{plain.median_ms:.2f} ms", ""],
        ["level 1 call", f"{ours.median_ms:.1f} ms", f"{per_call / MIB:.0f} MiB on disk a call"],
        ["built-in level 1 call", f"{builtin.median_ms:.1f} ms", f"{builtin.median_ms / ours.median_ms:.1f} x level 1"],
        ["level 1, bytes on disk / extra time", f"{speed / 1e9:.2f} GB/s", f"{speed / written:.0%} of write(2)"],
        ["write(2), same disk", f"{written / 1e9:.2f} GB/s", ""],
        ["peak host memory, level 1 over plain", f"{ours.peak_growth_mib - plain.peak_growth_mib:.0f} MiB", ""],
    ]
    print("### blocks: saving every tensor (level 1)\n")
    table(["what", "measured", ""], rows)


def build_section(bench: Bench) -> None:
    """A whole `aoti-debug build` process against a process that calls aoti_compile_and_package."""
    name = "blocks"
    program, rows = str(bench.program(name)), []
    target = str(bench.work / "built.pt2")
    commands = {
        "aoti_compile_and_package": ["-c", COMPILE_PLAIN, program, target],
        "aoti-debug build": ["-m", "aoti_debug.cli.main", "build", program, "-o", target],
    }
    caches = bench.work / "caches"
    for label, command in commands.items():
        env = {
            "XDG_CACHE_HOME": str(caches / label / "xdg"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / label / "inductor"),
            "TRITON_CACHE_DIR": str(caches / label / "triton"),
        }
        seconds = []
        for _ in range(4):
            Path(target).unlink(missing_ok=True)
            start = time.perf_counter()
            bench.python(*command, env=env)
            seconds.append(time.perf_counter() - start)
        rows.append([label, f"{seconds[0]:.1f}", f"{min(seconds[1:]):.1f}"])
    ratio = float(rows[1][2]) / float(rows[0][2])
    print("### build\n")
    table(["process", "cold, s", "warm, s (best of 3)"], rows)
    print(f"warm ratio: {ratio:.2f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--calls", type=int, default=50)
    sections = ["calls", "launches", "saving", "build"]
    parser.add_argument("--only", nargs="*", choices=sections, default=sections)
    parser.add_argument("--work", type=Path, help="keep packages here and use those that are there")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="aoti_debug_bench_"))
    work.mkdir(exist_ok=True)
    bench = Bench(work.resolve(), options.device, options.calls)
    versions = bench.python("-c", "import torch, platform; print(torch.__version__, platform.python_version())").split()
    machine = platform.processor() or platform.machine()
    if options.device == "cuda":
        machine = bench.python("-c", "import torch; print(torch.cuda.get_device_name())").strip()
    print(f"{machine}, {os.cpu_count()} CPU cores, torch {versions[0]}, Python {versions[1]}\n", flush=True)
    try:
        if "calls" in options.only:
            calls_section(bench, "blocks")
        if "launches" in options.only:
            calls_section(bench, "launches")
        if "saving" in options.only:
            saving_section(bench)
        if "build" in options.only:
            build_section(bench)
    finally:
        if options.work is None:
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
