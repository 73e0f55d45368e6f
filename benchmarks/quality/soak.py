"""Calls instrumented packages from two hosts while everything around them goes wrong, and compares every output.

usage: python -m benchmarks.quality.soak [--launches N] [--folder DIR] [--only WORD ...]

Two packages of one model each, in a Python host and in a C++ host: 8 threads over 4 runners call them, a package is
loaded again every 100 calls, its level changes with it, the C++ host updates and swaps weights between its calls,
the disk fills up and is emptied, the run directory is removed, descriptors and address space are limited, and
`aoti-debug run` is killed. Every output must equal that of the plain package bit for bit; anonymous memory and
descriptors must not grow.

Prints a Markdown table, the slopes of memory and descriptors among it. Exits with 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOST = Path(__file__).with_name("soak_host.cpp")
PYTHON_HOST = Path(__file__).with_name("soak_host.py")
DEPTHS = (12, 16)  # of the two models
PLAIN = "none, plain package"  # torch's loader does not give all memory back: what it keeps is the measure
LARGEST_SLOPE = 100.0  # KiB of anonymous memory per 1000 launches, beyond the plain package's
LARGEST_DESCRIPTORS = 0.02  # descriptors per 1000 launches
SURVIVES = 0.9  # of the launches that the plain package makes under limits that end it
WARM = 0.4  # of a part: slopes are taken from the rest
TMPFS_BYTES = 24 << 20
KILLS = 2


@dataclass(frozen=True)
class Part:
    """One host under one kind of trouble.

    Attributes:
        host: "python" or "cpp".
        share: of all launches.
        variables: of the host's environment.
        trouble: what goes on beside it: "", "full disk", "removed".
        limits: resource limits of the host.
        is_plain: the host calls the plain packages only: what it does is the measure.
    """

    name: str
    host: str
    share: float
    variables: dict[str, str] = field(default_factory=dict)
    trouble: str = ""
    limits: tuple[tuple[int, int], ...] = ()
    is_plain: bool = False


ADDRESSES = (
    (resource.RLIMIT_AS, 6 << 30),
)  # torch keeps libraries mapped at each reload: in the end these are used up
PARTS = (
    Part(PLAIN, "cpp", 0.1, {"SOAK_LEVELS": "0"}, is_plain=True),
    Part("levels switched at each load", "cpp", 0.2, {"SOAK_LEVELS": "3,0,2,1,3"}),
    Part("levels switched at each load", "python", 0.2, {"SOAK_LEVELS": "3,0,2,1,3"}),
    Part("disk fills up and is emptied", "cpp", 0.15, {"SOAK_LEVELS": "1,3,2"}, "full disk"),
    Part("run directory removed", "cpp", 0.1, {"SOAK_LEVELS": "1,3"}, "removed"),
    Part("64 descriptors", "cpp", 0.1, {"SOAK_LEVELS": "3,1"}, limits=((resource.RLIMIT_NOFILE, 64),)),
    Part("address space limited, plain package", "cpp", 0.05, {"SOAK_LEVELS": "0"}, limits=ADDRESSES, is_plain=True),
    Part("address space limited", "cpp", 0.05, {"SOAK_LEVELS": "3,1"}, limits=ADDRESSES),
    Part("files limited to 4 MiB", "cpp", 0.1, {"SOAK_LEVELS": "3,1"}, limits=((resource.RLIMIT_FSIZE, 4 << 20),)),
)


def build(folder: Path) -> list[tuple[Path, int]]:
    """The packages and the launches of one call of each; what lies in the folder is taken as it is."""
    import torch

    from aoti_debug.instrument.builder import build as builder

    class Model(torch.nn.Module):
        def __init__(self, depth: int) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(depth))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x)).softmax(-1)
            return x

    example = torch.linspace(-1, 1, 64).reshape(8, 8)
    (folder / "input.pickle").write_bytes(torch._C._pickle_save(example))
    found = []
    for number, depth in enumerate(DEPTHS):
        package, plain, program = (folder / f"{name}{number}.pt2" for name in ("package", "plain", "program"))
        if not package.exists():
            torch.manual_seed(number)
            torch.export.save(torch.export.export(Model(depth).eval(), (example,)), program)
            builder.build_report(builder.BuildOptions(program=program, output=package, plain=plain))
        found.append((package, 2 * depth))
    return found


def compile_host(folder: Path) -> Path:
    """The C++ host."""
    import torch

    root = Path(torch.__file__).parent
    host = folder / "soak_host"
    include = [f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include"]
    libraries = [f"-L{root}/lib", f"-Wl,-rpath,{root}/lib", "-ltorch", "-ltorch_cpu", "-lc10"]
    command = ["g++", "-std=c++20", "-O1", "-pthread", str(HOST), *include, "-o", str(host), *libraries]
    subprocess.run(command, check=True)
    return host


@dataclass(frozen=True)
class Outcome:
    """What came of a part.

    Attributes:
        reason: why it failed; "" if all outputs were equal and nothing grew.
    """

    part: Part
    launches: int
    seconds: float
    memory_slope: float  # KiB per 1000 launches
    descriptor_slope: float  # per 1000 launches
    reason: str

    @property
    def markdown(self) -> str:
        return (
            f"| {self.part.name} | {self.part.host} | {self.launches} | {self.seconds:.0f} s "
            f"| {self.memory_slope:+.2f} | {self.descriptor_slope:+.4f} | {self.reason or 'equal'} |"
        )


def slope(points: Sequence[tuple[int, int]]) -> float:
    """Of the line through points, least squares; 0 for fewer than three of them."""
    if len(points) < 3:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def soak(part: Part, launches: int, command: Sequence[str | Path], folder: Path, plain: Outcome | None) -> Outcome:
    """Runs a host until it has made its launches.

    Args:
        plain: the outcome of the plain packages under the same limits, if there are any, else without limits.
    """
    runs = folder / "runs"
    runs.mkdir()
    variables = {n: v for n, v in os.environ.items() if not n.startswith("AOTI_DEBUG_")} | part.variables
    variables |= {"AOTI_DEBUG_DIR": str(runs), "AOTI_DEBUG_PRINT": "none", "AOTI_DEBUG_MAX_FILES": "100"}
    variables |= {"AOTI_DEBUG_JOURNAL_BYTES": "2M", "AOTI_DEBUG_FLIGHT": "4", "OMP_NUM_THREADS": "1"}
    began = time.monotonic()

    def limit() -> None:
        for which, most in part.limits:
            resource.setrlimit(which, (most, most))

    with trouble(part, runs), (folder / "stderr").open("w") as said:
        host = subprocess.run(
            [*map(str, command)], env=variables, stdout=subprocess.PIPE, stderr=said, text=True, preexec_fn=limit
        )
    shutil.rmtree(runs, ignore_errors=True)
    points = [tuple(map(int, line.split())) for line in host.stdout.splitlines()]
    done = points[-1][0] if points else 0
    steady = [point for point in points if point[0] >= WARM * done]
    memory = slope([(x, y) for x, y, _ in steady]) * 1000 / 1024
    descriptors = slope([(x, y) for x, _, y in steady]) * 1000
    reasons = []
    limited = plain is not None and plain.part.limits == part.limits != ()
    if part.is_plain and part.limits:
        pass  # what ends it would end any package
    elif limited and plain is not None and done >= min(launches, SURVIVES * plain.launches):
        pass
    elif host.returncode != 0 or done < launches:
        last = (folder / "stderr").read_text().strip().splitlines()[-1:]
        reasons.append(f"exit status {host.returncode} {' '.join(last)}")
    if plain is not None and memory > plain.memory_slope + LARGEST_SLOPE:
        reasons.append("memory grows")
    if descriptors > LARGEST_DESCRIPTORS:
        reasons.append("descriptors grow")
    return Outcome(part, done, time.monotonic() - began, memory, descriptors, "; ".join(reasons))


@contextlib.contextmanager
def trouble(part: Part, runs: Path) -> Iterator[None]:
    """What goes on beside a host."""
    if not part.trouble:
        yield
        return
    mounted = part.trouble == "full disk" and mount(runs)
    over = threading.Event()
    thread = threading.Thread(target=_make_trouble, args=(runs, part.trouble, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if mounted:
            subprocess.run(["umount", "-l", str(runs)], check=True)


def mount(runs: Path) -> bool:
    """Puts a small file system there; only root can."""
    options = f"size={TMPFS_BYTES}"
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(runs)], check=False).returncode == 0


def _make_trouble(runs: Path, kind: str, over: threading.Event) -> None:
    while not over.wait(0.5):
        if kind == "full disk" and runs.is_mount():
            with contextlib.suppress(OSError), (runs / "filler").open("wb") as filler:
                while True:
                    filler.write(bytes(1 << 20))
                    filler.flush()
            over.wait(0.5)
            (runs / "filler").unlink(missing_ok=True)
        for run in runs.glob("*-*"):
            shutil.rmtree(run, ignore_errors=True)


def kill_the_tool(package: Path, folder: Path) -> str:
    """Kills `aoti-debug run` while it runs; why what it leaves cannot be shown, or ""."""
    variables = os.environ | {"AOTI_DEBUG_DIR": str(folder / "killed")}
    tool = [sys.executable, "-m", "aoti_debug"]
    for number in range(KILLS):
        running = subprocess.Popen(
            [*tool, "run", str(package), "--level", "1"],
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 120
        while (
            not list((folder / "killed").glob("2*/run.json")) and time.monotonic() < deadline and running.poll() is None
        ):
            time.sleep(0.05)
        time.sleep(0.2 * number)
        running.kill()
        running.wait()
        time.sleep(1)
        shown = subprocess.run([*tool, "show"], env=variables, capture_output=True, text=True)
        if shown.returncode not in (0, 1):
            return f"show after a kill: {shown.stderr.strip()}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", metavar="WORD", help="parts whose names contain one of these")
    parser.add_argument("--folder", type=Path, help="where the packages are kept from one soak to the next")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        packages = build(folder)
        cpp = compile_host(folder)
        hosts: dict[str, list[str | Path]] = {"cpp": [cpp], "python": [sys.executable, PYTHON_HOST]}
        print("| trouble | host | launches | time | KiB / 1000 launches | files / 1000 launches | outputs |")
        print("|---|---|---|---|---|---|---|")
        bad = 0
        plain: dict[tuple[tuple[int, int], ...], Outcome] = {}  # by limits
        for part in PARTS:
            if arguments.only and not any(word in part.name for word in arguments.only):
                continue
            wanted = int(arguments.launches * part.share)
            work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            named = [str(word) for package in packages for word in package]
            command = [*hosts[part.host], str(wanted), folder / "plain0.pt2", folder / "plain1.pt2"]
            if part.is_plain:
                named = [word.replace("package", "plain") for word in named]
            outcome = soak(
                part, wanted, [*command, folder / "input.pickle", *named], work, plain.get(part.limits, plain.get(()))
            )
            if part.is_plain:
                plain[part.limits] = outcome
            bad += bool(outcome.reason)
            print(outcome.markdown, flush=True)
        reason = kill_the_tool(packages[0][0], Path(stack.enter_context(tempfile.TemporaryDirectory())))
        print(f"| `aoti-debug run` killed, {KILLS} times | | | | | | {reason or 'shown'} |")
    return 1 if bad or reason else 0


if __name__ == "__main__":
    sys.exit(main())
