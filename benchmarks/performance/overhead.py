"""Measures what instrumentation costs, side by side with the plain package and PyTorch's built-in printer.

usage: python -m benchmarks.performance.overhead [--device cpu|cuda] [--calls N] [--busy N] [--only SECTION ...]

Prints Markdown tables. Every timing runs in a process of its own, on packages built in this run, with outputs of the
printers in files. "plain" is the plain twin of the instrumented package, compiled from the same generated sources. The
built-in printer is AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER=1..3 at compile time. "streams", for CUDA and torch
from 2.14 on, calls models that launch on side streams, which wait for each other.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import checkout
from benchmarks.markdown import table
from benchmarks.performance import recorded

COMPILE_PLAIN = """
import sys, torch
program = torch.export.load(sys.argv[1])
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2])
"""
BUILD = """
import sys
from pathlib import Path
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder.build import BuildOptions, build_report
from benchmarks.models import timed_models
name, program, output, plain = sys.argv[1], *map(Path, sys.argv[2:])
chosen = {}
if name in timed_models.STREAMS:
    user_code = UserCode(("tests.instrument.wrapper.cuda_models",))
    chosen = {"inductor_configs": timed_models.STREAM_SETTINGS, "user_code": user_code}
build_report(BuildOptions(program=program, output=output, plain=plain, **chosen))
"""
EXPORT = """
import sys, torch
from benchmarks.models import timed_models
torch.export.save(timed_models.export(sys.argv[1], sys.argv[2]), sys.argv[3])
"""
MIB = 1 << 20
ON_CUDA = ("graphs", "streams")  # sections
GRAPH_MODELS = ("blocks", "launches")
STREAM_MODELS = ("stream_blocks", "stream_launches")

Variants = dict[str, tuple[Path, dict[str, str]] | int]  # label -> package and environment, or bytes to write


@dataclass(frozen=True)
class Timing:
    median_ms: float
    checksum: tuple[float, ...]


class Bench:
    """Packages and timings of one benchmark run, in a temporary directory."""

    def __init__(self, work: Path, device: str, calls: int) -> None:
        self.work = work
        self.device = device
        self.calls = calls
        inherited = checkout.environment()
        self.env = {k: v for k, v in inherited.items() if not k.startswith(("AOTI_DEBUG_", "AOT_INDUCTOR_DEBUG_"))}

    def python(self, *args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
        cwd = cwd or self.work
        with tempfile.TemporaryFile(dir=self.work) as stderr:
            done = subprocess.run(
                [sys.executable, *args], env={**self.env, **(env or {})}, cwd=cwd, stdout=subprocess.PIPE, stderr=stderr
            )
            if done.returncode != 0:
                stderr.seek(0)
                said = stderr.read().decode(errors="replace")[-4000:]
                raise SystemExit(f"{args} failed with {done.returncode}:\n{said}")
        return done.stdout.decode()

    def program(self, name: str) -> Path:
        path = self.work / f"{name}.pt2"
        if not path.exists():
            self.python("-c", EXPORT, name, self.device, str(path))
        return path

    def built_in(self, name: str, printer: int) -> Path:
        """A package compiled by PyTorch alone, with its built-in printer at the given level."""
        path = self.work / f"{name}.printer{printer}.pt2"
        if not path.exists():
            env = {"AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": str(printer)}
            self.python("-c", COMPILE_PLAIN, str(self.program(name)), str(path), env=env)
        return path

    def plain(self, name: str) -> Path:
        """The plain twin of the instrumented package: the same kernels, tuned once for both."""
        self.instrumented(name)
        return self.work / f"{name}.plain.pt2"

    def instrumented(self, name: str) -> Path:
        path = self.work / f"{name}.instrumented.pt2"
        if not path.exists():
            plain = self.work / f"{name}.plain.pt2"
            self.python("-c", BUILD, name, str(self.program(name)), str(path), str(plain))
        return path

    def prepare(self, sections: list[str], jobs: int) -> None:
        """Builds the packages of these sections, `jobs` at a time."""
        users = {"blocks": {"calls", "saving"}, "launches": {"launches"}, "mixed": {"coverage"}}
        names = [name for name, of in users.items() if of & {*sections}]
        further = {"graphs": GRAPH_MODELS, "streams": STREAM_MODELS}
        ours = dict.fromkeys(
            [*names, *(name for section in further for name in further[section] if section in sections)]
        )
        for name in {"blocks": None, **ours} if names or "build" in sections else ours:
            self.program(name)
        printers = {"blocks": (1, 2, 3), "launches": (3,), "mixed": (1, 3)}
        with ThreadPoolExecutor(jobs) as pool:
            done = [pool.submit(self.instrumented, name) for name in ours]
            done += [pool.submit(self.built_in, name, printer) for name in names for printer in printers[name]]
            for future in done:
                future.result()

    def call(self, name: str, package: Path, directory: Path, env: dict[str, str] | None = None) -> str:
        """Calls a package once in a new directory and a process of its own; what it printed on stdout."""
        directory.mkdir()
        return self.python("-m", recorded.__name__, str(self.program(name)), str(package), env=env, cwd=directory)

    def time(
        self, name: str, variants: Variants, rounds: int, repeats: int = 1, what: str = "call"
    ) -> tuple[dict[str, Timing], float]:
        """Times the variants in turn, in one new process; also its growth of peak resident memory in MiB.

        `what` is timed: a "call", or the "replay" of a CUDA graph.

        The process's current directory is fresh and removed afterwards.
        """
        directory = Path(tempfile.mkdtemp(dir=self.work))
        try:
            request = directory / "variants.json"
            plain = {k: v if isinstance(v, int) else [str(v[0]), v[1]] for k, v in variants.items()}
            request.write_text(json.dumps(plain))
            numbers = (str(rounds), str(repeats), str(request), what)
            out = self.python(
                "-m", "benchmarks.performance.timed_calls", str(self.program(name)), *numbers, cwd=directory
            )
            data = json.loads(out)
            growth = float(data.pop("peak_growth_mib"))
            timings = {label: Timing(t["median_ms"], tuple(t["checksum"])) for label, t in data.items()}
            return timings, growth
        finally:
            shutil.rmtree(directory)


def calls_section(bench: Bench, name: str) -> None:
    """Levels 0, 3, hash and 2 against plain and the built-in printer."""
    ours = bench.instrumented(name)
    variants: Variants = {
        "plain": (bench.plain(name), {}),
        "level 0": (ours, {"AOTI_DEBUG_LEVEL": "0"}),
        "level 3": (ours, {"AOTI_DEBUG_LEVEL": "3"}),
        "built-in level 3": (bench.built_in(name, 3), {}),
    }
    if bench.device == "cuda":
        exact = {"AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_CRUMB_EVERY": "1"}
        variants["level 3, a breadcrumb every launch"] = (ours, exact)
    if name == "blocks":
        variants["level hash"] = (ours, {"AOTI_DEBUG_LEVEL": "hash"})
        variants["level 2"] = (ours, {"AOTI_DEBUG_LEVEL": "2"})
        variants["built-in level 2"] = (bench.built_in(name, 2), {})
    print_times(name, bench.time(name, variants, bench.calls, repeats=5)[0])


def streams_section(bench: Bench, name: str) -> None:
    """Levels 0, 3 and 2 of a model of several streams against plain."""
    ours = bench.instrumented(name)
    variants: Variants = {
        "plain": (bench.plain(name), {}),
        "level 0": (ours, {"AOTI_DEBUG_LEVEL": "0"}),
        "level 3": (ours, {"AOTI_DEBUG_LEVEL": "3"}),
        "level 3, a breadcrumb every launch": (ours, {"AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_CRUMB_EVERY": "1"}),
        "level 2": (ours, {"AOTI_DEBUG_LEVEL": "2"}),
    }
    print_times(name, bench.time(name, variants, bench.calls, repeats=5)[0])


def print_times(name: str, timings: dict[str, Timing]) -> None:
    """Prints the times of calls.

    Raises:
        SystemExit: the outputs differ between the levels.
    """
    plain = timings["plain"].median_ms
    rows = [
        [label, f"{t.median_ms:.3f}", f"{t.median_ms / plain:.3f}", f"{t.median_ms - plain:+.3f}"]
        for label, t in timings.items()
    ]
    print(f"### {name}: time of a call\n")
    table(["variant", "ms (median)", "x plain", "ms more than plain"], rows)
    sums = {label: t.checksum for label, t in timings.items() if label.startswith("level")}
    if len(set(sums.values())) != 1:  # builds of their own may differ: Inductor tunes each anew
        raise SystemExit(f"outputs differ between the levels of {name}: {sums}")


def graphs_section(bench: Bench, name: str) -> None:
    """Replays of a CUDA graph: levels 0, 3, hash and 2, watchpoints on every argument, and summaries, against plain."""
    ours = bench.instrumented(name)
    variants: Variants = {
        "plain": (bench.plain(name), {}),
        "level 0": (ours, {"AOTI_DEBUG_LEVEL": "0"}),
        "level 3": (ours, {"AOTI_DEBUG_LEVEL": "3"}),
        "level 3, a breadcrumb every launch": (ours, {"AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_CRUMB_EVERY": "1"}),
        "level 3, `--watch '*: nan'`": (ours, {"AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_WATCH": "*: nan"}),
        "level 3, `--summaries`": (ours, {"AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_SUMMARIES": "1"}),
        "level hash": (ours, {"AOTI_DEBUG_LEVEL": "hash"}),
        "level 2": (ours, {"AOTI_DEBUG_LEVEL": "2"}),
    }
    timings, _ = bench.time(name, variants, bench.calls, repeats=5, what="replay")
    plain = timings["plain"].median_ms
    rows = [[label, f"{t.median_ms:.3f}", f"{t.median_ms / plain:.3f}"] for label, t in timings.items()]
    print(f"### {name}: time of a replay of a CUDA graph\n")
    table(["variant", "ms (median)", "x plain"], rows)
    if len({t.checksum for label, t in timings.items() if label.startswith("level")}) != 1:
        raise SystemExit(f"outputs differ between the levels of {name}")


def new_bytes(runs: Path, first: int) -> int:
    """Bytes of the tensor files that model calls from number `first` on added to the disk."""
    early: dict[int, int] = {}  # inode -> bytes
    late: dict[int, int] = {}
    for path in runs.glob("*/tensors/*/*/*.safetensors"):
        if not path.parents[3].is_symlink():  # not through `latest`
            stat = path.stat()
            (late if int(path.parts[-3]) >= first else early)[stat.st_ino] = stat.st_size
    return sum(size for inode, size in late.items() if inode not in early)


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Processes that never wait, one core each."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def saving_section(bench: Bench, neighbours: int) -> None:
    """Level 1 against write(2) of as many bytes, in turn, and against the built-in printer."""
    name, calls = "blocks", 5
    plain, growth = bench.time(name, {"plain": (bench.plain(name), {})}, bench.calls)
    runs = Path(tempfile.mkdtemp(dir=bench.work))
    level1 = (bench.instrumented(name), {"AOTI_DEBUG_LEVEL": "1", "AOTI_DEBUG_DIR": str(runs)})
    bench.time(name, {"level 1": level1}, 2)
    per_call = new_bytes(runs, first=2) // 2  # after two calls to warm up
    shutil.rmtree(runs)
    runs.mkdir()
    saved, saved_growth = bench.time(name, {"level 1": level1, "write(2)": per_call}, calls)
    shutil.rmtree(runs)
    builtin, _ = bench.time(name, {"built-in level 1": (bench.built_in(name, 1), {})}, calls)
    plain_ms, builtin_ms = plain["plain"].median_ms, builtin["built-in level 1"].median_ms
    ours_ms, write_ms = saved["level 1"].median_ms, saved["write(2)"].median_ms
    extra_ms = ours_ms - plain_ms
    rows = [
        ["plain call", f"{plain_ms:.2f} ms", ""],
        ["level 1 call", f"{ours_ms:.1f} ms", f"{per_call / MIB:.0f} MiB on disk a call"],
        ["built-in level 1 call", f"{builtin_ms:.1f} ms", f"{builtin_ms / ours_ms:.1f} x level 1"],
        ["level 1, bytes on disk / extra time", f"{per_call / extra_ms / 1e6:.2f} GB/s", f"{write_ms / extra_ms:.0%}"],
        ["write(2) of as many bytes, in turn with it", f"{per_call / write_ms / 1e6:.2f} GB/s", "100%"],
        ["peak host memory, level 1 over plain", f"{saved_growth - growth:.0f} MiB", ""],
    ]
    beside = f", beside {neighbours} busy processes" if neighbours else ""
    print(f"### blocks: saving every tensor (level 1){beside}\n")
    table(["what", "measured", ""], rows)


def coverage_section(bench: Bench) -> None:
    """What one call leaves behind at level 1, and the launches that level 3 of the built-in printer names."""
    name, work = "mixed", Path(tempfile.mkdtemp(dir=bench.work))
    package = bench.instrumented(name)
    bench.call(name, package, work / "ours", {"AOTI_DEBUG_LEVEL": "1", "AOTI_DEBUG_DIR": str(work / "runs")})
    naming = bench.call(name, bench.built_in(name, 3), work / "naming")
    saving = bench.call(name, bench.built_in(name, 1), work / "saving")
    ours = recorded.ours(work / "runs")
    builtin = recorded.built_in(bench.built_in(name, 1), saving, naming, work / "saving")
    shutil.rmtree(work)
    sites, arguments = recorded.in_code(package)
    counts = [
        ("launches named", str(sites), ours.launches, builtin.launches),
        ("launches with a saved tensor", "", ours.with_tensors, builtin.with_tensors),
        ("tensor arguments saved", str(arguments), ours.arguments, builtin.arguments),
        ("tensors saved, before and after", "", ours.states, builtin.states),
        ("files on disk", "", ours.files, builtin.files),
    ]
    rows = [[what, code, str(a), f"{b} ({b / a:.0%})"] for what, code, a, b in counts]
    print("### mixed: what is recorded of one call\n")
    table(["what", "generated code", "aoti-debug", "built-in printer"], rows)


def build_section(bench: Bench) -> None:
    """A whole `aoti-debug build` process against a process that calls aoti_compile_and_package."""
    name = "blocks"
    program, rows = str(bench.program(name)), []
    target = str(bench.work / "built.pt2")
    commands = {
        "aoti_compile_and_package": ["-c", COMPILE_PLAIN, program, target],
        "aoti-debug build": ["-m", "aoti_debug", "build", program, "-o", target],
    }
    caches = bench.work / "caches"
    for label, command in commands.items():
        own = caches / label.replace(" ", "-")  # Inductor cannot compile below a directory with a space in its name
        env = {
            "XDG_CACHE_HOME": str(own / "xdg"),
            "TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"),
            "TRITON_CACHE_DIR": str(own / "triton"),
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


def has_streams() -> bool:
    """True if what AOTInductor generates of this torch uses streams of a model's own."""
    found = importlib.util.find_spec("torch")
    folder = None if found is None or found.origin is None else Path(found.origin).parent
    return folder is not None and (folder / "_inductor/codegen/aoti_runtime/streams.h").exists()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--calls", type=int, default=20, help="rounds of timed calls")
    parser.add_argument("--busy", type=int, default=0, help="measure saving once more beside so many busy processes")
    sections = ["calls", "launches", "saving", "coverage", "build"]
    parser.add_argument(
        "--only", nargs="*", choices=[*sections, *ON_CUDA], help=f"{', '.join(ON_CUDA)}: on a CUDA device alone"
    )
    parser.add_argument("--work", type=Path, help="keep packages here and use those that are there")
    parser.add_argument("--jobs", type=int, default=1, help="packages that are built at a time")
    options = parser.parse_args()
    if {*ON_CUDA} & {*(options.only or ())} and options.device != "cuda":
        parser.error(f"{' and '.join(ON_CUDA)} need --device cuda")
    if "streams" in (options.only or ()) and not has_streams():
        parser.error(
            "streams need torch from 2.14 on: before, torch.ops.streams are Python operators behind torch's proxy "
            "executor, and the ratios say nothing of streams"
        )
    options.only = options.only or [*sections, *(["graphs"] if options.device == "cuda" else [])]
    work = options.work or Path(tempfile.mkdtemp(prefix="aoti_debug_bench_"))
    work.mkdir(exist_ok=True)
    bench = Bench(work.resolve(), options.device, options.calls)
    versions = bench.python("-c", "import torch, platform; print(torch.__version__, platform.python_version())").split()
    machine = platform.processor() or platform.machine()
    if options.device == "cuda":
        machine = bench.python("-c", "import torch; print(torch.cuda.get_device_name())").strip()
    print(f"{machine}, {os.cpu_count()} CPU cores, torch {versions[0]}, Python {versions[1]}\n", flush=True)
    try:
        bench.prepare(options.only, options.jobs)
        if "calls" in options.only:
            calls_section(bench, "blocks")
        if "launches" in options.only:
            calls_section(bench, "launches")
        if "saving" in options.only:
            saving_section(bench, 0)
            if options.busy:
                with busy_neighbours(options.busy):
                    saving_section(bench, options.busy)
        if "coverage" in options.only:
            coverage_section(bench)
        if "graphs" in options.only:
            for name in GRAPH_MODELS:
                graphs_section(bench, name)
        if "streams" in options.only:
            for name in STREAM_MODELS:
                streams_section(bench, name)
        if "build" in options.only:
            build_section(bench)
    finally:
        if options.work is None:
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
