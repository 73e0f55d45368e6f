"""Compares the times of `aoti-debug profile` with those of torch's own profiler.

usage: python -m benchmarks.performance.profile_accuracy [--device cpu|cuda] [--model NAME] [--calls N] [--rounds N]

The models are those of benchmarks/models/timed_models.py. torch.profiler measures the plain twin of the instrumented
package, in a process of its own; `profile` measures the instrumented one, on a GPU also in replays of a CUDA graph.
They take turns, and times are medians, of each launch over the calls, and of the rounds. Prints Markdown tables: the
time of each kernel in a call, and whether every launch of at least 20 µs is within 5 % of torch's time, in the same
order, and sums are within 2 % of what they should be. Exit code 1: something is not; other work on the machine is the
usual reason.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from aoti_debug.instrument.builder.build import BuildOptions, build_report
from aoti_debug.views.profile.model_profile import ModelProfile
from aoti_debug.views.profile.profile import ProfileOptions, profile
from benchmarks.markdown import table
from benchmarks.models import timed_models

LARGE = 20e-6  # seconds: what is shorter is not judged
NEAR = 0.05  # of the time of a launch, and of all of them
SUMS = 0.02
ALL = "all launches"
TORCH = """
import collections, json, re, statistics, sys, torch
from torch.profiler import ProfilerActivity, profile
package, program, calls, device = sys.argv[1:]
on_gpu = device == "cuda"
model = torch._inductor.aoti_load_package(package)
args, kwargs = torch.export.load(program).example_inputs
wait = torch.cuda.synchronize if on_gpu else (lambda: None)
with torch.no_grad():
    for _ in range(3):
        model(*args, **kwargs)
    wait()
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        for _ in range(int(calls)):
            model(*args, **kwargs)
        wait()
launches = collections.defaultdict(list)
for event in sorted(profiler.events(), key=lambda event: event.time_range.start):
    micros = event.device_time_total if on_gpu else event.cpu_time_total
    if micros:
        launches[re.sub(r"^graph_\\d+_", "", event.name)].append(1e-6 * micros)
times = {}
for name, found in launches.items():
    each = len(found) // int(calls)
    if each * int(calls) == len(found):
        times[name] = sum(statistics.median(found[number::each]) for number in range(each))
    else:
        times[name] = sum(found) / int(calls)
print(json.dumps(times))
"""

Times = Mapping[str, float]  # seconds in a call, by kernel


@dataclass(frozen=True)
class Models:
    """The exported program, the instrumented package, and its plain twin."""

    program: Path
    package: Path
    plain: Path


@dataclass(frozen=True)
class Measured:
    """A profile.

    Attributes:
        launches: seconds in a call, by kernel.
        total: of all launches.
        sum_to_wall: launches and gaps in proportion to the call.
        wall, back_to_back: seconds of a replay, and where replays follow one another; the second is None for calls.
    """

    launches: Times
    total: float
    sum_to_wall: float
    wall: float
    back_to_back: float | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="uneven", choices=["uneven", "blocks", "launches"])
    parser.add_argument("--calls", type=int, default=20, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aoti-debug-accuracy-") as folder:
        models = built(options.model, options.device, Path(folder))
        torch_times: list[Times] = []
        calls: list[Measured] = []
        replays: list[Measured] = []
        for number in range(options.rounds):
            torch_times.append(torch_profiler(models, options.calls, options.device))
            out = Path(folder) / str(number)
            calls.append(measured(profile(ProfileOptions(models.package, calls=options.calls, out=out / "calls"))))
            if options.device == "cuda":
                chosen = ProfileOptions(models.package, calls=options.calls, out=out / "replays", cuda_graph=True)
                replays.append(measured(profile(chosen)))
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{options.model}, {where}, torch {torch.__version__}, {options.rounds} rounds of {options.calls} calls\n")
    beside = {"`profile`": calls, **({"`profile --cuda-graph`": replays} if replays else {})}
    reference = medians(torch_times)
    times_table(reference, {name: medians([one.launches for one in rounds]) for name, rounds in beside.items()})
    checks = [check for name, rounds in beside.items() for check in checked(name, rounds, reference, options.device)]
    table(("", "", "", "limit", ""), checks)
    return int(any(check[-1] == "no" for check in checks))


def built(name: str, device: str, folder: Path) -> Models:
    """Exports and builds a model; on the CPU its kernels mark themselves for torch's profiler."""
    models = Models(folder / "model.pt2", folder / "model.instrumented.pt2", folder / "plain.pt2")
    torch.export.save(timed_models.export(name, device), models.program)
    configs = {"cpp.enable_kernel_profile": True} if device == "cpu" else {}
    build_report(
        BuildOptions(program=models.program, output=models.package, plain=models.plain, inductor_configs=configs)
    )
    return models


