"""Changes one number in the result of one launch after the other: does `aoti-debug diff` take it for rounding?

usage: python -m benchmarks.differences.changed_results [MODEL ...]

The models are those of flipped_bits.py. The generated C++ kernels of a model get code that makes the first
number of a floating result half as large again, and adds a half, if a variable of the environment says so; the model is
built once. Each launch of such a kernel is changed in a run of its own, which is compared with a run without a change.
Prints a Markdown table, and a line for each launch that is not said to be wrong in the changed run. Exit code 1: a
changed launch was explained as rounding, or another launch was said to be wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.compare.diff.difference import DiffCause
from aoti_debug.compare.diff.explain_differences import explain_differences
from aoti_debug.instrument.frontend.exported_program import WORKER
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir.run_directory import RunDir
from benchmarks.comparison.compare_bench import Bench
from benchmarks.comparison.compare_model import models
from benchmarks.differences.flipped_bits import MODELS
from benchmarks.markdown import table

VARIABLE = "AOTI_CHANGED_LAUNCH"  # "cpp_fused_add_0:2": the third launch of that kernel
_KERNEL = re.compile(r'extern "C"\s+void\s+(\w+)\(([^)]*)\)\n\{\n.*?\n\}\n', re.DOTALL)
_WRITTEN = re.compile(r"(?:^|,)\s*(?!const )(?:float|double|at::BFloat16|at::Half)\* (\w+)")
_CHANGE = """{{
    static long launches = 0;
    const char* chosen = std::getenv("{variable}");
    if (chosen != nullptr && chosen == "{kernel}:" + std::to_string(launches))
        {written}[0] = {written}[0] * 1.5f + 0.5f;
    launches += 1;
}}
"""


@dataclass(frozen=True)
class Changed:
    """The result of a model.

    Attributes:
        launches: those that were changed, one at a time.
        same: of these, how many wrote the same bytes all the same: nothing was changed.
        wrong: how often the changed launch was said to be wrong in the changed run.
        unknown: how often it was not known.
        explained: how often it was said to be rounding.
        blamed: how many other launches were said to be wrong, in all runs together.
    """

    model: str
    launches: int = 0
    same: int = 0
    wrong: int = 0
    unknown: int = 0
    explained: int = 0
    blamed: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    results = [_changed(name) for name in parser.parse_args().models]
    head = ("model", "changed launches", "said to be wrong", "not known", "said to be rounding", "others blamed")
    rows = [(r.launches - r.same, r.wrong, r.unknown, r.explained, r.blamed) for r in results]
    table(head, [(r.model, *map(str, row)) for r, row in zip(results, rows, strict=True)])
    return int(any(result.explained or result.blamed for result in results))


def _changed(name: str) -> Changed:
    lowering = ("torch._inductor.compile_fx", "torch._inductor.package", WORKER)
    with (
        tempfile.TemporaryDirectory(prefix="aoti-debug-changed-") as folder,
        python_process.forking_from(PRELOADED, lowering, read_late=(VARIABLE,)),
    ):
        bench = Bench(name, models()[name], "cpu", Path(folder))
        kernels: set[str] = set()
        with bench.edited(lambda lowered: _with_changes(lowered, kernels)):
            bench.build(bench.package)
        original, found = _run(bench, ""), Changed(name)
        for launch, chosen in _launches(original, kernels):
            found = _counted(found, bench, original, launch, chosen)
    return found


def _with_changes(lowered: LoweredModel, met: set[str]) -> LoweredModel:
    """The sources with the change; `met` gets the kernels that have it."""

    def changed(match: re.Match[str]) -> str:
        written = _WRITTEN.findall(match[2])
        if not written:
            return match[0]
        met.add(match[1])
        change = _CHANGE.format(variable=VARIABLE, kernel=match[1], written=written[-1])
        return match[0].removesuffix("}\n") + change + "}\n"

    kernels = _KERNEL.sub(changed, lowered.sources.kernels)
    return replace(lowered, sources=replace(lowered.sources, kernels=kernels))


def _launches(run: RunDir, kernels: set[str]) -> Iterator[tuple[str, str]]:
    """Yields the launches of changed kernels, and how VARIABLE names them."""
    met: Counter[str] = Counter()
    for launch in run.launches:
        if launch.kernel in kernels:
            yield launch.id, f"{launch.kernel}:{met[launch.kernel]}"
            met[launch.kernel] += 1


def _counted(found: Changed, bench: Bench, original: RunDir, launch: str, chosen: str) -> Changed:
    other = _run(bench, chosen)
    diff = explain_differences(diff_runs(original, other), UserCode(), Steps(None))
    explanations = {item.launch.id: item.explanation for item in diff.launches}
    own = explanations.pop(launch, None)
    blamed = [id_ for id_, explanation in explanations.items() if explanation and explanation.cause is DiffCause.WRONG]
    is_same = own is None and not diff.launches
    is_wrong = own is not None and own.wrong == ("b",)
    is_unknown = not is_same and not is_wrong and (own is None or not own.is_explained)
    if not is_wrong or blamed:
        said = "nothing" if own is None else f"{own.cause.value}, {own.reason}"
        print(f"{found.model}: {chosen} is {launch}: {said}; blamed: {', '.join(blamed) or 'none'}", flush=True)
    return Changed(
        found.model,
        found.launches + 1,
        found.same + is_same,
        found.wrong + is_wrong,
        found.unknown + is_unknown,
        found.explained + (own is not None and own.is_explained),
        found.blamed + len(blamed),
    )


def _run(bench: Bench, chosen: str) -> RunDir:
    os.environ[VARIABLE] = chosen
    os.environ["AOTI_DEBUG_PRINT"] = "none"
    return bench.run(bench.package)


if __name__ == "__main__":
    sys.exit(main())
