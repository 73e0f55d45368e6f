"""False alarms and detected slowdowns of `aoti-debug profile --against`.

usage: python -m benchmarks.performance.profile_alarms [--model NAME] [--repeats N] [--slowed N] [--percent P]
    [--calls N]

The models are those of benchmarks/comparison/compare.py. A package is compared with itself, again and again: every
launch that is said to be slower or faster is a false alarm. Then one generated kernel after the other takes P percent
longer: it waits at its end for that share of its own time, if a variable of the environment names it. Prints a Markdown
table, and a line for each alarm and each launch that was not found. Exit code 1: there was a false alarm.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.frontend.exported_program import WORKER
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.package.manifest import Kind
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.views.profile.changes import Change, Changes, ChangeVerdict
from aoti_debug.views.profile.profile import ProfileOptions, compare_with, run_options, run_to_the_end
from benchmarks.comparison.compare_bench import Bench
from benchmarks.comparison.compare_model import models
from benchmarks.markdown import table

VARIABLE = "AOTI_SLOWED_KERNEL"  # "cpp_fused_add_0:10": by ten percent
LONG_ENOUGH = 2000  # ns: a shorter launch is mostly its own bookkeeping
_KERNEL = re.compile(r'(extern "C"\s+void\s+(\w+)\([^)]*\)\n\{\n)(.*?\n)\}\n', re.DOTALL)
_BEGIN = "    const auto aoti_begin = std::chrono::steady_clock::now();\n"
_END = """    {{
        static const char* chosen = std::getenv("{variable}");
        static const std::string prefix = "{kernel}:";
        if (chosen != nullptr && std::string(chosen).rfind(prefix, 0) == 0) {{
            const double share = 1 + std::atof(chosen + prefix.size()) / 100;
            const auto own = std::chrono::steady_clock::now() - aoti_begin;
            while (std::chrono::steady_clock::now() - aoti_begin < own * share) {{}}
        }}
    }}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="classifier")
    parser.add_argument("--repeats", type=int, default=20, help="comparisons of the package with itself")
    parser.add_argument("--slowed", type=int, default=5, help="kernels that are slowed, one at a time")
    parser.add_argument("--percent", type=float, default=10.0, help="by how much")
    parser.add_argument("--calls", type=int, default=100, help="of each model in a comparison")
    options = parser.parse_args()
    lowering = ("torch._inductor.compile_fx", "torch._inductor.package", WORKER)
    with (
        tempfile.TemporaryDirectory(prefix="aoti-debug-alarms-") as folder,
        python_process.forking_from(PRELOADED, lowering, read_late=(VARIABLE,)),
    ):
        bench = Bench(options.model, models()[options.model], "cpu", Path(folder))
        with bench.edited(_with_waits):
            bench.build(bench.package)
        plain = run_options(
            bench.package,
            ProfileOptions(bench.package, calls=options.calls, user_code=UserCode(bench.example.imports)),
            bench.folder,
            "runs",
            Steps(None),
        )
        alarms = sum(_alarms(plain, number) for number in range(options.repeats))
        kernels = _kernels(plain)[: options.slowed]
        found, others = 0, 0
        for kernel in kernels:
            named, blamed = _slowed(plain, kernel, options.percent)
            found, others = found + named, others + blamed
    rows = [
        ("comparisons of a package with itself", str(options.repeats)),
        ("false alarms in them", str(alarms)),
        (f"kernels slowed by {options.percent:g} %, one at a time", str(len(kernels))),
        ("found", str(found)),
        ("other launches said to have changed", str(others)),
    ]
    table((options.model, ""), rows)
    return int(alarms > 0 or others > 0)


def _with_waits(lowered: LoweredModel) -> LoweredModel:
    kernels = _KERNEL.sub(_with_wait, lowered.sources.kernels)
    includes = "#include <chrono>\n#include <cstdlib>\n#include <string>\n"
    return replace(lowered, sources=replace(lowered.sources, kernels=includes + kernels))


def _with_wait(match: re.Match[str]) -> str:
    return f"{match[1]}{_BEGIN}{match[3]}{_END.format(variable=VARIABLE, kernel=match[2])}}}\n"


def _kernels(options: RunOptions) -> list[str]:
    """The generated kernels that are launched once in a call and take long enough, the longest first."""
    run = run_to_the_end(options, options.package)
    last = [launch for launch in run.launches if launch.key.call == run.info.all_calls - 1]
    times = {x.kernel: (x.end_ns or 0) - x.begin_ns for x in last if x.site.kind is Kind.CPP}
    names = [x.kernel for x in last]
    chosen = [name for name, ns in times.items() if ns >= LONG_ENOUGH and names.count(name) == 1]
    return sorted(chosen, key=lambda name: -times[name])


def _alarms(options: RunOptions, number: int) -> int:
    found = _changed(compare_with(options.package, options.package, options, options, Steps(None)))
    for change in found:
        print(f"alarm in comparison {number}: {_told(change)}", flush=True)
    return len(found)


def _slowed(options: RunOptions, kernel: str, percent: float) -> tuple[int, int]:
    """1 if the slowed kernel was found, and the number of other launches that were said to have changed."""
    slow = replace(options, environment={**options.environment, VARIABLE: f"{kernel}:{percent}"})
    changes = compare_with(options.package, options.package, options, slow, Steps(None))
    found = [change for change in _changed(changes) if change.group is not None]
    named = [change for change in found if kernel in _names(change) and change.verdict is ChangeVerdict.SLOWER]
    for change in changes.launches:
        if kernel in _names(change):
            print(f"slowed by {percent:g} %: {_told(change)}", flush=True)
    for change in found:
        if kernel not in _names(change):
            print(f"blamed instead of {kernel}: {_told(change)}", flush=True)
    return len(named), len(found) - len(named)


def _changed(changes: Changes) -> list[Change]:
    return [change for change in (changes.call, *changes.launches) if change.verdict is not ChangeVerdict.UNCHANGED]


def _names(change: Change) -> list[str]:
    return [] if change.group is None else [site.kernel for site in change.group.new]


def _told(change: Change) -> str:
    name = ", ".join(_names(change)) or "the whole call"
    return f"{name} {change.verdict.value} {change.ratio - 1:+.1%} (chance {change.chance:.1g})"


if __name__ == "__main__":
    sys.exit(main())