def torch_profiler(models: Models, calls: int, device: str) -> Times:
    """The times of torch's own profiler; waiting threads spin as briefly as in the processes of `profile`."""
    environment = {"GOMP_SPINCOUNT": "10000", **os.environ}
    command = [sys.executable, "-c", TORCH, str(models.plain), str(models.program), str(calls), device]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(found: ModelProfile) -> Measured:
    seconds: dict[str, float] = defaultdict(float)
    for site in found.sites:
        seconds[site.site.kernel] += site.seconds
    back_to_back = None if found.cost is None else found.cost.back_to_back
    return Measured(dict(seconds), found.launch_seconds, found.sum_to_wall, found.wall_seconds, back_to_back)


def medians(rounds: Sequence[Times]) -> dict[str, float]:
    """The median of each kernel that every round has."""
    common = set.intersection(*(set(one) for one in rounds))
    found = {name: statistics.median(one[name] for one in rounds) for name in common}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def times_table(reference: Times, beside: Mapping[str, Times]) -> None:
    """The kernels that both profilers know by the same name; those of libraries have other names in torch's."""
    header = ["kernel", "torch.profiler"]
    for name in beside:
        header += [name, ""]
    rows = []
    for kernel, seconds in reference.items():
        if all(kernel in times for times in beside.values()):
            row = [f"`{kernel}`", micros(seconds)]
            for times in beside.values():
                row += [micros(times[kernel]), f"{times[kernel] / seconds - 1:+.1%}"]
            rows.append(row)
    table(header, rows)


def checked(name: str, rounds: Sequence[Measured], reference: Times, device: str) -> list[list[str]]:
    """What should hold: its name, what was found, the limit, and whether it does."""
    times = medians([one.launches for one in rounds])
    large = [kernel for kernel, seconds in reference.items() if kernel in times and seconds >= LARGE]
    worst = max((abs(times[kernel] / reference[kernel] - 1) for kernel in large), default=0.0)
    in_order = sorted(large, key=lambda kernel: -times[kernel]) == large
    sums = statistics.median(abs(one.sum_to_wall - 1) for one in rounds)
    checks = [
        row(name, f"worst of {len(large)} launches of at least {micros(LARGE)}", worst, NEAR),
        [
            name,
            "order of these by time",
            "the same" if in_order else "another",
            "the same",
            "yes" if in_order else "no",
        ],
        row(name, "launches and gaps to a call", sums, SUMS),
    ]
    if device == "cuda":  # torch's profiler sees every kernel, by whatever name
        total = statistics.median(one.total for one in rounds)
        checks.append(row(name, f"{ALL} to torch's", abs(total / sum(reference.values()) - 1), NEAR))
    if all(one.back_to_back for one in rounds):
        to_replays = statistics.median(abs(one.wall / (one.back_to_back or 1) - 1) for one in rounds)
        checks.append(row(name, "a replay to one of many in a row", to_replays, SUMS))
    return checks


def row(name: str, what: str, found: float, limit: float) -> list[str]:
    return [name, what, f"{found:.1%}", f"{limit:.0%}", "yes" if found <= limit else "no"]


def micros(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} µs"


if __name__ == "__main__":
    sys.exit(main())
