"""Flips one bit in the result of one launch after the other, and looks whether `aoti-debug diff` names that launch.

usage: python -m benchmarks.differences.flipped_bits [MODEL ...]

The models are those of benchmarks/comparison/compare.py. The generated C++ kernels of a model get code that flips the
lowest bit of the first element of what they write, if a variable of the environment says so; the model is built once.
Each launch of a generated kernel is flipped in a run of its own, which is compared with a run without a flip. Prints a
Markdown table, and a line for each launch that was not named. Exit code 1: a flipped launch was not named first, or
another launch was blamed.
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
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.instrument.frontend.exported_program import WORKER
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.package.manifest import Kind
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir.run_directory import RunDir
from benchmarks.comparison.compare_bench import Bench
from benchmarks.comparison.compare_model import models
from benchmarks.markdown import table

MODELS = ("classifier", "operators", "mixer_bfloat16", "encoder", "image")
VARIABLE = "AOTI_FLIPPED_LAUNCH"  # "cpp_fused_add_0:2": the third launch of that kernel
_KERNEL = re.compile(r'extern "C"\s+void\s+(\w+)\(([^)]*)\)\n\{\n.*?\n\}\n', re.DOTALL)
_WRITTEN = re.compile(r"(?:^|,)\s*(?!const )[\w:]+\* (\w+)")
_FLIP = """{{
    static long launches = 0;
    const char* chosen = std::getenv("{variable}");
    if (chosen != nullptr && chosen == "{kernel}:" + std::to_string(launches))
        reinterpret_cast<unsigned char*>({written})[0] ^= 1;
    launches += 1;
}}
"""


@dataclass(frozen=True)
class Flipped:
    """The result of a model.

    Attributes:
        launches: those that were flipped, one at a time.
        named: how often the flipped launch was the first that parts.
        blamed: how many other launches were said to part, in all runs together.
    """

    model: str
    launches: int
    named: int
    blamed: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    results = [_flipped(name) for name in parser.parse_args().models]
    rows = [(r.model, str(r.launches), f"{r.named}", str(r.blamed)) for r in results]
    table(("model", "flipped launches", "named first", "others blamed"), rows)
    return int(any(result.named < result.launches or result.blamed for result in results))


def _flipped(name: str) -> Flipped:
    lowering = ("torch._inductor.compile_fx", "torch._inductor.package", WORKER)
    with (
        tempfile.TemporaryDirectory(prefix="aoti-debug-flipped-") as folder,
        python_process.forking_from(PRELOADED, lowering, read_late=(VARIABLE,)),
    ):
        bench = Bench(name, models()[name], "cpu", Path(folder))
        with bench.edited(_with_flips):
            bench.build(bench.package)
        original = _run(bench, "")
        found = [_named(bench, original, launch, chosen) for launch, chosen in _launches(original)]
    return Flipped(name, len(found), sum(named for named, _ in found), sum(blamed for _, blamed in found))


def _with_flips(lowered: LoweredModel) -> LoweredModel:
    kernels = _KERNEL.sub(_with_flip, lowered.sources.kernels)
    return replace(lowered, sources=replace(lowered.sources, kernels=kernels))


def _with_flip(match: re.Match[str]) -> str:
    written = _WRITTEN.findall(match[2])
    if not written:
        return match[0]
    flip = _FLIP.format(variable=VARIABLE, kernel=match[1], written=written[-1])
    return match[0].removesuffix("}\n") + flip + "}\n"


def _launches(run: RunDir) -> Iterator[tuple[str, str]]:
    """Yields the launches of generated kernels, and how VARIABLE names them."""
    met: Counter[str] = Counter()
    for launch in run.launches:
        if launch.site.kind is Kind.CPP:
            yield launch.id, f"{launch.kernel}:{met[launch.kernel]}"
            met[launch.kernel] += 1


def _named(bench: Bench, original: RunDir, launch: str, chosen: str) -> tuple[bool, int]:
    """True if a flipped launch is the first that parts, and the number of others that are said to."""
    diff = diff_runs(original, _run(bench, chosen))
    parted = [item.launch.id for item in diff.parted]
    if parted != [launch]:
        print(f"{bench.name}: {chosen} is {launch}; {', '.join(parted) or 'none'} said to part", flush=True)
    return parted[:1] == [launch], len([id_ for id_ in parted if id_ != launch])


def _run(bench: Bench, chosen: str) -> RunDir:
    os.environ[VARIABLE] = chosen
    os.environ["AOTI_DEBUG_PRINT"] = "none"
    imports = bench.example.imports
    return runner.run(RunOptions(bench.package, level=2, out=bench.folder / "runs", user_code=UserCode(imports))).run


if __name__ == "__main__":
    sys.exit(main())
